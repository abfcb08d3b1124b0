//! Identities: Functions (PCIe Base 6.0, 2.2.4.2 "ID Based Routing"), Transaction tags, nodes.

use core::fmt;

/// Bus, Device and Function number: the ID of a Requester or a Completer (PCIe Base 6.0, 2.2.6.2).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct FunctionId(pub u16);

impl FunctionId {
    /// The ID of function `function` (0..=7) of device `device` (0..=31) on bus `bus`; higher bits are cut off.
    pub const fn new(bus: u8, device: u8, function: u8) -> Self {
        Self((bus as u16) << 8 | ((device & 31) as u16) << 3 | (function & 7) as u16)
    }
    /// Bus number.
    pub const fn bus(self) -> u8 {
        (self.0 >> 8) as u8
    }
    /// Device number, 0..=31.
    pub const fn device(self) -> u8 {
        (self.0 >> 3) as u8 & 31
    }
    /// Function number, 0..=7.
    pub const fn function(self) -> u8 {
        self.0 as u8 & 7
    }
}

impl fmt::Debug for FunctionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02x}:{:02x}.{}", self.bus(), self.device(), self.function())
    }
}

impl fmt::Display for FunctionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// A Transaction's Tag, 10 bits (PCIe Base 6.0, 2.2.6.2).
pub type Tag = u16;

/// What a node is known by: 128 bits, stable over restarts, the same on every Port it has.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct NodeId(pub [u8; 16]);

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
