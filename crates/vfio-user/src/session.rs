//! What a client's commands do to the device.

use std::os::fd::{AsFd, OwnedFd};

use etherslot_mem::{Access, GuestMemory, MapError};
use tracing::{debug, info, warn};

use crate::connection::{Inbound, Outbound};
use crate::info::DeviceInfo;
use crate::irqs::Irqs;
use crate::message::{
    Capabilities, Errno, HEADER_BYTES, Header, MAX_FDS, REGION_ACCESS_BYTES, RegionInfoReply, Request,
    SetIrqs, Version, WriteMulti, header_of_reply, irq, region, unmap_fields,
};
use crate::pending::{self, Kind, MessageId, Pending};
use crate::poller::Poller;
use crate::server::Counters;

/// The version of the protocol that is spoken.
const MAJOR: u16 = 0;
const MINOR: u16 = 1;

/// Windows without a file are complained about from this size on.
const UNSHARED_BYTES: u64 = 64 << 20;

/// The most a reply takes, besides the data of a read.
pub(crate) const MAX_REPLY_BYTES: usize = HEADER_BYTES + 512;

/// How a [`Handler`] takes a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is done; for a read, the data is in place.
    Done,
    /// It is answered by its [`MessageId`] later, in any order. QEMU waits 5 s, with the whole guest standing still.
    Later,
    /// It failed.
    Error(Errno),
}

/// The device behind a [`crate::Server`]. Called from [`crate::Server::poll`]; nothing may block.
pub trait Handler {
    /// A client is there, and has agreed on the protocol.
    fn connected(&mut self);

    /// It is gone. Its memory is unmapped, its interrupts are unassigned, and what was to be answered later is forgotten.
    fn disconnected(&mut self);

    /// A read of `data.len()` bytes at `offset` in a region of [`region`], within the region and at most
    /// [`DeviceInfo::max_transfer_bytes`].
    fn read(&mut self, id: MessageId, region: u32, offset: u64, data: &mut [u8]) -> Answer;

    /// A write, bounded as reads are. Without `id` it is posted: nobody hears of the answer. `memory` is the client's.
    fn write(
        &mut self,
        id: Option<MessageId>,
        region: u32,
        offset: u64,
        data: &[u8],
        memory: &GuestMemory,
    ) -> Answer;

    /// The device is to be reset: a secondary bus reset or a reset of the machine. (An FLR is a write to configuration space.)
    fn reset(&mut self, id: Option<MessageId>) -> Answer;

    /// Interrupts of the type `index` ([`irq`]) were assigned or unassigned.
    fn irqs_changed(&mut self, index: u32);

    /// Windows were opened or closed. Those closed can't be accessed any more.
    fn memory_changed(&mut self);

    /// Whether it can take another access now. While it can't, accesses wait in the socket in their order; the owner sees to it
    /// that this ends within a second, because the guest stands still from the next read on.
    fn room(&self) -> bool;
}

/// Why the next message is not served now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Served {
    /// It was served and is consumed.
    Yes,
    /// Not whole yet.
    Incomplete,
    /// It waits: for the handler, for replies that are due, or for the client to read its replies.
    Stalled,
}

/// The state of the device and of its client.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) info: DeviceInfo,
    pub(crate) negotiated: bool,
    pub(crate) irqs: Irqs,
    pub(crate) memory: GuestMemory,
    pub(crate) pending: pending::Table,
    /// Bytes of [`Outbound`] that replies to come will take.
    pub(crate) reserved_bytes: usize,
    /// Writes done of the REGION_WRITE_MULTI that is the next message.
    multi_done: usize,
    /// That a client's memory can't be used has been said: once for each.
    /// Why the device can't reach all memory of the client, if that was told.
    pub(crate) complaint: Option<String>,
    fds: Vec<OwnedFd>,
    data: Box<[u8]>,
    pub(crate) counters: Counters,
}

/// Bytes of the reply to a command that waits.
fn reply_bytes(kind: &Kind) -> usize {
    HEADER_BYTES
        + match kind {
            Kind::Read { count, .. } => REGION_ACCESS_BYTES + *count as usize,
            Kind::Write { .. } => REGION_ACCESS_BYTES,
            Kind::Reset => 0,
        }
}

fn access_fields(offset: u64, region: u32, count: u32) -> [u8; REGION_ACCESS_BYTES] {
    let mut bytes = [0; REGION_ACCESS_BYTES];
    bytes[0..8].copy_from_slice(&offset.to_ne_bytes());
    bytes[8..12].copy_from_slice(&region.to_ne_bytes());
    bytes[12..16].copy_from_slice(&count.to_ne_bytes());
    bytes
}

/// What is sent back for a command that is done at once.
type Body<'a> = Result<&'a [u8], Errno>;

fn reply(outbound: &mut Outbound, header: &Header, body: Body<'_>, counters: &mut Counters) {
    counters.errors += u64::from(body.is_err());
    if !header.no_reply {
        let result = body.map(<[u8]>::len);
        outbound.push(&header_of_reply(header.id, header.command, result), &[body.unwrap_or(&[])]);
    }
}

impl Session {
    pub(crate) fn new(info: DeviceInfo) -> Self {
        Self {
            negotiated: false,
            irqs: Irqs::new(&info.irqs),
            memory: GuestMemory::default(),
            pending: pending::Table::new(),
            reserved_bytes: 0,
            multi_done: 0,
            complaint: None,
            fds: Vec::with_capacity(MAX_FDS),
            data: vec![0; info.max_transfer_bytes as usize].into_boxed_slice(),
            counters: Counters::default(),
            info,
        }
    }

    /// Forgets the client.
    pub(crate) fn clear(&mut self, poller: &Poller) {
        self.negotiated = false;
        self.irqs.clear(poller);
        self.memory.clear();
        self.pending.clear();
        self.reserved_bytes = 0;
        self.multi_done = 0;
        self.complaint = None;
        self.fds.clear();
    }

    /// Serves the next message, if there is one and it can be served now.
    pub(crate) fn serve(
        &mut self,
        inbound: &mut Inbound,
        outbound: &mut Outbound,
        poller: &Poller,
        handler: &mut dyn Handler,
    ) -> Result<Served, crate::connection::Broken> {
        let Some((header, body)) = inbound.message()? else { return Ok(Served::Incomplete) };
        if header.reply {
            return Err(crate::connection::Broken::Reply);
        }
        let room = outbound.room().saturating_sub(self.reserved_bytes);
        if room < MAX_REPLY_BYTES + self.data.len() || self.pending.is_full() {
            return Ok(Served::Stalled);
        }
        inbound.take_fds(&header, &mut self.fds);
        let body = inbound.bytes(body);
        let done = match Request::parse(&header, body) {
            None => {
                reply(outbound, &header, Err(Errno::INVAL), &mut self.counters);
                true
            }
            Some(request) if matches!(request, Request::Version(_)) == self.negotiated => {
                debug!(?request, "out of turn");
                reply(outbound, &header, Err(Errno::INVAL), &mut self.counters);
                true
            }
            Some(request) => self.request(&header, request, outbound, poller, handler),
        };
        if !done {
            return Ok(Served::Stalled);
        }
        self.fds.clear();
        self.multi_done = 0;
        self.counters.messages += 1;
        inbound.consume(&header);
        Ok(Served::Yes)
    }

    /// Serves one command; false if it has to wait, and only then.
    fn request(
        &mut self,
        header: &Header,
        request: Request<'_>,
        outbound: &mut Outbound,
        poller: &Poller,
        handler: &mut dyn Handler,
    ) -> bool {
        let mut buffer = [0; 32];
        let body: Body<'_> = match request {
            Request::Version(version) => {
                self.version(header, &version, outbound, handler);
                return true;
            }
            Request::DmaMap { readable, writable, offset, address, bytes } => {
                let access = Access { read: readable, write: writable };
                let mapped = self.map(offset, address, bytes, access);
                if mapped.is_ok() {
                    handler.memory_changed();
                }
                mapped.map(|()| &[][..])
            }
            Request::DmaUnmap { argsz, all, address, bytes } => {
                let unmapped = if all {
                    self.memory.unmap_all();
                    Ok(())
                } else {
                    self.memory.unmap(address, bytes).map(drop).map_err(|_| Errno::INVAL)
                };
                if unmapped.is_ok() {
                    handler.memory_changed();
                }
                buffer[..24].copy_from_slice(&unmap_fields(argsz, all, address, bytes));
                unmapped.map(|()| &buffer[..24])
            }
            Request::GetInfo => {
                // VFIO_DEVICE_FLAGS_RESET, VFIO_DEVICE_FLAGS_PCI.
                let flags = u32::from(self.info.reset) | 1 << 1;
                for (place, value) in [16, flags, region::COUNT as u32, irq::COUNT as u32].iter().enumerate()
                {
                    buffer[place * 4..][..4].copy_from_slice(&value.to_ne_bytes());
                }
                Ok(&buffer[..16])
            }
            Request::GetRegionInfo { index } => match self.info.regions.get(index as usize) {
                Some(region) => {
                    buffer = RegionInfoReply {
                        index,
                        readable: region.readable,
                        writable: region.writable,
                        mappable: false,
                        bytes: region.bytes,
                    }
                    .encode();
                    Ok(&buffer)
                }
                None => Err(Errno::INVAL),
            },
            Request::GetRegionIoFds { index } if (index as usize) < region::COUNT => {
                // There are none.
                for (place, value) in [16, 0, index, 0].iter().enumerate() {
                    buffer[place * 4..][..4].copy_from_slice(&value.to_ne_bytes());
                }
                Ok(&buffer[..16])
            }
            Request::GetRegionIoFds { .. } => Err(Errno::INVAL),
            Request::GetIrqInfo { index } => match self.irqs.info(index) {
                Some(info) => {
                    buffer[..16].copy_from_slice(&info.encode());
                    Ok(&buffer[..16])
                }
                None => Err(Errno::INVAL),
            },
            Request::SetIrqs(request) => self.set_irqs(&request, poller, handler).map(|()| &[][..]),
            Request::RegionRead { offset, region, count } => {
                return self.read(header, (offset, region, count), outbound, handler);
            }
            Request::RegionWrite { offset, region, data } => {
                return self.write(header, (offset, region, data), outbound, handler);
            }
            Request::RegionWriteMulti(writes) => {
                return self.write_multi(header, writes, outbound, handler);
            }
            Request::DeviceReset if !self.info.reset => Err(Errno::NOTSUP),
            Request::DeviceReset => return self.reset(header, outbound, handler),
            Request::Unknown => Err(Errno::NOTSUP),
        };
        reply(outbound, header, body, &mut self.counters);
        true
    }

    fn version(
        &mut self,
        header: &Header,
        proposed: &Version,
        outbound: &mut Outbound,
        handler: &mut dyn Handler,
    ) {
        if proposed.major != MAJOR {
            warn!(
                major = proposed.major,
                minor = proposed.minor,
                "client speaks another version of vfio-user"
            );
            reply(outbound, header, Err(Errno::NOTSUP), &mut self.counters);
            return;
        }
        // Capabilities are to be a subset of those proposed.
        let asked = &proposed.capabilities;
        let capabilities = Capabilities {
            max_msg_fds: asked.max_msg_fds.map(|_| MAX_FDS as u64),
            max_data_xfer_size: asked.max_data_xfer_size.map(|_| u64::from(self.info.max_transfer_bytes)),
            max_dma_maps: asked.max_dma_maps.map(|_| etherslot_mem::Limits::default().windows as u64),
            pgsizes: asked.pgsizes.map(|_| etherslot_mem::PAGE_BYTES),
            write_multiple: asked.write_multiple,
        };
        let agreed = Version { major: MAJOR, minor: proposed.minor.min(MINOR), capabilities };
        reply(outbound, header, Ok(&agreed.encode()), &mut self.counters);
        self.negotiated = true;
        info!(minor = agreed.minor, "client connected");
        handler.connected();
    }

    fn map(&mut self, offset: u64, address: u64, bytes: u64, access: Access) -> Result<(), Errno> {
        if self.fds.len() > 1 {
            return Err(Errno::INVAL);
        }
        // ROMs and video memory come without a file; so does all memory, if the client was told to share none.
        if self.fds.is_empty() && bytes >= UNSHARED_BYTES {
            self.complain("it does not share its memory: use memory-backend-memfd with share=on");
        }
        let fd = self.fds.first().map(AsFd::as_fd);
        self.memory.map(fd, offset, address, bytes, access).map_err(|error| {
            debug!(address, bytes, offset, %error, "window refused");
            self.complain(&error);
            match error {
                MapError::Overlap => Errno::EXIST,
                MapError::TooManyWindows | MapError::TooManyFiles => Errno::NOSPC,
                MapError::Os(error) => Errno(error.raw_os_error().unsigned_abs()),
                _ => Errno::INVAL,
            }
        })
    }

    fn complain(&mut self, cause: impl std::fmt::Display) {
        if self.complaint.is_none() {
            warn!(%cause, "the device can't reach the client's memory");
            self.complaint = Some(cause.to_string());
        }
    }

    fn set_irqs(
        &mut self,
        request: &SetIrqs<'_>,
        poller: &Poller,
        handler: &mut dyn Handler,
    ) -> Result<(), Errno> {
        if self.irqs.set(request, &mut self.fds, poller)? {
            handler.irqs_changed(request.index);
        }
        Ok(())
    }

    fn read(
        &mut self,
        header: &Header,
        (offset, region, count): (u64, u32, u32),
        outbound: &mut Outbound,
        handler: &mut dyn Handler,
    ) -> bool {
        let readable = count as usize <= self.data.len()
            && self.info.holds(region, offset, u64::from(count)).is_some_and(|region| region.readable);
        // A read that is not to be answered is nothing.
        if !readable || header.no_reply {
            reply(outbound, header, Err(Errno::INVAL), &mut self.counters);
            return true;
        }
        if !handler.room() {
            return false;
        }
        let kind = Kind::Read { offset, region, count };
        let Some(id) = self.pending.insert(Pending { header: *header, kind }) else { return false };
        let data = &mut self.data[..count as usize];
        // What a handler leaves is what an absent device reads as, not another's data.
        data.fill(0xff);
        let answer = handler.read(id, region, offset, data);
        if answer == Answer::Later {
            self.reserved_bytes += reply_bytes(&kind);
            return true;
        }
        self.pending.take(id);
        if let Answer::Error(error) = answer {
            reply(outbound, header, Err(error), &mut self.counters);
        } else {
            let data = &self.data[..count as usize];
            let fields = access_fields(offset, region, count);
            let reply = header_of_reply(header.id, header.command, Ok(fields.len() + data.len()));
            outbound.push(&reply, &[&fields, data]);
        }
        true
    }

    fn write(
        &mut self,
        header: &Header,
        (offset, region, data): (u64, u32, &[u8]),
        outbound: &mut Outbound,
        handler: &mut dyn Handler,
    ) -> bool {
        if !self.writable(region, offset, data) {
            reply(outbound, header, Err(Errno::INVAL), &mut self.counters);
            return true;
        }
        if !handler.room() {
            return false;
        }
        if header.no_reply {
            let answer = handler.write(None, region, offset, data, &self.memory);
            self.counters.posted_errors += u64::from(matches!(answer, Answer::Error(_)));
            return true;
        }
        let count = data.len() as u32;
        let kind = Kind::Write { offset, region, count };
        let Some(id) = self.pending.insert(Pending { header: *header, kind }) else { return false };
        let answer = handler.write(Some(id), region, offset, data, &self.memory);
        if answer == Answer::Later {
            self.reserved_bytes += reply_bytes(&kind);
            return true;
        }
        self.pending.take(id);
        let fields = access_fields(offset, region, count);
        let body = if let Answer::Error(error) = answer { Err(error) } else { Ok(&fields[..]) };
        reply(outbound, header, body, &mut self.counters);
        true
    }

    fn writable(&self, region: u32, offset: u64, data: &[u8]) -> bool {
        data.len() <= self.data.len()
            && self.info.holds(region, offset, data.len() as u64).is_some_and(|region| region.writable)
    }

    fn write_multi(
        &mut self,
        header: &Header,
        writes: WriteMulti<'_>,
        outbound: &mut Outbound,
        handler: &mut dyn Handler,
    ) -> bool {
        for write in writes.writes(self.multi_done) {
            let write = write.filter(|write| self.writable(write.region, write.offset, write.data()));
            if let Some(write) = write {
                if !handler.room() {
                    return false;
                }
                let answer = handler.write(None, write.region, write.offset, write.data(), &self.memory);
                self.counters.posted_errors += u64::from(matches!(answer, Answer::Error(_)));
            } else {
                self.counters.posted_errors += 1;
            }
            self.multi_done += 1;
        }
        let count = writes.count() as u64;
        reply(outbound, header, Ok(&count.to_ne_bytes()), &mut self.counters);
        true
    }

    fn reset(&mut self, header: &Header, outbound: &mut Outbound, handler: &mut dyn Handler) -> bool {
        if !handler.room() {
            return false;
        }
        if header.no_reply {
            handler.reset(None);
            return true;
        }
        let kind = Kind::Reset;
        let Some(id) = self.pending.insert(Pending { header: *header, kind }) else { return false };
        let answer = handler.reset(Some(id));
        if answer == Answer::Later {
            self.reserved_bytes += reply_bytes(&kind);
            return true;
        }
        self.pending.take(id);
        let body = if let Answer::Error(error) = answer { Err(error) } else { Ok(&[][..]) };
        reply(outbound, header, body, &mut self.counters);
        true
    }

    /// Answers a command that was answered later; false if nobody waits for it any more.
    pub(crate) fn finish(
        &mut self,
        id: MessageId,
        result: Result<&[u8], Errno>,
        outbound: &mut Outbound,
    ) -> bool {
        let Some(Pending { header, kind }) = self.pending.take(id) else { return false };
        self.reserved_bytes -= reply_bytes(&kind);
        let wanted = if let Kind::Read { count, .. } = kind { count as usize } else { 0 };
        // A handler that mistakes one command for another must not make QEMU read beyond a reply.
        let data = result.and_then(|data| if data.len() == wanted { Ok(data) } else { Err(Errno::IO) });
        match (kind, data) {
            (_, Err(error)) => reply(outbound, &header, Err(error), &mut self.counters),
            (Kind::Read { offset, region, count } | Kind::Write { offset, region, count }, Ok(data)) => {
                let fields = access_fields(offset, region, count);
                let reply = header_of_reply(header.id, header.command, Ok(fields.len() + data.len()));
                outbound.push(&reply, &[&fields, data]);
            }
            (Kind::Reset, Ok(_)) => reply(outbound, &header, Ok(&[]), &mut self.counters),
        }
        true
    }
}
