//! Completions that wait for room on their way back.

use std::collections::VecDeque;

use etherslot_wire::FunctionId;
use etherslot_wire::tlp::{CplStatus, Header, MemRequest, Op};

use super::Core;
use crate::TlpOut;
use crate::completer::{self, RCB_BYTES};
use crate::function::Function;

/// Answers held at once: all that one Requester with 8-bit Tags may have under way,
const ROOT_ANSWERS: usize = 256;
/// and as many for peers, which are held back beyond that.
const PEER_ANSWERS: usize = 256;
/// Data that is kept with its Completion: reads up to this are made when the Request comes, longer ones when
/// there is room.
pub(super) const KEPT_BYTES: usize = 64;
/// A Completion is cut to the room left in a frame if this much of its data fits.
const WORTH_CUTTING_BYTES: usize = 256;
const HEADER_BYTES: usize = 12;

#[derive(Clone, Copy, Debug)]
enum Body {
    /// Of the header's Completion.
    Kept { data: [u8; KEPT_BYTES], bytes: u8 },
    /// Of a contiguous read, `done` bytes of which have been sent.
    Unread { request: MemRequest, bar: u8, offset: u64, done: u16 },
}

#[derive(Clone, Copy, Debug)]
struct Answer {
    header: Header,
    body: Body,
}

impl Answer {
    /// Who waits for it.
    fn requester(&self) -> FunctionId {
        match (&self.body, &self.header.op) {
            (Body::Unread { request, .. }, _) => request.requester,
            (Body::Kept { .. }, Op::Completion(completion)) => completion.requester,
            (Body::Kept { .. }, _) => FunctionId::default(),
        }
    }
}

/// What waits, in order.
#[derive(Debug)]
pub(super) struct Answers {
    queue: VecDeque<Answer>,
    /// For what is read when it is sent.
    scratch: Box<[u8; 4096]>,
}

impl Answers {
    pub(super) fn new() -> Self {
        Self { queue: VecDeque::with_capacity(ROOT_ANSWERS + PEER_ANSWERS), scratch: Box::new([0; 4096]) }
    }

    pub(super) fn has_room(&self) -> bool {
        self.queue.len() < ROOT_ANSWERS + PEER_ANSWERS
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(super) fn has_room_for_peer(&self) -> bool {
        self.queue.len() < PEER_ANSWERS
    }

    pub(super) fn clear(&mut self) {
        self.queue.clear();
    }

    /// A Completion as it stands, with up to [`KEPT_BYTES`] of data. The caller has asked
    /// [`Answers::has_room`].
    pub(super) fn push(&mut self, header: Header, data: &[u8]) {
        let mut kept = [0; KEPT_BYTES];
        kept[..data.len()].copy_from_slice(data);
        self.queue.push_back(Answer { header, body: Body::Kept { data: kept, bytes: data.len() as u8 } });
    }

    /// The answer to a contiguous read at `offset` in BAR `bar`, of which `header` is the Request's. The caller
    /// has asked [`Answers::has_room`].
    pub(super) fn push_read(&mut self, header: Header, request: MemRequest, bar: u8, offset: u64) {
        self.queue.push_back(Answer { header, body: Body::Unread { request, bar, offset, done: 0 } });
    }

    /// Drops what `requester` waits for.
    pub(super) fn forget(&mut self, requester: FunctionId) {
        self.queue.retain(|answer| answer.requester() != requester);
    }

    /// Reads that have not been made, or not to their end, end with UR.
    pub(super) fn refuse_unread(&mut self, completer: FunctionId) {
        for answer in &mut self.queue {
            if let Body::Unread { request, done, .. } = answer.body {
                let status =
                    completer::status(&request, completer, CplStatus::UnsupportedRequest, done as usize);
                answer.header.op = Op::Completion(status);
                answer.body = Body::Kept { data: [0; KEPT_BYTES], bytes: 0 };
            }
        }
    }
}

impl Core {
    /// Sends what waits, as far as there is room. True if something was sent.
    pub(super) fn send_answers(
        &mut self,
        function: &mut dyn Function,
        out: &mut dyn TlpOut,
        stream: u16,
    ) -> bool {
        let mut progress = false;
        // The way to another box may be full while that to the host is not: nobody waits behind the answers of one other Requester.
        let (mut at, mut stuck) = (0, None);
        while let Some(answer) = self.answers.queue.get_mut(at) {
            let requester = answer.requester();
            if stuck == Some(requester) {
                at += 1;
                continue;
            }
            let room = out.room_to(stream, requester);
            if room == 0 && stuck.is_none() {
                (at, stuck) = (at + 1, Some(requester));
                continue;
            }
            if room == 0 {
                break;
            }
            let finished = match &mut answer.body {
                Body::Kept { data, bytes } => {
                    // The ID may have been captured anew since; the Completion tells the one that is valid now.
                    if let Op::Completion(completion) = &mut answer.header.op {
                        completion.completer = self.id;
                    }
                    if !out.send(stream, &answer.header, &data[..*bytes as usize]) {
                        break;
                    }
                    true
                }
                Body::Unread { request, bar, offset, done } => {
                    let fitting = room.saturating_sub(HEADER_BYTES);
                    let limit = if fitting >= WORTH_CUTTING_BYTES { fitting } else { usize::MAX };
                    let mut completions =
                        completer::completions(request, self.id, RCB_BYTES, self.max_payload)
                            .starting_at(*done as usize);
                    match completions.next_within(limit) {
                        None => true,
                        Some(part) => {
                            let data = &mut self.answers.scratch[..part.bytes];
                            let from = *offset + part.offset as u64;
                            super::inbound::read(function, self.msix.as_ref(), *bar, from, data);
                            let header = Header { op: Op::Completion(part.completion), ..answer.header };
                            if !out.send(stream, &header, data) {
                                break;
                            }
                            *done += part.bytes as u16;
                            completions.remaining() == 0
                        }
                    }
                }
            };
            progress = true;
            if finished {
                self.answers.queue.remove(at);
            }
        }
        progress
    }
}
