//! `es_peb_node` of 64 bit, a box in hardware, with queues at its streams.

use std::collections::VecDeque;
use std::path::Path;

use crate::beat::{beat, take};
use crate::model::{Model, Pins};

/// What goes into a clock; `struct Inputs` of `shim/peb_node.cpp`.
#[repr(C)]
#[derive(Clone, Debug, Default)]
struct Inputs {
    mac_in_data: u64,
    tlp_in_data: u64,
    node: [u32; 4],
    name: [u32; 8],
    dc_name: [u32; 8],
    fresh: u32,
    mac_in_keep: u8,
    mac_in_last: u8,
    mac_in_valid: u8,
    mac_out_ready: u8,
    tlp_in_keep: u8,
    tlp_in_last: u8,
    tlp_in_valid: u8,
    tlp_out_ready: u8,
    room: u8,
    link_done: u8,
    rst: u8,
    open: u8,
    want_classic: u8,
}

/// What comes out of a clock; `struct Outputs` of `shim/peb_node.cpp`.
#[repr(C)]
#[derive(Clone, Debug, Default)]
struct Outputs {
    mac_out_data: u64,
    tlp_out_data: u64,
    stats: [u32; 22],
    max_payload: u16,
    max_read: u16,
    mac_out_keep: u8,
    mac_out_last: u8,
    mac_out_valid: u8,
    tlp_out_keep: u8,
    tlp_out_last: u8,
    tlp_out_valid: u8,
    tlp_out_class: u8,
    tlp_in_ready: u8,
    up: u8,
    attached: u8,
    link_reset: u8,
}

// SAFETY: as shim/peb_node.cpp has them.
unsafe impl Pins for Inputs {
    type Outputs = Outputs;
    const BLOCK: &'static str = "peb_node";
}

/// What the model's DC buffer, of 256 KiB, is called.
pub const DC_NAME: &str = "between";

/// The clock's period, ns: parameter `CLOCK_NS` of the model.
const CLOCK_NS: u64 = 8;

/// What the hardware counts.
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)] // Named as the ports of es_peb_node are.
pub struct PebStats {
    pub down: u32,
    pub down_malformed: u32,
    pub down_spoofed: u32,
    pub down_unrouted: u32,
    pub down_unrouted_completions: u32,
    pub passed: u32,
    pub fence_timeouts: u32,
    pub up: u32,
    pub up_malformed: u32,
    pub up_spoofed: u32,
    pub up_refused: u32,
    pub stray: u32,
    pub attached: u32,
    pub denied: u32,
    pub unknown: u32,
    pub resets: u32,
    pub sessions: u32,
    pub violations: u32,
    pub again: u32,
    pub dc_host: u32,
    pub dc_device: u32,
    pub dc_refused: u32,
}

/// A box of one device.
pub struct Peb {
    model: Model<Inputs>,
    inputs: Inputs,
    outputs: Outputs,
    clocks: u64,
    /// Frames on their way in, and how far the first has got.
    mac_in: VecDeque<Vec<u8>>,
    mac_in_at: usize,
    mac_out: Vec<u8>,
    tlps_in: VecDeque<Vec<u8>>,
    tlp_in_at: usize,
    tlp_out: Vec<u8>,
    /// TLPs that have come out for the device.
    pub tlps: VecDeque<Vec<u8>>,
}

/// A name as the ports have it.
fn padded(name: &str) -> [u8; 32] {
    let mut padded = [0; 32];
    padded[..name.len()].copy_from_slice(name.as_bytes());
    padded
}

/// The words of a wide port whose first byte is on top.
fn wide<const WORDS: usize>(bytes: &[u8]) -> [u32; WORDS] {
    let mut words = [0; WORDS];
    for (word, bytes) in words.iter_mut().rev().zip(bytes.as_chunks::<4>().0) {
        *word = u32::from_be_bytes(*bytes);
    }
    words
}

impl Peb {
    /// A box after its reset that listens; its device has this name, its DC buffer [`DC_NAME`]. The device takes whatever comes.
    pub fn load(
        path: &Path,
        seed: u32,
        node: [u8; 16],
        name: &str,
        classic: bool,
    ) -> Result<Self, libloading::Error> {
        let inputs = Inputs {
            rst: 1,
            node: wide(&node),
            name: wide(&padded(name)),
            dc_name: wide(&padded(DC_NAME)),
            fresh: 0x7654_0000 | seed,
            mac_out_ready: 1,
            tlp_out_ready: 1,
            room: 7,
            open: 1,
            want_classic: u8::from(classic),
            ..Inputs::default()
        };
        let mut peb = Self {
            model: Model::load(path, seed)?,
            inputs,
            outputs: Outputs::default(),
            clocks: 0,
            mac_in: VecDeque::new(),
            mac_in_at: 0,
            mac_out: Vec::new(),
            tlps_in: VecDeque::new(),
            tlp_in_at: 0,
            tlp_out: Vec::new(),
            tlps: VecDeque::new(),
        };
        for _ in 0..8 {
            peb.model.clock(&peb.inputs, &mut peb.outputs);
        }
        peb.inputs.rst = 0;
        Ok(peb)
    }

    /// What the device has room for, a bit for each class, and whether it takes a beat now.
    pub fn set_room(&mut self, room: u8, ready: bool) {
        self.inputs.room = room;
        self.inputs.tlp_out_ready = u8::from(ready);
    }

    /// The epoch of the next session.
    pub fn set_epoch(&mut self, fresh: u32) {
        self.inputs.fresh = fresh;
    }

    /// Time since its reset.
    pub fn now_ns(&self) -> u64 {
        self.clocks * CLOCK_NS
    }

    /// Whether a session is up.
    pub fn is_up(&self) -> bool {
        self.outputs.up != 0
    }

    /// What the host grants the device that it has: the most data of a TLP, and of a read.
    pub fn grants(&self) -> Option<(u16, u16)> {
        (self.outputs.attached != 0).then_some((self.outputs.max_payload, self.outputs.max_read))
    }

    /// Whether the device is to be reset.
    pub fn wants_reset(&self) -> bool {
        self.outputs.link_reset != 0
    }

    /// The device is reset, or runs again. Nothing from before comes any more.
    pub fn set_reset_done(&mut self, is_done: bool) {
        self.inputs.link_done = u8::from(is_done);
    }

    /// A frame has come on the link.
    pub fn land(&mut self, frame: Vec<u8>) {
        self.mac_in.push_back(frame);
    }

    /// A TLP of the device.
    pub fn send(&mut self, tlp: Vec<u8>) {
        self.tlps_in.push_back(tlp);
    }

    /// TLPs of the device that have not gone in yet.
    pub fn waiting(&self) -> usize {
        self.tlps_in.len()
    }

    /// What it counts.
    pub fn stats(&self) -> PebStats {
        let [
            down,
            down_malformed,
            down_spoofed,
            down_unrouted,
            down_unrouted_completions,
            passed,
            fence_timeouts,
            up,
            up_malformed,
            up_spoofed,
            up_refused,
            stray,
            attached,
            denied,
            unknown,
            resets,
            sessions,
            violations,
            again,
            dc_host,
            dc_device,
            dc_refused,
        ] = self.outputs.stats;
        PebStats {
            down,
            down_malformed,
            down_spoofed,
            down_unrouted,
            down_unrouted_completions,
            passed,
            fence_timeouts,
            up,
            up_malformed,
            up_spoofed,
            up_refused,
            stray,
            attached,
            denied,
            unknown,
            resets,
            sessions,
            violations,
            again,
            dc_host,
            dc_device,
            dc_refused,
        }
    }

    /// One clock; a frame that has left in it.
    pub fn clock(&mut self) -> Option<Vec<u8>> {
        let inputs = &mut self.inputs;
        inputs.mac_in_valid = 0;
        if let Some(frame) = self.mac_in.front() {
            (inputs.mac_in_data, inputs.mac_in_keep, inputs.mac_in_last) = beat(frame, self.mac_in_at);
            inputs.mac_in_valid = 1;
            self.mac_in_at += 8;
            if inputs.mac_in_last != 0 {
                self.mac_in.pop_front();
                self.mac_in_at = 0;
            }
        }
        inputs.tlp_in_valid = 0;
        if let Some(tlp) = self.tlps_in.front() {
            (inputs.tlp_in_data, inputs.tlp_in_keep, inputs.tlp_in_last) = beat(tlp, self.tlp_in_at);
            inputs.tlp_in_valid = 1;
        }
        self.model.clock(&self.inputs, &mut self.outputs);
        self.clocks += 1;
        if self.inputs.tlp_in_valid != 0 && self.outputs.tlp_in_ready != 0 {
            self.tlp_in_at += 8;
            if self.inputs.tlp_in_last != 0 {
                self.tlps_in.pop_front();
                self.tlp_in_at = 0;
            }
        }
        if self.outputs.tlp_out_valid != 0 && self.inputs.tlp_out_ready != 0 {
            take(self.outputs.tlp_out_data, self.outputs.tlp_out_keep, &mut self.tlp_out);
            if self.outputs.tlp_out_last != 0 {
                self.tlps.push_back(std::mem::take(&mut self.tlp_out));
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
