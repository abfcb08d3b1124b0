//! Nothing that a peer sends makes a session panic, hang or take what is against the rules.

mod pair;

use etherslot_session::{CloseReason, Config, DeadReason, State};
use etherslot_wire::frame::{self, Ack, Echo, Header, Sack};
use etherslot_wire::record::{FIRST, Kind, LAST};
use pair::hand::{EPOCH, Hand, part};
use pair::{Link, MS, Pair, US};
use proptest::prelude::*;

const WHOLE: u8 = FIRST | LAST;

fn hand() -> Hand {
    Hand::new(&Config::default(), 64)
}

#[test]
fn a_body_that_is_no_row_of_records_is_dropped_as_a_whole() {
    let good = part(1, 0, WHOLE, &[1; 8]);
    let mut wrong_kind = part(1, 1, WHOLE, &[1; 8]);
    wrong_kind[2] = 9;
    let mut too_long = part(1, 1, WHOLE, &[1; 8]);
    too_long[1] = 200;
    let unknown_stream = part(64, 0, WHOLE, &[1; 8]);
    // Whole, but longer than what the session's frames hold.
    let too_much = part(1, 1, WHOLE, &[1; 2000]);
    for bad in [wrong_kind, too_long, unknown_stream, too_much, vec![0; 3]] {
        let mut hand = hand();
        hand.data(0, &[&good[..], &bad].concat());
        assert_eq!((hand.delivered.0, hand.session.counters().dropped_malformed), (0, 1));
        hand.data(0, &good);
        assert_eq!((hand.delivered.0, hand.session.state()), (1, State::Up));
    }
}

#[test]
fn breaking_the_order_of_a_stream_closes_the_session() {
    let long = vec![5; 1390];
    let mut other_kind = part(1, 1, LAST, &[1]);
    other_kind[2] = 2;
    let cases: [&[Vec<u8>]; 8] = [
        // A part that is not next, in a frame that is.
        &[part(1, 1, WHOLE, &[])],
        // One that was.
        &[part(1, 0, WHOLE, &[]), part(1, 0, WHOLE, &[])],
        // A middle without a beginning, an end without one, a beginning in the middle.
        &[part(1, 0, 0, &[1])],
        &[part(1, 0, LAST, &[1])],
        &[part(1, 0, FIRST, &[1]), part(1, 1, FIRST, &[1])],
        &[part(1, 0, FIRST, &[1]), part(1, 1, WHOLE, &[1])],
        // The end of another kind than the beginning.
        &[part(1, 0, FIRST, &[1]), other_kind],
        // More than a record can hold.
        &[part(1, 0, FIRST, &long), part(1, 1, 0, &long), part(1, 2, LAST, &long)],
    ];
    for (case, bodies) in cases.into_iter().enumerate() {
        let mut hand = hand();
        for (sequence, body) in (0..).zip(bodies) {
            hand.data(sequence, body);
        }
        assert_eq!(hand.session.state(), State::Closing, "case {case}");
        assert_eq!(hand.session.room(), 0);
        for _ in 0..10 {
            if hand.session.deadline_ns().is_some() {
                for (header, body) in hand.tick() {
                    assert_eq!(header.kind, frame::Kind::Close);
                    assert_eq!(CloseReason::parse(&body), Some(CloseReason::Protocol));
                }
            }
        }
        assert_eq!(hand.session.state(), State::Dead(DeadReason::Closed(CloseReason::Protocol)));
    }
}

#[test]
fn breaking_the_order_ahead_of_a_gap_closes_the_session_once_it_shows() {
    let mut hand = hand();
    hand.data(1, &part(1, 1, LAST, &[1]));
    assert_eq!(hand.session.state(), State::Up);
    hand.data(0, &part(1, 0, WHOLE, &[1]));
    assert_eq!((hand.delivered.0, hand.session.state()), (1, State::Closing));
}

#[test]
fn sequences_beyond_the_credit_are_dropped_and_many_close_the_session() {
    let mut hand = hand();
    let window = u32::from(Config::default().window_frames);
    hand.data(window, &part(1, 0, WHOLE, &[]));
    hand.data(0x7FFF_FFFF, &part(1, 0, WHOLE, &[]));
    assert_eq!((hand.session.counters().dropped_sequence, hand.delivered.0), (2, 0));
    // Half of the sequences are in the past.
    hand.data(0x8000_0000, &part(1, 0, WHOLE, &[]));
    assert_eq!(hand.session.counters().duplicates, 1);
    hand.data(window - 1, &part(1, 0, WHOLE, &[]));
    assert_eq!(hand.delivered.0, 1);
    for _ in 0..100 {
        hand.data(window, &[]);
    }
    assert_eq!(hand.session.state(), State::Closing);
}

#[test]
fn acknowledgements_of_what_was_never_sent_and_impossible_credits_are_ignored() {
    for (next, credit) in [(1, 65), (u32::MAX / 2, 0), (0, 65), (0, u32::MAX)] {
        let mut hand = hand();
        hand.ack(next, credit, false);
        assert_eq!(hand.session.counters().dropped_ack, 1, "{next} {credit}");
        assert_eq!(hand.session.state(), State::Up);
    }
    let mut hand = hand();
    assert!(hand.session.send(etherslot_wire::record::Kind::Tlp, 1, &[1], 0, &[], 4).is_ok());
    hand.transmit();
    let mut sack = Sack::new(0);
    sack.mark(1);
    let ack = Some(Ack { next: 0, credit: 64, receiver_cap_bytes: u32::MAX });
    hand.say(Header { ack, sack: Some(sack), ..hand.header(frame::Kind::Ack) }, &[]);
    assert_eq!((hand.session.counters().dropped_ack, hand.session.unacked_frames()), (1, 1));
    hand.ack(1, 65, false);
    assert_eq!(hand.session.unacked_frames(), 0);
}

#[test]
fn frames_of_other_epochs_and_packet_numbers_seen_before_are_dropped() {
    let mut hand = hand();
    let body = part(1, 0, WHOLE, &[]);
    for (dst_epoch, src_epoch) in [(0, EPOCH), (1, EPOCH), (0xAAAA, 0), (0xAAAA, EPOCH + 1)] {
        hand.say(Header { dst_epoch, src_epoch, ..hand.header(frame::Kind::Data) }, &body);
    }
    assert_eq!(hand.session.counters().dropped_epoch, 4);
    hand.data(0, &body);
    hand.packet_number -= 1;
    hand.data(1, &part(1, 1, WHOLE, &[]));
    assert_eq!((hand.session.counters().dropped_replay, hand.delivered.0), (1, 1));
}

#[test]
fn damaged_frames_and_noise_are_no_more_than_loss() {
    for seed in 0..10 {
        let link = Link { garbage: 50_000, ..Link::default() };
        let mut pair = Pair::connected(seed, &Config::default(), link);
        for _ in 0..200 {
            let noise = pair.noise(200);
            pair.launch(0, &noise);
        }
        pair.exchange(1000, 3, 2000, 20_000 * MS);
    }
}

fn any_header() -> impl Strategy<Value = Header> {
    let kind = prop_oneof![
        1 => Just(frame::Kind::Hello),
        1 => Just(frame::Kind::HelloAck),
        20 => Just(frame::Kind::Data),
        20 => Just(frame::Kind::Ack),
    ];
    // Near to what is expected, and anything.
    let near = || prop_oneof![9 => 0u32..300, 1 => any::<u32>()];
    let ack = proptest::option::weighted(0.9, (near(), near(), any::<u32>()));
    let echo = proptest::option::of((any::<u32>(), near()));
    let sack = proptest::option::of((near(), any::<[u8; 28]>()));
    (kind, 0u8..32, near(), ack, echo, sack, any::<u32>()).prop_map(
        |(kind, flags, sequence, ack, echo, sack, tx_ts_ns)| Header {
            kind,
            flags,
            body_len: 0,
            dst_epoch: 0xAAAA,
            src_epoch: EPOCH,
            sequence,
            packet_number: 0,
            tx_ts_ns,
            ack: ack.map(|(next, credit, receiver_cap_bytes)| Ack { next, credit, receiver_cap_bytes }),
            echo: echo.map(|(ts_ns, hold_ns)| Echo { ts_ns, hold_ns }),
            sack: sack.map(|(base, bitmap)| Sack { base, bitmap }),
        },
    )
}

fn any_body() -> impl Strategy<Value = Vec<u8>> {
    let record = (0u16..4, 0u16..40, 0u8..4, 0usize..300)
        .prop_map(|(stream, sequence, flags, len)| part(stream, sequence, flags, &vec![0; len]));
    prop_oneof![
        9 => proptest::collection::vec(record, 0..4).prop_map(|records| records.concat()),
        1 => proptest::collection::vec(any::<u8>(), 0..1500),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn any_frames_with_the_right_epochs_neither_panic_nor_stop_the_timers(
        frames in proptest::collection::vec((any_header(), any_body(), 0u64..300 * US, 0usize..3), 1..200),
    ) {
        let mut hand = hand();
        for (header, body, pause_ns, records) in frames {
            hand.now_ns += pause_ns;
            for _ in 0..records {
                let _ = hand.session.send(etherslot_wire::record::Kind::Tlp, 1, &[1; 12], 0, &[2; 500], 900);
            }
            hand.say(header, &body);
            hand.session.handle_timeout(hand.now_ns);
            hand.transmit();
            if let State::Dead(_) = hand.session.state() {
                prop_assert_eq!(hand.session.deadline_ns(), None);
                break;
            }
            prop_assert!(hand.session.deadline_ns().is_some_and(|deadline| deadline < hand.now_ns + 200 * MS));
        }
    }
}

#[test]
fn a_stream_has_arrived_up_to_a_mark_when_all_before_it_is_acknowledged_and_no_sooner() {
    let mut hand = Hand::new(&Config::default(), 16);
    let send = |hand: &mut Hand, stream: u16| {
        hand.session.send(Kind::Tlp, stream, &[7; 1300], 0, &[], 1300).unwrap();
        hand.session.mark(stream)
    };
    let nothing = hand.session.mark(1);
    let first = send(&mut hand, 1);
    let other = send(&mut hand, 2);
    let second = send(&mut hand, 1);
    hand.transmit();
    let arrived = |hand: &Hand| {
        [(1, nothing), (1, first), (2, other), (1, second)]
            .map(|(stream, mark)| hand.session.has_arrived(stream, mark))
    };
    assert_eq!(arrived(&hand), [true, false, false, false]);
    hand.ack(1, 17, false);
    assert_eq!(arrived(&hand), [true, true, false, false]);
    // The third frame has come, the second has not: what is behind a gap may not have been delivered.
    let mut sack = Sack::new(1);
    sack.mark(1);
    let header = Header {
        ack: Some(Ack { next: 1, credit: 17, receiver_cap_bytes: u32::MAX }),
        sack: Some(sack),
        ..hand.header(frame::Kind::Ack)
    };
    hand.say(header, &[]);
    assert_eq!(arrived(&hand), [true, true, false, false]);
    hand.ack(3, 19, false);
    assert_eq!(arrived(&hand), [true; 4]);
}
