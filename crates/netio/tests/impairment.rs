//! What an impairment does to frames, by statistics and to the letter.

use etherslot_netio::impair::{Impaired, Impairment};
use etherslot_netio::memory::{Hub, HubConfig, MemoryPort};
use etherslot_netio::{Address, Port};

const TO_B: Address = Address::Memory(1);

/// Two ports, the second impaired.
fn link(impairment: &str) -> (MemoryPort, Impaired<MemoryPort>) {
    let hub = Hub::new(HubConfig { max_frame_bytes: 1500, ..HubConfig::default() });
    let impairment: Impairment = impairment.parse().expect("an impairment");
    (hub.open(0).expect("port 0"), Impaired::new(hub.open(1).expect("port 1"), &impairment))
}

fn frame(number: u32) -> Vec<u8> {
    let mut frame = vec![0; 64];
    frame[..4].copy_from_slice(&number.to_be_bytes());
    frame
}

fn number(frame: &[u8]) -> u32 {
    u32::from_be_bytes(*frame.first_chunk().expect("a number"))
}

/// Sends `count` frames in bursts of ten, a burst a microsecond, through the receiving side of an impairment, and waits until nothing
/// more can come.
fn received(impairment: &str, count: u32) -> (Vec<Vec<u8>>, Impaired<MemoryPort>) {
    let (mut a, mut b) = link(impairment);
    let (mut arrived, mut now_ns) = (Vec::new(), 0);
    for start in (0..count).step_by(10) {
        let frames: Vec<Vec<u8>> = (start..start + 10).map(frame).collect();
        let slices: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
        assert_eq!(a.send(&TO_B, &slices), 10);
        now_ns += 1000;
        b.tick(now_ns);
        b.receive(&mut |from, frame| {
            assert_eq!(*from, Address::Memory(0));
            arrived.push(frame.to_vec());
        });
    }
    while let Some(at) = b.poll_at() {
        b.tick(at);
        b.receive(&mut |_, frame| arrived.push(frame.to_vec()));
    }
    (arrived, b)
}

/// The same through the sending side.
fn sent(impairment: &str, count: u32) -> Vec<Vec<u8>> {
    let (mut b, mut a) = link(impairment);
    let (mut arrived, mut now_ns) = (Vec::new(), 0);
    for start in (0..count).step_by(10) {
        let frames: Vec<Vec<u8>> = (start..start + 10).map(frame).collect();
        let slices: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
        now_ns += 1000;
        a.tick(now_ns);
        assert_eq!(a.send(&Address::Memory(0), &slices), 10);
        while b.receive(&mut |_, frame| arrived.push(frame.to_vec())) > 0 {}
    }
    while let Some(at) = a.poll_at() {
        a.tick(at);
        while b.receive(&mut |_, frame| arrived.push(frame.to_vec())) > 0 {}
    }
    arrived
}

/// Whether `count` of `of` is what a probability of `percent` gives, within five standard deviations.
fn plausible(count: u64, of: u32, percent: f64) -> bool {
    let (of, p) = (f64::from(of), percent / 100.0);
    (f64::from(count as u32) - of * p).abs() <= 5.0 * (of * p * (1.0 - p)).sqrt()
}

#[test]
fn every_fault_comes_as_often_as_asked() {
    let (arrived, port) = received("loss=1%,duplicate=2%,reorder=3%,corrupt=0.5%,seed=3", 100_000);
    let faults = *port.rx_faults();
    assert_eq!((faults.frames, faults.overflowed), (100_000, 0));
    assert!(plausible(faults.lost, 100_000, 1.0), "{faults:?}");
    // The others are drawn for all, but show only on frames that are not lost.
    assert!(plausible(faults.duplicated, 99_000, 2.0), "{faults:?}");
    assert!(plausible(faults.reordered, 99_000, 3.0), "{faults:?}");
    assert!(plausible(faults.corrupted, 99_000, 0.5), "{faults:?}");
    assert_eq!(arrived.len() as u64, faults.frames - faults.lost + faults.duplicated);
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_another() {
    let run = |seed: u32| {
        received(&format!("loss=5%,duplicate=5%,reorder=5%,corrupt=5%,delay=1us..20us,seed={seed}"), 5000).0
    };
    assert!(run(7) == run(7));
    assert!(run(7) != run(8));
    let run = |seed: u32| {
        sent(&format!("loss=5%,duplicate=5%,reorder=5%,corrupt=5%,delay=1us..20us,seed={seed}"), 5000)
    };
    assert!(run(7) == run(7));
    assert!(run(7) != run(8));
}

#[test]
fn reordering_loses_nothing_and_moves_frames_a_little() {
    for arrived in [received("reorder=10%", 10_000).0, sent("reorder=10%", 10_000)] {
        let numbers: Vec<u32> = arrived.iter().map(|frame| number(frame)).collect();
        let mut sorted = numbers.clone();
        sorted.sort_unstable();
        assert!(sorted.iter().copied().eq(0..10_000), "each once");
        let displaced = (0..).zip(&numbers).map(|(place, &number)| i64::from(place) - i64::from(number));
        let late = displaced.clone().max().expect("frames");
        assert!((1..=16).contains(&late), "{late}");
        assert!(!numbers.is_sorted());
    }
}

#[test]
fn corruption_flips_one_bit() {
    let (arrived, port) = received("corrupt=100%", 1000);
    assert_eq!(port.rx_faults().corrupted, 1000);
    for (place, bytes) in (0..).zip(&arrived) {
        let flipped: u32 = frame(place).iter().zip(bytes).map(|(a, b)| (a ^ b).count_ones()).sum();
        assert_eq!(flipped, 1);
    }
}

#[test]
fn delay_keeps_order_and_its_bounds() {
    let (mut a, mut b) = link("delay=100us..2ms");
    let mut arrivals: Vec<(u32, u64)> = Vec::new();
    for now_us in 0..13_000_u64 {
        if now_us < 10_000 && now_us % 10 == 0 {
            let number = now_us as u32 / 10;
            assert_eq!(a.send(&TO_B, &[&frame(number)]), 1);
        }
        b.tick(now_us * 1000);
        b.receive(&mut |_, frame| arrivals.push((number(frame), now_us)));
    }
    assert!(arrivals.iter().map(|&(number, _)| number).eq(0..1000));
    assert!(arrivals.iter().all(|&(number, at_us)| (100..=2000).contains(&(at_us - u64::from(number) * 10))));
    assert_eq!(b.poll_at(), None);
}

#[test]
fn a_lonely_frame_set_aside_comes_within_a_millisecond() {
    let (mut a, mut b) = link("reorder=100%");
    assert_eq!(a.send(&TO_B, &[&frame(1)]), 1);
    b.tick(5_000_000);
    b.receive(&mut |_, _| panic!("it was to be set aside"));
    assert_eq!(b.poll_at(), Some(6_000_000));
    b.tick(6_000_000);
    assert_eq!(b.receive(&mut |_, bytes| assert_eq!(bytes, frame(1))), 1);
}

#[test]
fn one_way_leaves_the_other_alone() {
    let (mut a, mut b) = link("loss=100%,way=tx");
    assert_eq!(b.send(&Address::Memory(0), &[&frame(0)]), 1);
    assert_eq!(a.receive(&mut |_, _| panic!("it was to be lost")), 0);
    assert_eq!(a.send(&TO_B, &[&frame(0)]), 1);
    assert_eq!(b.receive(&mut |_, _| {}), 1);
    assert_eq!((b.tx_faults().lost, b.rx_faults().frames), (1, 0));
}

#[test]
fn a_full_pool_holds_up_the_sender_and_loses_for_the_receiver() {
    let (mut a, mut b) = link("delay=1ms,pool=10");
    let frames: Vec<Vec<u8>> = (0..20).map(frame).collect();
    let slices: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
    // One place is kept free for the duplicate that any frame may get.
    assert_eq!(b.send(&Address::Memory(0), &slices), 9);
    assert_eq!(a.send(&TO_B, &slices), 20);
    assert_eq!(b.receive(&mut |_, _| panic!("all are late")), 20);
    assert_eq!(b.rx_faults().overflowed, 10);
    b.tick(1_000_000);
    assert_eq!(a.receive(&mut |_, _| {}), 9);
    assert_eq!(b.receive(&mut |_, _| {}), 10);
    assert_eq!(b.send(&Address::Memory(0), &slices), 9);
}

#[test]
fn frames_the_port_has_no_room_for_are_neither_lost_nor_reordered() {
    let hub = Hub::new(HubConfig { max_frame_bytes: 1500, queue_frames: 16, ..HubConfig::default() });
    let mut b = hub.open(0).expect("port 0");
    let impairment = "duplicate=20%,reorder=0%,seed=5".parse().expect("an impairment");
    let mut a = Impaired::new(hub.open(1).expect("port 1"), &impairment);
    let (mut next, mut arrived) = (0_u32, Vec::new());
    for now_ns in 0..2000 {
        a.tick(now_ns);
        let frames: Vec<Vec<u8>> = (next..next + 40).map(frame).collect();
        let slices: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
        next += a.send(&Address::Memory(0), &slices) as u32;
        if now_ns % 3 == 0 {
            b.receive(&mut |_, frame| arrived.push(number(frame)));
        }
    }
    for now_ns in 2000..4000 {
        a.tick(now_ns);
        b.receive(&mut |_, frame| arrived.push(number(frame)));
    }
    assert!(arrived.is_sorted());
    arrived.dedup();
    assert!(arrived.iter().copied().eq(0..next), "{} of {next}", arrived.len());
}
