//! The controller on memory, from which Reads are answered in place.

use crate::harness::*;
use etherslot_devices::nvme::{Config, Namespace};
use etherslot_storage::ram::RamMedium;

fn host(block_bytes: u32) -> Host {
    let medium = RamMedium::new(4 << 20, false).unwrap();
    let namespaces = vec![Namespace::new(Box::new(medium), block_bytes)];
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
