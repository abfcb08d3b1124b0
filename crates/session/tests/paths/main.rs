//! A session over several paths: they add up, one that is lost is hardly missed, and what is delivered keeps its order
//! whatever the paths do (the sinks check every record).

#[path = "../pair/mod.rs"]
mod pair;
mod world;

use etherslot_session::{CloseReason, Config, DeadReason, MAX_PATHS, Mode, State};
use etherslot_wire::frame::CHECK_BYTES;
use pair::{Link, MS, US};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use world::World;

const S: u64 = 1_000 * MS;
/// 1 Gbit/s.
const GIGABIT: u64 = 125_000_000;

fn config() -> Config {
    Config { paths: MAX_PATHS as u8, noise_ns: 200_000, ..Config::default() }
}

fn link(rate: u64, delay_ns: u64) -> Link {
    Link { delay_ns, rate, ..Link::default() }
}

/// Payload per second with bulk in one direction, once the windows have grown.
fn goodput(links: &[Link]) -> u64 {
    let mut world = World::new(1, &config(), links);
    world.bulk(50 * MS);
    world.bulk(200 * MS) * 5
}

#[test]
fn two_equal_paths_carry_twice_as_much_as_one() {
    let one = goodput(&[link(GIGABIT, 20 * US)]);
    let two = goodput(&[link(GIGABIT, 20 * US); 2]);
    assert!(one >= GIGABIT * 9 / 10, "{one}");
    assert!(two * 100 >= one * 190, "{one} and {two}");
}

#[test]
fn four_paths_carry_nearly_four_times_as_much_as_one() {
    let one = goodput(&[link(GIGABIT, 20 * US)]);
    let four = goodput(&[link(GIGABIT, 20 * US); 4]);
    assert!(four * 100 >= one * 375, "{one} and {four}");
}

#[test]
fn unequal_paths_add_up() {
    for (rates, delays_us) in
        [([4, 1], [20, 20]), ([1, 4], [20, 20]), ([1, 1], [20, 100]), ([4, 1], [20, 200])]
    {
        let links = [0, 1].map(|at| link(GIGABIT / 4 * rates[at], delays_us[at] * US));
        let each = links.map(|link| goodput(&[link]));
        let both = goodput(&links);
        assert!(both * 100 >= (each[0] + each[1]) * 93, "{rates:?} {delays_us:?}: {each:?} and {both}");
    }
}

#[test]
fn a_path_that_loses_frames_does_not_slow_the_other() {
    let lossy = Link { loss: 10_000, ..link(GIGABIT, 20 * US) };
    let (one, both) = (goodput(&[link(GIGABIT, 20 * US)]), goodput(&[link(GIGABIT, 20 * US), lossy]));
    assert!(both * 100 >= one * 180, "{one} and {both}");
}

#[test]
fn what_goes_over_paths_of_different_length_is_not_taken_for_lost() {
    let mut world = World::new(1, &config(), &[link(0, 20 * US), link(0, 35 * US)]);
    for _ in 0..200 {
        for _ in 0..40 {
            world.ends[0].put(1, 1300);
        }
        world.run_until(MS, World::is_all_delivered);
    }
    let counters = world.ends[0].session().counters();
    assert_eq!((counters.lost, counters.rtos, counters.spurious), (0, 0, 0), "{counters:?}");
    let both = [0, 1].map(|link| world.ends[0].path(link).data_frames_sent);
    assert!(both[0] > 100 && both[1] > 100, "{both:?}");
}

#[test]
fn little_goes_over_the_path_that_is_faster() {
    let mut world = World::new(1, &config(), &[link(0, 100 * US), link(0, 20 * US)]);
    let before = world.ends[0].path(0).data_frames_sent;
    world.trickle(500 * US, 20 * MS);
    assert!(world.ends[0].path(0).data_frames_sent - before <= 2);
    assert!(world.ends[0].path(1).data_frames_sent >= 38);
}

/// Which ways of which link stop.
#[derive(Clone, Copy, Debug)]
enum Cut {
    Both,
    There,
    Back,
}

#[test]
fn the_loss_of_a_path_stops_delivery_for_less_than_ten_milliseconds() {
    for (cut, of) in [(Cut::Both, 0), (Cut::Both, 1), (Cut::There, 0), (Cut::Back, 1), (Cut::Back, 0)] {
        for is_busy in [true, false] {
            for delay_us in [5, 20, 500] {
                let mut world = World::new(1, &config(), &[link(GIGABIT, delay_us * US); 2]);
                let go_on = |world: &mut World, ns| {
                    if is_busy {
                        world.bulk(ns);
                    } else {
                        world.trickle(200 * US, ns);
                    }
                };
                go_on(&mut world, 30 * MS);
                world.watch_gap();
                go_on(&mut world, 10 * MS);
                let usual_ns = world.gap_ns;
                world.watch_gap();
                match cut {
                    Cut::Both => world.cut(of, true),
                    Cut::There => world.links[of][0].is_cut = true,
                    Cut::Back => world.links[of][1].is_cut = true,
                }
                go_on(&mut world, 50 * MS);
                let what = format!("{cut:?} of {of}, busy {is_busy}, {delay_us} us");
                assert!(world.gap_ns < 10 * MS, "{what}: {} us, before {usual_ns}", world.gap_ns / US);
                assert!(world.run_until(100 * MS, World::is_all_delivered), "{what}");
                // An idle path is found out by the next heartbeat.
                assert!(!world.ends[0].path(of).is_up || matches!(cut, Cut::Back) || !is_busy, "{what}");
                assert!(world.ends[0].path(1 - of).is_up, "{what}");
            }
        }
    }
}

#[test]
fn a_path_that_is_back_is_used_again() {
    let mut world = World::new(1, &config(), &[link(GIGABIT, 20 * US); 2]);
    let whole = {
        world.bulk(50 * MS);
        world.bulk(50 * MS)
    };
    for _ in 0..3 {
        world.cut(1, true);
        world.bulk(60 * MS);
        assert_eq!(world.paths_up()[0], 1);
        world.cut(1, false);
        world.bulk(150 * MS);
        assert_eq!(world.paths_up(), [2, 2]);
        let again = world.bulk(50 * MS);
        assert!(again * 100 >= whole * 95, "{whole} and {again}");
    }
    let counters = world.ends[0].session().counters();
    assert_eq!((counters.paths_lost, counters.paths_found), (3, 4));
    assert_eq!(counters.paths, 2);
}

#[test]
fn the_path_of_the_handshake_may_be_lost_as_any_other() {
    let mut world = World::new(1, &config(), &[link(GIGABIT, 20 * US); 2]);
    world.cut(0, true);
    world.bulk(3 * S / 2);
    assert_eq!([0, 1].map(|at| world.ends[at].session().state()), [State::Up; 2]);
    assert!(world.run_until(100 * MS, World::is_all_delivered));
}

#[test]
fn an_idle_path_that_is_lost_is_known_before_it_is_needed() {
    let mut world = World::new(1, &config(), &[link(GIGABIT, 20 * US); 2]);
    world.run_until(100 * MS, |_| false);
    world.cut(0, true);
    world.run_until(200 * MS, |_| false);
    assert_eq!(world.paths_up(), [1, 1]);
    let start_ns = world.now_ns;
    assert!(world.ends[0].put(1, 100));
    assert!(world.run_until(MS, World::is_all_delivered));
    assert!(world.now_ns - start_ns < 100 * US);
}

#[test]
fn a_port_that_says_that_its_path_is_gone_is_believed_at_once() {
    let mut world = World::new(1, &config(), &[link(GIGABIT, 20 * US); 2]);
    world.bulk(20 * MS);
    world.cut(1, true);
    let now_ns = world.now_ns;
    let paths: Vec<_> = world.ends[0].session().paths().map(|path| path.id).collect();
    world.ends[0].session().lose_path(now_ns, paths[1]);
    world.watch_gap();
    world.bulk(20 * MS);
    // What was lost waits in the queue of the other link.
    assert!(world.gap_ns < 2 * MS + 500 * US, "{}", world.gap_ns);
    // The last one cannot be given up.
    let now_ns = world.now_ns;
    world.ends[0].session().lose_path(now_ns, paths[0]);
    assert_eq!(world.paths_up()[0], 1);
}

#[test]
fn any_paths_of_four_may_come_and_go_as_long_as_one_is_left() {
    for seed in 0..12 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let links: Vec<Link> = (0..4)
            .map(|_| Link {
                loss: rng.random_range(0..20_000),
                ..link(GIGABIT / 4, rng.random_range(5..200) * US)
            })
            .collect();
        let mut world = World::new(seed, &config(), &links);
        for _ in 0..30 {
            let left = rng.random_range(0..4);
            for link in 0..4 {
                let is_cut = link != left && rng.random_ratio(1, 2);
                world.cut(link, is_cut);
            }
            for stream in 0..8 {
                for _ in 0..rng.random_range(0..30) {
                    let len = rng.random_range(12..4112);
                    world.ends[0].put(stream, len);
                    world.ends[1].put(stream, len);
                }
            }
            world.run_until(rng.random_range(1..30) * MS, |_| false);
        }
        (0..4).for_each(|link| world.cut(link, false));
        assert!(world.run_until(S, World::is_all_delivered), "seed {seed}");
        assert!(
            world.run_until(2 * S, |world| world.paths_up() == [4; 2]),
            "seed {seed} {:?}",
            world.paths_up()
        );
    }
}

#[test]
fn a_session_is_dead_only_when_all_its_paths_are_silent() {
    let mut world = World::new(1, &config(), &[link(GIGABIT, 20 * US); 3]);
    world.bulk(10 * MS);
    (0..3).for_each(|link| world.cut(link, true));
    world.bulk(300 * MS);
    (0..3).for_each(|link| world.cut(link, false));
    world.bulk(300 * MS);
    assert!(world.run_until(S, World::is_all_delivered), "a short silence of all is survived");
    (0..3).for_each(|link| world.cut(link, true));
    let start_ns = world.now_ns;
    world.ends[0].put(1, 1000);
    let is_dead = |world: &World, at: usize| {
        matches!(world.ends[at].session.as_ref().map(etherslot_session::Session::state), Some(State::Dead(_)))
    };
    assert!(world.run_until(3 * S / 2, |world| is_dead(world, 0) && is_dead(world, 1)));
    assert!(world.now_ns - start_ns >= 800 * MS);
}

#[test]
fn paths_that_all_lose_long_frames_are_a_stalled_session() {
    let mut world = World::new(1, &config(), &[link(GIGABIT, 20 * US); 2]);
    world.links.iter_mut().for_each(|ways| ways[0].longest = 600);
    world.ends[0].put(1, 1300);
    let start_ns = world.now_ns;
    world.run_until(3 * S, |world| {
        world.ends[0].session.as_ref().is_some_and(|session| session.state() != State::Up)
    });
    assert_eq!(world.ends[0].session().state(), State::Dead(DeadReason::Stalled));
    assert!(world.now_ns - start_ns <= 3 * S / 2, "{}", world.now_ns - start_ns);
}

#[test]
fn a_path_that_loses_long_frames_only_is_left_alone_after_a_while() {
    let mut world = World::new(1, &config(), &[link(GIGABIT, 20 * US); 2]);
    let one = goodput(&[link(GIGABIT, 20 * US)]);
    world.links[1][0].longest = 600;
    world.bulk(500 * MS);
    let with_it = world.bulk(200 * MS) * 5;
    assert!(with_it * 100 >= one * 90, "{one} and {with_it}");
    assert!(world.run_until(100 * MS, World::is_all_delivered));
}

#[test]
fn a_close_reaches_the_peer_whichever_path_is_left() {
    for left in 0..2 {
        let mut world = World::new(1, &config(), &[link(GIGABIT, 20 * US); 2]);
        world.cut(1 - left, true);
        world.ends[0].session().close(CloseReason::Shutdown);
        assert!(world.run_until(MS, |world| {
            world.ends[1].session.as_ref().is_some_and(|session| {
                session.state() == State::Dead(DeadReason::PeerClosed(CloseReason::Shutdown))
            })
        }));
    }
}

#[test]
fn an_idle_session_costs_a_few_frames_a_second_and_path() {
    let mut world = World::new(1, &config(), &[link(GIGABIT, 20 * US); 4]);
    world.cut(3, true);
    let before = world.frames.clone();
    world.run_until(10 * S, |_| false);
    for (link, (after, before)) in world.frames.iter().zip(&before).enumerate() {
        let frames = after[0] + after[1] - before[0] - before[1];
        assert!((100..600).contains(&frames), "{link}: {frames}");
    }
}

#[test]
fn a_peer_that_takes_no_further_path_costs_nothing_but_questions() {
    let single = Config::default();
    let mut world = World::connected(1, [&config(), &single], &[link(GIGABIT, 20 * US); 3]);
    let before = world.frames.clone();
    world.bulk(S);
    assert_eq!(world.paths_up(), [1, 1]);
    for (after, before) in world.frames.iter().zip(&before).skip(1) {
        let frames = after[0] - before[0];
        assert!((5..30).contains(&frames), "{frames}");
    }
    assert!(world.run_until(100 * MS, World::is_all_delivered));
}

#[test]
fn classic_mode_and_a_configuration_without_paths_know_one_only() {
    for config in [Config::default(), Config { mode: Mode::Classic, ..config() }] {
        let mut world = World::connected(1, [&config, &config], &[link(GIGABIT, 20 * US); 2]);
        let now_ns = world.now_ns;
        assert!(world.ends[0].session().add_path(now_ns).is_none());
        let header = world.forged(1 << 20);
        assert!(world.ends[1].session().join(now_ns, &header).is_none());
    }
}

/// The bytes of a frame without a body.
fn bytes(header: &etherslot_wire::frame::Header) -> Vec<u8> {
    let mut bytes = vec![0; header.len() + CHECK_BYTES];
    header.emit(&mut bytes).expect("room");
    etherslot_wire::frame::put_check(&mut bytes, crc32c::crc32c).expect("room");
    bytes
}

#[test]
fn a_stranger_joins_with_nothing_old_and_nothing_of_another_session() {
    let mut world = World::connected(1, [&config(); 2], &[link(GIGABIT, 20 * US)]);
    world.bulk(MS);
    let now_ns = world.now_ns;
    let good = world.forged(1 << 20);
    let mut refuses = |header| assert!(world.ends[1].session().join(now_ns, &header).is_none(), "{header:?}");
    refuses(etherslot_wire::frame::Header { packet_number: 3, ..good });
    refuses(etherslot_wire::frame::Header { packet_number: 1 << 40, ..good });
    refuses(etherslot_wire::frame::Header { dst_epoch: good.dst_epoch ^ 1, ..good });
    refuses(etherslot_wire::frame::Header { src_epoch: good.src_epoch ^ 1, ..good });
    refuses(etherslot_wire::frame::Header { kind: etherslot_wire::frame::Kind::Hello, ..good });
    refuses(etherslot_wire::frame::Header { kind: etherslot_wire::frame::Kind::Close, ..good });
    // What has been on the link before, replayed on another.
    assert!(world.run_until(20 * MS, World::is_all_delivered));
    world.ends[0].put(1, 100);
    let frame = world.caught(0).pop().expect("a frame").1;
    assert!(world.land(1, 0, &frame).is_some());
    assert!(world.land(1, 7, &frame).is_none());
    assert_eq!(world.ends[1].session().paths().len(), 1);
}

#[test]
fn a_path_that_was_joined_by_a_stranger_gets_questions_and_answers_and_nothing_else() {
    let mut world = World::connected(1, [&config(); 2], &[link(GIGABIT, 20 * US)]);
    world.bulk(MS);
    world.add_links(10);
    let mut joined = 0;
    // Near to the numbers in use: further ahead they would shut out the session's own.
    let first = world.frames[0][0] + 100;
    for number in 0..200 {
        // Paths beyond the bound are not taken, however many come.
        let header = world.forged(first + number);
        joined += usize::from(world.land(1, 1 + (number % 8) as usize, &bytes(&header)).is_some());
        world.ends[1].session().handle_timeout(world.now_ns);
        world.ends[1].put(2, 1000);
        for (link, frame) in world.caught(1) {
            let (header, _) = etherslot_session::parse_frame(&frame).expect("own frame");
            let is_data = header.kind == etherslot_wire::frame::Kind::Data;
            assert!(link == 0 || !is_data);
            world.land(0, link, &frame);
        }
    }
    assert!(joined > 0);
    assert_eq!(world.ends[1].session().paths().len(), MAX_PATHS);
    assert_eq!(world.paths_up()[1], 1);
    // One that never answers makes room in the end.
    world.run_until(2 * S, |_| false);
    let header = world.forged(first + 1000);
    assert!(world.land(1, 9, &bytes(&header)).is_some());
}

#[test]
fn a_question_and_its_answer_take_no_longer_than_the_loss_of_a_path_each_way() {
    for cut in 0..2 {
        for idle_ms in [0, 1, 30, 99, 150, 300] {
            for delay_us in [1, 20, 200] {
                let mut world = World::new(1, &config(), &[link(0, delay_us * US); 2]);
                world.run_until(idle_ms * MS, |_| false);
                for is_cut in [false, true] {
                    world.cut(cut, is_cut);
                    let start_ns = world.now_ns;
                    world.ends[0].put(1, 100);
                    assert!(world.run_until(10 * MS, World::is_all_delivered));
                    world.ends[1].put(1, 100);
                    assert!(world.run_until(10 * MS, World::is_all_delivered));
                    let took_ns = world.now_ns - start_ns;
                    assert!(took_ns < 10 * MS, "{cut} {idle_ms} {delay_us} {is_cut}: {took_ns}");
                }
            }
        }
    }
}
