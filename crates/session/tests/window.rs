//! What the controller and the receiver's cap allow is what is on the way.

mod pair;

use std::cell::Cell;

use etherslot_session::{Acked, Config, Controller, Limits, Lost};
use pair::{Link, MS, Pair, US};

thread_local! {
    /// The most bytes on the way that any [`Fixed`] of this test has seen.
    static MOST: Cell<u64> = const { Cell::new(0) };
}

/// A window and a rate that do not change.
#[derive(Debug)]
struct Fixed {
    window_bytes: u64,
    rate: Option<u64>,
}

impl Controller for Fixed {
    fn set_frame_bytes(&mut self, _bytes: u64) {}
    fn on_sent(&mut self, _now_ns: u64, bytes: u64, in_flight_bytes: u64) {
        assert!(bytes <= in_flight_bytes);
        MOST.set(MOST.get().max(in_flight_bytes));
    }
    fn on_ack(&mut self, acked: &Acked) {
        assert!(acked.bytes > 0);
    }
    fn on_loss(&mut self, lost: &Lost) {
        assert!(lost.bytes > 0 && lost.newest_tx_ns <= lost.now_ns);
    }
    fn on_rto(&mut self, _now_ns: u64) {}
    fn on_spurious(&mut self, _now_ns: u64) {}
    fn window_bytes(&self) -> u64 {
        self.window_bytes
    }
    fn pacing_rate(&self) -> Option<u64> {
        self.rate
    }
}

fn bulk(pair: &mut Pair, ns: u64) {
    let end_ns = pair.now_ns + ns;
    while pair.now_ns < end_ns {
        while pair.nodes[0].put(1, 1396) {}
        pair.step(end_ns);
    }
}

#[test]
fn no_more_is_on_the_way_than_the_window() {
    let narrow = |_: &Limits| Box::new(Fixed { window_bytes: 10_000, rate: None }) as Box<dyn Controller>;
    let config = Config { controller: narrow, ..Config::default() };
    let mut pair = Pair::connected(1, &config, Link { loss: 20_000, ..Link::default() });
    MOST.set(0);
    bulk(&mut pair, 20 * MS);
    // A tail-loss probe is not held back by the window.
    assert!((8_000..=13_000).contains(&MOST.get()), "{}", MOST.get());
    assert!(pair.run_until(pair.now_ns + 1000 * MS, Pair::is_all_delivered));
}

#[test]
fn a_window_of_less_than_a_frame_lets_one_frame_through_at_a_time() {
    let shut = |_: &Limits| Box::new(Fixed { window_bytes: 0, rate: None }) as Box<dyn Controller>;
    let config = Config { controller: shut, ..Config::default() };
    let mut pair = Pair::connected(1, &config, Link::default());
    MOST.set(0);
    bulk(&mut pair, 20 * MS);
    assert!(MOST.get() <= 1500);
    let sent = pair.nodes[0].session().counters().data_frames_sent;
    // A round trip for each: the peer is asked not to hold its acknowledgements back.
    assert!((480..=500).contains(&sent), "{sent}");
}

#[test]
fn the_cap_that_the_receiver_asks_for_is_kept() {
    let wide = |_: &Limits| Box::new(Fixed { window_bytes: 1 << 30, rate: None }) as Box<dyn Controller>;
    let config = Config { controller: wide, ..Config::default() };
    let mut pair = Pair::connected(1, &config, Link::default());
    pair.nodes[1].session().set_receiver_cap_bytes(6_000);
    assert!(pair.nodes[1].put(1, 100));
    pair.run_for(MS);
    MOST.set(0);
    bulk(&mut pair, 20 * MS);
    // By less than a frame beyond it.
    assert!((4_000..7_500).contains(&MOST.get()), "{}", MOST.get());
    assert_eq!(pair.nodes[0].session().counters().window_bytes, 6_000);
}

#[test]
fn frames_leave_at_the_paced_rate() {
    let paced = |_: &Limits| {
        Box::new(Fixed { window_bytes: 1 << 30, rate: Some(100_000_000) }) as Box<dyn Controller>
    };
    let config = Config { controller: paced, ..Config::default() };
    let mut pair = Pair::connected(1, &config, Link::default());
    bulk(&mut pair, 20 * MS);
    let bytes = pair.nodes[0].session().counters().bytes_sent;
    assert!((1_900_000..=2_100_000).contains(&bytes), "{bytes} in 20 ms");
}

#[test]
fn what_waits_for_its_first_transmission_is_bounded_by_the_backlog() {
    let shut = |_: &Limits| Box::new(Fixed { window_bytes: 0, rate: None }) as Box<dyn Controller>;
    let config = Config { controller: shut, backlog_frames: 8, ..Config::default() };
    let mut pair = Pair::connected(1, &config, Link::default());
    while pair.nodes[0].put(1, 1396) {}
    assert!((8..=12).contains(&pair.nodes[0].session().unacked_frames()));
    pair.run_for(30 * US);
    assert!(pair.nodes[0].put(1, 1396), "one has left, one may come");
}
