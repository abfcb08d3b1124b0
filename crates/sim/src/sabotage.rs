//! Tests of the checkers: parts that are broken on purpose have to be found.

use std::os::fd::BorrowedFd;

use etherslot_devices::nvme::Nvme;
use etherslot_pci::function::{
    Bus, Entry, Fault, Function, FunctionSpec, InterruptMode, ReadAhead, ResetKind,
};
use etherslot_storage::memory::MemoryMedium;
use etherslot_storage::{Done, Info, Medium, Op, Request};
use etherslot_wire::FunctionId;

use crate::checkers::verdict::Rule;
use crate::nodes::io_box::Hooks;
use crate::plan::{Plan, Scenario};
use crate::world::run_with;

/// How a device breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Break {
    /// Some data is lost on its way to memory.
    LoseData,
    /// Some data is changed on its way to memory.
    ChangeData,
    /// Some data is written again when its command is long done.
    RepeatData,
    /// Some interrupts are lost.
    LoseInterrupts,
    /// Some completions come twice.
    RepeatCompletions,
    /// Some completions are lost.
    LoseCompletions,
    /// Some doorbells are not seen.
    LoseDoorbells,
    /// Some data that comes along with doorbells is that of an earlier command.
    StalePieces,
    /// Panics.
    Panic,
}

struct Broken {
    inner: Nvme,
    how: Break,
    count: u64,
    kept: Option<(u64, Vec<u8>)>,
}

fn broken(inner: Nvme, how: Break) -> Box<dyn Function> {
    Box::new(Broken { inner, how, count: 0, kept: None })
}

/// One in so many goes wrong.
const RATE: u64 = 23;
/// The first ones go well, so that the driver gets far enough.
const GRACE: u64 = 60;

impl Broken {
    fn now(&mut self) -> bool {
        self.count += 1;
        self.count > GRACE && self.count.is_multiple_of(RATE)
    }
}

impl Function for Broken {
    fn spec(&self) -> FunctionSpec {
        self.inner.spec()
    }

    fn bar_read(&mut self, bar: u8, offset: u64, data: &mut [u8]) {
        self.inner.bar_read(bar, offset, data);
    }

    fn bar_write(&mut self, bar: u8, offset: u64, data: &[u8]) {
        if self.how == Break::LoseDoorbells && offset >= 0x1000 && self.now() {
            return;
        }
        self.inner.bar_write(bar, offset, data);
    }

    fn read_completed(&mut self, token: u64, address: u64, bytes: usize, result: Result<&[u8], Fault>) {
        self.inner.read_completed(token, address, bytes, result);
    }

    fn read_ahead(&mut self) -> Option<ReadAhead> {
        self.inner.read_ahead()
    }

    fn poll(&mut self, bus: &mut dyn Bus) -> bool {
        assert!(self.how != Break::Panic || !self.now(), "on purpose");
        let mut wrong = std::mem::replace(&mut self.count, 0);
        let mut kept = self.kept.take();
        let progress =
            self.inner.poll(&mut BrokenBus { bus, how: self.how, count: &mut wrong, kept: &mut kept });
        self.count = wrong;
        self.kept = kept;
        progress
    }

    fn deadline_ns(&self) -> Option<u64> {
        self.inner.deadline_ns()
    }

    fn reset(&mut self, kind: ResetKind) {
        self.inner.reset(kind);
    }

    fn identified(&mut self, id: FunctionId) {
        self.inner.identified(id);
    }
}

struct BrokenBus<'a> {
    bus: &'a mut dyn Bus,
    how: Break,
    count: &'a mut u64,
    kept: &'a mut Option<(u64, Vec<u8>)>,
}

impl BrokenBus<'_> {
    fn now(&mut self) -> bool {
        *self.count += 1;
        *self.count > GRACE && self.count.is_multiple_of(RATE)
    }
}

impl Bus for BrokenBus<'_> {
    fn now_ns(&self) -> u64 {
        self.bus.now_ns()
    }

    fn is_master(&self) -> bool {
        self.bus.is_master()
    }

    fn write(&mut self, address: u64, data: &[u8]) -> usize {
        let is_completion = data.len() == 16;
        let how = self.how;
        match how {
            Break::LoseData if !is_completion && self.now() => return data.len(),
            Break::LoseCompletions if is_completion && self.now() => return data.len(),
            Break::ChangeData if !is_completion && self.now() => {
                let mut changed = data.to_vec();
                changed[data.len() / 2] ^= 1;
                return self.bus.write(address, &changed);
            }
            Break::RepeatData if !is_completion && self.now() => {
                if let Some((address, data)) = self.kept.take() {
                    self.bus.write(address, &data);
                }
                *self.kept = Some((address, data.to_vec()));
            }
            Break::RepeatCompletions if is_completion && self.now() => {
                self.bus.write(address, data);
                return self.bus.write(address + 16, data);
            }
            _ => {}
        }
        self.bus.write(address, data)
    }

    fn read(&mut self, address: u64, bytes: usize, token: u64) -> usize {
        self.bus.read(address, bytes, token)
    }

    fn take_entries(&mut self, first: Entry, data: &mut [u8]) -> usize {
        self.bus.take_entries(first, data)
    }

    fn take_for(&mut self, entry: Entry, address: u64, most: usize, take: &mut dyn FnMut(&[u8])) -> usize {
        if self.how != Break::StalePieces {
            return self.bus.take_for(entry, address, most, take);
        }
        let Self { bus, count, kept, .. } = self;
        bus.take_for(entry, address, most, &mut |fresh| {
            let mut data = fresh.to_vec();
            **count += 1;
            if let Some((_, earlier)) = kept.as_ref().filter(|_| count.is_multiple_of(3)) {
                let bytes = earlier.len().min(data.len());
                data[..bytes].copy_from_slice(&earlier[..bytes]);
            }
            **kept = Some((address, fresh.to_vec()));
            take(&data);
        })
    }

    fn interrupt_mode(&self) -> InterruptMode {
        self.bus.interrupt_mode()
    }

    fn interrupt(&mut self, vector: u16) -> bool {
        if self.how == Break::LoseInterrupts && self.now() {
            return true;
        }
        self.bus.interrupt(vector)
    }

    fn set_intx(&mut self, asserted: bool) -> bool {
        self.bus.set_intx(asserted)
    }
}

/// A medium whose Flush, or whose durable writes, do nothing for durability.
struct Liar {
    inner: MemoryMedium,
    about_writes: bool,
    flushes: Vec<u64>,
}

impl Medium for Liar {
    fn info(&self) -> Info {
        self.inner.info()
    }

    fn submit(&mut self, now_ns: u64, mut request: Request) -> Result<(), Request> {
        if self.about_writes {
            if let Op::Write { durable } = &mut request.op {
                *durable = false;
            }
        } else if request.op == Op::Flush {
            self.flushes.push(request.token);
            return Ok(());
        }
        self.inner.submit(now_ns, request)
    }

    fn poll(&mut self, now_ns: u64, done: &mut dyn FnMut(Done)) -> bool {
        let any = !self.flushes.is_empty();
        for token in self.flushes.drain(..) {
            done(Done { token, buf: None, result: Ok(()) });
        }
        self.inner.poll(now_ns, done) || any
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn deadline_ns(&self) -> Option<u64> {
        if self.flushes.is_empty() { self.inner.deadline_ns() } else { Some(0) }
    }
}

/// The rules that some of the first seeds find broken.
fn found(scenario: Scenario, seeds: u64, hooks: Hooks) -> Vec<Rule> {
    let reports = (1..=seeds).map(|seed| run_with(Plan::new(seed, scenario), scenario, false, hooks));
    reports.filter_map(|report| report.violation).map(|violation| violation.rule).collect()
}

fn found_in_devices(device: fn(Nvme) -> Box<dyn Function>) -> Vec<Rule> {
    found(Scenario::Clean, 12, Hooks { device, ..Hooks::default() })
}

#[test]
fn data_that_is_lost_or_changed_is_found() {
    let lost = found_in_devices(|device| broken(device, Break::LoseData));
    assert!(lost.contains(&Rule::DataBeforeCompletion), "{lost:?}");
    let changed = found_in_devices(|device| broken(device, Break::ChangeData));
    assert!(changed.contains(&Rule::Data), "{changed:?}");
}

#[test]
fn data_that_came_along_with_an_earlier_doorbell_is_found() {
    let stale = found_in_devices(|device| broken(device, Break::StalePieces));
    assert!(stale.contains(&Rule::Data), "{stale:?}");
}

#[test]
fn data_behind_its_completion_is_found() {
    let late = found_in_devices(|device| broken(device, Break::RepeatData));
    assert!(late.contains(&Rule::Dma), "{late:?}");
}

#[test]
fn completions_that_are_lost_or_doubled_are_found() {
    let lost = found_in_devices(|device| broken(device, Break::LoseCompletions));
    assert!(lost.contains(&Rule::Completion) || lost.contains(&Rule::Transparent), "{lost:?}");
    let doubled = found_in_devices(|device| broken(device, Break::RepeatCompletions));
    assert!(doubled.contains(&Rule::Completion), "{doubled:?}");
}

#[test]
fn interrupts_and_doorbells_that_are_lost_are_found() {
    let interrupts = found_in_devices(|device| broken(device, Break::LoseInterrupts));
    assert!(interrupts.contains(&Rule::Interrupt), "{interrupts:?}");
    let doorbells = found_in_devices(|device| broken(device, Break::LoseDoorbells));
    assert!(doorbells.contains(&Rule::Transparent), "{doorbells:?}");
}

#[test]
fn a_medium_that_lies_about_durability_is_found() {
    let flush = Hooks {
        medium: |inner| Box::new(Liar { inner, about_writes: false, flushes: Vec::new() }),
        ..Hooks::default()
    };
    assert!(found(Scenario::Restarts, 25, flush).contains(&Rule::Durability));
    let writes = Hooks {
        medium: |inner| Box::new(Liar { inner, about_writes: true, flushes: Vec::new() }),
        ..Hooks::default()
    };
    assert!(found(Scenario::Restarts, 25, writes).contains(&Rule::Durability));
}

#[test]
fn a_panic_is_found() {
    let found = found_in_devices(|device| broken(device, Break::Panic));
    assert!(found.contains(&Rule::Panic), "{found:?}");
}
