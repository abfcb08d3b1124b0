//! A hostile controller against the initiator's NVMe driver, in virtual time.
//!
//! The controller is a real one in a box, whose words the input changes: registers that read as anything, any time, and are
//! never ready; data structures of Identify that are wrong; Completion Queue Entries that are twisted, made up or missing; writes
//! to any place of the initiator's memory; interrupts at any moment; doorbells that it ignores; the death of the box. Meanwhile a user
//! submits whatever comes to mind. Whatever happens, nothing panics, works without end or grows, every request ends once,
//! and no buffer is lost. When the controller tells the truth again, the disk works, or has been given up for good.

#![no_main]

#[path = "driver/controller.rs"]
mod controller;
#[path = "driver/world.rs"]
mod world;

use etherslot_fuzz::Input;
use etherslot_initiator::Op;
use etherslot_initiator::nvme::{Config, DataPointers, Submission};
use libfuzzer_sys::fuzz_target;
use world::{MS, World};

pub(crate) const PAGE_BYTES: usize = 4096;
pub(crate) const CQE_BYTES: usize = 16;
/// Where the initiator's memory begins for devices; the admin queues, what Identify brings and the I/O queues come first.
const MEMORY: u64 = 0x1000_0000;
pub(crate) const IDENTIFY: u64 = MEMORY + 2 * PAGE_BYTES as u64;
/// The most time that the steps of an input take, ns.
const MAX_TIME_NS: u64 = 60_000 * MS;

/// Registers that the driver reads: CAP, CSTS, CMBLOC, CMBSZ.
const REGISTERS: [u64; 6] = [0x00, 0x04, 0x1C, 0x38, 0x3C, 0x14];
/// What Identify tells that the driver uses: of a namespace its size, formats and metadata; of a controller its transfer size,
/// namespaces, optional commands, cache and SGLs.
const FIELDS: [usize; 14] = [0, 8, 24, 25, 26, 27, 33, 77, 99, 128, 516, 520, 525, 536];

fuzz_target!(|input: &[u8]| {
    let mut input = Input::new(input);
    let form = input.u8();
    let mut world = World::new(Config {
        submission: if form & 1 == 0 { Submission::HostMemory } else { Submission::ControllerMemory },
        data_pointers: if form & 2 == 0 { DataPointers::Sgl } else { DataPointers::Prp },
        interrupts: form & 4 != 0,
        identify_all: form & 8 != 0,
        ..Config::default()
    });
    if form & 16 == 0 {
        let is_ready = |world: &World| world.initiator.is_ready();
        assert!(world.run_until(1_000 * MS, is_ready), "an honest controller does not start");
    }
    while !input.is_empty() && world.now_ns < MAX_TIME_NS {
        act(&mut input, &mut world);
    }
    world.recover();
});

fn act(input: &mut Input<'_>, world: &mut World) {
    match input.below(20) {
        0 => world.run(MS),
        1 => world.run(u64::from(input.u8()) * 20_000),
        2 => world.run(u64::from(input.u8()) * 20 * MS),
        3 => {
            let offset = if input.flag() { input.one_of(&REGISTERS) } else { u64::from(input.u8()) };
            let value = input.number();
            world.plan.borrow_mut().lie_in_register(offset, value);
        }
        4 => {
            let offset = if input.flag() { input.one_of(&FIELDS) } else { input.below(PAGE_BYTES) };
            let value = input.number();
            world.plan.borrow_mut().lie_in_identify(offset, value);
        }
        5 => {
            let at = input.below(CQE_BYTES);
            world.plan.borrow_mut().twist[at] ^= input.u8();
        }
        6 => world.plan.borrow_mut().twist = [0; CQE_BYTES],
        7 => {
            // An entry, in the page of the Admin Completion Queue or of those that follow.
            let page = 1 + input.below(8) as u64;
            let place = (input.u8() as usize % (PAGE_BYTES / CQE_BYTES) * CQE_BYTES) as u64;
            let entry = entry(input);
            world.plan.borrow_mut().writes.push((MEMORY + page * PAGE_BYTES as u64 + place, entry));
        }
        8 => {
            let address = MEMORY.wrapping_add(input.number());
            let count = 1 + input.below(64);
            let data = input.bytes(count).to_vec();
            world.plan.borrow_mut().writes.push((address, data));
        }
        9 => world.plan.borrow_mut().interrupts.push(input.u16() % 70),
        10 => world.plan.borrow_mut().is_mute ^= true,
        11 => world.plan.borrow_mut().is_deaf ^= true,
        12 => world.plan.borrow_mut().repent(),
        13 => {
            world.kill_box();
            if input.flag() {
                world.run(u64::from(input.u8()) * 20 * MS);
            }
            world.start_box();
        }
        14 if input.once_in(8) => world.initiator.shut_down(),
        // It never gets ready, or never stops.
        15 => {
            let value = input.one_of(&[0, 1, 2, 0xC, u64::MAX]);
            world.plan.borrow_mut().lie_in_register(0x1C, value);
        }
        _ => {
            for _ in 0..=input.u8() % 8 {
                let ops = [
                    Op::Read,
                    Op::Write { durable: true },
                    Op::Write { durable: false },
                    Op::Flush,
                    Op::WriteZeroes { unmap: true },
                    Op::Discard,
                    Op::Compare,
                ];
                let (op, first_block) = (input.one_of(&ops), input.number() % 512);
                let blocks = u32::from(input.u8() % 130);
                let bytes = if blocks > 8 { 64 << 10 } else { 4096 };
                world.submit(op, first_block, blocks, bytes);
            }
        }
    }
}

/// A Completion Queue Entry with fields that may be right.
fn entry(input: &mut Input<'_>) -> Vec<u8> {
    let mut entry = [0; CQE_BYTES];
    entry[..4].copy_from_slice(&(input.number() as u32).to_le_bytes());
    entry[8] = input.u8() % 8;
    entry[10] = input.u8() % 4;
    entry[12..14].copy_from_slice(&(input.number() as u16).to_le_bytes());
    let status = if input.flag() { u16::from(input.flag()) } else { input.u16() };
    entry[14..].copy_from_slice(&status.to_le_bytes());
    entry.to_vec()
}
