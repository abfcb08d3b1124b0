//! The receive side (82576 datasheet, 7.1): from the cable past the filters to a ring, into its buffers, and back to its descriptors.
//!
//! One frame at a time is on its way to memory, in the order in which they came; the others wait in the cable, which is the packet
//! buffer. A frame whose ring has no descriptors waits as well, and is counted (RNBC), or is dropped if the ring wants that (`SRRCTL.Drop_En`).

use super::bits::{DESCRIPTOR_BYTES, ctrl, mrqc, rctl, register, rxcsum, srrctl};
use super::checksum;
use super::filter::{self, Passed};
use super::interrupts::{Interrupts, QUEUES};
use super::packet::{Check, Packet};
use super::registers::Registers;
use super::ring::Ring;
use super::statistics::{Statistics, counter};
use super::transmit::vlan_ether_type;
use crate::cable::{End, Frame};
use etherslot_pci::function::Bus;
use std::collections::VecDeque;

/// What a frame has on a wire at least, without FCS. An interface of this machine may give less.
const MIN_BYTES: usize = 60;
const ETHERNET_BYTES: usize = 14;
const TYPE_AT: usize = 12;
const TAG_BYTES: usize = 4;
/// Frames that are taken in before others have their turn.
const TURN_FRAMES: usize = 64;

/// Status and errors of a descriptor (7.1.5.2).
mod status {
    pub(super) const DD: u32 = 1 << 0;
    pub(super) const EOP: u32 = 1 << 1;
    pub(super) const VP: u32 = 1 << 3;
    pub(super) const UDPCS: u32 = 1 << 4;
    pub(super) const L4I: u32 = 1 << 5;
    pub(super) const IPCS: u32 = 1 << 6;
    pub(super) const PIF: u32 = 1 << 7;
    pub(super) const L4E: u32 = 1 << 29;
    pub(super) const IPE: u32 = 1 << 30;
}

/// SRRCTL.DESCTYPE: 0 is legacy; the others are advanced.
const LEGACY: u32 = 0;

/// ETQF (8.10.16): filter enabled, a queue chosen.
const ETQF_ENABLED: u32 = 1 << 26;
const ETQF_QUEUE: u32 = 1 << 31;

/// What reception needs of the rest of the controller.
pub(crate) struct Outside<'a> {
    pub(crate) registers: &'a Registers,
    pub(crate) statistics: &'a mut Statistics,
    pub(crate) interrupts: &'a mut Interrupts,
    pub(crate) cable: &'a End,
    pub(crate) is_looped: bool,
}

/// The frame that is on its way to memory.
#[derive(Debug)]
struct Incoming {
    frame: Frame,
    is_looped: bool,
    queue: usize,
    /// Status and errors, without DD and EOP.
    status: u32,
    kind: u32,
    rss: Option<(u32, u32)>,
    /// The checksum over the packet, in the place of the hash if RXCSUM.PCSD is not set.
    sum: u16,
    vlan: u16,
    /// Bytes in memory, and how many of them in earlier buffers.
    done: usize,
    part_start: usize,
    is_counted: bool,
}

/// The receive side.
#[derive(Debug)]
pub(crate) struct Receiver {
    current: Option<Incoming>,
    /// Frames that were sent and come back.
    pub(crate) looped: VecDeque<Frame>,
}

impl Receiver {
    pub(crate) fn new(frames: usize) -> Self {
        Self { current: None, looped: VecDeque::with_capacity(frames) }
    }

    /// All frames are lost that are here, and those that wait.
    pub(crate) fn stop(&mut self, cable: &End) {
        if let Some(current) = self.current.take() {
            give_back(current.frame, current.is_looped, cable);
        }
        for frame in self.looped.drain(..) {
            cable.unused(frame);
        }
        while let Some(frame) = cable.receive() {
            cable.done(frame);
        }
    }

    /// Goes on as far as there are frames, descriptors and room on the bus.
    pub(crate) fn run(
        &mut self,
        rings: &mut [Ring; QUEUES],
        bus: &mut dyn Bus,
        outside: &mut Outside<'_>,
    ) -> bool {
        let mut any = false;
        for _ in 0..TURN_FRAMES {
            if self.current.is_none() {
                let Some((frame, is_looped)) = self.next(outside) else { break };
                any = true;
                self.current = admit(frame, is_looped, outside);
            }
            let Some(current) = &mut self.current else { continue };
            let ring = &mut rings[current.queue];
            match current.advance(ring, bus, outside) {
                Step::Waits(progress) => {
                    any |= progress;
                    break;
                }
                Step::Over => {}
            }
            any = true;
            if let Some(current) = self.current.take() {
                give_back(current.frame, current.is_looped, outside.cable);
            }
        }
        any
    }

    fn next(&mut self, outside: &Outside<'_>) -> Option<(Frame, bool)> {
        if let Some(frame) = self.looped.pop_front() {
            return Some((frame, true));
        }
        // Who hears himself hears no one else.
        let frame = outside.cable.receive()?;
        if outside.is_looped {
            outside.cable.done(frame);
            return None;
        }
        Some((frame, false))
    }
}

fn give_back(frame: Frame, is_looped: bool, cable: &End) {
    if is_looped { cable.unused(frame) } else { cable.done(frame) }
}

/// Lets a frame in, if it is for us.
fn admit(mut frame: Frame, is_looped: bool, outside: &mut Outside<'_>) -> Option<Incoming> {
    let registers = outside.registers;
    outside.statistics.seen(frame.len());
    if frame.len() < ETHERNET_BYTES {
        outside.statistics.add(counter::RUC, 1);
        give_back(frame, is_looped, outside.cable);
        return None;
    }
    if frame.len() < MIN_BYTES {
        let missing = MIN_BYTES - frame.len();
        frame.push(&[0; MIN_BYTES][..missing]);
    }
    let ether_type = |frame: &[u8], at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    let is_tagged = ether_type(&frame, TYPE_AT) == vlan_ether_type(registers);
    let tag = is_tagged.then(|| ether_type(&frame, TYPE_AT + 2));
    let Some(passed) = filter::pass(registers, outside.statistics, &frame, tag) else {
        outside.statistics.total.filtered += 1;
        give_back(frame, is_looped, outside.cable);
        return None;
    };
    outside.statistics.received(&frame);
    let mut status = if passed == Passed::Inexact { status::PIF } else { 0 };
    let mut type_at = if is_tagged { TYPE_AT + TAG_BYTES } else { TYPE_AT };
    let mut vlan = 0;
    if let Some(tag) = tag.filter(|_| registers.get(register::CTRL) & ctrl::VME != 0) {
        frame.remove(TYPE_AT, TAG_BYTES);
        (vlan, type_at) = (tag, TYPE_AT);
        status |= status::VP;
    }
    let packet = Packet::new(&frame, type_at);
    let control = registers.get(register::RXCSUM);
    status |= checked(&packet, control);
    let hashed = registers.get(register::MRQC);
    let uses_rss = hashed & mrqc::MODE == mrqc::RSS;
    let rss = if uses_rss { packet.hash(hashed, &key(registers)) } else { None };
    let sum = if control & rxcsum::PCSD == 0 {
        let from = frame.get((control & rxcsum::PCSS) as usize..).unwrap_or(&[]);
        checksum::fold(checksum::add(0, from))
    } else {
        0
    };
    let queue = queue_of_type(registers, ether_type(&frame, type_at))
        .or_else(|| rss.map(|(_, hash)| queue_of_hash(registers, hash)))
        .unwrap_or((hashed >> mrqc::DEFAULT_QUEUE_SHIFT & 7) as usize);
    let kind = packet.kind;
    if registers.get(register::RCTL) & rctl::SECRC == 0 {
        let fcs = checksum::ethernet(&frame).to_le_bytes();
        frame.push(&fcs);
    }
    Some(Incoming {
        frame,
        is_looped,
        queue,
        status,
        kind,
        rss,
        sum,
        vlan,
        done: 0,
        part_start: 0,
        is_counted: false,
    })
}

/// What RXCSUM wants to have checked, as status and errors.
fn checked(packet: &Packet<'_>, control: u32) -> u32 {
    let mut status = 0;
    if control & rxcsum::IPOFLD != 0 {
        status |= match packet.check_ip() {
            Check::Not => 0,
            Check::Good => status::IPCS,
            Check::Bad => status::IPCS | status::IPE,
        };
    }
    let offload = if packet.is_sctp() { rxcsum::CRCOFL } else { rxcsum::TUOFLD };
    if control & offload != 0 {
        let done = status::L4I | if packet.is_udp() { status::UDPCS } else { 0 };
        status |= match packet.check_transport() {
            Check::Not => 0,
            Check::Good => done,
            Check::Bad => done | status::L4E,
        };
    }
    status
}

/// The key of RSS, its first octet lowest in the first register (8.10.23).
fn key(registers: &Registers) -> [u8; 40] {
    let mut key = [0; 40];
    for (at, octets) in (0..).zip(key.chunks_exact_mut(4)) {
        octets.copy_from_slice(&registers.get(register::RSSRK + 4 * at).to_le_bytes());
    }
    key
}

/// The redirection table: 128 entries of a byte (8.10.22).
fn queue_of_hash(registers: &Registers, hash: u32) -> usize {
    let entry = hash & 0x7f;
    (registers.get(register::RETA + (entry & !3)) >> (8 * (entry & 3)) & 15) as usize
}

/// The EtherType filters.
fn queue_of_type(registers: &Registers, ether_type: u16) -> Option<usize> {
    let filters = (0..8).map(|at| registers.get(register::ETQF + 4 * at));
    let mut found = filters.filter(|filter| {
        filter & ETQF_ENABLED != 0 && filter & ETQF_QUEUE != 0 && *filter as u16 == ether_type
    });
    found.next().map(|filter| (filter >> 16 & 7) as usize)
}

/// Bytes of a buffer of this ring (8.10.2): SRRCTL in KiB, or RCTL.
fn buffer_bytes(ring: &Ring, registers: &Registers) -> usize {
    match (ring.srrctl & srrctl::BSIZEPACKET) as usize {
        0 => 2048 >> (registers.get(register::RCTL) >> rctl::BSIZE_SHIFT & 3),
        kib => kib << 10,
    }
}

enum Step {
    /// For room, or descriptors; whether something was done.
    Waits(bool),
    /// It is in memory, or dropped.
    Over,
}

impl Incoming {
    fn advance(&mut self, ring: &mut Ring, bus: &mut dyn Bus, outside: &mut Outside<'_>) -> Step {
        let mut any = false;
        while self.done < self.frame.len() || self.part_start < self.done {
            if !ring.is_usable() {
                outside.statistics.total.missed += 1;
                return Step::Over;
            }
            let Some(descriptor) = ring.first() else {
                if ring.has_more() {
                    return Step::Waits(any);
                }
                if ring.srrctl & srrctl::DROP_EN != 0 && self.part_start == 0 {
                    ring.dropped = ring.dropped.saturating_add(1);
                    outside.statistics.total.missed += 1;
                    return Step::Over;
                }
                if !std::mem::replace(&mut self.is_counted, true) {
                    outside.statistics.add(counter::RNBC, 1);
                }
                return Step::Waits(any);
            };
            let end = self.frame.len().min(self.part_start + buffer_bytes(ring, outside.registers));
            while self.done < end {
                let address = descriptor.address().wrapping_add((self.done - self.part_start) as u64);
                let written = bus.write(address, &self.frame[self.done..end]);
                if written == 0 {
                    return Step::Waits(any);
                }
                self.done += written;
                any = true;
            }
            let is_last = end == self.frame.len();
            let bytes = self.write_back(ring, is_last, &descriptor.bytes);
            if bus.write(ring.address(descriptor.index), &bytes) == 0 {
                return Step::Waits(any);
            }
            any = true;
            ring.take();
            ring.complete(descriptor.index);
            self.part_start = self.done;
        }
        outside.interrupts.received(self.queue);
        Step::Over
    }

    /// The descriptor as it goes back (7.1.4.1, 7.1.5.2).
    fn write_back(
        &self,
        ring: &Ring,
        is_last: bool,
        descriptor: &[u8; DESCRIPTOR_BYTES],
    ) -> [u8; DESCRIPTOR_BYTES] {
        let bytes = (self.done - self.part_start) as u32;
        let done = status::DD | if is_last { status::EOP } else { 0 };
        let status = self.status | done;
        let mut out = *descriptor;
        let mut put = |at: usize, dword: u32| out[4 * at..4 * at + 4].copy_from_slice(&dword.to_le_bytes());
        if ring.srrctl >> srrctl::DESCTYPE_SHIFT & 7 == LEGACY {
            put(2, bytes | u32::from(self.sum) << 16);
            // Errors: TCP or UDP checksum, IP checksum.
            put(3, status & 0xff | (status >> 29 & 3) << 13 | u32::from(self.vlan) << 16);
        } else {
            let (rss, hash) = self.rss.unwrap_or((0, u32::from(self.sum) << 16));
            put(0, rss | self.kind << 4);
            put(1, hash);
            put(2, status);
            put(3, bytes | u32::from(self.vlan) << 16);
        }
        out
    }
}
