//! `es_rnic` of 64 bit with the host's memory at its ports and queues at its link.

use std::collections::VecDeque;
use std::path::Path;

use crate::beat::{beat, take};
use crate::host::{HostMemory, ReadOut, WriteOut};
use crate::model::{Model, Pins};

/// What goes into a clock; `struct Inputs` of `shim/rnic.cpp`.
#[repr(C)]
#[derive(Clone, Debug, Default)]
struct Inputs {
    wdata: u64,
    d_rdata: u64,
    q_rdata: u64,
    s_data: u64,
    awaddr: u32,
    araddr: u32,
    segment_bytes: u16,
    s_seg_length: u16,
    s_seg_peer: u16,
    wstrb: u8,
    awvalid: u8,
    wvalid: u8,
    bready: u8,
    arvalid: u8,
    rready: u8,
    d_arready: u8,
    d_rvalid: u8,
    q_arready: u8,
    q_rlast: u8,
    q_rvalid: u8,
    w_awready: u8,
    w_wready: u8,
    w_bvalid: u8,
    m_seg_ready: u8,
    m_ready: u8,
    s_seg_valid: u8,
    s_keep: u8,
    s_last: u8,
    s_valid: u8,
    rst: u8,
}

/// What comes out of a clock; `struct Outputs` of `shim/rnic.cpp`.
#[repr(C)]
#[derive(Clone, Debug, Default)]
struct Outputs {
    rdata: u64,
    d_araddr: u64,
    q_araddr: u64,
    w_awaddr: u64,
    w_wdata: u64,
    m_data: u64,
    irq_vector: u16,
    m_seg_length: u16,
    m_seg_peer: u16,
    m_seg_stream: u16,
    awready: u8,
    wready: u8,
    bvalid: u8,
    arready: u8,
    rvalid: u8,
    d_arlen: u8,
    d_arvalid: u8,
    d_rready: u8,
    q_arlen: u8,
    q_arvalid: u8,
    q_rready: u8,
    w_awlen: u8,
    w_awburst: u8,
    w_awvalid: u8,
    w_wstrb: u8,
    w_wlast: u8,
    w_wvalid: u8,
    w_bready: u8,
    irq_valid: u8,
    m_seg_valid: u8,
    m_keep: u8,
    m_last: u8,
    m_valid: u8,
    s_seg_ready: u8,
    s_ready: u8,
}

// SAFETY: as shim/rnic.cpp has them.
unsafe impl Pins for Inputs {
    type Outputs = Outputs;
    const BLOCK: &'static str = "rnic";
}

/// Segments that wait to be taken from the hardware; behind them it is stalled.
const SEGMENTS_OUT: usize = 2;

/// A segment on the link: the payload of a record of kind 3.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The peer that it goes to, or is from.
    pub peer: u16,
    /// The stream that it goes on.
    pub stream: u16,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// An access of the driver to the registers, by AXI-Lite.
#[derive(Clone, Copy, Debug)]
enum Access {
    Write { at: u32, data: u64, strobe: u8 },
    Read { at: u32 },
}

/// An RNIC core.
pub struct Rnic {
    model: Model<Inputs>,
    inputs: Inputs,
    outputs: Outputs,
    /// The memory of its host.
    pub memory: HostMemory,
    accesses: VecDeque<Access>,
    /// The first of these has been handed over and is not answered yet.
    asked: bool,
    values: VecDeque<u64>,
    segments_in: VecDeque<Segment>,
    segment_in_at: usize,
    records: VecDeque<(u16, u16, u16)>,
    packets: VecDeque<Vec<u8>>,
    packet: Vec<u8>,
    /// Vectors of interrupts that have come.
    pub interrupts: VecDeque<u16>,
}

impl Rnic {
    /// An RNIC after its reset, with so much memory. `segment_bytes` is the most data of a segment, a multiple of 8.
    pub fn load(
        path: &Path,
        seed: u32,
        memory: HostMemory,
        segment_bytes: u16,
    ) -> Result<Self, libloading::Error> {
        let inputs = Inputs { rst: 1, segment_bytes, bready: 1, rready: 1, ..Inputs::default() };
        let mut rnic = Self {
            model: Model::load(path, seed)?,
            inputs,
            outputs: Outputs::default(),
            memory,
            accesses: VecDeque::new(),
            asked: false,
            values: VecDeque::new(),
            segments_in: VecDeque::new(),
            segment_in_at: 0,
            records: VecDeque::new(),
            packets: VecDeque::new(),
            packet: Vec::new(),
            interrupts: VecDeque::new(),
        };
        for _ in 0..8 {
            rnic.model.clock(&rnic.inputs, &mut rnic.outputs);
        }
        rnic.inputs.rst = 0;
        Ok(rnic)
    }

    /// A store of 4 bytes into the registers; in order with all others.
    pub fn store_u32(&mut self, at: u32, value: u32) {
        let (data, strobe) =
            if at & 4 == 0 { (u64::from(value), 0x0F) } else { (u64::from(value) << 32, 0xF0) };
        self.accesses.push_back(Access::Write { at, data, strobe });
    }

    /// A store of 8 bytes into the registers; in order with all others.
    pub fn store(&mut self, at: u32, value: u64) {
        self.accesses.push_back(Access::Write { at, data: value, strobe: 0xFF });
    }

    /// Asks for 8 bytes of the registers, behind all stores before; [`Rnic::loaded`] gives them.
    pub fn load_later(&mut self, at: u32) {
        self.accesses.push_back(Access::Read { at });
    }

    /// What was read, if it has come.
    pub fn loaded(&mut self) -> Option<u64> {
        self.values.pop_front()
    }

    /// Whether all stores have been taken.
    pub fn has_stored_all(&self) -> bool {
        self.accesses.is_empty()
    }

    /// A segment from the link.
    pub fn land(&mut self, segment: Segment) {
        self.segments_in.push_back(segment);
    }

    /// Segments that have not gone in yet.
    pub fn landing(&self) -> usize {
        self.segments_in.len()
    }

    /// A segment that has left, with its record.
    pub fn next_segment(&mut self) -> Option<Segment> {
        if self.records.is_empty() || self.packets.is_empty() {
            return None;
        }
        let ((length, peer, stream), bytes) = (self.records.pop_front()?, self.packets.pop_front()?);
        assert_eq!(usize::from(length), bytes.len(), "the record tells the length that its bytes have");
        Some(Segment { peer, stream, bytes })
    }

    /// One clock.
    pub fn clock(&mut self) {
        self.before();
        self.model.clock(&self.inputs, &mut self.outputs);
        self.after();
    }

    fn before(&mut self) {
        let inputs = &mut self.inputs;
        (inputs.awvalid, inputs.wvalid, inputs.arvalid) = (0, 0, 0);
        match self.accesses.front() {
            Some(&Access::Write { at, data, strobe }) => {
                (inputs.awaddr, inputs.wdata, inputs.wstrb) = (at & !7, data, strobe);
                (inputs.awvalid, inputs.wvalid) = (1, 1);
            }
            Some(&Access::Read { at }) if !self.asked => (inputs.araddr, inputs.arvalid) = (at & !7, 1),
            _ => {}
        }
        let (d, q, w) = (self.memory.before_read(0), self.memory.before_read(1), self.memory.before_write());
        (inputs.d_arready, inputs.d_rdata, inputs.d_rvalid) = (d.address_ready, d.data, d.valid);
        (inputs.q_arready, inputs.q_rdata, inputs.q_rvalid, inputs.q_rlast) =
            (q.address_ready, q.data, q.valid, q.last);
        (inputs.w_awready, inputs.w_wready, inputs.w_bvalid) =
            (w.address_ready, w.data_ready, w.answer_valid);
        let takes = u8::from(self.packets.len() < SEGMENTS_OUT);
        (inputs.m_seg_ready, inputs.m_ready) = (takes, takes);
        (inputs.s_seg_valid, inputs.s_valid) = (0, 0);
        if let Some(segment) = self.segments_in.front() {
            (inputs.s_seg_length, inputs.s_seg_peer) = (segment.bytes.len() as u16, segment.peer);
            (inputs.s_data, inputs.s_keep, inputs.s_last) = beat(&segment.bytes, self.segment_in_at);
            (inputs.s_seg_valid, inputs.s_valid) = (1, 1);
        }
    }

    fn after(&mut self) {
        let (inputs, outputs) = (&self.inputs, &self.outputs);
        if inputs.awvalid != 0 && outputs.awready != 0 {
            self.accesses.pop_front();
        }
        if inputs.arvalid != 0 && outputs.arready != 0 {
            self.asked = true;
        }
        if self.asked && outputs.rvalid != 0 {
            self.values.push_back(outputs.rdata);
            self.accesses.pop_front();
            self.asked = false;
        }
        if inputs.s_valid != 0 && outputs.s_ready != 0 {
            self.segment_in_at += 8;
            if inputs.s_last != 0 {
                assert_ne!(outputs.s_seg_ready, 0, "a record is taken with the last beat of its segment");
                self.segments_in.pop_front();
                self.segment_in_at = 0;
            }
        }
        if inputs.m_seg_ready != 0 && outputs.m_seg_valid != 0 {
            self.records.push_back((outputs.m_seg_length, outputs.m_seg_peer, outputs.m_seg_stream));
        }
        if inputs.m_ready != 0 && outputs.m_valid != 0 {
            take(outputs.m_data, outputs.m_keep, &mut self.packet);
            if outputs.m_last != 0 {
                self.packets.push_back(std::mem::take(&mut self.packet));
            }
        }
        if outputs.irq_valid != 0 {
            self.interrupts.push_back(outputs.irq_vector);
        }
        let o = &self.outputs;
        let read = |address, length, address_valid, ready| ReadOut { address, length, address_valid, ready };
        self.memory.after_read(0, read(o.d_araddr, o.d_arlen, o.d_arvalid, o.d_rready));
        self.memory.after_read(1, read(o.q_araddr, o.q_arlen, o.q_arvalid, o.q_rready));
        self.memory.after_write(WriteOut {
            address: o.w_awaddr,
            length: o.w_awlen,
            burst: o.w_awburst,
            address_valid: o.w_awvalid,
            data: o.w_wdata,
            strobe: o.w_wstrb,
            last: o.w_wlast,
            data_valid: o.w_wvalid,
        });
        self.memory.end_clock();
    }
}
