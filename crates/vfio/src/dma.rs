//! The address space of a Function: what of the process's memory it reaches, and at which addresses.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use vfio_bindings::bindings::vfio::{
    __IncompleteArrayField, VFIO_DMA_MAP_FLAG_READ, VFIO_DMA_MAP_FLAG_WRITE,
    VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE, vfio_iommu_type1_dma_map, vfio_iommu_type1_dma_unmap,
    vfio_iommu_type1_info,
};

use crate::PAGE_BYTES;
use crate::addresses::Addresses;
use crate::ioctl;

/// `VFIO_IOMMU_INFO_CAPS` of the flags of `VFIO_IOMMU_GET_INFO`.
const HAS_CAPABILITIES: u32 = 1 << 1;
/// A kernel that does not say which addresses there are has at least these: those of three levels of page tables, without those of
/// interrupts.
const ALWAYS: [(u64, u64); 2] = [(0, 0xFEDF_FFFF), (0xFEF0_0000, (1 << 39) - 1)];
/// What the kernel has to say about its IOMMU is not longer than this.
const INFO_BYTES: usize = 4096;

/// Why memory was not mapped.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    /// There are no bytes, or they end beyond the address space.
    #[error("there is nothing to map")]
    Empty,
    /// The Function's addresses are used up.
    #[error("no address is left for it")]
    NoAddress,
    /// The kernel refuses: the memory can't be locked (`ulimit -l`), is not the process's, or there are too many maps.
    #[error("the kernel refuses to map it: {0}")]
    Refused(#[from] io::Error),
}

#[derive(Debug)]
struct Container {
    fd: OwnedFd,
    addresses: Mutex<Addresses>,
}

impl Container {
    fn addresses(&self) -> MutexGuard<'_, Addresses> {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The address space of a Function. Copies are of the same.
#[derive(Clone, Debug)]
pub struct Dma(Arc<Container>);

impl Dma {
    /// Of a container that has its IOMMU.
    pub(crate) fn new(fd: OwnedFd) -> io::Result<Self> {
        let mut info = [0_u64; INFO_BYTES / 8];
        // The first word is argsz and flags.
        let mut first = [0; 8];
        first[..4].copy_from_slice(&(INFO_BYTES as u32).to_ne_bytes());
        info[0] = u64::from_ne_bytes(first);
        // SAFETY: aligned room for the structure and what follows it, whose length it says.
        unsafe { ioctl::structure(fd.as_fd(), ioctl::IOMMU_GET_INFO, &mut info)? };
        let bytes: Vec<u8> = info.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let ranges = ranges(&bytes).unwrap_or_else(|| ALWAYS.to_vec());
        Ok(Self(Arc::new(Container { fd, addresses: Mutex::new(Addresses::new(&ranges)) })))
    }

    /// Lets the Function read, and write if `is_writable`, memory of the process, by whole pages. The pages are locked until the
    /// [`Mapping`] is dropped.
    ///
    /// # Safety
    /// What the Function writes there is written behind the back of the language: until the mapping is dropped no reference points into
    /// the range but to atomics and cells, or the program expects it, as one does that has registered the memory for it.
    pub unsafe fn map(&self, address: *mut u8, bytes: usize, is_writable: bool) -> Result<Mapping, MapError> {
        let offset = address as u64 % PAGE_BYTES;
        let vaddr = address as u64 - offset;
        let size = offset
            .checked_add(bytes as u64)
            .filter(|_| bytes > 0)
            .and_then(|end| end.checked_next_multiple_of(PAGE_BYTES))
            .filter(|size| vaddr.checked_add(*size).is_some())
            .ok_or(MapError::Empty)?;
        let iova = self.0.addresses().take(size).ok_or(MapError::NoAddress)?;
        let write = if is_writable { VFIO_DMA_MAP_FLAG_WRITE } else { 0 };
        let mut map = vfio_iommu_type1_dma_map {
            argsz: size_of::<vfio_iommu_type1_dma_map>() as u32,
            flags: VFIO_DMA_MAP_FLAG_READ | write,
            vaddr,
            iova,
            size,
        };
        // SAFETY: the structure of this call.
        match unsafe { ioctl::structure(self.0.fd.as_fd(), ioctl::IOMMU_MAP_DMA, &mut map) } {
            Ok(_) => Ok(Mapping { container: Arc::clone(&self.0), iova, size, offset }),
            Err(error) => {
                self.0.addresses().give_back(iova, size);
                Err(error.into())
            }
        }
    }
}

/// Memory that the Function reaches, for as long as this lives.
#[derive(Debug)]
pub struct Mapping {
    container: Arc<Container>,
    iova: u64,
    size: u64,
    offset: u64,
}

impl Mapping {
    /// The address by which the Function knows the first byte.
    pub fn address(&self) -> u64 {
        self.iova + self.offset
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let mut unmap = vfio_iommu_type1_dma_unmap {
            argsz: size_of::<vfio_iommu_type1_dma_unmap>() as u32,
            flags: 0,
            iova: self.iova,
            size: self.size,
            data: __IncompleteArrayField::default(),
        };
        // SAFETY: the structure of this call.
        let done = unsafe { ioctl::structure(self.container.fd.as_fd(), ioctl::IOMMU_UNMAP_DMA, &mut unmap) };
        // What the kernel keeps is not to be given out again.
        if done.is_ok() {
            self.container.addresses().give_back(self.iova, self.size);
        }
    }
}

/// The ranges of addresses that an answer to `VFIO_IOMMU_GET_INFO` tells of.
fn ranges(info: &[u8]) -> Option<Vec<(u64, u64)>> {
    let u32_at = |at: usize| Some(u32::from_ne_bytes(*info.get(at..)?.first_chunk()?));
    let u64_at = |at: usize| Some(u64::from_ne_bytes(*info.get(at..)?.first_chunk()?));
    if u32_at(std::mem::offset_of!(vfio_iommu_type1_info, flags))? & HAS_CAPABILITIES == 0 {
        return None;
    }
    let mut at = u32_at(std::mem::offset_of!(vfio_iommu_type1_info, cap_offset))? as usize;
    // A chain of capabilities: id (16), version (16), offset of the next (32), then what it says.
    for _ in 0..64 {
        if at == 0 {
            break;
        }
        let (id, next) = (u32_at(at)? & 0xFFFF, u32_at(at + 4)? as usize);
        if id == VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE {
            let count = u32_at(at + 8)? as usize;
            return (0..count)
                .map(|number| Some((u64_at(at + 16 + number * 16)?, u64_at(at + 24 + number * 16)?)))
                .collect();
        }
        at = next;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    #[test]
    fn the_ranges_are_found_behind_other_capabilities() {
        // argsz, flags, page sizes, cap_offset, nothing; another capability; that of the ranges, and two of them.
        let parts: [&[u32]; 4] = [
            &[96, 3, 0, 0, 24, 0],
            &[0x1_0003, 40, 7, 0],
            &[0x1_0001, 0, 2, 0],
            &[0, 0, 0xFEDF_FFFF, 0, 0xFEF0_0000, 0, 0xFFFF_FFFF, 0x7F],
        ];
        let told = info(&parts.concat());
        // The first capability is at 24 and the next at 40.
        assert_eq!(ranges(&told), Some(vec![(0, 0xFEDF_FFFF), (0xFEF0_0000, (1 << 39) - 1)]));
        for length in 0..told.len() {
            assert_eq!(ranges(&told[..length]), None, "{length}");
        }
    }

    #[test]
    fn a_kernel_without_ranges_or_with_a_chain_that_has_no_end_tells_none() {
        assert_eq!(ranges(&info(&[24, 1, 0, 0, 24, 0])), None);
        assert_eq!(ranges(&info(&[32, 3, 0, 0, 24, 0, 0x1_0003, 24])), None);
        assert_eq!(ranges(&info(&[24, 3, 0, 0, 0, 0])), None);
    }
}
