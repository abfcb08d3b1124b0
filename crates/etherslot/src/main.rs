//! Etherslot.
fn main() {}
