//! A host that does anything: it harms itself alone.

use crate::host::{Command, DATA, Host, disk, drive};
use etherslot_pci::function::{Function, ResetKind};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Act {
    Register(u32, u32),
    Command { slot: u8, opcode: u8, lba: u16, count: u16, features: u16, bytes: u32 },
    Scribble(u32, Vec<u8>),
    Steps(u8),
    Time(u32),
    Reset,
    Unplug,
    Plug,
    Rooms(u16),
}

fn act() -> impl Strategy<Value = Act> {
    let opcodes = prop::sample::select(vec![
        0x60u8, 0x61, 0x25, 0x35, 0xec, 0x06, 0x2f, 0xea, 0xb0, 0xef, 0xe0, 0xe6, 0x42, 0x90, 0xc6, 0xff,
    ]);
    let values =
        prop_oneof![any::<u32>(), Just(0x17u32), Just(0x16), Just(1), Just(0), Just(0x301), Just(u32::MAX)];
    prop_oneof![
        3 => ((0u32..0x1a0).prop_map(|at| at & !3), values).prop_map(|(at, value)| Act::Register(at, value)),
        6 => (0u8..32, opcodes, 0u16..2200, 0u16..300, any::<u16>(), 0u32..70_000)
            .prop_map(|(slot, opcode, lba, count, features, bytes)| {
                Act::Command { slot, opcode, lba, count, features, bytes }
            }),
        1 => (0u32..0x20_0000, prop::collection::vec(any::<u8>(), 1..200))
            .prop_map(|(at, data)| Act::Scribble(at, data)),
        5 => (1u8..30).prop_map(Act::Steps),
        1 => any::<u32>().prop_map(Act::Time),
        1 => Just(Act::Reset),
        1 => Just(Act::Unplug),
        1 => Just(Act::Plug),
        1 => any::<u16>().prop_map(Act::Rooms),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn whatever_a_host_does_the_controller_works_after_a_reset(acts in prop::collection::vec(act(), 1..80)) {
        let disk = disk(1 << 20);
        let mut host = Host::new(vec![Some(drive(&disk)), None]);
        host.shuffle = true;
        host.start();
        for act in acts {
            match act {
                Act::Register(at, value) => host.write32(u64::from(at), value),
                Act::Command { slot, opcode, lba, count, features, bytes } => {
                    let command = Command::new(opcode).lba(u64::from(lba)).count(count).features(features);
                    let is_queued = matches!(opcode, 0x60 | 0x61);
                    let command = Command { is_queued, ..command.data(DATA, bytes.max(1)) };
                    host.issue(slot, &command);
                }
                Act::Scribble(at, data) => host.store(u64::from(at), &data),
                Act::Steps(count) => {
                    for _ in 0..count {
                        host.step();
                    }
                }
                Act::Time(ns) => host.bus.now_ns += u64::from(ns),
                Act::Reset => {
                    host.bus.pending.clear();
                    host.ahci.reset(ResetKind::Conventional);
                }
                Act::Unplug => drop(host.ahci.unplug(0)),
                Act::Plug => drop(host.ahci.plug(0, drive(&disk))),
                Act::Rooms(room) => {
                    let room = usize::from(room) % 600;
                    (host.bus.write_room, host.bus.read_room) = (room, room);
                }
            }
        }
        (host.bus.write_room, host.bus.read_room) = (usize::MAX, usize::MAX);
        host.run();
        host.ahci.plug(0, drive(&disk)).unwrap();
        host.write32(0x04, 1 << 31 | 1);
        host.run();
        host.start();
        host.identify();
        host.good(&Command::dma(true, 0, 8).data(DATA, 4096));
    }
}
