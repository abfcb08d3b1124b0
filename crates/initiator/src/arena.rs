//! The memory of this process that a device reaches by DMA: allocated and touched at the start, and nothing but it.

/// The address by which a device knows the first byte. Below 4 GiB, where headers of TLPs are the short ones, and not 0,
/// which is what a pointer that was never set holds.
pub(crate) const BASE: u64 = 0x1000_0000;
/// A memory page of the machine, so that a page of the device is one of ours.
const ALIGNMENT: usize = 4096;

/// The memory.
#[derive(Debug)]
pub(crate) struct Arena {
    bytes: Vec<u8>,
    /// Where the first aligned byte is.
    start: usize,
    length: usize,
}

impl Arena {
    /// `length` bytes of zeros.
    pub(crate) fn new(length: usize) -> Self {
        // Ones first: memory that was never written costs a fault at its first use.
        let mut bytes = vec![1; length + ALIGNMENT];
        bytes.fill(0);
        let start = bytes.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        Self { bytes, start, length }
    }

    /// The address by which the device knows the byte at `offset`.
    pub(crate) fn address(offset: usize) -> u64 {
        BASE + offset as u64
    }

    /// `bytes` bytes from `offset` on: a place that was laid out here.
    #[inline]
    pub(crate) fn at(&self, offset: usize, bytes: usize) -> &[u8] {
        &self.bytes[self.start + offset..self.start + offset + bytes]
    }

    /// The same, to be written.
    #[inline]
    pub(crate) fn at_mut(&mut self, offset: usize, bytes: usize) -> &mut [u8] {
        &mut self.bytes[self.start + offset..self.start + offset + bytes]
    }

    /// What a device means by `bytes` bytes at `address`, if all of it is here.
    #[inline]
    fn offset(&self, address: u64, bytes: usize) -> Option<usize> {
        let offset = usize::try_from(address.checked_sub(BASE)?).ok()?;
        (offset <= self.length && bytes <= self.length - offset).then_some(offset)
    }

    /// A device reads. False if not all of it is here.
    #[inline]
    pub(crate) fn read(&self, address: u64, data: &mut [u8]) -> bool {
        let Some(offset) = self.offset(address, data.len()) else { return false };
        data.copy_from_slice(self.at(offset, data.len()));
        true
    }

    /// A device writes. False, and nothing is written, if not all of it is here.
    #[inline]
    pub(crate) fn write(&mut self, address: u64, data: &[u8]) -> bool {
        let Some(offset) = self.offset(address, data.len()) else { return false };
        self.at_mut(offset, data.len()).copy_from_slice(data);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_reaches_all_of_it_and_nothing_else() {
        let mut arena = Arena::new(8192);
        assert!(arena.write(BASE, &[1; 8192]) && arena.write(BASE + 8191, &[2]));
        let mut data = [0; 2];
        assert!(arena.read(BASE + 8190, &mut data));
        assert_eq!(data, [1, 2]);
        for (address, bytes) in [(BASE - 1, 1), (BASE + 8191, 2), (BASE + 8192, 1), (0, 1), (u64::MAX, 2)] {
            assert!(!arena.write(address, &vec![3; bytes]), "{address:#x}");
            assert!(!arena.read(address, &mut vec![3; bytes]), "{address:#x}");
        }
        assert!(arena.at(0, 8191).iter().all(|&byte| byte == 1));
        assert_eq!(arena.at(0, 1).as_ptr().align_offset(4096), 0);
    }
}
