//! Both ends in virtual time, over a link with a rate, a delay, a queue and losses.

use std::collections::VecDeque;

use etherslot_session::{Config, Session};

use super::client::{Client, Failed, Measured, Phase};
use super::server::Server;
use super::*;

const MS: u64 = 1_000_000;
const CLIENT: u32 = 1;
const SERVER: u32 = 2;

/// One direction of a link.
#[derive(Default)]
struct Wire {
    /// Bits per second.
    rate: u64,
    delay_ns: u64,
    /// One frame of so many is lost; 0 is none.
    loss_one_in: u64,
    free_ns: u64,
    frames: u64,
    lost: u64,
    waiting: VecDeque<(u64, Vec<u8>)>,
}

impl Wire {
    fn new(loss_one_in: u64) -> Self {
        Self { rate: 1_000_000_000, delay_ns: 20_000, loss_one_in, ..Self::default() }
    }

    fn send(&mut self, now_ns: u64, frames: &[&[u8]]) -> usize {
        for frame in frames {
            self.frames += 1;
            // Spread as if at random, and the same in every run.
            let drawn = self.frames.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
            if self.loss_one_in != 0 && drawn.is_multiple_of(self.loss_one_in) {
                self.lost += 1;
                continue;
            }
            self.free_ns = self.free_ns.max(now_ns) + frame.len() as u64 * 8 * 1_000_000_000 / self.rate;
            self.waiting.push_back((self.free_ns + self.delay_ns, frame.to_vec()));
        }
        frames.len()
    }

    fn arrived(&mut self, now_ns: u64) -> Option<Vec<u8>> {
        let is_here = self.waiting.front().is_some_and(|(at_ns, _)| *at_ns <= now_ns);
        is_here.then(|| self.waiting.pop_front().map(|(_, frame)| frame)).flatten()
    }
}

fn plan(to_peer: bool, from_peer: bool) -> Plan {
    Plan { idle_ns: 100 * MS, load_ns: 400 * MS, record_bytes: 4096, to_peer, from_peer }
}

struct Rig {
    now_ns: u64,
    client: Client<u32>,
    server: Server<u32>,
    to_server: Wire,
    to_client: Wire,
    tests_over: u32,
}

impl Rig {
    fn new(plan: Plan, loss_one_in: u64) -> Self {
        let config = Config::default();
        Self {
            now_ns: 1,
            client: Client::new(&config, plan, &[SERVER], 7, 1),
            server: Server::new(&config, || 9),
            to_server: Wire::new(loss_one_in),
            to_client: Wire::new(loss_one_in),
            tests_over: 0,
        }
    }

    /// One round of both loops, and the time to the next event.
    fn step(&mut self) {
        let now_ns = self.now_ns;
        while let Some(frame) = self.to_server.arrived(now_ns) {
            self.server.receive(now_ns, &CLIENT, &frame);
        }
        while let Some(frame) = self.to_client.arrived(now_ns) {
            self.client.receive(now_ns, &SERVER, &frame);
        }
        loop {
            let over = &mut self.tests_over;
            let mut progress = self.server.poll(now_ns, &mut |_: &u32, _: &Session| *over += 1);
            progress |= self.client.poll(now_ns);
            let (to_server, to_client) = (&mut self.to_server, &mut self.to_client);
            progress |= self.server.transmit(now_ns, &mut |_, frames| to_client.send(now_ns, frames));
            progress |= self.client.transmit(now_ns, &mut |_, frames| to_server.send(now_ns, frames));
            if !progress {
                break;
            }
        }
        let frames =
            [&self.to_server, &self.to_client].map(|wire| wire.waiting.front().map(|(at_ns, _)| *at_ns));
        let next =
            [self.client.deadline_ns(), self.server.deadline_ns()].into_iter().chain(frames).flatten().min();
        self.now_ns = next.unwrap_or(now_ns + MS).max(now_ns + 1);
    }

    fn run(mut self) -> (Result<Measured, Failed>, Self) {
        while !(self.client.is_done() && self.client.is_silent()) {
            self.step();
            if self.client.is_done() {
                self.client.close();
            }
            assert!(self.now_ns < 20_000 * MS, "no end in {:?}", self.client);
        }
        (self.client.measured(), self)
    }
}

/// Of the link's 1 Gbit/s.
fn share(flow: Option<Flow>) -> f64 {
    flow.unwrap().bits_per_second / 1e9
}

#[test]
fn a_clean_link_is_filled_and_its_idle_latency_is_its_delay() {
    let (measured, mut rig) = Rig::new(plan(true, false), 0).run();
    let measured = measured.unwrap();
    assert!((0.9..1.0).contains(&share(measured.to_peer)), "{measured:?}");
    assert!(measured.from_peer.is_none());
    assert!((99..=101).contains(&measured.idle.pings), "{measured:?}");
    assert_eq!(measured.idle.unanswered, 0);
    assert!((40_000..50_000).contains(&measured.idle.p50_ns), "{measured:?}");
    assert!(measured.loaded.pings > 300 && measured.loaded.p50_ns >= measured.idle.p50_ns, "{measured:?}");
    while rig.tests_over == 0 {
        rig.step();
    }
}

#[test]
fn the_other_way_and_both_ways_are_measured_by_their_receivers() {
    let (measured, _) = Rig::new(plan(false, true), 0).run();
    let measured = measured.unwrap();
    assert!((0.9..1.0).contains(&share(measured.from_peer)), "{measured:?}");
    assert!(measured.to_peer.is_none());
    let (measured, _) = Rig::new(plan(true, true), 0).run();
    let measured = measured.unwrap();
    assert!(share(measured.to_peer) > 0.5 && share(measured.from_peer) > 0.5, "{measured:?}");
}

#[test]
fn losses_cost_goodput_and_no_ping() {
    let (measured, rig) = Rig::new(plan(true, false), 100).run();
    let measured = measured.unwrap();
    assert!(rig.to_server.lost > 10 && rig.client.session().counters().retransmissions > 10);
    assert!((0.3..1.0).contains(&share(measured.to_peer)), "{measured:?}");
    assert!(measured.loaded.pings > 300, "{measured:?}");
}

#[test]
fn nobody_there_is_told() {
    let mut rig = Rig::new(plan(true, false), 0);
    rig.to_server.loss_one_in = 1;
    let (measured, _) = rig.run();
    assert_eq!(measured, Err(Failed::Silent));
}

#[test]
fn a_server_that_goes_under_way_is_told() {
    let mut rig = Rig::new(plan(true, false), 0);
    while rig.client.progress(rig.now_ns).phase != Phase::Loaded {
        rig.step();
    }
    rig.server.close();
    let (measured, _) = rig.run();
    assert!(matches!(measured, Err(Failed::Lost(_))), "{measured:?}");
}

#[test]
fn a_test_that_is_stopped_under_load_has_a_result() {
    let mut rig = Rig::new(plan(true, false), 0);
    while rig.client.progress(rig.now_ns).passed_ns < 400 * MS {
        rig.step();
    }
    rig.client.stop(rig.now_ns);
    assert!(share(rig.run().0.unwrap().to_peer) > 0.8);

    let mut rig = Rig::new(plan(true, false), 0);
    rig.step();
    rig.client.stop(rig.now_ns);
    assert_eq!(rig.client.measured(), Err(Failed::Stopped));
}
