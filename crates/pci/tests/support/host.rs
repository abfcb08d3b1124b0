//! What reaches the host.

use std::collections::VecDeque;

use etherslot_pci::{TlpOut, data_lead};
use etherslot_wire::tlp::{Completion, Header, MemRequest, Op};

/// A TLP that reached the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    pub stream: u16,
    pub header: Header,
    pub data: Vec<u8>,
}

/// Takes TLPs while it has room, and holds each to be one that [`Header::parse`] takes.
pub struct Host {
    /// What [`TlpOut::room`] says.
    pub room: usize,
    /// How many more TLPs are taken.
    pub budget: usize,
    pub sent: VecDeque<Sent>,
}

impl Host {
    pub fn new() -> Self {
        Self { room: 8192, budget: usize::MAX, sent: VecDeque::new() }
    }

    /// All TLPs since the last call.
    pub fn take(&mut self) -> Vec<Sent> {
        self.sent.drain(..).collect()
    }

    /// Takes out the first Completion of a Tag.
    pub fn take_completion(&mut self, stream: u16, tag: u16) -> Option<(Completion, Vec<u8>)> {
        let found = |sent: &Sent| {
            sent.stream == stream
                && matches!(sent.header.op, Op::Completion(completion) if completion.tag == tag)
        };
        let sent = self.sent.remove(self.sent.iter().position(found)?)?;
        match sent.header.op {
            Op::Completion(completion) => Some((completion, sent.data)),
            _ => None,
        }
    }

    /// Takes out all Memory Reads.
    pub fn take_reads(&mut self) -> Vec<MemRequest> {
        self.take()
            .into_iter()
            .filter_map(|sent| match sent.header.op {
                Op::MemRead(request) => Some(request),
                _ => None,
            })
            .collect()
    }

    /// Takes out all Memory Writes: address and enabled bytes.
    pub fn take_writes(&mut self) -> Vec<(u64, Vec<u8>)> {
        self.take()
            .into_iter()
            .filter_map(|sent| match sent.header.op {
                Op::MemWrite(request) => {
                    let (lead, bytes) = request.span();
                    Some((request.address + lead as u64, sent.data[lead..lead + bytes].to_vec()))
                }
                _ => None,
            })
            .collect()
    }

    /// Takes out the codes of all Messages.
    pub fn take_messages(&mut self) -> Vec<u8> {
        self.take()
            .into_iter()
            .filter_map(|sent| match sent.header.op {
                Op::Message { code, .. } => Some(code),
                _ => None,
            })
            .collect()
    }
}

impl TlpOut for Host {
    fn room(&mut self, _stream: u16) -> usize {
        if self.budget == 0 { 0 } else { self.room }
    }

    fn send(&mut self, stream: u16, header: &Header, data: &[u8]) -> bool {
        if self.room(stream) == 0 {
            return false;
        }
        self.budget -= 1;
        let mut bytes = vec![0; header.len() + header.data_bytes()];
        let length = header.emit(&mut bytes).expect("a header");
        let start = length + data_lead(header);
        bytes[start..start + data.len()].copy_from_slice(data);
        let (parsed, whole) = Header::parse(&bytes).expect("a TLP that follows the rules");
        assert_eq!(parsed, *header, "what is sent is what is received");
        self.sent.push_back(Sent { stream, header: parsed, data: whole.to_vec() });
        true
    }
}
