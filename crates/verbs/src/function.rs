//! An RNIC that is a PCI Function, which this process has by VFIO: the driver of `etherslot_initiator`, over BARs that are mapped here.
//!
//! What the driver orders is carried out before a call returns, as verbs want it. The Function goes on by itself: nothing has to be done
//! for it but to look what its interrupts tell.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use etherslot_initiator::rnic::{self as driver, Device, Driver, Failure, Limits, Place, Ticket, bar};
use etherslot_netio::Address;
use etherslot_rdma::{
    Attributes, ControlError, CqId, Cqe, Event, Init, Notice, Pd, PeerId, PostError, Qpn, ReceiveWork,
    Region, SendWork, SrqId, State, Whereabouts,
};
use etherslot_vfio::{self as vfio, Arena, Dma, MapError, Mapping};
use rustix::event::{EventfdFlags, eventfd};

use crate::place;

/// The IDs of the Function (docs/rnic.md, section 17).
const VENDOR: u16 = 0xE510;
const DEVICE: u16 = 0x0002;
/// Memory for the queues of a process.
const ARENA_BYTES: usize = 16 << 20;
/// The vector of all CQs. Vector 0 is that of events.
const CQ_VECTOR: u16 = 1;
/// How long the RNIC may take for an order. It is far more than the host node gives a register.
const PATIENCE: Duration = Duration::from_secs(10);
/// Of a CQ's entry.
const ARMED: u64 = 1 << 1;
/// CONTROL, and its RESET.
const CONTROL: u64 = 0x008;
const RESET: u32 = 2;

/// Why a Function can't be the device.
#[derive(Debug, thiserror::Error)]
pub enum FunctionError {
    /// It can't be had.
    #[error(transparent)]
    Open(#[from] vfio::OpenError),
    /// Its memory can't be had.
    #[error("the memory that the RNIC works on can't be mapped: {0}")]
    Map(#[from] MapError),
    /// It is none that can be used.
    #[error("{address}: {failure}")]
    Failure {
        /// The Function.
        address: String,
        /// Why.
        failure: Failure,
    },
    /// It does not answer.
    #[error("the RNIC {0} does not answer: has its box gone?")]
    Silent(String),
    /// Programs can't be told where it is.
    #[error(
        "the RNIC {address} is at {place}: verbs programs need one whose link is udp:ADDRESS:PORT, an IPv4 address and a port from {first} to {last}",
        first = place::FIRST_PORT,
        last = place::FIRST_PORT + place::SLOTS as u16 - 1
    )]
    Place {
        /// The Function.
        address: String,
        /// Where.
        place: String,
    },
    /// The system.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// The BARs and the memory, as the driver sees them.
#[derive(Debug)]
struct Mapped {
    // First: it is taken from the Function before that goes.
    arena: Arena,
    function: vfio::Function,
    answer: Option<u64>,
}

impl Device for Mapped {
    fn write(&mut self, bar: u8, offset: u32, data: &[u8]) -> bool {
        let written = self.function.bar(bar).is_some_and(|bar| bar.write(u64::from(offset), data));
        debug_assert!(written, "the driver writes registers that there are");
        true
    }

    fn ask(&mut self, bar: u8, offset: u32, bytes: u16) -> bool {
        self.answer = Some(self.read(bar, offset, bytes));
        true
    }

    fn answer(&mut self) -> Option<u64> {
        self.answer.take()
    }

    fn store(&mut self, address: u64, data: &[u8]) {
        let stored = self.arena.store(address, data);
        debug_assert!(stored, "the driver stays in its memory");
    }

    fn load(&self, address: u64, data: &mut [u8]) {
        let loaded = self.arena.load(address, data);
        debug_assert!(loaded, "the driver stays in its memory");
    }
}

impl Mapped {
    /// Reads a register of 4 or 8 bytes; all ones if it is gone.
    fn read(&self, bar: u8, offset: u32, bytes: u16) -> u64 {
        let Some(bar) = self.function.bar(bar) else { return u64::MAX };
        if bytes == 4 { u64::from(bar.read_u32(offset.into())) } else { bar.read_u64(offset.into()) }
    }
}

/// The RNIC.
#[derive(Debug)]
pub struct Function {
    driver: Driver,
    /// Memory of the program's, by the index of its STag.
    regions: HashMap<u32, Mapping>,
    mapped: Mapped,
    /// All vectors count here.
    interrupts: OwnedFd,
    /// CQs that are to tell, and those that have told.
    armed: Vec<CqId>,
    notices: VecDeque<Notice>,
    ip: Ipv4Addr,
    slot: u8,
    /// The peers, by the numbers of their sessions, which are those in the peer table.
    peers: Vec<Option<Address>>,
    /// It has not answered within [`PATIENCE`].
    is_lost: bool,
}

/// The RNICs that programs may have here: PCI Functions whose driver is `vfio-pci`, by their addresses.
pub fn find() -> Vec<String> {
    let found = vfio::find(VENDOR, DEVICE).unwrap_or_default();
    let is_free = |driven: &vfio::Driven| driven.driver.as_deref() == Some("vfio-pci");
    found.into_iter().filter(is_free).map(|driven| driven.address).collect()
}

/// What a node's entry says, if it is what verbs programs can be told of.
fn ipv4(place: Whereabouts) -> Option<(Ipv4Addr, u16)> {
    match place {
        Whereabouts::Udp { ip, port } => Some((ip.to_ipv4_mapped().filter(|ip| !ip.is_unspecified())?, port)),
        Whereabouts::Untold | Whereabouts::Ethernet(_) => None,
    }
}

fn told(place: Whereabouts) -> String {
    match place {
        Whereabouts::Untold => "no address that it tells".to_owned(),
        Whereabouts::Udp { ip, port } => {
            let ip = ip.to_ipv4_mapped().map_or(IpAddr::V6(ip), IpAddr::V4);
            SocketAddr::new(ip, port).to_string()
        }
        Whereabouts::Ethernet(mac) => Address::Mac(mac).to_string(),
    }
}

impl Function {
    /// Takes the Function at this address.
    pub fn open(address: &str) -> Result<Self, FunctionError> {
        let function = vfio::Function::open(address)?;
        let failed = |failure| FunctionError::Failure { address: address.to_owned(), failure };
        if [bar::REGISTERS, bar::PAGES, bar::TABLES].iter().any(|&bar| function.bar(bar).is_none()) {
            return Err(failed(Failure::Bars));
        }
        let arena = Arena::new(function.dma(), ARENA_BYTES)?;
        let memory = Place { address: arena.address(), bytes: ARENA_BYTES };
        let interrupts =
            eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(std::io::Error::from)?;
        function.set_interrupts(&[interrupts.as_fd(), interrupts.as_fd()])?;
        let mut this = Self {
            driver: Driver::new(memory),
            regions: HashMap::new(),
            mapped: Mapped { arena, function, answer: None },
            interrupts,
            armed: Vec::new(),
            notices: VecDeque::new(),
            ip: Ipv4Addr::UNSPECIFIED,
            slot: 0,
            peers: Vec::new(),
            is_lost: false,
        };
        this.driver.begin_numbers_at(RandomState::new().hash_one(address) as u16);
        this.driver.attach();
        this.drive_until(|driver| driver.is_ready() || driver.failure().is_some());
        if let Some(failure) = this.driver.failure() {
            return Err(failed(failure));
        }
        if !this.driver.is_ready() {
            return Err(FunctionError::Silent(address.to_owned()));
        }
        let own = this.whereabouts(None);
        let slot = ipv4(own).and_then(|(ip, port)| Some((ip, place::slot(port)?)));
        (this.ip, this.slot) =
            slot.ok_or_else(|| FunctionError::Place { address: address.to_owned(), place: told(own) })?;
        let sessions = this.driver.limits().sessions.min(this.driver.limits().peers) as u16;
        for session in 0..sessions {
            let peer = ipv4(this.whereabouts(Some(session)));
            let peer = peer.map(|(ip, port)| Address::Udp(SocketAddr::new(ip.into(), port)));
            this.peers.push(peer);
            // All of them, from the beginning: datagrams come from peers that were not asked for.
            if let Some(address) = peer {
                let known = this.driver.set_peer(PeerId(session), session, &place::grh(&address, this.ip));
                debug_assert!(known.is_ok(), "there are as many peers");
            }
        }
        this.flush();
        Ok(this)
    }

    /// Its IPv4 address.
    pub fn ip(&self) -> Ipv4Addr {
        self.ip
    }

    /// Its slot ([`place`]).
    pub fn slot(&self) -> u8 {
        self.slot
    }

    /// Readable when there is something for [`Function::receive`].
    pub fn interrupts(&self) -> &OwnedFd {
        &self.interrupts
    }

    /// What it has.
    pub fn limits(&self) -> &Limits {
        self.driver.limits()
    }

    /// What it reaches of the process's memory.
    pub fn dma(&self) -> &Dma {
        self.mapped.function.dma()
    }

    fn whereabouts(&self, session: Option<u16>) -> Whereabouts {
        let Some(at) = self.driver.session_entry(session) else { return Whereabouts::Untold };
        let mut entry = [0; Whereabouts::BYTES];
        for (offset, word) in (at..).step_by(8).zip(entry.as_chunks_mut::<8>().0) {
            *word = self.mapped.read(bar::TABLES, offset, 8).to_le_bytes();
        }
        Whereabouts::parse(&entry)
    }

    /// Lets the driver go on until that holds, or the RNIC is given up.
    fn drive_until(&mut self, mut is_done: impl FnMut(&mut Driver) -> bool) {
        let begun = Instant::now();
        while !self.is_lost && !is_done(&mut self.driver) {
            if !self.driver.drive(&mut self.mapped) || begun.elapsed() > PATIENCE {
                self.is_lost = begun.elapsed() > PATIENCE;
                std::thread::yield_now();
            }
        }
        if self.is_lost {
            eprintln!("etherslot verbs: the RNIC {} does not answer", self.mapped.function.address());
        }
    }

    /// Waits for the end of an order.
    fn settle(&mut self, ticket: Ticket) -> Result<(), ControlError> {
        let mut done = None;
        self.drive_until(|driver| {
            while let Some(outcome) = driver.next_outcome() {
                if outcome.ticket == ticket {
                    done = Some(outcome.done);
                }
            }
            done.is_some()
        });
        // The doorbells of CQs and SRQs may have waited for a QP.
        self.ring();
        match done {
            Some(true) => Ok(()),
            Some(false) => Err(ControlError::Invalid),
            None => Err(ControlError::Unknown),
        }
    }

    /// What has been ordered without an answer goes out.
    fn flush(&mut self) {
        self.driver.ring(&mut self.mapped);
    }

    /// Rings the doorbells of all that was posted.
    pub fn ring(&mut self) {
        self.driver.ring(&mut self.mapped);
    }

    /// Looks what interrupts tell; whether there were any.
    pub fn receive(&mut self) -> bool {
        if rustix::io::read(&self.interrupts, &mut [0_u8; 8]).is_err() {
            return false;
        }
        self.driver.fetch_events();
        self.drive_until(|driver| driver.is_idle());
        let Self { driver, mapped, armed, notices, .. } = self;
        armed.retain(|&cq| {
            let is_armed = mapped.read(bar::TABLES, driver.cq_entry(cq), 4) & ARMED != 0;
            if !is_armed {
                notices.push_back(Notice(cq));
            }
            is_armed
        });
        true
    }

    /// The peer at this address, if the box has a session with it.
    pub fn peer(&self, address: &Address) -> Option<PeerId> {
        let session = self.peers.iter().position(|peer| peer.as_ref() == Some(address));
        if session.is_none() {
            eprintln!(
                "etherslot verbs: the RNIC {} has no session with {address}: its box's configuration has to name it among `peers`",
                self.mapped.function.address()
            );
        }
        session.map(|session| PeerId(session as u16))
    }

    /// Where a peer is.
    pub fn address(&self, peer: PeerId) -> Option<Address> {
        *self.peers.get(usize::from(peer.0))?
    }

    // --- As `etherslot_rdma::Engine` has them ---

    /// Registers memory that is mapped for the Function, where `region` says.
    pub fn register(&mut self, region: &Region<'_>, mapping: Option<Mapping>) -> Result<u32, ControlError> {
        let stag = self.driver.register(region)?;
        self.flush();
        if let Some(mapping) = mapping {
            self.regions.insert(stag >> 8, mapping);
        }
        Ok(stag)
    }

    /// Removes a region or a window. Its memory is the program's alone then.
    pub fn deregister(&mut self, stag: u32) -> Result<(), ControlError> {
        // How many windows are bound to it.
        if self.mapped.read(bar::TABLES, self.driver.stag_entry(stag) + 52, 4) != 0 {
            return Err(ControlError::InUse);
        }
        let ticket = self.driver.deregister(stag)?;
        let settled = self.settle(ticket);
        self.regions.remove(&(stag >> 8));
        settled
    }

    /// [`Driver::allocate_window`].
    pub fn allocate_window(&mut self, pd: Pd) -> Result<u32, ControlError> {
        let stag = self.driver.allocate_window(pd)?;
        self.flush();
        Ok(stag)
    }

    /// [`Driver::create_cq`].
    pub fn create_cq(&mut self, cqes: usize) -> Result<CqId, ControlError> {
        let cq = self.driver.create_cq(&mut self.mapped, cqes, CQ_VECTOR)?;
        self.flush();
        Ok(cq)
    }

    /// [`Driver::destroy_cq`].
    pub fn destroy_cq(&mut self, cq: CqId) -> Result<(), ControlError> {
        self.driver.destroy_cq(cq)?;
        self.armed.retain(|&other| other != cq);
        self.notices.retain(|&Notice(other)| other != cq);
        self.flush();
        Ok(())
    }

    /// A CQ has the room that it was made with.
    pub fn resize_cq(&mut self, cq: CqId, cqes: usize) -> Result<(), ControlError> {
        if (1..=self.driver.cqes(cq)).contains(&cqes) { Ok(()) } else { Err(ControlError::Invalid) }
    }

    /// Takes completions.
    pub fn poll(&mut self, cq: CqId, out: &mut [Cqe]) -> usize {
        let count = self.driver.poll_cq(&self.mapped, cq, out);
        if count > 0 {
            self.ring();
        }
        count
    }

    /// Asks for a notice ([`Function::next_notice`]).
    pub fn arm(&mut self, cq: CqId, solicited_only: bool) {
        self.driver.arm(cq, solicited_only);
        if !self.armed.contains(&cq) {
            self.armed.push(cq);
        }
        self.ring();
    }

    /// The next CQ that was armed and has something.
    pub fn next_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    /// The next event.
    pub fn next_event(&mut self) -> Option<Event> {
        self.driver.next_event()
    }

    /// [`Driver::create_srq`].
    pub fn create_srq(&mut self, pd: Pd, blocks: usize) -> Result<SrqId, ControlError> {
        let srq = self.driver.create_srq(&mut self.mapped, pd, blocks, 0)?;
        self.flush();
        Ok(srq)
    }

    /// [`Driver::set_srq_limit`].
    pub fn set_srq_limit(&mut self, srq: SrqId, limit: u32) -> Result<(), ControlError> {
        let limit = u16::try_from(limit).map_err(|_| ControlError::Invalid)?;
        self.driver.set_srq_limit(srq, limit)?;
        self.flush();
        Ok(())
    }

    /// [`Driver::destroy_srq`].
    pub fn destroy_srq(&mut self, srq: SrqId) -> Result<(), ControlError> {
        self.driver.destroy_srq(srq)?;
        self.flush();
        Ok(())
    }

    /// [`Driver::create_qp`].
    pub fn create_qp(&mut self, init: &Init) -> Result<Qpn, ControlError> {
        self.driver.create_qp(&mut self.mapped, init)
    }

    /// Changes the state of a QP.
    pub fn modify_qp(&mut self, qp: Qpn, state: State, attributes: &Attributes) -> Result<(), ControlError> {
        let ticket = self.driver.modify_qp(qp, state, attributes)?;
        self.settle(ticket)
    }

    /// The state of a QP.
    pub fn state(&mut self, qp: Qpn) -> Option<State> {
        let status = self.driver.status_register(qp)?;
        State::from_number(self.mapped.read(bar::PAGES, status, 8) as u8 & 0xF)
    }

    /// [`Driver::destroy_qp`].
    pub fn destroy_qp(&mut self, qp: Qpn) -> Result<(), ControlError> {
        let ticket = self.driver.destroy_qp(qp)?;
        self.settle(ticket)
    }

    /// [`Driver::post_send`].
    pub fn post_send(&mut self, qp: Qpn, work: &SendWork<'_>) -> Result<(), PostError> {
        self.driver.post_send(&mut self.mapped, qp, work)
    }

    /// [`Driver::prepare`].
    pub fn prepare(&mut self, qp: Qpn, place: usize, work: &SendWork<'_>) -> Result<(), ControlError> {
        self.driver.prepare(&mut self.mapped, qp, place, work)
    }

    /// [`Driver::store`].
    pub fn store(&mut self, qp: Qpn, place: usize, value: u64) -> Result<(), PostError> {
        self.driver.store(&mut self.mapped, qp, place, value)
    }

    /// [`Driver::post_receive`].
    pub fn post_receive(&mut self, qp: Qpn, work: &ReceiveWork<'_>) -> Result<(), PostError> {
        self.driver.post_receive(&mut self.mapped, qp, work)
    }

    /// [`Driver::post_srq`].
    pub fn post_srq(&mut self, srq: SrqId, work: &ReceiveWork<'_>) -> Result<(), PostError> {
        self.driver.post_srq(&mut self.mapped, srq, work)
    }
}

impl Drop for Function {
    fn drop(&mut self) {
        // Nothing of the process's memory is used behind this; the read waits for it.
        if let Some(registers) = self.mapped.function.bar(driver::bar::REGISTERS) {
            registers.write(CONTROL, &RESET.to_le_bytes());
            let _ = registers.read_u32(CONTROL);
        }
    }
}
