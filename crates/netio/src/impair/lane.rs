//! One direction of an impaired Port: what is drawn for each frame, and the frames held back.

use std::collections::VecDeque;

use super::config::Impairment;
use crate::{Address, BURST_FRAMES, Port};

/// The longest a frame is set aside for others to pass it.
const ASIDE_NS: u64 = 1_000_000;
/// The most frames that pass one that is set aside.
const ASIDE_FRAMES: u64 = 8;

/// What was done to frames in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Frames that came to the impairment.
    pub frames: u64,
    /// Lost on purpose.
    pub lost: u64,
    /// Sent twice.
    pub duplicated: u64,
    /// Set aside for others to pass.
    pub reordered: u64,
    /// With a bit flipped.
    pub corrupted: u64,
    /// Lost because the pool was full.
    pub overflowed: u64,
}

/// What happens to one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fate {
    /// 0: lost.
    copies: u8,
    /// The bit to flip, in the order of the wire.
    flip: Option<u64>,
    /// Frames that pass it; 0: none.
    passed_by: u64,
    delay_ns: u64,
}

impl Fate {
    /// Whether the frame goes on as it came, as far as it alone is concerned.
    pub(super) fn is_plain(&self) -> bool {
        *self == Self { copies: 1, flip: None, passed_by: 0, delay_ns: 0 }
    }
}

/// A frame held back.
struct Held {
    peer: Address,
    bytes: Vec<u8>,
    release_ns: u64,
}

/// A frame that waits to be passed.
struct Aside {
    held: Held,
    passed_by: u64,
}

pub(super) struct Lane {
    impairment: Option<Impairment>,
    random: Random,
    /// In the order of release, whose times never fall.
    line: VecDeque<Held>,
    aside: Vec<Aside>,
    free: Vec<Vec<u8>>,
    last_release_ns: u64,
    pub(super) faults: Faults,
}

impl Lane {
    /// A lane; without an impairment it only says so. `number` keeps lanes of one seed apart.
    pub(super) fn new(impairment: Option<Impairment>, number: u64, max_frame_bytes: usize) -> Self {
        let pool_frames = impairment.map_or(0, |impairment| impairment.pool_frames);
        Self {
            random: Random(
                impairment.map_or(0, |impairment| impairment.seed).wrapping_mul(2).wrapping_add(number),
            ),
            impairment,
            line: VecDeque::with_capacity(pool_frames),
            aside: Vec::with_capacity(pool_frames),
            free: (0..pool_frames).map(|_| Vec::with_capacity(max_frame_bytes)).collect(),
            last_release_ns: 0,
            faults: Faults::default(),
        }
    }

    pub(super) fn is_active(&self) -> bool {
        self.impairment.is_some()
    }

    /// Decides about the next frame. Draws as often whatever comes out, so that one probability does not shift the draws of others.
    pub(super) fn draw(&mut self, frame_bytes: usize) -> Fate {
        let Some(impairment) = &self.impairment else {
            return Fate { copies: 1, flip: None, passed_by: 0, delay_ns: 0 };
        };
        let random = &mut self.random;
        let lost = random.chance(impairment.loss);
        let duplicated = random.chance(impairment.duplicate);
        let reordered = random.chance(impairment.reorder);
        let corrupted = random.chance(impairment.corrupt);
        let bit = random.between(0, (frame_bytes as u64 * 8).saturating_sub(1));
        let passed_by = random.between(1, ASIDE_FRAMES);
        let delay_ns = random.between(impairment.delay_ns.0, impairment.delay_ns.1);
        Fate {
            copies: if lost { 0 } else { 1 + u8::from(duplicated) },
            flip: (corrupted && frame_bytes > 0).then_some(bit),
            passed_by: if reordered { passed_by } else { 0 },
            delay_ns,
        }
    }

    /// Whether a plain frame may go on now without passing another.
    pub(super) fn is_clear(&self) -> bool {
        self.line.is_empty() && self.aside.is_empty()
    }

    /// Whether any fate of one more frame fits the pool.
    pub(super) fn has_room(&self) -> bool {
        self.free.len() >= 2
    }

    /// Takes a frame whose fate is not plain, or that may not go on at once. There must be room.
    pub(super) fn hold(&mut self, now_ns: u64, peer: &Address, frame: &[u8], fate: &Fate) {
        self.faults.frames += 1;
        if fate.copies == 0 {
            self.faults.lost += 1;
            return;
        }
        self.faults.duplicated += u64::from(fate.copies > 1);
        self.faults.corrupted += u64::from(fate.flip.is_some());
        self.faults.reordered += u64::from(fate.passed_by > 0);
        for copy in 0..fate.copies {
            let Some(mut bytes) = self.free.pop() else {
                self.faults.overflowed += 1;
                return;
            };
            bytes.clear();
            bytes.extend_from_slice(frame);
            // The second copy, if there is one, is the faithful and punctual one.
            if copy == 0
                && let Some(bit) = fate.flip
                && let Some(byte) = bytes.get_mut((bit / 8) as usize)
            {
                *byte ^= 0x80 >> (bit % 8);
            }
            let release_ns = now_ns.saturating_add(fate.delay_ns);
            let held = Held { peer: *peer, bytes, release_ns };
            if copy == 0 && fate.passed_by > 0 {
                let held = Held { release_ns: release_ns.saturating_add(ASIDE_NS), ..held };
                self.aside.push(Aside { held, passed_by: fate.passed_by });
            } else {
                self.line_up(held);
                self.pass();
            }
        }
    }

    fn line_up(&mut self, mut held: Held) {
        held.release_ns = held.release_ns.max(self.last_release_ns);
        self.last_release_ns = held.release_ns;
        self.line.push_back(held);
    }

    /// One frame has passed those that are aside; the ones that all have passed line up behind it.
    fn pass(&mut self) {
        let mut index = 0;
        while let Some(aside) = self.aside.get_mut(index) {
            aside.passed_by -= 1;
            if aside.passed_by == 0 {
                let mut held = self.aside.remove(index).held;
                held.release_ns = self.last_release_ns;
                self.line_up(held);
            } else {
                index += 1;
            }
        }
    }

    /// Lines up the frames that were aside for as long as may be.
    pub(super) fn expire(&mut self, now_ns: u64) {
        let mut index = 0;
        while let Some(aside) = self.aside.get(index) {
            if aside.held.release_ns <= now_ns {
                let held = self.aside.remove(index).held;
                self.line_up(held);
            } else {
                index += 1;
            }
        }
    }

    /// When a frame is to be released.
    pub(super) fn next_ns(&self) -> Option<u64> {
        let aside = self.aside.iter().map(|aside| aside.held.release_ns);
        aside.chain(self.line.front().map(|held| held.release_ns)).min()
    }

    /// Hands over the frames whose time has come; returns how many.
    pub(super) fn release(&mut self, now_ns: u64, handle: &mut dyn FnMut(&Address, &[u8])) -> usize {
        let mut released = 0;
        while let Some(held) = self.line.pop_front_if(|held| held.release_ns <= now_ns) {
            handle(&held.peer, &held.bytes);
            self.free.push(held.bytes);
            released += 1;
        }
        released
    }

    /// Sends the frames whose time has come, as far as the Port takes them.
    pub(super) fn drain(&mut self, now_ns: u64, port: &mut dyn Port) {
        while let Some(peer) = self.line.front().map(|held| held.peer) {
            let mut burst: [&[u8]; BURST_FRAMES] = [&[]; BURST_FRAMES];
            let due = self.line.iter().take_while(|held| held.release_ns <= now_ns && held.peer == peer);
            let mut count = 0;
            for (slot, held) in burst.iter_mut().zip(due) {
                *slot = &held.bytes;
                count += 1;
            }
            let taken = port.send(&peer, &burst[..count]);
            self.free.extend(self.line.drain(..taken).map(|held| held.bytes));
            if taken == 0 || taken < count {
                return;
            }
        }
    }
}

/// `SplitMix64` (Steele, Lea, Flood: "Fast splittable pseudorandom number generators"): a seed means the same faults for ever,
/// which no library promises of its generators.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    fn chance(&mut self, probability: f64) -> bool {
        const ALL: f64 = 4_294_967_296.0;
        f64::from((self.next() >> 32) as u32) < probability * ALL
    }

    fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.next() % (most - least).saturating_add(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_numbers_are_those_of_the_published_generator() {
        let mut random = Random(1234567);
        let drawn: [u64; 3] = std::array::from_fn(|_| random.next());
        assert_eq!(drawn, [6457827717110365317, 3203168211198807973, 9817491932198370423]);
    }

    #[test]
    fn certainty_is_certain() {
        let mut random = Random(1);
        assert!((0..1000).all(|_| random.chance(1.0) && !random.chance(0.0)));
    }
}
