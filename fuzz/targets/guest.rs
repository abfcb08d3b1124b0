//! A hostile driver against an NVMe controller behind its Endpoint, in virtual time.
//!
//! An input is a row of steps: the guest brings the controller up, writes any register or BAR, puts entries made of likely and
//! unlikely fields into its queues, rings doorbells, resets at any moment; its memory answers, refuses, poisons, answers
//! something else or keeps silent. Whatever happens, the device does not panic or work without end, every TLP it sends is
//! well-formed and its own, and after a reset it identifies itself and reads a block as any other.

#![no_main]

#[path = "guest/root.rs"]
mod root;

use etherslot_devices::nvme::{Config, Namespace, Nvme};
use etherslot_fuzz::Input;
use etherslot_pci::endpoint::{Endpoint, EndpointConfig};
use etherslot_storage::memory::{Disk, Options};
use libfuzzer_sys::fuzz_target;
use root::{ADMIN_CQ, ADMIN_SQ, DATA, IO_CQ, IO_SQ, MEMORY_BYTES, MS, Root, SLOTS};

/// Places that entries and lists point to: queues, data, misaligned, at the edge, outside.
const PLACES: [u64; 10] =
    [ADMIN_SQ, ADMIN_CQ, IO_SQ, IO_CQ, DATA, DATA + 4, DATA + 0x1001, 0, MEMORY_BYTES - 8, 1 << 40];

const ADMIN_OPCODES: [u8; 14] = [0, 1, 2, 4, 5, 6, 8, 9, 0x0A, 0x0C, 0x10, 0x80, 0x0D, 0xFF];
const IO_OPCODES: [u8; 10] = [0, 1, 2, 4, 5, 8, 9, 0x0C, 0x0D, 0xFF];

fuzz_target!(|input: &[u8]| {
    let mut input = Input::new(input);
    let disks = [512, 4096]
        .map(|block_bytes| Disk::new(Options { block_bytes, bytes: 1 << 16, ..Options::default() }));
    let namespaces = disks.iter().map(|disk| Namespace::new(Box::new(disk.medium()), 4096)).collect();
    let config = Config {
        namespaces,
        commands: 64,
        max_transfer_bytes: 1 << 16,
        large_buffers: 2,
        small_buffers: 4,
        small_buffer_bytes: 4096,
        max_queue_pairs: 4,
        cmb_bytes: input.flag().then_some(1 << 16),
        ..Config::default()
    };
    let nvme = Nvme::new(config).expect("a configuration within bounds");
    let mut endpoint = Endpoint::new(Box::new(nvme), EndpointConfig::default());
    endpoint.attach(4096, 4096);
    let mut root = Root::new(endpoint);
    if input.flag() {
        assert!(root.bring_up(), "the controller does not come up");
    }
    for _ in 0..4096 {
        if input.is_empty() {
            break;
        }
        step(&mut input, &mut root);
    }
    root.behave();
    root.reset();
    assert!(root.bring_up(), "the controller does not come up after a reset");
    assert!(root.identifies_and_reads(), "the controller does not work after a reset");
});

fn step(input: &mut Input<'_>, root: &mut Root) {
    match input.below(14) {
        0 => root.config_write(input.u16() & 0xFFC, input.u8() & 15, input.u32()),
        1 => {
            let offset = if input.flag() { u64::from(input.u8()) } else { input.number() & 0x7FFF };
            let length = 1 + input.below(16);
            let data: Vec<u8> = input.bytes(length).to_vec();
            root.bar_write(offset, &data);
        }
        2 => root.bar_read(input.number() & 0x7FFF, 1 + input.below(64)),
        3 => {
            let at = (input.one_of(&PLACES) + u64::from(input.u16())) % MEMORY_BYTES;
            let length = input.below(64);
            root.poke(at, input.bytes(length));
        }
        4 => entry(input, root, true),
        5 | 6 => entry(input, root, false),
        7 => {
            // Doorbells: mostly those that exist, and values near the ends of queues.
            let doorbell = input.below(12) as u64;
            let value = if input.flag() { input.below(SLOTS as usize + 2) as u32 } else { input.u32() };
            root.bar_write(0x1000 + 4 * doorbell, &value.to_le_bytes());
        }
        8 => root.manner = input.u8(),
        9 => root.pass(u64::from(input.u8()) * MS),
        10 => root.room = input.below(5000),
        11 => {
            let length = input.below(96);
            let tlp = input.bytes(length).to_vec();
            root.inject(&tlp);
        }
        12 => match input.below(5) {
            0 => root.reset(),
            1 => root.function_level_reset(),
            2 => root.bar_write(0x14, &0u32.to_le_bytes()),
            3 => root.bar_write(0x14, &(0x46_0001u32 | u32::from(input.u8() & 3) << 14).to_le_bytes()),
            _ => {
                root.bring_up();
            }
        },
        _ => root.run(input.below(64)),
    }
}

/// Puts an entry into a queue and rings its doorbell.
fn entry(input: &mut Input<'_>, root: &mut Root, admin: bool) {
    let mut dwords = [0u32; 16];
    let opcode = if admin { input.one_of(&ADMIN_OPCODES) } else { input.one_of(&IO_OPCODES) };
    let flags = if input.once_in(4) { u32::from(input.u8()) << 8 } else { 0 };
    dwords[0] = u32::from(opcode) | flags | u32::from(input.u8()) << 16;
    dwords[1] = if input.once_in(8) { input.number() as u32 } else { 1 + u32::from(input.u8() & 1) };
    for at in [6, 8] {
        let place = input.one_of(&PLACES);
        dwords[at] = place as u32;
        dwords[at + 1] = (place >> 32) as u32;
    }
    for dword in &mut dwords[10..] {
        *dword = if input.flag() { u32::from(input.u8() & 7) } else { input.number() as u32 };
    }
    root.submit(admin, dwords);
}
