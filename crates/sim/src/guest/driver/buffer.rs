//! Buffers of commands: scattered pages, PRP lists and SGLs (NVMe 1.4, 4.3 and 4.4).

use crate::guest::driver::Driver;
use crate::guest::memory::{Grant, Memory, PAGE_BYTES, POISON, Piece};
use crate::guest::nvme::{Submission, sgl_descriptor};
use crate::random::Random;

/// The most data blocks of an SGL.
const SGL_PIECES: usize = 48;

/// The memory of a command.
#[derive(Clone, Debug, Default)]
pub(crate) struct Buffer {
    /// Where the data is, in order.
    pub(crate) pieces: Vec<Piece>,
    /// All pages, with what the device may do with them.
    pub(crate) grants: Vec<(u64, Grant)>,
}

/// Which way data goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// The device reads the buffer.
    ToDevice,
    /// The device writes the buffer.
    FromDevice,
}

impl Way {
    fn grant(self, piece: Piece) -> Grant {
        let from = piece.address as usize % PAGE_BYTES;
        let to = from + piece.bytes;
        match self {
            Self::ToDevice => Grant::Read(from as u16, to as u16),
            Self::FromDevice => Grant::Write(from as u16, to as u16),
        }
    }
}

impl Buffer {
    /// A buffer of pages of their own, each with a piece of the data: (offset in the page, bytes). `None` if there is not enough memory.
    pub(crate) fn allocate(memory: &mut Memory, sizes: &[(usize, usize)], way: Way) -> Option<Self> {
        let mut buffer = Self::default();
        for &(offset, bytes) in sizes {
            let page = memory.allocate()?;
            let piece = Piece { address: page + offset as u64, bytes };
            buffer.pieces.push(piece);
            buffer.grants.push((page, way.grant(piece)));
        }
        if way == Way::FromDevice {
            memory.fill(&buffer.pieces, POISON);
        }
        Some(buffer)
    }
}

/// Pieces of any size and offset within a page, in dwords; not many more than `most`.
pub(crate) fn scattered(random: &mut Random, bytes: usize, most: usize) -> Vec<(usize, usize)> {
    let mut sizes = Vec::new();
    let mut done = 0;
    while done < bytes {
        let left = bytes - done;
        let whole = sizes.len() + left.div_ceil(PAGE_BYTES) >= most || random.percent(60);
        let longest = left.min(PAGE_BYTES);
        let part = if whole { longest } else { 4 * random.range(1, (longest / 4).max(1) as u64) as usize };
        let offset = 4 * random.below(((PAGE_BYTES - part) / 4) as u64 + 1) as usize;
        sizes.push((offset, part));
        done += part;
    }
    sizes
}

impl Driver {
    /// A buffer for the answer of an admin command.
    pub(super) fn answer_buffer(&mut self, bytes: usize, command: &mut Submission) -> Buffer {
        if bytes == 0 {
            return Buffer::default();
        }
        self.buffer(bytes, Way::FromDevice, true, command).unwrap_or_default()
    }

    /// A buffer of `bytes` bytes; its data pointer goes into `command`. `None` if there is not enough memory.
    pub(super) fn buffer(
        &mut self,
        bytes: usize,
        way: Way,
        prp: bool,
        command: &mut Submission,
    ) -> Option<Buffer> {
        let sgl = !prp && self.has_sgl && self.random.percent(self.plan.sgl_percent);
        let sizes = if sgl { scattered(&mut self.random, bytes, SGL_PIECES) } else { self.prp_sizes(bytes) };
        // Pages of data, and at most two of lists.
        if self.cpu.machine(|machine| machine.memory.free_pages()) < sizes.len() + 2 {
            return None;
        }
        let random = &mut self.random;
        self.cpu.machine(|machine| {
            let memory = &mut machine.memory;
            let mut buffer = Buffer::allocate(memory, &sizes, way)?;
            command.sgl = sgl;
            command.data = if sgl {
                let start = 16 * random.below((PAGE_BYTES / 16 - SGL_PIECES) as u64) as usize;
                sgl_pointer(memory, &mut buffer, start)?
            } else {
                let start =
                    if random.percent(50) { 0 } else { 8 * random.below(PAGE_BYTES as u64 / 8) as usize };
                prp_pointer(memory, &mut buffer, start)?
            };
            Some(buffer)
        })
    }

    /// (offset in its page, bytes) of each piece: only the first page has an offset, only the last ends early.
    fn prp_sizes(&mut self, bytes: usize) -> Vec<(usize, usize)> {
        let offset =
            if self.random.percent(50) { 0 } else { 4 * self.random.below(PAGE_BYTES as u64 / 4) as usize };
        let mut sizes = Vec::new();
        let mut done = 0;
        while done < bytes {
            let offset = if done == 0 { offset } else { 0 };
            let part = (bytes - done).min(PAGE_BYTES - offset);
            sizes.push((offset, part));
            done += part;
        }
        sizes
    }
}

/// PRP entry 1 and 2; a list, if there has to be one, begins at `start` in its page.
fn prp_pointer(memory: &mut Memory, buffer: &mut Buffer, start: usize) -> Option<[u64; 2]> {
    let entries: Vec<u64> = buffer.pieces.iter().map(|piece| piece.address).collect();
    match entries[..] {
        [only] => return Some([only, 0]),
        [first, second] => return Some([first, second]),
        _ => {}
    }
    let mut page = memory.allocate()?;
    buffer.grants.push((page, Grant::Read(start as u16, PAGE_BYTES as u16)));
    let list = page + start as u64;
    let mut at = start;
    for (index, entry) in entries.iter().enumerate().skip(1) {
        if at + 8 == PAGE_BYTES && index + 1 < entries.len() {
            // The last entry of a page that is not enough points to the next page of the list.
            let next = memory.allocate()?;
            buffer.grants.push((next, Grant::Read(0, PAGE_BYTES as u16)));
            memory.get_mut(page + at as u64, 8)?.copy_from_slice(&next.to_le_bytes());
            page = next;
            at = 0;
        }
        memory.get_mut(page + at as u64, 8)?.copy_from_slice(&entry.to_le_bytes());
        at += 8;
    }
    Some([entries[0], list])
}

/// SGL descriptor 1; a segment, if there has to be one, begins at `start` in its page.
fn sgl_pointer(memory: &mut Memory, buffer: &mut Buffer, start: usize) -> Option<[u64; 2]> {
    if let [only] = buffer.pieces[..] {
        return Some(sgl_descriptor(only.address, only.bytes, false));
    }
    let page = memory.allocate()?;
    let bytes = 16 * buffer.pieces.len();
    buffer.grants.push((page, Grant::Read(start as u16, (start + bytes) as u16)));
    let list = page + start as u64;
    for (at, piece) in (list..).step_by(16).zip(&buffer.pieces) {
        let [address, rest] = sgl_descriptor(piece.address, piece.bytes, false);
        memory.get_mut(at, 8)?.copy_from_slice(&address.to_le_bytes());
        memory.get_mut(at + 8, 8)?.copy_from_slice(&rest.to_le_bytes());
    }
    Some(sgl_descriptor(list, bytes, true))
}
