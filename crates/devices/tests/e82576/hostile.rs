//! A driver that does all it can to crash, hang or bloat the controller.

use crate::driver::*;
use etherslot_pci::function::{Function, InterruptMode, ResetKind};
use proptest::prelude::*;

/// One thing a driver, or the network, can do.
#[derive(Clone, Debug)]
enum Act {
    Write(u32, u32),
    Read(u32, u8),
    Bytes(u32, Vec<u8>),
    Descriptor(u8, u8, [u32; 4]),
    Receive(Vec<u8>),
    Step(u8),
    Room(u16, u16, u16),
    Reset(bool),
    Mode(u8),
    Master(bool),
    Carrier(bool),
    Drain,
    Start,
}

fn register() -> impl Strategy<Value = u32> {
    prop_oneof![
        2 => prop_oneof![Just(reg::CTRL), Just(reg::RCTL), Just(reg::TCTL), Just(reg::MRQC), Just(reg::MDIC), Just(reg::EERD), Just(reg::GPIE), Just(reg::RXCSUM), Just(reg::RLPML)],
        6 => (0u32..3, 0u32..12, any::<bool>()).prop_map(|(queue, at, receives)| if receives { reg::receive(queue, 4 * at) } else { reg::transmit(queue, 4 * at) }),
        2 => (0x1500u32..0x1780).prop_map(|at| at & !3),
        2 => (0u32..0x2_0000).prop_map(|at| at & !3),
    ]
}

fn value() -> impl Strategy<Value = u32> {
    prop_oneof![
        3 => 0u32..70,
        2 => (0u32..32).prop_map(|bit| 1 << bit),
        2 => (0u32..0x100).prop_map(|page| page * 4096),
        1 => Just(ENABLE),
        1 => any::<u32>(),
    ]
}

fn descriptor() -> impl Strategy<Value = [u32; 4]> {
    let address = prop_oneof![8 => 0u32..0x40_0000, 1 => any::<u32>()];
    let high = prop_oneof![12 => Just(0u32), 1 => any::<u32>()];
    let length = prop_oneof![4 => 0u32..200, 2 => 0u32..10_000, 1 => 0u32..0x1_0000];
    let kind = prop_oneof![4 => Just(cmd::DATA), 2 => Just(cmd::CONTEXT), 1 => Just(0u32), 1 => any::<u32>()];
    let flags = any::<u8>().prop_map(|bits| u32::from(bits) << 24);
    (address, high, length, kind, flags, any::<u32>(), 0u32..2000).prop_map(
        |(address, high, length, kind, flags, options, small)| {
            let options = if options & 1 == 0 { options } else { small << 14 | options & 0x3ff0 };
            if kind == cmd::CONTEXT {
                [cmd::lengths(14, 20) | (options & 7) << 4, 0, kind | options & 0x1c00, small << 16 | 20 << 8]
            } else {
                [address, high, length | kind | flags & !(1 << 29) | flags & kind, options]
            }
        },
    )
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        8 => (register(), value()).prop_map(|(at, value)| Act::Write(at, value)),
        2 => (0u32..0x2_0000, any::<u8>()).prop_map(|(at, bytes)| Act::Read(at, bytes)),
        1 => (0u32..0x1_ff00, proptest::collection::vec(any::<u8>(), 1..80)).prop_map(|(at, data)| Act::Bytes(at, data)),
        12 => (0u8..3, 0u8..64, descriptor()).prop_map(|(queue, at, dwords)| Act::Descriptor(queue, at, dwords)),
        4 => proptest::collection::vec(any::<u8>(), 0..200).prop_map(Act::Receive),
        8 => (0u8..40).prop_map(Act::Step),
        2 => (0u16..3000, 0u16..3000, 0u16..3).prop_map(|(write, read, interrupts)| Act::Room(write, read, interrupts)),
        1 => any::<bool>().prop_map(Act::Reset),
        1 => (0u8..4).prop_map(Act::Mode),
        1 => any::<bool>().prop_map(Act::Master),
        1 => any::<bool>().prop_map(Act::Carrier),
        2 => Just(Act::Drain),
        2 => Just(Act::Start),
    ]
}

fn play(acts: &[Act]) {
    let mut driver = Driver::ready();
    driver.shuffle = true;
    for act in acts {
        match act {
            Act::Write(at, value) => driver.set(*at, *value),
            Act::Read(at, bytes) => {
                let mut data = vec![0xee; usize::from(*bytes) + 1];
                driver.nic.bar_read(0, u64::from((*at).min(0x2_0000 - 256)), &mut data);
            }
            Act::Bytes(at, data) => driver.nic.bar_write(0, u64::from(*at), data),
            Act::Descriptor(queue, at, dwords) => {
                let base = Driver::transmit_base(u32::from(*queue)) + u64::from(*at) * 16;
                for (index, dword) in dwords.iter().enumerate() {
                    driver.store(base + 4 * index as u64, &dword.to_le_bytes());
                }
                driver.set(reg::transmit(u32::from(*queue), at::TAIL), u32::from(*at) + 1);
            }
            Act::Receive(bytes) => {
                let mut frame = frame(MAC, 0x0800, bytes);
                if let Some(first) = bytes.first().filter(|first| **first < 40) {
                    frame.truncate(usize::from(*first));
                }
                driver.peer.send_copy(&frame);
            }
            Act::Step(steps) => {
                for _ in 0..*steps {
                    driver.step();
                    driver.bus.now_ns += 10_000;
                }
            }
            Act::Room(write, read, interrupts) => {
                (driver.bus.write_room, driver.bus.read_room) = (usize::from(*write), usize::from(*read));
                driver.bus.interrupt_room = usize::from(*interrupts);
            }
            Act::Reset(function) => driver.function_reset(if *function {
                ResetKind::FunctionLevel
            } else {
                ResetKind::Conventional
            }),
            Act::Mode(mode) => {
                driver.bus.mode = [
                    InterruptMode::Disabled,
                    InterruptMode::IntX,
                    InterruptMode::Msi(1),
                    InterruptMode::MsiX(25),
                ][usize::from(*mode)];
            }
            Act::Master(master) => driver.bus.master = *master,
            Act::Carrier(is_up) => driver.peer.set_carrier(*is_up),
            Act::Drain => {
                driver.sent();
            }
            Act::Start => {
                driver.set(reg::CTRL, 1 << 26);
                driver.start();
                for queue in 1..3 {
                    driver.transmit_ring(queue);
                    driver.receive_ring(queue, BUFFER_BYTES);
                }
            }
        }
    }
    // Whatever happened: a reset makes it whole, with every buffer of the cable.
    (driver.bus.write_room, driver.bus.read_room, driver.bus.interrupt_room) =
        (usize::MAX, usize::MAX, usize::MAX);
    (driver.bus.master, driver.bus.mode) = (true, InterruptMode::MsiX(25));
    driver.peer.set_carrier(true);
    driver.function_reset(ResetKind::Conventional);
    driver.sent();
    driver.start();
    while driver.received(0).is_some() {}
    for seed in 0..5 {
        let sent = frame(MAC, 0x88b5, &pattern(700, seed));
        driver.deliver(&sent);
        assert!(driver.received(0).expect("a frame").bytes == sent);
        driver.send(0, &sent, 0, 0);
        assert!(driver.sent() == [sent]);
    }
    assert_eq!(driver.peer.room(), CABLE_FRAMES);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn no_sequence_of_accesses_breaks_it(acts in proptest::collection::vec(act(), 1..120)) {
        play(&acts);
    }
}
