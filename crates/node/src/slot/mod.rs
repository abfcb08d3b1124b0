//! One slot of a host node: a remote Function, seen from its Root Complex.
//!
//! Downwards: the guest's accesses become Requests, in the order in which the guest made them. Upwards: the Function's
//! Memory Writes go to guest memory, its Memory Reads are answered from there, its messages become interrupts. A slot
//! outlives the box: what the guest wrote is kept, and written again when the Function comes back.

mod accesses;
mod ahead;
mod outgoing;
mod reach;
mod setup;
mod upstream;

use std::collections::VecDeque;

use etherslot_pci::requester::{Requester, RequesterConfig};
use etherslot_wire::control::{AttachStatus, Name};
use etherslot_wire::tlp::Header;
use etherslot_wire::{FunctionId, record};

use ahead::ReadAhead;

use crate::bring_up::{BringUp, function_below};
use crate::guest_config::{GuestConfig, RegisterWrite};
use crate::host_api::{Guest, Interrupt, Interrupts};

/// Where the Function's MSIs and MSI-X messages go: an address that no guest gives to a device.
const MESSAGE_ADDRESS: u64 = 0xFFFF_FFFF_FEE0_0000;
/// The host node's ID as Requester: the Root Complex of the session's hierarchy.
const ROOT: FunctionId = FunctionId::new(0, 0, 0);
/// The most data of one TLP either way; the host node's Root Complex takes any size.
pub const MAX_PAYLOAD_BYTES: u16 = 4096;
/// Guest accesses under way at once.
const ACCESSES: usize = 8;
/// Requests that may wait to be sent before further accesses are refused: more than one access or one set-up of all
/// interrupts (of up to 2048 vectors) brings.
const OUTGOING: usize = 4096;
/// The longest guest access, bytes.
const ACCESS_BYTES: usize = 4096;
/// A guest's access ends after this, with all ones if need be: QEMU gives up after 5 s.
const ACCESS_TIMEOUT_NS: u64 = 1_000_000_000;
/// Posted writes that cannot leave for this long are dropped: what waits behind them would be late.
const BLOCKED_NS: u64 = 1_000_000_000;
const COMPLETION_TIMEOUT_NS: u64 = 900_000_000;
const QUARANTINE_NS: u64 = 5_000_000_000;
const ATTACH_RETRY_NS: u64 = 1_000_000_000;
/// Memory Reads of the Function that wait for an answer; it has at most 1024 Tags.
const WAITING_READS: usize = 1024;

/// What a slot has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotCounters {
    /// Memory Writes applied to guest memory.
    pub dma_writes: u64,
    /// Bytes of them.
    pub dma_write_bytes: u64,
    /// Memory Reads answered from guest memory.
    pub dma_reads: u64,
    /// Bytes of them.
    pub dma_read_bytes: u64,
    /// Interrupt messages.
    pub interrupts: u64,
    /// Requests to memory that is not there or not permitted.
    pub dma_faults: u64,
    /// Requests of the Function dropped because it was being reset.
    pub silenced: u64,
    /// TLPs that broke a rule of the specification.
    pub malformed: u64,
    /// TLPs whose Requester ID is not the Function's.
    pub foreign: u64,
    /// Poisoned writes, not applied.
    pub poisoned: u64,
    /// Requests of a kind this Root Complex does not take.
    pub unsupported: u64,
    /// Completions that nobody asked for, or that came too late.
    pub unexpected_completions: u64,
    /// Guest accesses that the device did not answer in time.
    pub access_timeouts: u64,
    /// Error messages of the Function (`ERR_COR`, `ERR_NONFATAL`, `ERR_FATAL`).
    pub error_messages: u64,
    /// Guest accesses, configuration and BAR.
    pub accesses: u64,
    /// Posted writes of the guest dropped because the device was lost or stuck.
    pub lost_writes: u64,
    /// Pieces of memory sent along with doorbells.
    pub ahead_pieces: u64,
    /// Bytes of them.
    pub ahead_bytes: u64,
    /// Rules of read-ahead that asked for what can't be.
    pub ahead_refused: u64,
}

#[derive(Debug)]
enum State {
    /// No session, or not asked for yet.
    Detached,
    /// Asked for; ask again at this time.
    Attaching { retry_at_ns: u64 },
    /// Being enumerated.
    BringUp(BringUp),
    /// In use.
    Ready,
    /// Ours, but another kind of device than the guest knows.
    Strange,
    /// Being given back; whether the box has been told.
    Detaching { told: bool },
}

/// Why a Request was sent.
#[derive(Clone, Copy, Debug)]
enum Purpose {
    BringUp { number: u16 },
    Access { index: u8, generation: u32 },
    Own,
}

/// Something that waits to be sent, in order.
#[derive(Clone, Copy, Debug)]
enum Outgoing {
    CfgWrite {
        target: FunctionId,
        write: RegisterWrite,
        purpose: Purpose,
    },
    MemWrite {
        address: u64,
        data: [u8; 16],
    },
    /// A doorbell of the guest whose pieces took all the room.
    Doorbell {
        address: u64,
        data: [u8; 4],
    },
    /// The rest of a guest's read.
    Read {
        index: u8,
        generation: u32,
    },
    HotReset,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AccessKind {
    Free,
    ConfigRead { offset: u16 },
    ConfigWrite,
    BarRead { address: u64 },
    Reset,
}

#[derive(Debug)]
struct Access {
    id: u64,
    kind: AccessKind,
    generation: u32,
    bytes: u16,
    issued: u16,
    /// Bytes of a read, or Requests of a write, that have been answered.
    done: u16,
    deadline_ns: u64,
    data: Box<[u8; ACCESS_BYTES]>,
}

#[derive(Clone, Copy, Debug)]
struct WaitingRead {
    header: Header,
    /// Bytes of it that have been answered.
    sent: u16,
    supported: bool,
}

/// A slot.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) name: Name,
    pub(crate) stream: u16,
    pub(crate) counters: SlotCounters,
    index: usize,
    /// Of TLPs, granted to the Function and kept to here.
    max_payload_bytes: u16,
    hide_msix: bool,
    /// The address space that the Function shares with others, if not 0.
    pub(crate) domain: u16,
    /// The box has not been told.
    is_domain_due: bool,
    state: State,
    /// When [`Slot::poll`] was last called: what was due by then and did not happen waits for room or answers.
    polled_ns: u64,
    port: FunctionId,
    function: FunctionId,
    requester: Requester<Purpose>,
    config: Option<GuestConfig>,
    /// What the guest has set up.
    interrupts: Interrupts,
    /// What the Function's interrupt capabilities hold, or will with what is in `outgoing`.
    interrupts_told: Interrupts,
    intx: bool,
    /// A Hot Reset is on its way; nothing follows it before its answer, since the box takes up messages later than TLPs.
    resetting: bool,
    /// A reset was asked for and is not done: what the Function still sends is from before it, and may be meant for a
    /// guest that is gone.
    silenced: bool,
    /// Since when posted writes cannot be taken.
    blocked_since_ns: Option<u64>,
    /// That is so long that they are dropped rather than kept waiting.
    gave_up: bool,
    /// The box wants the Function back.
    recalled: bool,
    /// Why the box did not give the Function the last time.
    refused: Option<AttachStatus>,
    outgoing: VecDeque<Outgoing>,
    accesses: [Access; ACCESSES],
    reads: VecDeque<WaitingRead>,
    ahead: ReadAhead,
    reaches: reach::Reaches,
}

impl Slot {
    pub(crate) fn new(index: usize, name: Name, stream: u16, hide_msix: bool) -> Self {
        let access = |_| Access {
            id: 0,
            kind: AccessKind::Free,
            generation: 0,
            bytes: 0,
            issued: 0,
            done: 0,
            deadline_ns: 0,
            data: Box::new([0xFF; ACCESS_BYTES]),
        };
        let requester = RequesterConfig {
            tags: 256,
            completion_timeout_ns: COMPLETION_TIMEOUT_NS,
            quarantine_ns: QUARANTINE_NS,
        };
        Self {
            name,
            stream,
            counters: SlotCounters::default(),
            index,
            max_payload_bytes: MAX_PAYLOAD_BYTES,
            hide_msix,
            domain: 0,
            is_domain_due: false,
            state: State::Detached,
            polled_ns: 0,
            port: FunctionId::default(),
            function: FunctionId::default(),
            requester: Requester::new(requester),
            config: None,
            interrupts: Interrupts::Legacy,
            interrupts_told: Interrupts::Legacy,
            intx: false,
            resetting: false,
            silenced: false,
            blocked_since_ns: None,
            gave_up: false,
            recalled: false,
            refused: None,
            outgoing: VecDeque::with_capacity(64),
            accesses: std::array::from_fn(access),
            reads: VecDeque::with_capacity(WAITING_READS),
            ahead: ReadAhead::default(),
            reaches: reach::Reaches::default(),
        }
    }

    /// To be said before the Function is attached. A power of two from 128 to [`MAX_PAYLOAD_BYTES`].
    pub(crate) fn set_max_payload(&mut self, bytes: u16) {
        self.max_payload_bytes = bytes;
    }

    /// The session to the box is up: the Function is to be asked for.
    pub(crate) fn session_up(&mut self) {
        self.state = State::Attaching { retry_at_ns: 0 };
        self.recalled = false;
    }

    /// Has nothing to do with its box any more, if nothing of it is left: the guest knows no Function, and no answer is awaited.
    pub(crate) fn leave(&mut self) -> bool {
        let awaits_nothing = match self.state {
            State::Detached => true,
            State::Attaching { retry_at_ns } => retry_at_ns != u64::MAX,
            State::BringUp(_) | State::Ready | State::Strange | State::Detaching { .. } => false,
        };
        if awaits_nothing && self.config.is_none() {
            self.state = State::Detached;
            (self.recalled, self.refused) = (false, None);
        }
        awaits_nothing && self.config.is_none()
    }

    /// Why the box does not give the Function.
    pub(crate) fn refusal(&self) -> Option<&'static str> {
        self.refused.filter(|_| matches!(self.state, State::Attaching { .. })).map(said)
    }

    /// The Function may be had by now.
    pub(crate) fn ask_again(&mut self) {
        if let State::Attaching { retry_at_ns } = &mut self.state
            && *retry_at_ns != u64::MAX
        {
            *retry_at_ns = 0;
        }
    }

    /// The box wants the Function back within `window_ns`; 0: it has it already.
    pub(super) fn recall(&mut self, window_ns: u64, guest: &mut dyn Guest) {
        match self.state {
            // The box's Attached, on another stream, has been overtaken.
            State::Attaching { .. } => self.recalled = true,
            State::Ready if window_ns != 0 && guest.recalled(self.index, window_ns) => self.recalled = true,
            State::Ready | State::Strange | State::BringUp(_) => self.release(guest),
            State::Detached | State::Detaching { .. } => {}
        }
    }

    /// Whether the device can be used.
    pub(crate) fn is_ready(&self) -> bool {
        matches!(self.state, State::Ready)
    }

    /// The guest may go on.
    pub(super) fn keep(&mut self, guest: &mut dyn Guest) {
        if std::mem::take(&mut self.recalled) && matches!(self.state, State::Ready) {
            guest.kept(self.index);
        }
    }

    /// Gives the Function back. What is under way ends with all ones.
    pub(crate) fn release(&mut self, guest: &mut dyn Guest) {
        if !matches!(self.state, State::BringUp(_) | State::Ready | State::Strange) {
            return;
        }
        let was_ready = matches!(self.state, State::Ready);
        self.recalled = false;
        self.state = State::Detaching { told: false };
        self.forget(guest);
        tracing::info!(device = self.name.as_str(), "device given back");
        if was_ready {
            guest.lost(self.index);
        }
    }

    pub(crate) fn is_strange(&self) -> bool {
        matches!(self.state, State::Strange)
    }

    /// The guest has no device here any more: the next one may be of any kind.
    pub(crate) fn vacate(&mut self, now_ns: u64) {
        if matches!(self.state, State::Ready) {
            return;
        }
        self.config = None;
        if matches!(self.state, State::Strange) {
            self.state = State::BringUp(BringUp::new(self.port, now_ns));
        }
    }

    /// The session to the box is gone, and the Function with it.
    pub(crate) fn session_lost(&mut self, guest: &mut dyn Guest) {
        let was_ready = matches!(self.state, State::Ready);
        self.state = State::Detached;
        self.forget(guest);
        if was_ready {
            tracing::warn!(device = self.name.as_str(), "device lost");
            guest.lost(self.index);
        }
    }

    /// Ends all that is under way.
    fn forget(&mut self, guest: &mut dyn Guest) {
        self.requester.clear();
        self.outgoing.clear();
        self.reads.clear();
        self.ahead.clear();
        self.forget_reaches();
        self.resetting = false;
        self.silenced = false;
        for index in 0..ACCESSES {
            self.finish(index, guest);
        }
        if std::mem::take(&mut self.intx) {
            guest.interrupt(self.index, Interrupt::IntX(false));
        }
    }

    /// The box's answer to an Attach.
    pub(crate) fn attached(
        &mut self,
        now_ns: u64,
        status: AttachStatus,
        port: FunctionId,
        guest: &mut dyn Guest,
    ) {
        if !matches!(self.state, State::Attaching { .. }) {
            return;
        }
        if status == AttachStatus::Attached {
            self.port = port;
            self.function = function_below(port);
            self.state = State::BringUp(BringUp::new(port, now_ns));
            self.refused = None;
            self.is_domain_due = self.domain != 0;
            self.forget_reaches();
            if self.recalled {
                self.release(guest);
            }
        } else {
            if self.refused.replace(status) != Some(status) {
                let device = self.name.as_str();
                match status {
                    // So it is after a release, and when somebody else was quicker.
                    AttachStatus::Busy | AttachStatus::NotAssigned => {
                        tracing::info!(device, "{}; asking again", said(status));
                    }
                    _ => tracing::warn!(device, "{}; asking again", said(status)),
                }
            }
            self.recalled = false;
            self.state = State::Attaching { retry_at_ns: now_ns + ATTACH_RETRY_NS };
        }
    }
}

/// A box's answer, for people.
fn said(status: AttachStatus) -> &'static str {
    match status {
        AttachStatus::Attached => "the box has given the device",
        AttachStatus::Unknown => "the box has no such device",
        AttachStatus::Busy => "another host has the device",
        AttachStatus::NoRoom => "the box has no room for a further device of this host",
        AttachStatus::NotAssigned => "the device is assigned to another host or group, or to nobody",
    }
}

const _: () = assert!(record::MAX_PAYLOAD_BYTES >= MAX_PAYLOAD_BYTES as usize + 16);
