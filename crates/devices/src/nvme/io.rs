//! The NVM command set (NVMe Base 1.4, 6).

use super::Nvme;
use super::bits::NSID_ALL;
use super::command::{Command, Extent, Io};
use super::medium::With;
use super::slot::Phase;
use super::status::Status;
use etherslot_storage::Op;

/// Bytes of a range of Dataset Management (Figure 362).
const RANGE_BYTES: usize = 16;

impl Nvme {
    /// Begins an I/O command: all that can be wrong with it is found here, but for its lists.
    pub(super) fn start_io(&mut self, index: u16, nsid: u32, io: Io) {
        if io == Io::Flush && nsid == NSID_ALL {
            return self.flush_everything(index);
        }
        if let Err(status) = self.prepare_io(index, nsid, &io) {
            return self.end(index, status);
        }
        let total = self.slots[usize::from(index)].transfer.total() as usize;
        match io {
            Io::Read(extent) if self.reads_in_place(index, nsid, &extent) => {}
            Io::Read(_) | Io::Write(_) | Io::DatasetManagement { deallocate: true, .. } => {
                self.equip(index, 1, total);
            }
            Io::Compare(_) => self.equip(index, 2, total),
            Io::Verify(extent) => {
                let bytes = self.extent_bytes(nsid, &extent).min(self.max_transfer_bytes as u64);
                self.equip(index, 1, bytes as usize);
            }
            // The other attributes are hints about use to come; there is nothing to gain from them here.
            Io::DatasetManagement { deallocate: false, .. } => self.end(index, Status::SUCCESS),
            Io::Flush => self.request(index, nsid, Op::Flush, (0, 0), With::Nothing),
            Io::WriteZeroes { extent, deallocate } => match self.place(nsid, &extent) {
                Ok(place) => {
                    self.request(index, nsid, Op::WriteZeroes { unmap: deallocate }, place, With::Nothing);
                }
                Err(status) => self.end(index, status),
            },
        }
    }

    /// Where the blocks start on a medium that is memory.
    fn on_memory(&mut self, nsid: u32, extent: &Extent) -> Option<u64> {
        let namespace = self.namespace(nsid)?;
        let (offset, bytes) = namespace.locate_extent(extent).ok()?;
        namespace.medium.peek(offset, bytes as usize).map(|_| offset)
    }

    /// Whether a Read needs no Buf, as its data are in memory: then they are on their way from there, once they may be.
    fn reads_in_place(&mut self, index: u16, nsid: u32, extent: &Extent) -> bool {
        let on_memory = self.on_memory(nsid, extent);
        if on_memory.is_none() {
            return false;
        }
        let slot = &mut self.slots[usize::from(index)];
        slot.on_medium = on_memory;
        slot.phase = Phase::Scatter;
        let (bytes, wants_list) = (slot.transfer.total(), slot.transfer.wants_list().is_some());
        let waits = self.pass(index, nsid, bytes);
        if wants_list {
            self.want_reading(index);
        } else if !waits {
            self.want_writing(index);
        }
        true
    }

    /// Checks the command and begins with its data pointer.
    fn prepare_io(&mut self, index: u16, nsid: u32, io: &Io) -> Result<(), Status> {
        let max_transfer = self.max_transfer_bytes as u64;
        let namespace = self.namespace(nsid).ok_or(Status::INVALID_NAMESPACE)?;
        if namespace.formatting {
            return Err(Status::FORMAT_IN_PROGRESS);
        }
        let writes = matches!(io, Io::Write(_) | Io::WriteZeroes { .. } | Io::DatasetManagement { .. });
        if writes && namespace.info.read_only {
            return Err(Status::NAMESPACE_WRITE_PROTECTED);
        }
        if let Some(extent) = io.extent() {
            let bytes = u64::from(extent.blocks) * u64::from(namespace.block_bytes());
            // MDTS is of what is transferred: neither of Verify nor of Write Zeroes.
            if bytes > max_transfer && matches!(io, Io::Read(_) | Io::Write(_) | Io::Compare(_)) {
                return Err(Status::INVALID_FIELD);
            }
            namespace.locate_extent(extent)?;
        }
        let block_bytes = namespace.block_bytes();
        namespace.users += 1;
        let total = match io {
            Io::Read(extent) | Io::Write(extent) | Io::Compare(extent) => extent.blocks * block_bytes,
            Io::DatasetManagement { ranges, deallocate: true } => u32::from(*ranges) * RANGE_BYTES as u32,
            _ => 0,
        };
        let slot = &mut self.slots[usize::from(index)];
        slot.nsid = nsid;
        slot.transfer.begin(&slot.sqe, total, matches!(io, Io::Read(_)))
    }

    /// A Flush of all namespaces (VWC, bits 2:1).
    fn flush_everything(&mut self, index: u16) {
        for nsid in 1..=self.namespaces.len() as u32 {
            self.request(index, nsid, Op::Flush, (0, 0), With::Nothing);
        }
    }

    fn extent_bytes(&mut self, nsid: u32, extent: &Extent) -> u64 {
        let block_bytes = self.namespace(nsid).map_or(0, |namespace| namespace.block_bytes());
        u64::from(extent.blocks) * u64::from(block_bytes)
    }

    fn place(&mut self, nsid: u32, extent: &Extent) -> Result<(u64, u64), Status> {
        self.namespace(nsid).ok_or(Status::INVALID_NAMESPACE)?.locate_extent(extent)
    }

    /// The command has its Bufs.
    pub(super) fn go_io(&mut self, index: u16, io: Io) {
        let nsid = self.slots[usize::from(index)].nsid;
        match io {
            Io::Read(extent) => match self.place(nsid, &extent) {
                Ok(place) => {
                    self.request(index, nsid, Op::Read, place, With::Buf);
                    // Meanwhile the list of where it goes can come.
                    if self.slots[usize::from(index)].transfer.wants_list().is_some() {
                        self.want_reading(index);
                    }
                }
                Err(status) => self.end(index, status),
            },
            Io::Verify(_) => self.verify_more(index, nsid),
            Io::Write(extent) => {
                self.slots[usize::from(index)].on_medium = self.on_memory(nsid, &extent);
                self.gather(index);
            }
            _ => self.gather(index),
        }
    }

    /// The data from the host are in the Buf, or on the medium.
    pub(super) fn gathered_io(&mut self, index: u16, nsid: u32, io: Io) {
        match io {
            Io::Write(_) if self.slots[usize::from(index)].on_medium.is_some() => {
                let bytes = self.slots[usize::from(index)].transfer.total();
                if !self.land_rest(index) {
                    self.end(index, Status::WRITE_FAULT);
                } else if !self.pass(index, nsid, bytes) {
                    self.end(index, Status::SUCCESS);
                }
            }
            Io::Write(extent) => match self.place(nsid, &extent) {
                Ok(place) => {
                    let durable = extent.fua || self.is_write_through();
                    self.request(index, nsid, Op::Write { durable }, place, With::Buf);
                }
                Err(status) => self.end(index, status),
            },
            Io::Compare(extent) => match self.place(nsid, &extent) {
                Ok(place) => self.request(index, nsid, Op::Read, place, With::Other),
                Err(status) => self.end(index, status),
            },
            Io::DatasetManagement { ranges, .. } => match self.check_ranges(index, nsid, ranges) {
                Ok(()) => self.discard_more(index, nsid, ranges),
                Err(status) => self.end(index, status),
            },
            _ => self.end(index, Status::INTERNAL_ERROR),
        }
    }

    /// The medium has done what was asked last.
    pub(super) fn medium_done_io(&mut self, index: u16, nsid: u32, io: Io) {
        let write_through = self.is_write_through();
        let slot = &mut self.slots[usize::from(index)];
        match io {
            Io::Read(_) => self.scatter(index),
            Io::Compare(_) => {
                let bytes = slot.transfer.total() as usize;
                let same = match (&slot.buf, &slot.other) {
                    (Some(host), Some(medium)) => host[..bytes] == medium[..bytes],
                    _ => false,
                };
                self.end(index, if same { Status::SUCCESS } else { Status::COMPARE_FAILURE });
            }
            Io::Verify(_) => self.verify_more(index, nsid),
            Io::DatasetManagement { ranges, .. } => self.discard_more(index, nsid, ranges),
            // Durable zeros: flushed behind.
            Io::WriteZeroes { extent, .. } if (extent.fua || write_through) && slot.cursor == 0 => {
                slot.cursor = 1;
                self.request(index, nsid, Op::Flush, (0, 0), With::Nothing);
            }
            Io::Write(_) | Io::Flush | Io::WriteZeroes { .. } => self.end(index, Status::SUCCESS),
        }
    }

    /// Reads the next part of what is to be verified; it may be more than fits a Buf.
    fn verify_more(&mut self, index: u16, nsid: u32) {
        let slot = &self.slots[usize::from(index)];
        let Some(Command::Io(_, Io::Verify(extent))) = slot.command else {
            return self.end(index, Status::INTERNAL_ERROR);
        };
        let (cursor, room) = (slot.cursor, slot.buf.as_ref().map_or(0, |buf| buf.len() as u64));
        match self.place(nsid, &extent) {
            Ok((offset, bytes)) if cursor < bytes && room > 0 => {
                let now = (bytes - cursor).min(room);
                self.slots[usize::from(index)].cursor += now;
                self.request(index, nsid, Op::Read, (offset + cursor, now), With::Buf);
            }
            Ok(_) => self.end(index, Status::SUCCESS),
            Err(status) => self.end(index, status),
        }
    }

    /// Range `at` of a Dataset Management: first block and blocks.
    fn range(&self, index: u16, at: usize) -> (u64, u64) {
        let field = |start: usize, bytes: usize| {
            let buf = self.slots[usize::from(index)].buf.as_ref();
            let field = buf.and_then(|buf| buf.get(at * RANGE_BYTES + start..)).unwrap_or(&[]);
            field.iter().take(bytes).rev().fold(0u64, |value, byte| value << 8 | u64::from(*byte))
        };
        (field(8, 8), field(4, 4))
    }

    /// All ranges are checked before the first is touched.
    fn check_ranges(&mut self, index: u16, nsid: u32, ranges: u16) -> Result<(), Status> {
        (0..usize::from(ranges)).try_for_each(|at| {
            let (slba, blocks) = self.range(index, at);
            let namespace = self.namespace(nsid).ok_or(Status::INVALID_NAMESPACE)?;
            namespace.locate(slba, blocks).map(|_| ())
        })
    }

    /// Discards the next range that is not empty.
    fn discard_more(&mut self, index: u16, nsid: u32, ranges: u16) {
        while self.slots[usize::from(index)].cursor < u64::from(ranges) {
            let (slba, blocks) = self.range(index, self.slots[usize::from(index)].cursor as usize);
            self.slots[usize::from(index)].cursor += 1;
            if blocks == 0 {
                continue;
            }
            let located = self.namespace(nsid).map(|namespace| namespace.locate(slba, blocks));
            return match located {
                Some(Ok(place)) => self.request(index, nsid, Op::Discard, place, With::Nothing),
                _ => self.end(index, Status::LBA_OUT_OF_RANGE),
            };
        }
        self.end(index, Status::SUCCESS);
    }
}
