//! Two nodes agree on keys, whatever the link does, and a stranger gets nowhere at a bounded cost.

mod support;

use etherslot_seal::{ActiveState, Peers, Rejected, Suite, Suites};
use etherslot_wire::frame::{Header, Kind, MAX_FRAME_BYTES};
use etherslot_wire::handshake::{Handshake, TAG_BYTES};
use proptest::prelude::*;
use support::{ActiveSide, Link, MS, PassiveSide, credentials, run};

fn ack(packet_number: u64) -> Vec<u8> {
    let header = Header {
        kind: Kind::Ack,
        flags: 0,
        body_len: 0,
        dst_epoch: 1,
        src_epoch: 2,
        sequence: 3,
        packet_number,
        tx_ts_ns: 4,
        ack: None,
        echo: None,
        sack: None,
    };
    let mut frame = vec![0; 52];
    header.emit(&mut frame).unwrap();
    frame
}

fn pair() -> (ActiveSide, PassiveSide) {
    (ActiveSide::new(credentials(1, 2), 77, 0), PassiveSide::new(credentials(1, 3)))
}

/// Both ends have the same keys, crosswise, and know each other.
fn check(active: &mut ActiveSide, passive: &mut PassiveSide) {
    let mut room = [0; MAX_FRAME_BYTES];
    let mut sealed = [0; 128];
    let ours = active.agreed.as_mut().expect("keys at the active side");
    let theirs = passive.agreed.last_mut().expect("keys at the passive side");
    assert_eq!((ours.epoch, ours.peer_epoch), (theirs.peer_epoch, theirs.epoch));
    assert_eq!(ours.peer, passive.credentials.node.public());
    assert_eq!(theirs.peer, active.credentials.node.public());
    assert_eq!(ours.suite, theirs.suite);
    let (from, to) = (ours, theirs);
    let bytes = from.sealer.seal(&ack(0), &mut sealed).unwrap();
    assert!(to.opener.open(&sealed[..bytes], &mut room).is_ok());
    assert!(
        from.opener.open(&sealed[..bytes], &mut room).is_err(),
        "a frame does not open where it came from"
    );
    let bytes = to.sealer.seal(&ack(0), &mut sealed).unwrap();
    assert!(from.opener.open(&sealed[..bytes], &mut room).is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// 5 % of the frames are lost, 5 % come twice, all of them in any order: it takes some retransmissions.
    #[test]
    fn two_nodes_agree_over_a_link_that_loses_doubles_and_reorders(seed: u64) {
        let (mut active, mut passive) = pair();
        let mut link = Link::new(seed, 0.05);
        let took_ns = run(&mut active, &mut passive, &mut link, 0, 1000 * MS);
        prop_assert!(took_ns < 500 * MS, "{took_ns}");
        check(&mut active, &mut passive);
        prop_assert_eq!(passive.agreed.len(), 1);
    }

    #[test]
    fn whatever_is_changed_in_a_frame_has_no_effect(seed: u64, at in any::<prop::sample::Index>(), bit in 0..8u8) {
        let (mut active, mut passive) = pair();
        let mut link = Link::new(seed, 0.0);
        run(&mut active, &mut passive, &mut link, 0, 1000 * MS);
        let (mut fresh_active, mut fresh_passive) = pair();
        for (to_passive, mut frame) in std::mem::take(&mut link.seen) {
            let at = at.index(frame.len());
            frame[at] ^= 1 << bit;
            let refused = if to_passive {
                fresh_passive.hear(0, 77, &frame).is_err()
            } else {
                fresh_active.hear(0, &frame).is_err()
            };
            prop_assert!(refused);
        }
        prop_assert_eq!(fresh_passive.passive.counters().exchanges, 0);
    }
}

#[test]
fn the_cipher_is_one_that_both_are_quick_at() {
    for (ours, theirs, expected) in [
        (Suites::ALL, Suites::ALL, Suite::Aes256Gcm),
        (Suites::ALL, Suites::WITHOUT_AES, Suite::ChaCha20Poly1305),
        (Suites::WITHOUT_AES, Suites::ALL, Suite::ChaCha20Poly1305),
    ] {
        let (mut active, mut passive) = pair();
        (active.credentials.suites, passive.credentials.suites) = (ours, theirs);
        run(&mut active, &mut passive, &mut Link::new(1, 0.0), 0, 1000 * MS);
        check(&mut active, &mut passive);
        assert_eq!(active.agreed.unwrap().suite, expected);
    }
}

#[test]
fn a_node_without_the_fabrics_key_gets_no_answer_and_costs_no_exchange() {
    let mut active = ActiveSide::new(credentials(8, 2), 77, 0);
    let mut passive = PassiveSide::new(credentials(1, 3));
    run(&mut active, &mut passive, &mut Link::new(1, 0.0), 0, 2000 * MS);
    assert_eq!(active.active.state(), ActiveState::Failed);
    let counters = passive.passive.counters();
    assert!(counters.strangers > 5 && counters.cookies_sent == 0 && counters.exchanges == 0, "{counters:?}");
}

#[test]
fn a_node_that_is_not_among_the_peers_is_named_and_gets_no_keys() {
    let (mut active, mut passive) = pair();
    passive.credentials.peers = Peers::Listed(vec![passive.credentials.node.public()]);
    run(&mut active, &mut passive, &mut Link::new(1, 0.0), 0, 500 * MS);
    assert!(passive.agreed.is_empty());
    assert_eq!(passive.passive.take_refused(), Some(active.credentials.node.public()));
    assert_eq!(passive.passive.counters().not_allowed, 1);

    let (mut active, mut passive) = pair();
    active.credentials.peers = Peers::Listed(vec![active.credentials.node.public()]);
    run(&mut active, &mut passive, &mut Link::new(1, 0.0), 0, 500 * MS);
    assert_eq!(active.active.state(), ActiveState::Failed);
    assert!(active.agreed.is_none() && passive.agreed.is_empty());
}

#[test]
fn a_capture_that_is_sent_again_makes_no_session_and_costs_one_exchange_at_most() {
    let (mut active, mut passive) = pair();
    let mut link = Link::new(3, 0.0);
    let now_ns = run(&mut active, &mut passive, &mut link, 0, 1000 * MS);
    let exchanges = passive.passive.counters().exchanges;
    assert_eq!(exchanges, 2);
    // To the node that lives, from the right address and from another one.
    for from in [77, 78] {
        for _ in 0..100 {
            for (_, frame) in link.seen.iter().filter(|(to_passive, _)| *to_passive) {
                let _ = passive.hear(now_ns, from, frame);
            }
        }
    }
    assert_eq!((passive.agreed.len(), passive.passive.counters().exchanges), (1, exchanges));
    assert!(passive.passive.counters().cookies_refused >= 100);
    // When the cookie is too old, and to the next life of the node.
    let mut next = PassiveSide::born(credentials(1, 3), 10);
    passive.agreed.clear();
    for (side, now_ns) in [(&mut passive, now_ns + 4_000 * MS), (&mut next, now_ns)] {
        let before = side.passive.counters().exchanges;
        for (_, frame) in link.seen.iter().filter(|(to_passive, _)| *to_passive) {
            let _ = side.hear(now_ns, 77, frame);
        }
        assert!(side.agreed.is_empty());
        assert_eq!(side.passive.counters().exchanges, before);
    }
    // Nor can the active side be led astray by answers to another.
    let mut other = ActiveSide::new(credentials(1, 2), 78, 0);
    for (_, frame) in link.seen.iter().filter(|(to_passive, _)| !*to_passive) {
        assert_eq!(other.hear(0, frame), Err(Rejected::Unexpected));
    }
}

#[test]
fn a_flood_costs_a_bounded_number_of_tags_and_exchanges_a_second() {
    let mut passive = PassiveSide::new(credentials(1, 3));
    let knock = ActiveSide::new(credentials(8, 2), 5, 0).say(0).unwrap();
    // A stranger: a million a second.
    for frame in 0..1_000_000 {
        let _ = passive.hear(frame * 1000, 5, &knock);
    }
    let counters = *passive.passive.counters();
    assert!(counters.strangers <= 110_000, "{counters:?}");
    assert_eq!(counters.limited + counters.strangers, 1_000_000);
    assert_eq!((counters.cookies_sent, counters.exchanges), (0, 0));
    // A node of the fabric gone mad: 20,000 handshakes in a second, as far as it gets.
    let mut passive = PassiveSide::new(credentials(1, 3));
    for epoch in 1..20_000 {
        let now_ns = u64::from(epoch) * 50_000;
        let mut mad = ActiveSide::new(credentials(1, 2), epoch, now_ns);
        let cookie = passive.hear(now_ns, epoch, &mad.say(now_ns).unwrap()).unwrap().unwrap();
        if epoch % 20 == 0 {
            mad.hear(now_ns, &cookie).unwrap();
            let _ = passive.hear(now_ns, epoch, &mad.say(now_ns).unwrap());
        }
    }
    let counters = *passive.passive.counters();
    assert!(counters.exchanges <= 128 && counters.throttled >= 800, "{counters:?}");
}

#[test]
fn a_passive_side_that_starts_anew_is_greeted_anew() {
    let (mut active, mut passive) = pair();
    let cookie = passive.hear(0, 77, &active.say(0).unwrap()).unwrap().unwrap();
    active.hear(0, &cookie).unwrap();
    assert_eq!(active.active.state(), ActiveState::Opening);
    let mut next = PassiveSide::born(credentials(1, 3), 10);
    run(&mut active, &mut next, &mut Link::new(4, 0.05), 0, 1000 * MS);
    check(&mut active, &mut next);
}

#[test]
fn no_answer_is_longer_than_twice_what_it_answers_and_none_goes_to_an_unproved_address_longer() {
    let (mut active, mut passive) = pair();
    let knock = active.say(0).unwrap();
    let cookie = passive.hear(0, 77, &knock).unwrap().unwrap();
    assert!(cookie.len() <= knock.len());
    active.hear(0, &cookie).unwrap();
    let open = active.say(0).unwrap();
    let answer = passive.hear(0, 77, &open).unwrap().unwrap();
    assert!(answer.len() <= 2 * open.len());
    let (parsed, ..) = Handshake::parse(&answer).unwrap();
    assert_eq!(answer.len(), 16 + parsed.body.len() + TAG_BYTES);
}
