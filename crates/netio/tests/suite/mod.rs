//! What every back end must do, as functions over a [`Link`].
//!
//! A back end plugs in here: `tests/ports.rs` has a function for each that opens a [`Link`] of two Ports, or prints
//! `skipped:` and why, and a line `suite!(name, super::that_function)`. Nothing else is needed; a demand that a back end
//! cannot be asked (it has no link to take down, no descriptor to sleep on) passes over it by the fields of [`Link`].

use std::mem::discriminant;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use etherslot_netio::{Address, BURST_FRAMES, Counters, Port};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Two Ports that reach each other, and the way to open the second anew.
pub(crate) struct Link {
    pub(crate) a: Box<dyn Port>,
    pub(crate) b: Box<dyn Port>,
    pub(crate) reopen_b: Box<dyn Fn() -> Box<dyn Port>>,
    /// Takes the link of the first Port down (false) or up, if there is such a thing.
    pub(crate) switch: Option<Box<dyn Fn(bool)>>,
    /// Whether a full receiver makes the sender wait; otherwise it loses frames.
    pub(crate) back_pressure: bool,
}

impl Link {
    /// Two Ports whose link cannot go down, and whose receiver loses what it has no room for.
    pub(crate) fn new(
        a: Box<dyn Port>,
        b: Box<dyn Port>,
        reopen_b: impl Fn() -> Box<dyn Port> + 'static,
    ) -> Self {
        Self { a, b, reopen_b: Box::new(reopen_b), switch: None, back_pressure: false }
    }
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

/// Sends and ticks until one frame arrives.
fn until_one_arrives(from: &mut dyn Port, to: &mut dyn Port) {
    let start = Instant::now();
    let mut arrived = 0;
    while arrived == 0 {
        assert!(start.elapsed() < PATIENCE, "nothing arrives");
        let now_ns = start.elapsed().as_nanos() as u64;
        from.tick(now_ns);
        to.tick(now_ns);
        // Asked each time: an interface that is made again has another address.
        from.send(&to.address(), &[&[7; 100]]);
        std::thread::sleep(Duration::from_millis(1));
        while to.receive(&mut |_, _| arrived += 1) > 0 {}
    }
}

fn is_readable(fd: BorrowedFd<'_>, within: Duration) -> bool {
    let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(within.subsec_nanos()) };
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    poll(&mut fds, Some(&timeout)).expect("poll") > 0
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

pub(crate) fn a_burst_of_the_longest_frames_is_taken_whole(mut link: Link) {
    let (to, longest) = (link.b.address(), link.a.max_frame_bytes());
    for count in [0, 1, BURST_FRAMES, BURST_FRAMES + 1] {
        let frames: Vec<Vec<u8>> = (0..count).map(|number| frame(number as u32, longest)).collect();
        send_all(&mut *link.a, &to, &frames);
        let arrived = collect(&mut *link.b, count).into_iter().map(|(_, frame)| frame);
        assert!(arrived.eq(frames), "{count} frames of {longest} bytes");
        assert_silent(&mut *link.b);
    }
}

/// What is not taken now is taken later, while frames of all sizes go both ways.
pub(crate) fn back_pressure_loses_nothing_either_way(mut link: Link) {
    const FRAMES: u32 = 20_000;
    if !link.back_pressure {
        println!("skipped: a full receiver loses frames");
        return;
    }
    let addresses = [link.a.address(), link.b.address()];
    let longest = link.a.max_frame_bytes();
    let sized = |number: u32| frame(number, 4 + (number as usize).wrapping_mul(7919) % (longest - 3));
    let (mut sent, mut arrived) = ([0; 2], [0; 2]);
    let end = Instant::now() + 4 * PATIENCE;
    while arrived != [FRAMES; 2] {
        assert!(Instant::now() < end, "{sent:?} taken, {arrived:?} arrived");
        for (side, sent) in sent.iter_mut().enumerate() {
            let (port, to) =
                if side == 0 { (&mut link.a, &addresses[1]) } else { (&mut link.b, &addresses[0]) };
            // Until the link is full, so that every way to be full is met.
            while *sent < FRAMES {
                let burst: Vec<_> = (*sent..FRAMES).take(BURST_FRAMES + 1).map(sized).collect();
                let slices: Vec<&[u8]> = burst.iter().map(Vec::as_slice).collect();
                let taken = port.send(to, &slices);
                *sent += taken as u32;
                if taken < slices.len() {
                    break;
                }
            }
        }
        for (side, arrived) in arrived.iter_mut().enumerate() {
            let port = if side == 0 { &mut link.b } else { &mut link.a };
            for _ in 0..=*arrived % 5 {
                port.receive(&mut |from, bytes| {
                    assert_eq!(*from, addresses[side]);
                    assert!(bytes == sized(*arrived), "frame {arrived} is damaged");
                    *arrived += 1;
                });
            }
        }
    }
    for (port, other) in [(&link.a, &link.b), (&link.b, &link.a)] {
        assert!(port.counters().tx_no_room > 0);
        assert_eq!(port.counters().tx_frames, u64::from(FRAMES));
        assert_eq!(other.counters().rx_bytes, port.counters().tx_bytes);
    }
}

pub(crate) fn a_link_that_was_down_carries_frames_again(mut link: Link) {
    let Some(switch) = link.switch else {
        println!("skipped: no link to take down");
        return;
    };
    until_one_arrives(&mut *link.a, &mut *link.b);
    until_one_arrives(&mut *link.b, &mut *link.a);
    for count in [1, BURST_FRAMES + 1] {
        switch(false);
        let (to, lost) = (link.b.address(), link.a.counters().tx_link_down);
        let frames = vec![&[0; 64][..]; count];
        assert_eq!(link.a.send(&to, &frames), count, "a link that is down must not hold up its sender");
        assert_eq!(link.a.counters().tx_link_down - lost, count as u64);
        switch(true);
        assert_silent(&mut *link.b);
        until_one_arrives(&mut *link.a, &mut *link.b);
        until_one_arrives(&mut *link.b, &mut *link.a);
    }
}

pub(crate) fn a_frame_wakes_who_sleeps_and_nothing_else_does(mut link: Link) {
    let (to, from) = (link.b.address(), link.a.address());
    for number in 0..3 {
        let frames = [frame(number, 64)];
        // Met while polling: no reason to wake afterwards.
        send_all(&mut *link.a, &to, &frames);
        assert_eq!(collect(&mut *link.b, 1).len(), 1);
        let sleeps = link.b.before_sleep();
        let Some(fd) = link.b.fd().filter(|_| sleeps) else {
            println!("skipped: no descriptor to sleep on");
            return;
        };
        assert!(!is_readable(fd, Duration::from_millis(20)), "woken by nothing");
        send_all(&mut *link.a, &to, &frames);
        let fd = link.b.fd().expect("as before");
        assert!(is_readable(fd, Duration::from_millis(999)), "not woken");
        assert_eq!(collect(&mut *link.b, 1), [(from, frames[0].clone())]);
        // Arrived before the decision to sleep: either it says so, or the descriptor does.
        send_all(&mut *link.a, &to, &frames);
        let sleeps = link.b.before_sleep();
        assert!(!sleeps || is_readable(link.b.fd().expect("as before"), Duration::from_millis(999)));
        assert_eq!(collect(&mut *link.b, 1), [(from, frames[0].clone())]);
    }
}

pub(crate) fn an_address_of_another_link_is_counted(mut link: Link) {
    let own = link.a.address();
    let mut foreign = 0;
    for text in ["02:00:00:00:00:01", "10.0.0.1:4700", "memory:0", "ring:0"] {
        let to: Address = text.parse().expect(text);
        if discriminant(&to) == discriminant(&own) {
            continue;
        }
        assert_eq!(link.a.send(&to, &[&frame(0, 64), &frame(1, 64)]), 2);
        foreign += 2;
        assert_eq!(link.a.counters(), &Counters { tx_foreign: foreign, ..Counters::default() });
    }
    assert_eq!(foreign, 6);
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
                a_burst_of_the_longest_frames_is_taken_whole,
                the_longest_frame_passes_and_a_longer_one_holds_up_nothing, an_address_of_another_link_is_counted,
                a_restarted_peer_is_reached_again, a_full_receiver_loses_nothing_unseen,
                back_pressure_loses_nothing_either_way, a_link_that_was_down_carries_frames_again,
                a_frame_wakes_who_sleeps_and_nothing_else_does);
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
