//! The controller on memory, from which Reads are answered in place.

use crate::harness::*;
use etherslot_devices::nvme::{Config, Namespace};
use etherslot_storage::Medium;
use etherslot_storage::paced::{Paced, Rate};
use etherslot_storage::ram::RamMedium;
use std::num::NonZeroU64;

fn host(block_bytes: u32) -> Host {
    host_on(Box::new(RamMedium::new(4 << 20, false).unwrap()), block_bytes)
}

fn host_on(medium: Box<dyn Medium>, block_bytes: u32) -> Host {
    let namespaces = vec![Namespace::new(medium, block_bytes)];
    let disk = disk(1 << 20);
    let mut host = Host::new(Config { namespaces, ..config(&disk, 512) });
    host.enable();
    host.create_pair(1, 16);
    host
}

#[test]
fn what_is_written_is_read_back_through_any_shortage_of_room() {
    for (seed, block_bytes) in (0..40).zip([512usize, 4096].into_iter().cycle()) {
        let mut host = host(block_bytes as u32);
        host.random = Random(seed);
        let blocks = 1 + host.random.below((1 << 20) / block_bytes as u64 / 4) as usize;
        let data = pattern(blocks * block_bytes, seed);
        assert_eq!(host.write_blocks(3, &data, block_bytes), status::SUCCESS);
        let back = host.alloc(data.len() + 4096) + 4 * host.random.below(1024);
        let (first, second) = host.prps(back, data.len());
        host.submit(1, Entry::blocks(READ, 3, blocks as u32).prps(first, second));
        let mut completions = Vec::new();
        for _ in 0..100_000 {
            host.bus.write_room = host.random.below(9000) as usize;
            host.bus.read_room = host.random.below(700) as usize;
            host.step();
            completions.extend(host.reap(1));
            if !completions.is_empty() {
                break;
            }
        }
        assert_eq!(completions[0].status, status::SUCCESS);
        assert!(host.memory(back, data.len()) == data, "seed {seed}");
    }
}

#[test]
fn a_medium_with_a_rate_is_read_and_written_in_place_and_in_its_time() {
    const BYTES: usize = 256 << 10;
    let rate = Rate::new(NonZeroU64::new(BYTES as u64 * 1000).unwrap());
    let medium = Paced::new(Box::new(RamMedium::new(4 << 20, false).unwrap()), rate);
    let mut host = host_on(Box::new(medium), 4096);
    let data = pattern(BYTES, 1);
    let mut last_ns = host.bus.now_ns;
    let mut took_its_time = |host: &Host| {
        let span_ns = host.bus.now_ns - std::mem::replace(&mut last_ns, host.bus.now_ns);
        assert!((1_000_000..1_100_000).contains(&span_ns), "{span_ns}");
    };
    assert_eq!(host.write_blocks(3, &data, 4096), status::SUCCESS);
    took_its_time(&host);
    let back = host.alloc(BYTES);
    let (first, second) = host.prps(back, BYTES);
    assert_eq!(host.io(Entry::blocks(READ, 3, (BYTES / 4096) as u32).prps(first, second)), status::SUCCESS);
    took_its_time(&host);
    assert!(host.memory(back, BYTES) == data);
    // A reset ends what waits for its time.
    host.submit(1, Entry::blocks(READ, 3, (BYTES / 4096) as u32).prps(first, second));
    host.steps(3);
    host.disable();
    host.enable();
    host.create_pair(1, 16);
    assert_eq!(host.io(Entry::blocks(READ, 3, (BYTES / 4096) as u32).prps(first, second)), status::SUCCESS);
}

#[test]
fn a_block_is_read_as_it_was_or_as_it_is_though_it_is_written_while_it_goes_out() {
    for (seed, block_bytes) in (0..200).zip([512usize, 4096].into_iter().cycle()) {
        let mut host = host(block_bytes as u32);
        host.random = Random(seed);
        let blocks = 24;
        let [old, new] = [1, 2].map(|fill| vec![fill; blocks * block_bytes]);
        assert_eq!(host.write_blocks(0, &old, block_bytes), status::SUCCESS);
        let back = host.alloc(old.len() + 4096) + 4 * host.random.below(1024);
        let from = host.alloc(new.len());
        host.store(from, &new);
        let (first, second) = host.prps(back, old.len());
        host.submit(1, Entry::blocks(READ, 0, blocks as u32).prps(first, second));
        let (first, second) = host.prps(from, new.len());
        let write_at = host.random.below(60);
        let mut completed = 0;
        for step in 0..100_000 {
            if step == write_at {
                host.submit(1, Entry::blocks(WRITE, 0, blocks as u32).prps(first, second));
            }
            host.bus.write_room = host.random.below(1500) as usize;
            host.step();
            completed += host.reap(1).len();
            if completed == 2 {
                break;
            }
        }
        assert_eq!(completed, 2, "seed {seed}");
        for (at, block) in host.memory(back, old.len()).chunks(block_bytes).enumerate() {
            assert!(block.iter().all(|&byte| byte == block[0]), "seed {seed}: block {at} is of two minds");
        }
    }
}

/// A host whose memory has `old` on blocks 0 and up, and the command that writes `new` there, from a place of any alignment.
fn overwriting(seed: u64, block_bytes: usize, blocks: usize) -> (Host, Entry) {
    let mut host = host(block_bytes as u32);
    host.random = Random(seed);
    let [old, new] = [1, 2].map(|fill| vec![fill; blocks * block_bytes]);
    assert_eq!(host.write_blocks(0, &old, block_bytes), status::SUCCESS);
    let from = host.alloc(new.len() + 4096) + 4 * host.random.below(1024);
    host.store(from, &new);
    let (first, second) = host.prps(from, new.len());
    (host, Entry::blocks(WRITE, 0, blocks as u32).prps(first, second))
}

/// The blocks as a Read finds them; each is whole.
fn fills(host: &mut Host, block_bytes: usize, blocks: usize) -> Vec<u8> {
    let back = host.alloc(blocks * block_bytes);
    let (first, second) = host.prps(back, blocks * block_bytes);
    assert_eq!(host.io(Entry::blocks(READ, 0, blocks as u32).prps(first, second)), status::SUCCESS);
    let memory = host.memory(back, blocks * block_bytes).to_vec();
    let whole = |block: &[u8]| block.iter().all(|&byte| byte == block[0]).then_some(block[0]);
    memory.chunks(block_bytes).map(|block| whole(block).expect("a block is whole")).collect()
}

#[test]
fn a_write_lands_block_by_block_in_whatever_pieces_its_data_come() {
    const BLOCKS: usize = 24;
    for (seed, block_bytes) in (0..200).zip([512usize, 4096].into_iter().cycle()) {
        let (mut host, write) = overwriting(seed, block_bytes, BLOCKS);
        host.shuffle = seed % 3 == 0;
        let backs: Vec<u64> = (0..8).map(|_| host.alloc(BLOCKS * block_bytes)).collect();
        let reads: Vec<Entry> = backs
            .iter()
            .map(|&back| {
                let (first, second) = host.prps(back, BLOCKS * block_bytes);
                Entry::blocks(READ, 0, BLOCKS as u32).prps(first, second)
            })
            .collect();
        host.submit(1, write);
        let (mut reads, mut completed, mut seen) = (reads.into_iter(), 0, Vec::new());
        for _ in 0..100_000 {
            host.bus.piece = 4 + host.random.below(6000) as usize;
            host.bus.read_room = host.random.below(9000) as usize;
            host.bus.write_room = host.random.below(20_000) as usize;
            if host.random.below(3) == 0 {
                reads.next().map(|read| host.submit(1, read));
            }
            host.step();
            let ended = host.reap(1);
            assert!(ended.iter().all(|one| one.status == status::SUCCESS), "seed {seed}");
            completed += ended.len();
            if completed == 1 + backs.len() {
                break;
            }
        }
        assert_eq!(completed, 1 + backs.len(), "seed {seed}");
        for &back in &backs {
            for (at, block) in host.memory(back, BLOCKS * block_bytes).chunks(block_bytes).enumerate() {
                assert!(
                    block.iter().all(|&byte| byte == block[0]),
                    "seed {seed}: block {at} is of two minds"
                );
                seen.push(block[0]);
            }
        }
        assert!(seen.iter().all(|fill| [1, 2].contains(fill)));
        (host.bus.write_room, host.bus.read_room) = (usize::MAX, usize::MAX);
        assert_eq!(fills(&mut host, block_bytes, BLOCKS), [2; BLOCKS], "seed {seed}");
    }
}

#[test]
fn nothing_of_a_write_lands_behind_a_reset() {
    const BLOCKS: usize = 24;
    let mut parts = 0;
    for (seed, block_bytes) in (0..60).zip([512usize, 4096].into_iter().cycle()) {
        let (mut host, write) = overwriting(seed, block_bytes, BLOCKS);
        host.submit(1, write);
        host.bus.piece = 1000;
        for _ in 0..host.random.below(12) {
            host.bus.read_room = 3000;
            host.step();
        }
        // What was asked for goes on coming while the controller stops.
        let held = host.pending_reads();
        host.bus.read_room = usize::MAX;
        host.write32(0x14, 0x0046_0000);
        host.bus.hold_reads = true;
        host.steps(3);
        let is_stopped = host.csts() & 1 == 0;
        assert_eq!(is_stopped, held == 0, "seed {seed}: ready until the last read has come");
        host.bus.hold_reads = false;
        host.disable();
        host.enable();
        host.create_pair(1, 16);
        let first = fills(&mut host, block_bytes, BLOCKS);
        parts += usize::from(first.contains(&1) && first.contains(&2));
        // The slot of the Write serves others; none of its data is left anywhere.
        let data = pattern(block_bytes, seed);
        assert_eq!(host.write_blocks(BLOCKS as u64, &data, block_bytes), status::SUCCESS);
        assert_eq!(fills(&mut host, block_bytes, BLOCKS), first, "seed {seed}");
    }
    assert!(parts > 5, "some resets come in the middle of a Write, not {parts}");
}

#[test]
fn a_write_whose_data_can_not_be_read_fails_and_leaves_whole_blocks() {
    const BLOCKS: usize = 24;
    for (seed, block_bytes) in (0..40).zip([512usize, 4096].into_iter().cycle()) {
        let (mut host, _) = overwriting(seed, block_bytes, BLOCKS);
        host.bus.piece = 4 + host.random.below(3000) as usize;
        let from = host.alloc(4096);
        host.memory(from, 4096).fill(2);
        // A page that is there, one that is none, and so on.
        let list = host.alloc(4096);
        let pages: Vec<u64> = (1..=BLOCKS * block_bytes / 4096)
            .map(|page| if page as u64 % 2 == seed % 4 / 2 { MEMORY_BYTES as u64 + 4096 } else { from })
            .collect();
        host.store64(list, &pages);
        let second = if pages.len() == 1 { pages[0] } else { list };
        let write = Entry::blocks(WRITE, 0, BLOCKS as u32).prps(from, second);
        assert_eq!(host.io(write), status::DATA_TRANSFER_ERROR, "seed {seed}");
        assert!(fills(&mut host, block_bytes, BLOCKS).contains(&1), "seed {seed}");
    }
}
