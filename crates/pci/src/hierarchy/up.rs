//! TLPs from the Endpoints: to the host, or to a peer (2.2.4).

use etherslot_wire::FunctionId;
use etherslot_wire::control::Message;
use etherslot_wire::tlp::{Class, Header, Op};

use super::far::FAR_BUS;
use super::{Fabric, Route};
use crate::endpoint::Endpoint;
use crate::endpoint::inbound::unsupported_completion;
use crate::errors::{Error, Handling};
use crate::{TlpOut, data_lead};

/// The way upstream of the Endpoint in `slot`, which is being polled.
pub(super) struct Upward<'a> {
    pub(super) fabric: &'a mut Fabric,
    pub(super) slot: usize,
    pub(super) id: FunctionId,
    pub(super) out: &'a mut dyn TlpOut,
    pub(super) now_ns: u64,
}

impl TlpOut for Upward<'_> {
    /// Where a TLP goes is known when it is sent, so one for a peer waits for room upstream as well.
    fn room(&mut self, stream: u16) -> usize {
        self.out.room(stream)
    }

    fn room_to(&mut self, stream: u16, requester: FunctionId) -> usize {
        if requester.bus() < FAR_BUS { self.out.room(stream) } else { self.out.room_to(stream, requester) }
    }

    fn declare(&mut self, stream: u16, message: Message) -> bool {
        self.out.declare(stream, message)
    }

    fn send(&mut self, stream: u16, header: &Header, data: &[u8]) -> bool {
        let (sender, route) = match header.op {
            Op::MemRead(request) | Op::MemWrite(request) => {
                (request.requester, self.by_address(request.address))
            }
            Op::Atomic { requester, address, .. } => (requester, self.by_address(address)),
            Op::Completion(completion) => (completion.completer, self.by_id(completion.requester)),
            // INTx and error Messages go to the host as they are: a stream is its Function's own wire.
            Op::Message { requester, .. } => (requester, Route::Host),
            // An Endpoint configures nobody.
            Op::CfgRead(_) | Op::CfgWrite(_) => (header.requester(), Route::Nowhere),
        };
        if sender != self.id {
            self.fabric.counters.spoofed += 1;
            return self.refuse(header);
        }
        match route {
            Route::Host => self.out.send(stream, header, data),
            Route::Peer(peer) => self.pass(peer, header, data),
            Route::Nowhere => self.refuse(header),
        }
    }
}

impl Upward<'_> {
    fn by_address(&self, address: u64) -> Route {
        let fabric = &*self.fabric;
        let own = &fabric.ports[self.slot];
        // A bridge passes upwards only as a bus master.
        if !own.is_link_up() || !own.is_master() {
            return Route::Nowhere;
        }
        // Windows are of 1 MiB, and BARs of neighbours may share one: what an Endpoint decodes comes first.
        let peers = fabric.slots[self.slot].peers;
        if let Some(route) = fabric.decoded(peers, address) {
            return route;
        }
        if own.claims(address) {
            return Route::Nowhere;
        }
        if fabric.peer_to_peer {
            if let Some(peer) = bits(peers).find(|&peer| fabric.ports[peer].claims(address)) {
                return if fabric.ports[peer].is_link_up() { Route::Peer(peer) } else { Route::Nowhere };
            }
            if fabric.upstream.claims(address) {
                return Route::Nowhere;
            }
        }
        if fabric.upstream.is_master() { Route::Host } else { Route::Nowhere }
    }

    /// Completions go the way back of their Requests, whatever may be enabled now; but to peers only.
    fn by_id(&self, requester: FunctionId) -> Route {
        if !self.fabric.upstream.leads_to(requester.bus()) || requester.bus() >= FAR_BUS {
            return Route::Host;
        }
        match self.fabric.slot_below(requester, self.slot) {
            Some(peer) if self.fabric.slots[self.slot].peers >> peer & 1 != 0 => Route::Peer(peer),
            _ => Route::Nowhere,
        }
    }

    /// Hands a TLP to a peer at once. A Non-Posted one waits while the peer has too many to answer; that can't
    /// last, as Completions never wait for it.
    fn pass(&mut self, peer: usize, header: &Header, data: &[u8]) -> bool {
        let Fabric { slots, scratch, counters, active, .. } = &mut *self.fabric;
        let Some(endpoint) = &mut slots[peer].endpoint else { return self.refuse(header) };
        if header.class() == Class::NonPosted && !endpoint.accepts_peer_request() {
            return false;
        }
        counters.peer += 1;
        *active |= 1 << peer;
        if data.len() == header.data_bytes() {
            endpoint.receive(self.now_ns, header, data);
            return true;
        }
        let whole = &mut scratch[..header.data_bytes()];
        let lead = data_lead(header);
        whole.fill(0);
        if let Some(place) = whole.get_mut(lead..lead + data.len()) {
            place.copy_from_slice(data);
        }
        endpoint.receive(self.now_ns, header, whole);
        true
    }

    /// The port above the Endpoint answers UR to a Non-Posted Request, and drops the rest; false if it has to
    /// be tried again.
    fn refuse(&mut self, header: &Header) -> bool {
        let class = header.class();
        let id = FunctionId::new(self.fabric.upstream.secondary(), self.slot as u8, 0);
        if class == Class::NonPosted {
            let refusals = &mut self.fabric.slots[self.slot].refusals;
            if refusals.len() == refusals.capacity() {
                return false;
            }
            let completion = unsupported_completion(header, id);
            refusals.push_back(Header { op: Op::Completion(completion), poisoned: false, ..*header });
        }
        if class == Class::Completion {
            self.fabric.counters.unrouted_completions += 1;
        } else {
            self.fabric.counters.unrouted += 1;
            let handling = if class == Class::NonPosted { Handling::Advisory } else { Handling::Final };
            self.fabric.ports[self.slot].report(Error::UnsupportedRequest, handling, Some(header));
        }
        true
    }
}

impl Fabric {
    /// The way to the Endpoint, of those in these slots, that decodes the address; nothing if none does.
    pub(super) fn decoded(&self, among: u32, address: u64) -> Option<Route> {
        let decodes = |endpoint: &Endpoint| endpoint.decodes(address);
        let slot = bits(among).find(|&slot| self.slots[slot].endpoint.as_deref().is_some_and(decodes))?;
        let port = &self.ports[slot];
        Some(if port.claims(address) && port.is_link_up() { Route::Peer(slot) } else { Route::Nowhere })
    }
}

/// The places of the bits that are set.
fn bits(mut set: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = (set != 0).then(|| set.trailing_zeros() as usize)?;
        set &= set - 1;
        Some(bit)
    })
}
