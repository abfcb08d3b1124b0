//! Commands as bytes: what a client sends.

use super::request::{MAP_READ, MAP_WRITE, UNMAP_ALL};
use super::{IrqAction, IrqData, Request, SetIrqs, command};

/// The fields of DMA_UNMAP, both ways.
pub fn unmap_fields(argsz: u32, all: bool, address: u64, bytes: u64) -> [u8; 24] {
    let mut fields = [0; 24];
    fields[0..4].copy_from_slice(&argsz.to_ne_bytes());
    fields[4..8].copy_from_slice(&if all { UNMAP_ALL } else { 0 }.to_ne_bytes());
    fields[8..16].copy_from_slice(&address.to_ne_bytes());
    fields[16..24].copy_from_slice(&bytes.to_ne_bytes());
    fields
}

impl Request<'_> {
    /// The command's number; 0, which is none, for [`Request::Unknown`].
    pub fn command(&self) -> u16 {
        match self {
            Self::Version(_) => command::VERSION,
            Self::DmaMap { .. } => command::DMA_MAP,
            Self::DmaUnmap { .. } => command::DMA_UNMAP,
            Self::GetInfo => command::DEVICE_GET_INFO,
            Self::GetRegionInfo { .. } => command::DEVICE_GET_REGION_INFO,
            Self::GetRegionIoFds { .. } => command::DEVICE_GET_REGION_IO_FDS,
            Self::GetIrqInfo { .. } => command::DEVICE_GET_IRQ_INFO,
            Self::SetIrqs(_) => command::DEVICE_SET_IRQS,
            Self::RegionRead { .. } => command::REGION_READ,
            Self::RegionWrite { .. } => command::REGION_WRITE,
            Self::RegionWriteMulti(_) => command::REGION_WRITE_MULTI,
            Self::DeviceReset => command::DEVICE_RESET,
            Self::Unknown => 0,
        }
    }

    /// Appends the body to `body`.
    pub fn encode(&self, body: &mut Vec<u8>) {
        let mut words = |values: &[u32]| body.extend(values.iter().flat_map(|value| value.to_ne_bytes()));
        match *self {
            Self::Version(ref version) => body.extend(version.encode()),
            Self::DmaMap { readable, writable, offset, address, bytes } => {
                let read = if readable { MAP_READ } else { 0 };
                let write = if writable { MAP_WRITE } else { 0 };
                words(&[32, read | write]);
                body.extend([offset, address, bytes].iter().flat_map(|value| value.to_ne_bytes()));
            }
            Self::DmaUnmap { argsz, all, address, bytes } => {
                body.extend(unmap_fields(argsz, all, address, bytes));
            }
            Self::GetInfo => words(&[16, 0, 0, 0]),
            Self::GetRegionInfo { index } => words(&[32, 0, index, 0, 0, 0, 0, 0]),
            Self::GetRegionIoFds { index } | Self::GetIrqInfo { index } => words(&[16, 0, index, 0]),
            Self::SetIrqs(SetIrqs { action, data, index, start, count }) => {
                let flag = match action {
                    IrqAction::Mask => SetIrqs::ACTION_MASK,
                    IrqAction::Unmask => SetIrqs::ACTION_UNMASK,
                    IrqAction::Trigger => SetIrqs::ACTION_TRIGGER,
                };
                let (kind, booleans) = match data {
                    IrqData::None => (SetIrqs::DATA_NONE, &[][..]),
                    IrqData::Bool(booleans) => (SetIrqs::DATA_BOOL, booleans),
                    IrqData::Eventfd => (SetIrqs::DATA_EVENTFD, &[][..]),
                };
                let argsz = SetIrqs::FIXED_BYTES + booleans.len() as u32;
                words(&[argsz, flag | kind, index, start, count]);
                body.extend(booleans);
            }
            Self::RegionRead { offset, region, count } => {
                body.extend(offset.to_ne_bytes());
                body.extend([region, count].iter().flat_map(|value| value.to_ne_bytes()));
            }
            Self::RegionWrite { offset, region, data } => {
                body.extend(offset.to_ne_bytes());
                body.extend([region, data.len() as u32].iter().flat_map(|value| value.to_ne_bytes()));
                body.extend(data);
            }
            Self::RegionWriteMulti(writes) => {
                body.extend((writes.count() as u64).to_ne_bytes());
                body.extend(writes.bytes());
            }
            Self::DeviceReset | Self::Unknown => {}
        }
    }
}
