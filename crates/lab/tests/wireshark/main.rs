//! The Wireshark dissector, run by a stock tshark on captures that our own code makes: `./run test wireshark`.
//! Root only to install tshark; nothing here needs a namespace.

mod captured;
mod mutants;
mod tshark;
mod vectors;

use std::sync::Once;

/// Completes this machine, once.
fn ready() {
    static READY: Once = Once::new();
    READY.call_once(|| etherslot_lab::ensure_programs(&[("tshark", "tshark")]).unwrap());
}
