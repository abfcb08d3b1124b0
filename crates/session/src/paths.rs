//! The paths of a session: which one the next frames leave on, which ones work.
//!
//! **Spreading.** Frames go, a few at a time, to the path on which they are expected to arrive first: that of the least
//! smoothed round-trip time, which tells the queue on it as well, the more in favour of others the fuller its window is.
//! A path whose window or pacing is exhausted is passed over, so bulk fills all windows and the rates of the paths add
//! up, equal or not; and where no controller bounds the queue, the one with the shorter queue gets more. A path that is
//! much slower than the best is used only while the peer's credit suffices for what the best one carries meanwhile: a
//! frame on a slow path must not become what a receiver with a full window waits for (BLEST, Ferlin et al. 2016).
//!
//! **Loss of a path.** `health` judges. What is on its way on a path that is down is lost at once and leaves again on
//! the others. The last path that is up never goes down.

use crate::before;
use crate::counters::Counters;
use crate::flight::GivenUp;
use crate::health::{Judgement, Seen};
use crate::path::{Echo, Path};
use crate::send::{BURST_FRAMES, Sender};

/// Frames that leave on one of several paths before it is looked again which is the best.
const TURN_FRAMES: usize = 8;
/// A path this many times slower than the best has to be worth it.
const SLOW: u64 = 2;

impl Sender {
    /// Paths that have joined; the first of the row.
    pub(crate) fn used_paths(&self) -> usize {
        self.used_paths
    }

    /// Whether there is more than one path.
    pub(crate) fn is_multiple(&self) -> bool {
        self.used_paths > 1
    }

    pub(crate) fn joined(&self) -> &[Path] {
        &self.paths[..self.used_paths]
    }

    /// The path on which the next frames leave, and how many of them at most. Paths in `tried` can take none now, those
    /// in `owing` owe an acknowledgement, which Data would carry along.
    pub(crate) fn choose(&self, tried: u8, owing: u8) -> Option<(usize, usize)> {
        if !self.is_multiple() {
            return (tried == 0).then_some((0, BURST_FRAMES));
        }
        let all_suspected = !self.joined().iter().any(is_sound);
        let may_be_used = |path: &Path| path.health.is_up() && (all_suspected || is_sound(path));
        let ups = || self.joined().iter().enumerate().filter(|(_, path)| may_be_used(path));
        let best = ups().map(|(_, path)| path).min_by_key(|path| path.recovery.rtt.smoothed_ns())?;
        ups()
            .filter(|&(at, path)| tried & 1 << at == 0 && self.is_worth_it(path, best))
            .min_by_key(|&(at, path)| {
                let cost = self.cost_ns(at, path);
                cost - if owing & 1 << at != 0 { cost / 8 } else { 0 }
            })
            .map(|(at, _)| (at, TURN_FRAMES))
    }

    /// What is expected to pass until a frame that leaves now on the path is acknowledged: a round trip, up to twice that
    /// if its window is full.
    fn cost_ns(&self, at: usize, path: &Path) -> u64 {
        let rtt_ns = path.recovery.rtt.smoothed_ns();
        let window = path.controller.window_bytes().max(1);
        let in_flight = self.flight.bytes(at).min(window);
        rtt_ns + (u128::from(rtt_ns) * u128::from(in_flight) / u128::from(window)) as u64
    }

    /// Whether the credit lasts for what the best path carries until a frame of this one is acknowledged.
    fn is_worth_it(&self, path: &Path, best: &Path) -> bool {
        let (rtt_ns, best_ns) = (path.recovery.rtt.smoothed_ns(), best.recovery.rtt.smoothed_ns().max(1));
        if rtt_ns <= SLOW * best_ns {
            return true;
        }
        let best_frames = best.controller.window_bytes() / self.frame_bytes.max(1);
        let left = if before(self.next, self.credit) { self.credit.wrapping_sub(self.next) } else { 0 };
        u64::from(left) >= best_frames.saturating_mul(rtt_ns / best_ns)
    }

    /// The path of the handshake is up.
    pub(crate) fn begin(&mut self, now_ns: u64) {
        self.paths[0].health.begin(now_ns);
    }

    /// Takes a further path, if there is room for one: it has to answer before anything but questions leaves on it. One
    /// that has been down for `stale_ns` makes room.
    pub(crate) fn join(&mut self, now_ns: u64, stale_ns: Option<u64>) -> Option<usize> {
        let stale =
            |path: &Path| stale_ns.is_some_and(|limit_ns| path.health.down_for_ns(now_ns) >= limit_ns);
        let at = if self.used_paths < self.paths.len() {
            self.used_paths += 1;
            self.used_paths - 1
        } else {
            self.paths.iter().position(stale)?
        };
        if self.used_paths == 2 && at == 1 {
            // Nobody asked the first one while it was alone.
            self.paths[0].health.begin(now_ns);
        }
        self.paths[at].health.join(now_ns);
        Some(at)
    }

    /// Every path is to be asked for a sign of life.
    pub(crate) fn ask_all(&mut self, now_ns: u64) {
        let joined = self.used_paths;
        self.paths[..joined].iter_mut().for_each(|path| path.health.ask(now_ns));
    }

    /// A transmission on a path was answered on it.
    pub(crate) fn on_answer(&mut self, now_ns: u64, at: usize, echo: Echo, counters: &mut Counters) {
        let path = &mut self.paths[at];
        if path.health.on_answer(now_ns, echo.tx_ns) {
            path.begin_anew(now_ns, echo.rtt_ns);
            counters.paths_found += 1;
            self.share_cap();
        }
    }

    fn seen(&self, at: usize) -> Seen {
        let others = self.joined().iter().enumerate();
        let others = others.filter(|&(other, path)| other != at && path.health.is_up());
        let recovery = &self.paths[at].recovery;
        Seen {
            busy_since_ns: (!self.flight.is_empty(at)).then(|| recovery.waits_since_ns()),
            silence_ns: recovery.silence_ns(),
            probe_ns: recovery.probe_ns(),
            other_answered_ns: others.map(|(_, path)| path.health.answered_tx_ns()).max(),
        }
    }

    /// Lets the timers of the paths' health run up to now.
    pub(crate) fn judge_paths(&mut self, now_ns: u64, counters: &mut Counters) {
        for at in 0..self.used_paths {
            let seen = self.seen(at);
            match self.paths[at].health.judge(now_ns, &seen) {
                Judgement::Fine => {}
                Judgement::Compare => {
                    let joined = self.used_paths;
                    let others = self.paths[..joined].iter_mut().filter(|path| path.health.is_up());
                    others.for_each(|path| path.health.ask(now_ns));
                }
                Judgement::Down => self.take_down(now_ns, at, counters),
            }
        }
    }

    /// When [`Sender::judge_paths`] is to be called.
    pub(crate) fn judgement_ns(&self) -> Option<u64> {
        (0..self.used_paths).map(|at| self.paths[at].health.deadline_ns(&self.seen(at))).min()
    }

    /// The Port of a path says that it cannot carry anything; it is down if another path is up.
    pub(crate) fn lose_path(&mut self, now_ns: u64, at: usize, counters: &mut Counters) {
        if self.joined().get(at).is_some_and(|path| path.health.is_up())
            && self.seen(at).other_answered_ns.is_some()
        {
            self.take_down(now_ns, at, counters);
        }
    }

    fn take_down(&mut self, now_ns: u64, at: usize, counters: &mut Counters) {
        counters.paths_lost += 1;
        self.timeouts += 1;
        self.lose_all(at, GivenUp::TimedOut, counters);
        self.paths[at].take_down(now_ns);
        self.share_cap();
    }

    /// Tells the controllers of the receiver's cap, each of its share.
    pub(crate) fn share_cap(&mut self) {
        let ups = self.joined().iter().filter(|path| path.health.is_up()).count().max(1);
        let share = match self.receiver_cap_bytes {
            u64::MAX => u64::MAX,
            bytes => bytes / ups as u64,
        };
        for path in &mut self.paths {
            path.set_cap_bytes(share);
        }
    }
}

fn is_sound(path: &Path) -> bool {
    path.health.is_up() && !path.health.is_suspected()
}
