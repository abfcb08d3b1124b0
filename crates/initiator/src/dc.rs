//! The driver of a DC buffer: its BAR gets an address, and that is all.

use std::fmt;

use crate::enumeration::Enumeration;
use crate::machine::Machine;

/// The base class of its class code.
const MEMORY_CONTROLLER: u8 = 0x05;

/// A driver of a DC buffer.
#[derive(Debug, Default)]
pub(crate) struct Driver {
    lives: u64,
    enumeration: Option<Enumeration>,
    asked: bool,
    /// Bytes of the BAR, once it can be reached.
    bytes: u64,
}

impl Driver {
    /// Goes on with everything that can go on. True if something was done.
    pub(crate) fn drive<A: Copy + Eq + fmt::Display>(
        &mut self,
        now_ns: u64,
        machine: &mut Machine<'_, A>,
    ) -> bool {
        if machine.lives() != self.lives {
            *self = Self { lives: machine.lives(), ..Self::default() };
            let slot = machine.slot();
            // Something else in its place would take data for commands.
            let layout = machine.layout().filter(|layout| layout.class[0] == MEMORY_CONTROLLER);
            self.enumeration = layout.map(|layout| Enumeration::above(layout, slot));
        }
        let mut progress = false;
        while let Some(enumeration) = &mut self.enumeration {
            let Some(access) = enumeration.access() else {
                self.enumeration = None;
                self.bytes = machine.device().map_or(0, |device| device.bar_bytes[0]);
                return true;
            };
            self.asked = self.asked || machine.ask(now_ns, access);
            if !self.asked || machine.answer().is_none() {
                break;
            }
            self.asked = false;
            enumeration.answered();
            progress = true;
        }
        progress
    }

    /// Bytes that devices reach; 0 while it is not there.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}
