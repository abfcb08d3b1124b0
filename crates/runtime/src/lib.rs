//! Etherslot: runtime.
