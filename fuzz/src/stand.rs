//! What stands around a device model: memory, and a bus with little room, whose reads end late, in parts, or badly.

use std::collections::VecDeque;

use etherslot_pci::function::{Bus, Fault, Function, InterruptMode, ResetKind};

use crate::Input;

/// Bytes of memory.
pub const MEMORY_BYTES: usize = 256 << 10;

/// Memory, and what is under way to it.
pub struct Memory {
    /// What is in it.
    pub bytes: Vec<u8>,
    pending: VecDeque<(u64, usize, u64)>,
    room: usize,
    now_ns: u64,
    master: bool,
    mode: InterruptMode,
}

impl Memory {
    /// Puts data there, as a guest does.
    pub fn store(&mut self, address: u64, data: &[u8]) {
        let at = address as usize;
        self.bytes[at..at + data.len()].copy_from_slice(data);
    }

    fn grant(&mut self, bytes: usize) -> usize {
        let granted = bytes.min(self.room);
        if self.room != usize::MAX {
            self.room -= granted;
        }
        granted
    }
}

impl Bus for Memory {
    fn now_ns(&self) -> u64 {
        self.now_ns
    }

    fn is_master(&self) -> bool {
        self.master
    }

    fn write(&mut self, address: u64, data: &[u8]) -> usize {
        assert!(self.master && !data.is_empty(), "a write that may not be");
        if data.len() <= 64 && self.room < data.len() {
            return 0;
        }
        let granted = self.grant(data.len());
        let at = usize::try_from(address).unwrap_or(usize::MAX);
        if let Some(place) = self.bytes.get_mut(at..at.saturating_add(granted)) {
            place.copy_from_slice(&data[..granted]);
        }
        granted
    }

    fn read(&mut self, address: u64, bytes: usize, token: u64) -> usize {
        assert!(self.master && bytes > 0, "a read that may not be");
        let granted = self.grant(bytes);
        if granted > 0 {
            self.pending.push_back((address, granted, token));
        }
        granted
    }

    fn interrupt_mode(&self) -> InterruptMode {
        self.mode
    }

    fn interrupt(&mut self, _vector: u16) -> bool {
        self.grant(1) == 1
    }

    fn set_intx(&mut self, _asserted: bool) -> bool {
        self.grant(1) == 1
    }
}

/// A Function, and what is around it.
pub struct Stand<F> {
    /// It.
    pub function: F,
    /// What it reaches.
    pub memory: Memory,
}

impl<F: Function> Stand<F> {
    /// With empty memory, a bus with all room, and interrupts by messages.
    pub fn new(function: F) -> Self {
        let memory = Memory {
            bytes: vec![0; MEMORY_BYTES],
            pending: VecDeque::new(),
            room: usize::MAX,
            now_ns: 0,
            master: true,
            mode: InterruptMode::Msi(1),
        };
        Self { function, memory }
    }

    /// Writes a register.
    pub fn write(&mut self, bar: u8, offset: u64, value: u32) {
        self.function.bar_write(bar, offset, &value.to_le_bytes());
    }

    /// Reads a register.
    pub fn read(&mut self, bar: u8, offset: u64) -> u32 {
        let mut data = [0; 4];
        self.function.bar_read(bar, offset, &mut data);
        u32::from_le_bytes(data)
    }

    /// Answers the read that waits at `at`, in whole or a part of it.
    fn answer(&mut self, at: usize, part: usize, fault: Option<Fault>) {
        let Some((address, bytes, token)) = self.memory.pending.remove(at) else { return };
        let now = part.clamp(1, bytes);
        if now < bytes {
            self.memory.pending.push_front((address.wrapping_add(now as u64), bytes - now, token));
        }
        let start = usize::try_from(address).unwrap_or(usize::MAX);
        let data = self.memory.bytes.get(start..start.saturating_add(now));
        let result = match fault {
            Some(fault) => Err(fault),
            None => data.ok_or(Fault::UnsupportedRequest),
        };
        self.function.read_completed(token, address, now, result);
    }

    fn poll(&mut self) -> bool {
        let was_idle = self.function.is_idle() && self.function.deadline_ns().is_none();
        let worked = self.function.poll(&mut self.memory);
        assert!(!(was_idle && worked), "a Function that said it was idle did something");
        worked
    }

    /// Until nothing happens any more.
    ///
    /// # Panics
    /// If something always does.
    pub fn settle(&mut self) {
        (self.memory.room, self.memory.master) = (usize::MAX, true);
        for _ in 0..200_000 {
            let waiting = self.memory.pending.len();
            for _ in 0..waiting {
                self.answer(0, usize::MAX, None);
            }
            if self.poll() || waiting > 0 {
                continue;
            }
            match self.function.deadline_ns() {
                Some(at) => self.memory.now_ns = self.memory.now_ns.max(at),
                None => return,
            }
        }
        panic!("the Function does not come to rest");
    }

    /// What happens to any Function. `step` is below 100; those without a meaning do nothing.
    pub fn happen(&mut self, step: u8, input: &mut Input<'_>) {
        match step {
            0..=39 => {
                self.memory.now_ns += 1 << (input.u8() % 12);
                self.poll();
            }
            40..=69 => {
                let faults = [Fault::UnsupportedRequest, Fault::CompleterAbort, Fault::Poisoned];
                let fault = input.once_in(16).then(|| input.one_of(&faults));
                let at = input.below(self.memory.pending.len().max(1));
                let part = if input.flag() { usize::MAX } else { 1 + input.below(512) };
                self.answer(at, part, fault);
            }
            70..=79 => self.settle(),
            80..=83 => self.memory.room = if input.flag() { usize::MAX } else { input.below(2000) },
            84..=87 => {
                let count = input.u8() as usize;
                let at = input.u16() as usize % (MEMORY_BYTES - 256);
                self.memory.store(at as u64, input.bytes(count));
            }
            92 => self.memory.master = input.flag(),
            93 => {
                let modes = [InterruptMode::Msi(1), InterruptMode::IntX, InterruptMode::Disabled];
                self.memory.mode = input.one_of(&modes);
            }
            94..=96 => self.reset(),
            _ => {}
        }
    }

    /// What a reset of the Function does: reads under way never come back.
    pub fn reset(&mut self) {
        self.memory.pending.clear();
        self.function.reset(ResetKind::FunctionLevel);
    }
}
