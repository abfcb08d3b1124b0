//! Somebody on the network who sees all frames and sends his own, with anybody's address and a valid check.

use std::collections::VecDeque;

use etherslot_node::seal::is_protected;
use etherslot_wire::frame::{Ack, CHECK_BYTES, Echo, Header, Kind, Sack, put_check};
use etherslot_wire::handshake::is_handshake;

use crate::network::{Address, Hop};
use crate::random::Random;

const REMEMBERED: usize = 64;
/// Frames that he sends in a run.
const MOST_FRAMES: u32 = 3000;

/// The attacker.
pub(crate) struct Attacker {
    random: Random,
    seen: VecDeque<(Address, Address, Vec<u8>)>,
    nodes: u64,
    left: u32,
    pace_ns: u64,
}

impl Attacker {
    /// An attacker of `nodes` nodes.
    pub(crate) fn new(mut random: Random, nodes: usize) -> Self {
        let pace_ns = random.magnitude(10_000, 1_000_000);
        Self { random, seen: VecDeque::new(), nodes: nodes as u64, left: MOST_FRAMES, pace_ns }
    }

    /// He sees a frame.
    pub(crate) fn sees(&mut self, hop: &Hop) {
        if self.seen.len() == REMEMBERED {
            self.seen.pop_front();
        }
        self.seen.push_back((hop.from, hop.to, hop.frame.clone()));
    }

    /// His next frame, and how long after the last one.
    pub(crate) fn strike(&mut self) -> Option<(u64, Hop)> {
        self.left = self.left.checked_sub(1)?;
        let pause_ns = self.random.magnitude(self.pace_ns / 10 + 1, self.pace_ns * 4);
        let random = &mut self.random;
        let known = self.seen.len() as u64;
        let chosen = if known == 0 { None } else { self.seen.get(random.below(known) as usize) };
        let (mut from, mut to, frame) = chosen.cloned().unwrap_or_else(|| {
            let noise = (0..random.magnitude(1, 1400)).map(|_| random.bits() as u8).collect();
            (Address(random.below(self.nodes) as u8), Address(random.below(self.nodes) as u8), noise)
        });
        if random.percent(10) {
            from = Address(random.below(self.nodes) as u8);
            to = Address(random.below(self.nodes) as u8);
        }
        let frame = if random.percent(15) { frame } else { forge(random, &frame).unwrap_or(frame) };
        Some((pause_ns, Hop { at_ns: 0, from, to, frame }))
    }
}

/// A protected frame with some bits turned, cut, or with the end of something else.
fn garble(random: &mut Random, frame: &[u8]) -> Option<Vec<u8>> {
    let mut frame = frame.to_vec();
    for _ in 0..random.magnitude(1, 8) {
        let at = random.below(frame.len() as u64) as usize;
        match random.below(10) {
            0 => frame.truncate(at.max(1)),
            1 => frame[at..].reverse(),
            // The packet number: what is sealed under the next one.
            2 | 3 => *frame.get_mut(23)? = frame.get(23)?.wrapping_add(random.below(64) as u8),
            _ => frame[at] ^= 1 << random.below(8),
        }
    }
    Some(frame)
}

/// A number near `value`, or any.
fn near(random: &mut Random, value: u64) -> u64 {
    match random.below(4) {
        0 => random.bits(),
        1 => value.wrapping_add(random.below(300)),
        2 => value.wrapping_sub(random.below(300)),
        _ => value,
    }
}

/// A frame like `frame` with other fields, and with the check that belongs to it.
fn forge(random: &mut Random, frame: &[u8]) -> Option<Vec<u8>> {
    if is_protected(frame) && (is_handshake(frame) || random.percent(50)) {
        return garble(random, frame);
    }
    let sealed = Header::parse_sealed(frame).map(|(header, body, _)| (header, body));
    let (mut header, body) = sealed.or_else(|_| Header::parse(frame)).ok()?;
    let mut body = body.to_vec();
    for _ in 0..random.magnitude(1, 4) {
        match random.below(10) {
            0 => header.sequence = near(random, u64::from(header.sequence)) as u32,
            1 => header.packet_number = near(random, header.packet_number.wrapping_add(100)),
            2 => {
                let known = header.ack.map_or(0, |ack| ack.next);
                let next = near(random, u64::from(known)) as u32;
                let credit = near(random, u64::from(next) + 64) as u32;
                let receiver_cap_bytes = if random.percent(50) { u32::MAX } else { random.bits() as u32 };
                header.ack = Some(Ack { next, credit, receiver_cap_bytes });
            }
            3 => {
                let base = near(random, u64::from(header.ack.map_or(0, |ack| ack.next))) as u32;
                let bitmap = std::array::from_fn(|_| random.bits() as u8);
                header.sack = Some(Sack { base, bitmap });
            }
            4 => header.echo = Some(Echo { ts_ns: random.bits() as u32, hold_ns: random.bits() as u32 }),
            5 if random.percent(20) => {
                header.kind = random.pick(&[Kind::Hello, Kind::HelloAck, Kind::Data, Kind::Ack, Kind::Close]);
            }
            6 if random.percent(20) => {
                header.dst_epoch = random.pick(&[0, header.src_epoch, header.dst_epoch ^ 1]);
            }
            // Records and TLPs: mostly their headers.
            _ if !body.is_empty() => {
                let span = if random.percent(70) { body.len().min(40) } else { body.len() };
                let at = random.below(span as u64) as usize;
                body[at] =
                    if random.percent(70) { body[at] ^ 1 << random.below(8) } else { random.bits() as u8 };
            }
            _ => header.tx_ts_ns = random.bits() as u32,
        }
    }
    // Fresh enough not to be dropped as a replay.
    if random.percent(70) {
        header.packet_number = header.packet_number.wrapping_add(random.range(1, 200));
    }
    header.body_len = body.len() as u16;
    let mut forged = vec![0; header.len() + body.len() + CHECK_BYTES];
    let head = header.emit(&mut forged)?;
    forged[head..head + body.len()].copy_from_slice(&body);
    put_check(&mut forged, crc32c::crc32c)?;
    Some(forged)
}
