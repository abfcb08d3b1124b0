//! A hostile guest of a `SiI3132`.
//!
//! As of `ahci`: commands of any form with tables that lead anywhere, accesses to registers, a bus and a medium that fail, disks that go
//! and come, resets. Nothing panics or works without end, and after a reset of the controller the disk says what it is.

#![no_main]

#[path = "sata/machine.rs"]
mod machine;

use etherslot_devices::sata::Sil3132;
use etherslot_fuzz::Input;
use libfuzzer_sys::fuzz_target;
use machine::{DATA, Machine, drive, fis, region};

const GLOBAL: u8 = 0;
const PORT: u8 = 2;
const BLOCKS: u64 = 0x4000;
const FLAGS: [u32; 5] = [0, 1 << 31, 1 << 30, 1 << 29, 1 << 29 | 1 << 31];

fuzz_target!(|input: &[u8]| {
    let mut input = Input::new(input);
    let mut machine = Machine::new(&mut input, |config| Sil3132::new(config).expect("good"));
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
    issue(&mut machine, 7, 0, &identify, &[(DATA, 512, 1 << 31)]);
    machine.settle();
    assert_eq!(machine.read(PORT, 0x1800), 0, "slots");
    machine.assert_identified();
});

fn start(machine: &mut Machine<Sil3132>) {
    machine.write(GLOBAL, 0x40, 3);
    machine.write(PORT, 0x1004, u32::MAX);
    machine.write(PORT, 0x1000, 2);
    machine.settle();
    machine.write(PORT, 0x1000, 4);
    machine.write(PORT, 0x1008, u32::MAX);
    machine.write(PORT, 0x1010, 0xfff);
}

/// Lays a command into memory, and activates its slot.
fn issue(machine: &mut Machine<Sil3132>, slot: u8, options: u8, fis: &[u8; 20], entries: &[(u64, u32, u32)]) {
    let block = BLOCKS + u64::from(slot) * 0x400;
    machine.memory.store(block, &[options, 0, 0, 0, 0, 0, 0, 0]);
    machine.memory.store(block + 8, fis);
    for (at, (address, bytes, flags)) in entries.iter().enumerate() {
        let at = block + 32 + 16 * at as u64;
        machine.memory.store(at, &address.to_le_bytes());
        machine.memory.store(at + 8, &bytes.to_le_bytes());
        machine.memory.store(at + 12, &flags.to_le_bytes());
    }
    machine.write(PORT, 0x1c00 + 8 * u64::from(slot), block as u32);
    machine.write(PORT, 0x1c04 + 8 * u64::from(slot), 0);
}

fn act(machine: &mut Machine<Sil3132>, input: &mut Input<'_>) {
    match input.u8() {
        step @ 0..=99 => machine.happen(step, input),
        100..=189 => {
            let slot = input.u8() % 31;
            let fis = fis(input);
            let options = input.one_of(&[0, 0, 0, 0x40, 0x80, 1]);
            let mut entries: Vec<_> = (0..input.below(6))
                .map(|_| {
                    let (address, bytes) = region(input);
                    (address, bytes, input.one_of(&FLAGS))
                })
                .collect();
            if let (Some(last), true) = (entries.last_mut(), input.flag()) {
                last.2 = 1 << 31;
            }
            issue(machine, slot, options, &fis, &entries);
        }
        190..=209 => {
            let offset = 0x1000 + (input.below(0x1000) & !3);
            let value = input.number() as u32;
            machine.write(PORT, offset as u64, value);
        }
        210..=219 => {
            let offset = input.below(0x4000) & !3;
            machine.read(PORT, offset as u64);
        }
        220..=224 => {
            let offset = input.below(0x80) & !3;
            machine.read(GLOBAL, offset as u64);
        }
        // Initialize, device reset, port reset on and off.
        225..=234 => machine.write(PORT, 0x1000, input.one_of(&[4, 2, 1, 1 << 10, 1 << 3])),
        235..=238 => machine.write(PORT, 0x1004, input.one_of(&[1, 1 << 10, 1 << 3])),
        239 => machine.write(GLOBAL, 0x40, 1 << 31),
        240..=245 => {
            machine.settle();
            start(machine);
        }
        246..=250 => drop(machine.function.unplug(0)),
        _ => drop(machine.stand.function.plug(0, drive(&machine.disk))),
    }
}
