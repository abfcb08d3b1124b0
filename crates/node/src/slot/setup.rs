//! Routes and interrupts: what the host node sets up in the Function and above it as the guest's settings change.

use super::{MESSAGE_ADDRESS, Outgoing, Purpose, Slot};
use crate::guest_config::RegisterWrite;
use crate::host_api::Interrupts;

impl Slot {
    /// Sets the windows of the port above the Function to its BARs.
    pub(super) fn queue_routes(&mut self) {
        self.moved();
        let Some(config) = &self.config else { return };
        let addresses = std::array::from_fn(|bar| config.bar_address(bar));
        for (register, value) in config.layout().windows(&addresses) {
            let write = RegisterWrite { register, enables: 0xF, data: value.to_le_bytes() };
            self.outgoing.push_back(Outgoing::CfgWrite { target: self.port, write, purpose: Purpose::Own });
        }
    }

    /// Brings the Function's interrupts to what the guest has set up, as far as its memory can be written, once all that
    /// was asked before is on its way: however often the guest changes its mind, what waits stays bounded. True if
    /// something was queued.
    pub(super) fn queue_interrupts(&mut self) -> bool {
        if self.interrupts_told == self.interrupts || !self.outgoing.is_empty() {
            return false;
        }
        let Some(config) = &self.config else { return false };
        let layout = config.layout();
        let (msi, msix) = (layout.msi, layout.msix);
        let mut own = |write| {
            self.outgoing.push_back(Outgoing::CfgWrite {
                target: self.function,
                write,
                purpose: Purpose::Own,
            });
        };
        if std::mem::discriminant(&self.interrupts_told) != std::mem::discriminant(&self.interrupts) {
            let capability = match self.interrupts_told {
                Interrupts::Legacy => None,
                Interrupts::Msi(_) => msi.map(|msi| msi.capability),
                Interrupts::MsiX => msix.map(|msix| msix.capability),
            };
            if let Some(capability) = capability {
                own(control_write(capability, 0));
            }
            self.interrupts_told = Interrupts::Legacy;
        }
        match self.interrupts {
            Interrupts::Legacy => {}
            Interrupts::Msi(vectors) => {
                let Some(msi) = msi else { return !self.outgoing.is_empty() };
                let word = |at: u16, value: u32| RegisterWrite {
                    register: msi.capability + at,
                    enables: 0xF,
                    data: value.to_le_bytes(),
                };
                own(word(4, MESSAGE_ADDRESS as u32));
                own(word(8, (MESSAGE_ADDRESS >> 32) as u32));
                own(word(12, 0));
                own(word(16, 0));
                let enabled = vectors.max(1).next_power_of_two().trailing_zeros() as u16;
                own(control_write(msi.capability, 1 | enabled << 4));
            }
            Interrupts::MsiX => {
                let Some(msix) = msix else { return !self.outgoing.is_empty() };
                let base = config.bar_address(msix.bar as usize);
                if base == 0 || !config.memory_enabled() {
                    return !self.outgoing.is_empty();
                }
                for vector in 0..msix.vectors {
                    let mut data = [0; 16];
                    data[..8].copy_from_slice(&MESSAGE_ADDRESS.to_le_bytes());
                    data[8..12].copy_from_slice(&u32::from(vector).to_le_bytes());
                    let address = base + u64::from(msix.table_offset) + 16 * u64::from(vector);
                    self.outgoing.push_back(Outgoing::MemWrite { address, data });
                }
                self.outgoing.push_back(Outgoing::CfgWrite {
                    target: self.function,
                    write: control_write(msix.capability, 1 << 15),
                    purpose: Purpose::Own,
                });
            }
        }
        self.interrupts_told = self.interrupts;
        !self.outgoing.is_empty()
    }
}

/// A write to the Message Control word of an MSI or MSI-X capability.
fn control_write(capability: u16, value: u16) -> RegisterWrite {
    let [low, high] = value.to_le_bytes();
    RegisterWrite { register: capability, enables: 0xC, data: [0, 0, low, high] }
}
