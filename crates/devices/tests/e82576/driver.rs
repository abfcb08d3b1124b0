//! A driver: the part of one that all tests need.

use etherslot_devices::cable::{End, cable};
use etherslot_devices::e82576::{Config, E82576};
use etherslot_pci::function::{Fault, Function, ResetKind};

pub(crate) use crate::bus::{Random, TestBus, Traced};

pub(crate) const MAC: [u8; 6] = [0x02, 0x00, 0x00, 0xab, 0xcd, 0xef];
pub(crate) const PEER: [u8; 6] = [0x02, 0, 0, 0, 0, 0x01];
pub(crate) const CABLE_FRAMES: usize = 64;

/// Registers, by the names of the datasheet.
pub(crate) mod reg {
    pub(crate) const CTRL: u32 = 0x0;
    pub(crate) const STATUS: u32 = 0x8;
    pub(crate) const EERD: u32 = 0x14;
    pub(crate) const MDIC: u32 = 0x20;
    pub(crate) const RCTL: u32 = 0x100;
    pub(crate) const TCTL: u32 = 0x400;
    pub(crate) const ICR: u32 = 0xc0;
    pub(crate) const ICS: u32 = 0xc8;
    pub(crate) const IMS: u32 = 0xd0;
    pub(crate) const IMC: u32 = 0xd8;
    pub(crate) const IAM: u32 = 0xe0;
    pub(crate) const GPIE: u32 = 0x1514;
    pub(crate) const EICS: u32 = 0x1520;
    pub(crate) const EIMS: u32 = 0x1524;
    pub(crate) const EIMC: u32 = 0x1528;
    pub(crate) const EIAC: u32 = 0x152c;
    pub(crate) const EIAM: u32 = 0x1530;
    pub(crate) const EICR: u32 = 0x1580;
    pub(crate) const EITR: u32 = 0x1680;
    pub(crate) const IVAR: u32 = 0x1700;
    pub(crate) const IVAR_MISC: u32 = 0x1740;
    pub(crate) const RXCSUM: u32 = 0x5000;
    pub(crate) const RLPML: u32 = 0x5004;
    pub(crate) const MTA: u32 = 0x5200;
    pub(crate) const RAL: u32 = 0x5400;
    pub(crate) const VFTA: u32 = 0x5600;
    pub(crate) const MRQC: u32 = 0x5818;
    pub(crate) const SWSM: u32 = 0x5b50;
    pub(crate) const RETA: u32 = 0x5c00;
    pub(crate) const RSSRK: u32 = 0x5c80;
    pub(crate) const ETQF: u32 = 0x5cb0;
    pub(crate) const GPRC: u32 = 0x4074;
    pub(crate) const MPC: u32 = 0x4010;
    pub(crate) const RNBC: u32 = 0x40a0;
    pub(crate) const GPTC: u32 = 0x4080;
    pub(crate) const ROC: u32 = 0x40ac;

    pub(crate) const fn receive(queue: u32, at: u32) -> u32 {
        0xc000 + 0x40 * queue + at
    }

    pub(crate) const fn transmit(queue: u32, at: u32) -> u32 {
        0xe000 + 0x40 * queue + at
    }
}

/// Offsets of a ring's registers.
pub(crate) mod at {
    pub(crate) const BASE: u32 = 0x00;
    pub(crate) const LENGTH: u32 = 0x08;
    pub(crate) const SRRCTL: u32 = 0x0c;
    pub(crate) const HEAD: u32 = 0x10;
    pub(crate) const TAIL: u32 = 0x18;
    pub(crate) const CONTROL: u32 = 0x28;
    pub(crate) const RQDPC: u32 = 0x30;
    pub(crate) const WRITE_BACK: u32 = 0x38;
}

pub(crate) const ENABLE: u32 = 1 << 25;
/// Entries of the rings that [`Driver::ready`] makes, and where they are.
pub(crate) const ENTRIES: u32 = 64;
pub(crate) const BUFFER_BYTES: u64 = 2048;

/// Bits of an advanced data descriptor's command dword.
pub(crate) mod cmd {
    pub(crate) const EOP: u32 = 1 << 24;
    pub(crate) const IFCS: u32 = 1 << 25;
    pub(crate) const RS: u32 = 1 << 27;
    pub(crate) const DATA: u32 = 3 << 20 | 1 << 29;
    pub(crate) const CONTEXT: u32 = 2 << 20 | 1 << 29;
    pub(crate) const VLE: u32 = 1 << 30;
    pub(crate) const TSE: u32 = 1 << 31;
    pub(crate) const WHOLE: u32 = EOP | IFCS | RS | DATA;

    /// MACLEN and IPLEN of a context.
    pub(crate) const fn lengths(mac: u32, ip: u32) -> u32 {
        mac << 9 | ip
    }
}

/// A frame as it was received, with what its last descriptor says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Received {
    pub(crate) bytes: Vec<u8>,
    pub(crate) dwords: [u32; 4],
    pub(crate) descriptors: usize,
}

#[derive(Clone, Copy)]
struct Place {
    tail: u32,
    clean: u32,
}

/// The driver.
pub(crate) struct Driver {
    pub(crate) nic: E82576,
    pub(crate) bus: TestBus,
    pub(crate) peer: End,
    pub(crate) random: Random,
    pub(crate) shuffle: bool,
    transmit: [Place; 16],
    receive: [Place; 16],
}

impl Driver {
    pub(crate) fn new() -> Self {
        let (end, peer) = cable(CABLE_FRAMES);
        let place = Place { tail: 0, clean: 0 };
        Self {
            nic: E82576::new(Config { mac: MAC, cable: end }).unwrap(),
            bus: TestBus::new(),
            peer,
            random: Random(11),
            shuffle: false,
            transmit: [place; 16],
            receive: [place; 16],
        }
    }

    /// A link, MSI-X with vector n for ring n, and ring 0 in both directions.
    pub(crate) fn ready() -> Self {
        let mut driver = Self::new();
        driver.start();
        driver
    }

    pub(crate) fn start(&mut self) {
        self.set(reg::CTRL, 0x241 | 1 << 6);
        self.set(reg::GPIE, 1 << 30 | 1 << 4 | 1);
        for queue in 0..8 {
            let vector = queue | 0x80;
            let both = vector | vector << 8;
            self.set(reg::IVAR + 4 * queue, both | (both + 0x0808) << 16);
        }
        self.set(reg::IVAR_MISC, (0x18 | 0x80) << 8);
        self.set(reg::EIAC, 0x01ff_ffff);
        self.set(reg::EIMS, 0x01ff_ffff);
        self.set(reg::IMS, 1 << 2);
        self.set(reg::TCTL, 1 << 1 | 1 << 3);
        self.set(reg::RXCSUM, 0x2b00);
        self.set(reg::RCTL, 1 << 1 | 1 << 15 | 1 << 26);
        self.transmit_ring(0);
        self.receive_ring(0, BUFFER_BYTES);
        self.run();
    }

    // Registers

    pub(crate) fn get(&mut self, offset: u32) -> u32 {
        let mut data = [0; 4];
        self.nic.bar_read(0, u64::from(offset), &mut data);
        u32::from_le_bytes(data)
    }

    pub(crate) fn set(&mut self, offset: u32, value: u32) {
        self.nic.bar_write(0, u64::from(offset), &value.to_le_bytes());
    }

    // Memory: rings and buffers of queue n are in its own MiB.

    pub(crate) fn transmit_base(queue: u32) -> u64 {
        (u64::from(queue) + 1) << 20
    }

    pub(crate) fn receive_base(queue: u32) -> u64 {
        Self::transmit_base(queue) + 0x2000
    }

    fn transmit_buffer(queue: u32) -> u64 {
        Self::transmit_base(queue) + 0x4000
    }

    pub(crate) fn receive_buffer(queue: u32, index: u32) -> u64 {
        Self::transmit_base(queue) + 0x8_0000 + u64::from(index) * BUFFER_BYTES
    }

    pub(crate) fn store(&mut self, address: u64, data: &[u8]) {
        self.bus.memory[address as usize..address as usize + data.len()].copy_from_slice(data);
    }

    pub(crate) fn dword(&self, address: u64) -> u32 {
        let at = address as usize;
        u32::from_le_bytes(self.bus.memory[at..at + 4].try_into().unwrap())
    }

    // Rings

    pub(crate) fn transmit_ring(&mut self, queue: u32) {
        self.transmit[queue as usize] = Place { tail: 0, clean: 0 };
        let base = Self::transmit_base(queue);
        self.store(base, &[0; 16 * ENTRIES as usize]);
        self.set(reg::transmit(queue, at::BASE), base as u32);
        self.set(reg::transmit(queue, at::LENGTH), ENTRIES * 16);
        self.set(reg::transmit(queue, at::HEAD), 0);
        self.set(reg::transmit(queue, at::TAIL), 0);
        self.set(reg::transmit(queue, at::CONTROL), ENABLE | 1 << 16);
    }

    /// With all of its descriptors but one handed over.
    pub(crate) fn receive_ring(&mut self, queue: u32, buffer_bytes: u64) {
        self.receive_ring_of(queue, 1 << 25 | (buffer_bytes >> 10) as u32, ENTRIES - 1);
    }

    pub(crate) fn receive_ring_of(&mut self, queue: u32, srrctl: u32, filled: u32) {
        self.receive[queue as usize] = Place { tail: 0, clean: 0 };
        self.set(reg::receive(queue, at::CONTROL), 0);
        self.set(reg::receive(queue, at::BASE), Self::receive_base(queue) as u32);
        self.set(reg::receive(queue, at::LENGTH), ENTRIES * 16);
        self.set(reg::receive(queue, at::SRRCTL), srrctl);
        self.set(reg::receive(queue, at::HEAD), 0);
        self.set(reg::receive(queue, at::TAIL), 0);
        self.set(reg::receive(queue, at::CONTROL), ENABLE);
        self.refill(queue, filled);
    }

    /// Hands over so many descriptors more.
    pub(crate) fn refill(&mut self, queue: u32, count: u32) {
        for _ in 0..count {
            let index = self.receive[queue as usize].tail;
            let mut descriptor = [0; 16];
            descriptor[..8].copy_from_slice(&Self::receive_buffer(queue, index).to_le_bytes());
            self.store(Self::receive_base(queue) + u64::from(index) * 16, &descriptor);
            self.receive[queue as usize].tail = (index + 1) % ENTRIES;
        }
        self.set(reg::receive(queue, at::TAIL), self.receive[queue as usize].tail);
    }

    /// The next frame of a ring that is complete; its descriptors are handed over again.
    pub(crate) fn received(&mut self, queue: u32) -> Option<Received> {
        let mut bytes = Vec::new();
        let mut descriptors = 0;
        let mut index = self.receive[queue as usize].clean;
        loop {
            let address = Self::receive_base(queue) + u64::from(index) * 16;
            let dwords = [0, 4, 8, 12].map(|at| self.dword(address + at));
            if dwords[2] & 1 == 0 || descriptors == ENTRIES as usize {
                return None;
            }
            let buffer = Self::receive_buffer(queue, index) as usize;
            bytes.extend_from_slice(&self.bus.memory[buffer..buffer + (dwords[3] & 0xffff) as usize]);
            descriptors += 1;
            index = (index + 1) % ENTRIES;
            if dwords[2] & 2 != 0 {
                self.receive[queue as usize].clean = index;
                self.refill(queue, descriptors as u32);
                return Some(Received { bytes, dwords, descriptors });
            }
        }
    }

    /// Puts a descriptor into a ring; the tail is told by [`Driver::ring`].
    pub(crate) fn put(&mut self, queue: u32, dwords: [u32; 4]) -> u32 {
        let index = self.transmit[queue as usize].tail;
        let bytes: Vec<u8> = dwords.iter().flat_map(|dword| dword.to_le_bytes()).collect();
        self.store(Self::transmit_base(queue) + u64::from(index) * 16, &bytes);
        self.transmit[queue as usize].tail = (index + 1) % ENTRIES;
        index
    }

    pub(crate) fn ring(&mut self, queue: u32) {
        self.set(reg::transmit(queue, at::TAIL), self.transmit[queue as usize].tail);
    }

    /// An advanced data descriptor for data in the buffer of the ring, from `offset` on.
    pub(crate) fn data(&mut self, queue: u32, offset: u64, bytes: usize, command: u32, options: u32) -> u32 {
        let address = Self::transmit_buffer(queue) + offset;
        self.put(queue, [address as u32, (address >> 32) as u32, bytes as u32 | command, options])
    }

    pub(crate) fn store_packet(&mut self, queue: u32, packet: &[u8]) {
        self.store(Self::transmit_buffer(queue), packet);
    }

    /// Sends one packet in one descriptor.
    pub(crate) fn send(&mut self, queue: u32, packet: &[u8], command: u32, options: u32) -> u32 {
        self.store_packet(queue, packet);
        let index = self.data(queue, 0, packet.len(), cmd::WHOLE | command, options);
        self.ring(queue);
        self.run();
        index
    }

    pub(crate) fn is_done(&self, queue: u32, index: u32) -> bool {
        self.dword(Self::transmit_base(queue) + u64::from(index) * 16 + 12) & 1 != 0
    }

    /// All frames at the other end of the cable.
    pub(crate) fn sent(&mut self) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        while let Some(frame) = self.peer.receive() {
            frames.push(frame.to_vec());
            self.peer.done(frame);
        }
        frames
    }

    /// A frame comes, and what it starts happens.
    pub(crate) fn deliver(&mut self, frame: &[u8]) {
        assert!(self.peer.send_copy(frame), "the cable has room");
        self.run();
    }

    // Time

    /// One round of the world: reads come back, the controller works.
    pub(crate) fn step(&mut self) -> bool {
        let mut any = false;
        if !self.bus.hold_reads {
            for _ in 0..self.bus.pending.len() {
                let at =
                    if self.shuffle { self.random.below(self.bus.pending.len() as u64) as usize } else { 0 };
                let Some(read) = self.bus.pending.remove(at) else { break };
                let start = usize::try_from(read.address).unwrap_or(usize::MAX);
                let data = self.bus.memory.get(start..start.saturating_add(read.bytes));
                let result = data.ok_or(Fault::UnsupportedRequest);
                self.nic.read_completed(read.token, read.address, read.bytes, result);
                any = true;
            }
        }
        while self.nic.read_ahead().is_some() {}
        let was_idle = self.nic.is_idle() && self.nic.deadline_ns().is_none();
        let worked = self.nic.poll(&mut self.bus);
        assert!(!(was_idle && worked), "a controller that said it was idle did something");
        any | worked
    }

    pub(crate) fn steps(&mut self, count: usize) {
        for _ in 0..count {
            self.step();
        }
    }

    /// Until nothing happens any more; time passes for interrupts.
    pub(crate) fn run(&mut self) {
        for _ in 0..1_000_000 {
            if self.step() {
                continue;
            }
            match self.nic.deadline_ns() {
                Some(at) if at > self.bus.now_ns => self.bus.now_ns = at,
                _ => return,
            }
        }
        panic!("the controller does not come to rest: {:?}", self.nic);
    }

    /// What a Function Level Reset or a lost host does: reads under way never come back.
    pub(crate) fn function_reset(&mut self, kind: ResetKind) {
        self.bus.pending.clear();
        self.nic.reset(kind);
    }
}

/// A frame to us.
pub(crate) fn frame(to: [u8; 6], ether_type: u16, payload: &[u8]) -> Vec<u8> {
    [&to[..], &PEER, &ether_type.to_be_bytes(), payload].concat()
}

/// Bytes that differ from place to place.
pub(crate) fn pattern(bytes: usize, seed: u64) -> Vec<u8> {
    let mut random = Random(seed.wrapping_mul(77).wrapping_add(3));
    (0..bytes.div_ceil(4)).flat_map(|_| (random.next() as u32).to_le_bytes()).take(bytes).collect()
}

impl Driver {
    pub(crate) fn nic_deadline_ns(&self) -> Option<u64> {
        self.nic.deadline_ns()
    }
}
