//! No memory is taken after a session has begun: not for data, acknowledgements, losses, timers or its end.

mod pair;

use etherslot_session::{CloseReason, Config, Deliver, State, parse_frame};
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
