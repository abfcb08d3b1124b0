//! Whether two nodes speak under one ID: heartbeats of one life come while those of another are believed.

use crate::directory::INTERVAL_MS;

/// So many heartbeats are no late ones of a node that was started again.
pub(crate) const MANY_HEARTBEATS: u32 = 32;
/// Who was not heard for so many of its intervals, and for so long, is gone.
const INTERVALS: u64 = 4;
const GONE_NS: u64 = 3_000_000_000;

/// What is heard of a second node under an ID.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Twin<A> {
    address: Option<A>,
    heard: u32,
    until_ns: u64,
}

impl<A: Copy> Twin<A> {
    pub(crate) const NONE: Self = Self { address: None, heard: 0, until_ns: 0 };

    /// A heartbeat of another life came from `from`; its interval is 0 if that node stops.
    pub(crate) fn hear(&mut self, now_ns: u64, from: A, interval_ms: u16) {
        if interval_ms == 0 {
            *self = Self::NONE;
            return;
        }
        if self.until_ns <= now_ns {
            self.heard = 0;
        }
        let (least, most) = INTERVAL_MS;
        let interval_ns = u64::from(interval_ms.clamp(least, most)) * 1_000_000;
        self.heard = self.heard.saturating_add(1);
        self.address = Some(from);
        self.until_ns = now_ns.saturating_add(GONE_NS.max(INTERVALS * interval_ns));
    }

    /// Whether it is there: it was heard often, and lately.
    pub(crate) fn is_there(&self, now_ns: u64) -> bool {
        self.heard >= MANY_HEARTBEATS && now_ns < self.until_ns
    }

    /// Where it was heard lately: it is told what others are told, or it would fall silent before it is known for what it is.
    pub(crate) fn address(&self, now_ns: u64) -> Option<A> {
        self.address.filter(|_| now_ns < self.until_ns)
    }
}
