//! A controller that works, but for what the input makes of it.

use std::cell::RefCell;
use std::rc::Rc;

use etherslot_devices::nvme::Nvme;
use etherslot_pci::function::{Bus, Fault, Function, FunctionSpec, InterruptMode, ResetKind};
use etherslot_wire::FunctionId;

use crate::{CQE_BYTES, IDENTIFY, PAGE_BYTES};

/// Lies that are kept, of each kind.
const MAX_LIES: usize = 8;

/// What it does that no controller should.
#[derive(Debug, Default)]
pub struct Plan {
    /// Bytes of registers, by offset: what they read as.
    pub registers: Vec<(u64, [u8; 8])>,
    /// Bytes of data structures of Identify, by offset: what they are.
    pub identity: Vec<(usize, [u8; 8])>,
    /// What it writes on its own account, and where.
    pub writes: Vec<(u64, Vec<u8>)>,
    /// What it signals on its own account.
    pub interrupts: Vec<u16>,
    /// Completion Queue Entries are changed so: these bits of each are flipped.
    pub twist: [u8; CQE_BYTES],
    /// Completion Queue Entries are not written.
    pub is_mute: bool,
    /// It does not look at its doorbells.
    pub is_deaf: bool,
}

impl Plan {
    pub fn lie_in_register(&mut self, offset: u64, value: u64) {
        if self.registers.len() < MAX_LIES {
            self.registers.push((offset, value.to_le_bytes()));
        }
    }

    pub fn lie_in_identify(&mut self, offset: usize, value: u64) {
        if self.identity.len() < MAX_LIES {
            self.identity.push((offset, value.to_le_bytes()));
        }
    }

    /// It tells the truth from now on.
    pub fn repent(&mut self) {
        *self = Self::default();
    }
}

pub struct Controller {
    pub nvme: Nvme,
    pub plan: Rc<RefCell<Plan>>,
}

/// The bus as the real controller sees it.
struct Twisted<'a> {
    bus: &'a mut dyn Bus,
    plan: &'a Plan,
}

impl Bus for Twisted<'_> {
    fn now_ns(&self) -> u64 {
        self.bus.now_ns()
    }

    fn is_master(&self) -> bool {
        self.bus.is_master()
    }

    fn write(&mut self, address: u64, data: &[u8]) -> usize {
        if data.len() == CQE_BYTES {
            if self.plan.is_mute {
                return data.len();
            }
            let twisted: [u8; CQE_BYTES] = std::array::from_fn(|at| data[at] ^ self.plan.twist[at]);
            return self.bus.write(address, &twisted);
        }
        if !self.plan.identity.is_empty() && (IDENTIFY..IDENTIFY + PAGE_BYTES as u64).contains(&address) {
            let (start, mut data) = ((address - IDENTIFY) as usize, data.to_vec());
            for (offset, bytes) in &self.plan.identity {
                for (at, byte) in bytes.iter().enumerate() {
                    if let Some(place) = (offset + at).checked_sub(start).and_then(|at| data.get_mut(at)) {
                        *place = *byte;
                    }
                }
            }
            return self.bus.write(address, &data);
        }
        self.bus.write(address, data)
    }

    fn read(&mut self, address: u64, bytes: usize, token: u64) -> usize {
        self.bus.read(address, bytes, token)
    }

    fn interrupt_mode(&self) -> InterruptMode {
        self.bus.interrupt_mode()
    }

    fn interrupt(&mut self, vector: u16) -> bool {
        self.bus.interrupt(vector)
    }

    fn set_intx(&mut self, asserted: bool) -> bool {
        self.bus.set_intx(asserted)
    }
}

impl Function for Controller {
    fn spec(&self) -> FunctionSpec {
        self.nvme.spec()
    }

    fn bar_read(&mut self, bar: u8, offset: u64, data: &mut [u8]) {
        self.nvme.bar_read(bar, offset, data);
        for (start, bytes) in &self.plan.borrow().registers {
            for (at, byte) in bytes.iter().enumerate() {
                let place = (start + at as u64).checked_sub(offset);
                if let Some(place) = place.and_then(|at| data.get_mut(at as usize)) {
                    *place = *byte;
                }
            }
        }
    }

    fn bar_write(&mut self, bar: u8, offset: u64, data: &[u8]) {
        if !self.plan.borrow().is_deaf || offset < 0x1000 {
            self.nvme.bar_write(bar, offset, data);
        }
    }

    fn read_completed(&mut self, token: u64, address: u64, bytes: usize, result: Result<&[u8], Fault>) {
        self.nvme.read_completed(token, address, bytes, result);
    }

    fn poll(&mut self, bus: &mut dyn Bus) -> bool {
        let mut plan = self.plan.borrow_mut();
        let mut progress = false;
        if bus.is_master() {
            // What finds no room is lost.
            for (address, data) in plan.writes.drain(..) {
                progress |= bus.write(address, &data) != 0;
            }
            for vector in plan.interrupts.drain(..) {
                progress |= bus.interrupt(vector);
            }
        }
        progress | self.nvme.poll(&mut Twisted { bus, plan: &plan })
    }

    fn deadline_ns(&self) -> Option<u64> {
        self.nvme.deadline_ns()
    }

    fn reset(&mut self, kind: ResetKind) {
        self.nvme.reset(kind);
    }

    fn identified(&mut self, id: FunctionId) {
        self.nvme.identified(id);
    }
}
