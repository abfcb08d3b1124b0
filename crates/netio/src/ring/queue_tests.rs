//! Honest sides hand over every frame; a hostile one does no harm. Without a kernel, so that Miri can watch:
//! `MIRIFLAGS=-Zmiri-disable-isolation cargo +nightly miri test -p etherslot-netio ring::queue`.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use proptest::prelude::*;

use super::super::region::HEADER_BYTES;
use super::*;

/// The smallest that holds the largest frame.
const RING_BYTES: usize = 16 << 10;
const CASES: u32 = if cfg!(miri) { 16 } else { 256 };
const ACTS: usize = if cfg!(miri) { 30 } else { 300 };

fn ring() -> (Producer, Consumer, Arc<[AtomicU64]>) {
    let ([a, b], words) = Region::plain(RING_BYTES);
    (Producer::new(a), Consumer::new(b), words)
}

fn frame(number: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 31 + number) as u8).collect()
}

/// What one of the sides does, or someone who writes to the shared memory.
#[derive(Clone, Debug)]
enum Act {
    Push(usize),
    ShowWritten,
    WaitForRoom,
    Pop,
    ShowRead,
    Sleep,
    Wake,
    Leave,
    Write(usize, u64),
}

fn honest() -> impl Strategy<Value = Act> {
    prop_oneof![
        8 => prop_oneof![0..200_usize, Just(0), Just(MAX_FRAME_BYTES), 0..=MAX_FRAME_BYTES].prop_map(Act::Push),
        4 => Just(Act::ShowWritten),
        8 => Just(Act::Pop),
        4 => Just(Act::ShowRead),
        1 => Just(Act::WaitForRoom),
        1 => Just(Act::Sleep),
        1 => Just(Act::Wake),
    ]
}

/// Any word, the header's more often; any value, plausible ones more often.
fn write() -> impl Strategy<Value = Act> {
    let words = (HEADER_BYTES + RING_BYTES) / 8;
    let place = prop_oneof![
        prop::sample::select(vec![Word::Head, Word::Tail, Word::Awake, Word::WantsRoom])
            .prop_map(|word| word as usize),
        0..words,
        HEADER_BYTES / 8..HEADER_BYTES / 8 + 64,
    ];
    let value = prop_oneof![
        any::<u64>(),
        0..4_u64,
        (0..2 * RING_BYTES as u64 / 8).prop_map(|word| word * 8),
        0..2 * RING_BYTES as u64,
        (0..64_u64).prop_map(|less| 0_u64.wrapping_sub(less)),
        Just(MAX_FRAME_BYTES as u64 + 1),
    ];
    (place, value).prop_map(|(place, value)| Act::Write(place, value))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_pushed_and_shown_is_popped_in_order(acts in prop::collection::vec(honest(), 1..ACTS)) {
        let (mut producer, mut consumer, _) = ring();
        let (mut written, mut shown, mut read) = (Vec::new(), 0, 0);
        let mut buffer = [0; MAX_FRAME_BYTES];
        for act in acts {
            match act {
                Act::Push(bytes) => {
                    let frame = frame(written.len(), bytes);
                    if producer.push(&frame).expect("an honest consumer") {
                        written.push(frame);
                    }
                }
                Act::ShowWritten => {
                    producer.show();
                    shown = written.len();
                }
                Act::Pop => {
                    if let Some(bytes) = consumer.pop(&mut buffer).expect("an honest producer") {
                        prop_assert!(read < shown);
                        prop_assert!(written[read] == buffer[..bytes]);
                        read += 1;
                    } else {
                        prop_assert_eq!(read, shown);
                    }
                }
                Act::ShowRead => {
                    consumer.show();
                }
                Act::Sleep => {
                    prop_assert_eq!(consumer.sleep().expect("an honest producer"), read == shown);
                }
                Act::WaitForRoom => {
                    producer.wait_for_room().expect("an honest consumer");
                }
                _ => consumer.wake(),
            }
        }
    }

    #[test]
    fn a_hostile_peer_is_cut_off_or_harms_only_its_own_frames(
        acts in prop::collection::vec(prop_oneof![2 => honest(), 1 => write(), 1 => Just(Act::Leave)], 1..ACTS)
    ) {
        let (mut producer, mut consumer, words) = ring();
        let mut buffer = [0; MAX_FRAME_BYTES];
        let mut gone = false;
        for act in acts {
            // Who reports a violation is used no more, as in the Port; here the other side goes on to the same end.
            let result = match act {
                Act::Push(bytes) => producer.push(&buffer[..bytes]).map(drop),
                Act::ShowWritten => { producer.show(); Ok(()) }
                Act::WaitForRoom => producer.wait_for_room().map(drop),
                Act::Pop => consumer.pop(&mut buffer).map(|bytes| assert!(bytes <= Some(MAX_FRAME_BYTES))),
                Act::ShowRead => { consumer.show(); Ok(()) }
                Act::Sleep => consumer.sleep().map(drop),
                Act::Wake => { consumer.wake(); Ok(()) }
                Act::Leave => { gone = true; consumer.producer_is_gone() }
                Act::Write(place, value) => { words[place].store(value, Ordering::Relaxed); Ok(()) }
            };
            if result.is_err() {
                return Ok(());
            }
            prop_assert!(consumer.head - consumer.tail <= RING_BYTES as u64);
            prop_assert!(producer.head - producer.tail <= RING_BYTES as u64);
            prop_assert!(!consumer.is_over() || gone);
        }
    }
}

/// Words that a third thread spoils at any time, while both sides work: no panic, and under Miri no data race.
#[test]
fn memory_that_is_spoiled_meanwhile_does_no_harm() {
    const TURNS: usize = if cfg!(miri) { 40 } else { 20_000 };
    let (mut producer, mut consumer, words) = ring();
    let spoil = std::thread::spawn(move || {
        let mut random = 1_u64;
        for _ in 0..TURNS {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // Descriptors and payloads alone: a header that is spoiled ends the rings at once.
            let place = HEADER_BYTES / 8 + (random >> 33) as usize % (RING_BYTES / 8);
            words[place].store(random >> 52, Ordering::Relaxed);
        }
    });
    let write = std::thread::spawn(move || {
        for number in 0..TURNS {
            if producer.push(&frame(number, number % 700)).expect("positions are whole") {
                producer.show();
            }
        }
    });
    let mut buffer = [0; MAX_FRAME_BYTES];
    for _ in 0..TURNS {
        if consumer.pop(&mut buffer).is_err() {
            break;
        }
        consumer.show();
    }
    write.join().expect("the producer");
    spoil.join().expect("the spoiler");
}

#[test]
fn two_threads_hand_over_every_frame() {
    const FRAMES: usize = if cfg!(miri) { 20 } else { 50_000 };
    let (mut producer, mut consumer, _) = ring();
    let write = std::thread::spawn(move || {
        for number in 0..FRAMES {
            let frame = frame(number, number * 7919 % 1500);
            while !producer.push(&frame).expect("an honest consumer") {
                producer.show();
                std::thread::yield_now();
            }
            if number % 5 == 0 {
                producer.show();
            }
        }
        producer.show();
    });
    let mut buffer = [0; MAX_FRAME_BYTES];
    for number in 0..FRAMES {
        let bytes = loop {
            if let Some(bytes) = consumer.pop(&mut buffer).expect("an honest producer") {
                break bytes;
            }
            consumer.show();
            std::thread::yield_now();
        };
        assert!(buffer[..bytes] == frame(number, number * 7919 % 1500), "frame {number}");
    }
    write.join().expect("the producer");
}

#[test]
fn a_sleeper_is_woken_once_for_frames_and_once_for_room() {
    let (mut producer, mut consumer, _) = ring();
    let mut buffer = [0; MAX_FRAME_BYTES];
    assert_eq!(producer.push(&[1; 64]), Ok(true));
    assert!(!producer.show(), "it polls");
    assert_eq!(consumer.sleep(), Ok(false), "a frame is there");
    consumer.wake();
    assert_eq!(consumer.pop(&mut buffer), Ok(Some(64)));
    assert_eq!(consumer.sleep(), Ok(true));
    assert!(!producer.show(), "nothing to wake for");
    while producer.push(&[1; 1000]) == Ok(true) {}
    assert!(producer.show());
    assert_eq!(producer.push(&[1; 1000]), Ok(false));
    assert_eq!(producer.wait_for_room(), Ok(true));
    assert_eq!(consumer.pop(&mut buffer), Ok(Some(1000)));
    assert!(!consumer.show(), "not enough room yet");
    while consumer.pop(&mut buffer) == Ok(Some(1000)) {}
    assert!(consumer.show());
    assert!(!consumer.show(), "once");
    assert_eq!(producer.wait_for_room(), Ok(false));
}

#[test]
fn frames_before_the_end_of_the_producer_still_count() {
    let (mut producer, mut consumer, words) = ring();
    assert_eq!(producer.push(&[1; 10]), Ok(true));
    producer.show();
    assert_eq!(consumer.producer_is_gone(), Ok(()));
    // Whoever still has the memory can't add to it.
    assert_eq!(producer.push(&[2; 10]), Ok(true));
    producer.show();
    let mut buffer = [0; MAX_FRAME_BYTES];
    assert!(!consumer.is_over());
    assert_eq!(consumer.pop(&mut buffer), Ok(Some(10)));
    assert!(consumer.is_over());
    assert_eq!(consumer.pop(&mut buffer), Ok(None));
    words[Word::Awake as usize].store(awake::GONE, Ordering::Relaxed);
    assert!(producer.consumer_is_gone());
}
