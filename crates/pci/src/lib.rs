//! PCI Express without its wires: Functions, their configuration spaces, Tags and Completions, the virtual
//! switch.
//!
//! Everything here takes time and TLPs as arguments and gives TLPs to a [`TlpOut`]; nothing allocates once it
//! is set up, but for plugging and unplugging a Function. Sections named without a document are those of the
//! PCI Express Base Specification, revision 6.0.

pub mod completer;
pub mod config;
pub mod endpoint;
pub mod enumerate;
pub mod errors;
pub mod function;
pub mod hierarchy;
pub mod msi;
pub mod requester;
mod switch;

use etherslot_wire::FunctionId;
use etherslot_wire::control::Message;
use etherslot_wire::tlp::{Header, Op};

/// Where TLPs go on their way upstream: a row of streams, each of which keeps its order.
pub trait TlpOut {
    /// Bytes of the largest whole TLP, header and data, that leaves `stream` undivided now; 0 means that none
    /// can be sent. With any other value a TLP of any length can, divided if need be.
    fn room(&mut self, stream: u16) -> usize;

    /// The same for a Completion to this Requester, which may have another way.
    fn room_to(&mut self, stream: u16, _requester: FunctionId) -> usize {
        self.room(stream)
    }

    /// Sends a TLP; false, and nothing is sent, if there is no room.
    ///
    /// `data` starts at byte [`data_lead`] of the TLP's data and may end before it; all other bytes are 0.
    fn send(&mut self, stream: u16, header: &Header, data: &[u8]) -> bool;

    /// Tells the host of a rule of read-ahead, or of its end; false, and nothing is told, if there is no room. A host that takes
    /// none is not told, which is no failure.
    fn declare(&mut self, _stream: u16, _message: Message) -> bool {
        true
    }
}

/// Bytes in front of the first one that counts in a TLP's data: disabled ones of a write (2.2.5), those below
/// Lower Address of a Completion (2.3.1.1).
pub const fn data_lead(header: &Header) -> usize {
    match header.op {
        Op::MemWrite(request) => request.span().0,
        Op::Completion(completion) if completion.length_dw != 0 => completion.lower_address as usize & 3,
        _ => 0,
    }
}
