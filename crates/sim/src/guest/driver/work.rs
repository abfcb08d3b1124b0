//! What the driver does with the device: a random mix of commands in bursts, and a look at every block at the end.

use crate::checkers::history::Value;
use crate::guest::bus::Trouble;
use crate::guest::driver::Driver;
use crate::guest::driver::buffer::{Buffer, Way};
use crate::guest::extent::{Busy, Extent, Wanted};
use crate::guest::machine::Purpose;
use crate::guest::memory::PAGE_BYTES;
use crate::guest::nvme::{DEALLOCATE, FUA, Submission, admin, nvm, oncs, status};

const RETRY_NS: u64 = 1_000_000;
/// How often to look for blocks that no command under way touches.
const PICKS: usize = 8;
const SMART_LOG: u32 = 0x02;
const SMART_BYTES: usize = 512;

/// The blocks of a command under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Active {
    pub(super) key: (u16, u16),
    busy: Busy,
}

/// A command of the mix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
    Flush,
    Compare,
    WriteZeroes,
    Deallocate,
    Verify,
}

/// A command, ready to be submitted.
struct Prepared {
    command: Submission,
    buffer: Buffer,
    purpose: Purpose,
    active: Option<(Extent, bool, bool)>,
}

impl Driver {
    /// Does the commands of the plan, as far as they are not done yet.
    pub(super) async fn work(&mut self) -> Result<(), Trouble> {
        while self.commands_left != 0 || !self.active.is_empty() {
            let now_ns = self.cpu.now_ns();
            if self.commands_left != 0 && self.pause_until_ns <= now_ns {
                self.submit_burst().await;
                self.between_commands().await?;
                // The wait for an admin command takes all other ends with it.
                if self.commands_left == 0 && self.active.is_empty() {
                    continue;
                }
            }
            let until_ns = match (self.commands_left, self.pause_until_ns) {
                (0, _) => u64::MAX,
                (_, until_ns) if until_ns > now_ns => until_ns,
                _ => now_ns + RETRY_NS,
            };
            self.wait_for_completions(until_ns).await?;
        }
        Ok(())
    }

    async fn submit_burst(&mut self) {
        while self.commands_left != 0 && self.active.len() < self.plan.depth {
            let rings = self.rings_with_room();
            if rings.is_empty() {
                break;
            }
            let ring = self.random.pick(&rings);
            let Some(prepared) = self.prepare() else { break };
            if self.put_prepared(ring, prepared).is_none() {
                break;
            }
            if self.random.percent(self.plan.doorbell_percent) {
                self.ring_doorbell(ring).await;
            }
            self.cpu.machine(|machine| machine.progress.submitted += 1);
            self.commands_left -= 1;
            self.burst_left -= 1;
            if self.burst_left == 0 {
                self.burst_left = self.random.magnitude(1, u64::from(self.plan.burst)) as u32;
                let pause_ns = self.random.magnitude(self.plan.pause_ns.0, self.plan.pause_ns.1);
                self.pause_until_ns = self.cpu.now_ns() + pause_ns;
                break;
            }
        }
        for ring in 1..self.submissions.len() {
            self.ring_doorbell(ring).await;
        }
    }

    fn put_prepared(&mut self, ring: usize, prepared: Prepared) -> Option<()> {
        let Prepared { command, buffer, purpose, active } = prepared;
        let cid = self.put(ring, command, buffer, purpose)?;
        let key = (self.submissions[ring].id, cid);
        let (extent, writes, exclusive) = active.unwrap_or_default();
        self.active.push(Active { key, busy: Busy { extent, writes, exclusive } });
        Some(())
    }

    /// What a system does beside its I/O.
    async fn between_commands(&mut self) -> Result<(), Trouble> {
        if self.random.percent(self.plan.admin_percent) {
            let words = [(SMART_BYTES as u32 / 4 - 1) << 16 | SMART_LOG, 0, 0, 0, 0, 0];
            let command =
                Submission { opcode: admin::GET_LOG_PAGE, nsid: u32::MAX, words, ..Submission::default() };
            self.admin(command, SMART_BYTES).await?;
        }
        if self.random.percent(self.plan.admin_percent) {
            let words = [crate::guest::nvme::feature::NUMBER_OF_QUEUES, 0, 0, 0, 0, 0];
            self.admin(Submission { opcode: admin::GET_FEATURES, words, ..Submission::default() }, 0).await?;
        }
        // Somebody gives up waiting for a command.
        if !self.active.is_empty() && self.random.percent(self.plan.abort_running_percent) {
            let keys: Vec<_> = self.active.iter().map(|active| active.key).collect();
            let key = self.random.pick(&keys);
            self.abort(key).await;
        }
        // Somebody resets the controller while it is busy.
        if self.random.chance(self.plan.reset_ppm) {
            return Err(Trouble::OnPurpose);
        }
        Ok(())
    }

    /// The next command of the mix; `None` if there is no memory for it now.
    fn prepare(&mut self) -> Option<Prepared> {
        let kinds = [
            (Kind::Read, 40, 0),
            (Kind::Write, 40, 0),
            (Kind::Flush, self.plan.flush_weight, 0),
            (Kind::Compare, 4, oncs::COMPARE),
            (Kind::WriteZeroes, 4, oncs::WRITE_ZEROES),
            (Kind::Deallocate, 3, oncs::DATASET_MANAGEMENT),
            (Kind::Verify, 2, oncs::VERIFY),
        ];
        let offered = kinds.into_iter().filter(|(_, _, needs)| needs & self.optional == *needs);
        let total: u32 = offered.clone().map(|(_, weight, _)| weight).sum();
        let mut drawn = self.random.below(u64::from(total)) as u32;
        let mut kind = Kind::Read;
        for (candidate, weight, _) in offered {
            if drawn < weight {
                kind = candidate;
                break;
            }
            drawn -= weight;
        }
        if kind == Kind::Flush {
            return Some(self.flush());
        }
        let writes = matches!(kind, Kind::Write | Kind::WriteZeroes | Kind::Deallocate);
        let Some(extent) = self.pick_extent(writes, kind == Kind::Compare) else { return Some(self.flush()) };
        match kind {
            Kind::Read => self.read(extent),
            Kind::Write => self.write(extent),
            Kind::Compare => self.compare(extent),
            Kind::WriteZeroes => Some(self.write_zeroes(extent)),
            Kind::Deallocate => self.deallocate(extent),
            Kind::Verify | Kind::Flush => Some(Prepared {
                command: Self::on_blocks(nvm::VERIFY, extent, 0),
                buffer: Buffer::default(),
                purpose: Purpose::Other,
                active: Some((extent, false, false)),
            }),
        }
    }

    fn pick_extent(&mut self, writes: bool, exclusive: bool) -> Option<Extent> {
        let wanted = Wanted { most_bytes: self.most_bytes, writes, exclusive };
        (0..PICKS).find_map(|_| {
            let namespace = self.random.below(self.namespaces.len() as u64) as usize;
            let of = self.namespaces[namespace];
            let busy = self.active.iter().map(|active| active.busy);
            wanted.draw(&mut self.random, &self.plan, (namespace, of), busy)
        })
    }

    fn on_blocks(opcode: u8, extent: Extent, flags: u32) -> Submission {
        let count = (extent.blocks - 1) as u32;
        Submission {
            opcode,
            nsid: extent.namespace as u32 + 1,
            words: [extent.block as u32, (extent.block >> 32) as u32, count | flags, 0, 0, 0],
            ..Submission::default()
        }
    }

    fn bytes(&self, extent: Extent) -> usize {
        extent.blocks as usize * self.namespaces[extent.namespace].block_bytes
    }

    fn flush(&mut self) -> Prepared {
        let namespace = self.random.below(self.namespaces.len() as u64) as usize;
        let begun = self.cpu.machine(|machine| machine.history.borrow_mut().begin_read());
        Prepared {
            command: Submission { opcode: nvm::FLUSH, nsid: namespace as u32 + 1, ..Submission::default() },
            buffer: Buffer::default(),
            purpose: Purpose::Flush { namespace, begun },
            active: None,
        }
    }

    fn read(&mut self, extent: Extent) -> Option<Prepared> {
        let mut command = Self::on_blocks(nvm::READ, extent, 0);
        let buffer = self.buffer(self.bytes(extent), Way::FromDevice, false, &mut command)?;
        let begun = self.cpu.machine(|machine| machine.history.borrow_mut().begin_read());
        let purpose = Purpose::Read { namespace: extent.namespace, block: extent.block, begun };
        Some(Prepared { command, buffer, purpose, active: Some((extent, false, false)) })
    }

    fn write(&mut self, extent: Extent) -> Option<Prepared> {
        let fua = self.random.percent(self.plan.fua_percent);
        let mut command = Self::on_blocks(nvm::WRITE, extent, if fua { FUA } else { 0 });
        let bytes = self.bytes(extent);
        let buffer = self.buffer(bytes, Way::ToDevice, false, &mut command)?;
        let durable = fua || !self.has_cache;
        let write = self.cpu.machine(|machine| machine.begin_write(extent, &buffer.pieces));
        let purpose = Purpose::Write { write, durable, hint: false };
        Some(Prepared { command, buffer, purpose, active: Some((extent, true, false)) })
    }

    fn write_zeroes(&mut self, extent: Extent) -> Prepared {
        let fua = self.random.percent(self.plan.fua_percent);
        let durable = fua || !self.has_cache;
        let write = self.cpu.machine(|machine| {
            machine.history.borrow_mut().begin_write(
                extent.namespace,
                extent.block,
                extent.blocks,
                Value::Zero,
            )
        });
        Prepared {
            command: Self::on_blocks(nvm::WRITE_ZEROES, extent, if fua { FUA } else { 0 }),
            buffer: Buffer::default(),
            purpose: Purpose::Write { write, durable, hint: false },
            active: Some((extent, true, false)),
        }
    }

    /// Dataset Management with the blocks in one range or several.
    fn deallocate(&mut self, extent: Extent) -> Option<Prepared> {
        let ranges = self.random.range(1, extent.blocks.min(4));
        let mut list = Vec::new();
        for range in 0..ranges {
            let from = extent.blocks * range / ranges;
            let to = extent.blocks * (range + 1) / ranges;
            list.extend_from_slice(&[0; 4]);
            list.extend_from_slice(&((to - from) as u32).to_le_bytes());
            list.extend_from_slice(&(extent.block + from).to_le_bytes());
        }
        let mut command = Submission {
            opcode: nvm::DATASET_MANAGEMENT,
            nsid: extent.namespace as u32 + 1,
            words: [ranges as u32 - 1, DEALLOCATE, 0, 0, 0, 0],
            ..Submission::default()
        };
        let buffer = self.buffer(list.len(), Way::ToDevice, true, &mut command)?;
        let write = self.cpu.machine(|machine| {
            machine.memory.scatter(&buffer.pieces, &list);
            machine.history.borrow_mut().begin_write(
                extent.namespace,
                extent.block,
                extent.blocks,
                Value::Zero,
            )
        });
        let purpose = Purpose::Write { write, durable: false, hint: true };
        Some(Prepared { command, buffer, purpose, active: Some((extent, true, false)) })
    }

    /// Compare with what the blocks hold, or with one byte that differs. Where that is not known, a read does.
    fn compare(&mut self, extent: Extent) -> Option<Prepared> {
        let bytes = self.bytes(extent);
        let known: Option<Vec<Value>> = self.cpu.machine(|machine| {
            let history = machine.history.borrow();
            (extent.block..extent.block + extent.blocks)
                .map(|block| history.certain(extent.namespace, block))
                .collect()
        });
        let Some(values) = known else { return self.read(extent) };
        let block_bytes = self.namespaces[extent.namespace].block_bytes;
        let mut data = vec![0; bytes];
        self.cpu.machine(|machine| {
            let history = machine.history.borrow();
            for ((block, value), data) in
                (extent.block..).zip(&values).zip(data.chunks_exact_mut(block_bytes))
            {
                if let Value::Stamp(stamp) = value {
                    history.fill(extent.namespace, block, *stamp, data);
                }
            }
        });
        let differs = self.random.percent(30);
        if differs {
            data[self.random.below(bytes as u64) as usize] ^= 1 << self.random.below(8);
        }
        let mut command = Self::on_blocks(nvm::COMPARE, extent, 0);
        let buffer = self.buffer(bytes, Way::ToDevice, false, &mut command)?;
        self.cpu.machine(|machine| machine.memory.scatter(&buffer.pieces, &data));
        let purpose =
            Purpose::Compare { status: if differs { status::COMPARE_FAILURE } else { status::SUCCESS } };
        Some(Prepared { command, buffer, purpose, active: Some((extent, false, true)) })
    }

    /// Reads every block, several commands at a time.
    pub(super) async fn sweep(&mut self) -> Result<(), Trouble> {
        let mut extents = Vec::new();
        for (namespace, of) in self.namespaces.iter().enumerate() {
            let most = (self.most_bytes.min(16 * PAGE_BYTES) / of.block_bytes).max(1) as u64;
            let mut block = 0;
            while block < of.blocks {
                let blocks = most.min(of.blocks - block);
                extents.push(Extent { namespace, block, blocks });
                block += blocks;
            }
        }
        while !extents.is_empty() || !self.active.is_empty() {
            while self.active.len() < self.plan.depth
                && let Some(&extent) = extents.last()
                && let Some(&ring) = self.rings_with_room().first()
                && let Some(prepared) = self.read(extent)
            {
                if self.put_prepared(ring, prepared).is_none() {
                    break;
                }
                extents.pop();
                self.ring_doorbell(ring).await;
            }
            let until_ns = if extents.is_empty() { u64::MAX } else { self.cpu.now_ns() + RETRY_NS };
            self.wait_for_completions(until_ns).await?;
        }
        Ok(())
    }
}
