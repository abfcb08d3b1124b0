//! What each node puts on the wire: frames that fit, that parse, and that never repeat a packet number.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::rc::Rc;

use etherslot_session::parse_frame;
use etherslot_wire::frame::{Header, Kind};
use etherslot_wire::handshake::{Handshake, is_handshake};
use etherslot_wire::record::{FIRST, LAST, Record};
use etherslot_wire::{record, tlp};

use crate::checkers::verdict::{Rule, Verdict};
use crate::network::Address;

/// Packet numbers of one epoch: all below a bound, and those beyond it that were used out of order.
#[derive(Debug, Default)]
struct Numbers {
    below: u64,
    beyond: BTreeSet<u64>,
}

impl Numbers {
    /// Takes a number; false if it was used before.
    fn take(&mut self, number: u64) -> bool {
        if number < self.below || !self.beyond.insert(number) {
            return false;
        }
        while self.beyond.remove(&self.below) {
            self.below += 1;
        }
        true
    }
}

/// The check of all nodes' frames.
#[derive(Debug)]
pub(crate) struct Frames {
    verdict: Rc<Verdict>,
    mtu: usize,
    used: BTreeMap<(Address, u32), Numbers>,
}

impl Frames {
    /// A check for links that carry `mtu` bytes.
    pub(crate) fn new(mtu: u16, verdict: Rc<Verdict>) -> Self {
        Self { verdict, mtu: mtu as usize, used: BTreeMap::new() }
    }

    /// `from` sends a frame.
    pub(crate) fn sent(&mut self, from: Address, frame: &[u8]) {
        let broken = |detail: String| self.verdict.broken(Rule::Frame, || format!("{from}: {detail}"));
        if frame.len() > self.mtu {
            broken(format!("a frame of {} bytes on a link of {}", frame.len(), self.mtu));
        }
        if is_handshake(frame) {
            if let Err(error) = Handshake::parse(frame) {
                broken(format!("a frame of a handshake that is none: {error}"));
            }
            return;
        }
        // Of a sealed frame the body is not to be seen.
        let sealed = Header::parse_sealed(frame).map(|(header, ..)| (header, &[][..]));
        let is_sealed = sealed.is_ok();
        let (header, body) = match sealed.or_else(|_| parse_frame(frame)) {
            Ok(parsed) => parsed,
            Err(error) => return broken(format!("a frame that is none: {error}")),
        };
        // A responder that keeps no state numbers its answers to Hellos by itself; with keys it keeps them.
        if header.kind != Kind::HelloAck || is_sealed {
            let numbers = self.used.entry((from, header.src_epoch)).or_default();
            if !numbers.take(header.packet_number) {
                broken(format!(
                    "packet number {} of epoch {:08x} a second time",
                    header.packet_number, header.src_epoch
                ));
            }
        }
        if header.kind == Kind::Data {
            let mut rest = body;
            while !rest.is_empty() {
                match Record::parse(rest) {
                    Ok((record, behind)) => {
                        if record.kind == record::Kind::Tlp
                            && record.flags == FIRST | LAST
                            && let Err(error) = tlp::Header::parse(record.payload)
                        {
                            broken(format!("a TLP that is none: {error}"));
                        }
                        rest = behind;
                    }
                    Err(error) => return broken(format!("records that are none: {error}")),
                }
            }
        }
    }
}

/// One line about a frame.
pub(crate) fn describe(frame: &[u8]) -> String {
    if let Ok((handshake, ..)) = Handshake::parse(frame) {
        return format!("{:?} {:08x}>{:08x}", handshake.step, handshake.src_epoch, handshake.dst_epoch);
    }
    let sealed = Header::parse_sealed(frame).map(|(header, ..)| (header, &[][..]));
    let is_sealed = sealed.is_ok();
    let Ok((header, body)) = sealed.or_else(|_| Header::parse(frame)) else {
        return format!("{} bytes, no frame", frame.len());
    };
    let mut line = if is_sealed { "sealed ".to_owned() } else { String::new() };
    let _ = write!(
        line,
        "{:?} {:08x}>{:08x} #{} seq {}",
        header.kind, header.src_epoch, header.dst_epoch, header.packet_number, header.sequence
    );
    if let Some(ack) = header.ack {
        let _ = write!(line, " ack {}", ack.next);
    }
    if header.sack.is_some() {
        line += " sack";
    }
    let mut rest = body;
    while header.kind == Kind::Data
        && let Ok((record, behind)) = Record::parse(rest)
    {
        let _ = match (record.kind, tlp::Header::parse(record.payload)) {
            (record::Kind::Tlp, Ok((tlp, data))) => {
                write!(line, " [{} {:?} +{}]", record.stream, tlp.op, data.len())
            }
            (kind, _) => write!(line, " [{} {kind:?} {} bytes]", record.stream, record.payload.len()),
        };
        rest = behind;
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_number_is_used_once_in_whatever_order() {
        let mut numbers = Numbers::default();
        assert!([1, 0, 3].into_iter().all(|number| numbers.take(number)));
        assert!([0, 1, 3].into_iter().all(|number| !numbers.take(number)));
        assert!(numbers.take(2));
        assert_eq!(numbers.below, 4);
    }
}
