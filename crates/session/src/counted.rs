//! Loss by count, as TCP finds it: a frame is lost once three that were first sent after it have arrived.
//!
//! Kept to compare with: it takes reordering of more than two frames for loss, and never sees that a retransmission was
//! lost too, which waits for the timeout.

use crate::before;
use crate::config::Detection;
use crate::flight::{Flight, Place};

/// Later arrivals that prove a loss (`DupThresh` of RFC 5681 and 6675).
const LATER: u32 = 3;

/// What has been concluded so far.
#[derive(Debug)]
pub(crate) struct Counted {
    detection: Detection,
    /// The sequence after the highest that has arrived.
    end: u32,
    /// Everything before this has been judged.
    judged: u32,
    /// Until this is acknowledged one loss is being repaired (`NewReno`'s `recover`).
    recover: Option<u32>,
}

impl Counted {
    pub(crate) fn new(detection: Detection, first: u32) -> Self {
        Self { detection, end: first, judged: first, recover: None }
    }

    /// A frame is known to have arrived.
    pub(crate) fn on_arrival(&mut self, sequence: u32) {
        if !before(sequence, self.end) {
            self.end = sequence.wrapping_add(1);
        }
    }

    /// The timeout has taken all up to `next` as lost.
    pub(crate) fn on_timeout(&mut self, next: u32) {
        self.judged = next;
        self.recover = None;
    }

    /// The next frame that is lost by now, if any; the caller takes it out of flight and asks again.
    pub(crate) fn lost(&mut self, una: u32, next: u32, flight: &Flight) -> Option<u32> {
        let is_first = |sequence| {
            let transmission = flight.of(sequence);
            transmission.place == Place::Flight && transmission.given_up.is_none()
        };
        if self.recover.is_some_and(|recover| !before(una, recover)) {
            self.recover = None;
        }
        if before(self.judged, una) {
            self.judged = una;
        }
        if self.detection == Detection::NewReno {
            let later = self.end.wrapping_sub(una).cast_signed() > LATER.cast_signed();
            let due = una != next && is_first(una) && (self.recover.is_some() || later);
            self.recover = if due { self.recover.or(Some(next)) } else { self.recover };
            return due.then_some(una);
        }
        let limit = self.end.wrapping_sub(LATER);
        while before(self.judged, limit) {
            let sequence = self.judged;
            self.judged = self.judged.wrapping_add(1);
            if is_first(sequence) {
                return Some(sequence);
            }
        }
        None
    }
}
