//! Who reaches whom: whatever is plugged, moved, enabled and said of domains, a write is where a model of the policy has it, and nowhere else;
//! and a read that was asked for ends exactly once.

#[path = "support/mod.rs"]
mod support;

use etherslot_pci::endpoint::{Endpoint, EndpointConfig};
use etherslot_pci::function::Fault;
use etherslot_wire::tlp::{Header, Op};
use proptest::prelude::*;
use support::{
    Act, BAR0, Bench, COMMAND, Event, QUARANTINE_NS, ScratchFunction, TIMEOUT_NS, completion, function, port,
    spec, stream,
};

const SLOTS: u8 = 4;
/// Of BAR 0.
const BYTES: u64 = 0x4000;

/// A slot as the policy sees it.
#[derive(Clone, Copy, Debug)]
struct Place {
    is_there: bool,
    domain: u16,
    base: u64,
    is_decoding: bool,
}

#[derive(Clone, Debug)]
enum Step {
    Domain(u8, u16),
    Move(u8, u64),
    Decode(u8, bool),
    Unplug(u8),
    Plug(u8),
    Write(u8, u64),
    Read(u8, u64),
}

/// Bases that meet each other, and share units of windows.
fn base() -> impl Strategy<Value = u64> {
    (0..6_u64, 0..3_u64).prop_map(|(unit, place)| BAR0 + 0x10_0000 * unit + BYTES * place)
}

fn step() -> impl Strategy<Value = Step> {
    let slot = || 0..SLOTS;
    let address = || (base(), 0..BYTES / 8).prop_map(|(base, at)| base + 8 * at);
    prop_oneof![
        2 => (slot(), 0..3_u16).prop_map(|(slot, domain)| Step::Domain(slot, domain)),
        2 => (slot(), base()).prop_map(|(slot, base)| Step::Move(slot, base)),
        1 => (slot(), any::<bool>()).prop_map(|(slot, on)| Step::Decode(slot, on)),
        1 => slot().prop_map(Step::Unplug),
        1 => slot().prop_map(Step::Plug),
        6 => (slot(), address()).prop_map(|(slot, address)| Step::Write(slot, address)),
        3 => (slot(), address()).prop_map(|(slot, address)| Step::Read(slot, address)),
    ]
}

/// Where a Request of a slot goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route {
    Host,
    Peer(u8),
    /// Refused.
    Nowhere,
}

struct World {
    bench: Bench,
    places: [Place; SLOTS as usize],
    tokens: u64,
}

impl World {
    fn new() -> Self {
        let mut bench = Bench::with(&vec![spec(); SLOTS.into()]);
        bench.hierarchy.set_peer_to_peer(false);
        let place =
            |slot: u64| Place { is_there: true, domain: 0, base: BAR0 + 0x10_0000 * slot, is_decoding: true };
        Self { bench, places: [0, 1, 2, 3].map(place), tokens: 0 }
    }

    /// What the policy says. A port's window is that of the unit of its BAR.
    fn route(&self, from: u8, address: u64) -> Route {
        let own = self.places[usize::from(from)];
        let decodes =
            |place: &Place| place.is_decoding && (place.base..place.base + BYTES).contains(&address);
        let is_peer = |slot: &u8| {
            let place = &self.places[usize::from(*slot)];
            *slot != from && place.is_there && own.domain != 0 && place.domain == own.domain && decodes(place)
        };
        match (0..SLOTS).find(is_peer) {
            Some(peer) => Route::Peer(peer),
            None if address >> 20 == own.base >> 20 => Route::Nowhere,
            None => Route::Host,
        }
    }

    fn program(&mut self, slot: u8) {
        let Place { base, is_decoding, .. } = self.places[usize::from(slot)];
        let unit = (base >> 16 & 0xFFF0) as u32;
        self.bench.cfg_write(slot, port(slot), 0x20, unit << 16 | unit);
        self.bench.cfg_write(slot, function(slot), 0x10, base as u32);
        self.bench.cfg_write(slot, function(slot), COMMAND, if is_decoding { 6 } else { 4 });
    }

    fn act(&mut self, step: &Step) {
        match *step {
            Step::Domain(slot, domain) if self.places[usize::from(slot)].is_there => {
                self.bench.hierarchy.set_domain(slot, domain);
                self.places[usize::from(slot)].domain = domain;
            }
            Step::Move(slot, base) if self.places[usize::from(slot)].is_there => {
                self.places[usize::from(slot)].base = base;
                self.program(slot);
            }
            Step::Decode(slot, on) if self.places[usize::from(slot)].is_there => {
                self.places[usize::from(slot)].is_decoding = on;
                self.program(slot);
            }
            // One stays, as the way to the host.
            Step::Unplug(slot) if slot != 0 && self.places[usize::from(slot)].is_there => {
                self.bench.hierarchy.unplug(slot);
                self.places[usize::from(slot)].is_there = false;
            }
            Step::Plug(slot) if !self.places[usize::from(slot)].is_there => {
                let (made, scratch) = ScratchFunction::new(spec());
                let config = EndpointConfig {
                    tags: 8,
                    completion_timeout_ns: TIMEOUT_NS,
                    quarantine_ns: QUARANTINE_NS,
                };
                self.bench.hierarchy.plug(
                    slot,
                    stream(slot),
                    Box::new(Endpoint::new(Box::new(made), config)),
                );
                self.bench.scratch[usize::from(slot)] = scratch;
                // Whatever its predecessor shared, it is alone.
                let place = &mut self.places[usize::from(slot)];
                (place.is_there, place.domain, place.is_decoding) = (true, 0, true);
                self.program(slot);
            }
            Step::Write(slot, address) if self.places[usize::from(slot)].is_there => {
                self.write(slot, address);
            }
            Step::Read(slot, address) if self.places[usize::from(slot)].is_there => self.read(slot, address),
            _ => {}
        }
        self.forget();
    }

    fn forget(&mut self) {
        self.bench.host.take();
        self.bench.scratch.iter().for_each(|scratch| drop(scratch.take_events()));
    }

    fn write(&mut self, slot: u8, address: u64) {
        self.tokens += 1;
        let (route, data) = (self.route(slot, address), self.tokens.to_le_bytes().to_vec());
        self.forget();
        self.bench.act(slot, Act::Write(address, data.clone()));
        let on_host = self.bench.host.take_writes();
        let expected = if route == Route::Host { vec![(address, data.clone())] } else { vec![] };
        assert_eq!(on_host, expected, "{route:?}");
        for peer in 0..SLOTS {
            let base = self.places[usize::from(peer)].base;
            let events = self.bench.scratch[usize::from(peer)].take_events();
            let expected = match route {
                Route::Peer(to) if to == peer => vec![Event::BarWrite(0, address - base, data.clone())],
                _ => vec![],
            };
            assert_eq!(events, expected, "{route:?}, at {peer}");
        }
    }

    fn read(&mut self, slot: u8, address: u64) {
        let route = self.route(slot, address);
        self.forget();
        self.bench.act(slot, Act::Read(address, 8, 7));
        let on_host = self.bench.host.take_reads();
        assert_eq!(on_host.len(), usize::from(route == Route::Host), "{route:?}");
        for request in on_host {
            let answer = Header::new(Op::Completion(completion(&request, 0, 8)));
            self.bench.send(slot, &answer, &[3; 8]);
            self.bench.settle();
        }
        let ended = self.bench.scratch[usize::from(slot)].take_events();
        match (route, &ended[..]) {
            (Route::Host, [Event::Completed(7, at, data)]) => {
                assert_eq!((*at, &data[..]), (address, &[3; 8][..]));
            }
            (Route::Peer(_), [Event::Completed(7, at, _)]) => assert_eq!(*at, address),
            (Route::Nowhere, [Event::Failed(7, _, 8, Fault::UnsupportedRequest)]) => {}
            _ => panic!("{route:?}: {ended:?}"),
        }
    }
}

proptest! {
    #[test]
    fn requests_are_where_the_policy_has_them_and_nowhere_else(steps in prop::collection::vec(step(), 1..120)) {
        let mut world = World::new();
        for step in &steps {
            world.act(step);
        }
        prop_assert_eq!(world.bench.hierarchy.counters().spoofed, 0);
        prop_assert_eq!(world.bench.hierarchy.counters().unrouted_completions, 0);
    }
}
