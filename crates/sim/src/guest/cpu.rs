//! A guest's processor: programs are `async` functions that wait for answers, interrupts and virtual time.
//!
//! There is no executor but [`Program::run`], and no waker: the simulation runs a guest's programs whenever something
//! happened to the guest or an alarm is due.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use etherslot_node::Interrupts;

use crate::guest::machine::{Machine, POSTED, Request};

/// A processor of a guest.
#[derive(Clone)]
pub(crate) struct Cpu {
    machine: Rc<RefCell<Machine>>,
    /// The BAR with the registers of its device.
    registers: usize,
}

impl Cpu {
    /// A processor of `machine`.
    pub(crate) fn new(machine: Rc<RefCell<Machine>>, registers: usize) -> Self {
        Self { machine, registers }
    }

    /// The BAR with the registers of its device.
    pub(crate) fn registers(&self) -> usize {
        self.registers
    }

    /// Looks at the machine.
    pub(crate) fn machine<T>(&self, look: impl FnOnce(&mut Machine) -> T) -> T {
        look(&mut self.machine.borrow_mut())
    }

    /// Virtual time.
    pub(crate) fn now_ns(&self) -> u64 {
        self.machine.borrow().now_ns()
    }

    /// Waits until `done` says so, or until `until_ns`.
    async fn wait(&self, until_ns: u64, mut done: impl FnMut(&mut Machine) -> bool) {
        poll_fn(|_| {
            let mut machine = self.machine.borrow_mut();
            if done(&mut machine) || machine.now_ns() >= until_ns {
                return Poll::Ready(());
            }
            machine.alarm_ns = machine.alarm_ns.min(until_ns);
            Poll::Pending
        })
        .await;
    }

    /// Waits until that time.
    pub(crate) async fn sleep_until(&self, until_ns: u64) {
        self.wait(until_ns, |_| false).await;
    }

    /// Waits for so long.
    pub(crate) async fn sleep(&self, for_ns: u64) {
        self.sleep_until(self.now_ns() + for_ns).await;
    }

    /// Waits for an interrupt that was not looked at, or until that time.
    pub(crate) async fn interrupt_or(&self, until_ns: u64) {
        self.wait(until_ns, |machine| !machine.fired.is_empty() || machine.intx).await;
    }

    /// Waits for the device to be there, or until that time.
    pub(crate) async fn device_or(&self, until_ns: u64) {
        self.wait(until_ns, |machine| machine.device.is_some()).await;
    }

    async fn ask(&self, request: Request) -> Vec<u8> {
        let id = self.machine.borrow_mut().access(request);
        poll_fn(|_| match self.machine.borrow_mut().take_answer(id) {
            Some(data) => Poll::Ready(data),
            None => Poll::Pending,
        })
        .await
    }

    async fn post(&self, request: Request) {
        self.wait(u64::MAX, |machine| machine.waiting() < POSTED).await;
        self.machine.borrow_mut().access(request);
    }

    /// Reads configuration space.
    pub(crate) async fn config_read(&self, offset: u64, bytes: usize) -> u32 {
        word(&self.ask(Request::ConfigRead { offset, bytes }).await) as u32
    }

    /// Writes configuration space.
    pub(crate) async fn config_write(&self, offset: u64, bytes: usize, value: u32) {
        self.ask(Request::ConfigWrite { offset, bytes, value: u64::from(value) }).await;
    }

    /// Reads a register of 32 bits.
    pub(crate) async fn read32(&self, offset: u64) -> u32 {
        word(&self.ask(Request::BarRead { bar: self.registers, offset, bytes: 4 }).await) as u32
    }

    /// Reads a register of 64 bits.
    pub(crate) async fn read64(&self, offset: u64) -> u64 {
        word(&self.ask(Request::BarRead { bar: self.registers, offset, bytes: 8 }).await)
    }

    /// Writes a register of 32 bits.
    pub(crate) async fn write32(&self, offset: u64, value: u32) {
        self.post(Request::BarWrite { bar: self.registers, offset, bytes: 4, value: u64::from(value) }).await;
    }

    /// Writes a register of 64 bits.
    pub(crate) async fn write64(&self, offset: u64, value: u64) {
        self.post(Request::BarWrite { bar: self.registers, offset, bytes: 8, value }).await;
    }

    /// Writes 64 bits of memory that the device has in a BAR.
    pub(crate) async fn write_memory(&self, bar: usize, offset: u64, value: u64) {
        self.post(Request::BarWrite { bar, offset, bytes: 8, value }).await;
    }

    /// Reads 32 bits of a BAR.
    pub(crate) async fn read_at(&self, bar: usize, offset: u64) -> u32 {
        word(&self.ask(Request::BarRead { bar, offset, bytes: 4 }).await) as u32
    }

    /// Writes 32 bits of a BAR.
    pub(crate) async fn write_at(&self, bar: usize, offset: u64, value: u32) {
        self.post(Request::BarWrite { bar, offset, bytes: 4, value: u64::from(value) }).await;
    }

    /// Sets up interrupts.
    pub(crate) async fn set_interrupts(&self, interrupts: Interrupts) {
        self.post(Request::Interrupts(interrupts)).await;
    }

    /// Resets the device from outside, as a hypervisor does.
    pub(crate) async fn reset(&self) {
        self.ask(Request::Reset).await;
    }
}

fn word(data: &[u8]) -> u64 {
    data.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

/// A program that runs on a guest.
pub(crate) struct Program {
    future: Option<Pin<Box<dyn Future<Output = ()>>>>,
    alarm_ns: u64,
}

impl Program {
    /// A program that has not begun.
    pub(crate) fn new(future: impl Future<Output = ()> + 'static) -> Self {
        Self { future: Some(Box::pin(future)), alarm_ns: 0 }
    }

    /// When it has to go on though nothing happened.
    pub(crate) fn alarm_ns(&self) -> u64 {
        self.alarm_ns
    }

    /// Goes on until it has to wait; `machine` is where it runs.
    pub(crate) fn run(&mut self, machine: &RefCell<Machine>) {
        let Some(future) = &mut self.future else { return };
        machine.borrow_mut().alarm_ns = u64::MAX;
        if future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
            self.future = None;
        }
        self.alarm_ns = machine.borrow().alarm_ns;
    }
}
