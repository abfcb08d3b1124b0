//! SATA controllers at the other end of a session that loses frames: what a driver writes is what it reads, and no command
//! is lost.

mod support;

use etherslot_devices::sata::{Ahci, Config as SataConfig, Drive, Sil3132};
use etherslot_node::Interrupts;
use etherslot_pci::function::Function;
use etherslot_session::Config;
use etherslot_storage::memory::{Disk, Options};
use support::{COMMAND, MS, World};

const LIST: u64 = 0x1000;
const RECEIVED: u64 = 0x1800;
const TABLES: u64 = 0x4000;
const DATA: u64 = 0x8_0000;
const BYTES: usize = 8192;
/// Where the guest has the BARs.
const BARS: [u32; 2] = [0xfeb0_0000, 0xfeb1_0000];

/// A driver of either controller.
struct Driver {
    world: World,
    is_ahci: bool,
}

fn disk() -> Drive {
    let medium = Disk::new(Options { bytes: 4 << 20, ..Options::default() }).medium();
    Drive { serial: "LOSSY".into(), medium: Box::new(medium), block_bytes: 512 }
}

impl Driver {
    fn new(is_ahci: bool, loses_one_of: usize) -> Self {
        let config = SataConfig { ports: vec![Some(disk())], ..SataConfig::default() };
        let function: Box<dyn Function> = if is_ahci {
            Box::new(Ahci::new(config).unwrap())
        } else {
            Box::new(Sil3132::new(config).unwrap())
        };
        let world = World::with_device(function, &Config::default(), &Config::default());
        let mut driver = Self { world, is_ahci };
        driver.start();
        driver.world.wire.loses_one_of = loses_one_of;
        driver
    }

    fn write(&mut self, bar: usize, offset: u64, value: u32) {
        while !self.world.host.has_room(self.world.slot) {
            self.world.step();
        }
        let World { host, slot, .. } = &mut self.world;
        host.bar_write(*slot, bar, offset, &value.to_le_bytes(), &mut |_, _| false).unwrap();
    }

    fn read(&mut self, bar: usize, offset: u64) -> u32 {
        let world = &mut self.world;
        world.next_access += 1;
        let outcome = world.host.bar_read(world.now_ns, world.slot, world.next_access, bar, offset, 4);
        let data = world.answer(outcome, 4);
        u32::from_le_bytes(data.try_into().unwrap())
    }

    fn start(&mut self) {
        let places: &[u64] = if self.is_ahci { &[0x24] } else { &[0x10, 0x18] };
        for (place, address) in places.iter().zip(BARS) {
            self.world.config_write(*place, &address.to_le_bytes());
        }
        self.world.config_write(COMMAND, &6u16.to_le_bytes());
        self.world.host.set_interrupts(self.world.slot, Interrupts::Msi(1));
        self.world.run(MS);
        if self.is_ahci {
            self.write(5, 0x04, 1 << 31 | 2);
            for (register, value) in [(0x100, LIST), (0x104, 0), (0x108, RECEIVED), (0x10c, 0), (0x118, 0x10)]
            {
                self.write(5, register, value as u32);
            }
            self.world.run(MS);
            self.write(5, 0x130, u32::MAX);
            self.write(5, 0x114, u32::MAX);
            self.write(5, 0x118, 0x11);
            return;
        }
        self.write(0, 0x40, 3);
        self.write(2, 0x1004, 1);
        self.write(2, 0x1000, 2);
        self.world.run(MS);
        self.write(2, 0x1000, 4);
        self.write(2, 0x1008, u32::MAX);
        self.write(2, 0x1010, 0xfff);
    }

    /// Lays a queued command of 16 sectors into its slot, with its data in two pieces, and tells of it.
    fn issue(&mut self, slot: u8, write: bool, lba: u16) {
        let mut fis = [0; 20];
        fis[..4].copy_from_slice(&[0x27, 0x80, if write { 0x61 } else { 0x60 }, (BYTES / 512) as u8]);
        fis[4..6].copy_from_slice(&lba.to_le_bytes());
        (fis[7], fis[12]) = (0x40, slot << 3);
        let data = DATA + u64::from(slot) * BYTES as u64;
        let half = BYTES as u32 / 2;
        let pieces = [(data, half), (data + u64::from(half), half)];
        let table = TABLES + u64::from(slot) * 0x400;
        let mut store = |address: u64, bytes: &[u8]| {
            self.world.machine.memory[address as usize..][..bytes.len()].copy_from_slice(bytes);
        };
        if self.is_ahci {
            let mut header = [0; 32];
            (header[0], header[2]) = (5, 2);
            header[8..16].copy_from_slice(&table.to_le_bytes());
            store(LIST + u64::from(slot) * 32, &header);
            store(table, &fis);
            for (at, (address, bytes)) in (0..).zip(pieces) {
                store(table + 0x80 + 16 * at, &address.to_le_bytes());
                store(table + 0x8c + 16 * at, &(bytes - 1).to_le_bytes());
            }
            self.write(5, 0x134, 1 << slot);
            self.write(5, 0x138, 1 << slot);
        } else {
            store(table, &[0; 8]);
            store(table + 8, &fis);
            for (at, (address, bytes)) in (0..).zip(pieces) {
                store(table + 32 + 16 * at, &address.to_le_bytes());
                store(table + 40 + 16 * at, &bytes.to_le_bytes());
                store(table + 44 + 16 * at, &(u32::from(at == 1) << 31).to_le_bytes());
            }
            self.write(2, 0x1c00 + 8 * u64::from(slot), table as u32);
            self.write(2, 0x1c04 + 8 * u64::from(slot), 0);
        }
    }

    /// Waits until no slot has a command.
    fn finish(&mut self) {
        for _ in 0..1000 {
            let (bar, register) = if self.is_ahci { (5, 0x134) } else { (2, 0x1800) };
            if self.read(bar, register) == 0 {
                return;
            }
            self.world.run(MS);
        }
        panic!("commands are lost");
    }

    fn data(&mut self, slot: u8) -> &mut [u8] {
        &mut self.world.machine.memory[DATA as usize + usize::from(slot) * BYTES..][..BYTES]
    }
}

fn pattern(round: u8, slot: u8) -> Vec<u8> {
    (0..BYTES)
        .map(|at| (at / 512) as u8 ^ (at as u8).wrapping_mul(29) ^ round.wrapping_mul(17) ^ slot)
        .collect()
}

#[test]
fn queued_commands_over_a_link_that_loses_frames_write_and_read_what_they_should() {
    for is_ahci in [true, false] {
        for loses_one_of in [0, 31, 7] {
            let mut driver = Driver::new(is_ahci, loses_one_of);
            for round in 0..4 {
                for write in [true, false] {
                    for slot in 0..31 {
                        let fill = if write { pattern(round, slot) } else { vec![0; BYTES] };
                        driver.data(slot).copy_from_slice(&fill);
                        driver.issue(slot, write, u16::from(slot) * 64 + u16::from(round) * 16);
                    }
                    driver.finish();
                }
                for slot in 0..31 {
                    assert!(driver.data(slot) == pattern(round, slot), "{is_ahci} {loses_one_of} {slot}");
                }
            }
            assert!(!driver.world.machine.interrupts.is_empty());
        }
    }
}
