//! What a node knows of the others: who is there, where, with which devices; and when somebody falls silent.

use std::collections::{BTreeMap, VecDeque};

use etherslot_wire::NodeId;
use etherslot_wire::control::Name;
use etherslot_wire::discovery::{Device, Group, Header, Heard, MAX_LINKS, Role};

use crate::quality::Quality;
use crate::twin::Twin;

/// Intervals that are believed: a node can't ask to be waited for longer, nor be found silent sooner.
pub(crate) const INTERVAL_MS: (u16, u16) = (10, 60_000);
/// Events that wait to be taken; the oldest are dropped and counted.
const EVENTS: usize = 4096;

/// How a directory works.
#[derive(Clone, Debug)]
pub struct DirectoryConfig {
    /// A node is down when so many of its intervals have passed without a heartbeat.
    pub misses: u32,
    /// A node that is down is forgotten after this.
    pub forget_ns: u64,
    /// Nodes at most.
    pub nodes: usize,
}

impl Default for DirectoryConfig {
    fn default() -> Self {
        Self { misses: 3, forget_ns: 300_000_000_000, nodes: 4096 }
    }
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectoryCounters {
    /// Heartbeats that told something.
    pub heartbeats: u64,
    /// Heartbeats of an earlier life, or older than one that came before, or a second time.
    pub stale: u64,
    /// Heartbeats of nodes for which there was no room.
    pub refused: u64,
    /// Heartbeats under our own ID from elsewhere: two nodes have the same name.
    pub own: u64,
    /// Nodes that fell silent.
    pub lost: u64,
    /// Events that nobody took in time.
    pub events_dropped: u64,
}

/// Whether a node is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// Its heartbeats come.
    Up,
    /// They came, and come no more.
    Down,
    /// It has said that it stops.
    Left,
}

/// What is known of a node.
#[derive(Clone, Debug)]
pub struct Known<A> {
    /// What people call it.
    pub name: Name,
    /// What it is.
    pub role: Role,
    /// Its assignment group.
    pub group: Option<Group>,
    /// Its life.
    pub life: u64,
    /// Whether it is there.
    pub presence: Presence,
    /// When the last heartbeat came.
    pub heard_ns: u64,
    /// Its devices, in its own order; those that have not been told yet are missing.
    pub devices: Vec<Option<Device>>,
    interval_ns: u64,
    sequence: u64,
    /// Heard of an earlier life while this one is up.
    twin: Twin<A>,
    ways: [Way<A>; MAX_LINKS],
}

/// A link of a node, as heard here.
#[derive(Clone, Copy, Debug)]
struct Way<A> {
    address: Option<A>,
    is_direct: bool,
    heard_ns: u64,
    quality: Quality,
}

impl<A: Copy + Eq> Known<A> {
    /// Where it is reached now, by its links' numbers, and how good each way is.
    pub fn ways(&self) -> impl Iterator<Item = (usize, A, Quality)> {
        self.ways.iter().enumerate().filter_map(|(link, way)| Some((link, way.address?, way.quality)))
    }

    /// The first address at which it is reached.
    pub fn address(&self) -> Option<A> {
        self.ways().next().map(|(_, address, _)| address)
    }

    /// Its device of this name.
    pub fn device(&self, name: &Name) -> Option<&Device> {
        self.devices.iter().flatten().find(|device| device.name == *name)
    }

    /// Whether two nodes speak under this ID now.
    pub fn is_double(&self, now_ns: u64) -> bool {
        self.presence == Presence::Up && self.twin.is_there(now_ns)
    }

    /// Where it is to be told of others: its addresses, and that of another node under its ID.
    pub(crate) fn ears(&self, now_ns: u64) -> impl Iterator<Item = A> {
        let twin = self.twin.address(now_ns).filter(|&at| self.ways().all(|(_, address, _)| address != at));
        self.ways().map(|(_, address, _)| address).chain(twin)
    }

    /// The interval of its heartbeats.
    pub fn interval_ns(&self) -> u64 {
        self.interval_ns
    }
}

/// What has become of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeEvent {
    /// It is heard for the first time.
    Up,
    /// It is heard again after it was down or had left, in the same life or a new one.
    Back,
    /// It began a new life before anybody had found it silent.
    Restarted,
    /// It fell silent.
    Down,
    /// It has said that it stops.
    Left,
}

/// Something that changed.
#[expect(clippy::large_enum_variant, reason = "most are of the large one")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A node came or went.
    Node(NodeId, NodeEvent),
    /// A box's device is known for the first time, or something about it is different: given to a host, given back, lost by its owner.
    Device {
        /// The box.
        node: NodeId,
        /// What was known before.
        before: Option<Device>,
        /// What is known now.
        now: Device,
    },
}

/// All other nodes.
#[derive(Clone, Debug)]
pub struct Directory<A> {
    config: DirectoryConfig,
    own: NodeId,
    nodes: BTreeMap<NodeId, Known<A>>,
    events: VecDeque<Event>,
    counters: DirectoryCounters,
    /// No node falls silent before this.
    next_ns: u64,
}

impl<A: Copy + Eq> Directory<A> {
    /// An empty directory of the node `own`.
    pub fn new(own: NodeId, config: DirectoryConfig) -> Self {
        Self {
            config,
            own,
            nodes: BTreeMap::new(),
            events: VecDeque::new(),
            counters: DirectoryCounters::default(),
            next_ns: u64::MAX,
        }
    }

    /// A heartbeat came from `from`; `is_direct` if not by a rendezvous.
    pub fn hear(&mut self, now_ns: u64, from: A, is_direct: bool, header: &Header, heard: &Heard<'_>) {
        let heartbeat = &heard.heartbeat;
        if header.node == self.own {
            self.counters.own += 1;
            return;
        }
        if !self.nodes.contains_key(&header.node) && !self.make_room(now_ns) {
            self.counters.refused += 1;
            return;
        }
        let silence = Way { address: None, is_direct: false, heard_ns: 0, quality: Quality::default() };
        let mut is_new = false;
        let known = self.nodes.entry(header.node).or_insert_with(|| {
            is_new = true;
            Known {
                name: heartbeat.name,
                role: heartbeat.role,
                group: heartbeat.group,
                life: header.life,
                presence: Presence::Left,
                heard_ns: now_ns,
                devices: Vec::new(),
                interval_ns: 0,
                sequence: 0,
                twin: Twin::NONE,
                ways: [silence; MAX_LINKS],
            }
        });
        let is_same_life = header.life == known.life;
        // Of a node that is silent any life is taken: its clock, which makes lives, may have been set back.
        let is_fresh = is_new
            || (is_same_life && header.sequence > known.sequence)
            || (!is_same_life && (header.life > known.life || known.presence != Presence::Up));
        if !is_fresh {
            self.counters.stale += 1;
            if !is_same_life {
                known.twin.hear(now_ns, from, heartbeat.interval_ms);
            }
            return;
        }
        self.counters.heartbeats += 1;
        let mut event = match known.presence {
            _ if is_new => Some(NodeEvent::Up),
            Presence::Up => None,
            Presence::Down | Presence::Left => Some(NodeEvent::Back),
        };
        if !is_same_life {
            known.ways = [silence; MAX_LINKS];
            known.twin = Twin::NONE;
            event = event.or(Some(NodeEvent::Restarted));
        }
        (known.life, known.sequence, known.heard_ns) = (header.life, header.sequence, now_ns);
        (known.name, known.role, known.group) = (heartbeat.name, heartbeat.role, heartbeat.group);
        let way = &mut known.ways[heartbeat.link as usize];
        if is_direct || !way.is_direct || way.heard_ns + 2 * known.interval_ns < now_ns {
            (way.address, way.is_direct) = (Some(from), is_direct);
        }
        way.heard_ns = now_ns;
        way.quality.heard(heartbeat.sent);
        if heartbeat.interval_ms == 0 {
            if known.presence != Presence::Left || is_new {
                known.presence = Presence::Left;
                self.tell(Event::Node(header.node, NodeEvent::Left));
            }
            return;
        }
        let (least, most) = INTERVAL_MS;
        known.interval_ns = u64::from(heartbeat.interval_ms.clamp(least, most)) * 1_000_000;
        known.presence = Presence::Up;
        self.next_ns = self.next_ns.min(now_ns + known.interval_ns * u64::from(self.config.misses));
        known.devices.resize(heartbeat.devices as usize, None);
        if let Some(event) = event {
            self.tell(Event::Node(header.node, event));
        }
        self.devices_heard(header.node, heard);
    }

    fn devices_heard(&mut self, node: NodeId, heard: &Heard<'_>) {
        let Some(known) = self.nodes.get_mut(&node) else { return };
        for (place, now) in heard.devices() {
            let Some(entry) = known.devices.get_mut(place as usize) else { continue };
            if *entry == Some(now) {
                continue;
            }
            let before = entry.replace(now).filter(|before| before.name == now.name);
            if self.events.len() >= EVENTS {
                self.events.pop_front();
                self.counters.events_dropped += 1;
            }
            self.events.push_back(Event::Device { node, before, now });
        }
    }

    /// Whether there is room for one more node, if need be in place of one that is gone for the longest time.
    fn make_room(&mut self, now_ns: u64) -> bool {
        if self.nodes.len() < self.config.nodes {
            return true;
        }
        let gone = self.nodes.iter().filter(|(_, known)| known.presence != Presence::Up);
        let oldest = gone.min_by_key(|(_, known)| known.heard_ns.min(now_ns)).map(|(node, _)| *node);
        oldest.is_some_and(|node| self.nodes.remove(&node).is_some())
    }

    fn tell(&mut self, event: Event) {
        if self.events.len() >= EVENTS {
            self.events.pop_front();
            self.counters.events_dropped += 1;
        }
        self.events.push_back(event);
    }

    /// Finds those that are silent, and forgets those that are for long. True if there was one.
    pub fn poll(&mut self, now_ns: u64) -> bool {
        if now_ns < self.next_ns {
            return false;
        }
        let Self { config, nodes, next_ns, .. } = self;
        *next_ns = u64::MAX;
        let mut silent = Vec::new();
        nodes.retain(|node, known| {
            let patience_ns = if known.presence == Presence::Up {
                known.interval_ns * u64::from(config.misses)
            } else {
                config.forget_ns
            };
            let mut until_ns = known.heard_ns.saturating_add(patience_ns);
            if until_ns <= now_ns {
                if known.presence != Presence::Up {
                    return false;
                }
                known.presence = Presence::Down;
                known.ways.iter_mut().for_each(|way| way.quality.reset());
                silent.push(*node);
                until_ns = known.heard_ns.saturating_add(config.forget_ns).max(now_ns + 1);
            }
            *next_ns = (*next_ns).min(until_ns);
            true
        });
        self.counters.lost += silent.len() as u64;
        for &node in &silent {
            self.tell(Event::Node(node, NodeEvent::Down));
        }
        !silent.is_empty()
    }

    /// When [`Directory::poll`] has something to find.
    pub fn deadline_ns(&self) -> Option<u64> {
        (self.next_ns != u64::MAX).then_some(self.next_ns)
    }

    /// The next thing that changed.
    pub fn event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// What is known of a node.
    pub fn get(&self, node: &NodeId) -> Option<&Known<A>> {
        self.nodes.get(node)
    }

    /// All nodes, in the order of their IDs.
    pub fn nodes(&self) -> impl Iterator<Item = (&NodeId, &Known<A>)> {
        self.nodes.iter()
    }

    /// What was counted.
    pub fn counters(&self) -> &DirectoryCounters {
        &self.counters
    }
}

#[cfg(test)]
#[path = "directory_tests.rs"]
mod tests;
