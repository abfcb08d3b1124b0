//! The rules of the `SiI3132`, as its drivers expect them. What the disk does is tested behind AHCI.

use crate::bus::TestBus;
use crate::host::{Command, DATA, Random, disk, drive, pattern};
use etherslot_devices::sata::{Config, Drive, Sil3132};
use etherslot_pci::function::{Fault, Function, InterruptMode, ResetKind};
use etherslot_storage::MediumError;
use etherslot_storage::memory::{Disk, FaultOn, Latency, Options};
use proptest::prelude::*;

const BLOCKS: u64 = 0x10_0000;
const READY: u32 = 1 << 31;
const COMPLETE: u32 = 1;
const ERROR: u32 = 2;
const TERMINATE: u32 = 1 << 31;
const LINK: u32 = 1 << 30;
const DISCARD: u32 = 1 << 29;

struct Host {
    sil: Sil3132,
    bus: TestBus,
    random: Random,
    shuffle: bool,
}

impl Host {
    fn new(ports: Vec<Option<Drive>>) -> Self {
        let sil = Sil3132::new(Config { ports, ..Config::default() }).unwrap();
        let mut bus = TestBus::new();
        bus.mode = InterruptMode::IntX;
        Self { sil, bus, random: Random(3), shuffle: false }
    }

    /// A disk of 4 MiB at port 0, as a driver starts it.
    fn ready() -> (Self, Disk) {
        let disk = disk(4 << 20);
        let mut host = Self::new(vec![Some(drive(&disk))]);
        host.start();
        (host, disk)
    }

    fn start(&mut self) {
        self.global(0x40, 0);
        self.set(0x1004, 1 | 1 << 3 | 1 << 10 | 1 << 13 | 1 << 6);
        self.global(0x40, 3);
        assert_eq!(self.get(0x1000) & READY, READY);
        self.set(0x1000, 2);
        self.run();
        assert_eq!((self.get(0x1000) & 2, self.get(0x1f04)), (0, 0x123), "reset, and 3 Gbit/s");
        self.set(0x1000, 4);
        let mut reset = Command::new(0);
        reset.fis[1] = 0;
        self.put(0, &reset, 1 << 7);
        self.activate(0);
        self.run();
        assert_eq!(self.get(0x1008) >> 16 & 3, COMPLETE, "the soft reset is complete");
        assert_eq!(self.fis(0)[2..8], [0x50, 1, 1, 0, 0, 0], "the signature of a disk");
        let all = self.get(0x1008);
        self.set(0x1008, all);
        self.set(0x1010, 0xfff);
        self.run();
    }

    fn get(&mut self, offset: u64) -> u32 {
        let mut data = [0; 4];
        self.sil.bar_read(2, offset, &mut data);
        u32::from_le_bytes(data)
    }

    fn set(&mut self, offset: u64, value: u32) {
        self.sil.bar_write(2, offset, &value.to_le_bytes());
    }

    fn global(&mut self, offset: u64, value: u32) {
        self.sil.bar_write(0, offset, &value.to_le_bytes());
    }

    fn get_global(&mut self, offset: u64) -> u32 {
        let mut data = [0; 4];
        self.sil.bar_read(0, offset, &mut data);
        u32::from_le_bytes(data)
    }

    /// The FIS that a slot shows.
    fn fis(&mut self, slot: u64) -> [u8; 20] {
        let mut fis = [0; 20];
        self.sil.bar_read(2, slot * 0x80 + 8, &mut fis);
        fis
    }

    fn memory(&mut self, address: u64, bytes: usize) -> &mut [u8] {
        &mut self.bus.memory[address as usize..address as usize + bytes]
    }

    fn store(&mut self, address: u64, data: &[u8]) {
        self.memory(address, data.len()).copy_from_slice(data);
    }

    fn entry(&mut self, at: u64, address: u64, bytes: u32, flags: u32) {
        self.store(at, &address.to_le_bytes());
        self.store(at + 8, &bytes.to_le_bytes());
        self.store(at + 12, &flags.to_le_bytes());
    }

    fn block(slot: u8) -> u64 {
        BLOCKS + u64::from(slot) * 0x1000
    }

    /// Lays a command into memory, with its entries one behind the other.
    fn put(&mut self, slot: u8, command: &Command, options: u16) {
        let block = Self::block(slot);
        self.memory(block, 64).fill(0);
        self.store(block, &options.to_le_bytes());
        self.store(block + 8, &command.fis);
        let count = command.regions.len();
        for (at, (address, bytes)) in command.regions.iter().enumerate() {
            let flags = if at + 1 == count { TERMINATE } else { 0 };
            self.entry(block + 32 + 16 * at as u64, *address, *bytes, flags);
        }
    }

    fn activate(&mut self, slot: u8) {
        let register = 0x1c00 + 8 * u64::from(slot);
        self.set(register, Self::block(slot) as u32);
        self.set(register + 4, 0);
    }

    fn issue(&mut self, slot: u8, command: &Command) {
        self.put(slot, command, 0);
        self.activate(slot);
    }

    /// One that has to go well.
    fn good(&mut self, command: &Command) -> [u8; 20] {
        self.issue(5, command);
        self.run();
        assert_eq!(self.get(0x1800), 0, "code {}", self.get(0x1024));
        self.fis(5)
    }

    /// One that has to fail: the error's number. The port is initialized.
    fn failed(&mut self, command: &Command) -> u32 {
        self.issue(5, command);
        self.run();
        self.error(5)
    }

    fn error(&mut self, slot: u8) -> u32 {
        assert!(self.bus.intx);
        let slots = self.get(0x1800);
        assert_eq!(
            slots & (1 << 31 | 1 << slot),
            1 << 31 | 1 << slot,
            "attention, and the slot is still active"
        );
        assert_eq!(self.get(0x1008) & ERROR, ERROR);
        self.set(0x1008, ERROR);
        let code = self.get(0x1024);
        self.set(0x1000, 4);
        assert_eq!((self.get(0x1000) & (READY | 4), self.get(0x1800)), (READY, 0));
        self.run();
        assert!(!self.bus.intx);
        code
    }

    fn step(&mut self) -> bool {
        let mut any = false;
        for _ in 0..self.bus.pending.len() {
            let at = if self.shuffle { self.random.below(self.bus.pending.len() as u64) as usize } else { 0 };
            let Some(read) = self.bus.pending.remove(at) else { break };
            let start = usize::try_from(read.address).unwrap_or(usize::MAX);
            let data = self.bus.memory.get(start..start.saturating_add(read.bytes));
            let result = data.ok_or(Fault::UnsupportedRequest);
            self.sil.read_completed(read.token, read.address, read.bytes, result);
            any = true;
        }
        let was_idle = self.sil.is_idle() && self.sil.deadline_ns().is_none();
        let worked = self.sil.poll(&mut self.bus);
        assert!(!(was_idle && worked), "a controller that said it was idle did something");
        any | worked
    }

    fn run(&mut self) {
        for _ in 0..1_000_000 {
            if self.step() {
                continue;
            }
            match self.sil.deadline_ns() {
                Some(at) if at > self.bus.now_ns => self.bus.now_ns = at,
                Some(_) => {}
                None => return,
            }
        }
        panic!("the controller does not come to rest: {:?}", self.sil);
    }
}

#[test]
fn data_go_both_ways_over_entries_and_linked_tables() {
    let (mut host, _) = Host::ready();
    host.shuffle = true;
    host.store(DATA, &pattern(4, 4096));
    // Two entries in the block, then more tables than come with it.
    let mut command = Command::dma(true, 1, 8);
    for at in 0..32 {
        command = command.data(DATA + at * 128, 128);
    }
    host.good(&command);
    host.memory(DATA, 4096).fill(0);
    let command = Command::dma(false, 1, 8);
    host.put(5, &command, 0);
    let (block, far) = (Host::block(5), 0x20_0000);
    host.entry(block + 32, DATA, 512, 0);
    host.entry(block + 48, far, 0, LINK);
    host.entry(far, 0, 1024, DISCARD);
    host.entry(far + 16, 7, 0, 0);
    host.entry(far + 32, DATA + 1536, 4096 - 1536, TERMINATE);
    host.activate(5);
    host.run();
    assert_eq!(host.get(0x1800), 0);
    let mut expected = pattern(4, 4096);
    expected[512..1536].fill(0);
    assert!(host.memory(DATA, 4096) == expected, "what is discarded is not written");
    let mut moved = [0; 4];
    host.sil.bar_read(2, 5 * 0x80 + 4, &mut moved);
    assert_eq!(u32::from_le_bytes(moved), 3072);
}

#[test]
fn queued_commands_run_together_in_31_slots() {
    let (mut host, _) = Host::ready();
    for write in [true, false] {
        for slot in 0..31u8 {
            let at = DATA + u64::from(slot) * 4096;
            if write {
                host.store(at, &pattern(slot, 4096));
            }
            host.issue(slot, &Command::queued(write, slot, u64::from(slot) * 8, 8).data(at, 4096));
        }
        host.run();
        assert_eq!((host.get(0x1800), host.get(0x1f0c)), (0, 0));
        if write {
            host.memory(DATA, 31 * 4096).fill(0);
        }
    }
    for slot in 0..31u8 {
        assert_eq!(host.memory(DATA + u64::from(slot) * 4096, 4096), pattern(slot, 4096));
    }
}

#[test]
fn reading_the_slots_acknowledges_a_completion_unless_writing_does() {
    let (mut host, _) = Host::ready();
    let identify = Command::new(0xec).data(DATA, 512);
    for global in [false, true] {
        host.issue(0, &identify);
        host.run();
        assert!(host.bus.intx);
        assert_eq!(host.get_global(0x44), 1);
        assert_eq!(if global { host.get_global(0) } else { host.get(0x1800) }, 0);
        host.run();
        assert!(!host.bus.intx);
        assert_eq!((host.get_global(0x44), host.get(0x1008)), (0, 0));
    }
    host.set(0x1000, 1 << 3);
    host.issue(0, &identify);
    host.run();
    host.get(0x1800);
    assert_eq!(host.get(0x1008), COMPLETE << 16 | COMPLETE);
    host.set(0x1008, COMPLETE << 16);
    assert_eq!(host.get(0x1008), 0);
}

#[test]
fn a_block_can_ask_for_no_interrupt_and_ports_can_be_masked() {
    let (mut host, _) = Host::ready();
    host.put(0, &Command::new(0xec).data(DATA, 512), 1 << 6);
    host.activate(0);
    host.run();
    assert_eq!((host.get(0x1008), host.bus.intx), (0, false));
    host.set(0x1014, COMPLETE);
    host.good(&Command::new(0xec).data(DATA, 512));
    host.set(0x1014, 0xfff);
    host.issue(0, &Command::new(0xec).data(DATA, 512));
    host.run();
    assert_eq!(host.get(0x1008), COMPLETE << 16, "raw, not masked");
    assert!(!host.bus.intx);
    host.set(0x1010, COMPLETE);
    host.run();
    assert!(host.bus.intx);
    host.global(0x40, 2);
    host.run();
    assert!(!host.bus.intx);
}

#[test]
fn a_message_is_sent_for_what_is_new() {
    let (mut host, _) = Host::ready();
    host.bus.mode = InterruptMode::Msi(1);
    host.bus.sent.clear();
    host.good(&Command::new(0xec).data(DATA, 512));
    host.good(&Command::new(0xec).data(DATA, 512));
    assert_eq!(host.bus.sent, [0, 0]);
}

#[test]
fn errors_of_the_disk_stop_the_port_until_it_is_initialized() {
    let (mut host, disk) = Host::ready();
    disk.fail(FaultOn::Read, 8 * 512..9 * 512, MediumError::Failed, u32::MAX);
    assert_eq!(host.failed(&Command::dma(false, 8, 1).data(DATA, 512)), 1, "by a Register FIS");
    assert_eq!(host.fis(5)[2..5], [0x51, 0x40, 8]);
    host.issue(2, &Command::queued(false, 2, 8, 1).data(DATA, 512));
    host.issue(3, &Command::queued(false, 3, 100, 1).data(DATA, 512));
    host.run();
    assert_eq!(host.error(2), 2, "by Set Device Bits");
    host.good(&Command::new(0x2f).lba(0x10).count(1).data(DATA, 512));
    assert_eq!(host.memory(DATA, 4), [2, 0, 0x51, 0x40]);
    assert_eq!(host.failed(&Command::new(0xf2).data(DATA, 512)), 1, "SECURITY");
    host.good(&Command::new(0xec).data(DATA, 512));
}

#[test]
fn trouble_with_memory_has_numbers_of_its_own() {
    let (mut host, _) = Host::ready();
    assert_eq!(host.failed(&Command::dma(true, 0, 1).data(1 << 40, 512)), 34, "data");
    assert_eq!(host.failed(&Command::dma(true, 0, 2).data(DATA, 512)), 7, "entries ran out, writing");
    assert_eq!(host.failed(&Command::dma(false, 0, 2).data(DATA, 512)), 8, "and reading");
    for (address, code) in [(4u64, 16), (1 << 40, 18)] {
        host.put(5, &Command::dma(false, 0, 1), 0);
        host.entry(Host::block(5) + 32, address, 0, LINK);
        host.activate(5);
        host.run();
        assert_eq!(host.error(5), code, "tables");
    }
    for (lower, upper, code) in [(4, 0, 24), (0, 0x100, 26)] {
        host.set(0x1c00 + 40, lower);
        host.set(0x1c00 + 44, upper);
        host.run();
        assert_eq!(host.error(5), code, "blocks");
    }
    // A table that links to itself.
    host.put(5, &Command::dma(false, 0, 1), 0);
    host.entry(Host::block(5) + 32, Host::block(5) + 32, 0, LINK);
    host.activate(5);
    host.run();
    assert_eq!(host.error(5), 16);
    host.good(&Command::new(0xec).data(DATA, 512));
}

#[test]
fn an_empty_port_stays_in_reset_and_a_disk_that_comes_ends_it() {
    let mut host = Host::new(vec![None]);
    host.set(0x1004, 1);
    host.set(0x1010, 0xfff);
    host.global(0x40, 3);
    host.set(0x1000, 2);
    host.run();
    assert_eq!((host.get(0x1000) & 2, host.get(0x1f04)), (2, 0));
    let disk = disk(1 << 20);
    host.sil.plug(0, drive(&disk)).unwrap();
    host.run();
    assert!(host.bus.intx);
    assert_eq!((host.get(0x1000) & 2, host.get(0x1f04), host.get(0x1008) & 0x90), (0, 0x123, 0x90));
    host.set(0x1008, 0xfff);
    host.set(0x1014, 0xfff);
    host.start();
    host.good(&Command::new(0xec).data(DATA, 512));
    assert!(host.sil.unplug(0).is_some());
    host.run();
    assert_eq!((host.get(0x1f04), host.get(0x1008) & 0x10), (0, 0x10), "PhyRdy changed");
    assert_eq!(host.get(0x1800) >> 31, 1);
}

#[test]
fn a_reset_at_any_moment_leaves_a_controller_that_works() {
    let latency = Latency { read_ns: 1_000_000, write_ns: 1_000_000, ..Latency::default() };
    for moment in 0..40 {
        let disk = Disk::new(Options { bytes: 1 << 20, latency, ..Options::default() });
        let mut host = Host::new(vec![Some(drive(&disk))]);
        host.start();
        for slot in 0..8 {
            host.issue(slot, &Command::queued(slot & 1 == 0, slot, 64, 8).data(DATA, 4096));
        }
        for _ in 0..moment {
            if !host.step() {
                host.bus.now_ns += 250_000;
            }
        }
        match moment % 4 {
            0 => {
                host.bus.pending.clear();
                host.sil.reset(ResetKind::Conventional);
            }
            1 => host.set(0x1000, 4),
            2 => host.set(0x1000, 1),
            _ => host.global(0x40, 1 << 31),
        }
        host.set(0x1014, 0xfff);
        host.start();
        host.good(&Command::dma(false, 64, 8).data(DATA, 4096));
    }
}

#[derive(Clone, Debug)]
enum Act {
    Register(u16, u32),
    Global(u8, u32),
    Command { slot: u8, opcode: u8, lba: u16, count: u16, features: u16, bytes: u32, options: u8 },
    Scribble(u32, Vec<u8>),
    Steps(u8),
    Time(u32),
    Plug,
    Unplug,
}

fn act() -> impl Strategy<Value = Act> {
    let opcodes = prop::sample::select(vec![
        0x60u8, 0x61, 0x25, 0x35, 0xec, 0x06, 0x2f, 0xea, 0xb0, 0xef, 0xe0, 0xe6, 0x42, 0x90, 0xc6, 0xff,
    ]);
    let values = prop_oneof![any::<u32>(), (0u32..32).prop_map(|bit| 1 << bit), Just(0)];
    prop_oneof![
        3 => (0x1000u16..0x2000, values.clone()).prop_map(|(at, value)| Act::Register(at & !3, value)),
        1 => (0u8..128, values).prop_map(|(at, value)| Act::Global(at & !3, value)),
        6 => (0u8..31, opcodes, 0u16..2200, 0u16..300, any::<u16>(), 0u32..70_000, any::<u8>())
            .prop_map(|(slot, opcode, lba, count, features, bytes, options)| {
                Act::Command { slot, opcode, lba, count, features, bytes, options }
            }),
        1 => (0u32..0x20_0000, prop::collection::vec(any::<u8>(), 1..200))
            .prop_map(|(at, data)| Act::Scribble(at, data)),
        5 => (1u8..30).prop_map(Act::Steps),
        1 => any::<u32>().prop_map(Act::Time),
        1 => Just(Act::Plug),
        1 => Just(Act::Unplug),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn whatever_a_host_does_the_controller_works_after_a_reset(acts in prop::collection::vec(act(), 1..80)) {
        let disk = disk(1 << 20);
        let mut host = Host::new(vec![Some(drive(&disk))]);
        host.shuffle = true;
        host.start();
        for act in acts {
            match act {
                Act::Register(at, value) => host.set(u64::from(at), value),
                Act::Global(at, value) => host.global(u64::from(at), value),
                Act::Command { slot, opcode, lba, count, features, bytes, options } => {
                    let command = Command::new(opcode).lba(u64::from(lba)).count(count).features(features);
                    host.put(slot, &command.data(DATA, bytes), u16::from(options));
                    host.activate(slot);
                }
                Act::Scribble(at, data) => host.store(u64::from(at), &data),
                Act::Steps(count) => {
                    for _ in 0..count {
                        host.step();
                    }
                }
                Act::Time(ns) => host.bus.now_ns += u64::from(ns),
                Act::Plug => drop(host.sil.plug(0, drive(&disk))),
                Act::Unplug => drop(host.sil.unplug(0)),
            }
        }
        host.run();
        host.sil.plug(0, drive(&disk)).unwrap();
        host.global(0x40, 1 << 31);
        host.start();
        host.good(&Command::new(0xec).data(DATA, 512));
        host.good(&Command::dma(true, 0, 8).data(DATA, 4096));
    }
}
