//! Read-ahead from the guest's doorbell to the device: what comes along, and what does not.

mod support;

use etherslot_devices::nvme::{Config as NvmeConfig, Namespace, Nvme};
use etherslot_node::{MAX_PAYLOAD_BYTES, SlotCounters};
use etherslot_pci::endpoint::AheadCounters;
use etherslot_pci::function::{
    BarKind, BarSpec, Bus, Fault, Function, FunctionSpec, MsixSpec, ReadAhead, ResetKind,
};
use etherslot_session::Config;
use etherslot_storage::Medium;
use etherslot_storage::memory::{Disk, Options};
use etherslot_storage::ram::RamMedium;
use etherslot_wire::ahead::Rule;
use support::{COMMAND, MS, World};

const ASQ: u64 = 0x1000;
const ACQ: u64 = 0x2000;
const SQ: u64 = 0x3000;
const CQ: u64 = 0x4000;
const LIST: u64 = 0x5000;
const DATA: u64 = 0x2_0000;
const ENTRIES: u16 = 16;
const DOORBELLS: u64 = 0x1000;
const WRITE: u8 = 1;
const READ: u8 = 2;

/// A driver of the NVMe controller in the box.
struct Driver {
    world: World,
    tails: [u16; 2],
    heads: [u16; 2],
    phases: [u8; 2],
}

fn jumbo() -> Config {
    Config { max_frame_bytes: 9000, ..Config::default() }
}

impl Driver {
    fn new(host: &Config, io_box: &Config) -> Self {
        Self::with_payload(host, io_box, MAX_PAYLOAD_BYTES)
    }

    fn with_payload(host: &Config, io_box: &Config, max_payload_bytes: u16) -> Self {
        let medium = Disk::new(Options::default()).medium();
        Self::on(Box::new(medium), host, io_box, max_payload_bytes)
    }

    /// On a medium that is memory itself.
    fn on_memory() -> Self {
        let medium = RamMedium::new(1 << 20, false).unwrap();
        Self::on(Box::new(medium), &jumbo(), &jumbo(), MAX_PAYLOAD_BYTES)
    }

    fn on(medium: Box<dyn Medium>, host: &Config, io_box: &Config, max_payload_bytes: u16) -> Self {
        let namespaces = vec![Namespace::new(medium, 512)];
        let nvme = Nvme::new(NvmeConfig { namespaces, ..NvmeConfig::default() }).unwrap();
        let world = World::with_payload(Box::new(nvme), host, io_box, max_payload_bytes);
        let mut driver = Self { world, tails: [0; 2], heads: [0; 2], phases: [1; 2] };
        driver.start();
        driver
    }

    fn start(&mut self) {
        (self.tails, self.heads, self.phases) = ([0; 2], [0; 2], [1; 2]);
        let world = &mut self.world;
        world.machine.memory.fill(0);
        world.set_up();
        let size = u32::from(ENTRIES - 1);
        world.bar_write(0x24, &(size << 16 | size).to_le_bytes());
        world.bar_write(0x28, &ASQ.to_le_bytes());
        world.bar_write(0x30, &ACQ.to_le_bytes());
        world.bar_write(0x14, &0x0046_0001_u32.to_le_bytes());
        world.run(MS);
        assert_eq!(world.bar_read(0x1C, 4), [1, 0, 0, 0], "CSTS.RDY");
        let create = |opcode, base, dword11| (opcode, base, size << 16 | 1, dword11);
        for (opcode, base, dword10, dword11) in [create(5, CQ, 3 | 1 << 16), create(1, SQ, 1 | 1 << 16)] {
            self.lay(0, opcode, base, 0, [dword10, dword11, 0]);
            self.ring(0);
            self.world.run(MS);
            assert_eq!(self.completed(0), Some(0));
        }
    }

    /// Lays a command into a queue; its place.
    fn lay(&mut self, queue: usize, opcode: u8, prp1: u64, prp2: u64, dwords: [u32; 3]) -> u16 {
        let place = self.tails[queue];
        let mut entry = [0; 64];
        entry[0] = opcode;
        entry[2..4].copy_from_slice(&place.to_le_bytes());
        entry[4] = queue as u8;
        entry[24..32].copy_from_slice(&prp1.to_le_bytes());
        entry[32..40].copy_from_slice(&prp2.to_le_bytes());
        for (at, dword) in dwords.into_iter().enumerate() {
            entry[40 + 4 * at..44 + 4 * at].copy_from_slice(&dword.to_le_bytes());
        }
        let at = ([ASQ, SQ][queue] + 64 * u64::from(place)) as usize;
        self.world.machine.memory[at..at + 64].copy_from_slice(&entry);
        self.tails[queue] = (place + 1) % ENTRIES;
        place
    }

    fn ring(&mut self, queue: usize) {
        let tail = u32::from(self.tails[queue]);
        self.world.bar_write(DOORBELLS + 8 * queue as u64, &tail.to_le_bytes());
    }

    /// The status of the next completion, if there is one; the place in its queue is given back.
    fn completed(&mut self, queue: usize) -> Option<u16> {
        let at = ([ACQ, CQ][queue] + 16 * u64::from(self.heads[queue])) as usize;
        let entry = self.world.machine.memory[at..at + 16].to_vec();
        if entry[14] & 1 != self.phases[queue] {
            return None;
        }
        self.heads[queue] = (self.heads[queue] + 1) % ENTRIES;
        self.phases[queue] ^= u8::from(self.heads[queue] == 0);
        let head = u32::from(self.heads[queue]);
        self.world.bar_write(DOORBELLS + 4 + 8 * queue as u64, &head.to_le_bytes());
        // The entry is the guest's again, and so is what it pointed to.
        let place = u16::from_le_bytes([entry[12], entry[13]]);
        let used = ([ASQ, SQ][queue] + 64 * u64::from(place)) as usize;
        self.world.machine.memory[used..used + 64].fill(0xDB);
        Some(u16::from_le_bytes([entry[14], entry[15]]) >> 1)
    }

    fn io(&mut self, opcode: u8, block: u32, blocks: u32, prp1: u64, prp2: u64) -> u16 {
        self.lay(1, opcode, prp1, prp2, [block, 0, blocks - 1])
    }

    fn finish(&mut self) -> u16 {
        for _ in 0..1000 {
            if let Some(status) = self.completed(1) {
                return status;
            }
            self.world.step();
        }
        panic!("a command is never over");
    }

    /// The first doorbell tells the host where the queue stands.
    fn warm_up(&mut self) {
        self.io(WRITE, 0, 1, DATA, 0);
        self.ring(1);
        assert_eq!(self.finish(), 0);
        self.world.run(MS);
    }

    fn slot(&self) -> SlotCounters {
        *self.world.host.slot_counters().next().unwrap()
    }

    fn device(&self) -> AheadCounters {
        self.world.box_node.as_ref().unwrap().hosts().next().unwrap().2.ahead_counters()
    }

    /// Data frames that host and box have sent.
    fn frames(&self) -> (u64, u64) {
        let host = self.world.host.sessions().next().unwrap().1.counters().data_frames_sent;
        let io_box = self.world.box_node.as_ref().unwrap().hosts().next().unwrap().1;
        (host, io_box.counters().data_frames_sent)
    }

    fn fill(&mut self, address: u64, bytes: usize, seed: u8) {
        for (at, byte) in self.world.machine.memory[address as usize..][..bytes].iter_mut().enumerate() {
            *byte = (at * 7 + at / 256) as u8 ^ seed;
        }
    }

    fn memory(&self, address: u64, bytes: usize) -> Vec<u8> {
        self.world.machine.memory[address as usize..][..bytes].to_vec()
    }
}

#[test]
fn a_command_and_its_data_arrive_with_the_doorbell() {
    let mut driver = Driver::new(&jumbo(), &jumbo());
    driver.warm_up();
    // Several times around the ring.
    for round in 0..100_u32 {
        driver.fill(DATA, 4096, round as u8);
        let (reads, frames) = (driver.slot().dma_reads, driver.frames());
        driver.io(WRITE, round % 64 * 8, 8, DATA, 0);
        driver.ring(1);
        driver.world.machine.interrupts.clear();
        while driver.world.machine.interrupts.is_empty() {
            driver.world.step();
        }
        let after = driver.frames();
        assert_eq!((after.0 - frames.0, after.1 - frames.1), (1, 1), "frames of host and box, round {round}");
        assert_eq!(driver.slot().dma_reads, reads, "round {round}");
        assert_eq!(driver.finish(), 0);
        driver.fill(DATA, 4096, !round as u8);
        driver.world.run(MS);
    }
    let device = driver.device();
    assert_eq!((device.dropped, device.refused), (0, 0), "{device:?}");
    for block in 36..64 {
        driver.io(READ, block * 8, 8, DATA + 0x2000, 0);
        driver.ring(1);
        assert_eq!(driver.finish(), 0);
        driver.fill(DATA, 4096, block as u8);
        assert!(driver.memory(DATA, 4096) == driver.memory(DATA + 0x2000, 4096), "block {block}");
    }
}

#[test]
fn a_write_of_16_kib_in_one_block_of_memory_arrives_with_its_doorbell() {
    for mut driver in [Driver::on_memory(), Driver::new(&jumbo(), &jumbo())] {
        driver.warm_up();
        for round in 0..40_u32 {
            // Wherever the block begins.
            let (data, bytes) = (DATA + 36 * u64::from(round), 16_384);
            driver.fill(data, bytes, round as u8);
            let (reads, frames) = (driver.slot().dma_reads, driver.frames());
            let place = driver.io(WRITE, round * 32, 32, data, bytes as u64);
            // PSDT: the data pointer is an SGL, whose one descriptor is a Data Block.
            driver.world.machine.memory[SQ as usize + 64 * usize::from(place) + 1] = 0x40;
            driver.ring(1);
            driver.world.machine.interrupts.clear();
            while driver.world.machine.interrupts.is_empty() {
                driver.world.step();
            }
            let after = driver.frames();
            assert_eq!(
                (after.0 - frames.0, after.1 - frames.1),
                (2, 1),
                "frames of host and box, round {round}"
            );
            assert_eq!(driver.slot().dma_reads, reads, "round {round}");
            assert_eq!(driver.finish(), 0);
            driver.fill(DATA, 40 << 10, !round as u8);
            driver.world.run(MS);
            for part in 0..2 {
                driver.io(READ, round * 32 + part * 16, 16, DATA + 0x1_0000, DATA + 0x1_1000);
                driver.ring(1);
                assert_eq!(driver.finish(), 0);
                let back = driver.memory(DATA + 0x1_0000, 8192);
                driver.fill(data, bytes, round as u8);
                assert!(back == driver.memory(data + u64::from(part) * 8192, 8192), "round {round}");
            }
        }
        let device = driver.device();
        assert_eq!((device.dropped, device.refused), (0, 0), "{device:?}");
    }
}

#[test]
fn tlps_carry_no_more_than_the_host_grants() {
    let config = Config { read_ahead: false, one_record_a_frame: true, ..jumbo() };
    for payload in [128, 256, 4096] {
        let mut driver = Driver::with_payload(&config, &config, payload);
        driver.fill(DATA, 4096, 1);
        let pieces = 4096 / u64::from(payload);
        for (opcode, from_device, from_host) in [(WRITE, 0, pieces), (READ, pieces, 0)] {
            driver.world.run(MS);
            let frames = driver.frames();
            driver.io(opcode, 0, 8, DATA + if opcode == READ { 0x2000 } else { 0 }, 0);
            driver.ring(1);
            driver.world.run(MS);
            let after = driver.frames();
            assert_eq!(driver.finish(), 0);
            // The doorbell, the command, the data; the command's read, those of the data, completion and interrupt.
            let sent = (after.0 - frames.0, after.1 - frames.1);
            let reads = u64::from(opcode == WRITE);
            assert_eq!(sent, (2 + from_host, 3 + reads + from_device), "{opcode}, {payload} bytes");
        }
        assert!(driver.memory(DATA, 4096) == driver.memory(DATA + 0x2000, 4096));
    }
}

#[test]
fn lists_of_large_transfers_and_second_pages_of_small_ones_come_along() {
    let mut driver = Driver::new(&jumbo(), &jumbo());
    driver.warm_up();
    let reads = driver.slot().dma_reads;
    // From the middle of a page, with the rest in a second one.
    driver.fill(DATA + 0x800, 0x1000, 1);
    driver.io(WRITE, 0, 8, DATA + 0x800, DATA + 0x1000);
    driver.ring(1);
    assert_eq!((driver.finish(), driver.slot().dma_reads), (0, reads));
    // 64 KiB to a list of pages that stand in any order.
    for page in 0..16_u64 {
        let at = (LIST + 8 * page) as usize;
        let address = DATA + 0x1_0000 + 0x1000 * (page ^ 5);
        driver.world.machine.memory[at..at + 8].copy_from_slice(&address.to_le_bytes());
    }
    driver.io(READ, 0, 128, DATA + 0x3000, LIST);
    driver.ring(1);
    assert_eq!((driver.finish(), driver.slot().dma_reads), (0, reads));
    assert_eq!(driver.memory(DATA + 0x3000, 0x1000), driver.memory(DATA + 0x800, 0x1000));
}

#[test]
fn many_commands_behind_one_doorbell_are_all_carried_out() {
    for frame in [1500, 9000] {
        let config = Config { max_frame_bytes: frame, backlog_frames: 8, ..Config::default() };
        let mut driver = Driver::new(&config, &config);
        driver.warm_up();
        for round in 0..20_u32 {
            for command in 0..u32::from(ENTRIES) - 1 {
                let at = DATA + 0x1000 * u64::from(command);
                driver.fill(at, 4096, (round * 16 + command) as u8);
                driver.io(WRITE, command * 8, 8, at, 0);
            }
            driver.ring(1);
            for _ in 1..ENTRIES {
                assert_eq!(driver.finish(), 0);
            }
            for command in 0..u32::from(ENTRIES) - 1 {
                driver.fill(DATA + 0x1000 * u64::from(command), 4096, 0xFF);
                driver.io(READ, command * 8, 8, DATA + 0x2_0000 + 0x1000 * u64::from(command), 0);
            }
            driver.ring(1);
            for _ in 1..ENTRIES {
                assert_eq!(driver.finish(), 0);
            }
            for command in 0..u32::from(ENTRIES) - 1 {
                driver.fill(DATA, 4096, (round * 16 + command) as u8);
                let at = DATA + 0x2_0000 + 0x1000 * u64::from(command);
                assert!(driver.memory(DATA, 4096) == driver.memory(at, 4096), "{command} in round {round}");
            }
        }
        assert_eq!(driver.slot().lost_writes, 0);
        assert!(driver.device().hits > 0);
    }
}

#[test]
fn nothing_comes_along_unless_both_nodes_know_of_it() {
    let without = Config { read_ahead: false, ..jumbo() };
    for (host, io_box) in [(&without, &jumbo()), (&jumbo(), &without), (&without, &without)] {
        let mut driver = Driver::new(host, io_box);
        driver.warm_up();
        driver.warm_up();
        assert_eq!((driver.slot().ahead_pieces, driver.slot().ahead_refused), (0, 0));
        assert_eq!(driver.device().pieces, 0);
    }
}

#[test]
fn memory_that_a_device_may_not_read_does_not_come_along() {
    let mut driver = Driver::new(&jumbo(), &jumbo());
    driver.warm_up();
    let (pieces, faults) = (driver.slot().ahead_pieces, driver.slot().dma_faults);
    driver.io(WRITE, 0, 8, 0x4000_0000, 0);
    driver.ring(1);
    assert_ne!(driver.finish(), 0, "the device's own read fails");
    assert_eq!(driver.slot().ahead_pieces - pieces, 1, "the entry alone");
    assert!(driver.slot().dma_faults > faults);
    // Without leave to master the bus the doorbell goes alone.
    let pieces = driver.slot().ahead_pieces;
    driver.world.config_write(COMMAND, &2u16.to_le_bytes());
    driver.io(WRITE, 0, 8, DATA, 0);
    driver.ring(1);
    driver.world.run(MS);
    assert_eq!((driver.completed(1), driver.slot().ahead_pieces), (None, pieces));
    driver.world.config_write(COMMAND, &6u16.to_le_bytes());
    assert_eq!(driver.finish(), 0);
}

#[test]
fn resets_end_rules_and_the_driver_starts_over() {
    let mut driver = Driver::new(&jumbo(), &jumbo());
    for round in 0..6 {
        driver.warm_up();
        driver.warm_up();
        let pieces = driver.slot().ahead_pieces;
        assert!(pieces > 0);
        match round % 3 {
            0 => drop(driver.world.host.reset(driver.world.now_ns, 0, None).unwrap()),
            1 => {
                // Function Level Reset, in Device Control of the PCI Express capability.
                let space = driver.world.config_read(0, 256);
                let mut at = space[0x34] as usize;
                while space[at] != 0x10 {
                    at = space[at + 1] as usize;
                }
                driver.world.config_write(at as u64 + 8, &0x8000u16.to_le_bytes());
            }
            _ => driver.world.bar_write(0x14, &0u32.to_le_bytes()),
        }
        driver.world.run(5 * MS);
        // A doorbell that belongs to nothing any more.
        driver.world.bar_write(DOORBELLS + 8, &3u32.to_le_bytes());
        driver.world.run(MS);
        assert_eq!(driver.slot().ahead_pieces, pieces, "round {round}");
        driver.start();
    }
}

#[test]
fn what_comes_along_costs_no_allocation() {
    let mut driver = Driver::on_memory();
    driver.fill(DATA, 4096, 7);
    let write = |driver: &mut Driver, round: u32| {
        driver.io(WRITE, round % 64 * 8, 8, DATA, 0);
        driver.ring(1);
        driver.world.machine.interrupts.clear();
        while driver.world.machine.interrupts.is_empty() {
            driver.world.step();
        }
    };
    for round in 0..50 {
        write(&mut driver, round);
        assert_eq!(driver.finish(), 0);
    }
    let pieces = driver.slot().ahead_pieces;
    for round in 0..50 {
        let allocated = allocation_counter::measure(|| write(&mut driver, round));
        assert_eq!(allocated.count_total, 0, "round {round}");
        assert_eq!(driver.finish(), 0);
    }
    assert_eq!(driver.slot().ahead_pieces - pieces, 100);
}

/// A Function that declares what it is told to, once it is in use.
struct Asker {
    rules: Vec<Rule>,
    is_used: bool,
}

impl Function for Asker {
    fn spec(&self) -> FunctionSpec {
        FunctionSpec {
            vendor: 0x1234,
            device: 0x5678,
            subsystem_vendor: 0x1234,
            subsystem: 1,
            revision: 1,
            class: [0xFF, 0, 0],
            bars: vec![BarSpec { index: 0, kind: BarKind::Memory64, bytes: 0x4000 }],
            msix: Some(MsixSpec { vectors: 4, bar: 0, table_offset: 0x2000, pba_offset: 0x3000 }),
            msi_vectors: 4,
            intx: true,
            serial: None,
        }
    }

    fn bar_read(&mut self, _bar: u8, _offset: u64, data: &mut [u8]) {
        data.fill(0);
    }

    fn bar_write(&mut self, _bar: u8, _offset: u64, _data: &[u8]) {}

    fn read_completed(&mut self, _token: u64, _address: u64, _bytes: usize, _result: Result<&[u8], Fault>) {}

    fn poll(&mut self, bus: &mut dyn Bus) -> bool {
        self.is_used |= bus.is_master();
        false
    }

    fn read_ahead(&mut self) -> Option<ReadAhead> {
        if self.is_used { self.rules.pop().map(ReadAhead::Declare) } else { None }
    }

    fn reset(&mut self, _kind: ResetKind) {}
}

#[test]
fn rules_that_can_not_be_are_refused_and_doorbells_of_another_kind_bring_nothing() {
    let rule = |number, bar, doorbell| Rule::new(number, bar, doorbell, 0x1000, 16, 8);
    let rules = vec![
        rule(9, 0, 0x100),
        rule(8, 0, 0x4000),
        rule(7, 0, 0x3FFC + 4),
        rule(6, 1, 0),
        rule(5, 0, 0x3000),
        rule(4, 0, 0x203C),
        rule(3, 0, 0x1FFC),
        rule(2, 0, 0x100),
        rule(1, 0, 0x104),
    ];
    let mut world = World::with_device(Box::new(Asker { rules, is_used: false }), &jumbo(), &jumbo());
    world.set_up();
    world.run(MS);
    let slot = |world: &World| *world.host.slot_counters().next().unwrap();
    // Those of other BARs, of MSI-X, and the second one of a doorbell.
    assert_eq!(slot(&world).ahead_refused, 6);
    let mut ring = |offset, data: &[u8]| {
        let before = slot(&world).ahead_pieces;
        world.bar_write(offset, data);
        world.run(MS);
        slot(&world).ahead_pieces - before
    };
    assert_eq!(ring(0x100, &[3, 0, 0, 0]), 0, "where the ring stands is not known yet");
    assert_eq!(ring(0x100, &[5, 0, 0, 0]), 1);
    assert_eq!(ring(0x100, &[2, 0, 0, 0]), 2, "around the end");
    assert_eq!(ring(0x100, &[2, 0, 0, 0]), 0, "nothing new");
    assert_eq!(ring(0x100, &[9, 0, 0, 0]), 0, "no index");
    assert_eq!(ring(0x100, &[3, 0, 0, 0]), 0, "unknown again");
    assert_eq!(ring(0x100, &[4, 0, 0, 0]), 1);
    assert_eq!(ring(0x100, &[5, 0]), 0, "half a doorbell");
    assert_eq!(ring(0x100, &[6, 0, 0, 0]), 0, "unknown again");
    assert_eq!(ring(0xFC, &[0; 8]), 0, "more than a doorbell");
    assert_eq!(ring(0x100, &[7, 0, 0, 0]), 0, "unknown again");
    assert_eq!(ring(0x100, &[0, 0, 0, 0]), 1);
    assert_eq!(ring(0x104, &[1, 0, 0, 0]), 0, "another doorbell, not known yet");
    assert_eq!(ring(0x104, &[2, 0, 0, 0]), 1);
    assert_eq!(ring(0x108, &[1, 0, 0, 0]), 0, "a register that is none");
}
