//! What the engine needs of its surroundings: memory and a session.

use etherslot_wire::rdmap::AtomicRequest;

use crate::config::{PeerId, Qpn};

/// Why memory was not read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// It is not here yet: the engine asks again, the same, after [`Engine::resume`](crate::Engine::resume).
    Pending,
    /// It cannot be had.
    Fault,
}

/// The memory that registered addresses are of: the process's own, a guest's by DMA, a simulator's. The engine asks for
/// addresses of registered pages only.
pub trait Memory {
    /// What is asked for from here on is for this QP, and is a step of its own: what an earlier step asked for, and got all of, it does not
    /// ask for again.
    fn begin(&mut self, _qp: Qpn) {}

    /// Whether it is worth while to tell what comes next, by [`Memory::expect`].
    const IS_FAR: bool = false;

    /// The steps after this one will read these bytes, once, in this order, if the QP goes on.
    fn expect(&mut self, _address: u64, _bytes: usize) {}

    /// Reads all of `out`, or says why not.
    fn read(&mut self, address: u64, out: &mut [u8]) -> Result<(), Trouble>;

    /// Writes, upwards; later calls come into effect later. It is never [`Trouble::Pending`].
    fn write(&mut self, address: u64, data: &[u8]) -> Result<(), Trouble>;

    /// Does the operation on 8 bytes, little-endian, at a multiple of 8; returns what was there before. After
    /// [`Trouble::Pending`] the same call comes again and gets the result; it is done once.
    fn atomic(&mut self, address: u64, operation: &AtomicRequest) -> Result<u64, Trouble>;
}

/// The sessions with the peers.
pub trait Wire {
    /// Bytes of the longest segment, header and data, that can be sent now on this stream; 0 if none. If it is less than
    /// `want` that is because a frame holds no more, or because what the frame under construction has left is worth
    /// filling.
    fn room(&mut self, peer: PeerId, stream: u16, want: usize) -> usize;

    /// The same for a datagram, which is one segment whatever its length: a session that spreads a record over frames has room
    /// for it where a segment of a message would be cut.
    fn datagram_room(&mut self, peer: PeerId, stream: u16, want: usize) -> usize {
        self.room(peer, stream, want)
    }

    /// Sends a segment of `head` and then `data_len` bytes that `fill` writes; the whole is not longer than
    /// [`Wire::room`] or [`Wire::datagram_room`] said. If `fill` says false nothing is sent. Whether it was sent.
    fn send(
        &mut self,
        peer: PeerId,
        stream: u16,
        head: &[u8],
        data_len: usize,
        fill: &mut dyn FnMut(&mut [u8]) -> bool,
    ) -> bool;
}
