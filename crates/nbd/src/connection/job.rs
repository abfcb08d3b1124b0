//! A request under way.

use etherslot_initiator::{DiskError, Op, Status};

use crate::export::Geometry;
use crate::message::{Error, Request, command, command_flag};

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Write,
    Flush,
    Trim,
    WriteZeroes,
}

impl Kind {
    fn of(request: &Request) -> Option<Self> {
        Some(match request.command {
            command::READ => Self::Read,
            command::WRITE => Self::Write,
            command::FLUSH => Self::Flush,
            command::TRIM => Self::Trim,
            command::WRITE_ZEROES => Self::WriteZeroes,
            _ => return None,
        })
    }
}

/// A request, cut into pieces that the disk takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    pub(crate) kind: Kind,
    pub(crate) cookie: u64,
    pub(crate) offset: u64,
    pub(crate) first_block: u64,
    pub(crate) blocks: u32,
    /// Of them, those that are done or under way; all of them as well when there is no point in going on.
    pub(crate) issued: u32,
    /// Pieces that the disk has, or will be given.
    pub(crate) under_way: u32,
    /// Its payload is still to come.
    pub(crate) is_receiving: bool,
    pub(crate) durable: bool,
    pub(crate) unmap: bool,
    pub(crate) error: Option<Error>,
}

impl Job {
    pub(crate) const EMPTY: Self = Self {
        kind: Kind::Flush,
        cookie: 0,
        offset: 0,
        first_block: 0,
        blocks: 0,
        issued: 0,
        under_way: 0,
        is_receiving: false,
        durable: false,
        unmap: false,
        error: None,
    };

    /// The job of a request; one that can't be done has its error and no blocks.
    pub(crate) fn new(request: &Request, geometry: &Geometry, read_only: bool, max_payload: u32) -> Self {
        let kind = Kind::of(request).unwrap_or(Kind::Flush);
        let error = check(request, geometry, read_only, max_payload).err();
        let block_bytes = geometry.block_bytes;
        let blocks = match kind {
            _ if error.is_some() => 0,
            Kind::Flush => 1,
            _ => request.length / block_bytes,
        };
        Self {
            kind,
            cookie: request.cookie,
            offset: request.offset,
            first_block: request.offset / u64::from(block_bytes),
            blocks,
            issued: 0,
            under_way: 0,
            is_receiving: request.command == command::WRITE,
            durable: request.flags & command_flag::FUA != 0,
            unmap: request.flags & command_flag::NO_HOLE == 0 && geometry.unmap,
            error,
        }
    }

    /// Nothing of it is to be waited for.
    pub(crate) fn is_complete(&self) -> bool {
        self.issued >= self.blocks && self.under_way == 0 && !self.is_receiving
    }

    /// The most blocks of a piece.
    pub(crate) fn piece_blocks(&self, geometry: &Geometry) -> u32 {
        match self.kind {
            Kind::Read | Kind::Write => geometry.piece_blocks,
            Kind::Flush => 1,
            Kind::Trim => geometry.discard_blocks,
            Kind::WriteZeroes => geometry.zero_blocks,
        }
    }

    /// Blocks of the piece of this number.
    pub(crate) fn blocks_of(&self, piece: u32, geometry: &Geometry) -> u32 {
        let most = self.piece_blocks(geometry);
        self.blocks.saturating_sub(piece.saturating_mul(most)).min(most)
    }

    /// What the disk is to do.
    pub(crate) fn op(&self) -> Op {
        match self.kind {
            Kind::Read => Op::Read,
            Kind::Write => Op::Write { durable: self.durable },
            Kind::Flush => Op::Flush,
            Kind::Trim => Op::Discard,
            Kind::WriteZeroes => Op::WriteZeroes { unmap: self.unmap },
        }
    }

    /// What can't be written durably by itself is followed by a flush: becomes that flush. False if there is no need.
    pub(crate) fn turn_into_flush(&mut self) -> bool {
        let needed =
            self.durable && self.error.is_none() && matches!(self.kind, Kind::Trim | Kind::WriteZeroes);
        if needed {
            (self.kind, self.blocks, self.issued) = (Kind::Flush, 1, 0);
        }
        needed
    }
}

/// Whether the protocol, the export and its size constraints allow it.
fn check(request: &Request, geometry: &Geometry, read_only: bool, max_payload: u32) -> Result<(), Error> {
    let kind = Kind::of(request).ok_or(Error::Invalid)?;
    let allowed = match kind {
        Kind::WriteZeroes => command_flag::FUA | command_flag::NO_HOLE,
        _ => command_flag::FUA,
    };
    if request.flags & !allowed != 0 {
        return Err(Error::Invalid);
    }
    if kind == Kind::Flush {
        return Ok(());
    }
    if kind != Kind::Read && read_only {
        return Err(Error::Permission);
    }
    if !geometry.takes(kind) {
        return Err(Error::Invalid);
    }
    let block_bytes = u64::from(geometry.block_bytes);
    let is_aligned =
        request.offset.is_multiple_of(block_bytes) && u64::from(request.length).is_multiple_of(block_bytes);
    if request.length == 0 || !is_aligned || kind == Kind::Read && request.length > max_payload {
        return Err(Error::Invalid);
    }
    if request.offset.checked_add(request.length.into()).is_none_or(|end| end > geometry.bytes) {
        let grows = matches!(kind, Kind::Write | Kind::WriteZeroes);
        return Err(if grows { Error::NoSpace } else { Error::Invalid });
    }
    Ok(())
}

/// What a client is told of a failure of the disk: statuses of NVMe Base 1.4, 4.6.1, by Status Code Type and Status Code.
pub(crate) fn error_of(failure: DiskError, kind: Kind) -> Error {
    let DiskError::Status(status) = failure else { return Error::Io };
    let is = |code_type, code| status == Status::new(code_type, code);
    // Namespace is Write Protected, Attempted Write to Read Only Range; Operation Denied, Access Denied.
    if is(0, 0x20) || is(1, 0x82) || is(0, 0x15) || is(2, 0x86) {
        return Error::Permission;
    }
    // LBA Out of Range, Capacity Exceeded.
    if is(0, 0x80) || is(0, 0x81) {
        return if kind == Kind::Read { Error::Invalid } else { Error::NoSpace };
    }
    // Invalid Command Opcode, Invalid Field in Command.
    if is(0, 0x01) || is(0, 0x02) { Error::Invalid } else { Error::Io }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_of_the_device_become_the_errors_that_clients_know() {
        for (code_type, code, kind, error) in [
            (0, 0x20, Kind::Write, Error::Permission),
            (1, 0x82, Kind::Trim, Error::Permission),
            (0, 0x80, Kind::Write, Error::NoSpace),
            (0, 0x80, Kind::Read, Error::Invalid),
            (0, 0x81, Kind::WriteZeroes, Error::NoSpace),
            (0, 0x02, Kind::Flush, Error::Invalid),
            (2, 0x81, Kind::Read, Error::Io),
            (2, 0x80, Kind::Write, Error::Io),
        ] {
            let status = Status::new(code_type, code);
            assert_eq!(error_of(DiskError::Status(status), kind), error, "{status}");
        }
        for failure in [DiskError::Lost, DiskError::TimedOut, DiskError::Unusable] {
            assert_eq!(error_of(failure, Kind::Read), Error::Io);
        }
    }
}
