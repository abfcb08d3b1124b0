//! A guest's memory, and what a device may do with each page of it now.

use crate::random::Random;

/// Bytes of a page.
pub(crate) const PAGE_BYTES: usize = 4096;
/// What a buffer for reading is filled with beforehand.
pub(crate) const POISON: u8 = 0xA5;

/// What the device may do with a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grant {
    /// Nothing.
    None,
    /// Read all of it: a submission queue.
    Fetch,
    /// Read and write all of it: a command list.
    Share,
    /// Write all of it: the completion queue of this number.
    Post(u16),
    /// Read these bytes.
    Read(u16, u16),
    /// Write these bytes.
    Write(u16, u16),
}

/// A piece of a buffer, within one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Address in the guest.
    pub(crate) address: u64,
    /// Bytes.
    pub(crate) bytes: usize,
}

/// The memory.
pub(crate) struct Memory {
    base: u64,
    bytes: Vec<u8>,
    grants: Vec<Grant>,
    /// Pages that nobody uses, in random order: neighbours in a buffer are not neighbours in memory.
    free: Vec<u32>,
}

impl Memory {
    /// `pages` pages from address `base` on.
    pub(crate) fn new(base: u64, pages: usize, random: &mut Random) -> Self {
        let mut free: Vec<u32> = (0..pages as u32).collect();
        random.shuffle(&mut free);
        Self { base, bytes: vec![0; pages * PAGE_BYTES], grants: vec![Grant::None; pages], free }
    }

    /// Pages that can be allocated.
    pub(crate) fn free_pages(&self) -> usize {
        self.free.len()
    }

    /// Takes a page; its address.
    pub(crate) fn allocate(&mut self) -> Option<u64> {
        self.free.pop().map(|page| self.base + u64::from(page) * PAGE_BYTES as u64)
    }

    /// Takes `pages` neighbouring pages; the address of the first.
    pub(crate) fn allocate_run(&mut self, pages: usize) -> Option<u64> {
        if pages == 1 {
            return self.allocate();
        }
        let mut is_free = vec![false; self.grants.len()];
        for &page in &self.free {
            is_free[page as usize] = true;
        }
        let first = is_free.windows(pages).position(|window| window.iter().all(|&free| free))?;
        let run = first as u32..(first + pages) as u32;
        self.free.retain(|page| !run.contains(page));
        Some(self.base + (first * PAGE_BYTES) as u64)
    }

    /// Gives the page at `address` back; the device may do nothing with it any more.
    pub(crate) fn release(&mut self, address: u64) {
        let page = ((address - self.base) / PAGE_BYTES as u64) as usize;
        self.grants[page] = Grant::None;
        self.free.insert(0, page as u32);
    }

    /// Says what the device may do with the page at `address` from now on.
    pub(crate) fn grant(&mut self, address: u64, grant: Grant) {
        let page = ((address - self.base) / PAGE_BYTES as u64) as usize;
        self.grants[page] = grant;
    }

    /// The device may touch nothing any more.
    pub(crate) fn revoke_all(&mut self) {
        self.grants.fill(Grant::None);
    }

    fn place(&self, address: u64, bytes: usize) -> Option<usize> {
        let start = usize::try_from(address.checked_sub(self.base)?).ok()?;
        (start.checked_add(bytes)? <= self.bytes.len()).then_some(start)
    }

    /// The bytes at `address`, for the guest itself; `None` if they are not all there.
    pub(crate) fn get(&self, address: u64, bytes: usize) -> Option<&[u8]> {
        self.place(address, bytes).map(|start| &self.bytes[start..start + bytes])
    }

    /// The bytes at `address`, for the guest itself; `None` if they are not all there.
    pub(crate) fn get_mut(&mut self, address: u64, bytes: usize) -> Option<&mut [u8]> {
        self.place(address, bytes).map(|start| &mut self.bytes[start..start + bytes])
    }

    /// The grants of all pages that `bytes` bytes from `address` on touch, with the bytes touched; `None` if they are
    /// not all there.
    pub(crate) fn touched(
        &self,
        address: u64,
        bytes: usize,
    ) -> Option<impl Iterator<Item = (Grant, u16, u16)>> {
        let start = self.place(address, bytes)?;
        let end = start + bytes;
        let pages = start / PAGE_BYTES..end.div_ceil(PAGE_BYTES);
        Some(pages.map(move |page| {
            let first = page * PAGE_BYTES;
            let (from, to) = (start.max(first) - first, end.min(first + PAGE_BYTES) - first);
            (self.grants[page], from as u16, to as u16)
        }))
    }

    /// Copies a buffer out of its pieces.
    pub(crate) fn gather(&self, pieces: &[Piece], data: &mut Vec<u8>) {
        data.clear();
        for piece in pieces {
            data.extend_from_slice(self.get(piece.address, piece.bytes).unwrap_or_default());
        }
    }

    /// Copies `data` into the pieces of a buffer.
    pub(crate) fn scatter(&mut self, pieces: &[Piece], data: &[u8]) {
        let mut rest = data;
        for piece in pieces {
            let (part, behind) = rest.split_at(piece.bytes.min(rest.len()));
            if let Some(place) = self.get_mut(piece.address, part.len()) {
                place.copy_from_slice(part);
            }
            rest = behind;
        }
    }

    /// Fills the pieces of a buffer.
    pub(crate) fn fill(&mut self, pieces: &[Piece], byte: u8) {
        for piece in pieces {
            if let Some(place) = self.get_mut(piece.address, piece.bytes) {
                place.fill(byte);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_come_back_from_their_pieces_and_pages_from_their_release() {
        let mut memory = Memory::new(0x10_0000, 8, &mut Random::new(1));
        let pages: Vec<u64> = (0..3).map(|_| memory.allocate().unwrap()).collect();
        let pieces = [Piece { address: pages[0] + 4000, bytes: 96 }, Piece { address: pages[1], bytes: 100 }];
        let data: Vec<u8> = (0..196).collect();
        memory.scatter(&pieces, &data);
        let mut again = Vec::new();
        memory.gather(&pieces, &mut again);
        assert_eq!(again, data);
        for &page in &pages {
            memory.release(page);
        }
        assert_eq!(memory.free_pages(), 8);
        assert_eq!(memory.allocate_run(8), Some(0x10_0000));
    }

    #[test]
    fn what_is_not_there_is_not_touched() {
        let memory = Memory::new(0x10_0000, 2, &mut Random::new(1));
        assert!(memory.touched(0xF_FFFF, 2).is_none());
        assert!(memory.touched(0x10_1FFF, 2).is_none());
        assert!(memory.touched(u64::MAX, 2).is_none());
        assert_eq!(
            memory.touched(0x10_0FFF, 2).unwrap().collect::<Vec<_>>(),
            [(Grant::None, 4095, 4096), (Grant::None, 0, 1)]
        );
    }
}
