//! A guest as its host node sees it: accesses out, the device comes and goes, commands under way.

mod dma;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use etherslot_node::{Device, Interrupts};

use crate::checkers::history::{History, Value, Write};
use crate::checkers::verdict::{Rule, Verdict};
use crate::guest::extent::Extent;
use crate::guest::memory::{Memory, Piece};
use crate::guest::nvme::Completion;
use crate::plan::GuestPlan;

/// A host node answers an access within this, whatever happens on the network.
const ACCESS_BOUND_NS: u64 = 1_100_000_000;
/// A posted write before it may have waited for room until its session was found dead.
const QUEUED_BOUND_NS: u64 = 5_000_000_000;

/// Posted writes that wait for the host node before the processor waits, too.
pub(crate) const POSTED: usize = 32;

/// What a guest asks of its host node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// Read configuration space.
    ConfigRead {
        /// Offset.
        offset: u64,
        /// 1 to 8.
        bytes: usize,
    },
    /// Write configuration space.
    ConfigWrite {
        /// Offset.
        offset: u64,
        /// 1 to 8.
        bytes: usize,
        /// Little end first.
        value: u64,
    },
    /// Read a BAR.
    BarRead {
        /// Which.
        bar: usize,
        /// Offset.
        offset: u64,
        /// 1 to 8.
        bytes: usize,
    },
    /// Write a BAR.
    BarWrite {
        /// Which.
        bar: usize,
        /// Offset.
        offset: u64,
        /// 1 to 8.
        bytes: usize,
        /// Little end first.
        value: u64,
    },
    /// Set up interrupts.
    Interrupts(Interrupts),
    /// Reset the device.
    Reset,
}

/// A request and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    /// Number, unique in the simulation of one host.
    pub(crate) id: u64,
    /// What is asked.
    pub(crate) request: Request,
}

#[derive(Clone, Copy, Debug)]
struct Issued {
    is_reset: bool,
    queued_ns: u64,
    handed_ns: Option<u64>,
}

/// What a command is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Purpose {
    /// An admin command.
    Admin,
    /// A read, since this time of the history.
    Read {
        /// Index of the namespace.
        namespace: usize,
        /// First block.
        block: u64,
        /// Time of the history.
        begun: u64,
    },
    /// A write of any kind.
    Write {
        /// Which.
        write: Write,
        /// Its success makes it durable.
        durable: bool,
        /// Its success does not say what the blocks hold.
        hint: bool,
    },
    /// A Flush, since this time of the history.
    Flush {
        /// Index of the namespace.
        namespace: usize,
        /// Time of the history.
        begun: u64,
    },
    /// A Compare, which has to end with this status.
    Compare {
        /// Status.
        status: u16,
    },
    /// A command that changes nothing and returns no data.
    Other,
    /// An Asynchronous Event Request: it ends when there is something to tell, if ever.
    Event,
}

/// A command under way.
#[derive(Debug)]
pub(crate) struct Command {
    /// What for.
    pub(crate) purpose: Purpose,
    /// Its buffer.
    pub(crate) pieces: Vec<Piece>,
    /// All pages it holds.
    pub(crate) pages: Vec<u64>,
    /// When it was given to the device.
    pub(crate) submitted_ns: u64,
    /// How often the device had been lost then.
    pub(crate) losses: u64,
    /// The driver has asked for its abortion.
    pub(crate) aborting: bool,
    /// How it ended, and when.
    pub(crate) done: Option<(Completion, u64)>,
}

/// How far a guest has got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Commands of its work that were submitted.
    pub submitted: u64,
    /// I/O commands that ended well.
    pub succeeded: u64,
    /// I/O commands that ended with an error, or without an end.
    pub failed: u64,
    /// How often the controller was enabled.
    pub enabled: u64,
    /// How often the driver gave it up.
    pub troubles: u64,
    /// How often the driver shut it down at the end of its work.
    pub shut_down: u64,
    /// All is done.
    pub finished: bool,
}

#[derive(Debug)]
struct CompletionQueue {
    address: u64,
    entries: u16,
    tail: u16,
    phase: bool,
    /// Entries that were posted and not taken yet.
    waiting: u16,
}

#[derive(Debug)]
struct SubmissionQueue {
    completion_queue: u16,
    entries: u16,
    head: u16,
    tail: u16,
}

/// A guest.
pub(crate) struct Machine {
    verdict: Rc<Verdict>,
    name: String,
    /// What the blocks of its device hold.
    pub(crate) history: Rc<RefCell<History>>,
    /// Its memory.
    pub(crate) memory: Memory,
    /// The device, while it is there.
    pub(crate) device: Option<Device>,
    /// How often the device was lost.
    pub(crate) losses: u64,
    /// Vectors that have fired and were not looked at.
    pub(crate) fired: BTreeSet<u16>,
    /// The level of INTA.
    pub(crate) intx: bool,
    /// When its processors have to go on though nothing happened.
    pub(crate) alarm_ns: u64,
    /// Something happened since its processors ran.
    pub(crate) changed: bool,
    /// How long its host has stood still; nobody could answer meanwhile.
    pub(crate) paused_ns: u64,
    /// Whether errors of the device are a violation of [`Rule::Transparent`].
    transparent: bool,
    /// Errors of the medium are to be expected.
    media_faults: bool,
    /// How far its driver has got.
    pub(crate) progress: Progress,
    /// Commands under way, by queue and Command Identifier.
    pub(crate) commands: BTreeMap<(u16, u16), Command>,
    outbox: VecDeque<Access>,
    first_access: u64,
    next_access: u64,
    issued: BTreeMap<u64, Issued>,
    answers: BTreeMap<u64, Vec<u8>>,
    completion_queues: BTreeMap<u16, CompletionQueue>,
    submission_queues: BTreeMap<u16, SubmissionQueue>,
    scratch: Vec<u8>,
}

impl Machine {
    /// A guest with this memory; `first_access` is the number of its first access.
    pub(crate) fn new(
        name: String,
        verdict: Rc<Verdict>,
        history: Rc<RefCell<History>>,
        memory: Memory,
        plan: &GuestPlan,
        first_access: u64,
    ) -> Self {
        Self {
            verdict,
            name,
            history,
            memory,
            device: None,
            losses: 0,
            fired: BTreeSet::new(),
            intx: false,
            alarm_ns: 0,
            changed: true,
            paused_ns: 0,
            transparent: plan.transparent,
            media_faults: plan.media_faults,
            progress: Progress::default(),
            commands: BTreeMap::new(),
            outbox: VecDeque::new(),
            first_access,
            next_access: first_access,
            issued: BTreeMap::new(),
            answers: BTreeMap::new(),
            completion_queues: BTreeMap::new(),
            submission_queues: BTreeMap::new(),
            scratch: Vec::new(),
        }
    }

    /// Reports a broken rule.
    pub(crate) fn broken(&self, rule: Rule, detail: impl FnOnce() -> String) {
        self.verdict.broken(rule, || format!("{}: {}", self.name, detail()));
    }

    /// Virtual time.
    pub(crate) fn now_ns(&self) -> u64 {
        self.verdict.now_ns()
    }

    /// Tells what happened, for the trace.
    pub(crate) fn event(&self, word: u64, line: impl FnOnce() -> String) {
        self.verdict.event(word, || format!("{}: {}", self.name, line()));
    }

    // ----- accesses -----

    /// The processor makes an access; the result is its number.
    pub(crate) fn access(&mut self, request: Request) -> u64 {
        let id = self.next_access;
        self.next_access += 1;
        self.outbox.push_back(Access { id, request });
        if !matches!(request, Request::BarWrite { .. } | Request::Interrupts(_)) {
            let is_reset = request == Request::Reset;
            self.issued.insert(id, Issued { is_reset, queued_ns: self.now_ns(), handed_ns: None });
        }
        id
    }

    /// Number of the next access.
    pub(crate) fn next_access(&self) -> u64 {
        self.next_access
    }

    /// Accesses that wait for the host node.
    pub(crate) fn waiting(&self) -> usize {
        self.outbox.len()
    }

    /// The access that the host node is to take next.
    pub(crate) fn next_request(&self) -> Option<Access> {
        self.outbox.front().copied()
    }

    /// The host node has taken the access.
    pub(crate) fn handed(&mut self) {
        // A processor may wait for this.
        self.changed |= self.outbox.len() == POSTED;
        if let Some(access) = self.outbox.pop_front()
            && let Some(issued) = self.issued.get_mut(&access.id)
        {
            issued.handed_ns = Some(self.verdict.now_ns());
        }
    }

    /// The access has ended; true if it was a reset.
    pub(crate) fn completed(&mut self, id: u64, data: &[u8]) -> bool {
        self.check_access_times();
        if id < self.first_access {
            // It was an earlier guest's.
            return false;
        }
        let Some(issued) = self.issued.remove(&id) else {
            self.broken(Rule::AccessTime, || {
                format!("access {id} was answered without being asked, or twice")
            });
            return false;
        };
        if issued.is_reset {
            self.silence();
        }
        self.answers.insert(id, data.to_vec());
        self.changed = true;
        issued.is_reset
    }

    /// The answer to the access, once.
    pub(crate) fn take_answer(&mut self, id: u64) -> Option<Vec<u8>> {
        self.answers.remove(&id)
    }

    /// Checks that no access has waited for too long.
    pub(crate) fn check_access_times(&self) {
        let now_ns = self.now_ns().saturating_sub(self.paused_ns);
        for (id, issued) in &self.issued {
            let late = issued.handed_ns.is_some_and(|at_ns| now_ns > at_ns + ACCESS_BOUND_NS);
            if late || now_ns > issued.queued_ns + QUEUED_BOUND_NS {
                self.broken(Rule::AccessTime, || format!("access {id} waits: {issued:?}"));
            }
        }
    }

    // ----- the device comes and goes -----

    /// The device is there.
    pub(crate) fn attached(&mut self, device: &Device) {
        if self.device.is_some() {
            self.broken(Rule::Restored, || "the device was attached twice".to_owned());
        }
        self.device = Some(*device);
        self.changed = true;
    }

    /// The device is lost: it may touch nothing any more.
    pub(crate) fn lost(&mut self) {
        if self.device.take().is_none() {
            self.broken(Rule::Restored, || "a device was lost that was not there".to_owned());
        }
        if self.transparent {
            self.broken(Rule::Transparent, || "the device was lost".to_owned());
        }
        self.losses += 1;
        self.silence();
        self.changed = true;
    }

    /// The device was seen to be stopped, or is gone: it may touch nothing any more.
    pub(crate) fn silence(&mut self) {
        self.memory.revoke_all();
        self.completion_queues.clear();
        self.submission_queues.clear();
    }

    /// The device was seen to be stopped: all commands are over. Their pages are given back.
    pub(crate) fn stopped(&mut self) {
        self.silence();
        let mut history = self.history.borrow_mut();
        for command in std::mem::take(&mut self.commands).into_values() {
            if command.done.is_none()
                && let Purpose::Read { begun, .. } | Purpose::Flush { begun, .. } = command.purpose
            {
                history.end_read(begun);
            }
            for &page in &command.pages {
                self.memory.release(page);
            }
        }
        history.stop();
    }

    // ----- queues and commands -----

    /// Begins a write of these blocks, with data of its own in the buffer's pieces.
    pub(crate) fn begin_write(&mut self, extent: Extent, pieces: &[Piece]) -> Write {
        let Extent { namespace, block, blocks } = extent;
        let mut history = self.history.borrow_mut();
        let block_bytes = history.namespaces().nth(namespace).map_or(0, |(bytes, _)| bytes);
        let mut data = vec![0; blocks as usize * block_bytes];
        let stamp = history.stamp();
        history.fill(namespace, block, stamp, &mut data);
        self.memory.scatter(pieces, &data);
        history.begin_write(namespace, block, blocks, Value::Stamp(stamp))
    }

    /// The driver will have this completion queue.
    pub(crate) fn add_completion_queue(&mut self, id: u16, address: u64, entries: u16) {
        let queue = CompletionQueue { address, entries, tail: 0, phase: true, waiting: 0 };
        self.completion_queues.insert(id, queue);
    }

    /// The driver will have this submission queue.
    pub(crate) fn add_submission_queue(&mut self, id: u16, completion_queue: u16, entries: u16) {
        let queue = SubmissionQueue { completion_queue, entries, head: 0, tail: 0 };
        self.submission_queues.insert(id, queue);
    }

    /// The driver has rung the doorbell of a submission queue.
    pub(crate) fn submitted(&mut self, id: u16, tail: u16) {
        if let Some(queue) = self.submission_queues.get_mut(&id) {
            queue.tail = tail;
        }
    }

    /// The driver has taken an entry out of a completion queue.
    pub(crate) fn consumed(&mut self, id: u16) {
        if let Some(queue) = self.completion_queues.get_mut(&id) {
            queue.waiting = queue.waiting.saturating_sub(1);
        }
    }
}
