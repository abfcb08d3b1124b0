//! One host of a box: its session, what it has of the box's Functions, and what it says about them.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;

use etherslot_fabric::{Denied, Leases, RecallKind};
use etherslot_pci::endpoint::Endpoint;
use etherslot_pci::function::ResetKind;
use etherslot_pci::hierarchy::Hierarchy;
use etherslot_seal::PublicKey;
use etherslot_session::{Deliver, Routes, Session};
use etherslot_wire::boxes::Admit;
use etherslot_wire::control::{AttachStatus, CONTROL_STREAM, CloseReason, Message, Name, feature};
use etherslot_wire::discovery::Group;
use etherslot_wire::record::Kind;
use etherslot_wire::{FunctionId, NodeId};

use super::far::{Far, Outlook, Outward, TICKETS};
use crate::guard::Keys;
use crate::out::send_control;

/// Control messages of one session that wait to be handled or sent.
pub(super) const CONTROL_BACKLOG: usize = 256;

pub(super) struct Owned {
    pub(super) name: Name,
    /// The nodes that may have it, if not all.
    pub(super) owners: Option<Vec<PublicKey>>,
    /// Absent while it is plugged into a session's hierarchy.
    pub(super) endpoint: Option<Box<Endpoint>>,
}

impl Owned {
    /// Whether the node with this key may have it.
    fn is_for(&self, key: Option<&PublicKey>) -> bool {
        self.owners.as_ref().is_none_or(|owners| key.is_some_and(|key| owners.contains(key)))
    }
}

/// A stream that a Function is, or was, plugged into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Attachment {
    pub(super) function: usize,
    /// None: the Function was taken away, and the host has not given back the stream.
    pub(super) slot: Option<u8>,
    pub(super) stream: u16,
}

/// What all hosts share.
pub(super) struct Shared {
    pub(super) functions: Vec<Owned>,
    /// Of the same Functions, in the same order.
    pub(super) leases: Leases,
}

pub(super) struct Host<A> {
    /// Of a session with keys.
    pub(super) keys: Option<Box<Keys>>,
    /// Where it greeted from.
    pub(super) address: A,
    pub(super) routes: Routes<A>,
    pub(super) session: Box<Session>,
    pub(super) node: NodeId,
    /// The assignment group that it said it is in.
    pub(super) group: Option<Group>,
    pub(super) hierarchy: Hierarchy,
    pub(super) attachments: Vec<Attachment>,
    pub(super) asked: VecDeque<(u16, Message)>,
    pub(super) answers: VecDeque<(u16, Message)>,
    /// For each slot of the hierarchy what its Function sees of other boxes.
    pub(super) outlooks: Vec<Outlook>,
    /// Whether the host has ever spoken of other boxes: if not, nobody need look at those.
    pub(super) is_far: bool,
    /// Functions of other boxes that may come in, each once.
    pub(super) admitted: Vec<Admit>,
}

pub(super) struct Inbound<'a> {
    pub(super) now_ns: u64,
    pub(super) hierarchy: &'a mut Hierarchy,
    pub(super) asked: &'a mut VecDeque<(u16, Message)>,
    pub(super) stray: &'a mut u64,
}

impl Deliver for Inbound<'_> {
    fn record(&mut self, kind: Kind, stream: u16, payload: &[u8]) {
        match kind {
            Kind::Tlp => self.hierarchy.receive(self.now_ns, stream, payload),
            Kind::Control => match Message::parse(payload) {
                Some(message) if self.asked.len() < CONTROL_BACKLOG => {
                    self.asked.push_back((stream, message));
                }
                _ => *self.stray += 1,
            },
            Kind::Ahead => self.hierarchy.receive_ahead(stream, payload, None),
            Kind::Ddp => *self.stray += 1,
        }
    }

    fn record_in_hand(&mut self, kind: Kind, stream: u16, body: &[u8], payload: Range<usize>) {
        match kind {
            Kind::Ahead => {
                self.hierarchy.receive_ahead(stream, &body[payload.clone()], Some(payload.start));
            }
            _ => self.record(kind, stream, &body[payload]),
        }
    }

    fn let_go(&mut self, body: &[u8]) {
        self.hierarchy.let_go(self.now_ns, body);
    }
}

impl Shared {
    /// Takes a Function out of a host's hierarchy and resets it; false if it has been taken away before.
    pub(super) fn give_back(&mut self, hierarchy: &mut Hierarchy, attachment: Attachment) -> bool {
        let Some(mut endpoint) = attachment.slot.and_then(|slot| hierarchy.unplug(slot)) else {
            return false;
        };
        endpoint.reset(ResetKind::Conventional);
        let function = &mut self.functions[attachment.function];
        tracing::info!(device = function.name.as_str(), "device given back");
        function.endpoint = Some(endpoint);
        true
    }
}

impl<A: Copy + Eq + fmt::Display> Host<A> {
    pub(super) fn go_on(&mut self, now_ns: u64, streams: u16, shared: &mut Shared, far: &mut Far<A>) -> bool {
        let mut progress = false;
        while self.answers.len() < CONTROL_BACKLOG
            && let Some((stream, message)) = self.asked.pop_front()
        {
            self.asked_for(now_ns, stream, message, streams, shared, far);
            progress = true;
        }
        let Self { session, outlooks, is_far, hierarchy, .. } = self;
        let outlooks = if *is_far { &mut outlooks[..] } else { &mut [] };
        progress |= far.release(outlooks, session);
        progress |= hierarchy.poll(now_ns, &mut Outward { now_ns, session, outlooks, far });
        while let Some(&(stream, message)) = self.answers.front() {
            // Nothing of before may follow it anywhere.
            let is_last = matches!(message, Message::Detached | Message::HotResetDone);
            if is_last && far.is_awaited_by(self.session.epoch(), stream) {
                break;
            }
            if !send_control(&mut self.session, stream, message) {
                break;
            }
            self.answers.pop_front();
            progress = true;
        }
        progress
    }

    /// Says to the host what its device's lease says, and takes the device away if that is it.
    pub(super) fn recall(
        &mut self,
        now_ns: u64,
        at: usize,
        kind: RecallKind,
        shared: &mut Shared,
        far: &mut Far<A>,
    ) {
        let attachment = self.attachments[at];
        let device = shared.functions[attachment.function].name;
        let message = match kind {
            RecallKind::Recall { window_ns } => {
                tracing::info!(device = device.as_str(), "device recalled");
                Message::Recall { window_ms: (window_ns / 1_000_000).clamp(1, u64::from(u16::MAX)) as u16 }
            }
            RecallKind::Keep => Message::Keep,
            RecallKind::Fence => {
                tracing::warn!(
                    device = device.as_str(),
                    "device taken away from a host that did not give it back"
                );
                shared.give_back(&mut self.hierarchy, attachment);
                shared.leases.released(now_ns, attachment.function);
                self.attachments[at].slot = None;
                self.look_away(attachment, far);
                Message::Recall { window_ms: 0 }
            }
        };
        if self.session.has(feature::LEASES) {
            self.answers.push_back((attachment.stream, message));
        } else if kind == RecallKind::Fence {
            // It could not be told otherwise.
            self.session.close(CloseReason::Refused);
        }
    }

    /// What the Function in a slot had written to another box may be lost, and nothing may tell that it is there: the Function is reset. Its
    /// host has to take it anew, and finds it free.
    pub(super) fn sever(&mut self, now_ns: u64, slot: u8, shared: &mut Shared, far: &mut Far<A>) {
        let Some(at) = self.attachments.iter().position(|attachment| attachment.slot == Some(slot)) else {
            return;
        };
        let attachment = self.attachments[at];
        let device = shared.functions[attachment.function].name;
        tracing::warn!(device = device.as_str(), "device reset: what it wrote to another box may be lost");
        shared.give_back(&mut self.hierarchy, attachment);
        shared.leases.owner_lost(now_ns, attachment.function);
        self.attachments[at].slot = None;
        self.look_away(attachment, far);
        far.counters.severed += 1;
        if self.session.has(feature::LEASES) {
            self.answers.push_back((attachment.stream, Message::Recall { window_ms: 0 }));
        } else {
            self.session.close(CloseReason::Refused);
        }
    }

    /// A Function has left its slot: it sees nothing any more.
    fn look_away(&mut self, attachment: Attachment, far: &mut Far<A>) {
        if let Some(slot) = attachment.slot {
            self.outlooks[usize::from(slot)] = Outlook::default();
            far.is_moved = true;
        }
    }

    /// Whether a Function of the host has a window to this box.
    pub(super) fn leads_to(&self, node: NodeId) -> bool {
        self.outlooks.iter().any(|outlook| outlook.nodes().any(|known| known == node))
    }

    /// The host says who of another box may come in.
    fn admit(&mut self, admit: Admit, far: &mut Far<A>) {
        self.admitted.retain(|known| (known.node, known.stream) != (admit.node, admit.stream));
        if admit.domain != 0 && self.admitted.len() < TICKETS {
            self.admitted.push(admit);
        } else if admit.domain != 0 {
            far.counters.overflows += 1;
        }
        far.is_moved = true;
    }

    fn asked_for(
        &mut self,
        now_ns: u64,
        stream: u16,
        message: Message,
        streams: u16,
        shared: &mut Shared,
        far: &mut Far<A>,
    ) {
        let attached = self.attachments.iter().position(|attachment| attachment.stream == stream);
        match (message, attached) {
            (Message::Attach { name, stream: wanted, max_payload_bytes, max_read_request_bytes }, _)
                if stream == CONTROL_STREAM =>
            {
                let limits = (max_payload_bytes, max_read_request_bytes);
                let outcome = if wanted == CONTROL_STREAM || wanted >= streams {
                    Err(AttachStatus::NoRoom)
                } else {
                    self.attach(now_ns, name, wanted, limits, shared, far)
                };
                let (status, port) = match outcome {
                    Ok(port) => (AttachStatus::Attached, port),
                    Err(status) => (status, FunctionId::default()),
                };
                self.answers.push_back((CONTROL_STREAM, Message::Attached { stream: wanted, status, port }));
            }
            (Message::Detach, Some(index)) => {
                let attachment = self.attachments.swap_remove(index);
                if shared.give_back(&mut self.hierarchy, attachment) {
                    shared.leases.released(now_ns, attachment.function);
                }
                self.look_away(attachment, far);
                self.answers.push_back((stream, Message::Detached));
            }
            (Message::HotReset, Some(index)) => {
                if let Some(slot) = self.attachments[index].slot {
                    self.hierarchy.hot_reset(slot);
                    self.outlooks[usize::from(slot)].reset();
                }
                self.answers.push_back((stream, Message::HotResetDone));
            }
            (Message::Domain { domain }, Some(index)) => {
                if let Some(slot) = self.attachments[index].slot {
                    self.hierarchy.set_domain(slot, domain);
                }
            }
            (Message::Reach(reach), Some(index)) if self.session.has(feature::BOXES) => {
                if let Some(slot) = self.attachments[index].slot {
                    if let Some(behind) = &reach.behind {
                        far.reached(now_ns, behind);
                    }
                    self.outlooks[usize::from(slot)].set(&reach);
                    self.is_far = true;
                    far.is_moved = true;
                }
            }
            (Message::Admit(admit), _) if stream == CONTROL_STREAM && self.session.has(feature::BOXES) => {
                self.admit(admit, far);
            }
            (Message::Member { group }, _) if stream == CONTROL_STREAM => self.group = group,
            _ => tracing::warn!(stream, ?message, "control message out of place"),
        }
    }

    fn attach(
        &mut self,
        now_ns: u64,
        name: Name,
        stream: u16,
        (max_payload_bytes, max_read_request_bytes): (u16, u16),
        shared: &mut Shared,
        far: &mut Far<A>,
    ) -> Result<FunctionId, AttachStatus> {
        if self.attachments.iter().any(|attachment| attachment.stream == stream) {
            return Err(AttachStatus::NoRoom);
        }
        let key = self.keys.as_ref().map(|keys| keys.channel.peer);
        let mut functions = shared.functions.iter();
        if !functions.any(|function| function.name == name && function.is_for(key.as_ref())) {
            return Err(AttachStatus::Unknown);
        }
        let free = |slot: &u8| self.attachments.iter().all(|attachment| attachment.slot != Some(*slot));
        let slot = (0..Hierarchy::SLOTS as u8).find(free).ok_or(AttachStatus::NoRoom)?;
        let epoch =
            shared.leases.admit(now_ns, self.node, self.group, &name).map_err(|denied| match denied {
                Denied::Unknown => AttachStatus::Unknown,
                Denied::NotAssigned if self.session.has(feature::LEASES) => AttachStatus::NotAssigned,
                Denied::NotAssigned | Denied::Busy => AttachStatus::Busy,
            })?;
        let function = shared.leases.index(&name).ok_or(AttachStatus::Unknown)?;
        // What nobody holds is not plugged in anywhere.
        let mut endpoint = shared.functions[function].endpoint.take().ok_or(AttachStatus::Busy)?;
        endpoint.attach(max_payload_bytes, max_read_request_bytes);
        let port = self.hierarchy.plug(slot, stream, endpoint);
        self.attachments.push(Attachment { function, slot: Some(slot), stream });
        self.outlooks[usize::from(slot)] = Outlook::new(far.next_life(), stream);
        tracing::info!(device = name.as_str(), %port, epoch, "device attached");
        Ok(port)
    }
}
