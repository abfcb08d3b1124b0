//! What every back end must do, as functions over a [`Link`].

use std::time::{Duration, Instant};

use etherslot_netio::{Address, Counters, Port};

/// Two Ports that reach each other, and the way to open the second anew.
pub(crate) struct Link {
    pub(crate) a: Box<dyn Port>,
    pub(crate) b: Box<dyn Port>,
    pub(crate) reopen_b: Box<dyn Fn() -> Box<dyn Port>>,
    /// Whether a full receiver makes the sender wait; otherwise it loses frames.
    pub(crate) back_pressure: bool,
}

/// Frames arrive within this, or not at all.
const PATIENCE: Duration = Duration::from_secs(5);

/// A frame that tells its number, so that its place and every byte can be checked.
pub(crate) fn frame(number: u32, bytes: usize) -> Vec<u8> {
    let mut frame: Vec<u8> =
        (0..bytes).map(|at| (at as u32).wrapping_mul(31).wrapping_add(number) as u8).collect();
    frame[..4].copy_from_slice(&number.to_be_bytes());
    frame
}

/// Takes what arrives until there are `count` frames or patience ends.
pub(crate) fn collect(port: &mut dyn Port, count: usize) -> Vec<(Address, Vec<u8>)> {
    let (mut arrived, end) = (Vec::new(), Instant::now() + PATIENCE);
    while arrived.len() < count && Instant::now() < end {
        if port.receive(&mut |from, frame| arrived.push((*from, frame.to_vec()))) == 0 {
            std::thread::yield_now();
        }
    }
    arrived
}

fn send_all(port: &mut dyn Port, to: &Address, frames: &[Vec<u8>]) {
    let slices: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
    let (mut taken, end) = (0, Instant::now() + PATIENCE);
    while taken < slices.len() {
        taken += port.send(to, &slices[taken..]);
        assert!(Instant::now() < end, "the link never had room");
    }
}

/// Nothing more arrives. Frames on these links are there when `send` returns, or within a softirq.
fn assert_silent(port: &mut dyn Port) {
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(port.receive(&mut |_, frame| panic!("{} bytes arrived unasked", frame.len())), 0);
}

pub(crate) fn every_frame_arrives_once_and_in_order(mut link: Link) {
    const FRAMES: u32 = 5000;
    let (from, to, longest) = (link.a.address(), link.b.address(), link.a.max_frame_bytes());
    let mut next = 0;
    let mut check = |arrived: Vec<(Address, Vec<u8>)>| {
        for (sender, bytes) in arrived {
            assert_eq!(sender, from);
            assert!(bytes == frame(next, bytes.len()), "frame {next} is damaged or out of order");
            next += 1;
        }
    };
    let mut number = 0;
    let mut bytes_sent = 0;
    while number < FRAMES {
        // Runs of one size and sizes that change, in bursts of every length.
        let burst: Vec<Vec<u8>> = (number..(number + 1 + number % 64).min(FRAMES))
            .map(|number| {
                frame(number, if number % 3 == 0 { 64 + number as usize % (longest - 64) } else { longest })
            })
            .collect();
        number += burst.len() as u32;
        bytes_sent += burst.iter().map(|frame| frame.len() as u64).sum::<u64>();
        send_all(&mut *link.a, &to, &burst);
        check(collect(&mut *link.b, burst.len()));
    }
    assert_silent(&mut *link.b);
    assert_silent(&mut *link.a);
    assert_eq!(next, FRAMES);
    let (sent, received) = (link.a.counters(), link.b.counters());
    assert_eq!((sent.tx_frames, sent.tx_bytes), (u64::from(FRAMES), bytes_sent));
    assert_eq!((received.rx_frames, received.rx_bytes), (u64::from(FRAMES), bytes_sent));
    assert_eq!(link.b.counters().rx_overflow + link.b.counters().rx_truncated, 0);
}

pub(crate) fn a_burst_of_any_length_is_taken_whole(mut link: Link) {
    let to = link.b.address();
    for count in [0, 1, 2, 63, 64, 65, 128, 129] {
        let frames: Vec<Vec<u8>> = (0..count).map(|number| frame(number, 100)).collect();
        let slices: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
        assert_eq!(link.a.send(&to, &slices), slices.len());
        let arrived: Vec<Vec<u8>> =
            collect(&mut *link.b, frames.len()).into_iter().map(|(_, frame)| frame).collect();
        assert_eq!(arrived, frames);
        assert_silent(&mut *link.b);
    }
}

pub(crate) fn the_longest_frame_passes_and_a_longer_one_holds_up_nothing(mut link: Link) {
    let (to, longest) = (link.b.address(), link.a.max_frame_bytes());
    let frames = [frame(0, longest), frame(1, longest + 1), frame(2, longest), frame(3, 60)];
    send_all(&mut *link.a, &to, &frames);
    let arrived: Vec<Vec<u8>> = collect(&mut *link.b, 3).into_iter().map(|(_, frame)| frame).collect();
    assert!(arrived == [frames[0].clone(), frames[2].clone(), frames[3].clone()]);
    assert_eq!(link.a.counters().tx_too_long, 1);
    assert_eq!(link.a.counters().tx_frames, 3);
    assert_silent(&mut *link.b);
}

pub(crate) fn an_address_of_another_link_is_counted(mut link: Link) {
    let to = match link.a.address() {
        Address::Memory(_) => Address::Mac([2, 0, 0, 0, 0, 1]),
        _ => Address::Memory(0),
    };
    assert_eq!(link.a.send(&to, &[&frame(0, 64), &frame(1, 64)]), 2);
    assert_eq!(link.a.counters(), &Counters { tx_foreign: 2, ..Counters::default() });
}

pub(crate) fn a_restarted_peer_is_reached_again(mut link: Link) {
    let to = link.b.address();
    send_all(&mut *link.a, &to, &[frame(0, 64)]);
    assert_eq!(collect(&mut *link.b, 1).len(), 1);
    // Nobody listens: what is sent is lost, and does not come to the next life.
    drop(link.b);
    for number in 0..100 {
        send_all(&mut *link.a, &to, &[frame(number, 64), frame(number, 64)]);
    }
    let mut b = (link.reopen_b)();
    assert_silent(&mut *b);
    assert_eq!(b.address(), to);
    send_all(&mut *link.a, &to, &[frame(7, 64)]);
    let arrived = collect(&mut *b, 1);
    assert_eq!(arrived, [(link.a.address(), frame(7, 64))]);
    let from = link.a.address();
    send_all(&mut *b, &from, &[frame(8, 64)]);
    assert_eq!(collect(&mut *link.a, 1), [(to, frame(8, 64))]);
}

pub(crate) fn a_full_receiver_loses_nothing_unseen(mut link: Link) {
    const BURSTS: u32 = 2000;
    let to = link.b.address();
    let frames: Vec<Vec<u8>> = (0..64).map(|number| frame(number, 500)).collect();
    let slices: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
    let mut taken = 0;
    for _ in 0..BURSTS {
        taken += link.a.send(&to, &slices);
    }
    let mut arrived = 0;
    while link.b.receive(&mut |_, _| arrived += 1) > 0 {}
    link.b.tick(u64::MAX / 2);
    let (sender, receiver) = (*link.a.counters(), *link.b.counters());
    assert_eq!(sender.tx_frames, taken as u64);
    assert!(arrived > 0);
    if link.back_pressure {
        assert!(sender.tx_no_room > 0);
        assert_eq!(arrived, taken);
    } else {
        assert!(arrived < taken);
        assert!(receiver.rx_overflow > 0, "{receiver:?}");
    }
    // And it goes on.
    send_all(&mut *link.a, &to, &[frame(7, 64)]);
    assert_eq!(collect(&mut *link.b, 1), [(link.a.address(), frame(7, 64))]);
}

/// Makes a module of tests, one for each demand, of a function that opens a [`Link`] or says why there is none.
macro_rules! suite {
    ($name:ident, $on:path) => {
        mod $name {
            $crate::suite::suite!(@ $on, every_frame_arrives_once_and_in_order, a_burst_of_any_length_is_taken_whole,
                the_longest_frame_passes_and_a_longer_one_holds_up_nothing, an_address_of_another_link_is_counted,
                a_restarted_peer_is_reached_again, a_full_receiver_loses_nothing_unseen);
        }
    };
    (@ $on:path, $($demand:ident),*) => {
        $(#[test]
        fn $demand() {
            $on($crate::suite::$demand);
        })*
    };
}
pub(crate) use suite;
