//! Every record is delivered exactly once, in the order of its stream, whatever the link does.

mod pair;

use etherslot_session::{Config, Mode};
use etherslot_wire::record::Kind;
use pair::{Link, MS, Pair, US};
use proptest::prelude::*;

#[test]
fn records_of_all_lengths_arrive_both_ways_on_a_clean_link() {
    let mut pair = Pair::connected(1, &Config::default(), Link::default());
    pair.exchange(3000, 5, 4112, 2000 * MS);
    for node in &mut pair.nodes {
        let counters = *node.session().counters();
        assert_eq!((counters.retransmissions, counters.duplicates, counters.out_of_order), (0, 0, 0));
        assert_eq!((counters.rtos, counters.tail_probes), (0, 0));
    }
}

#[test]
fn records_arrive_once_and_in_order_under_loss_duplication_and_reordering() {
    for seed in 0..20 {
        let link = Link { loss: 30_000, duplication: 20_000, reordering: 50_000, ..Link::default() };
        let mut pair = Pair::connected(seed, &Config::default(), link);
        pair.exchange(1500, 8, 4112, 20_000 * MS);
    }
}

#[test]
fn classic_mode_delivers_under_loss_duplication_and_reordering() {
    for seed in 0..10 {
        let link = Link { loss: 20_000, duplication: 20_000, reordering: 10_000, ..Link::default() };
        let config = Config { mode: Mode::Classic, ..Config::default() };
        let mut pair = Pair::connected(seed, &config, link);
        assert_eq!(pair.nodes[0].session().mode(), Mode::Classic);
        pair.exchange(1500, 8, 4112, 20_000 * MS);
    }
}

#[test]
fn records_that_travel_alone_arrive_all_the_same() {
    for seed in 0..5 {
        let link = Link { loss: 20_000, duplication: 20_000, reordering: 10_000, ..Link::default() };
        let config = Config { one_record_a_frame: true, ..Config::default() };
        let mut pair = Pair::connected(seed, &config, link);
        pair.exchange(1500, 8, 4112, 20_000 * MS);
        let counters = *pair.nodes[0].session().counters();
        assert!(counters.data_frames_sent >= counters.records_sent);
    }
}

/// Frames that a node sends now, kept from the link.
fn caught(pair: &mut Pair, at: usize) -> Vec<Vec<u8>> {
    let now_ns = pair.now_ns;
    let mut out = Vec::new();
    pair.nodes[at].session().transmit(now_ns, &mut |frames| {
        out.extend(frames.iter().map(|frame| frame.to_vec()));
        frames.len()
    });
    out
}

#[test]
fn a_missing_frame_holds_back_only_the_streams_with_records_in_it() {
    let mut pair = Pair::connected(1, &Config::default(), Link::default());
    let frame_of = |pair: &mut Pair, records: &[(u16, usize)]| {
        for &(stream, len) in records {
            assert!(pair.nodes[0].put(stream, len));
        }
        let frames = caught(pair, 0);
        assert_eq!(frames.len(), 1);
        frames[0].clone()
    };
    let lost = frame_of(&mut pair, &[(1, 100), (4, 100)]);
    let second = frame_of(&mut pair, &[(2, 100), (1, 100), (2, 100)]);
    let third = frame_of(&mut pair, &[(3, 100), (1, 100), (4, 100), (2, 100)]);
    let got = |pair: &Pair| pair.nodes[1].sink.next.clone();
    pair.land(1, &third);
    assert_eq!(got(&pair), [0, 0, 0, 1]);
    // Stream 2 of the third frame had to wait for the second, though not for the first.
    pair.land(1, &second);
    assert_eq!(got(&pair), [0, 0, 3, 1]);
    pair.land(1, &third);
    assert_eq!(got(&pair), [0, 0, 3, 1]);
    pair.land(1, &lost);
    assert_eq!(got(&pair), [0, 3, 3, 1, 2]);
}

#[test]
fn a_filled_gap_sets_streams_free_beyond_the_next_gap() {
    let mut pair = Pair::connected(1, &Config::default(), Link::default());
    let mut frames = Vec::new();
    for records in [&[1][..], &[2], &[3, 1], &[3, 1, 2]] {
        for &stream in records {
            assert!(pair.nodes[0].put(stream, 100));
        }
        frames.extend(caught(&mut pair, 0));
    }
    pair.land(1, &frames[3]);
    assert_eq!(pair.nodes[1].sink.records, 0);
    pair.land(1, &frames[2]);
    assert_eq!(pair.nodes[1].sink.next, [0, 0, 0, 2]);
    pair.land(1, &frames[0]);
    assert_eq!(pair.nodes[1].sink.next, [0, 3, 0, 2]);
    pair.land(1, &frames[1]);
    assert_eq!(pair.nodes[1].sink.next, [0, 3, 2, 2]);
}

#[test]
fn the_parts_of_a_long_record_come_together_in_any_order_of_their_frames() {
    let config = Config { max_frame_bytes: 576, ..pair::unpaced() };
    let mut pair = Pair::connected(1, &config, Link::default());
    for stream in [1, 2, 1, 2] {
        assert!(pair.nodes[0].put(stream, 4112));
    }
    let frames = caught(&mut pair, 0);
    assert!(frames.len() >= 32, "{}", frames.len());
    for seed in 0..5 {
        let step = [1, 7, 11, 13, 17][seed];
        for index in 0..frames.len() / 5 {
            let at = seed * (frames.len() / 5) + (index * step) % (frames.len() / 5);
            pair.land(1, &frames[at]);
        }
    }
    for frame in frames.iter().rev() {
        pair.land(1, frame);
    }
    assert!(pair.run_until(pair.now_ns + MS, Pair::is_all_delivered));
}

#[test]
fn all_sequences_and_clocks_wrap_without_harm() {
    for (seed, mode) in [(1, Mode::Selective), (2, Mode::Selective), (3, Mode::Classic)] {
        let config = Config { first_sequence: u32::MAX - 50, mode, ..Config::default() };
        let other = Config { first_sequence: u32::MAX - 3000, ..config.clone() };
        let link = Link { loss: 10_000, reordering: 10_000, duplication: 10_000, ..Link::default() };
        let mut pair = Pair::with([&config, &other], seed, link);
        // The 32-bit clock of the timestamps wraps soon after.
        pair.now_ns = 7 * (1 << 32) - 2 * MS;
        pair.connect();
        assert!(pair.run_until(pair.now_ns + 900 * MS, |pair| pair.nodes.iter().all(pair::Node::is_up)));
        // More short records than a stream sequence counts.
        pair.exchange(70_000, 1, 12, 60_000 * MS);
        assert!(pair.nodes.iter_mut().all(|node| node.session().counters().data_frames_sent > 3000));
        assert!(pair.now_ns > 7 * (1 << 32));
        for node in &mut pair.nodes {
            let counters = node.session().counters();
            assert!(counters.srtt_ns < 10 * MS, "{counters:?}");
            assert_eq!(
                (counters.dropped_ack, counters.dropped_sequence, counters.dropped_malformed),
                (0, 0, 0)
            );
        }
    }
}

#[test]
fn windows_and_frames_of_all_sizes_work_with_each_other() {
    let sizes = [(16, 576), (64, 576), (64, 9216), (65, 1500), (1000, 1500), (8192, 576)];
    for (seed, one) in (0..).zip(sizes) {
        for two in sizes {
            let [one, two] = [one, two].map(|(window_frames, max_frame_bytes)| Config {
                window_frames,
                max_frame_bytes,
                streams: 4,
                ..Config::default()
            });
            let link = Link { loss: 10_000, reordering: 20_000, ..Link::default() };
            let mut pair = Pair::with([&one, &two], seed, link);
            pair.connect();
            assert!(pair.run_until(pair.now_ns + 900 * MS, |pair| pair.nodes.iter().all(pair::Node::is_up)));
            pair.exchange(400, 4, 4112, 10_000 * MS);
        }
    }
}

#[test]
fn a_wide_window_tells_of_all_that_came_in_several_sack_blocks() {
    let config = Config { window_frames: 2048, backlog_frames: 2048, ..pair::unpaced() };
    let mut pair = Pair::connected(1, &config, Link::default());
    let end_ns = pair.now_ns + MS / 2;
    while pair.now_ns < end_ns {
        while pair.nodes[0].put(1, 1396) {}
        pair.step(end_ns);
    }
    pair.run_for(MS);
    assert!(pair.is_all_delivered());
    // The first frame of a long burst is lost, and so are a few in between.
    while pair.nodes[0].put(1, 1396) {}
    let frames = caught(&mut pair, 0);
    assert!(frames.len() > 500, "{}", frames.len());
    for (index, frame) in frames.iter().enumerate() {
        if index % 211 != 0 {
            pair.land(1, frame);
            if index % 10 == 0 {
                for ack in caught(&mut pair, 1) {
                    pair.land(0, &ack);
                }
            }
        }
    }
    assert!(pair.run_until(pair.now_ns + 100 * MS, Pair::is_all_delivered));
    let again = pair.nodes[0].session().counters().retransmissions;
    assert!(again <= frames.len() as u64 / 211 + 3, "{again}");
}

#[test]
fn a_port_that_takes_a_frame_at_a_time_loses_none() {
    for port_takes in [1, 2, 5] {
        let mut pair = Pair::connected(1, &Config::default(), Link { loss: 10_000, ..Link::default() });
        pair.port_takes = port_takes;
        pair.exchange(1000, 3, 4112, 20_000 * MS);
        pair.port_takes = 0;
        pair.nodes[0].put(1, 100);
        pair.run_for(30 * MS);
        pair.port_takes = usize::MAX;
        assert!(pair.run_until(pair.now_ns + 100 * MS, Pair::is_all_delivered));
    }
}

#[test]
fn records_put_in_while_the_port_is_full_share_the_frame_first_in_line() {
    let mut pair = Pair::connected(1, &Config::default(), Link::default());
    pair.run_for(MS);
    pair.port_takes = 0;
    for _ in 0..10 {
        assert!(pair.nodes[0].put(1, 100));
        pair.step_nodes();
    }
    pair.port_takes = usize::MAX;
    let before = pair.nodes[0].session().counters().data_frames_sent;
    assert!(pair.run_until(pair.now_ns + MS, Pair::is_all_delivered));
    assert_eq!(pair.nodes[0].session().counters().data_frames_sent - before, 1);
}

#[test]
fn a_record_that_can_never_be_sent_is_refused_and_counted() {
    let mut pair = Pair::connected(1, &Config::default(), Link::default());
    let session = pair.nodes[0].session();
    for (stream, head, total_len) in [(64, 1, 4), (1, 1, 4113), (1, 5, 4)] {
        assert!(session.send(Kind::Tlp, stream, &[1; 5][..head], 0, &[], total_len).is_err());
    }
    assert_eq!((session.counters().records_refused, session.counters().records_sent), (3, 0));
    assert!(session.room() >= 1396 && session.is_idle());
}

#[test]
fn room_is_what_goes_into_one_frame() {
    let mut pair = Pair::connected(1, &Config::default(), Link::default());
    let room = pair.nodes[0].session().room();
    assert!(pair.nodes[0].put(1, 200));
    assert_eq!(pair.nodes[0].session().room(), room - 208);
    assert!(pair.nodes[0].put(1, room - 208));
    assert_eq!(caught(&mut pair, 0).len(), 1);
    assert_eq!(pair.nodes[0].session().room(), room);
    // With too little left to be of use, the next frame is begun.
    assert!(pair.nodes[0].put(1, room - 70));
    assert_eq!(pair.nodes[0].session().room(), room);
}

fn any_link() -> impl Strategy<Value = Link> {
    (0u32..100_000, 0u32..100_000, 0u32..300_000, 0u32..20_000, 1u64..500, 1u64..2000).prop_map(
        |(loss, duplication, reordering, garbage, delay_us, reorder_us)| Link {
            loss,
            duplication,
            reordering,
            garbage,
            delay_ns: delay_us * US,
            reorder_ns: reorder_us * US,
            rate: 500_000_000,
            ..Link::default()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn any_schedule_on_any_link_delivers_once_and_in_order(
        seed in any::<u64>(),
        links in [any_link(), any_link()],
        first_sequence in any::<u32>(),
        (classic, window_frames, streams, longest) in (any::<bool>(), 16u16..300, 1u16..10, 12usize..4112),
        (max_frame_bytes, backlog_frames, port_takes) in (576u16..9216, 1u16..300, 1usize..100),
        cuts in proptest::collection::vec((0u64..20, 0usize..3), 0..4),
    ) {
        let mode = if classic { Mode::Classic } else { Mode::Selective };
        let config =
            Config { mode, window_frames, max_frame_bytes, backlog_frames, first_sequence, ..Config::default() };
        let mut pair = Pair::new(seed, &config, Link::default());
        pair.connect();
        prop_assert!(pair.run_until(pair.now_ns + 900 * MS, |pair| pair.nodes.iter().all(pair::Node::is_up)));
        pair.links = links;
        pair.port_takes = port_takes;
        for (ms, which) in cuts {
            // One way, the other, or both.
            pair.links[0].is_cut = which != 1;
            pair.links[1].is_cut = which != 0;
            pair.run_for(ms * MS);
            pair.links[0].is_cut = false;
            pair.links[1].is_cut = false;
            pair.exchange(60, streams, longest, 20_000 * MS);
        }
        pair.exchange(100, streams, longest, 20_000 * MS);
        for node in &mut pair.nodes {
            let counters = node.session().counters();
            prop_assert_eq!(
                (counters.dropped_ack, counters.dropped_sequence, counters.dropped_malformed), (0, 0, 0)
            );
        }
    }
}
