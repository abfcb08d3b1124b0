//! The NIC, the link with its faults, and the switch's port: when a frame that goes in comes out, if it does.
//!
//! Serialisation is computed, not simulated: what leaves a first-in-first-out queue of known rate is known when it
//! enters. Times within are in ps, so that a byte at 400 Gbit/s (20 ps) is not rounded; what comes out is in ns, rounded up.

use std::collections::VecDeque;

use super::histogram::Histogram;
use crate::random::Random;

/// What a frame takes on the wire besides its bytes: preamble 8, Ethernet header 14, FCS 4, gap 12.
pub(crate) const OVERHEAD_BYTES: u64 = 38;

/// ps that a byte takes at a rate in bits per second.
pub(crate) const fn ps_per_byte(bits_per_s: u64) -> u64 {
    8_000_000_000_000 / bits_per_s
}

const fn ns(ps: u64) -> u64 {
    ps.div_ceil(1000)
}

/// The sending half of a NIC: a ring of few frames that are serialised one after the other.
#[derive(Debug)]
pub(crate) struct Nic {
    ps_per_byte: u64,
    free_ps: u64,
    ring_frames: usize,
    /// When each frame in the ring will have left.
    ring: VecDeque<u64>,
}

impl Nic {
    /// A NIC of this speed. The ring holds half a microsecond of full frames, two frames at least: less would leave
    /// gaps, more would be a queue that no controller sees.
    pub(crate) fn new(bits_per_s: u64, frame_bytes: u64) -> Self {
        let ps_per_byte = ps_per_byte(bits_per_s);
        let frame_ps = (frame_bytes + OVERHEAD_BYTES) * ps_per_byte;
        let ring_frames = (500_000_u64.div_ceil(frame_ps) as usize).max(2);
        Self { ps_per_byte, free_ps: 0, ring_frames, ring: VecDeque::with_capacity(ring_frames) }
    }

    /// Frames that the ring takes now.
    pub(crate) fn room(&mut self, now_ns: u64) -> usize {
        while self.ring.front().is_some_and(|left_ns| *left_ns <= now_ns) {
            self.ring.pop_front();
        }
        self.ring_frames - self.ring.len()
    }

    /// When the ring has room again, if it is full.
    pub(crate) fn room_at_ns(&self) -> Option<u64> {
        self.ring.front().copied().filter(|_| self.ring.len() == self.ring_frames)
    }

    /// Takes a frame, for which there is room; when its last bit has left.
    pub(crate) fn send(&mut self, now_ns: u64, bytes: u64) -> u64 {
        self.free_ps = self.free_ps.max(now_ns * 1000) + (bytes + OVERHEAD_BYTES) * self.ps_per_byte;
        let left_ns = ns(self.free_ps);
        self.ring.push_back(left_ns);
        left_ns
    }
}

/// How frames get lost on a link.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Loss {
    /// None does.
    #[default]
    None,
    /// Each with the same probability, in a million.
    Ppm(u32),
    /// In bursts (Gilbert-Elliott): between a good state and a bad one in which this share, in a million, is lost;
    /// the state changes after each frame with these probabilities, in a million.
    Bursts {
        /// From the good state to the bad one.
        begin_ppm: u32,
        /// From the bad state to the good one.
        end_ppm: u32,
        /// Lost in the bad state.
        loss_ppm: u32,
    },
}

/// What else happens to frames on a link.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Faults {
    /// Loss.
    pub loss: Loss,
    /// Share of frames held back, in a million.
    pub reorder_ppm: u32,
    /// How long they are held back, at most.
    pub reorder_ns: u64,
    /// Share that comes twice, in a million.
    pub duplicate_ppm: u32,
    /// Share with one bit flipped, in a million.
    pub corrupt_ppm: u32,
    /// Delay that comes and goes, 0 to this; frames stay in order.
    pub jitter_ns: u64,
}

/// What becomes of a frame on a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Passage {
    /// When it arrives, if it does.
    pub(crate) at_ns: Option<u64>,
    /// When its duplicate arrives.
    pub(crate) again_ns: Option<u64>,
    /// Number of the bit that is flipped in it.
    pub(crate) flipped: Option<u64>,
}

/// One direction of a link.
#[derive(Debug)]
pub(crate) struct Link {
    delay_ns: u64,
    faults: Faults,
    /// Whether anything of `faults` is set.
    is_faulty: bool,
    is_bad: bool,
    /// Arrival of the last frame that was not held back.
    last_ns: u64,
    random: Random,
    /// Frames lost.
    pub(crate) lost: u64,
}

impl Link {
    /// A link without faults.
    pub(crate) fn new(delay_ns: u64, random: Random) -> Self {
        Self {
            delay_ns,
            faults: Faults::default(),
            is_faulty: false,
            is_bad: false,
            last_ns: 0,
            random,
            lost: 0,
        }
    }

    /// Has faults from now on.
    pub(crate) fn set_faults(&mut self, faults: Faults) {
        self.faults = faults;
        self.is_faulty = faults != Faults::default();
    }

    fn loses(&mut self) -> bool {
        match self.faults.loss {
            Loss::None => false,
            Loss::Ppm(ppm) => self.random.chance(ppm),
            Loss::Bursts { begin_ppm, end_ppm, loss_ppm } => {
                let lost = self.is_bad && self.random.chance(loss_ppm);
                if self.random.chance(if self.is_bad { end_ppm } else { begin_ppm }) {
                    self.is_bad = !self.is_bad;
                }
                lost
            }
        }
    }

    /// A frame of `bytes` whose last bit is put on the link now.
    pub(crate) fn pass(&mut self, now_ns: u64, bytes: u64) -> Passage {
        let mut at_ns = now_ns + self.delay_ns;
        if !self.is_faulty {
            return Passage { at_ns: Some(at_ns), ..Passage::default() };
        }
        if self.loses() {
            self.lost += 1;
            return Passage::default();
        }
        if self.faults.jitter_ns > 0 {
            at_ns += self.random.range(0, self.faults.jitter_ns);
        }
        if self.random.chance(self.faults.reorder_ppm) {
            at_ns = at_ns.max(self.last_ns) + self.random.range(1, self.faults.reorder_ns.max(1));
        } else {
            at_ns = at_ns.max(self.last_ns);
            self.last_ns = at_ns;
        }
        let again_ns = self.random.chance(self.faults.duplicate_ppm).then(|| at_ns + 100);
        let flipped = self.random.chance(self.faults.corrupt_ppm).then(|| self.random.below(bytes * 8));
        Passage { at_ns: Some(at_ns), again_ns, flipped }
    }
}

/// How long the queue of a port was, in time: the work that waits, the frame being sent included.
#[derive(Debug)]
pub(crate) struct Watch {
    from_ns: u64,
    until_ns: u64,
    /// Up to here the queue is accounted for; its work then.
    at_ns: u64,
    work_ns: u64,
    pub(crate) histogram: Histogram,
}

impl Watch {
    /// Watches between two times.
    pub(crate) fn new(from_ns: u64, until_ns: u64) -> Self {
        Self { from_ns, until_ns, at_ns: from_ns, work_ns: 0, histogram: Histogram::default() }
    }

    /// The work goes from what it was to nothing, one ns a ns, up to now; then it is `work_ns`.
    pub(crate) fn note(&mut self, now_ns: u64, work_ns: u64) {
        let now_ns = now_ns.min(self.until_ns);
        if now_ns < self.from_ns {
            self.work_ns = work_ns;
            return;
        }
        let span_ns = now_ns - self.at_ns;
        let left_ns = self.work_ns.saturating_sub(span_ns);
        self.histogram.add_span(left_ns, self.work_ns);
        self.histogram.add(0, span_ns.saturating_sub(self.work_ns));
        self.at_ns = now_ns;
        self.work_ns = work_ns;
    }
}

/// An output queue of the switch.
#[derive(Debug)]
pub(crate) struct Port {
    /// ps a byte, and from when on; in the order of time.
    rates: Vec<(u64, u64)>,
    free_ps: u64,
    /// When each frame will have left, ps, and its bytes.
    queue: VecDeque<(u64, u64)>,
    bytes: u64,
    mark_above_bytes: u64,
    pub(crate) watch: Option<Watch>,
    /// Frames that found no room.
    pub(crate) dropped: u64,
    /// Frames marked.
    pub(crate) marked: u64,
}

impl Port {
    /// A port of this speed, which marks what finds more than `mark_above_bytes` in the queue.
    pub(crate) fn new(bits_per_s: u64, mark_above_bytes: Option<u64>) -> Self {
        Self {
            rates: vec![(0, ps_per_byte(bits_per_s))],
            free_ps: 0,
            queue: VecDeque::new(),
            bytes: 0,
            mark_above_bytes: mark_above_bytes.unwrap_or(u64::MAX),
            watch: None,
            dropped: 0,
            marked: 0,
        }
    }

    /// Changes the speed at a time to come.
    pub(crate) fn change(&mut self, at_ns: u64, bits_per_s: u64) {
        self.rates.push((at_ns * 1000, ps_per_byte(bits_per_s)));
    }

    /// When `bytes` that begin at `ps` have been sent.
    fn finish(&self, mut ps: u64, mut bytes: u64) -> u64 {
        for (index, (_, per_byte)) in self.rates.iter().enumerate() {
            let until = self.rates.get(index + 1).map_or(u64::MAX, |next| next.0);
            if ps >= until {
                continue;
            }
            let fit = (until - ps) / per_byte;
            if fit >= bytes {
                return ps + bytes * per_byte;
            }
            bytes -= fit;
            ps = until;
        }
        ps
    }

    fn drain(&mut self, now_ps: u64) -> u64 {
        let before = self.bytes;
        while let Some((left_ps, bytes)) = self.queue.front() {
            if *left_ps > now_ps {
                break;
            }
            self.bytes -= bytes;
            self.queue.pop_front();
        }
        before - self.bytes
    }
}

/// A switch: a queue an output, one buffer for all.
///
/// A queue takes a frame while it is no longer than what is free of the buffer (dynamic threshold with alpha 1): one queue
/// gets half, two get a third each.
#[derive(Debug)]
pub(crate) struct Switch {
    pub(crate) ports: Vec<Port>,
    buffer_bytes: u64,
    used_bytes: u64,
}

impl Switch {
    /// A switch with this buffer.
    pub(crate) fn new(ports: Vec<Port>, buffer_bytes: u64) -> Self {
        Self { ports, buffer_bytes, used_bytes: 0 }
    }

    /// A frame comes for an output: when its last bit leaves, and whether it is marked; `None` if it is dropped.
    pub(crate) fn take(&mut self, port: usize, now_ns: u64, bytes: u64) -> Option<(u64, bool)> {
        let now_ps = now_ns * 1000;
        let bytes = bytes + OVERHEAD_BYTES;
        self.used_bytes -= self.ports[port].drain(now_ps);
        let fits =
            |switch: &Self| switch.ports[port].bytes + bytes + switch.used_bytes <= switch.buffer_bytes;
        // What has left other ports is looked at only if it matters.
        if !fits(self) {
            self.used_bytes = 0;
            for port in &mut self.ports {
                port.drain(now_ps);
                self.used_bytes += port.bytes;
            }
            if !fits(self) {
                self.ports[port].dropped += 1;
                return None;
            }
        }
        let port = &mut self.ports[port];
        let is_marked = port.bytes > port.mark_above_bytes;
        port.marked += u64::from(is_marked);
        port.free_ps = port.finish(port.free_ps.max(now_ps), bytes);
        port.queue.push_back((port.free_ps, bytes));
        port.bytes += bytes;
        self.used_bytes += bytes;
        if let Some(watch) = &mut port.watch {
            watch.note(now_ns, ns(port.free_ps - now_ps));
        }
        Some((ns(port.free_ps), is_marked))
    }

    /// How much work waits in a port.
    pub(crate) fn work_ns(&self, port: usize, now_ns: u64) -> u64 {
        ns(self.ports[port].free_ps.saturating_sub(now_ns * 1000))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GBIT: u64 = 1_000_000_000;

    #[test]
    fn a_nic_serialises_to_the_nanosecond_and_holds_few_frames() {
        let mut nic = Nic::new(100 * GBIT, 1500);
        // 1462 + 38 bytes at 80 ps.
        assert_eq!(nic.send(1000, 1462), 1120);
        assert_eq!(nic.send(1000, 1462), 1240);
        assert_eq!(nic.room(1119), nic.ring_frames - 2);
        assert_eq!(nic.room(1120), nic.ring_frames - 1);
        let mut nic = Nic::new(GBIT, 1500);
        assert_eq!((nic.room(0), nic.room_at_ns()), (2, None));
        nic.send(0, 1462);
        nic.send(0, 1462);
        assert_eq!((nic.room(0), nic.room_at_ns()), (0, Some(12_000)));
        assert_eq!(nic.room(12_000), 1);
        // 52 bytes at 20 ps are not whole ns; the next frame does not pay for the rounding.
        let mut nic = Nic::new(400 * GBIT, 1500);
        assert_eq!((nic.send(0, 55), nic.send(0, 55), nic.send(0, 55)), (2, 4, 6));
        let mut nic = Nic::new(400 * GBIT, 1500);
        assert_eq!((nic.send(0, 37), nic.send(0, 38)), (2, 4));
    }

    #[test]
    fn a_link_delays_and_loses_its_share() {
        let mut link = Link::new(700, Random::new(1));
        assert_eq!(link.pass(50, 100), Passage { at_ns: Some(750), again_ns: None, flipped: None });
        link.set_faults(Faults { loss: Loss::Ppm(100_000), ..Faults::default() });
        let lost = (0..10_000).filter(|_| link.pass(0, 100).at_ns.is_none()).count();
        assert!((850..1150).contains(&lost), "{lost}");
        link.set_faults(Faults {
            loss: Loss::Bursts { begin_ppm: 2_000, end_ppm: 100_000, loss_ppm: 500_000 },
            ..Faults::default()
        });
        let fates: Vec<bool> = (0..200_000).map(|_| link.pass(0, 100).at_ns.is_none()).collect();
        let lost = fates.iter().filter(|lost| **lost).count();
        let pairs = fates.windows(2).filter(|pair| pair[0] && pair[1]).count();
        assert!((1_400..2_600).contains(&lost), "{lost}");
        assert!(pairs * 3 > lost, "{pairs} of {lost} follow another one");
    }

    #[test]
    fn jitter_keeps_the_order_and_held_frames_break_it() {
        let mut link = Link::new(1000, Random::new(2));
        link.set_faults(Faults { jitter_ns: 500, ..Faults::default() });
        let arrivals: Vec<u64> = (0..1000).filter_map(|at| link.pass(at, 100).at_ns).collect();
        assert!(arrivals.windows(2).all(|pair| pair[0] <= pair[1]));
        assert!(
            arrivals.iter().enumerate().all(|(at, arrival)| { (1000 + at as u64..=2500).contains(arrival) })
        );
        link.set_faults(Faults { reorder_ppm: 100_000, reorder_ns: 300, ..Faults::default() });
        let arrivals: Vec<u64> = (5000..6000).filter_map(|at| link.pass(at, 100).at_ns).collect();
        assert!(arrivals.windows(2).any(|pair| pair[0] > pair[1]));
    }

    #[test]
    fn a_port_sends_one_after_the_other_at_the_rate_of_the_time() {
        let mut port = Port::new(100 * GBIT, None);
        port.change(1060, 25 * GBIT);
        let mut switch = Switch::new(vec![port], 1 << 20);
        // 60 ns are 750 bytes at 100 Gbit/s; the other 750 take four times as long.
        assert_eq!(switch.take(0, 1000, 1462), Some((1300, false)));
        assert_eq!(switch.take(0, 1000, 1462), Some((1780, false)));
        assert_eq!((switch.work_ns(0, 1000), switch.work_ns(0, 2000)), (780, 0));
        assert_eq!(switch.take(0, 2000, 1462), Some((2480, false)));
    }

    #[test]
    fn one_queue_gets_half_of_the_buffer_and_what_has_left_is_free_again() {
        let ports = (0..2).map(|_| Port::new(100 * GBIT, None)).collect();
        let mut switch = Switch::new(ports, 15_000);
        let taken = (0..10).filter(|_| switch.take(0, 0, 1462).is_some()).count();
        assert_eq!((taken, switch.ports[0].dropped), (5, 5));
        // The other queue grows until it is as long as what is left.
        let taken = (0..10).filter(|_| switch.take(1, 0, 1462).is_some()).count();
        assert_eq!(taken, 3);
        let taken = (0..10).filter(|_| switch.take(1, 600, 1462).is_some()).count();
        assert_eq!(taken, 5);
    }

    #[test]
    fn what_finds_a_long_queue_is_marked() {
        let mut switch = Switch::new(vec![Port::new(100 * GBIT, Some(3000))], 1 << 20);
        let marks: Vec<bool> = (0..5).filter_map(|_| switch.take(0, 0, 1462)).map(|taken| taken.1).collect();
        assert_eq!(marks, [false, false, false, true, true]);
    }

    #[test]
    fn the_watch_weighs_the_queue_by_time() {
        let mut watch = Watch::new(0, 1000);
        watch.note(0, 100);
        watch.note(50, 250);
        watch.note(600, 400);
        watch.note(2000, 0);
        // 100 down to 50, 250 down to 0, 300 of nothing, 400 down to 0.
        assert_eq!(watch.histogram.total(), 1000);
        assert_eq!(watch.histogram.most(), 400);
        assert_eq!(watch.histogram.percentile(0.3), 0);
    }
}
