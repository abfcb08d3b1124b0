//! Format NVM (NVMe Base 1.4, 5.23): erases, then changes the block size.
//!
//! It waits until no command uses the namespaces any more; those that come in the meantime are refused. The erasure goes to the medium in
//! pieces, so that a reset need not wait for all of it. Whatever is asked for, what was there before can't be read afterwards.

use super::Nvme;
use super::bits::NSID_ALL;
use super::command::{Admin, Command, Format};
use super::events::{Event, NAMESPACE_NOTICES};
use super::medium::With;
use super::slot::Phase;
use super::status::Status;
use etherslot_storage::Op;
use std::ops::RangeInclusive;

/// Bytes erased at once.
const PIECE_BYTES: u64 = 256 << 20;

/// The namespaces a Format is about.
fn targets(format: Format, namespaces: usize) -> RangeInclusive<u32> {
    match format.nsid {
        NSID_ALL => 1..=namespaces as u32,
        nsid => nsid..=nsid,
    }
}

/// How far it is, in a slot's cursor: the namespace (or 0, before the first) and the bytes of it that are erased.
fn split(cursor: u64) -> (u32, u64) {
    ((cursor >> 48) as u32, (cursor & 0xffff_ffff_ffff) << 9)
}

fn join(nsid: u32, erased: u64) -> u64 {
    u64::from(nsid) << 48 | erased >> 9
}

impl Nvme {
    pub(super) fn start_format(&mut self, index: u16, format: Format) -> Result<(), Status> {
        if self.formatter.is_some() {
            return Err(Status::FORMAT_IN_PROGRESS);
        }
        let targets = targets(format, self.namespaces.len());
        for nsid in targets.clone() {
            let namespace = self.namespace(nsid).ok_or(Status::INVALID_NAMESPACE)?;
            if usize::from(format.lbaf) >= namespace.formats().len() || format.metadata {
                return Err(Status::INVALID_FORMAT);
            }
            if namespace.info.read_only {
                return Err(Status::NAMESPACE_WRITE_PROTECTED);
            }
        }
        // None, or User Data Erase; FNA says there is no Cryptographic Erase.
        if format.ses > 1 {
            return Err(Status::INVALID_FIELD);
        }
        for nsid in targets {
            if let Some(namespace) = self.namespace(nsid) {
                namespace.formatting = true;
            }
        }
        // What is sent along goes by the length of blocks.
        self.rules_changed();
        self.formatter = Some(index);
        self.slots[usize::from(index)].phase = Phase::Parked;
        self.try_format();
        Ok(())
    }

    /// A command has ended that used namespace `nsid`.
    pub(super) fn released(&mut self, nsid: u32) {
        if let Some(namespace) = self.namespace(nsid) {
            namespace.users -= 1;
            if namespace.users == 0 && namespace.formatting {
                self.try_format();
            }
        }
    }

    /// Begins to erase if nobody uses the namespaces any more.
    fn try_format(&mut self) {
        let Some(index) = self.formatter else { return };
        let slot = &self.slots[usize::from(index)];
        let Some(Command::Admin(Admin::Format(format))) = slot.command else { return };
        let used = self.namespaces.iter().any(|namespace| namespace.formatting && namespace.users > 0);
        if slot.phase == Phase::Parked && !used {
            self.format_more(index, format);
        }
    }

    /// Erases the next piece, flushes behind the last of a namespace, ends behind that of the last namespace.
    pub(super) fn format_more(&mut self, index: u16, format: Format) {
        let targets = targets(format, self.namespaces.len());
        let (mut nsid, mut erased) = split(self.slots[usize::from(index)].cursor);
        if nsid == 0 {
            nsid = *targets.start();
        }
        let mut capacity = self.namespace(nsid).map_or(0, |namespace| namespace.info.bytes);
        if erased > capacity {
            // Flushed: that was the end of this one.
            self.formatted(nsid, format.lbaf);
            if nsid == *targets.end() {
                self.formatter = None;
                return self.end(index, Status::SUCCESS);
            }
            (nsid, erased) = (nsid + 1, 0);
            capacity = self.namespace(nsid).map_or(0, |namespace| namespace.info.bytes);
        }
        if erased == capacity {
            self.slots[usize::from(index)].cursor = join(nsid, capacity + 512);
            return self.request(index, nsid, Op::Flush, (0, 0), With::Nothing);
        }
        let bytes = (capacity - erased).min(PIECE_BYTES);
        self.slots[usize::from(index)].cursor = join(nsid, erased + bytes);
        self.request(index, nsid, Op::WriteZeroes { unmap: true }, (erased, bytes), With::Nothing);
    }

    fn formatted(&mut self, nsid: u32, lbaf: u8) {
        let notices = self.features.async_events() & NAMESPACE_NOTICES != 0;
        self.rules_changed();
        let Some(namespace) = self.namespace(nsid) else { return };
        namespace.formatting = false;
        if namespace.set_format(lbaf) {
            tracing::info!(nsid, block_bytes = namespace.block_bytes(), "namespace formatted");
            self.logs.namespace_changed(nsid);
            if notices {
                self.events.raise(Event::NamespaceChanged);
            }
        }
    }

    /// A Format that failed or was given up leaves its namespaces usable.
    pub(super) fn give_up_format(&mut self) {
        if self.formatter.is_some() {
            self.rules_changed();
        }
        self.formatter = None;
        for namespace in &mut self.namespaces {
            namespace.formatting = false;
        }
    }
}
