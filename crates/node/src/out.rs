//! From TLPs and control messages to records of a session.

use etherslot_pci::{TlpOut, data_lead};
use etherslot_session::Session;
use etherslot_wire::control::Message;
use etherslot_wire::record::Kind;
use etherslot_wire::tlp::{Header, MAX_HEADER_BYTES};

/// Sends a TLP whose data starts at its first enabled byte. False if the session has no room.
pub(crate) fn send_tlp(session: &mut Session, stream: u16, header: &Header, data: &[u8]) -> bool {
    let mut head = [0; MAX_HEADER_BYTES];
    let Some(head_bytes) = header.emit(&mut head) else { return false };
    let total = head_bytes + header.data_bytes();
    session.send(Kind::Tlp, stream, &head[..head_bytes], data_lead(header), data, total).is_ok()
}

/// Sends a control message. False if the session has no room.
pub(crate) fn send_control(session: &mut Session, stream: u16, message: Message) -> bool {
    let mut bytes = [0; Message::MAX_BYTES];
    let Some(length) = message.emit(&mut bytes) else { return false };
    session.send(Kind::Control, stream, &bytes[..length], 0, &[], length).is_ok()
}

/// A session as the way upstream of a hierarchy.
pub(crate) struct Upstream<'a>(pub(crate) &'a mut Session);

impl TlpOut for Upstream<'_> {
    fn room(&mut self, stream: u16) -> usize {
        self.0.room_for(stream)
    }

    fn send(&mut self, stream: u16, header: &Header, data: &[u8]) -> bool {
        send_tlp(self.0, stream, header, data)
    }
}
