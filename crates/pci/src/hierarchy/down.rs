//! TLPs from the host: the upstream port and what is below it (2.2.4, 7.3.3).

use etherslot_wire::FunctionId;
use etherslot_wire::tlp::{CfgRequest, CfgType, CplStatus, Header, Op, Routing};

use super::{ANSWERS, Fabric, Hierarchy, PortAnswer};
use crate::endpoint::inbound::{plain_completion, unsupported_completion};
use crate::errors::{Error, Handling};
use crate::switch::{Effect, Port};

/// Where a Configuration Request ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Upstream,
    Downstream(usize),
    /// An Endpoint below the port of this slot.
    Below(usize),
    Nowhere,
}

impl Fabric {
    /// Takes a TLP from the stream of `slot`, which is filled.
    pub(super) fn receive(&mut self, now_ns: u64, slot: usize, tlp: &[u8]) {
        self.counters.received += 1;
        let Ok((header, data)) = Header::parse(tlp) else {
            self.counters.malformed += 1;
            self.upstream.report(Error::Malformed, Handling::Final, None);
            return;
        };
        if let Op::Completion(completion) = header.op {
            match self.slot_below(completion.requester, slot) {
                Some(found) if found == slot => self.deliver(now_ns, slot, &header, data),
                found => {
                    self.counters.unrouted_completions += 1;
                    self.counters.trespassing += u64::from(found.is_some());
                    self.upstream.report(Error::UnexpectedCompletion, Handling::Advisory, Some(&header));
                }
            }
            return;
        }
        // Only the Root Complex is above, and it is on bus 0.
        if header.requester().bus() != 0 {
            self.counters.spoofed += 1;
            self.refuse(slot, &header, Error::UnsupportedRequest);
            return;
        }
        match header.op {
            Op::CfgRead(request) | Op::CfgWrite(request) => {
                self.configure(now_ns, slot, &header, &request, data);
            }
            Op::MemRead(request) | Op::MemWrite(request) => {
                self.memory(now_ns, slot, request.address, &header, data);
            }
            Op::Atomic { address, .. } => self.memory(now_ns, slot, address, &header, data),
            Op::Message { routing, fields, .. } => {
                let target = FunctionId(u16::from_be_bytes([fields[0], fields[1]]));
                match routing {
                    Routing::FromRoot => self.deliver(now_ns, slot, &header, data),
                    Routing::ById if self.slot_below(target, slot) == Some(slot) => {
                        self.deliver(now_ns, slot, &header, data);
                    }
                    // Ends here, at the other end of the Link, where no Message has an effect.
                    Routing::Local => {}
                    _ => {
                        self.counters.unrouted += 1;
                        self.refuse(slot, &header, Error::UnsupportedRequest);
                    }
                }
            }
            Op::Completion(_) => {}
        }
    }

    fn memory(&mut self, now_ns: u64, slot: usize, address: u64, header: &Header, data: &[u8]) {
        let passes = |port: &Port| port.is_link_up() && port.claims(address);
        if passes(&self.upstream) {
            if passes(&self.ports[slot]) {
                self.deliver(now_ns, slot, header, data);
                return;
            }
            self.counters.trespassing += u64::from(self.ports.iter().any(passes));
        }
        self.counters.unrouted += 1;
        self.refuse(slot, header, Error::UnsupportedRequest);
    }

    fn configure(&mut self, now_ns: u64, slot: usize, header: &Header, request: &CfgRequest, data: &[u8]) {
        match self.target(slot, request) {
            Target::Upstream => {
                if matches!(header.op, Op::CfgWrite(_)) && !header.poisoned {
                    self.upstream_id = request.target;
                }
                let effect = access(&mut self.upstream, header, request, data);
                if effect == Effect::ResetBelow {
                    for below in 0..Hierarchy::SLOTS {
                        self.ports[below].reset();
                        self.reset_slot(below);
                    }
                }
                self.answer_configuration(slot, header, request, self.upstream_id, |fabric| &fabric.upstream);
            }
            Target::Downstream(port) => {
                if access(&mut self.ports[port], header, request, data) == Effect::ResetBelow {
                    self.reset_slot(port);
                }
                let id = FunctionId::new(self.upstream.secondary(), port as u8, 0);
                self.answer_configuration(slot, header, request, id, |fabric| &fabric.ports[port]);
            }
            Target::Below(below) if below == slot => {
                // Type 1 becomes Type 0 on its last Link (7.3.3).
                let request = CfgRequest { kind: CfgType::Type0, ..*request };
                let op = if matches!(header.op, Op::CfgRead(_)) {
                    Op::CfgRead(request)
                } else {
                    Op::CfgWrite(request)
                };
                self.deliver(now_ns, slot, &Header { op, ..*header }, data);
            }
            Target::Below(_) => {
                self.counters.trespassing += 1;
                self.refuse(slot, header, Error::UnsupportedRequest);
            }
            Target::Nowhere => {
                self.counters.unrouted += 1;
                self.refuse(slot, header, Error::UnsupportedRequest);
            }
        }
    }

    fn target(&self, slot: usize, request: &CfgRequest) -> Target {
        let CfgRequest { kind, target, .. } = *request;
        // A Link and the internal bus have single-Function devices only; a Link has device 0 only (7.3.1).
        if target.function() != 0 {
            return Target::Nowhere;
        }
        if kind == CfgType::Type0 {
            return if target.device() == 0 { Target::Upstream } else { Target::Nowhere };
        }
        if !self.upstream.leads_to(target.bus()) || !self.upstream.is_link_up() {
            return Target::Nowhere;
        }
        if target.bus() == self.upstream.secondary() {
            let port = target.device() as usize;
            return if port < self.ports.len() { Target::Downstream(port) } else { Target::Nowhere };
        }
        match self.slot_below(target, slot) {
            // Behind the Link's own bus there is no bridge.
            Some(below) if self.ports[below].secondary() == target.bus() && target.device() == 0 => {
                Target::Below(below)
            }
            _ => Target::Nowhere,
        }
    }

    /// The slot below whose port the bus of `id` is, if its Link is up: that of `first`, if several are.
    pub(super) fn slot_below(&self, id: FunctionId, first: usize) -> Option<usize> {
        let leads = |slot: &usize| self.ports[*slot].leads_to(id.bus()) && self.ports[*slot].is_link_up();
        if leads(&first) { Some(first) } else { (0..self.ports.len()).find(leads) }
    }

    fn deliver(&mut self, now_ns: u64, slot: usize, header: &Header, data: &[u8]) {
        if let Some(endpoint) = &mut self.slots[slot].endpoint {
            endpoint.receive(now_ns, header, data);
        }
    }

    fn answer_configuration(
        &mut self,
        slot: usize,
        header: &Header,
        request: &CfgRequest,
        id: FunctionId,
        port: impl Fn(&Self) -> &Port,
    ) {
        if header.poisoned {
            self.refuse(slot, header, Error::Poisoned);
            return;
        }
        let is_read = matches!(header.op, Op::CfgRead(_));
        let data = if is_read { port(self).config.read(request.register) } else { [0; 4] };
        let completion = plain_completion(header, id, CplStatus::Success, u16::from(is_read));
        self.answer(slot, Header { op: Op::Completion(completion), ..*header }, data);
    }

    /// UR, because of `error`, for a Non-Posted Request from the host; a Posted one is dropped.
    fn refuse(&mut self, slot: usize, header: &Header, error: Error) {
        let posted = matches!(header.op, Op::MemWrite(_) | Op::Message { .. });
        let handling = if posted { Handling::Final } else { Handling::Advisory };
        self.upstream.report(error, handling, Some(header));
        if !posted {
            let completion = unsupported_completion(header, self.upstream_id);
            self.answer(slot, Header { op: Op::Completion(completion), poisoned: false, ..*header }, [0; 4]);
        }
    }

    fn answer(&mut self, slot: usize, header: Header, data: [u8; 4]) {
        let answers = &mut self.slots[slot].answers;
        if answers.len() < ANSWERS {
            answers.push_back(PortAnswer { header, data });
        } else {
            self.counters.overflows += 1;
            self.upstream.report(Error::ReceiverOverflow, Handling::Final, Some(&header));
        }
    }
}

/// A Configuration Request to a port. Poisoned data is not written (2.7.2.1).
fn access(port: &mut Port, header: &Header, request: &CfgRequest, data: &[u8]) -> Effect {
    match (&header.op, data) {
        (Op::CfgWrite(_), &[b0, b1, b2, b3]) if !header.poisoned => {
            port.write(request.register, request.first_be, [b0, b1, b2, b3])
        }
        _ => Effect::None,
    }
}
