//! A session as the engine's way to its peer.

use etherslot_rdma::{PeerId, Wire};
use etherslot_session::{Session, State};
use etherslot_wire::record::{HEADER_BYTES, Kind, MAX_PAYLOAD_BYTES};

/// What is left of a frame is worth filling from so many bytes on.
const WORTH_BYTES: usize = 256;

/// The session of one peer.
pub(crate) struct OneSession<'a> {
    pub(crate) session: Option<&'a mut Session>,
    pub(crate) scratch: &'a mut Vec<u8>,
}

impl OneSession<'_> {
    fn up(&mut self) -> Option<&mut Session> {
        self.session.as_deref_mut().filter(|session| session.state() == State::Up)
    }
}

impl Wire for OneSession<'_> {
    fn room(&mut self, _peer: PeerId, stream: u16, want: usize) -> usize {
        let Some(session) = self.up() else { return 0 };
        let left = session.room_for(stream);
        if left == 0 {
            return 0;
        }
        // A frame of its own: header, SACK block and what ends it take 96 bytes (docs/wire.md, section 2).
        let whole = ((session.frame_bytes() - 96) & !3) - HEADER_BYTES;
        if left >= want.min(WORTH_BYTES) { left.min(MAX_PAYLOAD_BYTES) } else { whole.min(MAX_PAYLOAD_BYTES) }
    }

    fn send(
        &mut self,
        _peer: PeerId,
        stream: u16,
        head: &[u8],
        data_len: usize,
        fill: &mut dyn FnMut(&mut [u8]) -> bool,
    ) -> bool {
        let total = head.len() + data_len;
        let mut scratch = std::mem::take(self.scratch);
        let Some(session) = self.up() else { return false };
        let sent = if total <= session.room_for(stream) {
            let data = head.len()..total;
            session.send_filled(Kind::Ddp, stream, head, data, total, fill).unwrap_or(false)
        } else {
            scratch.clear();
            scratch.resize(data_len, 0);
            fill(&mut scratch) && session.send(Kind::Ddp, stream, head, 0, &scratch, total).is_ok()
        };
        *self.scratch = scratch;
        sent
    }
}
