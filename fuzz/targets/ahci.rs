//! A hostile guest of an AHCI controller.
//!
//! The steps are commands of any form, most of them near to good ones; accesses to registers; reads that come in parts, late, or
//! fail; little room, faults of the medium, disks that go and come, resets. Whatever comes, nothing panics or works without end, and after a
//! reset of the controller the disk says what it is.

#![no_main]

#[path = "sata/machine.rs"]
mod machine;

use etherslot_devices::sata::Ahci;
use etherslot_fuzz::Input;
use libfuzzer_sys::fuzz_target;
use machine::{DATA, Machine, drive, fis, region};

const BAR: u8 = 5;
const LIST: u64 = 0x1000;
const RECEIVED: u64 = 0x1800;
const TABLES: u64 = 0x4000;

fuzz_target!(|input: &[u8]| {
    let mut input = Input::new(input);
    let mut machine = Machine::new(&mut input, |config| Ahci::new(config).expect("good"));
    start(&mut machine);
    while !input.is_empty() {
        act(&mut machine, &mut input);
    }
    machine.disk.heal();
    let _ = machine.stand.function.plug(0, drive(&machine.disk));
    machine.reset();
    start(&mut machine);
    let mut identify = [0; 20];
    (identify[0], identify[1], identify[2]) = (0x27, 0x80, 0xec);
    issue(&mut machine, 7, &identify, &[(DATA, 512)]);
    machine.settle();
    assert_eq!(machine.read(BAR, 0x138), 0, "PxCI");
    machine.assert_identified();
});

fn start(machine: &mut Machine<Ahci>) {
    machine.write(BAR, 0x04, 1 << 31 | 2);
    for (register, value) in [(0x100, LIST), (0x104, 0), (0x108, RECEIVED), (0x10c, 0), (0x118, 0x10)] {
        machine.write(BAR, register, value as u32);
    }
    machine.settle();
    machine.write(BAR, 0x130, u32::MAX);
    machine.write(BAR, 0x114, u32::MAX);
    machine.write(BAR, 0x118, 0x11);
}

/// Lays a command into a slot, and tells of it.
fn issue(machine: &mut Machine<Ahci>, slot: u8, fis: &[u8; 20], regions: &[(u64, u32)]) {
    let table = TABLES + u64::from(slot) * 0x400;
    let mut header = [0; 32];
    (header[0], header[2]) = (5, regions.len() as u8);
    header[8..16].copy_from_slice(&table.to_le_bytes());
    machine.memory.store(LIST + u64::from(slot) * 32, &header);
    machine.memory.store(table, fis);
    for (at, (address, bytes)) in regions.iter().enumerate() {
        machine.memory.store(table + 0x80 + 16 * at as u64, &address.to_le_bytes());
        machine.memory.store(table + 0x8c + 16 * at as u64, &bytes.wrapping_sub(1).to_le_bytes());
    }
    if matches!(fis[2], 0x60 | 0x61) {
        machine.write(BAR, 0x134, 1 << slot);
    }
    machine.write(BAR, 0x138, 1 << slot);
}

fn act(machine: &mut Machine<Ahci>, input: &mut Input<'_>) {
    match input.u8() {
        step @ 0..=99 => machine.happen(step, input),
        100..=189 => {
            let slot = input.u8() % 32;
            let fis = fis(input);
            let regions: Vec<_> = (0..input.below(6)).map(|_| region(input)).collect();
            issue(machine, slot, &fis, &regions);
        }
        190..=209 => {
            let offset = if input.flag() { 0x100 + 4 * input.below(32) } else { input.below(0x2000) & !3 };
            let value = input.number() as u32;
            machine.write(BAR, offset as u64, value);
        }
        210..=219 => {
            let offset = input.below(0x2000) & !3;
            machine.read(BAR, offset as u64);
        }
        // ST off and on, COMRESET, a reset of the controller.
        220..=229 => machine.write(BAR, 0x118, if input.flag() { 0x11 } else { 0x10 }),
        230..=235 => machine.write(BAR, 0x12c, input.one_of(&[1, 0, 4, 0x301, 0x300])),
        236..=239 => machine.write(BAR, 0x04, 1 << 31 | 1),
        240..=245 => {
            machine.settle();
            start(machine);
        }
        246..=250 => drop(machine.function.unplug(0)),
        _ => drop(machine.stand.function.plug(0, drive(&machine.disk))),
    }
}
