//! Etherslot: devices.
