//! Etherslot: node.
