//! Functions of other boxes: what they ask of the Endpoints here, and what they answer.
//!
//! Each is known by an ID on a bus that no slot has, [`FAR_BUS`] and behind. Completions for such an ID leave upstream, by
//! [`TlpOut::send`](crate::TlpOut::send), whose owner knows where it is.

use etherslot_wire::FunctionId;
use etherslot_wire::tlp::{Class, Header, Op};

use super::{Hierarchy, Route};
use crate::endpoint::inbound::unsupported_completion;

/// The first bus of Functions of other boxes: host nodes give slots the buses before.
pub const FAR_BUS: u8 = 0x80;

/// What has become of a Request of another box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// It has taken effect, or will be answered.
    Taken,
    /// Too many wait for an answer; it is to be tried again. Only Non-Posted ones are.
    Busy,
    /// Nothing that it may reach decodes its address: the Completion for it, if it is Non-Posted.
    Refused(Option<Header>),
}

impl Hierarchy {
    /// Takes a Request of another box's Function, whose Requester ID is on [`FAR_BUS`] or behind, for whatever of `domain`, which is not
    /// 0, decodes its address now; `data` is all of the TLP's.
    pub fn receive_far(&mut self, now_ns: u64, domain: u16, header: &Header, data: &[u8]) -> Heard {
        let fabric = &mut self.fabric;
        let address = match header.op {
            Op::MemRead(request) | Op::MemWrite(request) => Some(request.address),
            Op::Atomic { address, .. } => Some(address),
            _ => None,
        };
        let slots = fabric.slots.iter().enumerate();
        let members = slots
            .filter(|(_, slot)| domain != 0 && slot.domain == domain)
            .fold(0, |set, (at, _)| set | 1_u32 << at);
        let route = address.map_or(Route::Nowhere, |address| {
            fabric.decoded(members & fabric.filled, address).unwrap_or(Route::Nowhere)
        });
        let Route::Peer(slot) = route else {
            fabric.counters.unrouted += 1;
            let completion = (header.class() == Class::NonPosted).then(|| {
                let completion = unsupported_completion(header, fabric.upstream_id);
                Header { op: Op::Completion(completion), poisoned: false, ..*header }
            });
            return Heard::Refused(completion);
        };
        let Some(endpoint) = &mut fabric.slots[slot].endpoint else { return Heard::Refused(None) };
        if header.class() == Class::NonPosted && !endpoint.accepts_peer_request() {
            return Heard::Busy;
        }
        fabric.counters.peer += 1;
        fabric.active |= 1 << slot;
        endpoint.receive(now_ns, header, data);
        Heard::Taken
    }

    /// Takes a Completion of another box's Function for the Endpoint in a slot. False if it is for nobody there.
    pub fn receive_far_completion(&mut self, now_ns: u64, slot: u8, header: &Header, data: &[u8]) -> bool {
        let fabric = &mut self.fabric;
        let endpoint = fabric.slots.get_mut(slot as usize).and_then(|slot| slot.endpoint.as_mut());
        match (header.op, endpoint) {
            (Op::Completion(completion), Some(endpoint)) if completion.requester == endpoint.id() => {
                fabric.active |= 1 << slot;
                endpoint.receive(now_ns, header, data);
                true
            }
            _ => {
                fabric.counters.unrouted_completions += 1;
                false
            }
        }
    }

    /// What another box's Function has asked for is answered no more: the next one may have its ID.
    pub fn forget_far(&mut self, requester: FunctionId) {
        for endpoint in self.fabric.slots.iter_mut().filter_map(|slot| slot.endpoint.as_mut()) {
            endpoint.forget_requester(requester);
        }
    }

    /// The domain of the Endpoint in a slot; 0 if it is in none.
    pub fn domain(&self, slot: u8) -> u16 {
        self.fabric.slots.get(slot as usize).map_or(0, |slot| slot.domain)
    }
}
