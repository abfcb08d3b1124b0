//! A host: the part of a driver that all tests need, over either controller.

use crate::bus::TestBus;
use etherslot_devices::sata::{Ahci, Config, Drive};
use etherslot_pci::function::{Fault, Function, InterruptMode};
use etherslot_storage::memory::{Disk, Options};

pub(crate) use crate::bus::Random;

/// Where commands find their data.
pub(crate) const DATA: u64 = 0x40_0000;
const LIST: u64 = 0x1000;
const RECEIVED: u64 = 0x2000;
const TABLES: u64 = 0x10_0000;
/// A table has a header of 128 bytes and at most 1016 regions.
const TABLE_BYTES: u64 = 0x4000;

/// A command in the making.
#[derive(Clone, Debug)]
pub(crate) struct Command {
    pub(crate) fis: [u8; 20],
    pub(crate) regions: Vec<(u64, u32)>,
    pub(crate) is_queued: bool,
}

impl Command {
    pub(crate) fn new(command: u8) -> Self {
        let mut fis = [0; 20];
        (fis[0], fis[1], fis[2], fis[7]) = (0x27, 0x80, command, 0x40);
        Self { fis, regions: Vec::new(), is_queued: false }
    }

    pub(crate) fn features(mut self, features: u16) -> Self {
        [self.fis[3], self.fis[11]] = features.to_le_bytes();
        self
    }

    pub(crate) fn lba(mut self, lba: u64) -> Self {
        let lba = lba.to_le_bytes();
        self.fis[4..7].copy_from_slice(&lba[..3]);
        self.fis[8..11].copy_from_slice(&lba[3..6]);
        self
    }

    pub(crate) fn count(mut self, count: u16) -> Self {
        [self.fis[12], self.fis[13]] = count.to_le_bytes();
        self
    }

    pub(crate) fn device(mut self, device: u8) -> Self {
        self.fis[7] = device;
        self
    }

    /// `bytes` bytes of memory from `address` on.
    pub(crate) fn data(mut self, address: u64, bytes: u32) -> Self {
        self.regions.push((address, bytes));
        self
    }

    /// READ or WRITE DMA EXT.
    pub(crate) fn dma(write: bool, lba: u64, sectors: u16) -> Self {
        Self::new(if write { 0x35 } else { 0x25 }).lba(lba).count(sectors)
    }

    /// READ or WRITE FPDMA QUEUED.
    pub(crate) fn queued(write: bool, tag: u8, lba: u64, sectors: u16) -> Self {
        let command = Self::new(if write { 0x61 } else { 0x60 });
        let command = command.lba(lba).features(sectors).count(u16::from(tag) << 3);
        Self { is_queued: true, ..command }
    }
}

/// What the host sees of a command that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) status: u8,
    pub(crate) error: u8,
    pub(crate) lba: u64,
    pub(crate) count: u16,
}

impl Outcome {
    pub(crate) fn is_good(&self) -> bool {
        self.status == 0x50
    }

    fn of(fis: &[u8]) -> Self {
        let lba = [fis[4], fis[5], fis[6], fis[8], fis[9], fis[10], 0, 0];
        Self {
            status: fis[2],
            error: fis[3],
            lba: u64::from_le_bytes(lba),
            count: u16::from_le_bytes([fis[12], fis[13]]),
        }
    }
}

/// The host, with an AHCI controller.
pub(crate) struct Host {
    pub(crate) ahci: Ahci,
    pub(crate) bus: TestBus,
    pub(crate) random: Random,
    /// Deliver reads in any order.
    pub(crate) shuffle: bool,
}

pub(crate) fn disk(bytes: u64) -> Disk {
    Disk::new(Options { bytes, ..Options::default() })
}

pub(crate) fn drive(disk: &Disk) -> Drive {
    Drive { serial: "DISK1".into(), medium: Box::new(disk.medium()), block_bytes: 512 }
}

impl Host {
    pub(crate) fn new(ports: Vec<Option<Drive>>) -> Self {
        Self::of(Config { ports, ..Config::default() })
    }

    pub(crate) fn of(config: Config) -> Self {
        let ahci = Ahci::new(config).unwrap();
        let mut bus = TestBus::new();
        bus.mode = InterruptMode::Msi(8);
        Self { ahci, bus, random: Random(7), shuffle: false }
    }

    /// A disk of 4 MiB at port 0, running.
    pub(crate) fn ready() -> (Self, Disk) {
        let disk = disk(4 << 20);
        let mut host = Self::new(vec![Some(drive(&disk))]);
        host.start();
        (host, disk)
    }

    // Registers

    pub(crate) fn read32(&mut self, offset: u64) -> u32 {
        let mut data = [0; 4];
        self.ahci.bar_read(5, offset, &mut data);
        u32::from_le_bytes(data)
    }

    pub(crate) fn write32(&mut self, offset: u64, value: u32) {
        self.ahci.bar_write(5, offset, &value.to_le_bytes());
    }

    pub(crate) fn port(&mut self, register: u64) -> u32 {
        self.read32(0x100 + register)
    }

    pub(crate) fn set_port(&mut self, register: u64, value: u32) {
        self.write32(0x100 + register, value);
    }

    /// As a driver starts port 0.
    pub(crate) fn start(&mut self) {
        self.write32(0x04, 1 << 31 | 2);
        self.set_port(0x00, LIST as u32);
        self.set_port(0x04, 0);
        self.set_port(0x08, RECEIVED as u32);
        self.set_port(0x0c, 0);
        self.set_port(0x18, 0x16);
        self.run();
        self.set_port(0x30, u32::MAX);
        self.set_port(0x10, u32::MAX);
        self.write32(0x08, u32::MAX);
        self.set_port(0x14, 0x7dc0_007f);
        self.set_port(0x18, 0x17);
        self.bus.sent.clear();
    }

    /// Clears and sets ST, as after an error.
    pub(crate) fn restart(&mut self) {
        self.set_port(0x18, 0x16);
        assert_eq!((self.port(0x38), self.port(0x34)), (0, 0), "PxCI and PxSACT go with ST");
        self.set_port(0x30, u32::MAX);
        self.set_port(0x10, u32::MAX);
        self.set_port(0x18, 0x17);
        self.run();
    }

    // Memory

    pub(crate) fn memory(&mut self, address: u64, bytes: usize) -> &mut [u8] {
        &mut self.bus.memory[address as usize..address as usize + bytes]
    }

    pub(crate) fn store(&mut self, address: u64, data: &[u8]) {
        self.memory(address, data.len()).copy_from_slice(data);
    }

    /// The FIS at `offset` of the received ones.
    pub(crate) fn received(&mut self, offset: u64) -> Vec<u8> {
        self.memory(RECEIVED + offset, 20).to_vec()
    }

    // Time

    pub(crate) fn step(&mut self) -> bool {
        let mut any = false;
        if !self.bus.hold_reads {
            for _ in 0..self.bus.pending.len() {
                let at =
                    if self.shuffle { self.random.below(self.bus.pending.len() as u64) as usize } else { 0 };
                let Some(read) = self.bus.pending.remove(at) else { break };
                let start = usize::try_from(read.address).unwrap_or(usize::MAX);
                let data = self.bus.memory.get(start..start.saturating_add(read.bytes));
                let result = data.ok_or(Fault::UnsupportedRequest);
                self.ahci.read_completed(read.token, read.address, read.bytes, result);
                any = true;
            }
        }
        let was_idle = self.ahci.is_idle() && self.ahci.deadline_ns().is_none();
        let worked = self.ahci.poll(&mut self.bus);
        assert!(!(was_idle && worked), "a controller that said it was idle did something");
        any | worked
    }

    /// Until nothing happens any more, with time passing for the media.
    pub(crate) fn run(&mut self) {
        for _ in 0..1_000_000 {
            if self.step() {
                continue;
            }
            match self.ahci.deadline_ns() {
                Some(at) if at > self.bus.now_ns => self.bus.now_ns = at,
                Some(_) => {}
                None => return,
            }
        }
        panic!("the controller does not come to rest: {:?}", self.ahci);
    }

    // Commands

    /// Lays a command into a slot, without telling of it.
    pub(crate) fn put(&mut self, slot: u8, command: &Command) {
        let table = TABLES + u64::from(slot) * TABLE_BYTES;
        let mut header = [0; 32];
        header[0] = 5;
        header[2..4].copy_from_slice(&(command.regions.len() as u16).to_le_bytes());
        header[8..16].copy_from_slice(&table.to_le_bytes());
        self.store(LIST + u64::from(slot) * 32, &header);
        self.store(table, &command.fis);
        for (at, (address, bytes)) in command.regions.iter().enumerate() {
            let mut region = [0; 16];
            region[..8].copy_from_slice(&address.to_le_bytes());
            region[12..].copy_from_slice(&(bytes - 1).to_le_bytes());
            self.store(table + 0x80 + 16 * at as u64, &region);
        }
    }

    pub(crate) fn issue(&mut self, slot: u8, command: &Command) {
        self.put(slot, command);
        if command.is_queued {
            self.set_port(0x34, 1 << slot);
        }
        self.set_port(0x38, 1 << slot);
    }

    /// Carries one command out that is not queued.
    pub(crate) fn command(&mut self, command: &Command) -> Outcome {
        let before = self.received(0x40);
        self.issue(3, command);
        self.run();
        if self.port(0x38) == 0 && self.received(0x40) == before && self.received(0x20)[0] == 0x5f {
            let fis = self.received(0x20);
            let outcome = Outcome::of(&fis);
            self.memory(RECEIVED + 0x20, 20).fill(0);
            return Outcome { status: fis[15], ..outcome };
        }
        let fis = self.received(0x40);
        assert_eq!(fis[0], 0x34, "a Register FIS");
        self.memory(RECEIVED + 0x40, 20).fill(0);
        Outcome::of(&fis)
    }

    /// One that has to go well.
    pub(crate) fn good(&mut self, command: &Command) -> Outcome {
        let outcome = self.command(command);
        assert!(outcome.is_good(), "{outcome:x?}");
        outcome
    }

    /// One that has to fail; its error. The port is started again.
    pub(crate) fn failed(&mut self, command: &Command) -> u8 {
        let outcome = self.command(command);
        assert_eq!(outcome.status & 1, 1, "{outcome:x?}");
        assert_ne!(self.port(0x10) & 1 << 30, 0, "PxIS.TFES");
        self.restart();
        outcome.error
    }

    /// IDENTIFY DEVICE, as words.
    pub(crate) fn identify(&mut self) -> Vec<u16> {
        self.good(&Command::new(0xec).data(DATA, 512));
        let page = self.memory(DATA, 512);
        page.chunks(2).map(|word| u16::from_le_bytes([word[0], word[1]])).collect()
    }

    /// READ LOG EXT.
    pub(crate) fn read_log(&mut self, log: u8) -> Vec<u8> {
        self.good(&Command::new(0x2f).lba(u64::from(log)).count(1).data(DATA, 512));
        self.memory(DATA, 512).to_vec()
    }
}

/// Bytes that tell where they belong.
pub(crate) fn pattern(seed: u8, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at / 512) as u8 ^ (at as u8).wrapping_mul(31) ^ seed).collect()
}
