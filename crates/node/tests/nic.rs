//! An 82576 at the other end of a session that loses frames: what a driver sends leaves the box, and what comes there reaches the driver, each frame once,
//! in order and as it was, whatever becomes of the frames below.

mod support;

use etherslot_devices::cable::{End, cable};
use etherslot_devices::e82576::{Config as NicConfig, E82576};
use etherslot_node::Interrupts;
use etherslot_session::Config;
use support::{COMMAND, MS, World};

const MAC: [u8; 6] = [0x02, 0, 0, 0xab, 0xcd, 0xef];
const PEER: [u8; 6] = [0x02, 0, 0, 0, 0, 0x01];
/// Where the guest has registers, MSI-X table, rings and buffers.
const BARS: [(u64, u32); 2] = [(0x10, 0xfeb0_0000), (0x1c, 0xfeb2_0000)];
const TRANSMIT_RING: usize = 0x1000;
const RECEIVE_RING: usize = 0x2000;
const TRANSMIT_BUFFERS: usize = 0x1_0000;
const RECEIVE_BUFFERS: usize = 0x4_0000;
const BUFFER_BYTES: usize = 2048;
const ENTRIES: usize = 64;
/// Frames each way at once, and how often.
const BURST: usize = 16;
const BURSTS: usize = 40;

const TRANSMIT: u64 = 0xe000;
const RECEIVE: u64 = 0xc000;
const TAIL: u64 = 0x18;
const GPRC: u64 = 0x4074;
const GPTC: u64 = 0x4080;
const MPC: u64 = 0x4010;

struct Driver {
    world: World,
    peer: End,
    /// Frames that were sent, and that came.
    sent: usize,
    received: usize,
}

/// The frame of a number: no two are the same.
fn frame(to: [u8; 6], number: usize) -> Vec<u8> {
    let length = 46 + number * 97 % 1455;
    let payload = (0..length).map(|at| (at * 31 + number * 7 + number / 37) as u8);
    [&to[..], &PEER, &[0x88, 0xb5]].concat().into_iter().chain(payload).collect()
}

impl Driver {
    fn new(loses_one_of: usize) -> Self {
        let (end, peer) = cable(ENTRIES);
        let nic = E82576::new(NicConfig { mac: MAC, cable: end }).unwrap();
        let world = World::with_device(Box::new(nic), &Config::default(), &Config::default());
        let mut driver = Self { world, peer, sent: 0, received: 0 };
        driver.start();
        driver.world.wire.loses_one_of = loses_one_of;
        driver
    }

    fn start(&mut self) {
        for (place, address) in BARS {
            self.world.config_write(place, &address.to_le_bytes());
        }
        self.world.config_write(COMMAND, &6u16.to_le_bytes());
        self.world.host.set_interrupts(self.world.slot, Interrupts::Msi(1));
        self.world.run(MS);
        // Link up; causes of frames that came and went.
        for (register, value) in
            [(0x0, 0x241), (0xd0, 0x85), (0x400, 0xa), (0x100, 1 << 1 | 1 << 15 | 1 << 26)]
        {
            self.write(register, value);
        }
        (0..ENTRIES).for_each(|index| self.refill(index));
        for (first, base, more) in
            [(TRANSMIT, TRANSMIT_RING, None), (RECEIVE, RECEIVE_RING, Some(1 << 25 | 2))]
        {
            let settings = [(0x00, base as u32), (0x08, 16 * ENTRIES as u32), (0x10, 0), (TAIL, 0)];
            for (register, value) in settings.into_iter().chain(more.map(|value| (0x0c, value))) {
                self.write(first + register, value);
            }
            self.write(first + 0x28, 1 << 25);
        }
        self.write(RECEIVE + TAIL, ENTRIES as u32 - 1);
        self.world.run(MS);
    }

    fn write(&mut self, register: u64, value: u32) {
        while !self.world.host.has_room(self.world.slot) {
            self.world.step();
        }
        let World { host, slot, machine, .. } = &mut self.world;
        let mut read = |address: u64, data: &mut [u8]| {
            let memory = machine.memory.get(address as usize..address as usize + data.len());
            memory.map(|memory| data.copy_from_slice(memory)).is_some()
        };
        host.bar_write(*slot, 0, register, &value.to_le_bytes(), &mut read).unwrap();
    }

    fn read(&mut self, register: u64) -> u32 {
        let world = &mut self.world;
        world.next_access += 1;
        let outcome = world.host.bar_read(world.now_ns, world.slot, world.next_access, 0, register, 4);
        let data = world.answer(outcome, 4);
        u32::from_le_bytes(data.try_into().unwrap())
    }

    fn store(&mut self, at: usize, data: &[u8]) {
        self.world.machine.memory[at..at + data.len()].copy_from_slice(data);
    }

    /// Makes a receive descriptor free.
    fn refill(&mut self, index: usize) {
        let mut descriptor = [0; 16];
        let buffer = RECEIVE_BUFFERS + index * BUFFER_BYTES;
        descriptor[..8].copy_from_slice(&(buffer as u64).to_le_bytes());
        self.store(RECEIVE_RING + 16 * index, &descriptor);
    }

    /// Hands over a burst of frames, with one doorbell.
    fn send(&mut self) {
        for number in self.sent..self.sent + BURST {
            let (frame, index) = (frame(PEER, number), number % ENTRIES);
            let buffer = TRANSMIT_BUFFERS + index * BUFFER_BYTES;
            self.store(buffer, &frame);
            let length = frame.len() as u32;
            let dwords = [buffer as u32, 0, length | 3 << 20 | 0x2b << 24, length << 14];
            self.store(TRANSMIT_RING + 16 * index, &dwords.map(u32::to_le_bytes).concat());
        }
        self.sent += BURST;
        self.write(TRANSMIT + TAIL, (self.sent % ENTRIES) as u32);
    }

    /// Takes what has come, and checks it. How many frames there were.
    fn take(&mut self) -> usize {
        let before = self.received;
        loop {
            let index = self.received % ENTRIES;
            let memory = &self.world.machine.memory;
            let descriptor = &memory[RECEIVE_RING + 16 * index..][..16];
            if descriptor[8] & 1 == 0 {
                break;
            }
            let length = usize::from(u16::from_le_bytes([descriptor[12], descriptor[13]]));
            let came = &memory[RECEIVE_BUFFERS + index * BUFFER_BYTES..][..length];
            assert!(came == frame(MAC, self.received), "frame {}", self.received);
            self.refill(index);
            self.received += 1;
        }
        if self.received != before {
            let tail = (self.received + ENTRIES - 1) % ENTRIES;
            self.write(RECEIVE + TAIL, tail as u32);
        }
        self.received - before
    }
}

#[test]
fn frames_over_a_link_that_loses_frames_leave_and_come_once_in_order_and_as_they_were() {
    for loses_one_of in [0, 31, 7] {
        let mut driver = Driver::new(loses_one_of);
        let mut out = 0;
        for burst in 0..BURSTS {
            driver.send();
            for number in burst * BURST..(burst + 1) * BURST {
                assert!(driver.peer.send_copy(&frame(MAC, number)), "the cable has room");
            }
            let end = (burst + 1) * BURST;
            for _ in 0..2000 {
                driver.world.run(MS / 4);
                driver.take();
                while let Some(sent) = driver.peer.receive() {
                    assert!(*sent == *frame(PEER, out), "frame {out}, one of {loses_one_of} lost");
                    driver.peer.done(sent);
                    out += 1;
                }
                if out == end && driver.received == end {
                    break;
                }
            }
            assert_eq!((out, driver.received), (end, end), "one of {loses_one_of} lost");
        }
        assert!(!driver.world.machine.interrupts.is_empty());
        let frames = (BURSTS * BURST) as u32;
        let counted = [GPTC, GPRC, MPC].map(|register| driver.read(register));
        assert_eq!(counted, [frames, frames, 0], "as the driver would tell them");
    }
}
