//! A tap between a device model and its Endpoint: tells the order check what passes.

use std::cell::RefCell;
use std::rc::Rc;

use etherslot_pci::function::{
    Bus, Entry, Fault, Function, FunctionSpec, InterruptMode, ReadAhead, ResetKind,
};
use etherslot_wire::FunctionId;

use crate::checkers::order::Order;

/// A device model with a tap.
pub(crate) struct Tapped {
    inner: Box<dyn Function>,
    order: Rc<RefCell<Order>>,
}

impl Tapped {
    /// Taps `inner`.
    pub(crate) fn new(inner: Box<dyn Function>, order: Rc<RefCell<Order>>) -> Self {
        Self { inner, order }
    }
}

impl Function for Tapped {
    fn spec(&self) -> FunctionSpec {
        self.inner.spec()
    }

    fn bar_read(&mut self, bar: u8, offset: u64, data: &mut [u8]) {
        self.inner.bar_read(bar, offset, data);
    }

    fn bar_write(&mut self, bar: u8, offset: u64, data: &[u8]) {
        self.order.borrow_mut().device_took(bar, offset, data);
        self.inner.bar_write(bar, offset, data);
    }

    fn read_completed(&mut self, token: u64, address: u64, bytes: usize, result: Result<&[u8], Fault>) {
        self.order.borrow_mut().device_was_given(token, bytes);
        self.inner.read_completed(token, address, bytes, result);
    }

    fn read_ahead(&mut self) -> Option<ReadAhead> {
        self.inner.read_ahead()
    }

    fn poll(&mut self, bus: &mut dyn Bus) -> bool {
        self.inner.poll(&mut TappedBus { inner: bus, order: &self.order })
    }

    fn deadline_ns(&self) -> Option<u64> {
        self.inner.deadline_ns()
    }

    fn reset(&mut self, kind: ResetKind) {
        self.order.borrow_mut().device_reset();
        self.inner.reset(kind);
    }

    fn identified(&mut self, id: FunctionId) {
        self.inner.identified(id);
    }
}

struct TappedBus<'a> {
    inner: &'a mut dyn Bus,
    order: &'a RefCell<Order>,
}

impl Bus for TappedBus<'_> {
    fn now_ns(&self) -> u64 {
        self.inner.now_ns()
    }

    fn is_master(&self) -> bool {
        self.inner.is_master()
    }

    fn write(&mut self, address: u64, data: &[u8]) -> usize {
        let bytes = self.inner.write(address, data);
        if bytes != 0 {
            self.order.borrow_mut().device_wrote(address, &data[..bytes]);
        }
        bytes
    }

    fn read(&mut self, address: u64, bytes: usize, token: u64) -> usize {
        let asked = self.inner.read(address, bytes, token);
        if asked != 0 {
            self.order.borrow_mut().device_asked(address, asked, token);
        }
        asked
    }

    fn take_entries(&mut self, first: Entry, data: &mut [u8]) -> usize {
        self.inner.take_entries(first, data)
    }

    fn take_for(&mut self, entry: Entry, address: u64, most: usize, take: &mut dyn FnMut(&[u8])) -> usize {
        self.inner.take_for(entry, address, most, take)
    }

    fn interrupt_mode(&self) -> InterruptMode {
        self.inner.interrupt_mode()
    }

    fn interrupt(&mut self, vector: u16) -> bool {
        let mode = self.inner.interrupt_mode();
        let done = self.inner.interrupt(vector);
        if done {
            match mode {
                InterruptMode::Msi(vectors) => {
                    self.order.borrow_mut().device_interrupted(vector % vectors.max(1));
                }
                InterruptMode::MsiX(_) => self.order.borrow_mut().device_interrupted(vector),
                InterruptMode::Disabled | InterruptMode::IntX => {}
            }
        }
        done
    }

    fn set_intx(&mut self, asserted: bool) -> bool {
        self.inner.set_intx(asserted)
    }
}
