//! A host that does all it can to crash, hang or bloat the controller.

use crate::harness::*;
use etherslot_devices::nvme::Config;
use etherslot_pci::function::{Function, InterruptMode, ResetKind};
use proptest::prelude::*;

#[test]
fn doorbells_out_of_range_raise_errors_and_nothing_else() {
    let (mut host, _disk) = Host::ready();
    for offset in (0x1000..0x2000).step_by(4) {
        for value in [1, 16, 0xffff, u32::MAX] {
            if offset >= 0x1010 {
                host.write32(offset, value);
            }
        }
    }
    host.write32(0x1008, 16);
    host.write32(0x1008, u32::MAX);
    host.write32(0x100c, 1);
    host.run();
    assert_eq!(host.csts(), 1);
    assert!(host.smart(176) > 1000);
    assert!(host.read_blocks(0, 512, 512).is_ok());
}

#[test]
fn queues_over_each_other_and_over_their_data_do_no_harm() {
    let (mut host, _disk) = Host::ready();
    let base = 0x5000u64;
    for qid in 2..=5u32 {
        let create = Entry::new(5).prps(base, 0).dword(10, 63 << 16 | qid).dword(11, qid << 16 | 3);
        assert_eq!(host.admin(create).status, status::SUCCESS);
        let create = Entry::new(1).prps(base, 0).dword(10, 63 << 16 | qid).dword(11, qid << 16 | 1);
        assert_eq!(host.admin(create).status, status::SUCCESS);
    }
    for round in 0..200 {
        for qid in 2..=5 {
            host.write32(0x1000 + qid * 8, (round * 7 + 13) % 64);
            host.write32(0x1004 + qid * 8, (round * 5 + 3) % 64);
        }
        for _ in 0..20 {
            host.step();
        }
    }
    host.run();
    host.disable();
    host.enable();
    assert!(host.identify(1, 0).is_ok());
}

/// One thing a host can do.
#[derive(Clone, Debug)]
enum Act {
    Write32(u32, u32),
    Bytes(u16, Vec<u8>),
    Entry(u8, u8, [u32; 16]),
    Ring(u8, u16),
    Step(u8),
    Room(u16, u16),
    Reset(bool),
    Mode(u8),
    Master(bool),
    Enable,
}

fn small_address() -> impl Strategy<Value = u32> {
    prop_oneof![
        4 => (0u32..0x40).prop_map(|page| page * 4096 + 0x10_0000),
        2 => 0u32..0x20_0000,
        1 => any::<u32>(),
    ]
}

fn entry() -> impl Strategy<Value = [u32; 16]> {
    let opcode = prop_oneof![
        6 => prop_oneof![Just(0u32), Just(1), Just(2), Just(5), Just(8), Just(9), Just(12), Just(6), Just(4)],
        1 => 0u32..0x100,
    ];
    let flags = prop_oneof![4 => Just(0u32), 2 => Just(0x4000), 1 => (0u32..256).prop_map(|bits| bits << 8)];
    let nsid = prop_oneof![5 => Just(1u32), 1 => Just(0), 1 => Just(u32::MAX), 1 => any::<u32>()];
    let dword10 = prop_oneof![3 => 0u32..3000, 1 => any::<u32>(), 2 => (0u32..64, 0u32..9).prop_map(|(size, qid)| size << 16 | qid)];
    let dword12 = prop_oneof![4 => 0u32..600, 1 => any::<u32>()];
    (opcode, flags, nsid, small_address(), small_address(), any::<[u32; 6]>(), dword10, dword12).prop_map(
        |(opcode, flags, nsid, first, second, rest, dword10, dword12)| {
            let mut dwords = [0; 16];
            dwords[0] = opcode | flags | rest[0] << 16;
            dwords[1] = nsid;
            (dwords[6], dwords[8]) = (first, second);
            // As an SGL: the length, and a type now and then.
            if flags & 0x4000 != 0 {
                dwords[8] = rest[1] % 70_000;
                dwords[9] = rest[2] & 0xf000_0000;
            }
            (dwords[10], dwords[12]) = (dword10, dword12);
            dwords[11] = if rest[3] % 3 == 0 { rest[4] % 8 } else { (rest[4] % 9) << 16 | 3 };
            dwords[13] = if rest[5] % 8 == 0 { rest[5] } else { 0 };
            dwords
        },
    )
}

fn act() -> impl Strategy<Value = Act> {
    let register = prop_oneof![3 => (0u32..0x18).prop_map(|at| at * 4), 2 => (0u32..0x50).prop_map(|at| 0x1000 + at * 4)];
    let value = prop_oneof![
        Just(0u32),
        Just(1),
        Just(0x0046_0001),
        Just(0x0046_4001),
        Just(0x4e56_4d65),
        0u32..64,
        any::<u32>()
    ];
    prop_oneof![
        3 => (register, value).prop_map(|(at, value)| Act::Write32(at, value)),
        1 => (any::<u16>(), proptest::collection::vec(any::<u8>(), 1..20)).prop_map(|(at, data)| Act::Bytes(at, data)),
        12 => (0u8..4, 0u8..16, entry()).prop_map(|(qid, at, entry)| Act::Entry(qid, at, entry)),
        8 => (0u8..5, 0u16..34).prop_map(|(qid, tail)| Act::Ring(qid, tail)),
        8 => (0u8..40).prop_map(Act::Step),
        2 => (0u16..3000, 0u16..3000).prop_map(|(write, read)| Act::Room(write, read)),
        1 => any::<bool>().prop_map(Act::Reset),
        1 => (0u8..4).prop_map(Act::Mode),
        1 => any::<bool>().prop_map(Act::Master),
        1 => Just(Act::Enable),
    ]
}

fn play(acts: &[Act]) {
    let disk = disk(1 << 20);
    let mut host = Host::new(Config {
        cmb_bytes: Some(64 << 10),
        commands: 16,
        large_buffers: 2,
        small_buffers: 2,
        ..config(&disk, 512)
    });
    host.enable();
    host.shuffle = true;
    for qid in 1..4 {
        host.create_pair(qid, 16);
    }
    // Lists full of plausible entries, SGL descriptors among them.
    let mut random = Random(acts.len() as u64);
    for at in (0x10_0000..0x14_0000u64).step_by(16) {
        let low = [random.below(0x20_0000), random.below(0x40) * 4096 + 0x10_0000][random.below(2) as usize];
        let high = [low, random.below(8192) | random.below(4) << 60][random.below(2) as usize];
        host.store64(at, &[low, high]);
    }
    let bases = [0x1000u64, 0x10_1000, 0x10_3000, 0x10_5000];
    for act in acts {
        match act {
            Act::Write32(at, value) => host.write32(u64::from(*at), *value),
            Act::Bytes(at, data) => {
                let (bar, limit) = if *at & 1 == 0 { (0, 0x2000) } else { (2, 0x1_0000) };
                let at = u64::from(*at) % (limit - 32);
                host.nvme.bar_write(bar, at, data);
                let mut back = vec![0; data.len()];
                host.nvme.bar_read(bar, at, &mut back);
            }
            Act::Entry(qid, at, dwords) => {
                let base = bases[usize::from(*qid)] + u64::from(*at) * 64;
                for (index, dword) in dwords.iter().enumerate() {
                    host.store(base + index as u64 * 4, &dword.to_le_bytes());
                }
            }
            Act::Ring(qid, tail) => host.write32(0x1000 + u64::from(*qid) * 8, u32::from(*tail)),
            Act::Step(steps) => {
                for _ in 0..*steps {
                    host.step();
                    host.bus.now_ns += 10_000;
                }
                for qid in 0..4 {
                    let tail = host.random.below(17) as u32;
                    host.write32(0x1004 + qid * 8, tail);
                }
            }
            Act::Room(write, read) => {
                (host.bus.write_room, host.bus.read_room) = (usize::from(*write), usize::from(*read));
            }
            Act::Reset(function) => {
                host.function_reset(if *function {
                    ResetKind::FunctionLevel
                } else {
                    ResetKind::Conventional
                });
            }
            Act::Mode(mode) => {
                host.bus.mode = [
                    InterruptMode::Disabled,
                    InterruptMode::IntX,
                    InterruptMode::Msi(4),
                    InterruptMode::MsiX(9),
                ][usize::from(*mode)];
            }
            Act::Master(master) => host.bus.master = *master,
            Act::Enable => {
                (host.bus.write_room, host.bus.read_room) = (usize::MAX, usize::MAX);
                (host.bus.master, host.bus.mode) = (true, InterruptMode::MsiX(9));
                host.write32(0x14, 0);
                host.run();
                // Else it may lie over the queues.
                host.nvme.bar_write(0, 0x50, &[0; 8]);
                host.enable();
                for qid in 1..4 {
                    let mark = host.free_all();
                    host.create_pair(qid, 16);
                    host.free_to(mark);
                }
            }
        }
    }
    // Whatever happened: a reset makes it whole, with every slot and Buf.
    (host.bus.write_room, host.bus.read_room) = (usize::MAX, usize::MAX);
    host.bus.master = true;
    host.bus.mode = InterruptMode::MsiX(9);
    host.write32(0x14, 0);
    host.run();
    assert_eq!(host.csts() & !(1 << 4 | 3 << 2), 0);
    host.write32(0x1c, 1 << 4);
    host.nvme.bar_write(0, 0x50, &[0; 8]);
    host.enable();
    host.create_pair(1, 16);
    for _ in 0..40 {
        let data = pattern(32 << 10, 3);
        let mark = host.free_all();
        let namespace = host.identify(0, 1).unwrap();
        let block = if namespace[26] == 0 && namespace[130] == 9 { 512 } else { 4096 };
        assert_eq!(host.write_blocks(0, &data, block), status::SUCCESS);
        assert_eq!(host.read_blocks(0, data.len(), block).unwrap(), data);
        host.free_to(mark);
    }
}

proptest! {
    #[test]
    fn no_sequence_of_accesses_breaks_it(acts in proptest::collection::vec(act(), 1..120)) {
        play(&acts);
    }
}
