//! Rings: of the blocks of a queue, and of a few values.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec;

use crate::wqe::{BLOCK_BYTES, Block};

/// The blocks of an SQ, RQ or SRQ. Positions are free-running.
#[derive(Debug)]
pub(crate) struct Blocks {
    ring: Box<[Block]>,
    mask: u32,
    head: u32,
    tail: u32,
}

impl Blocks {
    pub(crate) fn new(blocks: usize) -> Self {
        let blocks = blocks.next_power_of_two();
        Self {
            ring: vec![[0; BLOCK_BYTES]; blocks].into_boxed_slice(),
            mask: blocks as u32 - 1,
            head: 0,
            tail: 0,
        }
    }

    #[inline]
    pub(crate) fn head(&self) -> u32 {
        self.head
    }

    #[inline]
    pub(crate) fn tail(&self) -> u32 {
        self.tail
    }

    #[inline]
    pub(crate) fn room(&self) -> usize {
        self.ring.len() - self.tail.wrapping_sub(self.head) as usize
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.head == self.tail
    }

    /// Appends a WQE; there is room.
    #[inline]
    pub(crate) fn push(&mut self, wqe: &[u8]) {
        for block in wqe.as_chunks::<BLOCK_BYTES>().0 {
            self.ring[(self.tail & self.mask) as usize] = *block;
            self.tail = self.tail.wrapping_add(1);
        }
    }

    #[inline]
    pub(crate) fn block(&self, position: u32) -> &Block {
        &self.ring[(position & self.mask) as usize]
    }

    /// Everything before this is free.
    #[inline]
    pub(crate) fn free(&mut self, position: u32) {
        self.head = position;
    }

    /// Takes the WQE at the head out; returns how many blocks it has.
    pub(crate) fn take(&mut self, copy: &mut [Block]) -> Option<usize> {
        if self.is_empty() {
            return None;
        }
        let count = (self.block(self.head)[2] as usize).clamp(1, copy.len());
        for (index, block) in copy.iter_mut().enumerate().take(count) {
            *block = *self.block(self.head.wrapping_add(index as u32));
        }
        self.head = self.head.wrapping_add(count as u32);
        Some(count)
    }

    pub(crate) fn clear(&mut self) {
        self.head = self.tail;
    }
}

/// A queue that never grows.
#[derive(Debug)]
pub(crate) struct Bounded<T> {
    items: VecDeque<T>,
    most: usize,
}

impl<T> Bounded<T> {
    pub(crate) fn new(most: usize) -> Self {
        Self { items: VecDeque::with_capacity(most), most }
    }

    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.items.len() >= self.most
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether there was room.
    #[inline]
    pub(crate) fn push(&mut self, item: T) -> bool {
        let fits = !self.is_full();
        if fits {
            self.items.push_back(item);
        }
        fits
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<T> {
        self.items.pop_front()
    }

    #[inline]
    pub(crate) fn front(&self) -> Option<&T> {
        self.items.front()
    }

    #[inline]
    pub(crate) fn front_mut(&mut self) -> Option<&mut T> {
        self.items.front_mut()
    }

    #[inline]
    pub(crate) fn get(&self, index: usize) -> Option<&T> {
        self.items.get(index)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        self.items.get_mut(index)
    }

    #[inline]
    pub(crate) fn back_mut(&mut self) -> Option<&mut T> {
        self.items.back_mut()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.items.iter()
    }

    pub(crate) fn retain(&mut self, keep: impl FnMut(&T) -> bool) {
        self.items.retain(keep);
    }

    /// Keeps the first ones only.
    pub(crate) fn truncate(&mut self, count: usize) {
        self.items.truncate(count);
    }

    pub(crate) fn clear(&mut self) {
        self.items.clear();
    }
}
