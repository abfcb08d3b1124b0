//! Frames of discovery in a fabric with keys: each with a tag that only the fabric's nodes can make, and orders that are new.

use std::collections::BTreeMap;

use crc32c::crc32c;
use etherslot_node::seal::FabricKey;
use etherslot_wire::NodeId;
use etherslot_wire::bytes::{array, u16_at, u64_at};
use etherslot_wire::discovery::{HEADER_BYTES, Header, Message};
use etherslot_wire::frame::CHECK_BYTES;

/// Bytes of a tag, behind the check.
pub(super) const TAG_BYTES: usize = 32;
/// Nodes of which it is known what they said last; those that were heard first make room.
const MOST_NODES: usize = 8192;

/// Puts tags to frames, and verifies them.
pub(super) struct Tags {
    key: FabricKey,
    frame: Vec<u8>,
    /// Life and sequence of the newest frame of each node.
    newest: BTreeMap<NodeId, (u64, u64)>,
    refused: u64,
}

impl Tags {
    pub(super) fn new(key: FabricKey) -> Self {
        Self { key, frame: Vec::new(), newest: BTreeMap::new(), refused: 0 }
    }

    /// Frames that were refused: without a tag, with a wrong one, or orders that are old.
    pub(super) fn refused(&self) -> u64 {
        self.refused
    }

    /// The frame with its tag.
    pub(super) fn put(&mut self, frame: &[u8]) -> &[u8] {
        let tag = self.key.announcement_tag(frame);
        self.frame.clear();
        self.frame.extend_from_slice(frame);
        self.frame.extend_from_slice(&tag);
        &self.frame
    }

    /// The frame without its tag, if a node of the fabric made it. Orders and their outcomes have to be newer than all that was
    /// heard of their node.
    pub(super) fn take<'a>(&mut self, frame: &'a [u8]) -> Option<&'a [u8]> {
        let taken = self.verified(frame);
        self.refused += u64::from(taken.is_none());
        taken
    }

    fn verified<'a>(&mut self, frame: &'a [u8]) -> Option<&'a [u8]> {
        let length = HEADER_BYTES + usize::from(u16_at(frame, 2)?) + CHECK_BYTES;
        let (told, tag) = (frame.get(..length)?, frame.get(length..length + TAG_BYTES)?);
        if !self.key.verify_announcement(told, tag) {
            return None;
        }
        let age = (u64_at(told, 8)?, u64_at(told, 16)?);
        let node = NodeId(array(told, 24)?);
        let is_new = self.newest.get(&node).is_none_or(|newest| *newest < age);
        // Heartbeats overtake each other on several links; the directory tells which is the newest.
        if !is_new && told[1] != Message::Heartbeat as u8 && told[1] != Message::Relayed as u8 {
            return None;
        }
        if is_new {
            if self.newest.len() >= MOST_NODES && !self.newest.contains_key(&node) {
                self.newest.pop_first();
            }
            self.newest.insert(node, age);
        }
        Some(told)
    }
}

/// Why a node that is heard is none of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stranger {
    /// Its fabric's key is another one.
    Foreign,
    /// It has no key, and we have.
    Keyless,
    /// It has a key, and we have none.
    Keyed,
}

impl Stranger {
    /// What is to be said of whoever sent a frame to a node without keys, or one that `tags` did not take.
    pub(super) fn of(frame: &[u8], tags: Option<&Tags>) -> Option<Self> {
        let (_, body) = Header::parse_checked(frame, crc32c).ok()?;
        let (told, rest) = frame.split_at_checked(HEADER_BYTES + body.len() + CHECK_BYTES)?;
        // Zeros fill what is too short for an Ethernet.
        let tag = rest.get(..TAG_BYTES).filter(|tag| tag.iter().any(|&byte| byte != 0));
        match (tags, tag) {
            (None, None) => None,
            (None, Some(_)) => Some(Self::Keyed),
            (Some(_), None) => Some(Self::Keyless),
            (Some(tags), Some(tag)) => (!tags.key.verify_announcement(told, tag)).then_some(Self::Foreign),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(message: Message, life: u64, sequence: u64) -> Vec<u8> {
        let mut frame = vec![7; HEADER_BYTES + 10 + CHECK_BYTES];
        let header = Header { message, life, sequence, node: NodeId([9; 16]) };
        header.emit(&mut frame, 10, |_| 0).unwrap();
        frame
    }

    #[test]
    fn it_is_said_why_a_node_is_a_stranger() {
        let [mut ours, mut other] = [1, 2].map(|key| Tags::new(FabricKey::from_bytes([key; 32])));
        let mut told = vec![7; HEADER_BYTES + 10 + CHECK_BYTES];
        let header = Header { message: Message::Heartbeat, life: 5, sequence: 3, node: NodeId([9; 16]) };
        header.emit(&mut told, 10, crc32c).unwrap();
        let (mine, theirs) = (ours.put(&told).to_vec(), other.put(&told).to_vec());
        let padded = [&told[..], &[0; 40]].concat();
        assert_eq!(Stranger::of(&theirs, Some(&ours)), Some(Stranger::Foreign));
        assert_eq!(Stranger::of(&mine, Some(&ours)), None, "it is only late");
        assert_eq!(Stranger::of(&mine, None), Some(Stranger::Keyed));
        for plain in [&told, &padded] {
            assert_eq!(Stranger::of(plain, Some(&ours)), Some(Stranger::Keyless));
            assert_eq!(Stranger::of(plain, None), None);
        }
        assert_eq!(Stranger::of(b"noise", Some(&ours)), None);
    }

    #[test]
    fn what_strangers_say_and_what_was_said_before_is_refused() {
        let [mut one, mut other, mut stranger] =
            [1, 1, 2].map(|key| Tags::new(FabricKey::from_bytes([key; 32])));
        let order = frame(Message::Order, 5, 3);
        let tagged = one.put(&order).to_vec();
        assert_eq!(stranger.take(&tagged), None);
        assert_eq!(other.take(&order), None);
        for at in 0..tagged.len() {
            let mut changed = tagged.clone();
            changed[at] ^= 1;
            assert_eq!(other.take(&changed), None, "byte {at}");
        }
        let padded = [&tagged[..], &[0; 5]].concat();
        assert_eq!(other.take(&padded), Some(&order[..]));
        assert_eq!(other.take(&tagged), None, "an order a second time");
        for (life, sequence, is_new) in [(5, 2, false), (5, 4, true), (4, 9, false), (6, 0, true)] {
            let tagged = one.put(&frame(Message::Order, life, sequence)).to_vec();
            assert_eq!(other.take(&tagged).is_some(), is_new, "{life} {sequence}");
        }
        let late = one.put(&frame(Message::Heartbeat, 6, 0)).to_vec();
        assert!(other.take(&late).is_some());
        assert_eq!(other.refused(), tagged.len() as u64 + 4);
    }
}
