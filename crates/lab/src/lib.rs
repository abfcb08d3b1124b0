//! Etherslot: lab.
