//! What crosses between the kernel and us: `include/uapi/linux/ublk_cmd.h`.

use etherslot_initiator::DiskInfo;

/// Bytes of a sector: the unit of the kernel, whatever the blocks of the disk.
pub(crate) const SECTOR_BYTES: u64 = 512;
/// `struct ublksrv_io_desc`.
pub(crate) const DESCRIPTOR_BYTES: usize = 24;
/// `struct ublksrv_ctrl_dev_info`.
pub(crate) const INFO_BYTES: usize = 64;
/// `struct ublk_params` up to the end of its part of discards.
pub(crate) const PARAMETERS_BYTES: usize = 8 + 32 + 20;

/// `UBLK_F_CMD_IOCTL_ENCODE`, `UBLK_F_USER_COPY`.
pub(crate) const FEATURES: u64 = 1 << 6 | 1 << 7;

/// A command of `/dev/ublk-control`: the number of an ioctl that reads and writes `struct ublksrv_ctrl_cmd`.
const fn control(number: u32) -> u32 {
    ioctl(number, 32)
}

/// A command of a queue, with `struct ublksrv_io_cmd`.
const fn queue(number: u32) -> u32 {
    ioctl(number, 16)
}

/// `_IOWR('u', number, bytes)`.
const fn ioctl(number: u32, bytes: u32) -> u32 {
    3 << 30 | bytes << 16 | (b'u' as u32) << 8 | number
}

/// `UBLK_U_CMD_ADD_DEV` and so on.
pub(crate) const ADD_DEV: u32 = control(0x04);
pub(crate) const DEL_DEV: u32 = control(0x05);
pub(crate) const START_DEV: u32 = control(0x06);
pub(crate) const STOP_DEV: u32 = control(0x07);
pub(crate) const SET_PARAMS: u32 = control(0x08);
/// `UBLK_U_IO_FETCH_REQ`, `UBLK_U_IO_COMMIT_AND_FETCH_REQ`.
pub(crate) const FETCH_REQ: u32 = queue(0x20);
pub(crate) const COMMIT_AND_FETCH_REQ: u32 = queue(0x21);

/// `UBLKSRV_IO_BUF_OFFSET`: from here on the data of requests is, `1 << TAG_SHIFT` bytes for each Tag.
const DATA_OFFSET: u64 = 0x8000_0000;
/// `UBLK_TAG_OFF`.
const TAG_SHIFT: u32 = 25;
/// A device that has no number yet.
pub(crate) const ANY_DEVICE: u32 = u32::MAX;
/// No queue in particular.
const NO_QUEUE: u16 = u16::MAX;

/// `UBLK_PARAM_TYPE_BASIC`, `UBLK_PARAM_TYPE_DISCARD`.
const BASIC: u32 = 1;
const DISCARD: u32 = 2;
/// `UBLK_ATTR_READ_ONLY`, `UBLK_ATTR_VOLATILE_CACHE`, `UBLK_ATTR_FUA`.
const READ_ONLY: u32 = 1;
const VOLATILE_CACHE: u32 = 1 << 2;
const FUA: u32 = 1 << 3;

/// `UBLK_IO_F_FUA`, `UBLK_IO_F_NOUNMAP`, in `op_flags`.
const IO_FUA: u32 = 1 << 13;
const IO_NOUNMAP: u32 = 1 << 15;

/// Where the data of a request is, as an offset of the queue's file.
pub(crate) fn data_offset(tag: u16) -> u64 {
    DATA_OFFSET + (u64::from(tag) << TAG_SHIFT)
}

/// `struct ublksrv_ctrl_cmd`, at the start of the 80 bytes that a long entry of the ring has for it. `bytes` bytes at `address` belong to
/// the command.
pub(crate) fn control_command(device: u32, address: u64, bytes: u16, data: u64) -> [u8; 80] {
    let mut command = [0; 80];
    command[..4].copy_from_slice(&device.to_ne_bytes());
    command[4..6].copy_from_slice(&NO_QUEUE.to_ne_bytes());
    command[6..8].copy_from_slice(&bytes.to_ne_bytes());
    command[8..16].copy_from_slice(&address.to_ne_bytes());
    command[16..24].copy_from_slice(&data.to_ne_bytes());
    command
}

/// `struct ublksrv_io_cmd` of the only queue. With `UBLK_F_USER_COPY` there is no address.
pub(crate) fn queue_command(tag: u16, result: i32) -> [u8; 16] {
    let mut command = [0; 16];
    command[2..4].copy_from_slice(&tag.to_ne_bytes());
    command[4..8].copy_from_slice(&result.to_ne_bytes());
    command
}

/// `struct ublksrv_ctrl_dev_info` of a device with one queue.
pub(crate) fn device_info(depth: u16, most_bytes: u32) -> [u8; INFO_BYTES] {
    let mut info = [0; INFO_BYTES];
    info[..2].copy_from_slice(&1_u16.to_ne_bytes());
    info[2..4].copy_from_slice(&depth.to_ne_bytes());
    info[8..12].copy_from_slice(&most_bytes.to_ne_bytes());
    info[12..16].copy_from_slice(&ANY_DEVICE.to_ne_bytes());
    info[24..32].copy_from_slice(&FEATURES.to_ne_bytes());
    info
}

/// The number that the kernel has given, the depth and the features that it grants.
pub(crate) fn granted(info: &[u8; INFO_BYTES]) -> (u32, u16, u64) {
    let four = |at: usize| u32::from_ne_bytes([info[at], info[at + 1], info[at + 2], info[at + 3]]);
    let features = u64::from(four(24)) | u64::from(four(28)) << 32;
    (four(12), u16::from_ne_bytes([info[2], info[3]]), features)
}

/// `struct ublk_params` of a disk.
pub(crate) fn parameters(info: &DiskInfo, read_only: bool, most_bytes: u32) -> [u8; PARAMETERS_BYTES] {
    let sectors = |bytes: u64| u32::try_from(bytes / SECTOR_BYTES).unwrap_or(u32::MAX >> 1);
    let blocks = |can: bool, count: u32| {
        if can { sectors(u64::from(count) * u64::from(info.block_bytes)) } else { 0 }
    };
    let mut attributes = 0;
    if read_only || info.read_only {
        attributes |= READ_ONLY;
    }
    if info.volatile_cache {
        attributes |= VOLATILE_CACHE | FUA;
    }
    let mut all = [0; PARAMETERS_BYTES];
    let words = [
        (0, PARAMETERS_BYTES as u32),
        (4, BASIC | DISCARD),
        (8, attributes),
        // max_sectors.
        (16, sectors(most_bytes.into())),
        // discard_granularity, without which the kernel takes nothing of discards; max_discard_sectors, max_write_zeroes_sectors.
        (44, info.block_bytes),
        (48, blocks(info.can_discard, info.max_discard_blocks)),
        (52, blocks(info.can_write_zeroes, info.max_zero_blocks)),
    ];
    for (at, word) in words {
        all[at..at + 4].copy_from_slice(&u32::to_ne_bytes(word));
    }
    // max_discard_segments: the kernel takes no other number.
    all[56..58].copy_from_slice(&1_u16.to_ne_bytes());
    // logical_bs_shift, physical_bs_shift, io_opt_shift, io_min_shift.
    all[12..16].fill(info.block_bytes.trailing_zeros() as u8);
    all[24..32].copy_from_slice(&(info.bytes() / SECTOR_BYTES).to_ne_bytes());
    all
}

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// `UBLK_IO_OP_READ`.
    Read,
    /// `UBLK_IO_OP_WRITE`; `durable`: with `UBLK_IO_F_FUA`.
    Write {
        /// Done only when it would outlive a loss of power.
        durable: bool,
    },
    /// `UBLK_IO_OP_FLUSH`.
    Flush,
    /// `UBLK_IO_OP_DISCARD`.
    Discard,
    /// `UBLK_IO_OP_WRITE_ZEROES`; `unmap`: without `UBLK_IO_F_NOUNMAP`.
    WriteZeroes {
        /// Whether the space may be given back.
        unmap: bool,
    },
    /// Anything else, by its number.
    Unknown(u8),
}

/// A request of the kernel, `struct ublksrv_io_desc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// By which it is answered.
    pub tag: u16,
    /// What is asked for.
    pub operation: Operation,
    /// Its range, in sectors of 512 bytes.
    pub first_sector: u64,
    /// Its length, in sectors.
    pub sectors: u32,
}

impl Request {
    pub(crate) fn new(tag: u16, descriptor: &[u8; DESCRIPTOR_BYTES]) -> Self {
        let four = |at: usize| {
            u32::from_ne_bytes([descriptor[at], descriptor[at + 1], descriptor[at + 2], descriptor[at + 3]])
        };
        let flags = four(0);
        let operation = match flags as u8 {
            0 => Operation::Read,
            1 => Operation::Write { durable: flags & IO_FUA != 0 },
            2 => Operation::Flush,
            3 => Operation::Discard,
            5 => Operation::WriteZeroes { unmap: flags & IO_NOUNMAP == 0 },
            other => Operation::Unknown(other),
        };
        Self {
            tag,
            operation,
            first_sector: u64::from(four(8)) | u64::from(four(12)) << 32,
            sectors: four(4),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherslot_initiator::{Disk as _, MemoryDisk};

    #[test]
    fn commands_have_the_numbers_of_the_kernels_header() {
        assert_eq!((ADD_DEV, SET_PARAMS), (0xc020_7504, 0xc020_7508));
        assert_eq!((FETCH_REQ, COMMIT_AND_FETCH_REQ), (0xc010_7520, 0xc010_7521));
        assert_eq!(data_offset(3), 0x8000_0000 + 3 * (32 << 20));
    }

    #[test]
    fn fields_lie_where_the_kernel_looks_for_them() {
        let command = control_command(7, 0x1122_3344_5566_7788, 64, 9);
        assert_eq!(command[..8], [7, 0, 0, 0, 0xff, 0xff, 64, 0]);
        assert_eq!(command[8..17], [0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 9]);
        assert_eq!(queue_command(5, -5)[..8], [0, 0, 5, 0, 0xfb, 0xff, 0xff, 0xff]);
        let info = device_info(128, 0x4_0000);
        assert_eq!(info[..16], [1, 0, 128, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(granted(&info), (u32::MAX, 128, FEATURES));
    }

    #[test]
    fn parameters_tell_what_the_disk_can_do() {
        let mut disk = MemoryDisk::new(4096, 256, 32, &[]);
        disk.info_mut().max_discard_blocks = 8;
        let all = parameters(disk.info(), false, 0x4_0000);
        let four = |at: usize| u32::from_ne_bytes(all[at..at + 4].try_into().unwrap());
        assert_eq!((four(0), four(4), four(8)), (60, 3, VOLATILE_CACHE | FUA));
        assert_eq!((all[12], all[15], four(16)), (12, 12, 512));
        assert_eq!((four(24), four(28)), (2048, 0), "dev_sectors");
        assert_eq!((four(44), four(48), four(52), all[56]), (4096, 64, 1 << 19, 1));
        let read_only = parameters(disk.info(), true, 0x4_0000);
        assert_eq!(read_only[8], all[8] | 1);
    }

    #[test]
    fn a_descriptor_is_a_request() {
        let mut descriptor = [0; DESCRIPTOR_BYTES];
        descriptor[..4].copy_from_slice(&(1_u32 | IO_FUA).to_ne_bytes());
        descriptor[4] = 8;
        descriptor[8] = 16;
        descriptor[12] = 1;
        let request = Request::new(3, &descriptor);
        let first_sector = 16 | 1 << 32;
        let operation = Operation::Write { durable: true };
        assert_eq!(request, Request { tag: 3, operation, first_sector, sectors: 8 });
        for (word, operation) in [
            (5, Operation::WriteZeroes { unmap: true }),
            (5 | IO_NOUNMAP, Operation::WriteZeroes { unmap: false }),
            (4, Operation::Unknown(4)),
        ] {
            descriptor[..4].copy_from_slice(&word.to_ne_bytes());
            assert_eq!(Request::new(3, &descriptor).operation, operation);
        }
    }
}
