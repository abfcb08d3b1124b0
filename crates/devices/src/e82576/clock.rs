//! The system time for IEEE 1588 (82576 datasheet, 7.9.1): it grows by TIMINCA.INCVALUE every TIMINCA.INCPERIOD of 16 ns.

/// The unit of INCPERIOD.
const PERIOD_NS: u64 = 16;

/// The time.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    base: u64,
    since_ns: u64,
    timinca: u32,
    /// The upper half, as it was when the lower one was read.
    latched: u32,
}

impl Clock {
    fn now(&self, now_ns: u64) -> u64 {
        let period_ns = u64::from(self.timinca >> 24) * PERIOD_NS;
        let steps = now_ns.saturating_sub(self.since_ns).checked_div(period_ns).unwrap_or(0);
        self.base.wrapping_add(steps.wrapping_mul(u64::from(self.timinca & 0xff_ffff)))
    }

    /// TIMINCA: from now on it grows like this.
    pub(crate) fn set_increment(&mut self, now_ns: u64, timinca: u32) {
        self.base = self.now(now_ns);
        (self.since_ns, self.timinca) = (now_ns, timinca);
    }

    /// SYSTIML; SYSTIMH is that of the same moment.
    pub(crate) fn low(&mut self, now_ns: u64) -> u32 {
        let now = self.now(now_ns);
        self.latched = (now >> 32) as u32;
        now as u32
    }

    pub(crate) fn high(&self) -> u32 {
        self.latched
    }

    pub(crate) fn set_low(&mut self, now_ns: u64, value: u32) {
        self.base = self.now(now_ns) & !0xffff_ffff | u64::from(value);
        self.since_ns = now_ns;
    }

    pub(crate) fn set_high(&mut self, now_ns: u64, value: u32) {
        self.base = self.now(now_ns) & 0xffff_ffff | u64::from(value) << 32;
        self.since_ns = now_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows_by_the_increment_each_period() {
        let mut clock = Clock::default();
        clock.set_low(1000, 5);
        assert_eq!(clock.low(9000), 5, "no increment yet");
        clock.set_increment(9000, 2 << 24 | 0x64);
        assert_eq!(clock.low(9000 + 31), 5);
        assert_eq!(clock.low(9000 + 320), 1005);
        clock.set_increment(9000 + 320, 1 << 24 | 0xff_ffff);
        let now_ns = 9000 + 320 + 16 * 1000;
        assert_eq!((clock.low(now_ns), clock.high()), (3_892_314_117, 3));
    }
}
