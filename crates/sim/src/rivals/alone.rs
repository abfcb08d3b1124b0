//! Each rival alone on one link: a sender that never runs dry, a drop-tail queue that marks above a threshold, and an
//! acknowledgement for every frame.

use std::collections::VecDeque;

use etherslot_session::{Acked, Controller, Limits, Lost, Mode};

use super::{Cubic, Dctcp, Reno, Swift};

const FRAME_BYTES: u64 = 1500;

struct Link {
    /// Time of a frame on the link.
    frame_ns: u64,
    rtt_ns: u64,
    buffer_frames: u64,
    mark_frames: u64,
}

/// What the second half of a run was like.
#[derive(Debug)]
struct Seen {
    use_of_link: f64,
    mean_queue_frames: f64,
    most_queue_frames: f64,
    lost: u64,
}

/// A frame on its way: when it left, when its acknowledgement comes unless it was dropped, whether it is marked.
struct Frame {
    tx_ns: u64,
    ack_ns: Option<u64>,
    is_marked: bool,
}

impl Link {
    fn run(&self, controller: &mut dyn Controller, until_ns: u64) -> Seen {
        controller.set_frame_bytes(FRAME_BYTES);
        let (mut now_ns, mut free_ns, mut paced_ns, mut last_tx_ns) = (0, 0, 0, 0);
        let mut flight: VecDeque<Frame> = VecDeque::new();
        let (mut srtt_ns, mut delivered, mut samples, mut total, mut most, mut lost) = (0, 0, 0, 0.0, 0.0, 0);
        while now_ns < until_ns {
            let is_second_half = now_ns > until_ns / 2;
            loop {
                let in_flight = flight.len() as u64 * FRAME_BYTES;
                if !flight.is_empty() && in_flight + FRAME_BYTES > controller.window_bytes() {
                    break;
                }
                now_ns = now_ns.max(if flight.is_empty() { paced_ns } else { 0 });
                if paced_ns > now_ns {
                    break;
                }
                paced_ns =
                    controller.pacing_rate().map_or(0, |rate| now_ns + FRAME_BYTES * 1_000_000_000 / rate);
                last_tx_ns = now_ns.max(last_tx_ns + 1);
                let queue_ns = free_ns.max(now_ns) - now_ns;
                let is_dropped = queue_ns > self.buffer_frames * self.frame_ns;
                if !is_dropped {
                    free_ns = free_ns.max(now_ns) + self.frame_ns;
                }
                flight.push_back(Frame {
                    tx_ns: last_tx_ns,
                    ack_ns: (!is_dropped).then_some(free_ns + self.rtt_ns),
                    is_marked: queue_ns > self.mark_frames * self.frame_ns,
                });
                controller.on_sent(now_ns, FRAME_BYTES, flight.len() as u64 * FRAME_BYTES);
                if is_second_half {
                    let queue_frames = queue_ns as f64 / self.frame_ns as f64;
                    samples += 1;
                    total += queue_frames;
                    most = f64::max(most, queue_frames);
                }
            }
            let mut newest_lost = None;
            while let Some(Frame { tx_ns, ack_ns: None, .. }) = flight.front() {
                newest_lost = Some((*tx_ns, newest_lost.map_or(1, |(_, count): (u64, u64)| count + 1)));
                flight.pop_front();
            }
            if is_second_half {
                lost += newest_lost.map_or(0, |(_, count)| count);
            }
            let in_flight_bytes = flight.len().saturating_sub(1) as u64 * FRAME_BYTES;
            let Some(Frame { tx_ns, ack_ns: Some(ack_ns), is_marked }) = flight.pop_front() else {
                now_ns += 1_000_000;
                controller.on_rto(now_ns);
                continue;
            };
            now_ns = now_ns.max(ack_ns);
            let rtt_ns = now_ns - tx_ns;
            srtt_ns = if srtt_ns == 0 { rtt_ns } else { (7 * srtt_ns + rtt_ns) / 8 };
            let min_rtt_ns = self.rtt_ns + self.frame_ns;
            delivered += u64::from(is_second_half);
            controller.on_ack(&Acked {
                now_ns,
                bytes: FRAME_BYTES,
                rtt_ns: Some(rtt_ns),
                back_ns: 0,
                tx_ns: Some(tx_ns),
                srtt_ns,
                min_rtt_ns,
                in_flight_bytes,
                window_limited: true,
                congested: is_marked,
            });
            if let Some((newest_tx_ns, count)) = newest_lost {
                let bytes = count * FRAME_BYTES;
                controller.on_loss(&Lost {
                    now_ns,
                    bytes,
                    newest_tx_ns,
                    rtt_ns,
                    min_rtt_ns,
                    in_flight_bytes,
                });
            }
        }
        Seen {
            use_of_link: (delivered * self.frame_ns) as f64 / (now_ns - until_ns / 2) as f64,
            mean_queue_frames: total / f64::from(samples),
            most_queue_frames: most,
            lost,
        }
    }

    fn limits(&self) -> Limits {
        let rate = Some(FRAME_BYTES * 1_000_000_000 / self.frame_ns);
        Limits { frame_bytes: FRAME_BYTES, window_frames: 8192, rate, noise_ns: 0, mode: Mode::Selective }
    }
}

/// 10 Gbit/s and 100 Gbit/s, 8 us, with a buffer of a bandwidth-delay product or 100 frames.
const LINKS: [Link; 2] = [
    Link { frame_ns: 1_200, rtt_ns: 8_000, buffer_frames: 100, mark_frames: 20 },
    Link { frame_ns: 120, rtt_ns: 8_000, buffer_frames: 100, mark_frames: 20 },
];

#[test]
fn reno_and_cubic_fill_a_link_with_a_buffer() {
    for link in LINKS {
        for controller in [
            &mut Reno::new(&link.limits()) as &mut dyn Controller,
            &mut Cubic::new(&link.limits()) as &mut dyn Controller,
        ] {
            let seen = link.run(controller, 40_000_000);
            assert!(seen.use_of_link > 0.99, "{seen:?} {controller:?}");
            assert!(seen.most_queue_frames > 99.0 && seen.lost > 0, "they fill the buffer: {seen:?}");
        }
    }
}

#[test]
fn reno_without_a_buffer_uses_three_quarters() {
    let link = Link { buffer_frames: 1, ..LINKS[1] };
    let seen = link.run(&mut Reno::new(&link.limits()), 40_000_000);
    assert!((0.72..0.82).contains(&seen.use_of_link), "{seen:?}");
}

#[test]
fn dctcp_fills_a_link_with_its_queue_at_the_threshold_and_loses_nothing() {
    for link in LINKS {
        let seen = link.run(&mut Dctcp::new(&link.limits()), 40_000_000);
        assert!(seen.use_of_link > 0.99, "{seen:?}");
        assert!((12.0..=21.0).contains(&seen.mean_queue_frames) && seen.most_queue_frames < 25.0, "{seen:?}");
        assert_eq!(seen.lost, 0);
    }
}

#[test]
fn swift_fills_a_link_with_its_queue_near_the_target() {
    for link in LINKS {
        let seen = link.run(&mut Swift::new(&link.limits()), 40_000_000);
        let most_frames = 10_000.0 / link.frame_ns as f64;
        assert!(seen.use_of_link > 0.99, "{seen:?}");
        assert!((1.0..most_frames).contains(&seen.mean_queue_frames), "{seen:?}");
        assert_eq!(seen.lost, 0);
    }
}
