//! No memory is taken after a session has begun: not for data, acknowledgements, losses, timers or its end.

mod pair;

use etherslot_session::{CloseReason, Config, Deliver, PathId, Session, State, parse_frame};
use etherslot_wire::record::Kind;
use pair::{Link, Pair, US};

#[derive(Default)]
struct Bytes(u64);

impl Deliver for Bytes {
    fn record(&mut self, _kind: Kind, _stream: u16, payload: &[u8]) {
        self.0 += payload.len() as u64;
    }
}

/// Frames on their way, in memory taken beforehand.
struct Wire {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Wire {
    fn put(&mut self, frame: &[u8]) {
        self.bytes.extend_from_slice(frame);
        self.ends.push(self.bytes.len());
    }
}

#[test]
fn a_session_takes_no_memory_once_it_is_up() {
    let mut pair = Pair::connected(1, &Config::default(), Link::default());
    let mut now_ns = pair.now_ns;
    let [one, two] = &mut pair.nodes;
    let (one, two) = (one.session(), two.session());
    let mut wires =
        [0; 2].map(|_| Wire { bytes: Vec::with_capacity(1 << 22), ends: Vec::with_capacity(1 << 12) });
    let mut delivered = Bytes::default();
    let data = [7; 4096];
    let steady = allocation_counter::measure(|| {
        for round in 0..5000usize {
            now_ns += 20 * US;
            for (session, stream) in [(&mut *one, 1), (&mut *two, 2)] {
                for _ in 0..round % 7 {
                    let len = if round % 5 == 0 { 4096 } else { 64 };
                    let _ = session.send(Kind::Tlp, stream, &[1; 16], 0, &data[..len], 16 + len);
                }
                session.handle_timeout(now_ns);
            }
            // Timers, losses and overtaking are part of what must be free.
            for (session, wire) in [&mut *one, &mut *two].into_iter().zip(&mut wires) {
                wire.bytes.clear();
                wire.ends.clear();
                session.transmit(now_ns, &mut |frames| {
                    for (index, frame) in frames.iter().enumerate() {
                        if (index + round) % 37 != 0 {
                            wire.put(frame);
                        }
                    }
                    frames.len()
                });
            }
            for (session, wire) in [&mut *two, &mut *one].into_iter().zip(&wires) {
                for index in (0..wire.ends.len()).map(|index| index ^ (round & 1)) {
                    let Some(&end) = wire.ends.get(index) else { continue };
                    let start = if index == 0 { 0 } else { wire.ends[index - 1] };
                    let (header, body) = parse_frame(&wire.bytes[start..end]).expect("own frame");
                    session.handle_frame(now_ns + 10 * US, &header, body, &mut delivered);
                }
            }
        }
    });
    let end = allocation_counter::measure(|| {
        one.close(CloseReason::Shutdown);
        one.transmit(now_ns, &mut |frames| frames.len());
        two.handle_timeout(now_ns + 2_000_000_000);
    });
    assert_eq!((steady.count_total, end.count_total), (0, 0));
    assert_eq!(one.state(), State::Closing);
    let counters = one.counters();
    assert!(delivered.0 > 10_000_000 && counters.retransmissions > 100, "{} {counters:?}", delivered.0);
    assert!(counters.out_of_order > 100 && counters.spurious > 0, "{counters:?}");
}

/// A frame on its way: its path and where it ends.
struct Sent {
    path: usize,
    end: usize,
}

/// What a session sends now goes to the other, but for path 1 while that is cut.
fn pass(
    now_ns: u64,
    [from, to]: [&mut Session; 2],
    paths: [PathId; 2],
    is_cut: bool,
    (bytes, sent): (&mut Vec<u8>, &mut Vec<Sent>),
    delivered: &mut Bytes,
) {
    bytes.clear();
    sent.clear();
    from.handle_timeout(now_ns);
    from.transmit_paths(now_ns, &mut |path, frames| {
        for frame in frames {
            bytes.extend_from_slice(frame);
            sent.push(Sent { path: path.index(), end: bytes.len() });
        }
        frames.len()
    });
    let mut start = 0;
    for (index, sent) in sent.iter().enumerate() {
        let frame = &bytes[start..sent.end];
        start = sent.end;
        if sent.path == 1 && is_cut || index % 41 == 40 {
            continue;
        }
        let (header, body) = parse_frame(frame).expect("own frame");
        if sent.path == 1 && to.paths().len() == 1 {
            let _ = to.join(now_ns, &header);
        }
        to.handle_frame_on(now_ns, paths[sent.path], &header, body, delivered);
    }
}

#[test]
fn paths_that_join_are_lost_and_come_back_take_no_memory() {
    let config = Config { paths: 2, ..Config::default() };
    let mut pair = Pair::connected(1, &config, Link::default());
    let mut now_ns = pair.now_ns;
    let [one, two] = &mut pair.nodes;
    let (one, two) = (one.session(), two.session());
    let mut bytes = Vec::with_capacity(1 << 22);
    let mut sent = Vec::with_capacity(1 << 12);
    let mut delivered = Bytes::default();
    let mut paths = [PathId::FIRST; 2];
    let measured = allocation_counter::measure(|| {
        paths[1] = one.add_path(now_ns).expect("a path");
        for round in 0..30_000u32 {
            now_ns += 40 * US;
            let is_cut = round / 5000 % 2 == 1;
            for _ in 0..round % 7 {
                let _ = one.send(Kind::Tlp, 1, &[1; 16], 0, &[7; 1000], 1016);
                let _ = two.send(Kind::Tlp, 2, &[1; 16], 0, &[7; 64], 80);
            }
            let memory = (&mut bytes, &mut sent);
            pass(now_ns, [&mut *one, &mut *two], paths, is_cut, memory, &mut delivered);
            now_ns += 40 * US;
            let memory = (&mut bytes, &mut sent);
            pass(now_ns, [&mut *two, &mut *one], paths, is_cut, memory, &mut delivered);
        }
    });
    assert_eq!(measured.count_total, 0);
    let counters = one.counters();
    assert!(counters.paths_lost >= 2 && counters.paths_found >= 2, "{counters:?}");
    assert!(delivered.0 > 10_000_000, "{}", delivered.0);
}
