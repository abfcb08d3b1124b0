//! Etherslot: session.
