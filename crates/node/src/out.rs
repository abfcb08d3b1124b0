//! From TLPs and control messages to records of a session.

use etherslot_pci::data_lead;
use etherslot_session::Session;
use etherslot_wire::ahead::Piece;
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

/// The longest data that are copied once more on their way: what is as short may go before other streams' records, which is
/// decided when a record is whole.
const SHORT_BYTES: usize = 128;

/// Sends a TLP whose `bytes` bytes of data, from its first enabled one on, are what `read` writes. It fits the session's room
/// unsplit, or is short. False if `read` could not: nothing was sent.
pub(crate) fn send_read_tlp(
    session: &mut Session,
    stream: u16,
    header: &Header,
    bytes: usize,
    read: &mut dyn FnMut(&mut [u8]) -> bool,
) -> bool {
    if bytes <= SHORT_BYTES {
        let mut data = [0; SHORT_BYTES];
        return read(&mut data[..bytes]) && send_tlp(session, stream, header, &data[..bytes]);
    }
    let mut head = [0; MAX_HEADER_BYTES];
    let Some(head_bytes) = header.emit(&mut head) else { return false };
    let start = head_bytes + data_lead(header);
    let total = head_bytes + header.data_bytes();
    session.send_filled(Kind::Tlp, stream, &head[..head_bytes], start..start + bytes, total, read) == Ok(true)
}

/// Sends a piece read ahead, whose `bytes` bytes are what `read` writes; through `spare` if they go into several frames. False if
/// there is no room or `read` could not: nothing was sent.
pub(crate) fn send_piece(
    session: &mut Session,
    stream: u16,
    piece: &Piece,
    bytes: usize,
    spare: &mut [u8],
    read: &mut dyn FnMut(&mut [u8]) -> bool,
) -> bool {
    let head = piece.emit();
    let total = Piece::BYTES + bytes;
    if bytes > SHORT_BYTES && session.fits(stream, total) {
        return session.send_filled(Kind::Ahead, stream, &head, Piece::BYTES..total, total, read) == Ok(true);
    }
    let data = &mut spare[..bytes];
    read(data) && session.send(Kind::Ahead, stream, &head, 0, data, total).is_ok()
}

/// Sends a control message. False if the session has no room.
pub(crate) fn send_control(session: &mut Session, stream: u16, message: Message) -> bool {
    let mut bytes = [0; Message::MAX_BYTES];
    let Some(length) = message.emit(&mut bytes) else { return false };
    session.send(Kind::Control, stream, &bytes[..length], 0, &[], length).is_ok()
}
