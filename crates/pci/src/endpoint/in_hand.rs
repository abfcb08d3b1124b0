//! The [`Bus`] of a Function while a frame is in hand: nothing can be sent, but what came along with a doorbell can be taken from where
//! it lies. So the data of a small write are copied once, to where the Function wants them.

use super::Core;
use crate::function::{Bus, Entry, InterruptMode};

pub(super) struct InHand<'a> {
    pub(super) core: &'a mut Core,
    pub(super) now_ns: u64,
    pub(super) body: &'a [u8],
}

impl Bus for InHand<'_> {
    fn now_ns(&self) -> u64 {
        self.now_ns
    }

    fn is_master(&self) -> bool {
        self.core.master
    }

    fn write(&mut self, _address: u64, _data: &[u8]) -> usize {
        0
    }

    fn read(&mut self, _address: u64, _bytes: usize, _token: u64) -> usize {
        0
    }

    fn take_entries(&mut self, first: Entry, data: &mut [u8]) -> usize {
        self.core.ahead.take_entries(first, data)
    }

    fn take_for(&mut self, entry: Entry, address: u64, most: usize, take: &mut dyn FnMut(&[u8])) -> usize {
        self.core.ahead.take_for(entry, address, most, self.body, take)
    }

    fn interrupt_mode(&self) -> InterruptMode {
        self.core.mode
    }

    fn interrupt(&mut self, _vector: u16) -> bool {
        false
    }

    fn set_intx(&mut self, _asserted: bool) -> bool {
        false
    }
}
