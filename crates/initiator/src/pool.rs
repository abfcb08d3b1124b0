//! Buffers for data, made once: places in a memory that a device reaches.

use crate::arena::Arena;

/// Buffers start at a multiple of this: a memory page of NVMe.
pub(crate) const PAGE_BYTES: usize = 4096;

/// How many buffers of a size there are to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferClass {
    /// Bytes of each; rounded up to whole pages of 4096.
    pub bytes: usize,
    /// How many.
    pub count: usize,
}

/// A buffer of a disk's pool. It has one owner, who gives it back or submits it.
#[derive(Debug, PartialEq, Eq)]
pub struct Buffer {
    /// From the start of the pool's memory.
    pub(crate) offset: usize,
    /// By which devices know it.
    pub(crate) address: u64,
    bytes: u32,
    class: u16,
    /// Its place among all buffers of the pool.
    pub(crate) index: u32,
}

/// Memory that devices reach, though it need not be ours: pieces of one size, by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Space {
    /// Of the first piece: a multiple of 4096.
    pub(crate) address: u64,
    /// Bytes of each, a multiple of 4096.
    pub(crate) piece_bytes: usize,
    pub(crate) pieces: usize,
}

impl Space {
    /// A piece as a buffer, that of `index` among all buffers that a driver knows. No pool has it, and its data can't be looked at.
    pub(crate) fn buffer(&self, piece: usize, index: usize) -> Buffer {
        let address = self.address + (piece * self.piece_bytes) as u64;
        let (bytes, index) = (self.piece_bytes as u32, index as u32);
        Buffer { offset: usize::MAX, address, bytes, class: u16::MAX, index }
    }
}

impl Buffer {
    /// A piece of memory that others keep ([`crate::Disks`]), known to them by this number. No pool has it.
    pub fn of_piece(number: u32, bytes: u32) -> Self {
        Self { offset: usize::MAX, address: 0, bytes, class: u16::MAX, index: number }
    }

    /// The number of a piece.
    pub fn number(&self) -> u32 {
        self.index
    }

    /// Its size.
    pub fn bytes(&self) -> usize {
        self.bytes as usize
    }
}

#[derive(Debug)]
struct Class {
    bytes: usize,
    free: Vec<Buffer>,
}

/// The buffers that nobody has.
#[derive(Debug)]
pub(crate) struct Pool {
    /// The small ones first.
    classes: Vec<Class>,
    end: usize,
    count: usize,
}

impl Pool {
    /// Lays out buffers from `start` on, a multiple of 4096.
    pub(crate) fn new(start: usize, classes: &[BufferClass]) -> Self {
        let mut classes: Vec<BufferClass> = classes.to_vec();
        classes.sort_by_key(|class| class.bytes);
        let (mut end, mut count) = (start, 0);
        let lay_out = |(number, class): (usize, &BufferClass)| {
            let bytes = class.bytes.clamp(1, u32::MAX as usize / 2).next_multiple_of(PAGE_BYTES);
            let mut next = || {
                let address = Arena::address(end);
                let buffer =
                    Buffer { offset: end, address, bytes: bytes as u32, class: number as u16, index: count };
                end += bytes;
                count += 1;
                buffer
            };
            let mut free: Vec<Buffer> = (0..class.count).map(|_| next()).collect();
            free.reverse();
            Class { bytes, free }
        };
        let classes = classes.iter().enumerate().map(lay_out).collect();
        Self { classes, end, count: count as usize }
    }

    /// Where the last one ends.
    pub(crate) fn end(&self) -> usize {
        self.end
    }

    /// How many buffers there are in all.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// All of them; to be called before the first is taken.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Buffer> {
        self.classes.iter().flat_map(|class| &class.free)
    }

    /// The smallest free one that has `bytes`.
    pub(crate) fn take(&mut self, bytes: usize) -> Option<Buffer> {
        self.classes.iter_mut().filter(|class| class.bytes >= bytes).find_map(|class| class.free.pop())
    }

    pub(crate) fn give_back(&mut self, buffer: Buffer) {
        if let Some(class) = self.classes.get_mut(buffer.class as usize) {
            class.free.push(buffer);
        }
    }

    /// The most that one buffer holds.
    pub(crate) fn largest(&self) -> usize {
        self.classes.last().map_or(0, |class| class.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_buffer_that_fits_is_taken_and_comes_back() {
        let classes = [BufferClass { bytes: 65536, count: 1 }, BufferClass { bytes: 4000, count: 2 }];
        let mut pool = Pool::new(8192, &classes);
        assert_eq!((pool.count(), pool.end(), pool.largest()), (3, 8192 + 8192 + 65536, 65536));
        let small = pool.take(1).unwrap();
        assert_eq!((small.offset, small.bytes()), (8192, 4096));
        let other = pool.take(4096).unwrap();
        assert_eq!(pool.take(4096).map(|buffer| buffer.bytes()), Some(65536));
        assert_eq!(pool.take(1), None);
        pool.give_back(small);
        pool.give_back(other);
        assert_eq!(pool.take(4096).map(|buffer| buffer.offset), Some(12288));
        assert_eq!(pool.take(4097), None);
    }
}
