//! A Function as its Link sees it: a [`Function`] behind a configuration space, interrupts, a Requester and a
//! Completer.
//!
//! # Order (2.4.1)
//!
//! What is received takes effect at once and in order, so no Request passes another inwards; but a read of more
//! than 64 bytes is made when its Completions leave, so that writes behind it may pass it, as they may
//! anywhere. What is sent leaves in the order of the calls of [`TlpOut::send`], and the stream keeps it. So a
//! Completion is behind every write and Message that the Function had sent when it was made, and an interrupt
//! is behind the data that it tells of. Nothing received waits for anything to be sent: Posted Requests and
//! Completions are used up at once, and of Non-Posted Requests a bounded number is held.

mod ahead;
mod answers;
mod in_hand;
pub(crate) mod inbound;
mod outbound;

use etherslot_wire::FunctionId;
use etherslot_wire::ahead::Piece;
use etherslot_wire::tlp::{Header, Op, Routing, code};

use crate::TlpOut;
use crate::config::builder::Builder;
use crate::config::capability::{MSIX, PCI_EXPRESS, POWER_MANAGEMENT, PortType};
use crate::config::register::{self as reg, express, msix, pm};
use crate::config::{ConfigReset, ConfigSpace};
use crate::errors::{self, Error, Handling, Messages};
use crate::function::{BarKind, BarSpec, Fault, Function, FunctionSpec, InterruptMode, ResetKind};
use crate::msi::{self, MsixTable};
use crate::requester::{Requester, RequesterConfig, RequesterCounters};
use ahead::Ahead;
pub use ahead::AheadCounters;
use answers::Answers;
use in_hand::InHand;
use outbound::Outbound;

/// The least and the most that `Max_Payload_Size` and `Max_Read_Request_Size` can say, bytes.
const MIN_SIZE: u16 = 128;
const MAX_SIZE: u16 = 4096;

/// Limits of an Endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndpointConfig {
    /// Tags of its Requester, 1..=1024; more than 256 need a Root Complex that takes 10-bit Tags.
    pub tags: u16,
    /// Completion Timeout while the driver leaves its value at the default, ns.
    pub completion_timeout_ns: u64,
    /// How long a Tag rests after a timeout or reset, ns: the longest a Completion can be late.
    pub quarantine_ns: u64,
}

impl Default for EndpointConfig {
    /// 256 Tags. A Completion is at most as late as a session takes to be dead, so 2 s are behind any.
    fn default() -> Self {
        Self { tags: 256, completion_timeout_ns: 2_000_000_000, quarantine_ns: 2_000_000_000 }
    }
}

/// What an Endpoint has counted, beside its Requester.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndpointCounters {
    /// Memory Writes sent, interrupts not counted.
    pub writes: u64,
    /// Bytes of them.
    pub write_bytes: u64,
    /// Bytes asked for by Memory Reads.
    pub read_bytes: u64,
    /// MSIs and MSI-X messages sent.
    pub interrupts: u64,
    /// Requests received and taken.
    pub requests: u64,
    /// Non-Posted Requests answered with UR.
    pub unsupported: u64,
    /// Posted Requests that nothing here takes, dropped.
    pub dropped_posted: u64,
    /// TLPs with poisoned data, dropped or refused.
    pub poisoned: u64,
    /// Non-Posted Requests dropped because too many wait for their Completion.
    pub overflows: u64,
    /// Function Level Resets.
    pub function_resets: u64,
}

/// A BAR as it decodes now.
#[derive(Clone, Copy, Debug)]
struct Bar {
    index: u8,
    is_64bit: bool,
    base: u64,
    bytes: u64,
}

/// All of an Endpoint but its Function, which works on it by [`Outbound`].
struct Core {
    id: FunctionId,
    config: ConfigSpace,
    spec: FunctionSpec,
    default_timeout_ns: u64,
    /// The most data of one TLP, and of one read, that the way upstream takes, whatever Device Control says.
    grant: (u16, u16),
    // What the configuration space says, taken out of it after each write.
    bars: [Option<Bar>; reg::BARS],
    memory: bool,
    master: bool,
    mode: InterruptMode,
    vectors_masked: bool,
    max_payload: u16,
    max_read_request: u16,

    requester: Requester<u64>,
    answers: Answers,
    msix: Option<MsixTable>,
    /// A pending vector may have been unmasked.
    vectors_unmasked: bool,
    /// INTA as the Function wants it, and as the host was told.
    intx: bool,
    intx_told: bool,
    messages: Messages,
    ahead: Ahead,
    counters: EndpointCounters,
}

/// A Function at the end of its Link.
pub struct Endpoint {
    function: Box<dyn Function>,
    core: Core,
}

impl Endpoint {
    /// Puts `function` behind a configuration space that says what its [`FunctionSpec`] does.
    ///
    /// # Panics
    /// If the [`FunctionSpec`] contradicts itself or the specification.
    pub fn new(function: Box<dyn Function>, config: EndpointConfig) -> Self {
        let spec = function.spec();
        check(&spec);
        let requester = RequesterConfig {
            tags: config.tags,
            completion_timeout_ns: config.completion_timeout_ns,
            quarantine_ns: config.quarantine_ns,
        };
        let mut core = Core {
            id: FunctionId::default(),
            config: configuration_space(&spec),
            default_timeout_ns: config.completion_timeout_ns,
            grant: (MIN_SIZE, MIN_SIZE),
            bars: decoders(&spec),
            memory: false,
            master: false,
            mode: InterruptMode::Disabled,
            vectors_masked: false,
            max_payload: MIN_SIZE,
            max_read_request: MIN_SIZE,
            requester: Requester::new(requester),
            answers: Answers::new(),
            msix: spec.msix.map(MsixTable::new),
            vectors_unmasked: false,
            intx: false,
            intx_told: false,
            messages: Messages::default(),
            ahead: Ahead::default(),
            counters: EndpointCounters::default(),
            spec,
        };
        core.refresh();
        Self { function, core }
    }

    /// A host takes the Function, whose way upstream takes TLPs with up to `max_payload` bytes of data and
    /// reads of up to
    /// `max_read_request` bytes. It comes as if powered on; nothing of an earlier host is left or can come any more.
    pub fn attach(&mut self, max_payload: u16, max_read_request: u16) {
        let granted = |bytes: u16| bytes.clamp(MIN_SIZE, MAX_SIZE) / MIN_SIZE * MIN_SIZE;
        self.core.grant = (granted(max_payload), granted(max_read_request));
        self.core.id = FunctionId::default();
        self.core.reset(ConfigReset::Power);
        self.core.requester.clear();
        self.core.ahead.attach();
        self.function.reset(ResetKind::Conventional);
        self.function.identified(self.core.id);
    }

    /// Resets the Function. After a conventional reset nothing from before it follows: Requests that wait for
    /// an answer get none (6.6.1); after FLR they are answered (6.6.2).
    pub fn reset(&mut self, kind: ResetKind) {
        match kind {
            ResetKind::Conventional => self.core.reset(ConfigReset::Hot),
            ResetKind::FunctionLevel => {
                self.core.counters.function_resets += 1;
                self.core.reset(ConfigReset::FunctionLevel);
            }
        }
        self.function.reset(kind);
    }

    /// Goes on with everything that can go on: answers, interrupts, the Function's own work. True if something
    /// was done.
    pub fn poll(&mut self, now_ns: u64, out: &mut dyn TlpOut, stream: u16) -> bool {
        let Self { function, core } = self;
        let mut progress = false;
        while let Some((token, address, bytes)) = core.requester.expire(now_ns) {
            core.report(Error::CompletionTimeout, Handling::Final, None);
            function.read_completed(token, address, bytes, Err(Fault::Timeout));
            progress = true;
        }
        progress |= core.send_answers(&mut **function, out, stream);
        progress |= core.declare(&mut **function, out, stream);
        let mut outbound = Outbound { core, out, stream, now_ns };
        progress |= outbound.send_waiting();
        progress | function.poll(&mut outbound)
    }

    /// Whether [`Endpoint::poll`] need not be called until something is received, or the Endpoint is reset.
    pub fn is_idle(&self) -> bool {
        let core = &self.core;
        let tells = core.messages.first().is_some()
            || core.intx_told != (core.intx && core.mode == InterruptMode::IntX)
            || core.vectors_unmasked && core.master;
        !tells
            && core.ahead.is_told()
            && core.answers.is_empty()
            && self.function.is_idle()
            && self.deadline_ns().is_none()
    }

    /// When [`Endpoint::poll`] should be called even if nothing else happens, ns.
    pub fn deadline_ns(&self) -> Option<u64> {
        [self.core.requester.deadline_ns(), self.function.deadline_ns()].into_iter().flatten().min()
    }

    /// Its ID, as captured from the last Configuration Write (2.2.6.2).
    pub fn id(&self) -> FunctionId {
        self.core.id
    }

    /// Whether a further Non-Posted Request of a peer can be taken; those of the Root Complex have room
    /// besides.
    pub fn accepts_peer_request(&self) -> bool {
        self.core.answers.has_room_for_peer()
    }

    /// Whether `address` is in one of its BARs, as they decode now.
    pub fn decodes(&self, address: u64) -> bool {
        let within = |bar: &Bar| address.checked_sub(bar.base).is_some_and(|offset| offset < bar.bytes);
        self.core.memory && self.core.bars.iter().flatten().any(within)
    }

    /// What `requester`, a peer, has asked for is answered no more.
    pub fn forget_requester(&mut self, requester: FunctionId) {
        self.core.answers.forget(requester);
    }

    /// Tags of its Requester.
    pub fn tags(&self) -> u16 {
        self.core.requester.tags()
    }

    /// Its configuration space.
    pub fn config(&self) -> &ConfigSpace {
        &self.core.config
    }

    /// The Function.
    pub fn function(&self) -> &dyn Function {
        &*self.function
    }

    /// The same, to be changed.
    pub fn function_mut(&mut self) -> &mut dyn Function {
        &mut *self.function
    }

    /// What was counted.
    pub fn counters(&self) -> &EndpointCounters {
        &self.core.counters
    }

    /// Takes a piece that the host sent along with a doorbell; one that can't be used is dropped. If its bytes lie in a frame that is in
    /// hand until [`Endpoint::let_go`], `in_hand` says where in it they begin. True if they were left there.
    pub fn receive_ahead(&mut self, piece: &Piece, bytes: &[u8], in_hand: Option<usize>) -> bool {
        if !self.core.master {
            self.core.ahead.counters.refused += 1;
            return false;
        }
        self.core.ahead.receive(piece, bytes, in_hand)
    }

    /// The frame in hand with this body goes: the Function may take from it what was left there, and what it does not take is kept.
    pub fn let_go(&mut self, now_ns: u64, body: &[u8]) {
        let Self { function, core } = self;
        if core.ahead.has_in_hand() {
            core.take_rules(&mut **function);
            function.poll(&mut InHand { core, now_ns, body });
            core.ahead.settle(body);
        }
    }

    /// What was counted of such pieces.
    pub fn ahead_counters(&self) -> &AheadCounters {
        &self.core.ahead.counters
    }

    /// What its Requester has counted.
    pub fn requester_counters(&self) -> &RequesterCounters {
        self.core.requester.counters()
    }
}

impl Core {
    fn reset(&mut self, kind: ConfigReset) {
        self.config.reset(kind);
        self.requester.abandon();
        self.ahead.reset();
        if let Some(msix) = &mut self.msix {
            msix.reset();
        }
        self.vectors_unmasked = false;
        self.intx = false;
        self.messages = Messages::default();
        if kind == ConfigReset::FunctionLevel {
            // A host that was told of INTA has to be told of its end; that happens in the next poll.
            self.answers.refuse_unread(self.id);
        } else {
            self.answers.clear();
            self.intx_told = false;
        }
        self.refresh();
    }

    /// Takes out of the configuration space what it says.
    fn refresh(&mut self) {
        let config = &self.config;
        let command = config.u16(reg::COMMAND);
        let awake = config.u16(POWER_MANAGEMENT + pm::CONTROL) & pm::CONTROL_STATE == 0;
        self.memory = awake && command & reg::COMMAND_MEMORY != 0;
        self.master = awake && command & reg::COMMAND_MASTER != 0;
        if !self.master {
            self.ahead.drop_pieces();
        }
        for bar in self.bars.iter_mut().flatten() {
            let at = reg::BAR0 + 4 * u16::from(bar.index);
            let high = if bar.is_64bit { u64::from(config.u32(at + 4)) << 32 } else { 0 };
            bar.base = high | u64::from(config.u32(at) & !0xF);
        }
        let msix_control = config.u16(MSIX + msix::CONTROL);
        let msi_vectors = msi::msi_enabled(config, self.spec.msi_vectors);
        self.vectors_masked = false;
        self.mode = match &self.msix {
            Some(table) if msix_control & msix::CONTROL_ENABLE != 0 => {
                self.vectors_masked = msix_control & msix::CONTROL_MASK != 0;
                InterruptMode::MsiX(table.vectors())
            }
            _ if msi_vectors != 0 => InterruptMode::Msi(msi_vectors),
            _ if !self.spec.intx || command & reg::COMMAND_INTX_DISABLE != 0 => InterruptMode::Disabled,
            _ => InterruptMode::IntX,
        };
        if matches!(self.mode, InterruptMode::Msi(_) | InterruptMode::MsiX(_)) {
            self.intx = false;
        }
        self.vectors_unmasked = true;
        let control = config.u16(PCI_EXPRESS + express::DEVICE_CONTROL);
        // Values above 5 are reserved.
        let size = |shift: u16| MIN_SIZE << (control >> shift & 7).min(5);
        self.max_payload = size(express::DEVICE_CONTROL_MPS_SHIFT).max(self.grant.0);
        self.max_read_request = size(express::DEVICE_CONTROL_MRRS_SHIFT).max(self.grant.1);
        let timeout = config.u16(PCI_EXPRESS + express::DEVICE_CONTROL_2);
        self.requester.set_completion_timeout(completion_timeout_ns(timeout, self.default_timeout_ns));
        self.show_intx();
    }

    /// Interrupt Status tells of INTA whether the host may be told or not (7.5.1.1.4).
    fn show_intx(&mut self) {
        let others = self.config.u16(reg::STATUS) & !reg::STATUS_INTX;
        self.config.set_u16(reg::STATUS, others | if self.intx { reg::STATUS_INTX } else { 0 });
    }

    fn report(&mut self, error: Error, handling: Handling, header: Option<&Header>) {
        errors::report(&mut self.config, &mut self.messages, error, handling, header);
    }
}

/// The upper end of the range that Device Control 2 asks for (7.5.3.16), or the default.
fn completion_timeout_ns(control: u16, default_ns: u64) -> u64 {
    if control & express::DEVICE_CONTROL_2_NO_TIMEOUT != 0 {
        return u64::MAX;
    }
    match control & express::DEVICE_CONTROL_2_TIMEOUT {
        0b0101 => 55_000_000,
        0b0110 => 210_000_000,
        0b1001 => 900_000_000,
        0b1010 => 3_500_000_000,
        _ => default_ns,
    }
}

/// A Message with a code and nothing else.
fn message(requester: FunctionId, routing: Routing, code: u8) -> Header {
    Header::new(Op::Message { routing, requester, tag: 0, code, fields: [0; 8], length_dw: 0 })
}

/// The Message for INTA: it is told to the other end of the Link (2.2.8.1).
fn intx_message(requester: FunctionId, asserted: bool) -> Header {
    message(requester, Routing::Local, if asserted { code::ASSERT_INTA } else { code::DEASSERT_INTA })
}

fn configuration_space(spec: &FunctionSpec) -> ConfigSpace {
    let mut builder = Builder::new();
    builder.type0(spec);
    builder.power_management();
    if spec.msi_vectors != 0 {
        builder.msi(spec.msi_vectors);
    }
    if let Some(msix) = &spec.msix {
        builder.msix(msix);
    }
    builder.express(PortType::Endpoint);
    builder.aer();
    if let Some(serial) = spec.serial {
        builder.serial_number(serial);
    }
    builder.build()
}

fn decoders(spec: &FunctionSpec) -> [Option<Bar>; reg::BARS] {
    let mut bars = [None; reg::BARS];
    for &BarSpec { index, kind, bytes } in &spec.bars {
        bars[index as usize] = Some(Bar { index, is_64bit: kind != BarKind::Memory32, base: 0, bytes });
    }
    bars
}

/// A wrong specification of a Function is a bug in its model.
fn check(spec: &FunctionSpec) {
    let mut free = 0;
    for &BarSpec { index, kind, bytes } in &spec.bars {
        let places = if kind == BarKind::Memory32 { 1 } else { 2 };
        assert!(index >= free && index + places <= 6, "BAR {index} overlaps another, or is out of order");
        assert!(bytes.is_power_of_two() && bytes >= 128, "BAR {index} has a size that can't be");
        assert!(kind != BarKind::Memory32 || bytes <= 1 << 31, "BAR {index} is too large for 32 bits");
        free = index + places;
    }
    assert!(
        spec.msi_vectors == 0 || spec.msi_vectors.is_power_of_two() && spec.msi_vectors <= 32,
        "MSI vectors are a power of two up to 32"
    );
    if let Some(msix) = spec.msix {
        let bar = spec.bars.iter().find(|bar| bar.index == msix.bar).map_or(0, |bar| bar.bytes);
        assert!((1..=2048).contains(&msix.vectors), "MSI-X vectors are 1 to 2048");
        let [(table, table_bytes), (pba, pba_bytes)] = MsixTable::new(msix).regions();
        assert!(table % 8 == 0 && pba % 8 == 0, "MSI-X table and PBA start at multiples of 8");
        assert!(
            table + table_bytes <= bar && pba + pba_bytes <= bar,
            "MSI-X table and PBA are inside their BAR"
        );
        assert!(table + table_bytes <= pba || pba + pba_bytes <= table, "MSI-X table and PBA overlap");
    }
}
