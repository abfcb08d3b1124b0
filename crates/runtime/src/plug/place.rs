//! One slot's device and its place in a guest: whether it is there, whether it is to be, and what to ask QEMU for next (sans-IO).

/// When QEMU is asked again after it refused something: at first, and at most. Each time it is twice as long.
const AGAIN_NS: (u64, u64) = (1_000_000_000, 60_000_000_000);
/// When a guest is asked again that does not give a device back: Linux takes five seconds to think it over, and one that
/// boots hears nothing.
const INSIST_NS: u64 = 10_000_000_000;

/// What to ask QEMU for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    /// Which devices there are.
    List,
    /// `device_add`.
    Add,
    /// An error of the port above the device, which does not answer.
    Report,
    /// One that tells the guest that the device was away, so that its driver begins anew at once.
    Recover,
    /// `device_del`.
    Delete,
}

/// Where the device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// QEMU has not been asked.
    Unknown { is_asked: bool },
    /// Not in the guest.
    Out,
    /// QEMU was asked to add it.
    Adding,
    /// In the guest.
    In,
    /// The guest was asked to give it back.
    Leaving,
}

/// A device's place.
#[derive(Debug)]
pub(super) struct Place {
    /// How long a device may be away until it is taken out of the guest.
    grace_ns: u64,
    stage: Stage,
    /// The device is attached, and to be in the guest.
    is_wanted: bool,
    /// The box waits for it.
    is_recalled: bool,
    /// The device was lost, and is taken out without it at this time.
    gone_ns: Option<u64>,
    /// The guest is still to be told that the device does not answer.
    reports: bool,
    /// The guest is still to be told that the device was away and is back.
    recovers: bool,
    /// Nothing is asked for before.
    wait_ns: u64,
    was_refused: bool,
    again_ns: u64,
}

/// What has come of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum News {
    /// Nothing that others have to know.
    None,
    /// The device is in the guest.
    In,
    /// The device is not in the guest any more; the box waits for it if that is said.
    Out {
        /// The device is to be given back.
        is_recalled: bool,
    },
    /// QEMU or the guest does not do what it is asked for; it will be asked again.
    Refused {
        /// It has done so for the first time.
        is_first: bool,
    },
}

impl Place {
    pub(super) fn new(grace_ns: u64) -> Self {
        Self {
            grace_ns,
            stage: Stage::Unknown { is_asked: false },
            is_wanted: false,
            is_recalled: false,
            gone_ns: None,
            reports: false,
            recovers: false,
            wait_ns: 0,
            was_refused: false,
            again_ns: AGAIN_NS.0,
        }
    }

    /// Whether the device should be in the guest, and QEMU does not let it in.
    pub(super) fn is_kept_out(&self) -> bool {
        self.is_wanted && self.was_refused && self.stage != Stage::In
    }

    /// Whether QEMU did not do what it was asked for last.
    pub(super) fn was_refused(&self) -> bool {
        self.was_refused
    }

    /// The device was attached.
    pub(super) fn attached(&mut self) {
        self.is_wanted = true;
        // Whoever wanted it back did so in a session that is over.
        self.is_recalled = false;
        // One that is back within the grace has lost all that the driver had set up.
        self.recovers = self.gone_ns.take().is_some() && self.stage == Stage::In;
        self.reports = false;
    }

    /// The device is out of reach.
    pub(super) fn lost(&mut self, now_ns: u64) {
        self.is_recalled = false;
        self.gone_ns = Some(now_ns + self.grace_ns);
        self.recovers = false;
    }

    /// The box wants the device back. False if the guest does not have it.
    pub(super) fn recalled(&mut self) -> bool {
        let has_it = matches!(self.stage, Stage::Adding | Stage::In | Stage::Leaving);
        if has_it {
            self.is_wanted = false;
            self.is_recalled = true;
            self.wait_ns = 0;
        }
        has_it
    }

    /// The box does not want it back any more.
    pub(super) fn kept(&mut self) {
        self.is_wanted |= std::mem::take(&mut self.is_recalled);
    }

    /// What it is at, in a word.
    pub(super) fn stage(&self) -> &'static str {
        match self.stage {
            Stage::Unknown { .. } => "no guest",
            Stage::Out => "out",
            Stage::Adding => "entering",
            Stage::In => "in",
            Stage::Leaving => "leaving",
        }
    }

    /// When [`Place::next`] may have something to ask for.
    pub(super) fn deadline_ns(&self) -> Option<u64> {
        let waits = match self.stage {
            Stage::Unknown { is_asked } => !is_asked,
            Stage::Out => self.is_wanted,
            Stage::In => !self.is_wanted || self.recovers,
            Stage::Leaving => true,
            Stage::Adding => false,
        };
        waits.then_some(self.wait_ns).into_iter().chain(self.gone_ns).min()
    }

    /// What to ask for next. `is_connected`: a guest is at the slot's socket.
    pub(super) fn next(&mut self, now_ns: u64, is_connected: bool) -> Option<Ask> {
        if self.gone_ns.is_some_and(|at| at <= now_ns) {
            self.gone_ns = None;
            self.is_wanted = false;
            self.reports = true;
        }
        if now_ns < self.wait_ns {
            return None;
        }
        match self.stage {
            Stage::Unknown { is_asked: false } => {
                self.stage = Stage::Unknown { is_asked: true };
                Some(Ask::List)
            }
            Stage::Out if self.is_wanted => {
                self.stage = Stage::Adding;
                Some(Ask::Add)
            }
            // QEMU does not connect again: a device whose host daemon died is of no more use.
            Stage::In if !self.is_wanted || !is_connected => {
                if std::mem::take(&mut self.reports) {
                    return Some(Ask::Report);
                }
                Some(self.leave(now_ns))
            }
            Stage::In if std::mem::take(&mut self.recovers) => Some(Ask::Recover),
            Stage::Leaving => Some(self.leave(now_ns)),
            Stage::Unknown { .. } | Stage::Out | Stage::Adding | Stage::In => None,
        }
    }

    fn leave(&mut self, now_ns: u64) -> Ask {
        self.stage = Stage::Leaving;
        self.wait_ns = now_ns + INSIST_NS;
        Ask::Delete
    }

    /// QEMU is there, or there no more: what was known counts for nothing.
    pub(super) fn forget(&mut self) {
        self.stage = Stage::Unknown { is_asked: false };
        self.wait_ns = 0;
        self.obeyed();
    }

    fn obeyed(&mut self) {
        (self.was_refused, self.again_ns) = (false, AGAIN_NS.0);
    }

    /// There is no QEMU, and no guest at the slot's socket: nobody is left to give the device back.
    pub(super) fn deserted(&mut self) -> News {
        if std::mem::take(&mut self.is_recalled) { News::Out { is_recalled: true } } else { News::None }
    }

    /// QEMU has told whether it has the device.
    pub(super) fn listed(&mut self, is_there: bool) -> News {
        match (self.stage, is_there) {
            (Stage::Unknown { .. }, true) => {
                self.stage = Stage::In;
                News::In
            }
            (Stage::Unknown { .. }, false) => {
                self.stage = Stage::Out;
                // It was said when it was refused for the first time.
                if self.was_refused && !self.is_recalled {
                    return News::None;
                }
                News::Out { is_recalled: std::mem::take(&mut self.is_recalled) }
            }
            _ => News::None,
        }
    }

    /// QEMU has done what it was asked for.
    pub(super) fn done(&mut self, ask: Ask) -> News {
        if ask == Ask::Add && self.stage == Stage::Adding {
            self.stage = Stage::In;
            self.obeyed();
            return News::In;
        }
        News::None
    }

    /// QEMU has not. `is_missing`: it has no such device.
    pub(super) fn refused(&mut self, now_ns: u64, ask: Ask, is_missing: bool) -> News {
        self.wait_ns = now_ns + self.again_ns;
        self.again_ns = (2 * self.again_ns).min(AGAIN_NS.1);
        match ask {
            Ask::Delete if is_missing => return self.left(),
            // It goes on leaving, and is asked again.
            Ask::Delete => {}
            Ask::Report | Ask::Recover => self.wait_ns = 0,
            Ask::Add | Ask::List => self.stage = Stage::Unknown { is_asked: false },
        }
        self.is_refused()
    }

    fn is_refused(&mut self) -> News {
        News::Refused { is_first: !std::mem::replace(&mut self.was_refused, true) }
    }

    /// The device has left the guest, which may have sent it away by itself.
    pub(super) fn left(&mut self) -> News {
        if self.stage == Stage::In {
            self.is_wanted = false;
        }
        if !matches!(self.stage, Stage::In | Stage::Leaving) {
            return News::None;
        }
        self.stage = Stage::Out;
        self.wait_ns = 0;
        self.obeyed();
        News::Out { is_recalled: std::mem::take(&mut self.is_recalled) }
    }

    /// The guest does not give the device back.
    pub(super) fn stays(&mut self, now_ns: u64) -> News {
        if self.stage != Stage::Leaving {
            return News::None;
        }
        self.wait_ns = now_ns + AGAIN_NS.0;
        self.is_refused()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GRACE_NS: u64 = 5_000_000_000;

    /// A place whose QEMU has told that the device is not there.
    fn out() -> Place {
        let mut place = Place::new(GRACE_NS);
        assert_eq!(place.next(0, false), Some(Ask::List));
        assert_eq!(place.next(0, false), None, "one question is enough");
        assert_eq!(place.listed(false), News::Out { is_recalled: false });
        place
    }

    /// A place whose device is in the guest.
    fn inside() -> Place {
        let mut place = out();
        place.attached();
        assert_eq!(place.next(0, false), Some(Ask::Add));
        assert_eq!(place.done(Ask::Add), News::In);
        assert_eq!(place.next(0, true), None);
        place
    }

    #[test]
    fn what_qemu_refuses_for_ever_is_asked_ever_more_seldom_and_told_once() {
        let mut place = out();
        place.attached();
        let (mut now_ns, mut waits) = (0, Vec::new());
        for attempt in 0..9 {
            assert_eq!(place.next(now_ns, false), Some(Ask::Add));
            assert_eq!(place.refused(now_ns, Ask::Add, false), News::Refused { is_first: attempt == 0 });
            let again_ns = place.deadline_ns().unwrap();
            assert_eq!(place.next(again_ns - 1, false), None);
            waits.push((again_ns - now_ns) / 1_000_000_000);
            now_ns = again_ns;
            assert_eq!(place.next(now_ns, false), Some(Ask::List));
            assert_eq!(place.listed(false), News::None);
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        place.forget();
        assert_eq!(place.next(now_ns, false), Some(Ask::List), "another QEMU");
        assert_eq!(place.listed(false), News::Out { is_recalled: false });
    }

    #[test]
    fn a_device_that_is_recalled_leaves_and_is_given_back() {
        let mut place = inside();
        assert!(place.recalled());
        assert_eq!(place.next(1, true), Some(Ask::Delete));
        assert_eq!(place.done(Ask::Delete), News::None, "the guest was asked");
        assert_eq!(place.next(1, true), None);
        assert_eq!(place.left(), News::Out { is_recalled: true });
        assert_eq!(place.next(2, false), None, "it is not wanted any more");
        assert!(!place.recalled(), "a guest without it is not asked");
    }

    #[test]
    fn a_device_that_may_stay_after_all_comes_back() {
        let mut place = inside();
        assert!(place.recalled());
        place.kept();
        assert_eq!(place.next(1, true), None, "the guest had not been asked");
        assert!(place.recalled());
        assert_eq!(place.next(1, true), Some(Ask::Delete));
        place.kept();
        assert_eq!(place.left(), News::Out { is_recalled: false });
        assert_eq!(place.next(2, false), Some(Ask::Add));
    }

    #[test]
    fn a_lost_device_leaves_after_the_grace_and_enters_when_it_is_back() {
        let mut place = inside();
        place.lost(10);
        assert_eq!(place.next(10 + GRACE_NS - 1, true), None);
        assert_eq!(place.deadline_ns(), Some(10 + GRACE_NS));
        assert_eq!(place.next(10 + GRACE_NS, true), Some(Ask::Report));
        assert_eq!(place.next(10 + GRACE_NS, true), Some(Ask::Delete));
        // It is back while the guest still thinks it over.
        place.attached();
        assert_eq!(place.left(), News::Out { is_recalled: false });
        assert_eq!(place.next(11 + GRACE_NS, false), Some(Ask::Add));
        // One that is back in time stays; its driver is told to begin anew.
        place.done(Ask::Add);
        place.lost(20 * GRACE_NS);
        assert_eq!(place.next(20 * GRACE_NS, true), None);
        place.attached();
        assert_eq!(place.next(21 * GRACE_NS, true), Some(Ask::Recover));
        assert_eq!(place.next(30 * GRACE_NS, true), None);
    }

    #[test]
    fn a_device_that_a_dead_daemon_left_behind_is_replaced() {
        let mut place = Place::new(GRACE_NS);
        place.attached();
        assert_eq!(place.next(0, false), Some(Ask::List));
        assert_eq!(place.listed(true), News::In);
        assert_eq!(place.next(0, false), Some(Ask::Delete), "QEMU does not connect again");
        assert_eq!(place.left(), News::Out { is_recalled: false });
        assert_eq!(place.next(0, false), Some(Ask::Add));
    }

    #[test]
    fn a_device_that_the_guest_sends_away_stays_away() {
        let mut place = inside();
        assert_eq!(place.left(), News::Out { is_recalled: false });
        assert_eq!(place.next(GRACE_NS, false), None);
        place.attached();
        assert_eq!(place.next(GRACE_NS, false), Some(Ask::Add), "until it is given to this host again");
    }

    #[test]
    fn who_refuses_is_asked_again_later_and_complained_of_once() {
        let mut place = inside();
        assert!(place.recalled());
        assert_eq!(place.next(0, true), Some(Ask::Delete));
        assert_eq!(place.refused(0, Ask::Delete, false), News::Refused { is_first: true });
        assert_eq!(place.next(AGAIN_NS.0 - 1, true), None);
        assert_eq!(place.next(AGAIN_NS.0, true), Some(Ask::Delete));
        assert_eq!(place.stays(AGAIN_NS.0), News::Refused { is_first: false });
        assert_eq!(place.next(2 * AGAIN_NS.0, true), Some(Ask::Delete));
        // A guest that says nothing at all.
        assert_eq!(place.next(2 * AGAIN_NS.0 + INSIST_NS - 1, true), None);
        assert_eq!(place.next(2 * AGAIN_NS.0 + INSIST_NS, true), Some(Ask::Delete));
        assert_eq!(place.refused(0, Ask::Delete, true), News::Out { is_recalled: true }, "there is none");
    }

    /// A QEMU that does what it is asked for, now and then.
    #[derive(Default)]
    struct Qemu {
        has_it: bool,
        is_leaving: bool,
    }

    proptest! {
        /// Whatever comes in whatever order: a box that waits is told once, and in the end the device is where it belongs.
        #[test]
        fn it_ends_well(steps in proptest::collection::vec(0_u8..9, 0..60)) {
            let (mut place, mut qemu) = (Place::new(GRACE_NS), Qemu::default());
            let (mut now_ns, mut is_attached, mut waiting) = (0, false, false);
            let mut asked = Vec::new();
            let steps = steps.into_iter().map(|step| (step, AGAIN_NS.0));
            for (step, again_ns) in steps.chain([(0, AGAIN_NS.1)].repeat(80)) {
                now_ns += again_ns;
                let news = match step {
                    1 if !is_attached => { is_attached = true; place.attached(); News::None }
                    2 if is_attached => { is_attached = false; waiting = false; place.lost(now_ns); News::None }
                    3 if is_attached && !waiting => {
                        waiting = place.recalled();
                        if !waiting {
                            is_attached = false;
                            place.lost(now_ns);
                        }
                        News::None
                    }
                    4 if waiting => { waiting = false; place.kept(); News::None }
                    5 => { asked.clear(); place.forget(); News::None }
                    6 => { asked.clear(); qemu = Qemu::default(); place.forget(); place.deserted() }
                    7 if qemu.has_it => { qemu = Qemu::default(); place.left() }
                    8 if qemu.is_leaving => { qemu.is_leaving = false; place.stays(now_ns) }
                    _ => News::None,
                };
                let mut all = vec![news];
                while let Some(ask) = place.next(now_ns, qemu.has_it) {
                    asked.push(ask);
                }
                for ask in asked.drain(..) {
                    all.push(match ask {
                        Ask::List => place.listed(qemu.has_it),
                        Ask::Add => { prop_assert!(!qemu.has_it); qemu.has_it = true; place.done(ask) }
                        Ask::Report | Ask::Recover => place.done(ask),
                        Ask::Delete if !qemu.has_it => place.refused(now_ns, ask, true),
                        Ask::Delete => { qemu.is_leaving = true; place.done(ask) }
                    });
                }
                if step == 0 && qemu.is_leaving {
                    qemu = Qemu::default();
                    all.push(place.left());
                }
                for news in all {
                    if let News::Out { is_recalled: true } = news {
                        prop_assert!(waiting, "nobody waits for it");
                        waiting = false;
                        is_attached = false;
                        place.lost(now_ns);
                    }
                }
            }
            prop_assert!(!waiting, "the box waits for ever");
            prop_assert!(!qemu.has_it || is_attached, "a device that is gone stays");
            prop_assert_eq!(place.deadline_ns(), None);
        }
    }
}
