//! Etherslot: mem.
