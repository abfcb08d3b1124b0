//! When a frame is lost: RACK-TLP (RFC 8985), with tail-loss probes and a retransmission timeout, path by path.
//!
//! A frame is lost if one sent later on the same path has arrived and a reordering window has passed. The window starts at a quarter of
//! the least RTT and grows with every loss that turns out to be none. If the tail of a burst is lost nothing later
//! can arrive, so after about 2 SRTT without news a probe goes out, twice at most; if these get no answer either, the
//! timeout takes everything as lost.

use crate::config::{Config, Detection, Mode};
use crate::flight::Flight;
use crate::rtt::Rtt;

/// Tail-loss probes before only the timeout is left.
const MAX_PROBES: u32 = 2;
/// The reordering window is at most this many quarters of the least RTT (and 2 SRTT).
const MAX_REORDER_QUARTERS: u32 = 64;
/// Losses in a row that were none of the reordering's for the window to shrink again (RFC 8985, 6.2 step 4).
const REORDER_PERSISTS: u32 = 16;

/// What has run out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expired {
    /// Nothing.
    Nothing,
    /// A probe is due.
    Probe,
    /// Everything on its way is lost.
    Timeout,
}

/// Loss detection of one path.
#[derive(Debug)]
pub(crate) struct Recovery {
    pub(crate) rtt: Rtt,
    path: usize,
    mode: Mode,
    has_probes: bool,
    ack_delay_ns: u64,
    probe_min_ns: u64,
    rto_min_ns: u64,
    rto_max_ns: u64,
    /// The newest transmission known to have arrived: when it left, and how long ago that was when it became known.
    newest_tx_ns: u64,
    newest_rtt_ns: u64,
    reorder_quarters: u32,
    losses_since_spurious: u32,
    /// When the oldest transmission counts as lost, if it has been passed by a later one.
    reorder_deadline_ns: Option<u64>,
    /// When something was acknowledged last, or began to wait for it.
    waits_since_ns: u64,
    timeout_from_ns: u64,
    probe_from_ns: u64,
    probes: u32,
    timeouts: u32,
}

impl Recovery {
    pub(crate) fn new(config: &Config, path: usize, now_ns: u64) -> Self {
        Self {
            rtt: Rtt::new(),
            path,
            mode: config.mode,
            has_probes: config.detection == Detection::Rack,
            ack_delay_ns: config.ack_delay_ns,
            probe_min_ns: config.probe_min_ns,
            rto_min_ns: config.rto_min_ns,
            rto_max_ns: config.dead_after_ns / 8,
            newest_tx_ns: 0,
            newest_rtt_ns: 0,
            reorder_quarters: 1,
            losses_since_spurious: 0,
            reorder_deadline_ns: None,
            waits_since_ns: now_ns,
            timeout_from_ns: now_ns,
            probe_from_ns: now_ns,
            probes: 0,
            timeouts: 0,
        }
    }

    /// The mode agreed with the peer.
    pub(crate) fn set_mode(&mut self, mode: Mode) {
        self.mode = mode;
    }

    /// A frame has left; `begins` if nothing that left on this path before is waited for, `none_on_way` if all that was
    /// had been taken as lost.
    pub(crate) fn on_sent(&mut self, now_ns: u64, begins: bool, none_on_way: bool) {
        self.probe_from_ns = now_ns;
        // A retransmission that had to wait for its turn has all of its time before it.
        if none_on_way && now_ns >= self.timeout_from_ns + self.timeout_ns() {
            self.timeout_from_ns = now_ns;
        }
        if begins {
            self.restart(now_ns);
        }
    }

    /// Whether a timeout has taken all as lost, and nothing has been acknowledged since.
    pub(crate) fn has_timed_out(&self) -> bool {
        self.timeouts > 0
    }

    /// Something was acknowledged.
    pub(crate) fn on_progress(&mut self, now_ns: u64) {
        self.restart(now_ns);
    }

    /// What was on its way is no longer waited for, and the path may be another one when it is used again.
    pub(crate) fn reset(&mut self, now_ns: u64) {
        self.restart(now_ns);
        self.rtt.forget();
        self.reorder_quarters = 1;
        self.reorder_deadline_ns = None;
    }

    /// When something was acknowledged last, or began to wait for it.
    pub(crate) fn waits_since_ns(&self) -> u64 {
        self.waits_since_ns
    }

    fn restart(&mut self, now_ns: u64) {
        self.waits_since_ns = now_ns;
        self.timeout_from_ns = now_ns;
        self.probe_from_ns = now_ns;
        self.probes = 0;
        self.timeouts = 0;
    }

    /// A transmission is known to have arrived.
    pub(crate) fn on_arrival(&mut self, now_ns: u64, tx_ns: u64) {
        if tx_ns > self.newest_tx_ns {
            self.newest_tx_ns = tx_ns;
            self.newest_rtt_ns = now_ns.saturating_sub(tx_ns);
        }
    }

    /// A frame taken as lost because later ones had arrived was only late.
    pub(crate) fn on_spurious(&mut self) {
        self.reorder_quarters = (self.reorder_quarters + 1).min(MAX_REORDER_QUARTERS);
        self.losses_since_spurious = 0;
    }

    fn reorder_window_ns(&self) -> u64 {
        (self.rtt.min_ns() / 4 * u64::from(self.reorder_quarters)).min(2 * self.rtt.smoothed_ns())
    }

    /// The next frame that is lost by now, if any; the caller takes it out of flight and asks again.
    pub(crate) fn lost(&mut self, now_ns: u64, flight: &Flight) -> Option<u32> {
        self.reorder_deadline_ns = None;
        if self.mode == Mode::Classic {
            return None;
        }
        let oldest = flight.oldest(self.path)?;
        if oldest.tx_ns >= self.newest_tx_ns {
            return None;
        }
        let lost_at = oldest.tx_ns + self.newest_rtt_ns + self.reorder_window_ns();
        if lost_at > now_ns {
            self.reorder_deadline_ns = Some(lost_at);
            return None;
        }
        self.losses_since_spurious += 1;
        if self.losses_since_spurious >= REORDER_PERSISTS * self.reorder_quarters {
            self.losses_since_spurious = 0;
            self.reorder_quarters = (self.reorder_quarters - 1).max(1);
        }
        Some(oldest.sequence)
    }

    /// After how long without news a tail-loss probe leaves.
    pub(crate) fn probe_ns(&self) -> u64 {
        (2 * self.rtt.smoothed_ns()).max(self.probe_min_ns) + self.ack_delay_ns
    }

    /// After how long without news of a path it is time to wonder: the timeout of RFC 6298 without a floor for peers that
    /// are not running.
    pub(crate) fn silence_ns(&self) -> u64 {
        let smoothed_ns = self.rtt.smoothed_ns();
        let usual_ns = smoothed_ns + (4 * self.rtt.variation_ns()).max(smoothed_ns / 4);
        usual_ns.max(self.probe_min_ns) + self.ack_delay_ns
    }

    /// The retransmission timeout. RTTVAR of a steady path goes to nothing, so the floor is one of the margin.
    pub(crate) fn timeout_ns(&self) -> u64 {
        let base = self.rtt.smoothed_ns() + (4 * self.rtt.variation_ns()).max(self.rto_min_ns);
        base.saturating_mul(1 << self.timeouts.min(20)).min(self.rto_max_ns)
    }

    fn probe_deadline_ns(&self) -> Option<u64> {
        let spacing = self.probe_ns() << self.probes;
        (self.has_probes && self.probes < MAX_PROBES && self.timeouts == 0)
            .then(|| self.probe_from_ns + spacing)
    }

    /// The next time at which [`Recovery::expire`] has something to say. Timers run while a frame is on its way.
    pub(crate) fn deadline_ns(&self, flight: &Flight) -> Option<u64> {
        if flight.is_empty(self.path) {
            return None;
        }
        let timeout = self.timeout_from_ns + self.timeout_ns();
        let earliest = timeout.min(self.probe_deadline_ns().unwrap_or(u64::MAX));
        Some(earliest.min(self.reorder_deadline_ns.unwrap_or(u64::MAX)))
    }

    /// Lets the timers run up to now. Frames lost by reordering are found by [`Recovery::lost`].
    pub(crate) fn expire(&mut self, now_ns: u64, flight: &Flight) -> Expired {
        if flight.is_empty(self.path) {
            return Expired::Nothing;
        }
        if now_ns >= self.timeout_from_ns + self.timeout_ns() {
            self.timeouts += 1;
            self.timeout_from_ns = now_ns;
            return Expired::Timeout;
        }
        if self.probe_deadline_ns().is_some_and(|deadline| now_ns >= deadline) {
            self.probes += 1;
            self.probe_from_ns = now_ns;
            return Expired::Probe;
        }
        Expired::Nothing
    }
}
