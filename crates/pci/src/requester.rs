//! The Requester's side of Non-Posted Requests: Tags, byte accounting, Completion Timeout (PCIe Base 6.0,
//! 2.2.6.2, 2.3.2, 2.8).
//!
//! Every Request that was begun ends exactly once for each of its bytes: with data, with a fault, or by
//! [`Requester::expire`]; or all end unheard by [`Requester::abandon`]. A Tag whose Request ended before its
//! Completions did is *quarantined*: it is not used again before its Completions have come or can't come any
//! more, so a late Completion never ends up in another Request. Memory is taken at construction only and all
//! operations take constant time.

mod tags;

use etherslot_wire::Tag;
use etherslot_wire::tlp::{Completion, CplStatus};

use crate::function::Fault;
use tags::{List, Tags};

/// Tags that 10 bits can tell apart.
pub const MAX_TAGS: u16 = 1024;
/// The smallest Read Completion Boundary, bytes: Completions of one Request are cut at multiples of it only
/// (2.3.1.1).
const MIN_RCB_BYTES: u64 = 64;

/// Limits of a Requester.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequesterConfig {
    /// How many Tags it uses, from 0 on: 1..=1024. More than 256 need 10-bit Tags all the way.
    pub tags: u16,
    /// A Request without all of its Completions after this is given up, ns.
    pub completion_timeout_ns: u64,
    /// A Tag that was given up is not used for this long, ns: the longest a Completion can be late.
    pub quarantine_ns: u64,
}

/// What kind of Completion answers a Request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// Data in one or several Completions, in address order: a Memory Read.
    Memory,
    /// One DW in one Completion: a Configuration Read.
    Config,
    /// No data: a Configuration Write.
    Status,
}

/// What a Completion was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome<'a, T> {
    /// Data of a Request came (none, if it is a write's).
    Data {
        /// The Request's context.
        context: T,
        /// Address of the first byte.
        address: u64,
        /// Those bytes.
        data: &'a [u8],
        /// The Request has ended.
        last: bool,
    },
    /// Bytes of a Request will not come.
    Failed {
        /// The Request's context.
        context: T,
        /// Address of the first byte.
        address: u64,
        /// How many bytes.
        bytes: usize,
        /// Why.
        fault: Fault,
        /// The Request has ended.
        last: bool,
    },
    /// Nobody waits for it: the Tag is free, or quarantined.
    Unexpected,
}

/// What a Requester has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequesterCounters {
    /// Requests begun.
    pub requests: u64,
    /// Requests given up by the Completion Timeout.
    pub timeouts: u64,
    /// Completions for a quarantined Tag.
    pub late_completions: u64,
    /// Completions for a Tag that is not in use.
    pub unexpected_completions: u64,
    /// Completions that do not fit their Request.
    pub malformed_completions: u64,
    /// Completions with poisoned data.
    pub poisoned_completions: u64,
    /// Requests that ended with UR, CA or RRS.
    pub refused: u64,
}

/// A Request under way.
#[derive(Clone, Copy, Debug)]
struct Pending<T> {
    context: T,
    expect: Expect,
    /// Where the next Completion goes on.
    address: u64,
    /// Bytes that have not come yet. 0 for [`Expect::Status`].
    remaining: u16,
}

/// Allocates Tags and matches Completions with Requests.
#[derive(Debug)]
pub struct Requester<T> {
    tags: Tags<Pending<T>>,
    completion_timeout_ns: u64,
    quarantine_ns: u64,
    /// The latest time heard of.
    now_ns: u64,
    counters: RequesterCounters,
}

impl<T: Copy> Requester<T> {
    /// A Requester with nothing under way.
    pub fn new(config: RequesterConfig) -> Self {
        Self {
            tags: Tags::new(config.tags.clamp(1, MAX_TAGS)),
            completion_timeout_ns: config.completion_timeout_ns,
            quarantine_ns: config.quarantine_ns,
            now_ns: 0,
            counters: RequesterCounters::default(),
        }
    }

    /// Takes a Tag for a Request of `bytes` (1..=4096) from `address` on. For configuration, `address` is
    /// whatever the caller wants to hear again. `None` if all Tags are taken.
    pub fn begin(
        &mut self,
        now_ns: u64,
        address: u64,
        bytes: usize,
        expect: Expect,
        context: T,
    ) -> Option<Tag> {
        self.advance(now_ns);
        let remaining = match expect {
            Expect::Memory => u16::try_from(bytes).ok().filter(|bytes| (1..=4096).contains(bytes))?,
            Expect::Config => 4,
            Expect::Status => 0,
        };
        let deadline_ns = self.now_ns.saturating_add(self.completion_timeout_ns);
        let tag = self.tags.take(deadline_ns, Pending { context, expect, address, remaining })?;
        self.counters.requests += 1;
        Some(tag)
    }

    /// Gives back the Tag of a Request that was begun but never sent.
    pub fn cancel(&mut self, tag: Tag) {
        if self.tags.list_of(tag) == Some(List::Busy) {
            self.tags.free(tag);
            self.counters.requests -= 1;
        }
    }

    /// Takes a Completion that is for this Requester's ID. `data` is all that the TLP carries.
    pub fn complete<'a>(
        &mut self,
        now_ns: u64,
        completion: &Completion,
        poisoned: bool,
        data: &'a [u8],
    ) -> Outcome<'a, T> {
        self.advance(now_ns);
        let tag = completion.tag;
        match self.tags.list_of(tag) {
            Some(List::Busy) => {}
            Some(List::Quarantined) => {
                self.counters.late_completions += 1;
                if ends_request(completion) {
                    self.tags.free(tag);
                }
                return Outcome::Unexpected;
            }
            Some(List::Free) | None => {
                self.counters.unexpected_completions += 1;
                return Outcome::Unexpected;
            }
        }
        let Some(pending) = self.tags.pending(tag) else { return Outcome::Unexpected };
        let Pending { context, expect, address, remaining } = *pending;
        let failed = |bytes: u16, fault, last| Outcome::Failed {
            context,
            address,
            bytes: bytes as usize,
            fault,
            last,
        };
        if completion.status != CplStatus::Success {
            let fault = match completion.status {
                CplStatus::CompleterAbort => Fault::CompleterAbort,
                // RRS answers Configuration Requests only (2.3.2).
                CplStatus::RetryStatus if expect == Expect::Memory => Fault::Malformed,
                _ => Fault::UnsupportedRequest,
            };
            self.counters.refused += 1;
            self.tags.free(tag);
            return failed(remaining, fault, true);
        }
        let Some((lead, bytes)) = fit(pending, completion, data.len()) else {
            self.counters.malformed_completions += 1;
            // Whether more Completions of the Request follow can't be told.
            self.quarantine(tag);
            return failed(remaining, Fault::Malformed, true);
        };
        let last = bytes == remaining;
        if last {
            self.tags.free(tag);
        } else {
            pending.address = address.wrapping_add(u64::from(bytes));
            pending.remaining -= bytes;
        }
        if poisoned && bytes != 0 {
            self.counters.poisoned_completions += 1;
            return failed(bytes, Fault::Poisoned, last);
        }
        Outcome::Data { context, address, data: &data[lead..lead + bytes as usize], last }
    }

    /// Gives up the oldest Request whose Completion Timeout has passed: its context, and the address and number
    /// of the bytes that had not come. To be called until it returns `None`.
    pub fn expire(&mut self, now_ns: u64) -> Option<(T, u64, usize)> {
        self.advance(now_ns);
        let tag = self.tags.due(List::Busy, self.now_ns)?;
        let Pending { context, address, remaining, .. } = *self.tags.pending(tag)?;
        self.quarantine(tag);
        self.counters.timeouts += 1;
        Some((context, address, remaining as usize))
    }

    /// Forgets all Requests under way; their Completions will be dropped. The quarantine counts from the last
    /// time heard of, which is behind the Requests: so it only has to be longer than a Completion can take.
    pub fn abandon(&mut self) {
        while let Some(tag) = self.tags.first(List::Busy) {
            self.quarantine(tag);
        }
    }

    /// Forgets everything, late Completions too: for a new session, which none of an earlier one can reach.
    pub fn clear(&mut self) {
        for list in [List::Busy, List::Quarantined] {
            while let Some(tag) = self.tags.first(list) {
                self.tags.free(tag);
            }
        }
    }

    /// Sets the Completion Timeout of the Requests that follow, ns; `u64::MAX` is none. None times out before
    /// one that was begun earlier.
    pub fn set_completion_timeout(&mut self, timeout_ns: u64) {
        self.completion_timeout_ns = timeout_ns;
    }

    /// When [`Requester::expire`] should be called, or a Tag comes free that is waited for.
    pub fn deadline_ns(&self) -> Option<u64> {
        let timeout = self.tags.first_deadline(List::Busy).filter(|&at| at != u64::MAX);
        let quarantine = if self.tags.first(List::Free).is_none() {
            self.tags.first_deadline(List::Quarantined)
        } else {
            None
        };
        [timeout, quarantine].into_iter().flatten().min()
    }

    /// Requests under way.
    pub fn outstanding(&self) -> usize {
        self.tags.len(List::Busy)
    }

    /// Whether a Completion with this Tag would be late: its Request was given up.
    pub fn is_quarantined(&self, tag: Tag) -> bool {
        self.tags.list_of(tag) == Some(List::Quarantined)
    }

    /// Tags that wait for late Completions.
    pub fn quarantined(&self) -> usize {
        self.tags.len(List::Quarantined)
    }

    /// Tags in all.
    pub fn tags(&self) -> u16 {
        self.tags.total()
    }

    /// What was counted.
    pub fn counters(&self) -> &RequesterCounters {
        &self.counters
    }

    fn advance(&mut self, now_ns: u64) {
        self.now_ns = self.now_ns.max(now_ns);
        while let Some(tag) = self.tags.due(List::Quarantined, self.now_ns) {
            self.tags.free(tag);
        }
    }

    fn quarantine(&mut self, tag: Tag) {
        self.tags.quarantine(tag, self.now_ns.saturating_add(self.quarantine_ns));
    }
}

/// Whether no Completion of the same Request follows this one.
fn ends_request(completion: &Completion) -> bool {
    let lead = completion.lower_address & 3;
    completion.status != CplStatus::Success
        || completion.length_dw == 0
        || u32::from(completion.byte_count) + u32::from(lead) <= 4 * u32::from(completion.length_dw)
}

/// Where in the data of a successful Completion the bytes of its Request start, and how many there are; `None`
/// if it is none that answers the Request as it stands (2.2.9, 2.3.1.1).
fn fit<T>(pending: &Pending<T>, completion: &Completion, data_bytes: usize) -> Option<(usize, u16)> {
    if data_bytes != 4 * completion.length_dw as usize {
        return None;
    }
    match pending.expect {
        Expect::Status => (completion.length_dw == 0).then_some((0, 0)),
        Expect::Config => (completion.length_dw == 1).then_some((0, 4)),
        Expect::Memory => {
            let lead = (pending.address & 3) as usize;
            let at_expected = completion.byte_count == pending.remaining
                && u64::from(completion.lower_address) == pending.address & 0x7F;
            let wanted = lead + pending.remaining as usize;
            if completion.length_dw == 0 || !at_expected || data_bytes > wanted.next_multiple_of(4) {
                return None;
            }
            let bytes = data_bytes.min(wanted) - lead;
            let end = pending.address.wrapping_add(bytes as u64);
            let ends_well = bytes == pending.remaining as usize || end.is_multiple_of(MIN_RCB_BYTES);
            ends_well.then_some((lead, bytes as u16))
        }
    }
}

#[cfg(test)]
mod tests;
