//! Completion statuses in the words of NVMe Base 1.4, 4.6.1.

use std::fmt;

/// Status Code Type and Status Code of a Completion Queue Entry.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status(u16);

impl Status {
    /// It went well.
    pub const SUCCESS: Self = Self(0);

    /// A Compare found something else.
    pub const COMPARE_FAILURE: Self = Self(0x285);

    /// Of the Status Field: bits 31:17 of dword 3, without the Phase Tag.
    pub(crate) fn of_field(field: u16) -> Self {
        Self(field & 0x7FF)
    }

    /// Status Code Type, 0 to 7, and Status Code.
    pub fn new(code_type: u8, code: u8) -> Self {
        Self(u16::from(code_type & 7) << 8 | u16::from(code))
    }

    /// Status Code Type.
    pub fn code_type(self) -> u8 {
        (self.0 >> 8) as u8
    }

    /// Status Code.
    pub fn code(self) -> u8 {
        self.0 as u8
    }

    /// Whether the same command would end the same way: the medium or the command is the trouble, and not the way of its data, or the
    /// moment.
    pub fn is_lasting(self) -> bool {
        // Of generic statuses: transfer and internal errors, aborts, commands out of sequence, interruptions, a namespace that is not
        // ready.
        !matches!(self.0, 0x004..=0x008 | 0x00C | 0x021 | 0x022 | 0x082)
    }

    /// What the specification calls it.
    pub fn name(self) -> &'static str {
        NAMES.iter().find(|&&(status, _)| status == self.0).map_or("a status of no name", |&(_, name)| name)
    }
}

/// Figures 128, 130 and 132; those that commands of ours may end with.
const NAMES: &[(u16, &str)] = &[
    (0x000, "Successful Completion"),
    (0x001, "Invalid Command Opcode"),
    (0x002, "Invalid Field in Command"),
    (0x003, "Command ID Conflict"),
    (0x004, "Data Transfer Error"),
    (0x005, "Commands Aborted due to Power Loss Notification"),
    (0x006, "Internal Error"),
    (0x007, "Command Abort Requested"),
    (0x008, "Command Aborted due to SQ Deletion"),
    (0x00B, "Invalid Namespace or Format"),
    (0x00C, "Command Sequence Error"),
    (0x013, "PRP Offset Invalid"),
    (0x015, "Operation Denied"),
    (0x01C, "Sanitize Failed"),
    (0x01D, "Sanitize In Progress"),
    (0x020, "Namespace is Write Protected"),
    (0x021, "Command Interrupted"),
    (0x022, "Transient Transport Error"),
    (0x080, "LBA Out of Range"),
    (0x081, "Capacity Exceeded"),
    (0x082, "Namespace Not Ready"),
    (0x083, "Reservation Conflict"),
    (0x084, "Format In Progress"),
    (0x100, "Completion Queue Invalid"),
    (0x101, "Invalid Queue Identifier"),
    (0x102, "Invalid Queue Size"),
    (0x108, "Invalid Interrupt Vector"),
    (0x180, "Conflicting Attributes"),
    (0x182, "Attempted Write to Read Only Range"),
    (0x280, "Write Fault"),
    (0x281, "Unrecovered Read Error"),
    (0x282, "End-to-end Guard Check Error"),
    (0x285, "Compare Failure"),
    (0x286, "Access Denied"),
    (0x287, "Deallocated or Unwritten Logical Block"),
];

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (SCT {:x}h, SC {:02x}h)", self.name(), self.code_type(), self.code())
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_told_by_name_and_number() {
        // Do Not Retry and More do not belong to it.
        let status = Status::of_field(0x6080);
        assert_eq!(status, Status::new(0, 0x80));
        assert_eq!(status.to_string(), "LBA Out of Range (SCT 0h, SC 80h)");
        assert_eq!(Status::new(7, 1).to_string(), "a status of no name (SCT 7h, SC 01h)");
    }
}
