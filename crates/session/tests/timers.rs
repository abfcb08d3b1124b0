//! Each timer runs out when it should, to the nanosecond: not before, once, and not for ever.
//!
//! Reordering, tail-loss probes, the retransmission timeout and the delay of acknowledgements are in `recovery.rs`.

mod pair;

use etherslot_session::{
    Acked, CloseReason, Config, Controller, DeadReason, Heard, Hello, Limits, Listener, Lost, Session, State,
    parse_frame,
};
use etherslot_wire::NodeId;
use etherslot_wire::frame::{Ack, CHECK_BYTES, HEADER_BYTES, Header, Kind, MIN_FRAME_BYTES, flag};
use etherslot_wire::record;
use pair::hand::{EPOCH, Hand};
use pair::{MS, US};

/// Sends and times of a session alone, until it is dead or so many frames have left: ns from now on, and headers.
fn alone(session: &mut Session, start_ns: u64, frames: usize) -> Vec<(u64, Header)> {
    let mut out = Vec::new();
    let mut now_ns = start_ns;
    loop {
        session.transmit(now_ns, &mut |frames| {
            let headers = frames.iter().map(|frame| parse_frame(frame).expect("own frame").0);
            out.extend(headers.map(|header| (now_ns - start_ns, header)));
            frames.len()
        });
        let Some(deadline_ns) = session.deadline_ns().filter(|_| out.len() < frames) else { return out };
        assert!(deadline_ns > now_ns, "a timer that has run is not due");
        session.handle_timeout(deadline_ns - 1);
        assert!(!session.transmit(deadline_ns - 1, &mut |frames| frames.len()), "nothing leaves early");
        now_ns = deadline_ns;
        session.handle_timeout(now_ns);
    }
}

fn times(sent: &[(u64, Header)]) -> Vec<u64> {
    sent.iter().map(|(ns, _)| ns / MS).collect()
}

/// A session that knows its peer's epoch, and has heard nothing else.
fn answered(start_ns: u64) -> Session {
    let mut session = Session::connect(&Config::default(), 7, start_ns);
    session.transmit(start_ns, &mut |frames| frames.len());
    let hello =
        Hello { node: NodeId([2; 16]), max_frame_bytes: 1500, receive_window_frames: 64, features: 0 };
    let mut body = [0; Hello::BYTES];
    hello.emit(&mut body).expect("room");
    hear(&mut session, start_ns, 0, Kind::HelloAck, &body);
    session
}

/// Hands it a frame of the peer that is all right.
fn hear(session: &mut Session, now_ns: u64, packet_number: u64, kind: Kind, body: &[u8]) -> u64 {
    let ack = Ack { next: 0, credit: 64, receiver_cap_bytes: u32::MAX };
    let header = Header {
        kind,
        flags: 0,
        body_len: body.len() as u16,
        dst_epoch: session.epoch(),
        src_epoch: EPOCH,
        sequence: 0,
        packet_number,
        tx_ts_ns: packet_number as u32,
        ack: (kind != Kind::HelloAck).then_some(ack),
        echo: None,
        sack: None,
    };
    let mut count = pair::hand::Count::default();
    session.handle_frame(now_ns, &header, body, &mut count);
    count.0
}

#[test]
fn a_hello_is_repeated_after_twice_as_long_each_time_up_to_a_heartbeat_until_nobody_has_answered_for_too_long()
 {
    let start_ns = 3_000 * MS;
    let mut session = Session::connect(&Config::default(), 7, start_ns);
    let sent = alone(&mut session, start_ns, usize::MAX);
    assert_eq!(times(&sent), [0, 5, 15, 35, 75, 155, 255, 355, 455, 555, 655, 755, 855, 955]);
    assert!(sent.iter().enumerate().all(|(index, (_, header))| {
        header.kind == Kind::Hello && header.dst_epoch == 0 && header.packet_number == index as u64
    }));
    assert_eq!(session.state(), State::Dead(DeadReason::Silent));
    // It was dead at the deadline of the answer, not a nanosecond before.
    let mut session = Session::connect(&Config::default(), 7, start_ns);
    session.handle_timeout(start_ns + 1_000 * MS - 1);
    assert_eq!(session.state(), State::Connecting);
    session.handle_timeout(start_ns + 1_000 * MS);
    assert_eq!(session.state(), State::Dead(DeadReason::Silent));
}

#[test]
fn a_confirmation_is_repeated_likewise_and_the_peer_greeted_anew_after_half_of_the_patience() {
    let start_ns = 3_000 * MS;
    let mut session = answered(start_ns);
    let sent = alone(&mut session, start_ns, usize::MAX);
    let split = sent.iter().position(|(_, header)| header.dst_epoch == 0).expect("greeted anew");
    assert_eq!(times(&sent[..split]), [0, 5, 15, 35, 75, 155, 255, 355, 455]);
    assert!(sent[..split].iter().all(|(_, header)| header.dst_epoch == EPOCH && header.ack.is_some()));
    // When the next confirmation would leave after 500 ms, a Hello leaves; and from there on as at the beginning.
    assert_eq!(times(&sent[split..]), [555, 560, 570, 590, 630, 710, 810, 910]);
    assert!(sent[split..].iter().all(|(_, header)| header.dst_epoch == 0 && header.ack.is_none()));
    let is_row = |pair: &[(u64, Header)]| {
        pair[1].1.packet_number == pair[0].1.packet_number + 1 && pair[1].1.src_epoch == pair[0].1.src_epoch
    };
    assert!(sent.windows(2).all(is_row), "the same epoch, and packet numbers that go on");
    assert_eq!(session.state(), State::Dead(DeadReason::Silent));
}

#[test]
fn a_session_that_knows_its_peer_is_up_with_the_first_frame_of_it_or_over_with_its_close() {
    for (kind, body, state) in [
        (Kind::Ack, &[][..], State::Up),
        (Kind::Data, &[], State::Up),
        (Kind::HelloAck, &[], State::Connecting),
        (Kind::Close, &[3], State::Dead(DeadReason::PeerClosed(CloseReason::Refused))),
    ] {
        let mut session = answered(0);
        hear(&mut session, MS, 1, kind, body);
        assert_eq!(session.state(), state, "{kind:?}");
        let mut unanswered = Session::connect(&Config::default(), 7, 0);
        hear(&mut unanswered, MS, 1, kind, body);
        assert_eq!(unanswered.state(), State::Connecting, "{kind:?} of nobody");
        assert_eq!(unanswered.counters().dropped_state, 1);
    }
}

#[test]
fn a_silent_peer_is_asked_each_heartbeat_and_dead_when_the_last_question_has_had_its_time() {
    let config = Config::default();
    let mut hand = Hand::new(&config, 64);
    hand.transmit();
    let heard_ns = hand.now_ns;
    let sent = alone(&mut hand.session, heard_ns, usize::MAX);
    assert_eq!(times(&sent), [100, 200, 300, 400, 500, 600, 700, 800, 900, 1000][..sent.len()]);
    assert!(sent.len() >= 9, "{}", sent.len());
    let asks = |header: &Header| header.kind == Kind::Ack && header.flags & flag::ACK_NOW != 0;
    assert!(sent.iter().all(|(_, header)| asks(header)));
    assert_eq!(hand.session.state(), State::Dead(DeadReason::Silent));
    assert_eq!(hand.session.counters().heartbeats_sent, sent.len() as u64);
}

#[test]
fn whatever_is_heard_puts_off_the_next_heartbeat() {
    let mut hand = Hand::new(&Config::default(), 64);
    hand.transmit();
    for _ in 0..50 {
        hand.now_ns += 99 * MS;
        hand.session.handle_timeout(hand.now_ns);
        assert!(hand.transmit().is_empty());
        hand.ack(0, 64, false);
        assert_eq!(hand.session.deadline_ns(), Some(hand.now_ns + 100 * MS));
    }
    assert_eq!(hand.session.state(), State::Up);
}

#[test]
fn an_acknowledgement_starts_the_timeout_anew_without_its_backoff() {
    let config = pair::unpaced();
    let mut hand = Hand::new(&config, 64);
    hand.transmit();
    let put =
        |hand: &mut Hand| hand.session.send(record::Kind::Tlp, 1, &[], 0, &[1; 100], 100).expect("room");
    put(&mut hand);
    hand.transmit();
    let timeout = |hand: &mut Hand, from_ns: u64| {
        let rtos = hand.session.counters().rtos;
        while hand.session.counters().rtos == rtos {
            hand.tick();
        }
        hand.now_ns - from_ns
    };
    let start_ns = hand.now_ns;
    let first_ns = timeout(&mut hand, start_ns);
    let second_ns = timeout(&mut hand, start_ns + first_ns);
    assert_eq!(second_ns, 2 * first_ns);
    hand.ack(1, 65, false);
    put(&mut hand);
    hand.transmit();
    let start_ns = hand.now_ns;
    assert_eq!(timeout(&mut hand, start_ns), first_ns);
}

/// RFC 6298, section 5: the timer runs from the transmission. Otherwise the frame is lost the moment it has left, and the
/// window halved once more.
#[test]
fn the_timeout_of_a_retransmission_that_had_to_wait_for_the_port_runs_from_when_it_left() {
    let config = pair::unpaced();
    let mut hand = Hand::new(&config, 64);
    hand.transmit();
    hand.session.send(record::Kind::Tlp, 1, &[], 0, &[1; 100], 100).expect("room");
    hand.transmit();
    while hand.session.counters().rtos == 0 {
        hand.now_ns = hand.now_ns.max(hand.session.deadline_ns().expect("a timer"));
        hand.session.handle_timeout(hand.now_ns);
        hand.session.transmit(hand.now_ns, &mut |_| 0);
    }
    hand.now_ns += 200 * MS;
    hand.session.handle_timeout(hand.now_ns);
    hand.ack(0, 64, false);
    assert!(hand.transmit().iter().any(|(header, _)| header.kind == Kind::Data));
    assert!(hand.session.deadline_ns().expect("a timer") > hand.now_ns);
    hand.session.handle_timeout(hand.now_ns);
    assert_eq!(hand.session.counters().rtos, 1);
}

/// As fast as it says, as much as there is.
#[derive(Debug)]
struct Paced;

/// Bytes per second.
const RATE: u64 = 100_000_000;

impl Controller for Paced {
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
        Some(RATE)
    }
}

fn paced() -> Hand {
    let paced = |_: &Limits| Box::new(Paced) as Box<dyn Controller>;
    let config = Config { controller: paced, pacing_burst_ns: 50 * US, ..Config::default() };
    let mut hand = Hand::new(&config, 64);
    hand.transmit();
    hand.now_ns += 10 * MS;
    for _ in 0..40 {
        hand.session.send(record::Kind::Tlp, 1, &[], 0, &[1; 1390], 1390).expect("room");
    }
    hand
}

#[test]
fn a_paced_frame_leaves_when_its_time_has_come_and_not_before() {
    let mut hand = paced();
    // What may leave at once after a pause, and one frame.
    let burst = hand.transmit().len() as u64;
    let frame_bytes = (HEADER_BYTES + record::HEADER_BYTES + 1392 + CHECK_BYTES) as u64;
    assert_eq!(burst, (50 * US * RATE / 1_000_000_000).div_ceil(frame_bytes));
    let start_ns = hand.now_ns;
    let sent = alone(&mut hand.session, start_ns, 30);
    let data: Vec<u64> =
        sent.iter().filter(|(_, header)| header.kind == Kind::Data).map(|(ns, _)| *ns).collect();
    assert_eq!(data.len(), 30, "one at a time, and nothing else is due");
    for (index, ns) in data.iter().enumerate() {
        // Fractions of a nanosecond are carried on, so the rate is kept however many frames there are.
        let exact = (burst + index as u64) * frame_bytes * 1_000_000_000 / RATE - 50 * US;
        assert!(ns.abs_diff(exact) <= 1, "frame {index} at {ns}, not {exact}");
    }
}

#[test]
fn a_late_owner_lets_out_no_more_than_the_grain_of_his_timers() {
    let mut hand = paced();
    let burst = hand.transmit().len();
    hand.now_ns += 100 * US;
    hand.session.handle_timeout(hand.now_ns);
    let late = hand.transmit().iter().filter(|(header, _)| header.kind == Kind::Data).count();
    assert_eq!(late, burst);
}

#[test]
fn a_close_is_said_three_times_at_intervals_and_nothing_else_is_said_or_taken() {
    for reason in [CloseReason::Shutdown, CloseReason::Protocol, CloseReason::Refused] {
        let mut hand = Hand::new(&Config::default(), 64);
        hand.session.send(record::Kind::Tlp, 1, &[], 0, &[1; 100], 100).expect("room");
        hand.session.close(reason);
        hand.session.close(CloseReason::Refused);
        assert_eq!((hand.session.state(), hand.session.room()), (State::Closing, 0));
        hand.data(0, &pair::hand::part(1, 0, record::FIRST | record::LAST, &[1]));
        assert_eq!((hand.delivered.0, hand.session.counters().dropped_state), (0, 1));
        let start_ns = hand.now_ns;
        let sent = alone(&mut hand.session, start_ns, usize::MAX);
        assert!(sent.iter().all(|(_, header)| header.kind == Kind::Close && header.body_len == 1));
        let [first, second, third] = sent[..] else { panic!("{} frames", sent.len()) };
        assert_eq!((first.0, third.0), (0, 2 * second.0));
        assert!((MS..=20 * MS).contains(&second.0), "{}", second.0);
        assert_eq!(hand.session.state(), State::Dead(DeadReason::Closed(reason)));
    }
}

#[test]
fn a_close_before_the_peer_has_spoken_is_said_to_it_if_it_is_known() {
    let mut session = answered(0);
    session.close(CloseReason::Shutdown);
    assert_eq!(session.state(), State::Closing);
    let sent = alone(&mut session, 0, usize::MAX);
    assert!(sent.iter().all(|(_, header)| header.kind == Kind::Close && header.dst_epoch == EPOCH));
    assert_eq!(sent.len(), 3);
}

#[test]
fn every_reason_of_a_close_is_told_and_others_are_breaches() {
    for (body, reason) in [
        (&[1][..], CloseReason::Shutdown),
        (&[2], CloseReason::Protocol),
        (&[3], CloseReason::Refused),
        (&[0], CloseReason::Protocol),
        (&[200], CloseReason::Protocol),
        (&[], CloseReason::Protocol),
        (&[1, 9, 9], CloseReason::Shutdown),
    ] {
        let mut hand = Hand::new(&Config::default(), 64);
        hand.say(hand.header(Kind::Close), body);
        assert_eq!(hand.session.state(), State::Dead(DeadReason::PeerClosed(reason)), "{body:?}");
    }
}

#[test]
fn a_dead_session_does_nothing_whatever_it_is_asked() {
    let mut hand = Hand::new(&Config::default(), 64);
    hand.session.send(record::Kind::Tlp, 1, &[], 0, &[1; 100], 100).expect("room");
    hand.say(hand.header(Kind::Close), &[1]);
    let state = hand.session.state();
    let sent = hand.session.counters().frames_sent;
    for _ in 0..20 {
        hand.now_ns += 300 * MS;
        hand.session.handle_timeout(hand.now_ns);
        hand.data(0, &pair::hand::part(1, 0, record::FIRST | record::LAST, &[1]));
        hand.ack(0, 64, true);
        hand.session.close(CloseReason::Refused);
        assert!(hand.session.send(record::Kind::Tlp, 1, &[], 0, &[1; 100], 100).is_err());
        assert!(hand.transmit().is_empty());
        assert_eq!((hand.session.state(), hand.session.deadline_ns()), (state, None));
    }
    assert_eq!((hand.delivered.0, hand.session.counters().frames_sent), (0, sent));
}

fn hello_body() -> [u8; Hello::BYTES] {
    let hello =
        Hello { node: NodeId([1; 16]), max_frame_bytes: 1500, receive_window_frames: 64, features: 0 };
    let mut body = [0; Hello::BYTES];
    hello.emit(&mut body).expect("room");
    body
}

fn greeting(src_epoch: u32, dst_epoch: u32) -> Header {
    Header {
        kind: Kind::Hello,
        flags: 0,
        body_len: Hello::BYTES as u16,
        dst_epoch,
        src_epoch,
        sequence: 0,
        packet_number: 0,
        tx_ts_ns: 0,
        ack: None,
        echo: None,
        sack: None,
    }
}

#[test]
fn a_half_open_session_can_be_confirmed_for_as_long_as_a_peer_may_be_silent() {
    let config = Config::default();
    for (after_ns, is_made) in [(config.dead_after_ns - 1, true), (config.dead_after_ns, false)] {
        let mut listener = Listener::new(&config);
        let mut reply = [0; MIN_FRAME_BYTES];
        let body = hello_body();
        assert!(matches!(
            listener.handle_hello(5 * MS, 1u8, &greeting(10, 0), &body, 900, &mut reply),
            Heard::Reply(_)
        ));
        let heard = listener.handle_hello(5 * MS + after_ns, 1, &greeting(10, 900), &body, 901, &mut reply);
        assert_eq!(matches!(heard, Heard::Accept(_)), is_made, "after {after_ns}");
    }
}

/// docs/wire.md, section 3: no two transmissions of an epoch have the same time.
#[test]
fn answers_to_hellos_that_come_at_one_time_have_times_of_their_own() {
    let mut listener = Listener::new(&Config::default());
    let mut times = Vec::new();
    for _ in 0..3 {
        let mut reply = [0; MIN_FRAME_BYTES];
        match listener.handle_hello(5 * MS, 1u8, &greeting(10, 0), &hello_body(), 900, &mut reply) {
            Heard::Reply(len) => times.push(parse_frame(&reply[..len]).expect("own frame").0.tx_ts_ns),
            heard => panic!("{heard:?}"),
        }
    }
    let mut reply = [0; MIN_FRAME_BYTES];
    match listener.handle_hello(5 * MS, 1, &greeting(10, 900), &hello_body(), 0, &mut reply) {
        Heard::Accept(mut session) => {
            times.push(alone(&mut session, 5 * MS, 1)[0].1.tx_ts_ns);
        }
        heard => panic!("{heard:?}"),
    }
    assert!(times.windows(2).all(|pair| pair[0] < pair[1]), "{times:?}");
}

/// docs/wire.md, section 4: a Hello of an earlier life never disturbs a live session. The owner ends the session of a
/// node for which the listener makes another one, so the listener must make none for a life before.
#[test]
fn a_node_that_has_confirmed_a_later_life_makes_no_session_of_an_earlier_one() {
    let mut listener = Listener::new(&Config::default());
    let body = hello_body();
    let mut greet = |src, dst, fresh| {
        listener.handle_hello(MS, 1u8, &greeting(src, dst), &body, fresh, &mut [0; MIN_FRAME_BYTES])
    };
    assert!(matches!(greet(10, 0, 900), Heard::Reply(_)));
    assert!(matches!(greet(11, 0, 901), Heard::Reply(_)));
    assert!(matches!(greet(12, 0, 902), Heard::Reply(_)));
    assert!(matches!(greet(11, 901, 0), Heard::Accept(_)));
    assert!(matches!(greet(10, 900, 0), Heard::Dropped(_)), "of a life before");
    assert!(matches!(greet(12, 902, 0), Heard::Accept(_)), "of a life after");
}
