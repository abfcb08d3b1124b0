//! The bodies of commands.

use super::bytes::Reader;
use super::{Header, MAX_MULTI_WRITES, MULTI_WRITE_BYTES, Version, command};

/// A command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// VERSION.
    Version(Version),
    /// DMA_MAP; the file, if any, is the message's file descriptor.
    DmaMap {
        /// The device may read.
        readable: bool,
        /// The device may write.
        writable: bool,
        /// Where in the file.
        offset: u64,
        /// The first DMA address.
        address: u64,
        /// How many.
        bytes: u64,
    },
    /// DMA_UNMAP.
    DmaUnmap {
        /// The client's argsz, which the reply repeats.
        argsz: u32,
        /// Everything, whatever the range.
        all: bool,
        /// The first DMA address.
        address: u64,
        /// How many.
        bytes: u64,
    },
    /// DEVICE_GET_INFO.
    GetInfo,
    /// DEVICE_GET_REGION_INFO.
    GetRegionInfo {
        /// The region.
        index: u32,
    },
    /// DEVICE_GET_REGION_IO_FDS.
    GetRegionIoFds {
        /// The region.
        index: u32,
    },
    /// DEVICE_GET_IRQ_INFO.
    GetIrqInfo {
        /// The interrupt type.
        index: u32,
    },
    /// DEVICE_SET_IRQS.
    SetIrqs(SetIrqs<'a>),
    /// REGION_READ.
    RegionRead {
        /// Where in the region.
        offset: u64,
        /// The region.
        region: u32,
        /// How many bytes.
        count: u32,
    },
    /// REGION_WRITE.
    RegionWrite {
        /// Where in the region.
        offset: u64,
        /// The region.
        region: u32,
        /// What.
        data: &'a [u8],
    },
    /// REGION_WRITE_MULTI.
    RegionWriteMulti(WriteMulti<'a>),
    /// DEVICE_RESET.
    DeviceReset,
    /// A command that is not served.
    Unknown,
}

/// What SET_IRQS does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IrqAction {
    /// Masks.
    Mask,
    /// Unmasks.
    Unmask,
    /// Triggers, or says how the server is to trigger.
    Trigger,
}

/// To which interrupts of the range SET_IRQS does it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IrqData<'a> {
    /// To all.
    None,
    /// To those whose byte is not 0; one byte for each of the range.
    Bool(&'a [u8]),
    /// To each when its eventfd is signalled, or the other way round for [`IrqAction::Trigger`]; the message carries one for
    /// each, or none to take them away.
    Eventfd,
}

/// The body of SET_IRQS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetIrqs<'a> {
    /// What.
    pub action: IrqAction,
    /// To which, how.
    pub data: IrqData<'a>,
    /// The interrupt type.
    pub index: u32,
    /// The first of the range.
    pub start: u32,
    /// The length of the range.
    pub count: u32,
}

impl SetIrqs<'_> {
    pub(super) const FIXED_BYTES: u32 = 20;
    pub(super) const DATA_NONE: u32 = 1 << 0;
    pub(super) const DATA_BOOL: u32 = 1 << 1;
    pub(super) const DATA_EVENTFD: u32 = 1 << 2;
    pub(super) const ACTION_MASK: u32 = 1 << 3;
    pub(super) const ACTION_UNMASK: u32 = 1 << 4;
    pub(super) const ACTION_TRIGGER: u32 = 1 << 5;
}

/// One write of REGION_WRITE_MULTI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteOne {
    /// Where in the region.
    pub offset: u64,
    /// The region.
    pub region: u32,
    count: u8,
    data: [u8; 8],
}

impl WriteOne {
    /// A write of `data`; `None` unless it is 1 to 8 bytes.
    pub fn new(region: u32, offset: u64, data: &[u8]) -> Option<Self> {
        let mut bytes = [0; 8];
        bytes.get_mut(..data.len())?.copy_from_slice(data);
        (!data.is_empty()).then_some(Self { offset, region, count: data.len() as u8, data: bytes })
    }

    /// Encodes it, as a part of REGION_WRITE_MULTI.
    pub fn encode(&self) -> [u8; MULTI_WRITE_BYTES] {
        let mut bytes = [0; MULTI_WRITE_BYTES];
        bytes[0..8].copy_from_slice(&self.offset.to_ne_bytes());
        bytes[8..12].copy_from_slice(&self.region.to_ne_bytes());
        bytes[12..16].copy_from_slice(&u32::from(self.count).to_ne_bytes());
        bytes[16..24].copy_from_slice(&self.data);
        bytes
    }

    /// What: 1 to 8 bytes.
    pub fn data(&self) -> &[u8] {
        &self.data[..self.count as usize]
    }
}

/// The body of REGION_WRITE_MULTI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteMulti<'a> {
    /// Whole writes, at most [`MAX_MULTI_WRITES`].
    writes: &'a [u8],
}

impl<'a> WriteMulti<'a> {
    /// Of writes that are encoded; `None` if there are too many or one is not whole.
    pub fn new(writes: &'a [u8]) -> Option<Self> {
        let whole = writes.len().is_multiple_of(MULTI_WRITE_BYTES);
        (whole && writes.len() <= MAX_MULTI_WRITES * MULTI_WRITE_BYTES).then_some(Self { writes })
    }

    pub(super) fn bytes(&self) -> &'a [u8] {
        self.writes
    }

    /// How many writes.
    pub fn count(&self) -> usize {
        self.writes.len() / MULTI_WRITE_BYTES
    }

    /// The writes from the one numbered `from` on; `None` in the place of one whose length is not 1 to 8.
    pub fn writes(&self, from: usize) -> impl Iterator<Item = Option<WriteOne>> + 'a {
        self.writes.chunks_exact(MULTI_WRITE_BYTES).skip(from).map(|write| {
            let mut reader = Reader(write);
            let (offset, region, count) = (reader.u64()?, reader.u32()?, reader.u32()?);
            let count = u8::try_from(count).ok().filter(|count| (1..=8).contains(count))?;
            Some(WriteOne { offset, region, count, data: reader.take()? })
        })
    }
}

/// VFIO_DMA_MAP_FLAG_READ, VFIO_DMA_MAP_FLAG_WRITE.
pub(super) const MAP_READ: u32 = 1 << 0;
pub(super) const MAP_WRITE: u32 = 1 << 1;
/// VFIO_DMA_UNMAP_FLAG_ALL.
pub(super) const UNMAP_ALL: u32 = 1 << 1;

impl<'a> Request<'a> {
    /// Decodes the body that follows `header`; `None` if its length or its fixed values are wrong.
    pub fn parse(header: &Header, body: &'a [u8]) -> Option<Self> {
        let mut reader = Reader(body);
        Some(match header.command {
            command::VERSION => Self::Version(Version::parse(body)?),
            command::DMA_MAP => {
                let (_argsz, flags) = (reader.u32()?, reader.u32()?);
                if flags & !(MAP_READ | MAP_WRITE) != 0 {
                    return None;
                }
                Self::DmaMap {
                    readable: flags & MAP_READ != 0,
                    writable: flags & MAP_WRITE != 0,
                    offset: reader.u64()?,
                    address: reader.u64()?,
                    bytes: reader.u64()?,
                }
            }
            command::DMA_UNMAP => {
                let (argsz, flags) = (reader.u32()?, reader.u32()?);
                if flags & !UNMAP_ALL != 0 {
                    return None;
                }
                let (address, bytes) = (reader.u64()?, reader.u64()?);
                Self::DmaUnmap { argsz, all: flags & UNMAP_ALL != 0, address, bytes }
            }
            command::DEVICE_GET_INFO => {
                Self::arguments(&mut reader, 16)?;
                Self::GetInfo
            }
            command::DEVICE_GET_REGION_INFO => {
                Self::GetRegionInfo { index: Self::arguments(&mut reader, 32)? }
            }
            command::DEVICE_GET_REGION_IO_FDS => {
                Self::GetRegionIoFds { index: Self::arguments(&mut reader, 16)? }
            }
            command::DEVICE_GET_IRQ_INFO => Self::GetIrqInfo { index: Self::arguments(&mut reader, 16)? },
            command::DEVICE_SET_IRQS => Self::SetIrqs(SetIrqs::parse(reader)?),
            command::REGION_READ => {
                Self::RegionRead { offset: reader.u64()?, region: reader.u32()?, count: reader.u32()? }
            }
            command::REGION_WRITE => {
                let (offset, region, count) = (reader.u64()?, reader.u32()?, reader.u32()?);
                let data = reader.rest();
                if data.len() as u64 != u64::from(count) {
                    return None;
                }
                Self::RegionWrite { offset, region, data }
            }
            command::REGION_WRITE_MULTI => {
                let count = usize::try_from(reader.u64()?).ok().filter(|&count| count <= MAX_MULTI_WRITES)?;
                Self::RegionWriteMulti(WriteMulti { writes: reader.rest().get(..count * MULTI_WRITE_BYTES)? })
            }
            command::DEVICE_RESET => Self::DeviceReset,
            _ => Self::Unknown,
        })
    }

    /// Checks that the client has room for a reply of `bytes`, and returns the index asked for (0 if the body ends before).
    fn arguments(reader: &mut Reader<'_>, bytes: u32) -> Option<u32> {
        let argsz = reader.u32()?;
        let _flags = reader.u32()?;
        (argsz >= bytes).then(|| reader.u32())?
    }
}

impl<'a> SetIrqs<'a> {
    fn parse(mut reader: Reader<'a>) -> Option<Self> {
        let (argsz, flags) = (reader.u32()?, reader.u32()?);
        let (index, start, count) = (reader.u32()?, reader.u32()?, reader.u32()?);
        if argsz < SetIrqs::FIXED_BYTES {
            return None;
        }
        let data_flags = SetIrqs::DATA_NONE | SetIrqs::DATA_BOOL | SetIrqs::DATA_EVENTFD;
        let data = match flags & data_flags {
            SetIrqs::DATA_NONE => IrqData::None,
            SetIrqs::DATA_BOOL => IrqData::Bool(reader.rest().get(..usize::try_from(count).ok()?)?),
            SetIrqs::DATA_EVENTFD => IrqData::Eventfd,
            _ => return None,
        };
        let action = match flags & !data_flags {
            SetIrqs::ACTION_MASK => IrqAction::Mask,
            SetIrqs::ACTION_UNMASK => IrqAction::Unmask,
            SetIrqs::ACTION_TRIGGER => IrqAction::Trigger,
            _ => return None,
        };
        Some(Self { action, data, index, start, count })
    }
}
