//! When the receiving half acknowledges, and which timestamp it echoes.
//!
//! Every second frame, at once when something is out of the ordinary, otherwise after a short while; data that leaves
//! carries the acknowledgement along. A frame that only acknowledges is never acknowledged, unless it asks.

use etherslot_wire::frame;

use crate::config::Config;

/// Data that comes after a pause of this many delays is acknowledged at once: its sender has just begun and learns the
/// path from it.
const PAUSE_DELAYS: u64 = 20;

/// The receiving half's debt.
#[derive(Debug)]
pub(crate) struct Acknowledger {
    every_frames: u32,
    delay_ns: u64,
    frames: u32,
    at_once: bool,
    deadline_ns: Option<u64>,
    last_data_ns: u64,
    /// A frame came that a switch had marked, and the peer has not been told.
    congested: bool,
    /// Timestamp and time of arrival of the newest frame to echo.
    echo: Option<(u32, u64)>,
}

impl Acknowledger {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            every_frames: u32::from(config.ack_every_frames),
            delay_ns: config.ack_delay_ns,
            frames: 0,
            at_once: false,
            deadline_ns: None,
            last_data_ns: 0,
            congested: false,
            echo: None,
        }
    }

    /// A frame has come whose timestamp the peer wants to see again.
    pub(crate) fn note_echo(&mut self, now_ns: u64, tx_ts_ns: u32) {
        self.echo = Some((tx_ts_ns, now_ns));
    }

    /// An ordinary Data frame has come.
    pub(crate) fn on_data(&mut self, now_ns: u64) {
        let after_pause = now_ns.saturating_sub(self.last_data_ns) > self.delay_ns * PAUSE_DELAYS;
        self.last_data_ns = now_ns;
        self.frames += 1;
        if self.frames >= self.every_frames || after_pause {
            self.at_once = true;
        } else if self.deadline_ns.is_none() {
            self.deadline_ns = Some(now_ns + self.delay_ns);
        }
    }

    /// Something out of the ordinary has come.
    pub(crate) fn at_once(&mut self) {
        self.at_once = true;
    }

    /// A frame has come that a switch had marked.
    pub(crate) fn on_marked(&mut self) {
        self.congested = true;
        self.at_once = true;
    }

    /// Whether the peer is to be told of marks.
    pub(crate) fn is_congested(&self) -> bool {
        self.congested
    }

    /// Whether an acknowledgement has to leave now.
    pub(crate) fn is_due(&self, now_ns: u64) -> bool {
        self.at_once || self.deadline_ns.is_some_and(|deadline| now_ns >= deadline)
    }

    /// Whether one has to leave some time.
    pub(crate) fn is_owed(&self) -> bool {
        self.at_once || self.deadline_ns.is_some()
    }

    /// When it has to leave.
    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        if self.at_once { Some(0) } else { self.deadline_ns }
    }

    /// An acknowledgement has left.
    pub(crate) fn on_sent(&mut self) {
        self.frames = 0;
        self.at_once = false;
        self.congested = false;
        self.deadline_ns = None;
    }

    /// The echo for a frame that leaves now. One that is too old for its fields is left out.
    pub(crate) fn echo(&self, now_ns: u64) -> Option<frame::Echo> {
        let (ts_ns, arrival_ns) = self.echo?;
        let hold_ns = u32::try_from(now_ns.saturating_sub(arrival_ns)).ok()?;
        (hold_ns < 1 << 31).then_some(frame::Echo { ts_ns, hold_ns })
    }
}
