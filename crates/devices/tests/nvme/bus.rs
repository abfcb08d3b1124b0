//! The bus as a controller sees it, with the host's memory behind it.

use etherslot_pci::function::{Bus, InterruptMode};
use std::collections::VecDeque;

pub(crate) const MEMORY_BYTES: usize = 24 << 20;

/// A small generator, so that a seed replays a run.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        self.0 >> 33
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }
}

pub(crate) struct PendingRead {
    pub(crate) address: u64,
    pub(crate) bytes: usize,
    pub(crate) token: u64,
}

/// The bus, with guest memory behind it.
pub(crate) struct TestBus {
    pub(crate) memory: Vec<u8>,
    pub(crate) now_ns: u64,
    pub(crate) master: bool,
    pub(crate) mode: InterruptMode,
    /// Bytes that can be written, and asked for, until the next round; `usize::MAX`: any.
    pub(crate) write_room: usize,
    pub(crate) read_room: usize,
    pub(crate) interrupt_room: usize,
    /// Largest piece a read comes back in.
    pub(crate) piece: usize,
    pub(crate) sent: Vec<u16>,
    pub(crate) intx: bool,
    pub(crate) reads: usize,
    pub(crate) hold_reads: bool,
    /// Writes in order, for what must be behind what.
    pub(crate) trace: Vec<Traced>,
    /// Reads under way.
    pub(crate) pending: VecDeque<PendingRead>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Traced {
    Write { address: u64, bytes: usize },
    Interrupt(u16),
}

impl TestBus {
    pub(crate) fn new() -> Self {
        Self {
            memory: vec![0; MEMORY_BYTES],
            now_ns: 1_000,
            master: true,
            mode: InterruptMode::MsiX(65),
            write_room: usize::MAX,
            read_room: usize::MAX,
            interrupt_room: usize::MAX,
            piece: 512,
            sent: Vec::new(),
            intx: false,
            reads: 0,
            hold_reads: false,
            trace: Vec::new(),
            pending: VecDeque::new(),
        }
    }

    fn take(room: &mut usize, bytes: usize) -> usize {
        let granted = bytes.min(*room);
        if *room != usize::MAX {
            *room -= granted;
        }
        granted
    }
}

impl Bus for TestBus {
    fn now_ns(&self) -> u64 {
        self.now_ns
    }

    fn is_master(&self) -> bool {
        self.master
    }

    fn write(&mut self, address: u64, data: &[u8]) -> usize {
        assert!(self.master && !data.is_empty());
        let small = data.len() <= 64 && (address & 0xfff) + data.len() as u64 <= 4096;
        if small && self.write_room < data.len() {
            return 0;
        }
        let bytes = Self::take(&mut self.write_room, data.len());
        if bytes > 0 {
            self.trace.push(Traced::Write { address, bytes });
        }
        let start = usize::try_from(address).unwrap_or(usize::MAX);
        if let Some(place) = self.memory.get_mut(start..start.saturating_add(bytes)) {
            place.copy_from_slice(&data[..bytes]);
        }
        bytes
    }

    fn read(&mut self, address: u64, bytes: usize, token: u64) -> usize {
        assert!(self.master && bytes > 0);
        self.reads += 1;
        let granted = Self::take(&mut self.read_room, bytes);
        let mut at = 0;
        while at < granted {
            let piece = self.piece.min(granted - at);
            let address = address.wrapping_add(at as u64);
            self.pending.push_back(PendingRead { address, bytes: piece, token });
            at += piece;
        }
        granted
    }

    fn interrupt_mode(&self) -> InterruptMode {
        self.mode
    }

    fn interrupt(&mut self, vector: u16) -> bool {
        if Self::take(&mut self.interrupt_room, 1) == 0 {
            return false;
        }
        self.sent.push(vector);
        self.trace.push(Traced::Interrupt(vector));
        true
    }

    fn set_intx(&mut self, asserted: bool) -> bool {
        // What has to wait for room is not forgotten.
        self.intx = asserted;
        Self::take(&mut self.interrupt_room, 1) != 0
    }
}
