//! One path of a session: a Port of ours and an address of the peer that it reaches.
//!
//! What is measured is measured path by path: round-trip time, what was lost, how much may be on its way and how fast
//! it leaves. Sequences, credit and what is acknowledged are the session's, and any path may tell of them.

use etherslot_wire::frame;

use crate::config::Config;
use crate::controller::{Acked, Controller, Limits};
use crate::health::Health;
use crate::recovery::Recovery;
use crate::rtt::WayBack;

/// Times of one burst are a few ns apart, and so may be this far ahead of the clock.
const AHEAD_NS: u32 = 1 << 16;
/// The most paths of a session.
pub const MAX_PATHS: usize = 4;

/// Names a path of a session: the first, on which it was greeted, or one of those that joined it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathId(u8);

impl PathId {
    /// The path of the handshake.
    pub const FIRST: Self = Self(0);

    pub(crate) const fn new(index: usize) -> Self {
        Self(index as u8)
    }

    /// Its place in the row of paths: below [`MAX_PATHS`].
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// What there is to tell of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathReport {
    /// Which one.
    pub id: PathId,
    /// Whether it answers.
    pub is_up: bool,
    /// Smoothed round-trip time.
    pub srtt_ns: u64,
    /// The least round-trip time of the last seconds.
    pub rtt_min_ns: u64,
    /// The window, bytes.
    pub window_bytes: u64,
    /// Bytes on their way.
    pub in_flight_bytes: u64,
    /// Data frames that left on it, retransmissions among them.
    pub data_frames_sent: u64,
}

/// When pacing lets the next frame out: a time, and what was lost of it by rounding down, in bytes times ns per s.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    pub(crate) at_ns: u64,
    carry: u64,
}

/// What an echo says.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_field_names, reason = "the unit ends a name")]
pub(crate) struct Echo {
    /// When the transmission left.
    pub(crate) tx_ns: u64,
    /// The round-trip time, unless the echo was taken before.
    pub(crate) rtt_ns: Option<u64>,
    /// What of it the way back took beyond its least.
    back_ns: u64,
}

/// The sending half of a path.
#[derive(Debug)]
pub(crate) struct Path {
    pub(crate) recovery: Recovery,
    pub(crate) health: Health,
    pub(crate) controller: Box<dyn Controller>,
    pub(crate) pace: Pace,
    pacing_burst_ns: u64,
    pub(crate) is_probe_due: bool,
    /// The window, and not the lack of data, held transmission back.
    pub(crate) is_window_limited: bool,
    /// Pacing held it back.
    pub(crate) is_pace_limited: bool,
    /// Timestamp of the last echo that was taken for a sample.
    echoed_ts_ns: Option<u32>,
    way_back: WayBack,
    /// Bytes acknowledged that the controller has not been told of: the news came on another path, and with the next
    /// news on this one it gets a round-trip time to them.
    untold_bytes: u64,
    cap_bytes: u64,
    /// Data frames that left.
    frames: u64,
}

impl Path {
    pub(crate) fn new(config: &Config, limits: &Limits, index: usize, now_ns: u64) -> Self {
        Self {
            recovery: Recovery::new(config, index, now_ns),
            health: Health::new(config, now_ns),
            controller: (config.controller)(limits),
            pace: Pace { at_ns: now_ns, carry: 0 },
            pacing_burst_ns: config.pacing_burst_ns,
            is_probe_due: false,
            is_window_limited: false,
            is_pace_limited: false,
            echoed_ts_ns: None,
            way_back: WayBack::new(),
            untold_bytes: 0,
            cap_bytes: u64::MAX,
            frames: 0,
        }
    }

    /// When pacing lets out the frame after one of `bytes` that leaves now.
    pub(crate) fn paced(&self, pace: Pace, now_ns: u64, bytes: u32) -> Pace {
        let Some(rate) = self.controller.pacing_rate() else { return Pace { at_ns: now_ns, carry: 0 } };
        let rate = rate.max(1);
        let cost = pace.carry + u64::from(bytes) * 1_000_000_000;
        let from_ns = pace.at_ns.max(now_ns.saturating_sub(self.pacing_burst_ns));
        Pace { at_ns: from_ns.saturating_add(cost / rate), carry: cost % rate }
    }

    /// A frame of `bytes` leaves.
    pub(crate) fn on_sent(&mut self, now_ns: u64, bytes: u32, in_flight_bytes: u64) {
        self.is_probe_due = false;
        self.frames += 1;
        self.controller.on_sent(now_ns, u64::from(bytes), in_flight_bytes);
        self.pace = self.paced(self.pace, now_ns, bytes);
    }

    /// Takes the echo of one of our transmissions on this path: when that left, and the round-trip time if the echo is
    /// not an old one repeated. `tx_ts_ns` is when the frame with the echo left, by the peer's clock.
    pub(crate) fn on_echo(&mut self, now_ns: u64, echo: frame::Echo, tx_ts_ns: u32) -> Option<Echo> {
        let ago_ns = (now_ns as u32).wrapping_sub(echo.ts_ns);
        let ahead_ns = echo.ts_ns.wrapping_sub(now_ns as u32);
        let (tx_ns, ago_ns) = if ahead_ns < AHEAD_NS {
            (now_ns + u64::from(ahead_ns), 0)
        } else {
            (now_ns.checked_sub(u64::from(ago_ns))?, ago_ns)
        };
        let rtt_ns = match echo.hold_ns.checked_sub(ago_ns) {
            None => u64::from(ago_ns - echo.hold_ns),
            Some(0..AHEAD_NS) => 0,
            Some(_) => return None,
        };
        let is_new = self.echoed_ts_ns.replace(echo.ts_ns) != Some(echo.ts_ns);
        if is_new {
            self.recovery.rtt.sample(now_ns, rtt_ns);
        }
        let back_ns = self.way_back.sample(now_ns, (now_ns as u32).wrapping_sub(tx_ts_ns));
        Some(Echo { tx_ns, rtt_ns: is_new.then_some(rtt_ns), back_ns })
    }

    /// The bound on what may be on its way on this path.
    pub(crate) fn set_cap_bytes(&mut self, bytes: u64) {
        if bytes != self.cap_bytes {
            self.cap_bytes = bytes;
            self.controller.set_receiver_cap_bytes(bytes);
        }
    }

    /// The path is down; all that was on its way has been taken as lost.
    pub(crate) fn take_down(&mut self, now_ns: u64) {
        self.health.take_down(now_ns);
        self.recovery.reset(now_ns);
        self.controller.on_rto(now_ns);
        self.is_probe_due = false;
        self.is_window_limited = false;
        self.is_pace_limited = false;
        self.untold_bytes = 0;
    }

    /// The path is up, for the first time or again.
    pub(crate) fn begin_anew(&mut self, now_ns: u64, rtt_ns: Option<u64>) {
        self.recovery.reset(now_ns);
        if let Some(rtt_ns) = rtt_ns {
            self.recovery.rtt.sample(now_ns, rtt_ns);
        }
        self.pace = Pace { at_ns: now_ns, carry: 0 };
    }

    /// What there is to tell of it.
    pub(crate) fn report(&self, index: usize, in_flight_bytes: u64) -> PathReport {
        PathReport {
            id: PathId::new(index),
            is_up: self.health.is_up(),
            srtt_ns: self.recovery.rtt.smoothed_ns(),
            rtt_min_ns: self.recovery.rtt.min_ns(),
            window_bytes: self.controller.window_bytes(),
            in_flight_bytes,
            data_frames_sent: self.frames,
        }
    }

    /// Frames of this path were acknowledged, by whatever path the news came.
    pub(crate) fn on_progress(&mut self, now_ns: u64, bytes: u64) {
        self.recovery.on_progress(now_ns);
        if bytes > 0 {
            self.health.on_arrival();
            self.untold_bytes += bytes;
        }
    }

    /// An acknowledgement came on this path: its controller learns what there is to learn.
    pub(crate) fn tell_controller(
        &mut self,
        now_ns: u64,
        echo: Option<Echo>,
        congested: bool,
        in_flight_bytes: u64,
    ) {
        if self.untold_bytes == 0 {
            return;
        }
        self.controller.on_ack(&Acked {
            now_ns,
            bytes: std::mem::take(&mut self.untold_bytes),
            rtt_ns: echo.and_then(|echo| echo.rtt_ns),
            back_ns: echo.map_or(0, |echo| echo.back_ns),
            tx_ns: echo.map(|echo| echo.tx_ns),
            srtt_ns: self.recovery.rtt.smoothed_ns(),
            min_rtt_ns: self.recovery.rtt.min_ns(),
            in_flight_bytes,
            window_limited: self.is_window_limited || self.is_pace_limited,
            congested,
        });
    }
}
