//! Completion statuses (NVMe Base 1.4, 4.6.1).

use std::fmt;

/// Status Code Type and Status Code of a Completion Queue Entry.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Status(u16);

const fn generic(code: u16) -> Status {
    Status(code)
}

const fn command_specific(code: u16) -> Status {
    Status(1 << 8 | code)
}

const fn media(code: u16) -> Status {
    Status(2 << 8 | code)
}

/// Figure 128: Generic Command Status Values.
impl Status {
    pub(crate) const SUCCESS: Self = generic(0x00);
    pub(crate) const INVALID_OPCODE: Self = generic(0x01);
    pub(crate) const INVALID_FIELD: Self = generic(0x02);
    pub(crate) const DATA_TRANSFER_ERROR: Self = generic(0x04);
    pub(crate) const INTERNAL_ERROR: Self = generic(0x06);
    pub(crate) const ABORT_REQUESTED: Self = generic(0x07);
    pub(crate) const INVALID_NAMESPACE: Self = generic(0x0b);
    pub(crate) const COMMAND_SEQUENCE_ERROR: Self = generic(0x0c);
    pub(crate) const INVALID_SGL_SEGMENT: Self = generic(0x0d);
    pub(crate) const INVALID_SGL_COUNT: Self = generic(0x0e);
    pub(crate) const DATA_SGL_LENGTH_INVALID: Self = generic(0x0f);
    pub(crate) const SGL_TYPE_INVALID: Self = generic(0x11);
    pub(crate) const PRP_OFFSET_INVALID: Self = generic(0x13);
    pub(crate) const NAMESPACE_WRITE_PROTECTED: Self = generic(0x20);
    pub(crate) const LBA_OUT_OF_RANGE: Self = generic(0x80);
    pub(crate) const CAPACITY_EXCEEDED: Self = generic(0x81);
    pub(crate) const FORMAT_IN_PROGRESS: Self = generic(0x84);
}

/// Figure 130: Command Specific Status Values.
impl Status {
    pub(crate) const CQ_INVALID: Self = command_specific(0x00);
    pub(crate) const INVALID_QUEUE_ID: Self = command_specific(0x01);
    pub(crate) const INVALID_QUEUE_SIZE: Self = command_specific(0x02);
    pub(crate) const AER_LIMIT_EXCEEDED: Self = command_specific(0x05);
    pub(crate) const INVALID_VECTOR: Self = command_specific(0x08);
    pub(crate) const INVALID_LOG_PAGE: Self = command_specific(0x09);
    pub(crate) const INVALID_FORMAT: Self = command_specific(0x0a);
    pub(crate) const INVALID_QUEUE_DELETION: Self = command_specific(0x0c);
    pub(crate) const FEATURE_NOT_SAVEABLE: Self = command_specific(0x0d);
    pub(crate) const FEATURE_NOT_NAMESPACE_SPECIFIC: Self = command_specific(0x0f);
}

/// Figure 132: Media and Data Integrity Error Values.
impl Status {
    pub(crate) const WRITE_FAULT: Self = media(0x80);
    pub(crate) const UNRECOVERED_READ_ERROR: Self = media(0x81);
    pub(crate) const COMPARE_FAILURE: Self = media(0x85);
}

impl Status {
    /// Do Not Retry, in [`Status::field`].
    pub(crate) const DNR: u16 = 1 << 14;
    /// More, in [`Status::field`]: the Error Information log has more about it.
    pub(crate) const MORE: u16 = 1 << 13;

    pub(crate) fn is_success(self) -> bool {
        self == Self::SUCCESS
    }

    pub(crate) fn is_media_error(self) -> bool {
        self == Self::WRITE_FAULT || self == Self::UNRECOVERED_READ_ERROR
    }

    /// Whether the same command could do better another time.
    fn is_passing(self) -> bool {
        matches!(
            self,
            Self::SUCCESS
                | Self::DATA_TRANSFER_ERROR
                | Self::INTERNAL_ERROR
                | Self::ABORT_REQUESTED
                | Self::FORMAT_IN_PROGRESS
        )
    }

    /// Whether the Error Information log tells of it. What the host asked for itself is none.
    pub(crate) fn is_logged(self) -> bool {
        !matches!(self, Self::SUCCESS | Self::ABORT_REQUESTED)
    }

    /// The Status Field without the Phase Tag: bits 31:17 of dword 3.
    pub(crate) fn field(self) -> u16 {
        let retry = if self.is_passing() { 0 } else { Self::DNR };
        let more = if self.is_logged() { Self::MORE } else { 0 };
        self.0 | retry | more
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{:02x}h", self.0 >> 8, self.0 & 0xff)
    }
}
