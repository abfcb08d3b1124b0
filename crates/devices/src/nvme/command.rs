//! From the bytes of a Submission Queue Entry to a command that is valid on its own.
//!
//! What depends on the state of the controller (a queue's existence, a namespace's size) is checked by whoever
//! carries the command out.

use super::bits::{SQE_BYTES, admin, nvm};
use super::status::Status;

/// A Submission Queue Entry (NVMe Base 1.4, 4.2).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sqe(pub [u8; SQE_BYTES]);

impl Sqe {
    /// Dword `at` of the entry.
    pub(crate) fn dword(&self, at: usize) -> u32 {
        let bytes = &self.0[at * 4..at * 4 + 4];
        u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
    }

    /// Dwords `at` and `at + 1`.
    pub(crate) fn qword(&self, at: usize) -> u64 {
        u64::from(self.dword(at)) | u64::from(self.dword(at + 1)) << 32
    }

    pub(crate) fn opcode(&self) -> u8 {
        self.0[0]
    }

    pub(crate) fn fuse(&self) -> u8 {
        self.0[1] & 3
    }

    /// PRP or SGL for Data Transfer.
    pub(crate) fn psdt(&self) -> u8 {
        self.0[1] >> 6
    }

    pub(crate) fn cid(&self) -> u16 {
        (self.dword(0) >> 16) as u16
    }

    pub(crate) fn nsid(&self) -> u32 {
        self.dword(1)
    }

    pub(crate) fn prp1(&self) -> u64 {
        self.qword(6)
    }

    pub(crate) fn prp2(&self) -> u64 {
        self.qword(8)
    }

    /// The SGL descriptor that stands in place of the PRPs.
    pub(crate) fn sgl1(&self) -> [u8; 16] {
        let mut descriptor = [0; 16];
        descriptor.copy_from_slice(&self.0[24..40]);
        descriptor
    }
}

/// The blocks of a Read, Write, Compare, Verify or Write Zeroes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) slba: u64,
    /// 1..=65536 (the field is 0's based).
    pub(crate) blocks: u32,
    /// Force Unit Access.
    pub(crate) fua: bool,
}

/// Create I/O Submission Queue (5.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CreateSq {
    pub(crate) qid: u16,
    /// Entries - 1.
    pub(crate) size: u16,
    pub(crate) contiguous: bool,
    pub(crate) cqid: u16,
    pub(crate) base: u64,
}

/// Create I/O Completion Queue (5.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CreateCq {
    pub(crate) qid: u16,
    /// Entries - 1.
    pub(crate) size: u16,
    pub(crate) contiguous: bool,
    pub(crate) interrupts: bool,
    pub(crate) vector: u16,
    pub(crate) base: u64,
}

/// Get Log Page (5.14).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GetLogPage {
    pub(crate) lid: u8,
    pub(crate) nsid: u32,
    /// Retain Asynchronous Event.
    pub(crate) retain: bool,
    pub(crate) bytes: u64,
    pub(crate) offset: u64,
}

/// Get Features (5.13) and Set Features (5.21).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Feature {
    pub(crate) fid: u8,
    pub(crate) nsid: u32,
    /// Set: Save. Get: unused.
    pub(crate) save: bool,
    /// Get: Select. Set: unused.
    pub(crate) select: u8,
    pub(crate) dword11: u32,
}

/// Format NVM (5.23).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Format {
    pub(crate) nsid: u32,
    pub(crate) lbaf: u8,
    /// Whether anything of metadata or protection information is asked for.
    pub(crate) metadata: bool,
    /// Secure Erase Settings.
    pub(crate) ses: u8,
}

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// Of the NVM command set, for a namespace.
    Io(u32, Io),
    /// Of the admin command set.
    Admin(Admin),
}

impl Command {
    /// Whether a failure of the medium is one of writing.
    pub(crate) fn writes(&self) -> bool {
        !matches!(self, Self::Io(_, Io::Read(_) | Io::Compare(_) | Io::Verify(_)))
    }
}

/// The NVM command set (6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Io {
    Flush,
    Read(Extent),
    Write(Extent),
    Compare(Extent),
    WriteZeroes { extent: Extent, deallocate: bool },
    DatasetManagement { ranges: u16, deallocate: bool },
    Verify(Extent),
}

impl Io {
    /// The blocks it is about, if it names them itself.
    pub(crate) fn extent(&self) -> Option<&Extent> {
        match self {
            Self::Read(extent)
            | Self::Write(extent)
            | Self::Compare(extent)
            | Self::WriteZeroes { extent, .. }
            | Self::Verify(extent) => Some(extent),
            Self::Flush | Self::DatasetManagement { .. } => None,
        }
    }
}

/// The admin command set (5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admin {
    DeleteSq { qid: u16 },
    CreateSq(CreateSq),
    GetLogPage(GetLogPage),
    DeleteCq { qid: u16 },
    CreateCq(CreateCq),
    Identify { cns: u8, cntid: u16, nsid: u32, csi: u8 },
    Abort { sqid: u16, cid: u16 },
    SetFeatures(Feature),
    GetFeatures(Feature),
    AsyncEventRequest,
    Format(Format),
}

fn check_common(sqe: &Sqe) -> Result<(), Status> {
    // FUSES is 0: no fused operations.
    if sqe.fuse() == 0 { Ok(()) } else { Err(Status::INVALID_FIELD) }
}

/// Parses an entry of an I/O Submission Queue.
pub(crate) fn parse_io(sqe: &Sqe) -> Result<Command, Status> {
    let extent = Extent {
        slba: sqe.qword(10),
        blocks: (sqe.dword(12) & 0xffff) + 1,
        fua: sqe.dword(12) & 1 << 30 != 0,
    };
    let io = match sqe.opcode() {
        nvm::FLUSH => Io::Flush,
        nvm::WRITE => Io::Write(extent),
        nvm::READ => Io::Read(extent),
        nvm::COMPARE => Io::Compare(extent),
        nvm::WRITE_ZEROES => Io::WriteZeroes { extent, deallocate: sqe.dword(12) & 1 << 25 != 0 },
        nvm::DATASET_MANAGEMENT => Io::DatasetManagement {
            ranges: (sqe.dword(10) & 0xff) as u16 + 1,
            deallocate: sqe.dword(11) & 1 << 2 != 0,
        },
        nvm::VERIFY => Io::Verify(extent),
        _ => return Err(Status::INVALID_OPCODE),
    };
    check_common(sqe)?;
    // SGLs of metadata: SGLS says no.
    if sqe.psdt() > 1 {
        return Err(Status::INVALID_FIELD);
    }
    Ok(Command::Io(sqe.nsid(), io))
}

/// Parses an entry of the Admin Submission Queue.
pub(crate) fn parse_admin(sqe: &Sqe) -> Result<Command, Status> {
    let (dword10, dword11) = (sqe.dword(10), sqe.dword(11));
    let low = dword10 as u16;
    let high = (dword10 >> 16) as u16;
    let feature = Feature {
        fid: dword10 as u8,
        nsid: sqe.nsid(),
        save: dword10 >> 31 != 0,
        select: (dword10 >> 8) as u8 & 7,
        dword11,
    };
    let admin = match sqe.opcode() {
        admin::DELETE_SQ => Admin::DeleteSq { qid: low },
        admin::CREATE_SQ => Admin::CreateSq(CreateSq {
            qid: low,
            size: high,
            contiguous: dword11 & 1 != 0,
            cqid: (dword11 >> 16) as u16,
            base: sqe.prp1(),
        }),
        admin::GET_LOG_PAGE => {
            let dwords = u64::from(dword10 >> 16) | u64::from(dword11 & 0xffff) << 16;
            Admin::GetLogPage(GetLogPage {
                lid: dword10 as u8,
                nsid: sqe.nsid(),
                retain: dword10 & 1 << 15 != 0,
                bytes: (dwords + 1) * 4,
                offset: sqe.qword(12),
            })
        }
        admin::DELETE_CQ => Admin::DeleteCq { qid: low },
        admin::CREATE_CQ => Admin::CreateCq(CreateCq {
            qid: low,
            size: high,
            contiguous: dword11 & 1 != 0,
            interrupts: dword11 & 2 != 0,
            vector: (dword11 >> 16) as u16,
            base: sqe.prp1(),
        }),
        admin::IDENTIFY => {
            Admin::Identify { cns: dword10 as u8, cntid: high, nsid: sqe.nsid(), csi: (dword11 >> 24) as u8 }
        }
        admin::ABORT => Admin::Abort { sqid: low, cid: high },
        admin::SET_FEATURES => Admin::SetFeatures(feature),
        admin::GET_FEATURES => Admin::GetFeatures(feature),
        admin::ASYNC_EVENT_REQUEST => Admin::AsyncEventRequest,
        admin::FORMAT_NVM => Admin::Format(Format {
            nsid: sqe.nsid(),
            lbaf: dword10 as u8 & 15,
            metadata: dword10 & 0x1f0 != 0,
            ses: (dword10 >> 9) as u8 & 7,
        }),
        _ => return Err(Status::INVALID_OPCODE),
    };
    check_common(sqe)?;
    // Over PCIe, admin commands use PRPs (4.2, Figure 105: PSDT).
    if sqe.psdt() != 0 {
        return Err(Status::INVALID_FIELD);
    }
    Ok(Command::Admin(admin))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sqe(dwords: &[(usize, u32)]) -> Sqe {
        let mut bytes = [0; SQE_BYTES];
        for (at, value) in dwords {
            bytes[at * 4..at * 4 + 4].copy_from_slice(&value.to_le_bytes());
        }
        Sqe(bytes)
    }

    fn admin(dwords: &[(usize, u32)]) -> Admin {
        match parse_admin(&sqe(dwords)).unwrap() {
            Command::Admin(admin) => admin,
            Command::Io(..) => unreachable!(),
        }
    }

    #[test]
    fn fields_of_the_entry_are_where_the_specification_puts_them() {
        let entry = sqe(&[(0, 0xbeef_4102), (1, 0x1122_3344), (6, 0x5000), (7, 0x1), (8, 0x6000), (9, 0x2)]);
        assert_eq!(entry.opcode(), 2);
        assert_eq!((entry.fuse(), entry.psdt()), (1, 1));
        assert_eq!((entry.cid(), entry.nsid()), (0xbeef, 0x1122_3344));
        assert_eq!((entry.prp1(), entry.prp2()), (0x1_0000_5000, 0x2_0000_6000));
        assert_eq!(entry.sgl1()[..4], [0, 0x50, 0, 0]);
    }

    #[test]
    fn reads_and_writes_have_a_64_bit_address_a_count_from_0_and_fua_in_bit_30() {
        let entry = [(0, 0x01), (1, 5), (10, 0x89ab_cdef), (11, 0x0123_4567), (12, 0x4000_ffff)];
        let extent = Extent { slba: 0x0123_4567_89ab_cdef, blocks: 65536, fua: true };
        assert_eq!(parse_io(&sqe(&entry)), Ok(Command::Io(5, Io::Write(extent))));
        let entry = [(0, 0x02), (1, 5), (10, 7)];
        assert_eq!(
            parse_io(&sqe(&entry)),
            Ok(Command::Io(5, Io::Read(Extent { slba: 7, blocks: 1, fua: false })))
        );
    }

    #[test]
    fn dataset_management_counts_ranges_from_0_and_write_zeroes_has_deac_in_bit_25() {
        let entry = [(0, 0x09), (1, 1), (10, 255), (11, 4)];
        let dsm = Io::DatasetManagement { ranges: 256, deallocate: true };
        assert_eq!(parse_io(&sqe(&entry)), Ok(Command::Io(1, dsm)));
        let entry = [(0, 0x08), (1, 1), (12, 1 << 25 | 1)];
        let extent = Extent { slba: 0, blocks: 2, fua: false };
        assert_eq!(parse_io(&sqe(&entry)), Ok(Command::Io(1, Io::WriteZeroes { extent, deallocate: true })));
    }

    #[test]
    fn queue_commands_have_id_size_vector_and_flags() {
        let entry = [(0, 0x05), (6, 0x1000), (10, 0x03ff_0001), (11, 0x0007_0003)];
        let cq = CreateCq { qid: 1, size: 1023, contiguous: true, interrupts: true, vector: 7, base: 0x1000 };
        assert_eq!(admin(&entry), Admin::CreateCq(cq));
        let entry = [(0, 0x01), (6, 0x2000), (10, 0x00ff_0002), (11, 0x0001_0001)];
        let sq = CreateSq { qid: 2, size: 255, contiguous: true, cqid: 1, base: 0x2000 };
        assert_eq!(admin(&entry), Admin::CreateSq(sq));
        assert_eq!(admin(&[(0, 0x00), (10, 9)]), Admin::DeleteSq { qid: 9 });
        assert_eq!(admin(&[(0, 0x08), (10, 0x0005_0003)]), Admin::Abort { sqid: 3, cid: 5 });
    }

    #[test]
    fn get_log_page_has_a_32_bit_dword_count_and_a_64_bit_offset() {
        let entry = [(0, 0x02), (1, NSID), (10, 0xffff_8002), (11, 0x0001), (12, 0x200), (13, 1)];
        let page = GetLogPage { lid: 2, nsid: NSID, retain: true, bytes: 0x20000 * 4, offset: 0x1_0000_0200 };
        assert_eq!(admin(&entry), Admin::GetLogPage(page));
        const NSID: u32 = 0xffff_ffff;
    }

    #[test]
    fn format_and_features_take_their_fields_apart() {
        let entry = [(0, 0x80), (1, 1), (10, 1 << 9 | 1)];
        assert_eq!(admin(&entry), Admin::Format(Format { nsid: 1, lbaf: 1, metadata: false, ses: 1 }));
        let entry = [(0, 0x0a), (10, 0x0000_0306)];
        let feature = Feature { fid: 6, nsid: 0, save: false, select: 3, dword11: 0 };
        assert_eq!(admin(&entry), Admin::GetFeatures(feature));
        let entry = [(0, 0x09), (10, 0x8000_0006), (11, 1)];
        let feature = Feature { fid: 6, nsid: 0, save: true, select: 0, dword11: 1 };
        assert_eq!(admin(&entry), Admin::SetFeatures(feature));
    }

    #[test]
    fn what_we_have_not_said_we_can_do_is_refused() {
        assert_eq!(parse_io(&sqe(&[(0, 0x04)])), Err(Status::INVALID_OPCODE));
        assert_eq!(parse_admin(&sqe(&[(0, 0x10)])), Err(Status::INVALID_OPCODE), "Firmware Commit");
        assert_eq!(parse_admin(&sqe(&[(0, 0x7c)])), Err(Status::INVALID_OPCODE), "Doorbell Buffer Config");
        assert_eq!(parse_io(&sqe(&[(0, 0x0102)])), Err(Status::INVALID_FIELD), "fused");
        assert_eq!(parse_io(&sqe(&[(0, 0x8002)])), Err(Status::INVALID_FIELD), "SGL of metadata");
        assert_eq!(parse_admin(&sqe(&[(0, 0x4006)])), Err(Status::INVALID_FIELD), "SGL in an admin command");
    }
}
