//! A table of slots with a list of the free ones.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Slots by index. One that becomes free is used again after all others that are.
#[derive(Debug)]
pub(crate) struct Table<T> {
    slots: Vec<Option<Box<T>>>,
    free: VecDeque<u16>,
}

impl<T> Table<T> {
    pub(crate) fn new(slots: usize) -> Self {
        Self { slots: (0..slots).map(|_| None).collect(), free: (0..slots).map(|slot| slot as u16).collect() }
    }

    /// The slot that is used next.
    pub(crate) fn next(&self) -> Option<u16> {
        self.free.front().copied()
    }

    pub(crate) fn insert(&mut self, item: T) -> Option<u16> {
        let slot = self.free.pop_front()?;
        self.slots[slot as usize] = Some(Box::new(item));
        Some(slot)
    }

    /// Puts it in this slot; false if that is not free.
    pub(crate) fn insert_at(&mut self, slot: u16, item: T) -> bool {
        let Some(place) = self.slots.get_mut(slot as usize).filter(|place| place.is_none()) else {
            return false;
        };
        *place = Some(Box::new(item));
        self.free.retain(|&other| other != slot);
        true
    }

    pub(crate) fn remove(&mut self, slot: u16) -> Option<Box<T>> {
        let item = self.slots.get_mut(slot as usize)?.take()?;
        self.free.push_back(slot);
        Some(item)
    }

    #[inline]
    pub(crate) fn get(&self, slot: u16) -> Option<&T> {
        self.slots.get(slot as usize)?.as_deref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, slot: u16) -> Option<&mut T> {
        self.slots.get_mut(slot as usize)?.as_deref_mut()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().filter_map(Option::as_deref_mut)
    }
}
