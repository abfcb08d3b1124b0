//! A session comes up under any weather, once for each attempt, and earlier lives never touch it.

mod pair;

use etherslot_session::{Config, DeadReason, Heard, Listener, Mode, Refusal, Session, State, parse_frame};
use etherslot_wire::NodeId;
use etherslot_wire::control::{Hello, feature};
use etherslot_wire::frame::{self, Header, MIN_FRAME_BYTES, flag};
use etherslot_wire::record::{FIRST, LAST};
use pair::hand::{Hand, part};
use pair::{Link, MS, Node, Pair, US};

fn is_up(pair: &Pair) -> bool {
    pair.nodes.iter().all(Node::is_up)
}

#[test]
fn a_session_comes_up_under_loss_duplication_and_reordering() {
    for seed in 0..200 {
        let link = Link {
            loss: 200_000,
            duplication: 200_000,
            reordering: 500_000,
            reorder_ns: 15 * MS,
            ..Link::default()
        };
        let mut pair = Pair::new(seed, &Config::default(), link);
        pair.connect();
        assert!(pair.run_until(pair.now_ns + 999 * MS, is_up), "seed {seed}: {:?}", pair.states());
        pair.exchange(50, 3, 500, 20_000 * MS);
    }
}

#[test]
fn a_connect_without_an_answer_is_dead_in_time() {
    let mut pair = Pair::new(1, &Config::default(), Link { is_cut: true, ..Link::default() });
    pair.connect();
    let start_ns = pair.now_ns;
    let dead = |pair: &Pair| pair.states()[0] == Some(State::Dead(DeadReason::Silent));
    assert!(pair.run_until(start_ns + 1001 * MS, dead));
    assert!(pair.nodes[0].frames > 5 && pair.nodes[0].frames < 30);
    assert_eq!(pair.nodes[0].session().deadline_ns(), None);
}

#[test]
fn a_late_answer_leaves_time_to_confirm_it() {
    let mut pair = Pair::new(1, &Config::default(), Link { delay_ns: 200 * MS, ..Link::default() });
    pair.links[1].is_cut = true;
    pair.connect();
    pair.run_for(550 * MS);
    pair.links[1].is_cut = false;
    assert!(pair.run_until(pair.now_ns + 1500 * MS, is_up), "{:?}", pair.states());
}

#[test]
fn the_confirmation_is_repeated_until_the_new_session_is_heard() {
    let mut pair = Pair::new(1, &Config::default(), Link::default());
    pair.connect();
    assert!(pair.run_until(pair.now_ns + 100 * MS, |pair| pair.nodes[1].accepted == 1));
    // Nothing of the new session arrives for a while.
    pair.links[1].is_cut = true;
    pair.run_for(100 * MS);
    assert_eq!(pair.states(), [Some(State::Connecting), Some(State::Up)]);
    pair.links[1].is_cut = false;
    assert!(pair.run_until(pair.now_ns + 200 * MS, is_up));
    assert_eq!(pair.nodes[1].accepted, 1);
}

#[test]
fn a_peer_that_has_forgotten_the_half_open_session_is_greeted_anew() {
    let mut pair = Pair::new(1, &Config::default(), Link::default());
    pair.connect();
    let answered =
        |pair: &Pair| pair.nodes[0].session.as_ref().is_some_and(|session| session.peer().is_some());
    assert!(pair.run_until(pair.now_ns + 100 * MS, answered));
    pair.nodes[1].listener = Listener::new(&Config::default());
    assert!(pair.run_until(pair.now_ns + 900 * MS, is_up));
}

#[test]
fn replays_of_an_earlier_life_never_disturb_a_session_or_make_one() {
    for seed in 0..10 {
        let config = Config { first_sequence: seed as u32 * 7, ..Config::default() };
        let mut pair = Pair::new(seed, &config, Link { loss: 10_000, ..Link::default() });
        for node in &mut pair.nodes {
            node.history = Some(Vec::new());
        }
        pair.connect();
        assert!(pair.run_until(pair.now_ns + 900 * MS, is_up));
        pair.exchange(300, 3, 2000, 5_000 * MS);
        let old = [0, 1].map(|at| pair.nodes[at].history.take().unwrap_or_default());
        for node in &mut pair.nodes {
            node.session = None;
            node.sink.next.clear();
            node.sent.fill(0);
        }
        pair.connect();
        let all = old[0].len() + old[1].len();
        let mut replayed = 0;
        let mut rounds = 0;
        while replayed < all || rounds < 300 {
            for (from, frames) in old.iter().enumerate() {
                for frame in frames.iter().skip(rounds).step_by(200) {
                    pair.launch(from, frame);
                    replayed += 1;
                }
            }
            rounds += 1;
            if is_up(&pair) {
                pair.nodes[rounds % 2].put((rounds % 3) as u16, 300);
            }
            pair.run_for(50 * US);
        }
        assert!(pair.run_until(pair.now_ns + 5_000 * MS, Pair::is_all_delivered));
        assert_eq!((pair.nodes[1].accepted, is_up(&pair)), (2, true));
    }
}

#[test]
fn replays_within_a_life_are_seen_by_their_packet_number() {
    let mut pair = Pair::new(1, &Config::default(), Link::default());
    for node in &mut pair.nodes {
        node.history = Some(Vec::new());
    }
    pair.connect();
    assert!(pair.run_until(pair.now_ns + 900 * MS, is_up));
    pair.exchange(100, 3, 2000, 5_000 * MS);
    pair.run_for(MS);
    let before = [0, 1].map(|at| *pair.nodes[at].session().counters());
    for at in 0..2 {
        for frame in pair.nodes[at].history.clone().unwrap_or_default() {
            let (header, _) = parse_frame(&frame).expect("own frame");
            if header.dst_epoch != 0 {
                pair.launch(at, &frame);
            }
        }
    }
    pair.run_for(MS);
    assert!(is_up(&pair) && pair.is_all_delivered());
    for (node, before) in pair.nodes.iter_mut().zip(before) {
        let after = node.session().counters();
        let heard = after.frames_received - before.frames_received;
        let dropped =
            after.dropped_replay + after.dropped_epoch - before.dropped_replay - before.dropped_epoch;
        assert!(dropped > 0 && heard - dropped <= 2, "{dropped} of {heard}");
        assert_eq!(after.records_received, before.records_received);
        assert!(after.frames_sent - before.frames_sent <= 2, "replays provoke no answers");
    }
}

#[test]
fn after_a_restart_of_either_side_the_next_attempt_succeeds() {
    for restarted in 0..2 {
        let mut pair = Pair::connected(7, &Config::default(), Link::default());
        pair.exchange(100, 3, 2000, 5_000 * MS);
        pair.nodes[restarted].session = None;
        pair.nodes[1].listener = Listener::new(&Config::default());
        if restarted == 1 {
            // The host goes on sending until it sees that nobody is there.
            assert!(pair.nodes[0].put(1, 500));
            let dead = |pair: &Pair| matches!(pair.states()[0], Some(State::Dead(_)));
            assert!(pair.run_until(pair.now_ns + 1400 * MS, dead));
        }
        for node in &mut pair.nodes {
            node.sink.next.clear();
            node.sent.fill(0);
        }
        pair.connect();
        let accepted = pair.nodes[1].accepted;
        let next = |pair: &Pair| is_up(pair) && pair.nodes[1].accepted == accepted + 1;
        assert!(pair.run_until(pair.now_ns + 100 * MS, next));
        pair.exchange(100, 3, 2000, 5_000 * MS);
    }
}

#[test]
fn both_sides_agree_on_frame_size_mode_and_peer() {
    let one = Config {
        node: NodeId([1; 16]),
        max_frame_bytes: 9000,
        mode: Mode::Classic,
        window_frames: 100,
        ..Config::default()
    };
    let two = Config { node: NodeId([2; 16]), max_frame_bytes: 1400, ..Config::default() };
    for (configs, mode) in [([&one, &two], Mode::Selective), ([&one, &one], Mode::Classic)] {
        let mut pair = Pair::with(configs, 1, Link::default());
        pair.connect();
        assert!(pair.run_until(pair.now_ns + 100 * MS, is_up));
        for at in 0..2 {
            let peer = configs[1 - at];
            let session = pair.nodes[at].session();
            assert_eq!(session.mode(), mode);
            assert_eq!(
                session.frame_bytes(),
                configs[0].max_frame_bytes.min(configs[1].max_frame_bytes).into()
            );
            let hello = session.peer().expect("a peer");
            assert_eq!((hello.node, hello.receive_window_frames), (peer.node, peer.window_frames));
        }
        pair.exchange(500, 3, 4112, 5_000 * MS);
    }
}

/// A Hello as a header and a body.
fn hello(src_epoch: u32, dst_epoch: u32) -> (Header, [u8; Hello::BYTES]) {
    let mut body = [0; Hello::BYTES];
    let hello = Hello {
        node: NodeId([1; 16]),
        max_frame_bytes: 1500,
        receive_window_frames: 64,
        features: feature::CLASSIC,
    };
    hello.emit(&mut body).expect("room");
    let header = Header {
        kind: frame::Kind::Hello,
        flags: 0,
        body_len: Hello::BYTES as u16,
        dst_epoch,
        src_epoch,
        sequence: 5,
        packet_number: 0,
        tx_ts_ns: 0,
        ack: None,
        echo: None,
        sack: None,
    };
    (header, body)
}

fn greet(listener: &mut Listener<u8>, now_ns: u64, from: u8, src: u32, dst: u32, fresh: u32) -> Heard {
    let (header, body) = hello(src, dst);
    listener.handle_hello(now_ns, from, &header, &body, fresh, &mut [0; MIN_FRAME_BYTES])
}

#[test]
fn only_the_confirmation_from_the_same_address_and_epoch_makes_a_session_and_only_once() {
    let mut listener = Listener::new(&Config::default());
    let reply = greet(&mut listener, 0, 1, 10, 0, 900);
    assert!(
        matches!(reply, Heard::Reply(bytes) if bytes == frame::HEADER_BYTES + Hello::BYTES + frame::CHECK_BYTES)
    );
    // The same Hello again keeps the epoch of its first answer.
    assert!(matches!(greet(&mut listener, 0, 1, 10, 0, 901), Heard::Reply(_)));
    assert!(listener.is_half_open(900) && !listener.is_half_open(901));
    for (from, src, dst) in [(2, 10, 900), (1, 11, 900), (1, 10, 901)] {
        let heard = greet(&mut listener, 0, from, src, dst, 902);
        assert!(matches!(heard, Heard::Dropped(Refusal::Unknown)), "{heard:?}");
    }
    assert!(
        matches!(greet(&mut listener, 0, 1, 10, 900, 0), Heard::Accept(session) if session.epoch() == 900)
    );
    assert!(matches!(greet(&mut listener, 0, 1, 10, 900, 0), Heard::Dropped(Refusal::Unknown)));
}

#[test]
fn the_table_of_half_open_sessions_is_bounded_and_forgets_the_oldest() {
    let config = Config { half_open: 4, ..Config::default() };
    let mut listener = Listener::new(&config);
    for peer in 1..=6 {
        assert!(matches!(greet(&mut listener, 0, 1, peer, 0, 900 + peer), Heard::Reply(_)));
    }
    assert_eq!((901..=906).filter(|&epoch| listener.is_half_open(epoch)).count(), 4);
    assert!(!listener.is_half_open(902) && listener.is_half_open(903));
    let late_ns = config.dead_after_ns;
    assert!(matches!(greet(&mut listener, late_ns, 1, 3, 903, 0), Heard::Dropped(Refusal::Unknown)));
}

#[test]
fn a_hello_that_no_session_can_come_of_is_dropped() {
    let mut listener = Listener::new(&Config::default());
    let mut drop = |header: &Header, body: &[u8], fresh| match listener.handle_hello(
        0,
        1,
        header,
        body,
        fresh,
        &mut [0; MIN_FRAME_BYTES],
    ) {
        Heard::Dropped(reason) => reason,
        heard => panic!("{heard:?}"),
    };
    let (header, body) = hello(10, 0);
    assert_eq!(drop(&Header { kind: frame::Kind::Data, ..header }, &body, 1), Refusal::Malformed);
    assert_eq!(drop(&Header { src_epoch: 0, ..header }, &body, 1), Refusal::Malformed);
    assert_eq!(drop(&header, &body[1..], 1), Refusal::Malformed);
    assert_eq!(drop(&header, &body, 0), Refusal::Caller);
    let mut small = body;
    small[16..18].copy_from_slice(&100u16.to_be_bytes());
    assert_eq!(drop(&header, &small, 1), Refusal::Malformed);
    let mut closed = body;
    closed[18..20].fill(0);
    assert_eq!(drop(&header, &closed, 1), Refusal::Malformed);
}

#[test]
fn nothing_is_sent_on_a_session_that_is_not_up() {
    let mut session = Session::connect(&Config::default(), 1, 0);
    assert_eq!(session.room(), 0);
    assert!(session.send(etherslot_wire::record::Kind::Tlp, 0, &[1], 0, &[], 4).is_err());
    session.close(etherslot_session::CloseReason::Shutdown);
    assert!(matches!(session.state(), State::Dead(DeadReason::Closed(_))));
    assert!(!session.transmit(0, &mut |frames| frames.len()));
}

#[test]
fn bodies_go_unchecked_only_if_the_links_of_both_sides_keep_them_intact() {
    for (mine, theirs) in [(false, false), (true, false), (false, true), (true, true)] {
        let [mine_of, theirs_of] =
            [mine, theirs].map(|is_link_intact| Config { is_link_intact, ..Config::default() });
        let mut pair = Pair::with([&mine_of, &theirs_of], 1, Link::default());
        pair.connect();
        assert!(pair.run_until(pair.now_ns + 999 * MS, is_up));
        pair.nodes[0].history = Some(Vec::new());
        pair.exchange(100, 2, 2000, 1000 * MS);
        let history = pair.nodes[0].history.take().expect("a history");
        let data = history.iter().filter_map(|frame| parse_frame(frame).ok());
        let data = data.filter(|(header, _)| header.kind == frame::Kind::Data);
        let flags: Vec<bool> = data.map(|(header, _)| header.flags & flag::HEADER_CHECK != 0).collect();
        assert!(!flags.is_empty() && flags.iter().all(|&flag| flag == (mine && theirs)));
    }
    let mut hand = Hand::new(&Config::default(), 64);
    let header = Header { flags: flag::HEADER_CHECK, ..hand.header(frame::Kind::Data) };
    hand.say(header, &part(1, 0, FIRST | LAST, &[1; 8]));
    assert_eq!((hand.delivered.0, hand.session.counters().dropped_malformed), (0, 1));
}
