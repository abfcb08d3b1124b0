//! The Root Complex above the switch: it holds every TLP to the rules, and answers reads well or badly.

use std::collections::{BTreeMap, VecDeque};

use etherslot_pci::completer;
use etherslot_pci::{TlpOut, data_lead};
use etherslot_wire::ahead::Rule;
use etherslot_wire::control::Message;
use etherslot_wire::tlp::{Completion, CplStatus, Header, MAX_BYTES, MemRequest, Op};
use etherslot_wire::{FunctionId, Tag};

use crate::machine::{MEMORY_BYTES, MESSAGES};

const ROOT: FunctionId = FunctionId::new(0, 0, 0);
/// Completions of the guest's own reads that are kept for it.
const KEPT: usize = 64;

/// How a read is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    Right,
    /// One Completion of several, the others later.
    Begin,
    Unsupported,
    Aborted,
    Retry,
    Poisoned,
    OtherCount,
    OtherTag,
    Short,
    Never,
}

#[derive(Clone, Copy, Debug)]
struct Read {
    request: MemRequest,
    /// When the Tag was taken, or a Completion came that is none of the Request's: a Tag given up rests from then on, ns.
    since_ns: u64,
    /// Bytes that were answered.
    answered: usize,
    /// Nothing more of it will be answered.
    done: bool,
    /// A Completion has ended the Request, whoever sent it, so the Tag may be used again. The host may not know: with
    /// another's Tag a Completion ends the other Request, which the host has yet to answer.
    ended: bool,
}

impl Read {
    fn is_over(&self) -> bool {
        self.done && self.ended
    }
}

/// What a TLP from below may be like now.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    pub now_ns: u64,
    pub function: FunctionId,
    pub max_payload: usize,
    pub max_read_request: usize,
    /// The least time for which a Tag that was given up is not used again, ns.
    pub quarantine_ns: u64,
}

/// The Root Complex, with the guest's memory.
pub struct Root {
    /// Bytes of the largest TLP that goes undivided; 0 is no room.
    pub room: usize,
    /// TLPs that are taken.
    pub budget: usize,
    pub memory: Box<[u8]>,
    pub rules: Rules,
    /// What the controller wants to have sent along with its doorbells, by number.
    pub ahead: BTreeMap<u8, Rule>,
    reads: Vec<Read>,
    answers: VecDeque<(Completion, Vec<u8>)>,
    /// Interrupt messages.
    pub interrupts: u64,
}

impl Root {
    pub fn new(rules: Rules) -> Self {
        Self {
            room: MAX_BYTES,
            budget: usize::MAX,
            memory: vec![0; MEMORY_BYTES].into_boxed_slice(),
            rules,
            ahead: BTreeMap::new(),
            reads: Vec::new(),
            answers: VecDeque::new(),
            interrupts: 0,
        }
    }

    /// Reads that wait for an answer.
    pub fn reads(&self) -> usize {
        self.reads.iter().filter(|read| !read.done).count()
    }

    /// Nothing from before will be answered any more.
    pub fn forget(&mut self) {
        for read in &mut self.reads {
            read.done = true;
        }
        self.answers.clear();
    }

    /// The data of a successful Completion for the guest, if it has come.
    pub fn take_answer(&mut self, tag: Tag) -> Option<Vec<u8>> {
        let place = self.answers.iter().position(|(completion, _)| completion.tag == tag)?;
        let (completion, data) = self.answers.remove(place)?;
        (completion.status == CplStatus::Success).then_some(data)
    }

    /// The Completions that answer the read numbered `index` of those that wait, or begin to.
    pub fn answer(&mut self, index: usize, manner: Manner, max_payload: u16) -> Vec<(Header, Vec<u8>)> {
        let mut tlps = Vec::new();
        let Some(read) = self.reads.iter_mut().filter(|read| !read.done).nth(index) else { return tlps };
        let Read { request, answered, .. } = *read;
        read.done = true;
        let (lead, bytes) = request.span();
        let start = usize::try_from(request.address).ok().and_then(|address| address.checked_add(lead));
        let range = start.and_then(|start| Some(start..start.checked_add(bytes)?));
        let data = range.and_then(|range| self.memory.get(range));
        let status = match manner {
            Manner::Never => return tlps,
            Manner::Unsupported => Some(CplStatus::UnsupportedRequest),
            Manner::Aborted => Some(CplStatus::CompleterAbort),
            Manner::Retry => Some(CplStatus::RetryStatus),
            _ if data.is_none() => Some(CplStatus::UnsupportedRequest),
            _ => None,
        };
        if let (None, Some(data)) = (status, data) {
            let mut parts = completer::completions(&request, ROOT, completer::ROOT_RCB_BYTES, max_payload);
            let mut parts = parts.by_ref().skip_while(|part| part.offset < answered).peekable();
            while let Some(mut part) = parts.next() {
                let mut header_data = vec![0; part.completion.length_dw as usize * 4];
                let lead = part.completion.lower_address as usize & 3;
                header_data[lead..lead + part.bytes]
                    .copy_from_slice(&data[part.offset..part.offset + part.bytes]);
                match manner {
                    Manner::OtherCount => part.completion.byte_count ^= 4,
                    Manner::OtherTag => part.completion.tag ^= 1,
                    Manner::Short => {
                        part.completion.length_dw -= 1;
                        header_data.truncate(part.completion.length_dw as usize * 4);
                    }
                    _ => {}
                }
                let mut header = Header::new(Op::Completion(part.completion));
                header.poisoned = manner == Manner::Poisoned;
                tlps.push((header, header_data));
                if manner == Manner::Begin && parts.peek().is_some() {
                    read.answered = part.offset + part.bytes;
                    read.done = false;
                    return tlps;
                }
            }
        }
        if let Some(status) = status {
            let completion = completer::status(&request, ROOT, status, answered);
            tlps.push((Header::new(Op::Completion(completion)), Vec::new()));
        }
        self.reads.retain(|read| !read.is_over());
        tlps
    }

    /// The Function has received a Completion. With its Tag it is all that tells it of a Request's end, right or forged:
    /// one without success, or with all the bytes that its Byte Count says are left (2.2.9, 2.3.2). One that the Function
    /// holds to be `malformed` ends nothing, as others may follow it, but the Tag rests.
    pub fn completed(&mut self, completion: &Completion, malformed: bool) {
        let Some(read) = self.reads.iter_mut().find(|read| read.request.tag == completion.tag) else {
            return;
        };
        let Completion { status, byte_count, lower_address, length_dw, .. } = *completion;
        let carried = (4 * usize::from(length_dw)).saturating_sub(usize::from(lower_address & 3));
        if malformed {
            read.since_ns = self.rules.now_ns;
        } else if status != CplStatus::Success || length_dw == 0 || carried >= usize::from(byte_count) {
            read.ended = true;
            self.reads.retain(|read| !read.is_over());
        }
    }

    fn check_read(&mut self, request: MemRequest) {
        let Rules { now_ns, quarantine_ns, max_read_request, .. } = self.rules;
        assert!(request.data_bytes() <= max_read_request, "a read beyond Max_Read_Request_Size");
        if let Some(place) = self.reads.iter().position(|read| read.request.tag == request.tag) {
            let read = self.reads.remove(place);
            let free = read.ended || now_ns >= read.since_ns + quarantine_ns;
            assert!(free, "a Tag that is in use: {read:?}");
        }
        self.reads.push(Read { request, since_ns: now_ns, answered: 0, done: false, ended: false });
    }

    fn write(&mut self, request: &MemRequest, data: &[u8]) {
        if request.address >> 20 == MESSAGES >> 20 {
            self.interrupts += 1;
        }
        for (at, byte) in data.iter().enumerate().filter(|&(at, _)| request.enabled(at)) {
            let place = usize::try_from(request.address).ok().and_then(|address| address.checked_add(at));
            if let Some(memory) = place.and_then(|place| self.memory.get_mut(place)) {
                *memory = *byte;
            }
        }
    }
}

impl TlpOut for Root {
    fn declare(&mut self, _stream: u16, message: Message) -> bool {
        match message {
            Message::ReadAhead(rule) => drop(self.ahead.insert(rule.rule, rule)),
            Message::Withdraw { rule } => drop(self.ahead.remove(&rule)),
            _ => panic!("{message:?} is no rule"),
        }
        true
    }

    fn room(&mut self, _stream: u16) -> usize {
        if self.budget == 0 { 0 } else { self.room }
    }

    fn send(&mut self, stream: u16, header: &Header, data: &[u8]) -> bool {
        if self.room(stream) == 0 {
            return false;
        }
        self.budget -= 1;
        let mut bytes = vec![0; header.len() + header.data_bytes()];
        let length = header.emit(&mut bytes).expect("a header has a form");
        let start = length + data_lead(header);
        bytes[start..start + data.len()].copy_from_slice(data);
        let (parsed, whole) = Header::parse(&bytes).expect("a TLP that follows the rules");
        assert_eq!(parsed, *header);
        assert!(whole.len() <= self.rules.max_payload, "data beyond Max_Payload_Size");
        match header.op {
            Op::Completion(completion) => {
                if self.answers.len() == KEPT {
                    self.answers.pop_front();
                }
                self.answers.push_back((completion, whole.to_vec()));
                return true;
            }
            Op::MemRead(request) => self.check_read(request),
            Op::MemWrite(request) => self.write(&request, whole),
            Op::Message { .. } => {}
            _ => panic!("a Request that an Endpoint does not make: {header:?}"),
        }
        assert_eq!(header.requester(), self.rules.function, "somebody else's Request");
        true
    }
}
