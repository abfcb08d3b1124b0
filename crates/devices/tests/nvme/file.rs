//! The controller on a real file.

use crate::harness::*;
use etherslot_devices::nvme::{Config, Namespace};
use etherslot_storage::file::{FileMedium, Options};
use std::time::{Duration, Instant};

fn settle(host: &mut Host, qid: u16, count: usize) -> Vec<Completion> {
    let end = Instant::now() + Duration::from_secs(20);
    let mut completions = Vec::new();
    while completions.len() < count {
        assert!(Instant::now() < end);
        host.step();
        completions.extend(host.reap(qid));
    }
    completions
}

#[test]
fn blocks_of_either_size_survive_the_controller() {
    for block_bytes in [512u32, 4096] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        let options = Options { create_bytes: Some(16 << 20), block_bytes, depth: 8, ..Options::default() };
        let data = pattern(8 << 20, 5);
        for opcode in [WRITE, READ] {
            let medium = FileMedium::open(&path, &options).unwrap();
            let namespaces = vec![Namespace::new(Box::new(medium), block_bytes)];
            let disk = disk(1 << 20);
            let mut host = Host::new(Config { namespaces, ..config(&disk, 512) });
            assert_eq!(host.nvme.fds().count(), 1);
            host.enable();
            host.create_pair(1, 64);
            let at = host.alloc(data.len());
            if opcode == WRITE {
                host.store(at, &data);
            }
            let bytes = 256 << 10;
            for part in 0..32u64 {
                let address = at + part * bytes;
                let (first, second) = host.prps(address, bytes as usize);
                let blocks = bytes as u32 / block_bytes;
                host.put(1, Entry::blocks(opcode, part * u64::from(blocks), blocks).prps(first, second));
            }
            host.ring(1);
            let completions = settle(&mut host, 1, 32);
            assert!(completions.iter().all(|completion| completion.status == status::SUCCESS));
            host.put(1, Entry::new(FLUSH).nsid(1));
            host.put(1, Entry::blocks(WRITE_ZEROES, 1 << 11, 16));
            host.ring(1);
            assert!(settle(&mut host, 1, 2).iter().all(|completion| completion.status == 0));
            if opcode == READ {
                assert_eq!(host.memory(at, 1 << 20), &data[..1 << 20]);
            }
        }
    }
}

#[test]
fn a_format_erases_the_file_and_a_reset_in_the_middle_of_writes_is_survived() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    let options = Options { create_bytes: Some(4 << 20), ..Options::default() };
    let medium = FileMedium::open(&path, &options).unwrap();
    let disk = disk(1 << 20);
    let namespaces = vec![Namespace::new(Box::new(medium), 512)];
    let mut host = Host::new(Config { namespaces, ..config(&disk, 512) });
    let at = host.alloc(1 << 20);
    host.memory(at, 1 << 20).fill(0x5a);
    let (first, second) = host.prps(at, 1 << 20);
    for _ in 0..10 {
        host.enable();
        let mark = host.free_all();
        host.submit(0, Entry::new(5).prps(0x8000, 0).dword(10, 31 << 16 | 1).dword(11, 1 << 16 | 3));
        assert_eq!(settle(&mut host, 0, 1)[0].status, status::SUCCESS);
        host.submit(0, Entry::new(1).prps(0x9000, 0).dword(10, 31 << 16 | 1).dword(11, 1 << 16 | 1));
        assert_eq!(settle(&mut host, 0, 1)[0].status, status::SUCCESS);
        host.memory(0x8000, 4096).fill(0);
        host.adopt(1, 0x9000, 0x8000, 32);
        for part in 0..8 {
            host.put(1, Entry::blocks(WRITE, part % 4 * 2048, 2048).prps(first, second));
        }
        host.ring(1);
        settle(&mut host, 1, 1);
        host.write32(0x14, 0x0046_0000);
        let end = Instant::now() + Duration::from_secs(20);
        while host.csts() & 1 != 0 {
            assert!(Instant::now() < end);
            host.step();
        }
        host.free_to(mark);
    }
    host.enable();
    host.submit(0, Entry::new(0x80).nsid(1).dword(10, 1 << 9 | 1));
    assert_eq!(settle(&mut host, 0, 1)[0].status, status::SUCCESS);
    drop(host);
    assert!(std::fs::read(&path).unwrap().iter().all(|byte| *byte == 0));
}
