//! What goes wrong on a cable.

use crate::random::Random;

/// Losses that come in bursts: the two states of Gilbert and Elliott. The bad one ends by time: if it ended by the number
/// of frames, it would last the longer the less is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Burst {
    /// From good to bad, per frame, in a million.
    pub(crate) begins_ppm: u32,
    /// How long the bad state lasts at most, ns.
    pub(crate) lasts_ns: u64,
    /// Lost in the bad state, in a million.
    pub(crate) loss_ppm: u32,
}

/// The kinds of faults and how often they happen to a frame, in a million.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults {
    /// Lost, each frame by itself.
    pub(crate) loss_ppm: u32,
    /// Lost in bursts.
    pub(crate) burst: Option<Burst>,
    /// Arrives twice or three times.
    pub(crate) duplicate_ppm: u32,
    /// Arrives late, behind others.
    pub(crate) reorder_ppm: u32,
    /// How late at most, ns.
    pub(crate) reorder_ns: u64,
    /// Bits flip.
    pub(crate) corrupt_ppm: u32,
    /// Corrupted frames arrive. Otherwise the Ethernet's FCS finds them, and they are lost.
    pub(crate) deliver_corrupt: bool,
    /// A frame, or a mixture of its bytes with random ones, arrives again much later.
    pub(crate) replay_ppm: u32,
    /// How much later at most, ns.
    pub(crate) replay_ns: u64,
}

/// What becomes of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It does not arrive.
    Lost,
    /// It arrives, once at least.
    Carried,
}

/// One direction of a cable.
pub(crate) struct Lane {
    faults: Faults,
    random: Random,
    bad_until_ns: u64,
    /// In-order frames arrive no earlier than this.
    last_ns: u64,
    slow_by_ns: u64,
    slow_until_ns: u64,
}

impl Lane {
    /// A lane with these faults.
    pub(crate) fn new(faults: Faults, random: Random) -> Self {
        Self { faults, random, bad_until_ns: 0, last_ns: 0, slow_by_ns: 0, slow_until_ns: 0 }
    }

    /// No faults any more.
    pub(crate) fn heal(&mut self) {
        self.faults = Faults::default();
        self.bad_until_ns = 0;
        self.slow_until_ns = 0;
    }

    /// Frames take longer until that time.
    pub(crate) fn slow_down(&mut self, by_ns: u64, until_ns: u64) {
        self.slow_by_ns = by_ns;
        self.slow_until_ns = until_ns;
    }

    fn fate(&mut self, at_ns: u64) -> Fate {
        let Faults { loss_ppm, burst, .. } = self.faults;
        if let Some(burst) = burst {
            if self.random.chance(burst.begins_ppm) {
                self.bad_until_ns = at_ns + self.random.magnitude(1_000, burst.lasts_ns);
            }
            if at_ns < self.bad_until_ns && self.random.chance(burst.loss_ppm) {
                return Fate::Lost;
            }
        }
        if self.random.chance(loss_ppm) { Fate::Lost } else { Fate::Carried }
    }

    /// Carries a frame that would arrive at `at_ns`; calls `arrive` for each copy of it that does, and returns how many
    /// were lost (0 or 1).
    pub(crate) fn carry(
        &mut self,
        at_ns: u64,
        jitter_ns: u64,
        frame: &[u8],
        arrive: &mut dyn FnMut(u64, Vec<u8>),
    ) -> u64 {
        if self.fate(at_ns) == Fate::Lost {
            return 1;
        }
        let mut at_ns = at_ns + self.random.below(jitter_ns + 1);
        if at_ns < self.slow_until_ns {
            at_ns += self.slow_by_ns;
        }
        at_ns = at_ns.max(self.last_ns);
        self.last_ns = at_ns;
        if self.random.chance(self.faults.reorder_ppm) {
            at_ns += self.random.magnitude(100, self.faults.reorder_ns.max(100));
        }
        let mut frame = frame.to_vec();
        if self.random.chance(self.faults.replay_ppm) {
            let mut copy = frame.clone();
            if self.random.percent(50) {
                self.damage(&mut copy);
            }
            arrive(at_ns + self.random.magnitude(1_000, self.faults.replay_ns.max(1_000)), copy);
        }
        if self.random.chance(self.faults.corrupt_ppm) {
            if !self.faults.deliver_corrupt {
                return 1;
            }
            self.damage(&mut frame);
        }
        if self.random.chance(self.faults.duplicate_ppm) {
            for _ in 0..self.random.range(1, 2) {
                arrive(at_ns + self.random.magnitude(1, 1_000_000), frame.clone());
            }
        }
        arrive(at_ns, frame);
        0
    }

    /// Flips bits, writes over bytes, or cuts off the end.
    fn damage(&mut self, frame: &mut Vec<u8>) {
        for _ in 0..self.random.magnitude(1, 16) {
            let at = self.random.below(frame.len() as u64) as usize;
            // Half of the damage hits the headers, where it does most.
            let at = if self.random.percent(50) { at.min(self.random.below(96) as usize) } else { at };
            if let Some(byte) = frame.get_mut(at) {
                *byte = if self.random.percent(75) {
                    *byte ^ 1 << self.random.below(8)
                } else {
                    self.random.bits() as u8
                };
            }
        }
        if self.random.percent(5) {
            frame.truncate(self.random.below(frame.len() as u64 + 1) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrivals(faults: Faults, frames: u64) -> (u64, Vec<(u64, Vec<u8>)>) {
        let mut lane = Lane::new(faults, Random::new(3));
        let mut arrived = Vec::new();
        let lost = (0..frames)
            .map(|index| {
                lane.carry(index * 1000, 300, &[index as u8; 64], &mut |at_ns, frame| {
                    arrived.push((at_ns, frame));
                })
            })
            .sum();
        (lost, arrived)
    }

    #[test]
    fn without_faults_all_arrive_once_and_in_order() {
        let (lost, arrived) = arrivals(Faults::default(), 200);
        assert_eq!((lost, arrived.len()), (0, 200));
        assert!(arrived.is_sorted_by_key(|(at_ns, _)| *at_ns));
    }

    #[test]
    fn losses_come_at_their_rate_alone_and_in_bursts() {
        let (lost, arrived) = arrivals(Faults { loss_ppm: 250_000, ..Faults::default() }, 4000);
        assert_eq!(lost as usize + arrived.len(), 4000);
        assert!((800..1200).contains(&lost), "{lost}");
        let burst = Burst { begins_ppm: 20_000, lasts_ns: 16_000, loss_ppm: 1_000_000 };
        let (lost, _) = arrivals(Faults { burst: Some(burst), ..Faults::default() }, 4000);
        assert!((350..1000).contains(&lost), "{lost}");
    }

    #[test]
    fn damage_is_found_by_the_fcs_unless_it_is_to_be_delivered() {
        let faults = Faults { corrupt_ppm: 1_000_000, ..Faults::default() };
        assert_eq!(arrivals(faults.clone(), 50).0, 50);
        let (lost, arrived) = arrivals(Faults { deliver_corrupt: true, ..faults }, 50);
        assert_eq!((lost, arrived.len()), (0, 50));
        assert!(arrived.iter().enumerate().any(|(index, (_, frame))| frame[..] != [index as u8; 64]));
    }
}
