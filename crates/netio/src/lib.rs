//! Etherslot: netio.
