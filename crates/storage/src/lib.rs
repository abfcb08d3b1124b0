//! Etherslot: storage.
