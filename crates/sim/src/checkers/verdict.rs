//! What a run was found to do: the first rule it broke, and a hash of everything that happened.

use std::cell::{Cell, RefCell};
use std::fmt;

use crate::random::mix;

/// The rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A read returns what was last written, or something written meanwhile.
    Data,
    /// What Flush or FUA acknowledged survives a crash.
    Durability,
    /// One completion for each command, none without a command.
    Completion,
    /// Completion and interrupt come after their data.
    DataBeforeCompletion,
    /// A device touches only the memory of queues and of commands under way.
    Dma,
    /// A stream's posted writes and interrupts arrive once each, in order and unchanged; reads stay behind them.
    Order,
    /// The guest's register writes arrive once each, in order and unchanged.
    Registers,
    /// Each access of a guest is answered in bounded time.
    AccessTime,
    /// An interrupt is not lost.
    Interrupt,
    /// A device that comes back is set up as the guest left it.
    Restored,
    /// While only frames are lost or late, the driver notices nothing.
    Transparent,
    /// Once nothing goes wrong any more, everything ends in bounded time.
    Liveness,
    /// Nothing grows without bound.
    Memory,
    /// A node does not go round without getting anywhere.
    Spin,
    /// No node finds what another one sent malformed or out of place.
    Counters,
    /// A frame fits the link, is well formed, and its packet number was not used before.
    Frame,
    /// The controller does what the NVMe specification says.
    Nvme,
    /// A SATA controller and its disks are what they should be.
    Sata,
    /// Nothing panics.
    Panic,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Data => "a read returns what was written last or meanwhile",
            Self::Durability => "what was flushed survives",
            Self::Completion => "one completion for each command, none without",
            Self::DataBeforeCompletion => "data comes before its completion and interrupt",
            Self::Dma => "a device touches only queues and buffers of commands under way",
            Self::Order => "posted writes and interrupts arrive once, in order, before later reads",
            Self::Registers => "register writes arrive once and in order",
            Self::AccessTime => "a guest's access is answered in bounded time",
            Self::Interrupt => "no interrupt is lost",
            Self::Restored => "a device that comes back is set up as before",
            Self::Transparent => "loss and delay of frames stay unnoticed",
            Self::Liveness => "once faults stop, everything ends",
            Self::Memory => "nothing grows without bound",
            Self::Spin => "no node goes round in vain",
            Self::Counters => "no node finds fault with what another sends",
            Self::Frame => "frames fit, parse, and never repeat a packet number",
            Self::Nvme => "the controller keeps to the NVMe specification",
            Self::Sata => "a SATA controller and its disks are what they should be",
            Self::Panic => "nothing panics",
        })
    }
}

/// A rule that was broken.
#[derive(Clone, Debug)]
pub struct Violation {
    /// Which.
    pub rule: Rule,
    /// When, in virtual time.
    pub at_ns: u64,
    /// What was seen.
    pub detail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} ({}) at {}.{:09} s: {}",
            self.rule,
            self.rule,
            self.at_ns / 1_000_000_000,
            self.at_ns % 1_000_000_000,
            self.detail
        )
    }
}

/// The judge of one run.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    now_ns: Cell<u64>,
    hash: Cell<u64>,
    printing: bool,
    /// In a run with hostile frames only safety is judged.
    only_safety: bool,
    first: RefCell<Option<Violation>>,
}

impl Verdict {
    /// A judge; `printing` shows every event on standard error.
    pub(crate) fn new(only_safety: bool, printing: bool) -> Self {
        Self { printing, only_safety, ..Self::default() }
    }

    /// The time, for what is reported from now on.
    pub(crate) fn set_now(&self, now_ns: u64) {
        self.now_ns.set(now_ns);
    }

    /// Virtual time.
    pub(crate) fn now_ns(&self) -> u64 {
        self.now_ns.get()
    }

    /// Whether only safety is judged.
    pub(crate) fn is_only_safety(&self) -> bool {
        self.only_safety
    }

    /// A rule was broken. Only the first one counts: what follows may be a consequence.
    pub(crate) fn broken(&self, rule: Rule, detail: impl FnOnce() -> String) {
        let safety = matches!(rule, Rule::AccessTime | Rule::Memory | Rule::Spin | Rule::Panic | Rule::Frame);
        if self.only_safety && !safety {
            return;
        }
        let mut first = self.first.borrow_mut();
        if first.is_none() {
            let violation = Violation { rule, at_ns: self.now_ns.get(), detail: detail() };
            if self.printing {
                eprintln!("{violation}");
            }
            *first = Some(violation);
        }
    }

    /// Whether a rule was broken.
    pub(crate) fn is_broken(&self) -> bool {
        self.first.borrow().is_some()
    }

    /// The first rule that was broken.
    pub(crate) fn violation(&self) -> Option<Violation> {
        self.first.borrow().clone()
    }

    /// Something happened: `word` goes into the hash of the run, `line` is shown if wanted.
    pub(crate) fn event(&self, word: u64, line: impl FnOnce() -> String) {
        self.hash.set(mix(self.hash.get() ^ word).wrapping_add(self.now_ns.get()));
        if self.printing {
            let now_ns = self.now_ns.get();
            eprintln!("{:4}.{:09} {}", now_ns / 1_000_000_000, now_ns % 1_000_000_000, line());
        }
    }

    /// Hash of all that happened.
    pub(crate) fn hash(&self) -> u64 {
        self.hash.get()
    }
}

/// A hash of `bytes`, for [`Verdict::event`].
pub(crate) fn digest(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let start = words.iter().fold(bytes.len() as u64, |hash, word| {
        (hash ^ u64::from_le_bytes(*word)).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29)
    });
    mix(rest.iter().fold(start, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3)))
}
