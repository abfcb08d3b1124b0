//! The Completer's side of a Memory Read: how its data is cut into Completions (PCIe Base 6.0, 2.3.1.1).
//!
//! All but the last Completion of a Request end at a multiple of the Read Completion Boundary, and none carries
//! more than the maximum payload. Byte Count and Lower Address count enabled bytes, from the first to the last.

use etherslot_wire::FunctionId;
use etherslot_wire::tlp::{Completion, CplStatus, MemRequest};

/// Read Completion Boundary of a Root Complex that chose the smaller one, bytes (2.3.1.1).
pub const ROOT_RCB_BYTES: u16 = 64;
/// Read Completion Boundary of every other Completer, bytes (2.3.1.1).
pub const RCB_BYTES: u16 = 128;

/// One Completion with data, and which bytes it carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its fields.
    pub completion: Completion,
    /// The first byte, counted from the Request's first enabled one.
    pub offset: usize,
    /// How many bytes. They start at byte `lower_address & 3` of the Completion's data.
    pub bytes: usize,
}

/// Cuts the answer to a Memory Read into Completions.
#[derive(Clone, Debug)]
pub struct Completions {
    template: Completion,
    address: u64,
    total: usize,
    offset: usize,
    rcb: usize,
    max_payload: usize,
}

/// The successful Completions of `request`, in order. `rcb` is a power of two; `max_payload` in bytes, at least
/// `rcb` (less counts as that).
pub fn completions(request: &MemRequest, completer: FunctionId, rcb: u16, max_payload: u16) -> Completions {
    let (lead, total) = request.span();
    let rcb = (rcb as usize).next_power_of_two();
    Completions {
        template: status(request, completer, CplStatus::Success, 0),
        address: request.address.wrapping_add(lead as u64),
        total,
        offset: 0,
        rcb,
        max_payload: (max_payload as usize).max(rcb),
    }
}

/// The Completion without data that ends `request` with `status`, `offset` bytes of it having been sent.
pub fn status(request: &MemRequest, completer: FunctionId, status: CplStatus, offset: usize) -> Completion {
    let (lead, total) = request.span();
    Completion {
        completer,
        status,
        byte_count: total.saturating_sub(offset).clamp(1, 4096) as u16,
        requester: request.requester,
        tag: request.tag,
        lower_address: (request.address.wrapping_add((lead + offset) as u64) & 0x7F) as u8,
        length_dw: 0,
    }
}

impl Completions {
    /// Goes on behind the first `offset` bytes.
    pub fn starting_at(mut self, offset: usize) -> Self {
        self.offset = offset;
        self
    }

    /// Bytes that no Completion has carried yet.
    pub fn remaining(&self) -> usize {
        self.total.saturating_sub(self.offset)
    }

    /// The next Completion, with at most `limit` bytes of payload if that can be (a Completion up to the next
    /// boundary is always sent whole).
    pub fn next_within(&mut self, limit: usize) -> Option<Part> {
        let remaining = self.remaining();
        if remaining == 0 {
            return None;
        }
        let at = self.address.wrapping_add(self.offset as u64);
        let lead = (at & 3) as usize;
        let payload = self.max_payload.min(limit).max(self.rcb);
        let bytes = if lead + remaining <= payload {
            remaining
        } else {
            // From the DW of `at`, at least one boundary is in reach, as a boundary is at most `rcb` away.
            let to_boundary = self.rcb - (at as usize & (self.rcb - 1));
            to_boundary + (payload - lead - to_boundary) / self.rcb * self.rcb
        };
        let part = Part {
            completion: Completion {
                byte_count: remaining as u16,
                lower_address: (at & 0x7F) as u8,
                length_dw: (lead + bytes).div_ceil(4) as u16,
                ..self.template
            },
            offset: self.offset,
            bytes,
        };
        self.offset += bytes;
        Some(part)
    }
}

impl Iterator for Completions {
    type Item = Part;

    fn next(&mut self) -> Option<Part> {
        self.next_within(self.max_payload)
    }
}
