//! The way from one RNIC to the others: sessions, which the owner of the Function provides.

use etherslot_rdma::Whereabouts;

/// A session, as an RNIC sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// It is being set up; what is to be sent waits.
    Coming,
    /// It is up. The number changes when another session has taken its place: what was under way in the old one is lost.
    Up(u64),
    /// The peer is lost, or was never found.
    Down,
}

/// The sessions of an RNIC, by the numbers that its peer table names them by. They carry DDP segments, whole and in order on each
/// stream (docs/rnic.md, section 7).
///
/// None of the calls blocks. What comes is bounded by the implementation: it takes no more from its peers than it has room for until
/// the RNIC has taken that.
pub trait Network {
    /// How many sessions there are: their numbers are below this.
    fn sessions(&self) -> u16;

    /// How a session is.
    fn link(&self, session: u16) -> Link;

    /// Where the peer of a session is reached; `None`: where this RNIC is.
    fn whereabouts(&self, _session: Option<u16>) -> Whereabouts {
        Whereabouts::Untold
    }

    /// Somebody is about to speak with the peer of a session. One that is not up is to be looked for from now on for as long as a peer
    /// may be silent.
    fn seek(&mut self, _session: u16) {}

    /// Takes what has come and lets time pass. True if something was done.
    fn poll(&mut self, now_ns: u64) -> bool;

    /// The oldest segment that has come, and its session; it stays until [`Network::pop`].
    fn front(&self) -> Option<(u16, &[u8])>;

    /// Drops that segment.
    fn pop(&mut self);

    /// Bytes of the longest segment that can be sent now; 0 if none ([`etherslot_rdma::Wire::room`]).
    fn room(&mut self, session: u16, stream: u16, want: usize) -> usize;

    /// The same of datagrams, which are not cut ([`etherslot_rdma::Wire::datagram_room`]).
    fn datagram_room(&mut self, session: u16, stream: u16, want: usize) -> usize {
        self.room(session, stream, want)
    }

    /// Sends a segment ([`etherslot_rdma::Wire::send`]).
    fn send(
        &mut self,
        session: u16,
        stream: u16,
        head: &[u8],
        data_len: usize,
        fill: &mut dyn FnMut(&mut [u8]) -> bool,
    ) -> bool;

    /// What has been sent so far goes out. True if something did.
    fn flush(&mut self, now_ns: u64) -> bool;

    /// The time at which [`Network::poll`] has something to do even if nothing comes.
    fn deadline_ns(&self) -> Option<u64> {
        None
    }
}
