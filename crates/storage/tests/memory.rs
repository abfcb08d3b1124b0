//! The medium in memory forgets exactly what a real one may forget.

use etherslot_storage::memory::{Disk, FaultOn, Latency, MemoryMedium, Options};
use etherslot_storage::{Buf, Done, Medium, MediumError, Op, Request};
use proptest::prelude::*;

fn request(token: u64, op: Op, offset: u64, bytes: u64, buf: Option<Buf>) -> Request {
    Request { token, op, offset, bytes, buf, buf_offset: 0 }
}

fn one(medium: &mut MemoryMedium, request: Request) -> Done {
    medium.submit(0, request).unwrap();
    let mut done = None;
    medium.poll(u64::MAX, &mut |one| done = Some(one));
    done.unwrap()
}

fn write(medium: &mut MemoryMedium, block: u64, value: u8, durable: bool) {
    let done =
        one(medium, request(0, Op::Write { durable }, block * 512, 512, Some(Buf::from(&[value; 512][..]))));
    assert_eq!(done.result, Ok(()));
}

fn block(disk: &Disk, block: u64) -> u8 {
    let mut data = [0; 512];
    disk.peek(block * 512, &mut data);
    assert!(data.iter().all(|byte| *byte == data[0]), "a block is torn");
    data[0]
}

#[test]
fn things_take_their_time_and_the_deadline_says_when() {
    let latency = Latency { read_ns: 100, write_ns: 50, flush_ns: 1000, jitter_ns: 0 };
    let mut medium = Disk::new(Options { latency, ..Options::default() }).medium();
    medium.submit(0, request(1, Op::Read, 0, 512, Some(Buf::new(512)))).unwrap();
    medium.submit(0, request(2, Op::Write { durable: true }, 0, 512, Some(Buf::new(512)))).unwrap();
    medium.submit(0, request(3, Op::Write { durable: false }, 0, 512, Some(Buf::new(512)))).unwrap();
    let mut order = Vec::new();
    while let Some(at) = medium.deadline_ns() {
        assert!(!medium.poll(at - 1, &mut |_| ()));
        medium.poll(at, &mut |done| order.push((at, done.token)));
    }
    assert_eq!(order, [(50, 3), (100, 1), (1050, 2)]);
}

#[test]
fn a_crash_takes_some_of_what_was_not_flushed_and_nothing_else() {
    let (mut kept, mut lost) = (0, 0);
    for seed in 0..20 {
        let disk = Disk::new(Options { seed, ..Options::default() });
        let mut medium = disk.medium();
        for at in 0..8 {
            write(&mut medium, at, 1, false);
        }
        one(&mut medium, request(0, Op::Flush, 0, 0, None));
        assert_eq!(disk.unflushed_blocks(), 0);
        for at in 4..12 {
            write(&mut medium, at, 2, at == 11);
        }
        disk.crash();
        assert!((0..4).all(|at| block(&disk, at) == 1));
        assert_eq!(block(&disk, 11), 2);
        for at in 4..11 {
            match (block(&disk, at), at) {
                (2, _) => kept += 1,
                (1, 4..8) | (0, 8..11) => lost += 1,
                (other, _) => panic!("block {at} holds {other}"),
            }
        }
    }
    assert!(kept > 20 && lost > 20, "{kept} kept, {lost} lost");
}

#[test]
fn a_flush_covers_what_was_done_before_it_was_submitted_only() {
    let latency = Latency { flush_ns: 1000, ..Latency::default() };
    let survivors: Vec<u8> = (0..32)
        .map(|seed| {
            let disk = Disk::new(Options { latency, seed, ..Options::default() });
            let mut medium = disk.medium();
            let data = |value: u8| Some(Buf::from(&[value; 512][..]));
            medium.submit(0, request(0, Op::Write { durable: false }, 0, 512, data(1))).unwrap();
            medium.poll(0, &mut |_| ());
            medium.submit(0, request(0, Op::Flush, 0, 0, None)).unwrap();
            medium.submit(0, request(0, Op::Write { durable: false }, 0, 512, data(2))).unwrap();
            medium.poll(0, &mut |_| ());
            medium.poll(1000, &mut |_| ());
            disk.crash();
            block(&disk, 0)
        })
        .collect();
    assert!(survivors.contains(&1) && survivors.contains(&2) && !survivors.contains(&0));
}

#[test]
fn a_flush_that_ends_late_takes_nothing_back_that_is_durable() {
    let latency = Latency { flush_ns: 1000, ..Latency::default() };
    for seed in 0..32 {
        let disk = Disk::new(Options { latency, seed, ..Options::default() });
        let mut medium = disk.medium();
        let data = |value: u8| Some(Buf::from(&[value; 512][..]));
        let mut at = |now, op, value: u8| {
            medium
                .submit(now, request(0, op, 0, if op == Op::Flush { 0 } else { 512 }, data(value)))
                .unwrap();
            medium.poll(now, &mut |_| ());
        };
        at(0, Op::Write { durable: false }, 1);
        at(0, Op::Flush, 0);
        at(10, Op::Write { durable: false }, 2);
        at(10, Op::Flush, 0);
        at(20, Op::Write { durable: false }, 3);
        at(100, Op::Write { durable: true }, 4);
        // It covers 3, and ends after 4 has become durable.
        at(200, Op::Flush, 0);
        at(1150, Op::Write { durable: false }, 5);
        at(6000, Op::Read, 0);
        disk.crash();
        assert!(matches!(block(&disk, 0), 4 | 5));
    }
}

#[test]
fn faults_hit_their_range_and_kind_as_often_as_told() {
    let disk = Disk::new(Options::default());
    let mut medium = disk.medium();
    disk.fail(FaultOn::Read, 512..1024, MediumError::Failed, 1);
    let mut read =
        |block: u64| one(&mut medium, request(0, Op::Read, block * 512, 512, Some(Buf::new(512)))).result;
    assert_eq!(read(0), Ok(()));
    assert_eq!(read(1), Err(MediumError::Failed));
    assert_eq!(read(1), Ok(()));
    disk.fail(FaultOn::Flush, 0..0, MediumError::Gone, u32::MAX);
    for _ in 0..3 {
        assert_eq!(one(&mut medium, request(0, Op::Flush, 0, 0, None)).result, Err(MediumError::Gone));
    }
    disk.heal();
    assert_eq!(one(&mut medium, request(0, Op::Flush, 0, 0, None)).result, Ok(()));
}

#[test]
fn a_medium_of_an_earlier_life_is_gone() {
    let disk = Disk::new(Options::default());
    let mut old = disk.medium();
    let mut new = disk.medium();
    assert_eq!(
        one(&mut old, request(0, Op::Write { durable: true }, 0, 512, Some(Buf::new(512)))).result,
        Err(MediumError::Gone)
    );
    write(&mut new, 0, 5, true);
    assert_eq!(block(&disk, 0), 5);
}

proptest! {
    #[test]
    fn after_a_crash_every_block_holds_its_flushed_content_or_a_later_one(
        seed in any::<u64>(),
        steps in proptest::collection::vec((0u8..10, 0u64..16), 1..100),
    ) {
        let disk = Disk::new(Options { bytes: 16 * 512, seed, ..Options::default() });
        let mut medium = disk.medium();
        let mut possible = vec![vec![0u8]; 16];
        for (index, (kind, at)) in steps.into_iter().enumerate() {
            let value = index as u8 + 1;
            match kind {
                0 => {
                    one(&mut medium, request(0, Op::Flush, 0, 0, None));
                    for values in &mut possible {
                        *values = vec![*values.last().unwrap()];
                    }
                }
                1 => {
                    write(&mut medium, at, value, true);
                    possible[at as usize] = vec![value];
                }
                2 => {
                    one(&mut medium, request(0, Op::Discard, at * 512, 512, None));
                    possible[at as usize].push(0);
                }
                _ => {
                    write(&mut medium, at, value, false);
                    possible[at as usize].push(value);
                }
            }
        }
        disk.crash();
        for (at, values) in possible.iter().enumerate() {
            prop_assert!(values.contains(&block(&disk, at as u64)));
        }
    }
}
