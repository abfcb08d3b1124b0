//! What stands between an end and the network: a smaller receive window than the code has, an application that stops
//! taking what arrives, and the sabotages.

use etherslot_session::{Hello, parse_frame};
use etherslot_wire::frame::{CHECK_BYTES, Header, Kind, flag, put_check};

use crate::scope::{Sabotage, Scope};

/// Says on the wire what a receiver with fewer buffers would say; credit never moves back.
pub(crate) struct Shim {
    at: usize,
    window: Option<u32>,
    sabotage: Sabotage,
    /// The application takes nothing.
    pub(crate) is_holding: bool,
    /// The credit given last, and in which session.
    given: Option<((u32, u32), u32)>,
}

impl Shim {
    pub(crate) fn new(scope: &Scope, at: usize) -> Self {
        Self { at, window: scope.window, sabotage: scope.sabotage, is_holding: false, given: None }
    }

    /// The frame as it leaves.
    pub(crate) fn outgoing(&mut self, frame: &[u8]) -> Vec<u8> {
        let (mut header, body) = parse_frame(frame).expect("own frame");
        let mut body = body.to_vec();
        if let Some(window) = self.window {
            self.narrow(window, &mut header, &mut body);
        }
        if self.sabotage == Sabotage::NeverAsks {
            header.flags &= !flag::ACK_NOW;
        }
        let mut out = vec![0; header.len() + body.len() + CHECK_BYTES];
        let at = header.emit(&mut out).expect("room");
        out[at..at + body.len()].copy_from_slice(&body);
        put_check(&mut out, crc32c::crc32c).expect("room");
        out
    }

    fn narrow(&mut self, window: u32, header: &mut Header, body: &mut [u8]) {
        if matches!(header.kind, Kind::Hello | Kind::HelloAck)
            && let Some(hello) = Hello::parse(body)
        {
            let narrow = Hello { receive_window_frames: window as u16, ..hello };
            narrow.emit(body).expect("room");
        }
        if let Some(ack) = &mut header.ack {
            let session = (header.src_epoch, header.dst_epoch);
            let full = ack.next.wrapping_add(window);
            let earlier = self.given.filter(|(earlier, _)| *earlier == session).map(|(_, given)| given);
            let is_sabotaged = |sabotage| self.sabotage == sabotage && self.at == 1;
            let given;
            (given, ack.credit) = match earlier {
                Some(given) if self.is_holding || is_sabotaged(Sabotage::GivesNoCredit) => (given, given),
                Some(given) if given == full && is_sabotaged(Sabotage::GivesCreditOnce) => (given, ack.next),
                _ => (full, full),
            };
            self.given = Some((session, given));
        }
    }

    /// The frame as the end sees it, unless it does not; `session` are the epochs of one that is up.
    pub(crate) fn incoming(&self, header: &mut Header, session: Option<(u32, u32)>) -> bool {
        if self.sabotage == Sabotage::IgnoresEpochs
            && header.kind == Kind::Data
            && let Some((own, peer)) = session
        {
            (header.dst_epoch, header.src_epoch) = (own, peer);
        }
        let is_first = header.kind == Kind::Data && header.sequence == crate::world::FIRST_SEQUENCE;
        !(self.sabotage == Sabotage::LosesFirst && is_first)
    }
}
