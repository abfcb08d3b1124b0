//! When to poll on and when to sleep, and what wakes the daemon.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{Timespec, epoll};

use crate::polling::Polling;

/// Sleeps on file descriptors after a time of polling in vain.
#[derive(Debug)]
pub(crate) struct Sleeper {
    epoll: OwnedFd,
    /// How long to poll; by what [`Polling`] has seen if not given.
    busy_poll_ns: Option<u64>,
    polling: Polling,
    /// Something has to be polled, and can't wake the daemon.
    naps: bool,
    last_progress_ns: u64,
    /// Rounds of polling.
    rounds: u32,
    /// When the descriptors were looked at last.
    looked_ns: u64,
    control_woke: bool,
}

/// What an event is of: the control socket, or anything else, which is looked at in every round anyway.
const OTHER: u64 = 0;
const CONTROL: u64 = 1;

/// Descriptors are looked at this often even if there is always something to do.
const LOOK_NS: u64 = 10_000_000;
/// Who is to poll for this long is meant to poll without end, and lets others run once in so many rounds.
const SPARE_NS: u64 = 1_000_000;
const YIELD_ROUNDS: u32 = 64;

/// Sleeps are cut to this, so that nothing that failed to wake the daemon delays it for ever.
const LONGEST_SLEEP_NS: u64 = 100_000_000;
/// Where a link can't wake the daemon, it naps for a quarter of the time for which there has been nothing to do, at least and at
/// most this long: what comes soon waits little, and idle times take some percent of a core.
const NAP_NS: (u64, u64) = (4_000, 50_000);

impl Sleeper {
    /// A sleeper that polls for `busy_poll` after the last progress; without it, as long as that pays.
    pub(crate) fn new(busy_poll: Option<Duration>) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Self {
            epoll,
            busy_poll_ns: busy_poll.map(|time| time.as_nanos() as u64),
            polling: Polling::default(),
            naps: false,
            last_progress_ns: 0,
            rounds: 0,
            looked_ns: 0,
            control_woke: false,
        })
    }

    /// Something has to be polled: only naps from now on.
    pub(crate) fn nap(&mut self) {
        self.naps = true;
        // The kernel would stretch a nap to twice its length; if it won't do otherwise, so be it.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1_000));
    }

    /// Wakes when `fd` is readable.
    pub(crate) fn watch(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, fd, epoll::EventData::new_u64(OTHER), epoll::EventFlags::IN)?)
    }

    /// The same for the control socket, which is looked at in a round only if it is what woke the daemon.
    pub(crate) fn watch_control(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, fd, epoll::EventData::new_u64(CONTROL), epoll::EventFlags::IN)?)
    }

    /// Whether the control socket has woken the daemon since the last call.
    pub(crate) fn take_control_wake(&mut self) -> bool {
        std::mem::take(&mut self.control_woke)
    }

    /// Called after each round of the loop: returns at once if there was progress, or not long ago; otherwise, unless
    /// `before_sleep` says that there is work after all, sleeps until a watched descriptor is readable or what `deadline_ns` says
    /// has come.
    pub(crate) fn rest(
        &mut self,
        now_ns: u64,
        progress: bool,
        deadline_ns: impl FnOnce() -> Option<u64>,
        before_sleep: impl FnOnce() -> bool,
    ) -> io::Result<()> {
        let goes_on = match self.busy_poll_ns {
            None => self.polling.goes_on(now_ns, progress),
            Some(busy_poll_ns) => progress || now_ns.saturating_sub(self.last_progress_ns) < busy_poll_ns,
        };
        if progress {
            self.last_progress_ns = now_ns;
        }
        if progress || goes_on {
            // Who never sleeps hears of the control socket all the same.
            if now_ns.saturating_sub(self.looked_ns) >= LOOK_NS {
                return self.wait(now_ns, 0);
            }
            if goes_on && !progress {
                self.let_others_run();
            }
            return Ok(());
        }
        let left_ns = deadline_ns().map_or(u64::MAX, |at| at.saturating_sub(now_ns));
        let idle_ns = now_ns.saturating_sub(self.last_progress_ns);
        let sleep_ns = left_ns.min(if self.naps { nap_ns(idle_ns) } else { LONGEST_SLEEP_NS });
        if sleep_ns == 0 || !before_sleep() {
            return Ok(());
        }
        self.wait(now_ns, sleep_ns)
    }

    /// Polling for a long time is for who has a processor to spare.
    fn let_others_run(&mut self) {
        self.rounds = self.rounds.wrapping_add(1);
        let is_spare = self.busy_poll_ns.is_some_and(|time_ns| time_ns >= SPARE_NS);
        if is_spare && !self.rounds.is_multiple_of(YIELD_ROUNDS) {
            std::hint::spin_loop();
        } else {
            std::thread::yield_now();
        }
    }

    fn wait(&mut self, now_ns: u64, sleep_ns: u64) -> io::Result<()> {
        self.looked_ns = now_ns;
        let timeout = Timespec {
            tv_sec: (sleep_ns / 1_000_000_000).cast_signed(),
            tv_nsec: (sleep_ns % 1_000_000_000).cast_signed(),
        };
        let mut events =
            [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }; 8];
        match epoll::wait(self.epoll.as_fd(), &mut events, Some(&timeout)) {
            Ok(count) => {
                self.control_woke |= events[..count].iter().any(|event| event.data.u64() == CONTROL);
                Ok(())
            }
            Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// How long to nap when there has been nothing to do for `idle_ns`.
fn nap_ns(idle_ns: u64) -> u64 {
    (idle_ns / 4).clamp(NAP_NS.0, NAP_NS.1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::time::Instant;

    /// Whether it sleeps, of several times: a machine that has other things to do may take as long once.
    fn always_sleeps(mut rest: impl FnMut()) -> bool {
        (0..10).all(|_| {
            let started = Instant::now();
            rest();
            started.elapsed() >= Duration::from_nanos(LONGEST_SLEEP_NS)
        })
    }

    #[test]
    fn sleeps_until_the_deadline_and_wakes_for_a_descriptor() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let mut sleeper = Sleeper::new(Some(Duration::ZERO)).unwrap();
        sleeper.watch(reader.as_fd()).unwrap();
        let started = Instant::now();
        sleeper.rest(1_000, false, || Some(1_000 + 5_000_000), || true).unwrap();
        assert!(started.elapsed() >= Duration::from_millis(5));
        writer.write_all(b"x").unwrap();
        assert!(!always_sleeps(|| sleeper.rest(1_000, false, || None, || true).unwrap()));
    }

    #[test]
    fn does_not_sleep_when_frames_came_in_the_last_moment() {
        let mut sleeper = Sleeper::new(Some(Duration::ZERO)).unwrap();
        assert!(!always_sleeps(|| sleeper.rest(1_000, false, || None, || false).unwrap()));
        assert!(always_sleeps(|| sleeper.rest(1_000, false, || None, || true).unwrap()));
    }

    #[test]
    fn naps_are_short_at_first_and_never_long() {
        assert_eq!(nap_ns(0), 4_000);
        assert_eq!(nap_ns(100_000), 25_000);
        assert_eq!(nap_ns(u64::MAX), 50_000);
    }

    #[test]
    fn does_not_sleep_while_there_is_progress() {
        let mut sleeper = Sleeper::new(Some(Duration::from_secs(1))).unwrap();
        sleeper.rest(1_000, true, || None, || true).unwrap();
        assert!(!always_sleeps(|| sleeper.rest(2_000, false, || None, || true).unwrap()));
    }
}
