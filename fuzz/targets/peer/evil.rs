//! A host or a box that speaks the session as it should, and says in it what it should not.

use std::collections::VecDeque;

use etherslot_session::{Config, Deliver, Heard, Listener, Session, State, parse_frame};
use etherslot_wire::boxes::Join;
use etherslot_wire::control::{AttachStatus, CONTROL_STREAM, Message};
use etherslot_wire::frame::{Kind as FrameKind, MIN_FRAME_BYTES};
use etherslot_wire::record::Kind;
use etherslot_wire::tlp::{CfgRequest, Completion, CplStatus, Header, Op};
use etherslot_wire::{FunctionId, NodeId};

const PORT: FunctionId = FunctionId::new(2, 0, 0);
const FUNCTION: FunctionId = FunctionId::new(3, 0, 0);
/// What it keeps of what it is told, to answer it.
const BACKLOG: usize = 64;
const BAR0: u16 = 0x10;

/// How it answers Requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    Right,
    Silent,
    Refused,
    Retry,
    OtherTag,
    OtherLength,
    Twice,
    Poisoned,
}

/// All manners.
pub const MANNERS: [Manner; 8] = [
    Manner::Right,
    Manner::Silent,
    Manner::Refused,
    Manner::Retry,
    Manner::OtherTag,
    Manner::OtherLength,
    Manner::Twice,
    Manner::Poisoned,
];

/// A host or a box.
pub struct Evil {
    config: Config,
    listener: Listener<u8>,
    session: Option<Box<Session>>,
    replies: VecDeque<Vec<u8>>,
    told: Told,
    next_epoch: u32,
    /// How it answers.
    pub manner: Manner,
    /// The configuration space that it shows.
    pub image: Box<[u8; 4096]>,
    /// What its BAR registers read after all ones were written.
    pub bar_sizes: [u32; 6],
    sized: [bool; 6],
}

#[derive(Default)]
struct Told(VecDeque<(Kind, u16, Vec<u8>)>);

impl Deliver for Told {
    fn record(&mut self, kind: Kind, stream: u16, payload: &[u8]) {
        if self.0.len() < BACKLOG {
            self.0.push_back((kind, stream, payload.to_vec()));
        }
    }
}

/// The space of a Function with one BAR, MSI, MSI-X and AER.
fn image() -> Box<[u8; 4096]> {
    let mut image = Box::new([0; 4096]);
    let mut put = |at: usize, bytes: &[u8]| image[at..at + bytes.len()].copy_from_slice(bytes);
    put(0x00, &[0x34, 0x12, 0x78, 0x56, 0, 0, 0x10, 0, 1, 0, 0, 0xFF]);
    put(0x10, &[4]);
    put(0x2C, &[0x34, 0x12, 1, 0]);
    put(0x34, &[0x40]);
    put(0x3D, &[1]);
    put(0x40, &[0x10, 0x80, 2, 0]);
    put(0x80, &[0x05, 0xB0, 0x84, 1]);
    put(0xB0, &[0x11, 0, 3, 0, 0, 0x20, 0, 0, 0, 0x30, 0, 0]);
    put(0x100, &[1, 0, 1, 0]);
    image
}

impl Evil {
    /// One that waits for a session, or opens one, as the node `node`.
    pub fn new(config: &Config, node: u8, opens: bool, now_ns: u64, first_epoch: u32) -> Self {
        let config = Config { node: NodeId([node; 16]), ..config.clone() };
        let session = opens.then(|| Box::new(Session::connect(&config, first_epoch, now_ns)));
        Self {
            listener: Listener::new(&config),
            config,
            session,
            replies: VecDeque::new(),
            told: Told::default(),
            next_epoch: first_epoch,
            manner: Manner::Right,
            image: image(),
            bar_sizes: [0xFFFF_C004, u32::MAX, 0, 0, 0, 0],
            sized: [false; 6],
        }
    }

    /// Opens another session.
    pub fn open(&mut self, now_ns: u64) {
        self.next_epoch += 1;
        self.session = Some(Box::new(Session::connect(&self.config, self.next_epoch, now_ns)));
    }

    /// Takes a frame.
    pub fn receive(&mut self, now_ns: u64, from: u8, frame: &[u8]) {
        let Ok((header, body)) = parse_frame(frame) else { return };
        if let Some(session) = self.session.as_mut().filter(|session| session.epoch() == header.dst_epoch) {
            session.handle_frame(now_ns, &header, body, &mut self.told);
        } else if header.kind == FrameKind::Hello {
            self.next_epoch += 1;
            let mut reply = [0; MIN_FRAME_BYTES];
            let epoch = self.next_epoch;
            match self.listener.handle_hello(now_ns, from, &header, body, epoch, &mut reply) {
                Heard::Reply(bytes) => self.replies.push_back(reply[..bytes].to_vec()),
                Heard::Accept(session) => self.session = Some(session),
                Heard::Dropped(_) => {}
            }
        }
    }

    /// Answers what it was told.
    pub fn poll(&mut self, now_ns: u64) {
        let Some(session) = &mut self.session else { return };
        if session.deadline_ns().is_some_and(|at| at <= now_ns) {
            session.handle_timeout(now_ns);
        }
        if matches!(session.state(), State::Dead(_)) {
            self.session = None;
            self.told.0.clear();
            return;
        }
        while session_has_room(self.session.as_deref())
            && let Some((kind, stream, payload)) = self.told.0.pop_front()
        {
            match kind {
                Kind::Control => self.answer_message(stream, &payload),
                Kind::Tlp => self.answer_tlp(stream, &payload),
                Kind::Ddp | Kind::Ahead => {}
            }
        }
    }

    fn answer_message(&mut self, stream: u16, payload: &[u8]) {
        let answer = match Message::parse(payload) {
            Some(Message::Attach { stream, .. }) => {
                Message::Attached { stream, status: AttachStatus::Attached, port: PORT }
            }
            Some(Message::Join(Join { stream, .. })) => {
                Message::Attached { stream, status: AttachStatus::Attached, port: FunctionId::default() }
            }
            Some(Message::HotReset) => Message::HotResetDone,
            Some(Message::Detach) => Message::Detached,
            _ => return,
        };
        let stream = if let Message::Attached { .. } = answer { CONTROL_STREAM } else { stream };
        let mut bytes = [0; Message::MAX_BYTES];
        let length = answer.emit(&mut bytes).unwrap_or(0);
        if self.manner != Manner::Silent {
            self.say(Kind::Control, stream, &bytes[..length]);
        }
    }

    fn config_read(&mut self, request: &CfgRequest) -> [u8; 4] {
        let at = request.register as usize;
        let bar = request.register.wrapping_sub(BAR0) as usize / 4;
        if request.target == FUNCTION && self.sized.get_mut(bar).is_some_and(std::mem::take) {
            return self.bar_sizes[bar].to_le_bytes();
        }
        [0, 1, 2, 3].map(|lane| self.image[at + lane])
    }

    fn answer_tlp(&mut self, stream: u16, payload: &[u8]) {
        let Ok((header, data)) = Header::parse(payload) else { return };
        let (byte_count, lower_address, data) = match header.op {
            Op::CfgRead(request) => (4, 0, self.config_read(&request).to_vec()),
            Op::CfgWrite(request) => {
                let bar = request.register.wrapping_sub(BAR0) as usize / 4;
                if let Some(sized) = self.sized.get_mut(bar) {
                    *sized = request.target == FUNCTION && data == [0xFF; 4];
                }
                (4, 0, Vec::new())
            }
            Op::MemRead(request) => {
                let (lead, bytes) = request.span();
                (bytes as u16, (request.address as u8 & 0x7C) | lead as u8, vec![0x5A; request.data_bytes()])
            }
            _ => return,
        };
        let mut completion = Completion {
            completer: FUNCTION,
            status: CplStatus::Success,
            byte_count,
            requester: header.requester(),
            tag: header.tag(),
            lower_address,
            length_dw: (data.len() / 4) as u16,
        };
        let mut data = data;
        match self.manner {
            Manner::Silent => return,
            Manner::Refused => completion.status = CplStatus::UnsupportedRequest,
            Manner::Retry => completion.status = CplStatus::RetryStatus,
            Manner::OtherTag => completion.tag ^= 1,
            Manner::OtherLength => data.truncate(data.len() / 8 * 4),
            Manner::Right | Manner::Twice | Manner::Poisoned => {}
        }
        if completion.status != CplStatus::Success {
            data.clear();
        }
        completion.length_dw = (data.len() / 4) as u16;
        let mut header = Header::new(Op::Completion(completion));
        header.poisoned = self.manner == Manner::Poisoned;
        let mut bytes = vec![0; header.len()];
        let _ = header.emit(&mut bytes);
        bytes.extend(data);
        self.say(Kind::Tlp, stream, &bytes);
        if self.manner == Manner::Twice {
            self.say(Kind::Tlp, stream, &bytes);
        }
    }

    /// Says something, if the session takes it.
    pub fn say(&mut self, kind: Kind, stream: u16, payload: &[u8]) {
        if let Some(session) = &mut self.session {
            let _ = session.send(kind, stream, &[], 0, payload, payload.len());
        }
    }

    /// The frames it has to send.
    pub fn transmit(&mut self, now_ns: u64) -> Vec<Vec<u8>> {
        let mut frames: Vec<_> = self.replies.drain(..).collect();
        if let Some(session) = &mut self.session {
            session.transmit(now_ns, &mut |burst| {
                frames.extend(burst.iter().map(|frame| frame.to_vec()));
                burst.len()
            });
        }
        frames
    }

    /// When it goes on by itself.
    pub fn deadline_ns(&self) -> Option<u64> {
        self.session.as_ref()?.deadline_ns()
    }
}

fn session_has_room(session: Option<&Session>) -> bool {
    session.is_some_and(|session| session.room() != 0)
}
