//! Etherslot: vfio-user.
