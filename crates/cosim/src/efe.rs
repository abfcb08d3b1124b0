//! `es_efe` of 64 bit with queues at its streams.

use std::collections::VecDeque;
use std::path::Path;

use crate::beat::{beat, take};
use crate::model::{Model, Pins};

/// What goes into a clock; `struct Inputs` of `shim/efe.cpp`.
#[repr(C)]
#[derive(Clone, Debug, Default)]
struct Inputs {
    s_data: u64,
    mac_in_data: u64,
    node: [u32; 4],
    fresh: u32,
    features: u32,
    s_keep: u8,
    s_last: u8,
    s_valid: u8,
    m_ready: u8,
    mac_in_keep: u8,
    mac_in_user: u8,
    mac_in_last: u8,
    mac_in_valid: u8,
    mac_out_ready: u8,
    rst: u8,
    open: u8,
    active: u8,
    want_classic: u8,
}

/// What comes out of a clock; `struct Outputs` of `shim/efe.cpp`.
#[repr(C)]
#[derive(Clone, Debug, Default)]
struct Outputs {
    m_data: u64,
    mac_out_data: u64,
    stats: [u32; 15],
    agreed: u32,
    body_bytes: u16,
    s_ready: u8,
    m_keep: u8,
    m_last: u8,
    m_valid: u8,
    mac_out_keep: u8,
    mac_out_last: u8,
    mac_out_valid: u8,
    up: u8,
    classic: u8,
}

// SAFETY: as shim/efe.cpp has them.
unsafe impl Pins for Inputs {
    type Outputs = Outputs;
    const BLOCK: &'static str = "efe";
}

/// The clock's period, ns: parameter `CLOCK_NS` of the model.
const CLOCK_NS: u64 = 8;

/// What the hardware counts, and two gauges of its controller.
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)] // Named as the ports of es_efe are.
pub struct Stats {
    pub window: u32,
    pub srtt: u32,
    pub good: u32,
    pub refused: u32,
    pub check: u32,
    pub full: u32,
    pub sessions: u32,
    pub dropped: u32,
    pub violations: u32,
    pub taken: u32,
    pub old: u32,
    pub unwanted: u32,
    pub again: u32,
    pub timeouts: u32,
    pub probes: u32,
}

/// One EFE.
pub struct Efe {
    model: Model<Inputs>,
    inputs: Inputs,
    outputs: Outputs,
    clocks: u64,
    /// Frames on their way in, and how far the first has got.
    mac_in: VecDeque<Vec<u8>>,
    mac_in_at: usize,
    mac_out: Vec<u8>,
    bodies_in: VecDeque<Vec<u8>>,
    body_in_at: usize,
    body_out: Vec<u8>,
    /// Bodies that have come out.
    pub bodies: VecDeque<Vec<u8>>,
}

impl Efe {
    /// An EFE after its reset, closed.
    pub fn load(path: &Path, seed: u32, node: [u8; 16]) -> Result<Self, libloading::Error> {
        let mut inputs = Inputs { rst: 1, m_ready: 1, mac_out_ready: 1, ..Inputs::default() };
        for (word, bytes) in inputs.node.iter_mut().rev().zip(node.as_chunks::<4>().0) {
            *word = u32::from_be_bytes(*bytes);
        }
        let mut efe = Self {
            model: Model::load(path, seed)?,
            inputs,
            outputs: Outputs::default(),
            clocks: 0,
            mac_in: VecDeque::new(),
            mac_in_at: 0,
            mac_out: Vec::new(),
            bodies_in: VecDeque::new(),
            body_in_at: 0,
            body_out: Vec::new(),
            bodies: VecDeque::new(),
        };
        for _ in 0..8 {
            efe.model.clock(&efe.inputs, &mut efe.outputs);
        }
        efe.inputs.rst = 0;
        Ok(efe)
    }

    /// Begins sessions from now on: greets, or listens; `fresh` is the epoch of the next one.
    pub fn open(&mut self, active: bool, classic: bool, fresh: u32) {
        self.inputs.active = u8::from(active);
        self.inputs.want_classic = u8::from(classic);
        self.inputs.fresh = fresh;
        self.inputs.open = 1;
    }

    /// What its Hellos offer beside CLASSIC: feature bits.
    pub fn offer(&mut self, features: u32) {
        self.inputs.features = features;
    }

    /// What of these the peer of the session offers, too.
    pub fn agreed(&self) -> u32 {
        self.outputs.agreed
    }

    /// Ends its session.
    pub fn close(&mut self) {
        self.inputs.open = 0;
    }

    /// Whether a session is up, and in classic mode.
    pub fn is_up(&self) -> bool {
        self.outputs.up != 0
    }

    /// Whether the session is in classic mode.
    pub fn is_classic(&self) -> bool {
        self.outputs.classic != 0
    }

    /// The longest body that the peer takes.
    pub fn body_bytes(&self) -> usize {
        self.outputs.body_bytes as usize
    }

    /// Time since its reset.
    pub fn now_ns(&self) -> u64 {
        self.clocks * CLOCK_NS
    }

    /// A frame has come on the link.
    pub fn land(&mut self, frame: Vec<u8>) {
        self.mac_in.push_back(frame);
    }

    /// A body to send, and how many wait.
    pub fn send(&mut self, body: Vec<u8>) {
        self.bodies_in.push_back(body);
    }

    /// Bodies that have not gone in yet.
    pub fn waiting(&self) -> usize {
        self.bodies_in.len()
    }

    /// What it counts.
    pub fn stats(&self) -> Stats {
        let [window, srtt, good, refused, check, full, sessions, dropped, violations, ..] =
            self.outputs.stats;
        let [.., taken, old, unwanted, again, timeouts, probes] = self.outputs.stats;
        Stats {
            window,
            srtt,
            good,
            refused,
            check,
            full,
            sessions,
            dropped,
            violations,
            taken,
            old,
            unwanted,
            again,
            timeouts,
            probes,
        }
    }

    /// One clock; a frame that has left in it.
    pub fn clock(&mut self) -> Option<Vec<u8>> {
        self.inputs.mac_in_valid = 0;
        if let Some(frame) = self.mac_in.front() {
            (self.inputs.mac_in_data, self.inputs.mac_in_keep, self.inputs.mac_in_last) =
                beat(frame, self.mac_in_at);
            self.inputs.mac_in_valid = 1;
            self.mac_in_at += 8;
            if self.inputs.mac_in_last != 0 {
                self.mac_in.pop_front();
                self.mac_in_at = 0;
            }
        }
        self.inputs.s_valid = 0;
        if let Some(body) = self.bodies_in.front() {
            (self.inputs.s_data, self.inputs.s_keep, self.inputs.s_last) = beat(body, self.body_in_at);
            self.inputs.s_valid = 1;
        }
        self.model.clock(&self.inputs, &mut self.outputs);
        self.clocks += 1;
        if self.inputs.s_valid != 0 && self.outputs.s_ready != 0 {
            self.body_in_at += 8;
            if self.inputs.s_last != 0 {
                self.bodies_in.pop_front();
                self.body_in_at = 0;
            }
        }
        if self.outputs.m_valid != 0 {
            take(self.outputs.m_data, self.outputs.m_keep, &mut self.body_out);
            if self.outputs.m_last != 0 {
                self.bodies.push_back(std::mem::take(&mut self.body_out));
            }
        }
        if self.outputs.mac_out_valid != 0 {
            take(self.outputs.mac_out_data, self.outputs.mac_out_keep, &mut self.mac_out);
            if self.outputs.mac_out_last != 0 {
                return Some(std::mem::take(&mut self.mac_out));
            }
        }
        None
    }
}
