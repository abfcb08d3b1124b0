//! What the driver does with the disks: a random mix of commands, queued ones together and others alone, and a look at every sector at the
//! end.

use super::ata::{Ata, op};
use super::{Driver, PIECES};
use crate::checkers::history::Value;
use crate::guest::bus::Trouble;
use crate::guest::driver::buffer::{Buffer, Way, scattered};
use crate::guest::extent::{Busy, Extent, Wanted};
use crate::guest::machine::Purpose;
use crate::guest::memory::PAGE_BYTES;

const RETRY_NS: u64 = 1_000_000;
/// How often to look for blocks that no command under way touches, and for a port that takes a command.
const PICKS: usize = 8;
/// Sectors of a command of 28 bits.
const SHORT: u64 = 256;
/// Bytes of a page of ranges for TRIM.
const RANGES_BYTES: usize = 512;

/// A command of the mix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Read { queued: bool },
    Write { queued: bool },
    Flush,
    Verify,
    Trim,
    CheckPower,
}

impl Kind {
    fn is_queued(self) -> bool {
        matches!(self, Self::Read { queued: true } | Self::Write { queued: true })
    }
}

/// A command, ready to be put into a slot.
pub(super) struct Prepared {
    pub(super) ata: Ata,
    pub(super) buffer: Buffer,
    pub(super) purpose: Purpose,
    pub(super) busy: Busy,
}

impl Prepared {
    fn without_data(ata: Ata, purpose: Purpose, extent: Extent) -> Self {
        Self { ata, buffer: Buffer::default(), purpose, busy: Busy { extent, ..Busy::default() } }
    }
}

impl Driver {
    /// Does the commands of the plan, as far as they are not done yet.
    pub(super) async fn work(&mut self) -> Result<(), Trouble> {
        while self.commands_left != 0 || self.under_way() != 0 {
            let now_ns = self.cpu.now_ns();
            if self.commands_left != 0 && self.pause_until_ns <= now_ns {
                self.submit_burst().await;
                if self.random.chance(self.plan.reset_ppm) {
                    return Err(Trouble::OnPurpose);
                }
            }
            let until_ns = match (self.commands_left, self.pause_until_ns) {
                (0, _) => u64::MAX,
                (_, until_ns) if until_ns > now_ns => until_ns,
                _ => now_ns + RETRY_NS,
            };
            self.wait(until_ns).await?;
        }
        Ok(())
    }

    fn under_way(&self) -> usize {
        self.ports.iter().map(|port| port.active().count_ones() as usize).sum()
    }

    async fn submit_burst(&mut self) {
        while self.commands_left != 0 && self.under_way() < self.plan.depth {
            let Some((port, kind)) = self.pick_kind() else { break };
            let Some(prepared) = self.prepare(port, kind) else { break };
            self.put(port, prepared).await;
            self.cpu.machine(|machine| machine.progress.submitted += 1);
            self.commands_left -= 1;
            self.burst_left = self.burst_left.saturating_sub(1);
            if self.burst_left == 0 {
                self.burst_left = self.random.magnitude(1, u64::from(self.plan.burst)) as u32;
                let pause_ns = self.random.magnitude(self.plan.pause_ns.0, self.plan.pause_ns.1);
                self.pause_until_ns = self.cpu.now_ns() + pause_ns;
                break;
            }
        }
    }

    /// A port and a command for it. One that is not queued waits until it is alone, and the port takes no other before.
    fn pick_kind(&mut self) -> Option<(usize, Kind)> {
        (0..PICKS).find_map(|_| {
            let port = self.random.below(self.ports.len() as u64) as usize;
            if self.ports[port].is_alone() || self.free_slot(port).is_none() {
                return None;
            }
            let kind = self.ports[port].next.take().unwrap_or_else(|| self.draw_kind());
            if kind.is_queued() || self.ports[port].active() == 0 {
                return Some((port, kind));
            }
            self.ports[port].next = Some(kind);
            None
        })
    }

    fn draw_kind(&mut self) -> Kind {
        let kinds = [
            (Kind::Read { queued: true }, 36),
            (Kind::Write { queued: true }, 36),
            (Kind::Read { queued: false }, 5),
            (Kind::Write { queued: false }, 5),
            (Kind::Flush, self.plan.flush_weight),
            (Kind::Verify, 2),
            (Kind::Trim, 3),
            (Kind::CheckPower, 2),
        ];
        let total: u32 = kinds.iter().map(|(_, weight)| weight).sum();
        let mut drawn = self.random.below(u64::from(total)) as u32;
        for (kind, weight) in kinds {
            if drawn < weight {
                return kind;
            }
            drawn -= weight;
        }
        Kind::Flush
    }

    /// The command; `None` if there is no memory for it now.
    fn prepare(&mut self, port: usize, kind: Kind) -> Option<Prepared> {
        let writes = matches!(kind, Kind::Write { .. } | Kind::Trim);
        let extent = match kind {
            Kind::Flush => return Some(self.flush(port)),
            Kind::CheckPower => {
                let ata = Ata::new(op::CHECK_POWER);
                return Some(Prepared::without_data(ata, Purpose::Other, Extent::default()));
            }
            _ => self.pick_extent(port, writes)?,
        };
        match kind {
            Kind::Read { queued } => self.read(extent, queued),
            Kind::Write { queued } => self.write(extent, queued),
            Kind::Trim => self.trim(extent),
            _ => {
                let ata = Self::on_blocks(op::VERIFY_EXT, extent);
                Some(Prepared::without_data(ata, Purpose::Other, extent))
            }
        }
    }

    fn pick_extent(&mut self, port: usize, writes: bool) -> Option<Extent> {
        let wanted = Wanted { most_bytes: self.plan.max_bytes, writes, exclusive: false };
        let of = (port, self.ports[port].disk);
        (0..PICKS).find_map(|_| {
            let busy = self.ports[port].slots.iter().flatten().map(|active| active.busy);
            wanted.draw(&mut self.random, &self.plan, of, busy)
        })
    }

    /// A command for these blocks, in the fields that its kind has them in.
    fn on_blocks(command: u8, extent: Extent) -> Ata {
        let ata = Ata { lba: extent.block, ..Ata::new(command) };
        let count = extent.blocks as u16;
        match command {
            op::READ_QUEUED | op::WRITE_QUEUED => Ata { features: count, ..ata },
            _ => Ata { count, ..ata },
        }
    }

    fn bytes(&self, extent: Extent) -> usize {
        extent.blocks as usize * self.ports[extent.namespace].disk.block_bytes
    }

    /// A buffer, if there is memory for it.
    fn buffer(&mut self, bytes: usize, way: Way) -> Option<Buffer> {
        let sizes = scattered(&mut self.random, bytes, PIECES);
        self.cpu.machine(|machine| {
            if machine.memory.free_pages() < sizes.len() {
                return None;
            }
            Buffer::allocate(&mut machine.memory, &sizes, way)
        })
    }

    pub(super) fn flush(&mut self, port: usize) -> Prepared {
        let begun = self.cpu.machine(|machine| machine.history.borrow_mut().begin_read());
        let purpose = Purpose::Flush { namespace: port, begun };
        Prepared::without_data(Ata::new(op::FLUSH_EXT), purpose, Extent::default())
    }

    fn read(&mut self, extent: Extent, queued: bool) -> Option<Prepared> {
        let alone = [op::READ_DMA_EXT, op::READ_SECTORS_EXT, op::READ_DMA];
        let command = match (queued, self.random.pick(&alone)) {
            (true, _) => op::READ_QUEUED,
            (false, op::READ_DMA) if extent.blocks > SHORT => op::READ_DMA_EXT,
            (false, command) => command,
        };
        let buffer = self.buffer(self.bytes(extent), Way::FromDevice)?;
        let begun = self.cpu.machine(|machine| machine.history.borrow_mut().begin_read());
        let purpose = Purpose::Read { namespace: extent.namespace, block: extent.block, begun };
        let busy = Busy { extent, ..Busy::default() };
        Some(Prepared { ata: Self::on_blocks(command, extent), buffer, purpose, busy })
    }

    fn write(&mut self, extent: Extent, queued: bool) -> Option<Prepared> {
        let fua = self.random.percent(self.plan.fua_percent);
        let alone = [op::WRITE_DMA_EXT, op::WRITE_SECTORS_EXT, op::WRITE_DMA];
        let command = match (queued, fua, self.random.pick(&alone)) {
            (true, ..) => op::WRITE_QUEUED,
            (false, true, _) => op::WRITE_DMA_FUA_EXT,
            (false, false, op::WRITE_DMA) if extent.blocks > SHORT => op::WRITE_DMA_EXT,
            (false, false, command) => command,
        };
        let buffer = self.buffer(self.bytes(extent), Way::ToDevice)?;
        let durable = fua || !self.ports[extent.namespace].has_cache;
        let write = self.cpu.machine(|machine| machine.begin_write(extent, &buffer.pieces));
        let ata = Ata { fua: fua && queued, ..Self::on_blocks(command, extent) };
        let busy = Busy { extent, writes: true, exclusive: false };
        Some(Prepared { ata, buffer, purpose: Purpose::Write { write, durable, hint: false }, busy })
    }

    /// Data Set Management with the blocks in one range or several.
    fn trim(&mut self, extent: Extent) -> Option<Prepared> {
        let ranges = self.random.range(1, extent.blocks.min(4));
        let mut page = vec![0; RANGES_BYTES];
        for (range, place) in (0..ranges).zip(page.chunks_exact_mut(8)) {
            let from = extent.blocks * range / ranges;
            let to = extent.blocks * (range + 1) / ranges;
            place.copy_from_slice(&((to - from) << 48 | (extent.block + from)).to_le_bytes());
        }
        let buffer = self.buffer(page.len(), Way::ToDevice)?;
        let write = self.cpu.machine(|machine| {
            machine.memory.scatter(&buffer.pieces, &page);
            let Extent { namespace, block, blocks } = extent;
            machine.history.borrow_mut().begin_write(namespace, block, blocks, Value::Zero)
        });
        let ata = Ata { features: 1, count: 1, ..Ata::new(op::DATA_SET_MANAGEMENT) };
        let busy = Busy { extent, writes: true, exclusive: false };
        Some(Prepared { ata, buffer, purpose: Purpose::Write { write, durable: false, hint: true }, busy })
    }

    /// Reads every sector, several commands at a time.
    pub(super) async fn sweep(&mut self) -> Result<(), Trouble> {
        let mut extents = Vec::new();
        for (namespace, port) in self.ports.iter().enumerate() {
            let most = (self.plan.max_bytes.min(16 * PAGE_BYTES) / port.disk.block_bytes).max(1) as u64;
            let mut block = 0;
            while block < port.disk.blocks {
                let blocks = most.min(port.disk.blocks - block);
                extents.push(Extent { namespace, block, blocks });
                block += blocks;
            }
        }
        while !extents.is_empty() || self.under_way() != 0 {
            while self.under_way() < self.plan.depth
                && let Some(&extent) = extents.last()
                && self.free_slot(extent.namespace).is_some()
                && let Some(prepared) = self.read(extent, true)
            {
                self.put(extent.namespace, prepared).await;
                extents.pop();
            }
            let until_ns = if extents.is_empty() { u64::MAX } else { self.cpu.now_ns() + RETRY_NS };
            self.wait(until_ns).await?;
        }
        Ok(())
    }
}
