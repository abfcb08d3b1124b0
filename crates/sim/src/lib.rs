//! Etherslot: sim.
