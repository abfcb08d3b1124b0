//! A session ends in bounded time when it must, and only then; an idle one costs next to nothing.

mod pair;

use etherslot_session::{CloseReason, Config, DeadReason, State};
use etherslot_wire::frame::{Kind, flag};
use pair::hand::Hand;
use pair::{Link, MS, Pair};

const S: u64 = 1_000 * MS;

fn connected() -> Pair {
    Pair::connected(3, &Config::default(), Link::default())
}

fn is_dead(pair: &Pair, at: usize) -> bool {
    matches!(pair.states()[at], Some(State::Dead(_)))
}

#[test]
fn a_partition_is_death_for_both_sides_in_bounded_time_busy_or_idle() {
    for is_busy in [false, true] {
        let mut pair = connected();
        pair.links = [Link { is_cut: true, ..Link::default() }; 2];
        if is_busy {
            while pair.nodes[0].put(1, 1000) {}
        }
        let start_ns = pair.now_ns;
        assert!(pair.run_until(start_ns + 1400 * MS, |pair| is_dead(pair, 0) && is_dead(pair, 1)));
        assert!(pair.now_ns > start_ns + 800 * MS);
        for node in &mut pair.nodes {
            assert_eq!(node.session().deadline_ns(), None);
            assert_eq!(node.session().room(), 0);
            assert!(!node.session().transmit(u64::MAX, &mut |frames| frames.len()));
        }
    }
}

#[test]
fn a_short_partition_is_survived_and_everything_arrives() {
    let mut pair = connected();
    for ms in [1, 5, 20, 100, 600] {
        pair.links = [Link { is_cut: true, ..Link::default() }; 2];
        while pair.nodes[0].put(1, 1000) {}
        pair.run_for(ms * MS);
        pair.links = [Link::default(); 2];
        pair.exchange(200, 3, 2000, 2 * S);
    }
    let counters = pair.nodes[0].session().counters();
    // A timeout takes a window as lost, but what it repeats is bounded by the window that is left.
    assert!(counters.retransmissions < 500, "{}", counters.retransmissions);
}

#[test]
fn a_path_that_loses_every_long_frame_is_stalled_though_the_peer_is_heard() {
    let mut pair = connected();
    pair.links[0].longest = 600;
    assert!(pair.nodes[0].put(1, 1200));
    let start_ns = pair.now_ns;
    assert!(pair.run_until(start_ns + 1400 * MS, |pair| is_dead(pair, 0)));
    assert_eq!(pair.states()[0], Some(State::Dead(DeadReason::Stalled)));
    assert!(pair.now_ns >= start_ns + S);
}

#[test]
fn an_idle_session_stays_up_on_a_few_frames_a_second() {
    let mut pair = Pair::connected(3, &Config::default(), Link { loss: 100_000, ..Link::default() });
    pair.run_for(10 * S);
    assert_eq!(pair.states(), [Some(State::Up); 2]);
    for node in &pair.nodes {
        assert!((50..300).contains(&node.frames), "{}", node.frames);
    }
}

#[test]
fn acknowledgements_are_not_acknowledged() {
    let mut pair = connected();
    pair.run_for(MS);
    let before = [0, 1].map(|at| pair.nodes[at].frames);
    assert!(pair.nodes[0].put(1, 100));
    pair.run_for(20 * MS);
    let after = [0, 1].map(|at| pair.nodes[at].frames);
    assert_eq!([after[0] - before[0], after[1] - before[1]], [1, 1]);
}

#[test]
fn an_answer_within_the_delay_carries_the_acknowledgement() {
    let mut pair = connected();
    pair.exchange(100, 2, 100, S);
    pair.run_for(100_000);
    let before = pair.nodes[1].session().counters().acks_sent;
    for _ in 0..10 {
        let records = pair.nodes[1].sink.records;
        assert!(pair.nodes[0].put(1, 100));
        assert!(pair.run_until(pair.now_ns + MS, |pair| pair.nodes[1].sink.records > records));
        assert!(pair.nodes[1].put(1, 100));
        assert!(pair.run_until(pair.now_ns + MS, Pair::is_all_delivered));
    }
    assert!(pair.nodes[1].session().counters().acks_sent - before <= 1);
}

#[test]
fn a_close_reaches_the_peer_and_ends_both() {
    let mut pair = connected();
    assert!(pair.nodes[0].put(1, 100));
    pair.nodes[0].session().close(CloseReason::Shutdown);
    assert_eq!(pair.states()[0], Some(State::Closing));
    assert!(!pair.nodes[0].put(1, 100));
    assert!(pair.run_until(pair.now_ns + 100 * MS, |pair| is_dead(pair, 0) && is_dead(pair, 1)));
    let reasons = [DeadReason::Closed(CloseReason::Shutdown), DeadReason::PeerClosed(CloseReason::Shutdown)];
    assert_eq!(pair.states(), reasons.map(|reason| Some(State::Dead(reason))));
    assert_eq!(pair.nodes[1].sink.records, 0, "what was not sent yet is not sent any more");
}

#[test]
fn a_close_ends_although_the_port_takes_nothing() {
    let mut pair = connected();
    pair.port_takes = 0;
    pair.nodes[0].session().close(CloseReason::Refused);
    let session = pair.nodes[0].session();
    let mut now_ns = 0;
    for _ in 0..100 {
        let Some(deadline_ns) = session.deadline_ns() else { break };
        now_ns = deadline_ns.max(now_ns + MS);
        session.handle_timeout(now_ns);
        session.transmit(now_ns, &mut |_| 0);
    }
    assert_eq!(session.state(), State::Dead(DeadReason::Closed(CloseReason::Refused)));
}

#[test]
fn a_lost_acknowledgement_that_gave_credit_is_asked_for() {
    // The peer has room for four frames and gives more only when it is asked.
    let mut hand = Hand::new(&pair::unpaced(), 4);
    while hand.session.send(etherslot_wire::record::Kind::Tlp, 1, &[], 0, &[], 1300).is_ok() {}
    let sent = hand.transmit();
    assert_eq!(sent.len(), 4);
    assert!(hand.transmit().is_empty());
    // All have arrived, but no credit comes with it: in flight is nothing that could bring news.
    hand.ack(4, 4, false);
    assert!(hand.transmit().is_empty());
    let start_ns = hand.now_ns;
    let asked = (0..20).find_map(|_| {
        let out = hand.tick();
        out.into_iter().find(|(header, _)| header.kind == Kind::Ack && header.flags & flag::ACK_NOW != 0)
    });
    assert!(asked.is_some());
    assert!(hand.now_ns - start_ns <= 20 * MS, "sooner than a heartbeat");
    hand.ack(4, 8, false);
    assert_eq!(hand.transmit().len(), 4);
}

#[test]
fn a_peer_that_keeps_its_credit_shut_is_not_dead_while_it_answers() {
    let mut hand = Hand::new(&pair::unpaced(), 4);
    while hand.session.send(etherslot_wire::record::Kind::Tlp, 1, &[], 0, &[], 1300).is_ok() {}
    hand.transmit();
    hand.ack(4, 4, false);
    let end_ns = hand.now_ns + 5 * S;
    while hand.now_ns < end_ns {
        for (header, _) in hand.tick() {
            assert_ne!(header.kind, Kind::Data);
            hand.ack(4, 4, false);
        }
    }
    assert_eq!(hand.session.state(), State::Up);
}
