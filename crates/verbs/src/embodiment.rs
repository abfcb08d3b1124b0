//! What carries out a program's verbs (docs/rnic.md: the contract has several embodiments).

use etherslot_netio::{Address, Port};
use etherslot_rdma::{
    Attributes, BLOCK_BYTES, ControlError, CqId, Cqe, Event, Init, Memory, Notice, Pd, PeerId, PostError,
    Qpn, ReceiveWork, Region, SendWork, SrqId, State,
};
use etherslot_rnic::Rnic;
use etherslot_vfio::{Dma, Mapping};

use crate::function::Function;

/// How many there may be of everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Most {
    /// QPs.
    pub qps: u32,
    /// CQs.
    pub cqs: u32,
    /// SRQs.
    pub srqs: u32,
    /// Regions and windows, together.
    pub stags: u32,
    /// Reads and Atomics of a QP under way.
    pub reads: u8,
    /// Whether atomics are such with respect to the processor, too.
    pub are_global: bool,
}

/// The engine in the program's process.
#[derive(Debug)]
pub struct InProcess {
    /// The engine and its peers.
    pub rnic: Rnic<Address>,
    /// What it is made with.
    pub most: Most,
    pub(crate) port: LockedPort,
}

pub(crate) struct LockedPort(pub(crate) Box<dyn Port + Send>);

impl std::fmt::Debug for LockedPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.address().fmt(f)
    }
}

/// The RNIC of a program.
#[derive(Debug)]
pub enum Embodiment {
    /// The engine.
    Process(Box<InProcess>),
    /// A Function.
    Function(Box<Function>),
}

impl Embodiment {
    /// The engine, if it is that.
    pub fn process(&mut self) -> Option<&mut Rnic<Address>> {
        match self {
            Self::Process(process) => Some(&mut process.rnic),
            Self::Function(_) => None,
        }
    }

    /// How many there may be of everything.
    pub fn most(&self) -> Most {
        match self {
            Self::Process(process) => process.most,
            Self::Function(function) => {
                let limits = function.limits();
                Most {
                    qps: limits.qps,
                    cqs: limits.cqs,
                    srqs: limits.srqs,
                    stags: limits.stags,
                    reads: limits.ord.min(limits.ird),
                    are_global: false,
                }
            }
        }
    }

    /// What memory has to be mapped with before it is registered; none if it has not to be.
    pub fn dma(&self) -> Option<&Dma> {
        match self {
            Self::Process(_) => None,
            Self::Function(function) => Some(function.dma()),
        }
    }

    /// Takes what has come; whether anything had.
    #[inline]
    pub(crate) fn receive<M: Memory>(&mut self, now_ns: u64, memory: &mut M) -> bool {
        match self {
            Self::Process(process) => {
                let InProcess { rnic, port, .. } = &mut **process;
                port.0.tick(now_ns);
                port.0.receive(&mut |from, frame| rnic.receive(now_ns, from, frame, memory)) > 0
            }
            Self::Function(function) => function.receive(),
        }
    }

    /// Lets leave what can.
    #[inline]
    pub(crate) fn transmit<M: Memory>(&mut self, now_ns: u64, memory: &mut M) -> bool {
        match self {
            Self::Process(process) => {
                let InProcess { rnic, port, .. } = &mut **process;
                rnic.transmit(now_ns, memory, &mut |to, frames| port.0.send(to, frames))
            }
            Self::Function(function) => {
                function.ring();
                false
            }
        }
    }

    /// Tells of what was posted to receive queues. Work that is to be sent has [`crate::device::Device::act`].
    #[inline]
    pub fn ring(&mut self) {
        if let Self::Function(function) = self {
            function.ring();
        }
    }

    /// Whether the caller may sleep until there is something to be received; false: there is already.
    #[inline]
    pub(crate) fn before_sleep(&mut self) -> bool {
        match self {
            Self::Process(process) => process.port.0.before_sleep(),
            Self::Function(_) => true,
        }
    }

    /// Whether something could not leave because the Port had no room.
    #[inline]
    pub(crate) fn is_blocked(&self) -> bool {
        matches!(self, Self::Process(process) if process.rnic.is_blocked())
    }

    /// When [`Embodiment::transmit`] is to be called, if nothing comes before.
    #[inline]
    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        match self {
            Self::Process(process) => process.rnic.deadline_ns(),
            Self::Function(_) => None,
        }
    }

    /// The peer at this address.
    pub fn peer(&mut self, now_ns: u64, address: Address) -> Option<PeerId> {
        match self {
            Self::Process(process) => process.rnic.peer(now_ns, address),
            Self::Function(function) => function.peer(&address),
        }
    }

    /// Where a peer is, or was.
    #[inline]
    pub fn address(&self, peer: PeerId) -> Option<Address> {
        match self {
            Self::Process(process) => process.rnic.address(peer),
            Self::Function(function) => function.address(peer),
        }
    }

    /// Registers a region; `mapping` keeps its memory mapped for a Function ([`Embodiment::dma`]).
    pub fn register(&mut self, region: &Region<'_>, mapping: Option<Mapping>) -> Result<u32, ControlError> {
        match self {
            Self::Process(process) => process.rnic.engine.register(region),
            Self::Function(function) => function.register(region, mapping),
        }
    }

    /// Takes completions.
    #[inline]
    pub fn poll(&mut self, cq: CqId, out: &mut [Cqe]) -> usize {
        match self {
            Self::Process(process) => process.rnic.engine.poll(cq, out),
            Self::Function(function) => function.poll(cq, out),
        }
    }

    /// [`etherslot_rdma::Engine::arm_for_untold`]. A Function tells again of what was told and not taken.
    pub fn arm_for_untold(&mut self, cq: CqId, solicited_only: bool) {
        match self {
            Self::Process(process) => process.rnic.engine.arm_for_untold(cq, solicited_only),
            Self::Function(function) => function.arm(cq, solicited_only),
        }
    }

    /// Changes the state of a QP.
    pub fn modify_qp(&mut self, qp: Qpn, state: State, attributes: &Attributes) -> Result<(), ControlError> {
        match self {
            Self::Process(process) => process.rnic.engine.modify_qp(qp, state, Some(attributes)),
            Self::Function(function) => function.modify_qp(qp, state, attributes),
        }
    }

    /// The state of a QP.
    pub fn state(&mut self, qp: Qpn) -> Option<State> {
        match self {
            Self::Process(process) => process.rnic.engine.state(qp),
            Self::Function(function) => function.state(qp),
        }
    }

    /// Removes a window.
    pub fn free_window(&mut self, stag: u32) -> Result<(), ControlError> {
        match self {
            Self::Process(process) => process.rnic.engine.free_window(stag),
            Self::Function(function) => function.deregister(stag),
        }
    }

    /// Posts a send work request.
    #[inline]
    pub fn post_send(&mut self, qp: Qpn, work: &SendWork<'_>) -> Result<(), PostError> {
        match self {
            Self::Process(process) => {
                let mut wqe = [0; SendWork::MAX_BYTES];
                let length = work.emit(&mut wqe).ok_or(PostError::Malformed)?;
                process.rnic.engine.post_send(qp, &wqe[..length])
            }
            Self::Function(function) => function.post_send(qp, work),
        }
    }

    /// AOTF: prepares a header, a Write or Send with 8 inline bytes.
    pub fn prepare(&mut self, qp: Qpn, place: usize, work: &SendWork<'_>) -> Result<(), ControlError> {
        match self {
            Self::Process(process) => {
                let mut block = [0; BLOCK_BYTES];
                work.emit(&mut block).ok_or(ControlError::Invalid)?;
                process.rnic.engine.prepare(qp, place, &block)
            }
            Self::Function(function) => function.prepare(qp, place, work),
        }
    }

    /// AOTF: sends a header with these 8 bytes.
    #[inline]
    pub fn store(&mut self, qp: Qpn, place: usize, value: u64) -> Result<(), PostError> {
        match self {
            Self::Process(process) => process.rnic.engine.store(qp, place, value),
            Self::Function(function) => function.store(qp, place, value),
        }
    }

    /// BOTF: sends a whole WQE; one of a Function is refused, whose driver makes its WQEs itself.
    #[inline]
    pub fn kick(&mut self, qp: Qpn, wqe: &[u8]) -> Result<(), PostError> {
        match self {
            Self::Process(process) => process.rnic.engine.kick(qp, wqe),
            Self::Function(_) => Err(PostError::Malformed),
        }
    }

    /// Posts a receive work request; [`Embodiment::ring`] is to follow.
    #[inline]
    pub fn post_receive(&mut self, qp: Qpn, work: &ReceiveWork<'_>) -> Result<(), PostError> {
        match self {
            Self::Process(process) => {
                let mut wqe = [0; ReceiveWork::MAX_BYTES];
                let length = work.emit(&mut wqe).ok_or(PostError::Malformed)?;
                process.rnic.engine.post_receive(qp, &wqe[..length])
            }
            Self::Function(function) => function.post_receive(qp, work),
        }
    }

    /// The same, to an SRQ.
    #[inline]
    pub fn post_srq(&mut self, srq: SrqId, work: &ReceiveWork<'_>) -> Result<(), PostError> {
        match self {
            Self::Process(process) => {
                let mut wqe = [0; ReceiveWork::MAX_BYTES];
                let length = work.emit(&mut wqe).ok_or(PostError::Malformed)?;
                process.rnic.engine.post_srq(srq, &wqe[..length])
            }
            Self::Function(function) => function.post_srq(srq, work),
        }
    }
}

/// What both have by the same name.
macro_rules! both {
    ($($(#[$doc:meta])* $name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        impl Embodiment {
            $($(#[$doc])* #[inline] pub fn $name(&mut self, $($argument: $type),*) -> $result {
                match self {
                    Self::Process(process) => process.rnic.engine.$name($($argument),*),
                    Self::Function(function) => function.$name($($argument),*),
                }
            })*
        }
    };
}

both! {
    /// Removes a region.
    deregister(stag: u32) -> Result<(), ControlError>;
    /// Makes a window that is not bound.
    allocate_window(pd: Pd) -> Result<u32, ControlError>;
    /// Makes a CQ.
    create_cq(cqes: usize) -> Result<CqId, ControlError>;
    /// Removes a CQ that no QP has.
    destroy_cq(cq: CqId) -> Result<(), ControlError>;
    /// Gives a CQ room for at least so many CQEs.
    resize_cq(cq: CqId, cqes: usize) -> Result<(), ControlError>;
    /// The next CQ that was armed and has something.
    next_notice() -> Option<Notice>;
    /// The next event.
    next_event() -> Option<Event>;
    /// Makes an SRQ of so many blocks.
    create_srq(pd: Pd, blocks: usize) -> Result<SrqId, ControlError>;
    /// Sets the limit of an SRQ.
    set_srq_limit(srq: SrqId, limit: u32) -> Result<(), ControlError>;
    /// Removes an SRQ that no QP has.
    destroy_srq(srq: SrqId) -> Result<(), ControlError>;
    /// Makes a QP, in RESET.
    create_qp(init: &Init) -> Result<Qpn, ControlError>;
    /// Removes a QP.
    destroy_qp(qp: Qpn) -> Result<(), ControlError>;
}
