//! What is wrong in the fabric as one node sees it, and nobody would notice.

use std::collections::BTreeSet;

use crc32c::crc32c;
use etherslot_fabric::{Member, Presence};
use etherslot_wire::NodeId;
use etherslot_wire::discovery::{Header, Message, Port, Role};

use super::find;
use super::tags::Stranger;
use super::{Fabric, Wanted};
use crate::options::Via;

/// Strangers that are kept in mind at once.
const STRANGERS: usize = 8;
/// As many as a directory has nodes.
const MOST_KEYED: usize = 4096;
/// Who was not heard for so long is gone.
const GONE_NS: u64 = 3_000_000_000;
/// Between two frames of strangers that are looked at.
const LOOK_NS: u64 = 10_000_000;

#[derive(Default)]
pub(super) struct Wrong {
    pub(super) strangers: Strangers,
    /// Nodes have come or gone since names were looked at.
    pub(super) has_news: bool,
    doubles: Vec<String>,
}

/// Nodes that are heard and can't be spoken with.
#[derive(Default)]
pub(super) struct Strangers {
    heard: Vec<(Via, Stranger, u64)>,
    look_ns: u64,
    /// Those that have keys; those of the least IDs make room.
    keyed: BTreeSet<NodeId>,
}

impl Strangers {
    /// A frame came to a node without keys: with the tag of a node that has them, or without.
    pub(super) fn came(&mut self, frame: &[u8], has_tag: bool) {
        if !has_tag && self.keyed.is_empty() {
            return;
        }
        let Some(node) = speaker(frame) else { return };
        if !has_tag {
            self.keyed.remove(&node);
        } else if self.keyed.insert(node) && self.keyed.len() > MOST_KEYED {
            self.keyed.pop_first();
        }
    }

    /// Whether a node has keys, and this one has none.
    pub(super) fn is_keyed(&self, node: &NodeId) -> bool {
        self.keyed.contains(node)
    }

    /// A frame came; `why` it is a stranger's, if it is.
    pub(super) fn heard(&mut self, now_ns: u64, from: &Via, why: impl FnOnce() -> Option<Stranger>) {
        if now_ns < self.look_ns {
            return;
        }
        self.look_ns = now_ns + LOOK_NS;
        let Some(why) = why() else { return };
        self.heard.retain(|(_, _, at_ns)| now_ns < at_ns + GONE_NS);
        let has_room = self.heard.len() < STRANGERS;
        match self.heard.iter_mut().find(|(via, _, _)| via == from) {
            Some(known) => (known.1, known.2) = (why, now_ns),
            None if has_room => self.heard.push((*from, why, now_ns)),
            None => {}
        }
    }

    fn tell(&self, now_ns: u64, wrong: &mut Vec<String>) {
        for (via, why, _) in self.heard.iter().filter(|(_, _, at_ns)| now_ns < at_ns + GONE_NS) {
            wrong.push(match why {
                Stranger::Foreign => format!(
                    "a node is heard at {via} whose fabric.key is another: copy one node's to the others (etherslot keygen \
                     prints a fingerprint to compare)"
                ),
                Stranger::Keyless => format!(
                    "a node without keys is heard at {via}, and this one has keys: they don't work together; give it this \
                     fabric's fabric.key, and no plaintext"
                ),
                Stranger::Keyed => format!(
                    "a node with keys is heard at {via}, and this one has none: they don't work together; give this one \
                     the other's fabric.key, and no plaintext"
                ),
            });
        }
    }
}

impl Fabric {
    /// What is wrong now. `wanted`: the devices of slots whose boxes are not named.
    pub(crate) fn wrong<'a>(&mut self, now_ns: u64, wanted: impl Iterator<Item = &'a Wanted>) -> Vec<String> {
        if std::mem::take(&mut self.wrong.has_news) {
            self.wrong.doubles = doubles(&self.member);
        }
        let mut wrong = self.wrong.doubles.clone();
        let own = self.member.identity().name;
        let nodes = self.member.directory().nodes();
        let shared = nodes.filter(|(_, known)| known.is_double(now_ns)).map(|(_, known)| known.name);
        for name in shared.chain(self.member.is_double(now_ns).then_some(own)) {
            wrong.push(format!(
                "two nodes have the name {} and even the same ID: give one another name ([node] name), and each keys or an \
                 /etc/machine-id of its own",
                name.as_str()
            ));
        }
        self.wrong.strangers.tell(now_ns, &mut wrong);
        wrong.extend(wanted.filter_map(|wanted| find::unmet(&self.member, wanted)));
        wrong
    }
}

/// Who made a frame of discovery, or the heartbeat that is passed on by it.
fn speaker(frame: &[u8]) -> Option<NodeId> {
    let (header, body) = Header::parse_checked(frame, crc32c).ok()?;
    match header.message {
        Message::Relayed => Some(Header::parse_checked(body.get(Port::BYTES..)?, crc32c).ok()?.0.node),
        _ => Some(header.node),
    }
}

/// Names that two nodes of one role have.
fn doubles(member: &Member<Via>) -> Vec<String> {
    let own = member.identity();
    let others = member.directory().nodes().filter(|(_, known)| known.presence == Presence::Up);
    let others = others.map(|(_, known)| (known.role, known.name));
    let mut all: Vec<(Role, _)> = others.chain([(own.role, own.name)]).collect();
    all.sort_by(|(a, one), (b, other)| (*a as u8, one.as_str()).cmp(&(*b as u8, other.as_str())));
    let called = all.chunk_by(|a, b| a == b).filter(|nodes| nodes.len() > 1);
    called
        .map(|nodes| {
            let (role, name) = nodes[0];
            let role = if role == Role::Box { "boxes" } else { "hosts" };
            format!(
                "{} {role} are called {}: give each a name of its own ([node] name)",
                nodes.len(),
                name.as_str()
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherslot_netio::Address;
    use etherslot_wire::discovery::HEADER_BYTES;

    #[test]
    fn a_node_is_one_with_keys_until_it_speaks_without() {
        let frame = |number: u16| {
            let mut frame = vec![0; HEADER_BYTES + 4];
            let mut node = NodeId([9; 16]);
            node.0[..2].copy_from_slice(&number.to_be_bytes());
            let header = Header { message: Message::Heartbeat, life: 1, sequence: 1, node };
            header.emit(&mut frame, 0, crc32c).unwrap();
            (frame, node)
        };
        let mut strangers = Strangers::default();
        let (said, node) = frame(7);
        strangers.came(&said, true);
        assert!(strangers.is_keyed(&node) && !strangers.is_keyed(&NodeId([9; 16])));
        strangers.came(b"noise", true);
        strangers.came(&said, false);
        assert!(!strangers.is_keyed(&node));
        for number in 0..=u16::try_from(MOST_KEYED).unwrap() {
            strangers.came(&frame(number).0, true);
        }
        assert_eq!(strangers.keyed.len(), MOST_KEYED);
    }

    #[test]
    fn strangers_are_told_by_address_while_they_are_heard_and_few_at_once() {
        let via = |number| Via { link: 0, address: Address::Ring(number) };
        let mut strangers = Strangers::default();
        for frame in 1..100 {
            strangers.heard(u64::from(frame) * LOOK_NS, &via(frame), || Some(Stranger::Foreign));
            assert!(strangers.heard.len() <= STRANGERS);
        }
        let mut told = Vec::new();
        strangers.tell(100 * LOOK_NS, &mut told);
        assert_eq!(told.len(), STRANGERS);
        assert!(told[0].contains("ring:1 whose fabric.key is another"), "{told:?}");
        told.clear();
        strangers.tell(GONE_NS + 100 * LOOK_NS, &mut told);
        assert!(told.is_empty());
    }
}
