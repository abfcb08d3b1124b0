//! Random commands against a model of what a drive may and may not forget.
//!
//! The model knows, for every block, which contents a reader may see (one, once no write is under way) and which a crash may leave.
//! Acknowledged Flushes and FUA writes narrow the latter down.

use crate::harness::*;
use etherslot_devices::nvme::Config;
use etherslot_storage::memory::{Disk, Latency, Options};
use std::collections::BTreeMap;

const BLOCKS: u64 = 256;

/// Marks the number of a write of zeros.
const ZEROS: u32 = 1 << 31;

/// What is known of one block; contents are told apart by the number of the write that made them.
#[derive(Clone, Debug)]
struct Block {
    /// The last that was acknowledged.
    acknowledged: u32,
    /// All that has been written since the last content that is known to be durable, that one first.
    possible: Vec<u32>,
}

#[derive(Clone, Debug)]
enum Pending {
    Write { slba: u64, blocks: u64, number: u32, durable: bool },
    Read { slba: u64, blocks: u64, at: u64, expected: Vec<u32> },
    Flush { covered: Vec<u32> },
}

fn content(number: u32, block: u64) -> [u8; 512] {
    let mut data = [0; 512];
    if number & ZEROS == 0 {
        data.copy_from_slice(&pattern(512, u64::from(number) << 16 | block));
    }
    data
}

struct Soak {
    host: Host,
    disk: Disk,
    blocks: Vec<Block>,
    pending: BTreeMap<u16, Pending>,
    /// Blocks that a command under way touches: no other may, since the order would be undefined.
    busy: Vec<bool>,
    number: u32,
    mark: u64,
}

impl Soak {
    fn new(seed: u64) -> Self {
        let latency = Latency { read_ns: 3_000, write_ns: 5_000, flush_ns: 20_000, jitter_ns: 15_000 };
        let options = Options { bytes: BLOCKS * 512, latency, seed, depth: 6, ..Options::default() };
        let disk = Disk::new(options);
        let mut soak = Self {
            host: Host::new(Self::config(&disk)),
            disk,
            blocks: vec![Block { acknowledged: ZEROS, possible: vec![ZEROS] }; BLOCKS as usize],
            pending: BTreeMap::new(),
            busy: vec![false; BLOCKS as usize],
            number: 0,
            mark: 0,
        };
        soak.host.random = Random(seed);
        soak.host.shuffle = true;
        soak.begin();
        soak
    }

    fn config(disk: &Disk) -> Config {
        Config {
            large_buffers: 2,
            small_buffers: 3,
            commands: 16,
            small_buffer_bytes: 4096,
            ..config(disk, 512)
        }
    }

    fn begin(&mut self) {
        self.host.enable();
        self.host.create_pair(1, 32);
        self.host.create_pair(2, 5);
        self.mark = self.host.free_all();
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.host.random.below(limit)
    }

    /// A range nobody uses.
    fn range(&mut self) -> Option<(u64, u64)> {
        let blocks = [1, 8, 9, 24][self.below(4) as usize];
        let slba = self.below(BLOCKS - blocks + 1);
        let range = slba as usize..(slba + blocks) as usize;
        if self.busy[range.clone()].contains(&true) {
            return None;
        }
        self.busy[range].fill(true);
        Some((slba, blocks))
    }

    fn submit(&mut self) {
        if self.pending.is_empty() {
            let mark = self.mark;
            self.host.free_to(mark);
        }
        let qid = 1 + self.below(2) as u16;
        let in_queue = self.pending.keys().filter(|key| *key >> 15 == qid - 1).count();
        if in_queue >= 4 {
            return;
        }
        let (entry, pending) = match self.below(10) {
            0 => {
                let covered = self.blocks.iter().map(|block| block.acknowledged).collect();
                (Entry::new(FLUSH).nsid(1), Pending::Flush { covered })
            }
            1..5 => {
                let Some((slba, blocks)) = self.range() else { return };
                let (entry, at) = self.entry(READ, slba, blocks);
                let expected = (slba..slba + blocks)
                    .map(|block| *self.blocks[block as usize].possible.last().unwrap())
                    .collect();
                (entry, Pending::Read { slba, blocks, at, expected })
            }
            kind => {
                let Some((slba, blocks)) = self.range() else { return };
                self.number += 1;
                let durable = kind == 5;
                let (entry, number) = if kind == 6 {
                    let entry = Entry::blocks(WRITE_ZEROES, slba, blocks as u32);
                    (entry.dword(12, (blocks as u32 - 1) | (self.number & 1) << 25), self.number | ZEROS)
                } else {
                    let (entry, at) = self.entry(WRITE, slba, blocks);
                    for block in 0..blocks {
                        self.host.store(at + block * 512, &content(self.number, slba + block));
                    }
                    (entry.dword(12, (blocks as u32 - 1) | u32::from(durable) << 30), self.number)
                };
                // From now on a crash may leave it.
                for block in slba..slba + blocks {
                    self.blocks[block as usize].possible.push(number);
                }
                (entry, Pending::Write { slba, blocks, number, durable })
            }
        };
        let cid = self.host.submit(qid, entry);
        self.pending.insert(cid | (qid - 1) << 15, pending);
    }

    fn entry(&mut self, opcode: u8, slba: u64, blocks: u64) -> (Entry, u64) {
        let bytes = blocks as usize * 512;
        let at = self.host.alloc(bytes + 4096) + self.below(1024) * 4;
        if self.below(3) == 0 {
            let entry = Entry::blocks(opcode, slba, blocks as u32).dword(0, u32::from(opcode) | 1 << 14);
            return (entry.qword(6, at).qword(8, bytes as u64), at);
        }
        let (first, second) = self.host.prps(at, bytes);
        (Entry::blocks(opcode, slba, blocks as u32).prps(first, second), at)
    }

    fn reap(&mut self) {
        for qid in [1, 2u16] {
            for completion in self.host.reap(qid) {
                assert_eq!(completion.status, status::SUCCESS);
                let key = completion.cid | (qid - 1) << 15;
                let pending = self.pending.remove(&key).expect("one completion a command");
                self.ended(pending);
            }
        }
    }

    fn ended(&mut self, pending: Pending) {
        match pending {
            Pending::Write { slba, blocks, number, durable } => {
                for block in slba..slba + blocks {
                    self.busy[block as usize] = false;
                    self.blocks[block as usize].acknowledged = number;
                    if durable {
                        self.blocks[block as usize].possible = vec![number];
                    }
                }
            }
            Pending::Read { slba, blocks, at, expected } => {
                for (block, number) in (0..blocks).zip(expected) {
                    let data = self.host.memory(at + block * 512, 512);
                    assert!(data == content(number, slba + block), "block {} reads wrong", slba + block);
                    self.busy[(slba + block) as usize] = false;
                }
            }
            Pending::Flush { covered } => {
                // What was acknowledged before the Flush was submitted is durable, or what came after it.
                for (block, flushed) in self.blocks.iter_mut().zip(covered) {
                    if let Some(at) = block.possible.iter().rposition(|number| *number == flushed) {
                        block.possible.drain(..at);
                    }
                }
            }
        }
    }

    fn step(&mut self) {
        self.host.bus.write_room = [usize::MAX, 700, 0][self.below(3) as usize];
        self.host.bus.read_room = [usize::MAX, 300, 0][self.below(3) as usize];
        self.host.bus.hold_reads = self.below(4) == 0;
        self.host.step();
        self.host.bus.now_ns += self.below(2_000);
        self.reap();
    }

    /// What is there now is known again: what each block holds is all it can hold.
    fn look(&mut self) {
        for at in 0..BLOCKS {
            let mut data = [0; 512];
            self.disk.peek(at * 512, &mut data);
            let block = &mut self.blocks[at as usize];
            let found = block.possible.iter().copied().find(|number| data == content(*number, at));
            let found = found.unwrap_or_else(|| panic!("block {at} holds none of {:?}", block.possible));
            (block.acknowledged, block.possible) = (found, vec![found]);
        }
    }

    fn crash(&mut self) {
        self.disk.crash();
        self.host.nvme = etherslot_devices::nvme::Nvme::new(Self::config(&self.disk)).unwrap();
        self.host.function_reset(etherslot_pci::function::ResetKind::Conventional);
        self.forget();
    }

    fn reset(&mut self) {
        self.host.write32(0x14, 0x0046_0000);
        self.forget();
    }

    /// Commands under way are done, or not.
    fn forget(&mut self) {
        self.pending.clear();
        self.busy.fill(false);
        let bus = &mut self.host.bus;
        (bus.write_room, bus.read_room, bus.hold_reads) = (usize::MAX, usize::MAX, false);
        self.host.free_to(0x10_0000);
        self.host.run();
        self.begin();
        self.crash_is_settled();
    }

    /// After a reset the cache is still volatile: what a reader sees is known, what a crash leaves is not.
    fn crash_is_settled(&mut self) {
        for at in 0..BLOCKS {
            let mut data = [0; 512];
            self.disk.peek(at * 512, &mut data);
            let block = &mut self.blocks[at as usize];
            let found = block.possible.iter().copied().rev().find(|number| data == content(*number, at));
            let found = found.unwrap_or_else(|| panic!("block {at} holds none of {:?}", block.possible));
            block.acknowledged = found;
            block.possible.push(found);
        }
    }
}

#[test]
fn everything_acknowledged_by_flush_or_fua_survives_and_everything_reads_as_written() {
    for seed in 0..60 {
        let mut soak = Soak::new(seed);
        for round in 0..600u64 {
            soak.submit();
            for _ in 0..soak.below(6) {
                soak.step();
            }
            if round % 100 == 99 {
                match soak.below(3) {
                    0 => soak.reset(),
                    1 => {
                        soak.crash();
                        soak.look();
                    }
                    _ => {}
                }
            }
        }
        let bus = &mut soak.host.bus;
        (bus.write_room, bus.read_room, bus.hold_reads) = (usize::MAX, usize::MAX, false);
        soak.host.run();
        soak.reap();
        assert!(soak.pending.is_empty(), "seed {seed}: {:?}", soak.pending);
    }
}
