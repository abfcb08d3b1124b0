//! What a node tells of itself: a heartbeat each interval, and one at once when something has changed.

use crc32c::crc32c;
use etherslot_wire::NodeId;
use etherslot_wire::control::Name;
use etherslot_wire::discovery::{
    Device, Group, HEADER_BYTES, Header, Heartbeat, MAX_LINKS, Message, Port, Role,
};
use etherslot_wire::frame::{MAX_FRAME_BYTES, TAG_BYTES};

/// Between two heartbeats at least, however much changes.
const GAP_NS: u64 = 5_000_000;
/// Devices in one heartbeat at most: its field has 8 bits.
const MOST_DEVICES: usize = 255;
/// A heartbeat and what a rendezvous puts around it fit into one frame.
pub(crate) const RELAY_BYTES: usize = HEADER_BYTES + Port::BYTES + TAG_BYTES;

/// Who a node is, in one life.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Its ID.
    pub node: NodeId,
    /// Larger in each life.
    pub life: u64,
    /// What people call it.
    pub name: Name,
    /// What it is.
    pub role: Role,
    /// Its assignment group.
    pub group: Option<Group>,
    /// Where it is reached, one for each of its links.
    pub ports: Vec<Port>,
}

/// Makes a node's heartbeats.
#[derive(Clone, Debug)]
pub struct Announcer {
    identity: Identity,
    interval_ns: u64,
    /// Devices that fit into one heartbeat.
    page: usize,
    sequence: u64,
    sent: u32,
    generation: u32,
    /// The device that the next heartbeat begins with.
    cursor: usize,
    last_ns: Option<u64>,
    due_ns: u64,
    jitter: u64,
}

impl Announcer {
    /// A node with links that carry frames of `frame_bytes` at least, 576 or more, tells of itself every `interval_ns`.
    pub fn new(identity: Identity, interval_ns: u64, frame_bytes: usize) -> Self {
        let room = frame_bytes.min(MAX_FRAME_BYTES).saturating_sub(HEADER_BYTES + TAG_BYTES + RELAY_BYTES);
        let lists = room.saturating_sub(Heartbeat::len(identity.ports.len().min(MAX_LINKS), 0));
        let jitter = identity.life ^ u64::from_be_bytes(identity.node.0[8..].try_into().unwrap_or_default());
        Self {
            identity,
            interval_ns,
            page: (lists / Device::BYTES).clamp(1, MOST_DEVICES),
            sequence: 0,
            sent: 0,
            generation: 0,
            cursor: 0,
            last_ns: None,
            due_ns: 0,
            jitter,
        }
    }

    /// Who the node is.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The interval between two heartbeats.
    pub fn interval_ns(&self) -> u64 {
        self.interval_ns
    }

    /// The device at this place of the list has changed: others are to know soon.
    pub fn changed(&mut self, now_ns: u64, device: usize) {
        self.generation = self.generation.wrapping_add(1);
        self.cursor = device;
        self.due_ns = self.due_ns.min(self.last_ns.map_or(0, |last_ns| last_ns + GAP_NS).max(now_ns));
    }

    /// When the next heartbeat is due.
    pub fn deadline_ns(&self) -> u64 {
        self.due_ns
    }

    /// The next number of a frame of this node that is no heartbeat.
    pub(crate) fn header(&mut self, message: Message) -> Header {
        let sequence = self.sequence;
        self.sequence += 1;
        Header { message, life: self.identity.life, sequence, node: self.identity.node }
    }

    /// Makes the heartbeats that are due: `emit` is called for each link with its frame. `devices` is the whole list. True
    /// if there were any.
    pub fn poll(&mut self, now_ns: u64, devices: &[Device], emit: &mut dyn FnMut(usize, &[u8])) -> bool {
        if now_ns < self.due_ns {
            return false;
        }
        self.beat(now_ns, devices, (self.interval_ns / 1_000_000).clamp(1, 60_000) as u16, emit);
        // Up to an eighth earlier: nodes that began at once, as after a failure of the power, spread.
        self.jitter = self.jitter.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        let early_ns = (self.interval_ns / 8).saturating_mul(self.jitter >> 33) >> 31;
        self.due_ns = now_ns + self.interval_ns - early_ns;
        true
    }

    /// The last heartbeats: the node stops.
    pub fn leave(&mut self, now_ns: u64, emit: &mut dyn FnMut(usize, &[u8])) {
        self.beat(now_ns, &[], 0, emit);
    }

    fn beat(
        &mut self,
        now_ns: u64,
        devices: &[Device],
        interval_ms: u16,
        emit: &mut dyn FnMut(usize, &[u8]),
    ) {
        if self.cursor >= devices.len() {
            self.cursor = 0;
        }
        let here = &devices[self.cursor..devices.len().min(self.cursor + self.page)];
        let mut frame = [0; MAX_FRAME_BYTES];
        for link in 0..self.identity.ports.len().min(MAX_LINKS) {
            let heartbeat = Heartbeat {
                role: self.identity.role,
                link: link as u8,
                group: self.identity.group,
                interval_ms,
                sent: self.sent,
                generation: self.generation,
                devices: devices.len() as u16,
                first: self.cursor as u16,
                name: self.identity.name,
            };
            let header = self.header(Message::Heartbeat);
            let body = heartbeat.emit(&self.identity.ports, here.iter(), &mut frame[HEADER_BYTES..]);
            if let Some(bytes) = body.and_then(|body| header.emit(&mut frame, body, crc32c)) {
                emit(link, &frame[..bytes]);
            }
        }
        self.sent = self.sent.wrapping_add(1);
        self.cursor += here.len();
        self.last_ns = Some(now_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherslot_wire::discovery::{Assigned, DeviceState, Serial};

    fn device(name: &str) -> Device {
        Device {
            name: Name::new(name).unwrap(),
            serial: Serial::new("").unwrap(),
            id: (1, 2),
            class: [1, 8, 2],
            state: DeviceState::Free,
            bytes: 0,
            epoch: 0,
            owner: None,
            assigned: Assigned::Group,
            has_owners: false,
            group: None,
        }
    }

    fn announcer(frame_bytes: usize) -> Announcer {
        let identity = Identity {
            node: NodeId([7; 16]),
            life: 1,
            name: Name::new("box").unwrap(),
            role: Role::Box,
            group: None,
            ports: vec![Port::Ring(1), Port::Ring(2)],
        };
        Announcer::new(identity, 100_000_000, frame_bytes)
    }

    fn places(frame: &[u8]) -> Vec<u16> {
        let (_, body) = Header::parse_checked(frame, crc32c).unwrap();
        Heartbeat::parse(body).unwrap().devices().map(|(place, _)| place).collect()
    }

    #[test]
    fn a_long_list_goes_round_in_frames_that_fit_and_every_link_hears_the_same() {
        for frame_bytes in [576, 1500, 9216] {
            let mut announcer = announcer(frame_bytes);
            let devices: Vec<Device> = (0..100).map(|at| device(&format!("disk{at}"))).collect();
            let mut told = Vec::new();
            let mut now_ns = 0;
            while told.len() < 100 {
                let mut frames: Vec<(usize, Vec<u8>)> = Vec::new();
                assert!(
                    announcer.poll(now_ns, &devices, &mut |link, frame| frames.push((link, frame.to_vec())))
                );
                assert_eq!(frames.len(), 2);
                assert!(frames.iter().all(|(_, frame)| frame.len() + RELAY_BYTES <= frame_bytes));
                assert_eq!(places(&frames[0].1), places(&frames[1].1));
                told.extend(places(&frames[0].1));
                let next_ns = announcer.deadline_ns();
                assert!((87_500_000..=100_000_000).contains(&(next_ns - now_ns)), "{}", next_ns - now_ns);
                now_ns = next_ns;
            }
            assert_eq!(told, (0..100).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_change_is_told_soon_but_never_in_a_flood() {
        let mut announcer = announcer(576);
        let devices: Vec<Device> = (0..10).map(|at| device(&format!("disk{at}"))).collect();
        let mut frames = Vec::new();
        announcer.poll(0, &devices, &mut |_, _| {});
        for now_ns in (1_000_000..=100_000_000).step_by(1_000_000) {
            announcer.changed(now_ns, 7);
            announcer.poll(now_ns, &devices, &mut |link, frame| {
                if link == 0 {
                    frames.push(places(frame));
                }
            });
        }
        assert_eq!(frames.len(), 20);
        assert!(frames.iter().all(|places| places[0] == 7));
    }
}
