//! When frames are transmitted again, and when acknowledgements leave: to the microsecond.

mod pair;

use etherslot_session::{Acked, Config, Controller, Limits, Lost, Mode};
use etherslot_wire::control::feature;
use etherslot_wire::frame::{Ack, Echo, Header, Kind, Sack, flag};
use etherslot_wire::record::{FIRST, LAST};
use pair::hand::{Hand, part};
use pair::{LEAST, Link, MS, Pair, US};

const RTT_NS: u64 = 100 * US;

/// A session that has measured a round trip of 100 us, and has sent frames 0 and 1, which are acknowledged.
fn measured(config: &Config, features: u32) -> Hand {
    let mut hand = Hand::with(config, 256, features);
    ack_after_handshake(&mut hand);
    for sequence in 0..2 {
        let sent = send(&mut hand, 1);
        hand.now_ns += RTT_NS;
        answer(&mut hand, sequence + 1, &[], &sent[0]);
    }
    assert_eq!(hand.session.counters().srtt_ns, RTT_NS);
    hand
}

/// Sends so many frames.
fn send(hand: &mut Hand, frames: usize) -> Vec<Header> {
    let kind = etherslot_wire::record::Kind::Tlp;
    for _ in 0..frames {
        assert!(hand.session.send(kind, 1, &[], 0, &[], 1390).is_ok());
    }
    headers(hand.transmit())
}

fn headers(frames: Vec<(Header, Vec<u8>)>) -> Vec<Header> {
    frames.into_iter().map(|(header, _)| header).collect()
}

fn sequences(frames: Vec<(Header, Vec<u8>)>) -> Vec<u32> {
    headers(frames)
        .into_iter()
        .filter(|header| header.kind == Kind::Data)
        .map(|header| header.sequence)
        .collect()
}

/// Acknowledges all before `next` and those given, upon the arrival of `newest`.
fn answer(hand: &mut Hand, next: u32, arrived: &[u32], newest: &Header) {
    let mut sack = Sack::new(next);
    for sequence in arrived {
        sack.mark(sequence - next);
    }
    let header = Header {
        ack: Some(Ack { next, credit: next + 256, receiver_cap_bytes: u32::MAX }),
        echo: Some(Echo { ts_ns: newest.tx_ts_ns, hold_ns: 0 }),
        sack: (!arrived.is_empty()).then_some(sack),
        ..hand.header(Kind::Ack)
    };
    hand.say(header, &[]);
}

#[test]
fn a_frame_that_was_passed_is_sent_again_after_a_quarter_of_the_round_trip() {
    let mut hand = measured(&Config::default(), 0);
    let sent = send(&mut hand, 4);
    hand.now_ns += RTT_NS;
    answer(&mut hand, 3, &[4], &sent[2]);
    assert_eq!(sequences(hand.transmit()), [0; 0]);
    let deadline_ns = hand.session.deadline_ns().expect("a timer");
    assert!((24 * US..=26 * US).contains(&(deadline_ns - hand.now_ns)), "{}", deadline_ns - hand.now_ns);
    let again = hand.tick();
    assert_eq!(again[0].0.flags & flag::RETRANSMISSION, flag::RETRANSMISSION);
    assert!(again[0].0.packet_number > sent[3].packet_number, "each transmission has a number of its own");
    // Frame 5 was sent after all that is known to have arrived.
    assert_eq!(sequences(again), [3]);
    assert_eq!((hand.session.counters().lost, hand.session.counters().spurious), (1, 0));
}

#[test]
fn a_lost_retransmission_is_found_by_what_was_sent_after_it() {
    let mut hand = measured(&Config::default(), 0);
    let sent = send(&mut hand, 4);
    hand.now_ns += RTT_NS;
    answer(&mut hand, 2, &[3, 4, 5], &sent[3]);
    assert_eq!(sequences(hand.tick()), [2]);
    hand.now_ns += US;
    let later = send(&mut hand, 1);
    hand.now_ns += RTT_NS;
    answer(&mut hand, 2, &[3, 4, 5, 6], &later[0]);
    assert_eq!(sequences(hand.tick()), [2]);
    assert_eq!(hand.session.counters().rtos, 0);
}

#[test]
fn a_frame_that_was_only_late_widens_the_reordering_window() {
    let mut hand = measured(&Config::default(), 0);
    let mut next = 2;
    let mut waits = Vec::new();
    for _ in 0..3 {
        let sent = send(&mut hand, 2);
        hand.now_ns += RTT_NS;
        answer(&mut hand, next, &[next + 1], &sent[1]);
        let deadline_ns = hand.session.deadline_ns().expect("a timer");
        waits.push((deadline_ns - hand.now_ns + US / 2) / US);
        assert_eq!(sequences(hand.tick()), [next]);
        // The answer to the first transmission comes after all.
        next += 2;
        answer(&mut hand, next, &[], &sent[0]);
        hand.now_ns += RTT_NS;
    }
    assert_eq!(waits, [25, 50, 75]);
    assert_eq!(hand.session.counters().spurious, 3);
}

#[test]
fn an_answer_to_what_left_earlier_is_not_one_to_the_retransmission() {
    let mut hand = measured(&Config::default(), 0);
    let sent = send(&mut hand, 2);
    hand.now_ns += RTT_NS;
    answer(&mut hand, 2, &[3], &sent[1]);
    assert_eq!(sequences(hand.tick()), [2]);
    hand.now_ns += 3 * RTT_NS;
    answer(&mut hand, 4, &[], &sent[0]);
    assert_eq!(hand.session.counters().spurious, 1);
}

#[test]
fn an_answer_without_an_echo_is_judged_by_its_time() {
    for (after_ns, spurious) in [(RTT_NS / 2, 1), (2 * RTT_NS, 0)] {
        let mut hand = measured(&Config::default(), 0);
        let sent = send(&mut hand, 2);
        hand.now_ns += RTT_NS;
        answer(&mut hand, 2, &[3], &sent[1]);
        assert_eq!(sequences(hand.tick()), [2]);
        hand.now_ns += after_ns;
        hand.ack(4, 260, false);
        assert_eq!(hand.session.counters().spurious, spurious);
    }
}

#[test]
fn an_echo_is_a_sample_once() {
    let mut hand = measured(&Config::default(), 0);
    let sent = send(&mut hand, 2);
    hand.now_ns += RTT_NS;
    answer(&mut hand, 3, &[], &sent[0]);
    let before = hand.session.counters().srtt_ns;
    hand.now_ns += 100 * RTT_NS;
    answer(&mut hand, 3, &[], &sent[0]);
    assert_eq!(hand.session.counters().srtt_ns, before);
}

#[test]
fn the_reordering_window_shrinks_again_after_losses_that_were_real() {
    let mut hand = measured(&Config::default(), 0);
    let mut lose = |is_late: bool| {
        let next = hand.session.counters().data_frames_sent as u32;
        let sent = send(&mut hand, 2);
        hand.now_ns += RTT_NS;
        answer(&mut hand, next, &[next + 1], &sent[1]);
        let wait_ns = hand.session.deadline_ns().expect("a timer") - hand.now_ns;
        let again = headers(hand.tick());
        hand.now_ns += RTT_NS;
        answer(&mut hand, next + 2, &[], if is_late { &sent[0] } else { &again[0] });
        hand.now_ns += RTT_NS;
        (wait_ns + US / 2) / US
    };
    assert_eq!([lose(true), lose(false)], [25, 50]);
    for _ in 0..31 {
        assert_eq!(lose(false), 50);
    }
    assert_eq!(lose(false), 25);
}

#[test]
fn the_tail_is_probed_twice_and_then_times_out_with_backoff() {
    let config = pair::unpaced();
    let mut hand = measured(&config, 0);
    send(&mut hand, 3);
    let start_ns = hand.now_ns;
    let mut again = Vec::new();
    while again.len() < 10 {
        let sequences = sequences(hand.tick());
        if !sequences.is_empty() {
            again.push(((hand.now_ns - start_ns) / US, sequences));
        }
    }
    // Probes are the newest frame: after the least time and the peer's delay, then twice that.
    assert_eq!(again[0], (300, vec![4]));
    assert_eq!(again[1], (900, vec![4]));
    // Then everything is taken as lost, in order.
    assert_eq!(again[2], (10_100, vec![2, 3, 4]));
    let pauses: Vec<u64> = again[2..].windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
    assert_eq!(pauses[..4], [20_200, 40_400, 80_800, 125_000]);
    let counters = hand.session.counters();
    assert_eq!((counters.tail_probes, counters.lost), (2, 3 * counters.rtos));
}

#[test]
fn a_lost_tail_costs_a_probe_and_no_timeout() {
    let mut hand = measured(&Config::default(), 0);
    let sent = send(&mut hand, 4);
    let probe = hand.tick();
    assert_eq!(probe[0].0.flags, flag::ACK_NOW | flag::RETRANSMISSION);
    let probe = headers(probe);
    assert_eq!(probe[0].sequence, 5);
    hand.now_ns += RTT_NS;
    // Frames 4 and 5 were lost, the probe has come.
    answer(&mut hand, 4, &[5], &probe[0]);
    let again = hand.transmit();
    assert_eq!(sequences(again), [4]);
    assert_eq!((hand.session.counters().rtos, hand.session.counters().spurious), (0, 0));
    assert!(sent.len() == 4);
}

#[test]
fn a_timeout_that_was_none_repeats_no_more_than_the_least_window() {
    let mut hand = measured(&pair::unpaced(), 0);
    let sent = send(&mut hand, 30);
    while hand.session.counters().rtos == 0 {
        hand.tick();
    }
    let repeated = hand.session.counters().retransmissions;
    // The window of 8, by less than a frame beyond it, and two probes.
    assert!(repeated <= 8 + 1 + 2, "{repeated}");
    // The peer was only not running.
    answer(&mut hand, 32, &[], &sent[29]);
    assert_eq!(hand.session.unacked_frames(), 0);
    assert!(hand.session.counters().spurious >= 20);
    assert!(hand.session.counters().window_bytes >= 30 * 1500, "and the window is given back");
    assert_eq!(sequences(hand.tick()), [0; 0]);
}

#[test]
fn classic_mode_goes_back_to_what_the_peer_waits_for() {
    let config = Config { mode: Mode::Classic, controller: wide, ..Config::default() };
    let mut hand = measured(&config, feature::CLASSIC);
    assert_eq!(hand.session.mode(), Mode::Classic);
    let sent = send(&mut hand, 5);
    hand.now_ns += RTT_NS;
    // An answer to what came before the gap is no sign of it.
    answer(&mut hand, 3, &[], &sent[0]);
    answer(&mut hand, 3, &[], &sent[0]);
    assert_eq!(sequences(hand.transmit()), [0; 0]);
    answer(&mut hand, 3, &[], &sent[2]);
    let again = hand.transmit();
    let first = again[0].0;
    assert_eq!(sequences(again), [3, 4, 5, 6]);
    // What was sent before going back tells nothing new.
    answer(&mut hand, 3, &[], &sent[4]);
    assert_eq!(sequences(hand.transmit()), [0; 0]);
    hand.now_ns += RTT_NS;
    answer(&mut hand, 4, &[], &first);
    assert_eq!(sequences(hand.transmit()), [0; 0]);
}

/// When, after a frame came, the acknowledgement leaves: us.
fn ack_after(hand: &mut Hand) -> u64 {
    let start_ns = hand.now_ns;
    let mut out = hand.transmit();
    while out.is_empty() {
        out = hand.tick();
    }
    assert_eq!((out.len(), out[0].0.kind, out[0].0.flags), (1, Kind::Ack, 0));
    (hand.now_ns - start_ns) / US
}

#[test]
fn acknowledgements_leave_for_every_second_frame_and_at_once_when_something_is_odd() {
    let mut hand = Hand::new(&Config::default(), 64);
    ack_after_handshake(&mut hand);
    let record = |place: u16| part(1, place, FIRST | LAST, &[1]);
    hand.data(0, &record(0));
    assert_eq!(ack_after(&mut hand), 0, "the first after a pause");
    hand.data(1, &record(1));
    assert_eq!(ack_after(&mut hand), 50, "held back for data to ride on");
    hand.data(2, &record(2));
    hand.data(3, &record(3));
    assert_eq!(ack_after(&mut hand), 0, "the second");
    hand.data(5, &record(5));
    assert_eq!(ack_after(&mut hand), 0, "ahead of a gap");
    hand.data(5, &record(5));
    assert_eq!(ack_after(&mut hand), 0, "a duplicate");
    hand.data(4, &record(4));
    assert_eq!(ack_after(&mut hand), 0, "the gap is filled");
    let asks = Header { sequence: 6, flags: flag::ACK_NOW, ..hand.header(Kind::Data) };
    hand.say(asks, &record(6));
    assert_eq!(ack_after(&mut hand), 0, "asked for");
    assert_eq!(hand.delivered.0, 7);
}

/// The session answers nothing by itself once it is up.
fn ack_after_handshake(hand: &mut Hand) {
    hand.transmit();
    hand.now_ns += 10 * MS;
    assert!(hand.transmit().is_empty());
}

#[test]
fn a_sack_block_tells_exactly_what_has_come() {
    let mut hand = Hand::new(&Config::default(), 64);
    for sequence in [1, 3, 4, 70, 200] {
        hand.data(sequence, &[]);
    }
    let out = headers(hand.transmit());
    let sack = out[0].sack.expect("a SACK block");
    let marked: Vec<u32> =
        (0..224).filter(|&index| sack.is_marked(index)).map(|index| sack.base + index).collect();
    assert_eq!((out[0].ack.expect("an ack").next, marked), (0, vec![1, 3, 4, 70, 200]));
    hand.data(0, &[]);
    let out = headers(hand.transmit());
    assert_eq!(out[0].ack.expect("an ack").next, 2);
}

/// As wide as it goes.
#[derive(Debug)]
struct Wide;

impl Controller for Wide {
    fn set_frame_bytes(&mut self, _bytes: u64) {}
    fn on_sent(&mut self, _now_ns: u64, _bytes: u64, _in_flight_bytes: u64) {}
    fn on_ack(&mut self, _acked: &Acked) {}
    fn on_loss(&mut self, _lost: &Lost) {}
    fn on_rto(&mut self, _now_ns: u64) {}
    fn on_spurious(&mut self, _now_ns: u64) {}
    fn window_bytes(&self) -> u64 {
        u64::MAX
    }
    fn pacing_rate(&self) -> Option<u64> {
        None
    }
}

fn wide(_: &Limits) -> Box<dyn Controller> {
    Box::new(Wide)
}

#[test]
fn stream_sequences_stay_unambiguous_however_many_records_wait_for_one_frame() {
    let config = Config { max_frame_bytes: 9216, backlog_frames: 256, controller: wide, ..Config::default() };
    let mut pair = Pair::connected(1, &config, Link::default());
    assert!(pair.nodes[0].put(1, LEAST));
    pair.links[0].is_cut = true;
    pair.step_nodes();
    pair.links[0].is_cut = false;
    let mut records = 1;
    while pair.nodes[0].put(1, LEAST) {
        records += 1;
    }
    assert!((30_000..32_768).contains(&records), "{records}");
    assert!(pair.run_until(pair.now_ns + 100 * MS, Pair::is_all_delivered));
}
