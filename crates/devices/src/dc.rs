//! The DC buffer: memory of the box as a Function of its own, for devices to hand data to each other without passing a host.
//!
//! One large prefetchable BAR, and nothing else: no registers, no interrupts, no DMA of its own. A device reaches it by its
//! address, as it would reach memory; whose address that is decides the hierarchy (`etherslot_pci::hierarchy`).
//!
//! Content does not outlive its host: what the next one reads before it has written is zeros. The memory is cleared where it
//! is touched for the first time after a reset, so that a reset of a large one does not hold up the box.

use etherslot_pci::function::{BarKind, BarSpec, Bus, Fault, Function, FunctionSpec, ResetKind};

use crate::ids;

/// The BAR.
const BAR: u8 = 0;
/// What is cleared at a time.
const PIECE_BYTES: usize = 64 << 10;
/// Memory Controller, Other.
const CLASS: [u8; 3] = [0x05, 0x80, 0x00];

/// Sizes that there can be: whole pieces, and what a daemon can give.
pub const SIZES: std::ops::RangeInclusive<u64> = PIECE_BYTES as u64..=1 << 36;

/// Why there is no such buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a DC buffer of {bytes} bytes can't be made: its size is a power of two from 64 KiB to 64 GiB, and has to fit memory"
)]
pub struct SizeError {
    /// What was asked for.
    pub bytes: u64,
}

/// A DC buffer.
#[derive(Debug)]
pub struct DcBuffer {
    serial: u64,
    memory: Vec<u8>,
    /// For each piece whether it still holds what an earlier host wrote.
    stale: Vec<bool>,
    counters: Counters,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    reads: u64,
    read_bytes: u64,
    writes: u64,
    write_bytes: u64,
}

impl DcBuffer {
    /// A buffer of `bytes` bytes, with a Device Serial Number.
    ///
    /// # Errors
    /// If there can't be one of this size.
    pub fn new(bytes: u64, serial: u64) -> Result<Self, SizeError> {
        let error = SizeError { bytes };
        if !SIZES.contains(&bytes) || !bytes.is_power_of_two() {
            return Err(error);
        }
        let length = usize::try_from(bytes).map_err(|_| error)?;
        let mut memory: Vec<u8> = Vec::new();
        memory.try_reserve_exact(length).map_err(|_| error)?;
        drop(memory);
        // Zeros that the system gives out when they are touched.
        let memory = vec![0; length];
        Ok(Self { serial, memory, stale: vec![false; length / PIECE_BYTES], counters: Counters::default() })
    }

    /// Its size.
    pub fn bytes(&self) -> u64 {
        self.memory.len() as u64
    }

    /// The place of `bytes` bytes from `offset` on, with nothing of an earlier host in it.
    fn place(&mut self, offset: u64, bytes: usize) -> &mut [u8] {
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(self.memory.len());
        let end = start.saturating_add(bytes).min(self.memory.len());
        for piece in start / PIECE_BYTES..end.div_ceil(PIECE_BYTES) {
            if std::mem::take(&mut self.stale[piece]) {
                self.memory[piece * PIECE_BYTES..(piece + 1) * PIECE_BYTES].fill(0);
            }
        }
        &mut self.memory[start..end]
    }
}

impl Function for DcBuffer {
    fn spec(&self) -> FunctionSpec {
        FunctionSpec {
            vendor: ids::VENDOR,
            device: ids::DC_BUFFER,
            subsystem_vendor: ids::VENDOR,
            subsystem: ids::DC_BUFFER,
            revision: 1,
            class: CLASS,
            bars: vec![BarSpec { index: BAR, kind: BarKind::Prefetchable64, bytes: self.bytes() }],
            msix: None,
            msi_vectors: 0,
            intx: false,
            serial: Some(self.serial),
        }
    }

    fn bar_read(&mut self, _bar: u8, offset: u64, data: &mut [u8]) {
        self.counters.reads += 1;
        self.counters.read_bytes += data.len() as u64;
        let place = self.place(offset, data.len());
        let bytes = place.len();
        data[..bytes].copy_from_slice(place);
        data[bytes..].fill(0);
    }

    fn bar_write(&mut self, _bar: u8, offset: u64, data: &[u8]) {
        self.counters.writes += 1;
        self.counters.write_bytes += data.len() as u64;
        let place = self.place(offset, data.len());
        let bytes = place.len();
        place.copy_from_slice(&data[..bytes]);
    }

    fn read_completed(&mut self, _token: u64, _address: u64, _bytes: usize, _result: Result<&[u8], Fault>) {}

    fn poll(&mut self, _bus: &mut dyn Bus) -> bool {
        false
    }

    fn is_idle(&self) -> bool {
        true
    }

    /// A Function Level Reset keeps the content: it is the same host's.
    fn reset(&mut self, kind: ResetKind) {
        if kind == ResetKind::Conventional {
            self.stale.fill(true);
        }
    }

    fn count(&self, each: &mut dyn FnMut(&'static str, u64)) {
        let Counters { reads, read_bytes, writes, write_bytes } = self.counters;
        each("reads", reads);
        each("read_bytes", read_bytes);
        each("writes", writes);
        each("write_bytes", write_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_memory() {
        let mut buffer = DcBuffer::new(1 << 20, 1).unwrap();
        let data: Vec<u8> = (0..4096_u32).map(|at| at as u8 ^ 0x5A).collect();
        let across = PIECE_BYTES as u64 - 1000;
        buffer.bar_write(BAR, across, &data);
        let mut read = vec![0; 4098];
        buffer.bar_read(BAR, across - 1, &mut read);
        assert_eq!((read[0], &read[1..4097], read[4097]), (0, &data[..], 0));
    }

    #[test]
    fn the_next_host_finds_nothing_of_the_one_before() {
        let mut buffer = DcBuffer::new(1 << 20, 1).unwrap();
        buffer.bar_write(BAR, 0, &[7; 4096]);
        buffer.bar_write(BAR, (1 << 20) - 16, &[7; 16]);
        buffer.reset(ResetKind::FunctionLevel);
        let mut read = [0; 16];
        buffer.bar_read(BAR, (1 << 20) - 16, &mut read);
        assert_eq!(read, [7; 16]);
        buffer.reset(ResetKind::Conventional);
        buffer.bar_write(BAR, 100, &[9; 4]);
        for (offset, expected) in [(96, 0), (100, 9), (104, 0), (4000, 0), ((1 << 20) - 16, 0)] {
            let mut read = [1; 4];
            buffer.bar_read(BAR, offset, &mut read);
            assert_eq!(read, [expected; 4], "{offset}");
        }
    }

    #[test]
    fn beyond_it_there_is_nothing() {
        let mut buffer = DcBuffer::new(64 << 10, 1).unwrap();
        buffer.bar_write(BAR, (64 << 10) - 2, &[1, 2, 3, 4]);
        buffer.bar_write(BAR, u64::MAX, &[1]);
        let mut read = [9; 4];
        buffer.bar_read(BAR, (64 << 10) - 2, &mut read);
        assert_eq!(read, [1, 2, 0, 0]);
        buffer.bar_read(BAR, u64::MAX, &mut read);
        assert_eq!(read, [0; 4]);
    }

    #[test]
    fn sizes_that_no_bar_can_have_are_refused() {
        for bytes in [0, 4096, 3 << 20, 1 << 40, u64::MAX] {
            assert_eq!(DcBuffer::new(bytes, 1).unwrap_err(), SizeError { bytes });
        }
    }
}
