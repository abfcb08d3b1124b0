//! Routes and interrupts: what the host node sets up in the Function and above it as the guest's settings change.

use super::{MESSAGE_ADDRESS, Outgoing, Purpose, Slot};
use crate::guest_config::RegisterWrite;
use crate::host_api::Interrupts;

impl Slot {
    /// Sets the windows of the port above the Function to its BARs.
    pub(super) fn queue_routes(&mut self) {
        let Some(config) = &self.config else { return };
        let addresses = std::array::from_fn(|bar| config.bar_address(bar));
        for (register, value) in config.layout().windows(&addresses) {
            let write = RegisterWrite { register, enables: 0xF, data: value.to_le_bytes() };
            self.outgoing.push_back(Outgoing::CfgWrite { target: self.port, write, purpose: Purpose::Own });
        }
    }

    /// Writes the messages that the guest's vectors stand for into the Function, once its memory can be written.
    pub(super) fn queue_interrupts(&mut self) {
        let Some(config) = &self.config else { return };
        if !self.interrupts_pending {
            return;
        }
        let layout = config.layout();
        let mut own = |target, write| {
            self.outgoing.push_back(Outgoing::CfgWrite { target, write, purpose: Purpose::Own });
        };
        match self.interrupts {
            Interrupts::Legacy => {}
            Interrupts::Msi(vectors) => {
                let Some(msi) = layout.msi else { return };
                let word = |at: u16, value: u32| RegisterWrite {
                    register: msi.capability + at,
                    enables: 0xF,
                    data: value.to_le_bytes(),
                };
                own(self.function, word(4, MESSAGE_ADDRESS as u32));
                own(self.function, word(8, (MESSAGE_ADDRESS >> 32) as u32));
                own(self.function, word(12, 0));
                own(self.function, word(16, 0));
                let enabled = vectors.max(1).next_power_of_two().trailing_zeros() as u16;
                own(self.function, control_write(msi.capability, 1 | enabled << 4));
            }
            Interrupts::MsiX => {
                let Some(msix) = layout.msix else { return };
                let base = config.bar_address(msix.bar as usize);
                if base == 0 || !config.memory_enabled() {
                    return;
                }
                for vector in 0..msix.vectors {
                    let mut data = [0; 16];
                    data[..8].copy_from_slice(&MESSAGE_ADDRESS.to_le_bytes());
                    data[8..12].copy_from_slice(&u32::from(vector).to_le_bytes());
                    let address = base + u64::from(msix.table_offset) + 16 * u64::from(vector);
                    self.outgoing.push_back(Outgoing::MemWrite { address, data });
                }
                let write = control_write(msix.capability, 1 << 15);
                self.outgoing.push_back(Outgoing::CfgWrite {
                    target: self.function,
                    write,
                    purpose: Purpose::Own,
                });
            }
        }
        self.interrupts_pending = false;
    }
}

/// A write to the Message Control word of an MSI or MSI-X capability.
pub(super) fn control_write(capability: u16, value: u16) -> RegisterWrite {
    let [low, high] = value.to_le_bytes();
    RegisterWrite { register: capability, enables: 0xC, data: [0, 0, low, high] }
}
