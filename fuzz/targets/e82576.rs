//! A hostile guest of an 82576, and a hostile network.
//!
//! The steps are descriptors of any form, most of them near to good ones; accesses to registers; frames of any form; reads that come in parts,
//! late, or fail; little room, a cable that is pulled, resets of rings and of the controller. Whatever comes, nothing panics or works without end,
//! and after a reset frames go out and come in as they are, with every buffer of the cable in its place.

#![no_main]

use etherslot_devices::cable::{End, cable};
use etherslot_devices::e82576::{Config, E82576};
use etherslot_fuzz::{Input, MEMORY_BYTES, Stand};
use etherslot_pci::function::Function as _;
use libfuzzer_sys::fuzz_target;

const MAC: [u8; 6] = [0x02, 0, 0, 0xAB, 0xCD, 0xEF];
const PEER: [u8; 6] = [0x02, 0, 0, 0, 0, 0x01];
const CABLE_FRAMES: usize = 32;
const QUEUES: u32 = 3;
const ENTRIES: u32 = 16;
const BUFFER_BYTES: u32 = 2048;

const CTRL: u32 = 0x0;
const RCTL: u32 = 0x100;
const TCTL: u32 = 0x400;
/// A ring's registers, by their offsets from its first.
const BASE: u32 = 0x00;
const LENGTH: u32 = 0x08;
const SRRCTL: u32 = 0x0C;
const HEAD: u32 = 0x10;
const TAIL: u32 = 0x18;
const CONTROL: u32 = 0x28;
const ENABLE: u32 = 1 << 25;

const fn receives(queue: u32) -> u32 {
    0xC000 + 0x40 * queue
}

const fn transmits(queue: u32) -> u32 {
    0xE000 + 0x40 * queue
}

/// Where a ring and its buffers are.
const fn ring(queue: u32, is_receiving: bool) -> u32 {
    0x1000 * (2 * queue + is_receiving as u32)
}

const fn buffer(queue: u32, index: u32) -> u32 {
    0x2_0000 + (queue * ENTRIES + index) * BUFFER_BYTES
}

struct Machine {
    stand: Stand<E82576>,
    peer: End,
}

fuzz_target!(|input: &[u8]| {
    let mut input = Input::new(input);
    let (end, peer) = cable(CABLE_FRAMES);
    let nic = E82576::new(Config { mac: MAC, cable: end }).expect("good");
    let mut machine = Machine { stand: Stand::new(nic), peer };
    machine.start();
    while !input.is_empty() {
        machine.act(&mut input);
    }
    machine.peer.set_carrier(true);
    machine.stand.reset();
    machine.sent();
    machine.stand.settle();
    machine.sent();
    machine.start();
    for seed in 0..4 {
        machine.works(seed);
    }
    assert_eq!(machine.peer.room(), CABLE_FRAMES, "a buffer of the cable is lost");
});

impl Machine {
    fn write(&mut self, register: u32, value: u32) {
        self.stand.write(0, register.into(), value);
    }

    /// What a driver does first: a link, interrupts, the first rings.
    fn start(&mut self) {
        self.write(CTRL, 0x241);
        for (register, value) in [(0x1514, 1 << 30 | 1), (0x1700, 0x8080), (0x1524, 0x3), (0xD0, 0x85)] {
            self.write(register, value);
        }
        self.write(TCTL, 1 << 1 | 1 << 3);
        self.write(RCTL, 1 << 1 | 1 << 15 | 1 << 26);
        self.transmit_ring(0);
        self.receive_ring(0);
        self.stand.settle();
    }

    fn transmit_ring(&mut self, queue: u32) {
        let (first, base) = (transmits(queue), ring(queue, false));
        self.stand.memory.store(base.into(), &[0; 16 * ENTRIES as usize]);
        for (register, value) in
            [(CONTROL, 0), (BASE, base), (LENGTH, ENTRIES * 16), (HEAD, 0), (TAIL, 0), (CONTROL, ENABLE)]
        {
            self.write(first + register, value);
        }
    }

    fn receive_ring(&mut self, queue: u32) {
        let (first, base) = (receives(queue), ring(queue, true));
        for index in 0..ENTRIES {
            let mut descriptor = [0; 16];
            descriptor[..4].copy_from_slice(&buffer(queue, index).to_le_bytes());
            self.stand.memory.store((base + 16 * index).into(), &descriptor);
        }
        for (register, value) in [
            (CONTROL, 0),
            (BASE, base),
            (LENGTH, ENTRIES * 16),
            (SRRCTL, 1 << 25 | BUFFER_BYTES >> 10),
            (HEAD, 0),
            (TAIL, 0),
            (CONTROL, ENABLE),
            (TAIL, ENTRIES - 1),
        ] {
            self.write(first + register, value);
        }
    }

    /// How many frames came out.
    fn sent(&mut self) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        while let Some(frame) = self.peer.receive() {
            frames.push(frame.to_vec());
            self.peer.done(frame);
        }
        frames
    }

    /// A frame goes out and one comes in, as they are.
    fn works(&mut self, seed: u8) {
        let frame = [&MAC[..], &PEER, &[0x88, 0xB5], &[seed; 300]].concat();
        let (at, out) = (u32::from(seed), 0x1_0000);
        self.stand.memory.store(out, &frame);
        let dwords = [out as u32, 0, frame.len() as u32 | 3 << 20 | 0x2B << 24, (frame.len() as u32) << 14];
        self.put(0, at, dwords);
        self.write(transmits(0) + TAIL, at + 1);
        assert!(self.peer.send_copy(&frame), "the cable has room");
        self.stand.settle();
        assert!(self.sent() == [&frame[..]], "not what was sent");
        let descriptor = ring(0, true) as usize + 16 * at as usize;
        let written = &self.stand.memory.bytes[descriptor..descriptor + 16];
        assert_eq!(written[8] & 3, 3, "a whole frame is there");
        assert_eq!(u16::from_le_bytes([written[12], written[13]]) as usize, frame.len());
        let place = buffer(0, at) as usize;
        assert!(self.stand.memory.bytes[place..place + frame.len()] == frame, "not what came");
    }

    fn put(&mut self, queue: u32, at: u32, dwords: [u32; 4]) {
        let descriptor = dwords.map(u32::to_le_bytes).concat();
        self.stand.memory.store((ring(queue, false) + 16 * (at % ENTRIES)).into(), &descriptor);
    }

    fn act(&mut self, input: &mut Input<'_>) {
        match input.u8() {
            step @ 0..=99 => self.stand.happen(step, input),
            100..=159 => {
                let queue = u32::from(input.u8()) % QUEUES;
                let at = u32::from(input.u8()) % ENTRIES;
                for next in 0..=input.below(4) as u32 {
                    let dwords = descriptor(input);
                    self.put(queue, at + next, dwords);
                    self.write(transmits(queue) + TAIL, (at + next + 1) % ENTRIES);
                }
            }
            160..=189 => {
                let offset = match input.u8() % 4 {
                    0 => receives(u32::from(input.u8()) % QUEUES) + 4 * input.below(14) as u32,
                    1 => transmits(u32::from(input.u8()) % QUEUES) + 4 * input.below(16) as u32,
                    2 => {
                        input.one_of(&[CTRL, RCTL, TCTL, 0x20, 0x14, 0x1514, 0x5000, 0x5004, 0x5818, 0x5B50])
                    }
                    _ => input.u16().into(),
                };
                let value = input.number() as u32;
                self.write(offset & !3, value);
            }
            190..=199 => {
                let (offset, bytes) = (input.number() & 0x1_FFFF, input.u8() as usize);
                let mut data = vec![0; bytes];
                self.stand.function.bar_read(input.one_of(&[0, 0, 0, 3]), offset, &mut data);
            }
            200..=204 => {
                let (offset, count) = (input.number() & 0x1_FFFF, input.below(80));
                let data = input.bytes(count);
                self.stand.function.bar_write(input.one_of(&[0, 0, 0, 3]), offset, data);
            }
            205..=229 => {
                let frame = frame(input);
                for _ in 0..=input.below(3) {
                    self.peer.send_copy(&frame);
                }
            }
            230..=234 => self.peer.set_carrier(input.flag()),
            235..=240 => drop(self.sent()),
            241..=245 => {
                self.write(CTRL, 1 << 26);
                self.start();
            }
            246..=249 => while self.stand.function.read_ahead().is_some() {},
            _ => {
                let queue = u32::from(input.u8()) % QUEUES;
                if input.flag() { self.transmit_ring(queue) } else { self.receive_ring(queue) }
            }
        }
    }
}

/// A transmit descriptor, most of them near to a good one: of a context, of data, or a legacy one.
fn descriptor(input: &mut Input<'_>) -> [u32; 4] {
    let any = |input: &mut Input<'_>| [(); 4].map(|()| input.u32());
    let small = u32::from(input.u8()) << 4;
    let dwords = match input.u8() % 8 {
        0 | 1 => {
            let lengths =
                u32::from(input.one_of(&[14_u8, 18, 0])) << 9 | u32::from(input.one_of(&[20_u8, 40, 60, 5]));
            let of_packet = small << 16 | u32::from(input.one_of(&[20_u8, 8, 0, 60])) << 8;
            [
                lengths | u32::from(input.u16()) << 16,
                0,
                2 << 20 | 1 << 29 | u32::from(input.u8()) << 8,
                of_packet,
            ]
        }
        2..=5 => {
            let address = (u32::from(input.u16()) << 2) % (MEMORY_BYTES as u32);
            let length = input.one_of(&[60, 64, 300, 1514, 2048, 9728, 0, 1, 0xFFFF]);
            let command = u32::from(input.u8() | 1 << 5) << 24;
            [address, 0, length | 3 << 20 | command, small << 14 | u32::from(input.u8()) << 8]
        }
        6 => [input.u16().into(), 0, small | u32::from(input.u8() & !(1 << 5)) << 24, input.u32()],
        _ => any(input),
    };
    if input.once_in(16) { any(input) } else { dwords }
}

/// A frame, most often to the controller, of a protocol that it knows.
fn frame(input: &mut Input<'_>) -> Vec<u8> {
    let to = input.one_of(&[MAC, MAC, [0xFF; 6], [0x33, 0x33, 0, 0, 0, 1], PEER]);
    let mut frame = [&to[..], &PEER].concat();
    if input.once_in(4) {
        frame.extend([0x81, 0x00, input.u8(), input.u8()]);
    }
    match input.u8() % 4 {
        0 => {
            let protocol = input.one_of(&[6, 17, 132, 1]);
            frame.extend([0x08, 0x00, 0x45, 0, 0, input.u8(), 0, 0, input.u8(), 0, 64, protocol, 0, 0]);
            frame.extend([10, 0, 0, 1, 10, 0, 0, 2]);
        }
        1 => {
            frame.extend([0x86, 0xDD, 0x60, 0, 0, 0, 0, input.u8(), input.one_of(&[6, 17, 0, 44]), 64]);
            frame.extend([0x20; 32]);
        }
        _ => frame.extend(input.u16().to_be_bytes()),
    }
    let count = input.u8() as usize;
    frame.extend(input.bytes(count));
    let bytes = input.one_of(&[60, 64, 300, 1514, 1518, 4000, 9732, 9733, 20, 1]);
    frame.resize(if input.flag() { bytes } else { frame.len() }, 0x5A);
    frame
}
