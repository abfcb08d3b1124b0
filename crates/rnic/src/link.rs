//! A session as the engine's way to its peer.

use etherslot_rdma::{PeerId, Wire};
use etherslot_session::{Session, State};
use etherslot_wire::record::{HEADER_BYTES, Kind, MAX_PAYLOAD_BYTES};

/// What is left of a frame is worth filling from so many bytes on.
const WORTH_BYTES: usize = 256;
/// What a frame has around a record of its own: header, SACK block and what ends it (docs/wire.md, section 2).
const FRAME_BYTES: usize = 96;

/// One session, whichever peer is asked for.
pub struct Link<'a> {
    /// The session, if there is one.
    pub session: Option<&'a mut Session>,
    /// Room for segments that cannot be written in place; any content.
    pub scratch: &'a mut Vec<u8>,
}

impl Link<'_> {
    fn up(&mut self) -> Option<&mut Session> {
        self.session.as_deref_mut().filter(|session| session.state() == State::Up)
    }
}

impl Wire for Link<'_> {
    fn room(&mut self, _peer: PeerId, stream: u16, want: usize) -> usize {
        self.up().map_or(0, |session| room(session, stream, want))
    }

    fn datagram_room(&mut self, _peer: PeerId, stream: u16, want: usize) -> usize {
        self.up().map_or(0, |session| datagram_room(session, stream, want))
    }

    fn send(
        &mut self,
        _peer: PeerId,
        stream: u16,
        head: &[u8],
        data_len: usize,
        fill: &mut dyn FnMut(&mut [u8]) -> bool,
    ) -> bool {
        // Taken out for the call, since the session is borrowed as well.
        let mut scratch = std::mem::take(self.scratch);
        let sent = self.up().is_some_and(|session| send(session, &mut scratch, stream, head, data_len, fill));
        *self.scratch = scratch;
        sent
    }
}

/// [`Wire::room`] of a session that is up.
#[inline]
pub(crate) fn room(session: &Session, stream: u16, want: usize) -> usize {
    let left = session.room_for(stream);
    if left == 0 {
        return 0;
    }
    let whole = ((session.frame_bytes() - FRAME_BYTES) & !3) - HEADER_BYTES;
    if left >= want.min(WORTH_BYTES) { left.min(MAX_PAYLOAD_BYTES) } else { whole.min(MAX_PAYLOAD_BYTES) }
}

/// [`Wire::datagram_room`] of a session that is up.
#[inline]
pub(crate) fn datagram_room(session: &Session, stream: u16, want: usize) -> usize {
    if session.room_for(stream) == 0 { 0 } else { want.min(MAX_PAYLOAD_BYTES) }
}

/// [`Wire::send`] on a session that is up.
#[inline]
pub(crate) fn send(
    session: &mut Session,
    scratch: &mut Vec<u8>,
    stream: u16,
    head: &[u8],
    data_len: usize,
    fill: &mut dyn FnMut(&mut [u8]) -> bool,
) -> bool {
    let total = head.len() + data_len;
    if total <= session.room_for(stream) {
        let data = head.len()..total;
        return session.send_filled(Kind::Ddp, stream, head, data, total, fill).unwrap_or(false);
    }
    scratch.clear();
    scratch.resize(data_len, 0);
    fill(scratch) && session.send(Kind::Ddp, stream, head, 0, scratch, total).is_ok()
}
