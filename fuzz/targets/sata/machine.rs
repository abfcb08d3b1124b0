//! What stands around a SATA controller: memory, a bus with little room, a disk with faults.

use std::collections::VecDeque;

use etherslot_devices::sata::{Config, Drive};
use etherslot_fuzz::Input;
use etherslot_pci::function::{Bus, Fault, Function, InterruptMode, ResetKind};
use etherslot_storage::MediumError;
use etherslot_storage::memory::{Disk, FaultOn, Latency, Options};

pub(crate) const MEMORY_BYTES: usize = 256 << 10;
pub(crate) const DATA: u64 = 0x2_0000;
const DISK_BYTES: u64 = 128 << 10;

pub(crate) struct Memory {
    pub(crate) bytes: Vec<u8>,
    pending: VecDeque<(u64, usize, u64)>,
    room: usize,
    now_ns: u64,
    master: bool,
    mode: InterruptMode,
}

impl Memory {
    pub(crate) fn store(&mut self, address: u64, data: &[u8]) {
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

/// A controller, and what is around it.
pub(crate) struct Machine<F> {
    pub(crate) function: F,
    pub(crate) memory: Memory,
    pub(crate) disk: Disk,
}

impl<F: Function> Machine<F> {
    pub(crate) fn new(input: &mut Input<'_>, make: impl FnOnce(Config) -> F) -> Self {
        let latency = Latency { read_ns: u64::from(input.u8()), write_ns: 50, ..Latency::default() };
        let disk = Disk::new(Options { bytes: DISK_BYTES, latency, depth: 8, ..Options::default() });
        let config = Config { ports: vec![Some(drive(&disk))], ..Config::default() };
        let memory = Memory {
            bytes: vec![0; MEMORY_BYTES],
            pending: VecDeque::new(),
            room: usize::MAX,
            now_ns: 0,
            master: true,
            mode: InterruptMode::Msi(1),
        };
        Self { function: make(config), memory, disk }
    }

    pub(crate) fn write(&mut self, bar: u8, offset: u64, value: u32) {
        self.function.bar_write(bar, offset, &value.to_le_bytes());
    }

    pub(crate) fn read(&mut self, bar: u8, offset: u64) -> u32 {
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
        assert!(!(was_idle && worked), "a controller that said it was idle did something");
        worked
    }

    /// Until nothing happens any more.
    pub(crate) fn settle(&mut self) {
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
        panic!("the controller does not come to rest");
    }

    /// What happens to any controller. `step` is below 100.
    pub(crate) fn happen(&mut self, step: u8, input: &mut Input<'_>) {
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
            88..=91 => {
                let on = input.one_of(&[FaultOn::Read, FaultOn::Write, FaultOn::Flush]);
                let errors = [MediumError::Failed, MediumError::NoSpace, MediumError::ReadOnly];
                let at = u64::from(input.u8()) << 9;
                self.disk.fail(on, at..at + 4096, input.one_of(&errors), 1 + u32::from(input.u8() & 3));
            }
            92 => self.memory.master = input.flag(),
            93 => {
                let modes = [InterruptMode::Msi(1), InterruptMode::IntX, InterruptMode::Disabled];
                self.memory.mode = input.one_of(&modes);
            }
            94..=96 => self.reset(),
            _ => self.disk.heal(),
        }
    }

    pub(crate) fn reset(&mut self) {
        self.memory.pending.clear();
        self.function.reset(ResetKind::FunctionLevel);
    }

    /// What a disk has to say of itself is at [`DATA`].
    pub(crate) fn assert_identified(&self) {
        let page = &self.memory.bytes[DATA as usize..][..512];
        assert_eq!(page.iter().fold(0, |sum: u8, byte| sum.wrapping_add(*byte)), 0, "a checksum");
        assert_eq!(page[510], 0xa5, "the disk says what it is");
    }
}

pub(crate) fn drive(disk: &Disk) -> Drive {
    Drive { serial: "FUZZ".into(), medium: Box::new(disk.medium()), block_bytes: 512 }
}

/// A Register FIS, most of them near to a good one.
pub(crate) fn fis(input: &mut Input<'_>) -> [u8; 20] {
    let mut fis = [0; 20];
    (fis[0], fis[1], fis[7]) = (0x27, 0x80, 0x40);
    fis[2] = input.one_of(&[
        0x60, 0x61, 0x25, 0x35, 0xc8, 0xca, 0x20, 0x30, 0xec, 0x06, 0x2f, 0x47, 0xe7, 0xea, 0xb0, 0xef, 0xe0,
        0xe1, 0xe5, 0xe6, 0x42, 0x90, 0xc6, 0x3d, 0xf1, 0xff,
    ]);
    fis[3] = input.one_of(&[1, 2, 8, 0x82, 0xd0, 0xda, 0xd9, 0xd8, 0x55, 3, 0]);
    (fis[4], fis[12]) = (input.u8(), input.one_of(&[1, 8, 0, 0x45, 0x80, 64]));
    if fis[2] == 0xb0 {
        (fis[5], fis[6]) = (0x4f, 0xc2);
    }
    if input.once_in(8) {
        let count = input.below(20);
        fis[..count].copy_from_slice(
            &{
                let mut any = [0; 20];
                let given = input.bytes(count);
                any[..given.len()].copy_from_slice(given);
                any
            }[..count],
        );
    }
    fis
}

/// A place for data and how much of it, most of them in memory.
pub(crate) fn region(input: &mut Input<'_>) -> (u64, u32) {
    let address = if input.once_in(12) { input.number() } else { DATA + (u64::from(input.u8()) << 8) };
    let bytes = if input.once_in(6) { input.number() as u32 } else { 512 << (input.u8() % 8) };
    (address, bytes)
}
