//! The Function under the tests.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use etherslot_pci::function::{
    BarKind, BarSpec, Bus, Fault, Function, FunctionSpec, InterruptMode, MsixSpec, ResetKind,
};
use etherslot_wire::FunctionId;

/// A Function with two BARs, MSI, MSI-X (table and PBA in BAR 2) and INTA.
pub fn spec() -> FunctionSpec {
    FunctionSpec {
        vendor: 0x1234,
        device: 0x5678,
        subsystem_vendor: 0x1234,
        subsystem: 1,
        revision: 2,
        class: [0x01, 0x08, 0x02],
        bars: vec![
            BarSpec { index: 0, kind: BarKind::Memory32, bytes: 0x4000 },
            BarSpec { index: 2, kind: BarKind::Prefetchable64, bytes: 0x1_0000 },
        ],
        msix: Some(MsixSpec { vectors: 70, bar: 2, table_offset: 0x1100, pba_offset: 0x2000 }),
        msi_vectors: 8,
        intx: true,
        serial: Some(0x0123_4567_89AB_CDEF),
    }
}

/// What the Function is to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    Write(u64, Vec<u8>),
    Read(u64, usize, u64),
    Interrupt(u16),
    IntX(bool),
}

/// What happened to the Function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    BarRead(u8, u64, usize),
    BarWrite(u8, u64, Vec<u8>),
    Completed(u64, u64, Vec<u8>),
    Failed(u64, u64, usize, Fault),
    Reset(ResetKind),
    Identified(FunctionId),
}

#[derive(Default)]
struct State {
    bars: Vec<Vec<u8>>,
    acts: VecDeque<Act>,
    /// Bytes of the first act that are done.
    done: usize,
    events: Vec<Event>,
    is_master: bool,
    mode: Option<InterruptMode>,
}

/// The test's hand on the Function.
#[derive(Clone, Default)]
pub struct Scratch(Rc<RefCell<State>>);

impl Scratch {
    pub fn act(&self, act: Act) {
        self.0.borrow_mut().acts.push_back(act);
    }

    pub fn waiting(&self) -> usize {
        self.0.borrow().acts.len()
    }

    pub fn take_events(&self) -> Vec<Event> {
        std::mem::take(&mut self.0.borrow_mut().events)
    }

    pub fn fill(&self, bar: usize, byte: impl Fn(usize) -> u8) {
        let mut state = self.0.borrow_mut();
        for (at, place) in state.bars[bar].iter_mut().enumerate() {
            *place = byte(at);
        }
    }

    pub fn bar(&self, bar: usize, offset: usize, bytes: usize) -> Vec<u8> {
        self.0.borrow().bars[bar][offset..offset + bytes].to_vec()
    }

    pub fn is_master(&self) -> bool {
        self.0.borrow().is_master
    }

    pub fn mode(&self) -> InterruptMode {
        self.0.borrow().mode.expect("polled")
    }
}

pub struct ScratchFunction {
    spec: FunctionSpec,
    state: Scratch,
}

impl ScratchFunction {
    pub fn new(spec: FunctionSpec) -> (Self, Scratch) {
        let state = Scratch::default();
        let mut bars = vec![Vec::new(); 6];
        for bar in &spec.bars {
            bars[bar.index as usize] = vec![0; bar.bytes as usize];
        }
        state.0.borrow_mut().bars = bars;
        (Self { spec, state: state.clone() }, state)
    }
}

impl Function for ScratchFunction {
    fn spec(&self) -> FunctionSpec {
        self.spec.clone()
    }

    fn bar_read(&mut self, bar: u8, offset: u64, data: &mut [u8]) {
        let mut state = self.state.0.borrow_mut();
        let start = offset as usize;
        data.copy_from_slice(&state.bars[bar as usize][start..start + data.len()]);
        state.events.push(Event::BarRead(bar, offset, data.len()));
    }

    fn bar_write(&mut self, bar: u8, offset: u64, data: &[u8]) {
        let mut state = self.state.0.borrow_mut();
        let start = offset as usize;
        state.bars[bar as usize][start..start + data.len()].copy_from_slice(data);
        state.events.push(Event::BarWrite(bar, offset, data.to_vec()));
    }

    fn read_completed(&mut self, token: u64, address: u64, bytes: usize, result: Result<&[u8], Fault>) {
        let event = match result {
            Ok(data) => {
                assert_eq!(data.len(), bytes);
                Event::Completed(token, address, data.to_vec())
            }
            Err(fault) => Event::Failed(token, address, bytes, fault),
        };
        self.state.0.borrow_mut().events.push(event);
    }

    fn poll(&mut self, bus: &mut dyn Bus) -> bool {
        let mut state = self.state.0.borrow_mut();
        let state = &mut *state;
        state.is_master = bus.is_master();
        state.mode = Some(bus.interrupt_mode());
        let mut progress = false;
        while let Some(act) = state.acts.front() {
            let finished = match act {
                Act::Write(address, data) => {
                    let taken = bus.write(address.wrapping_add(state.done as u64), &data[state.done..]);
                    progress |= taken != 0;
                    state.done += taken;
                    state.done == data.len()
                }
                Act::Read(address, bytes, token) => {
                    let taken = bus.read(address.wrapping_add(state.done as u64), bytes - state.done, *token);
                    progress |= taken != 0;
                    state.done += taken;
                    state.done == *bytes
                }
                Act::Interrupt(vector) => bus.interrupt(*vector),
                Act::IntX(asserted) => bus.set_intx(*asserted),
            };
            if !finished {
                break;
            }
            progress = true;
            state.done = 0;
            state.acts.pop_front();
        }
        progress
    }

    fn reset(&mut self, kind: ResetKind) {
        let mut state = self.state.0.borrow_mut();
        state.acts.clear();
        state.done = 0;
        state.events.push(Event::Reset(kind));
    }

    fn identified(&mut self, id: FunctionId) {
        self.state.0.borrow_mut().events.push(Event::Identified(id));
    }
}
