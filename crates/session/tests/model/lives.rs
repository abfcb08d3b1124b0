//! Who is who: the lives of the nodes, and what each was given and has taken.

use std::collections::HashSet;

use etherslot_session::Deliver;
use etherslot_wire::frame::{Header, Kind};
use etherslot_wire::record;

/// A node from one attempt at a session to the next.
#[derive(Debug)]
pub(crate) struct Life {
    pub(crate) at: usize,
    pub(crate) epoch: u32,
    /// Of the listening node: the life of the other one that confirmed it.
    pub(crate) partner: Option<usize>,
    pub(crate) put: u32,
    pub(crate) taken: u32,
    /// Whose records were taken.
    source: Option<usize>,
    /// The first sequence that it must not send, by all the credit that has reached it.
    credit: u32,
    /// The epoch that its last frame was addressed to.
    pub(crate) peer_epoch: u32,
}

/// All lives so far, in the order of their beginning.
#[derive(Debug, Default)]
pub(crate) struct Lives {
    all: Vec<Life>,
    /// Node, epoch, packet number of every frame.
    packet_numbers: HashSet<(usize, u32, u64)>,
    /// Node, epoch, timestamp of every frame.
    timestamps: HashSet<(usize, u32, u32)>,
    /// The nodes draw epochs twice, so what is said in two of their lives is alike.
    are_alike: bool,
    /// Records delivered.
    pub(crate) delivered: u64,
    /// What was found wrong first.
    pub(crate) fault: Option<String>,
}

pub(crate) fn before(a: u32, b: u32) -> bool {
    a.wrapping_sub(b).cast_signed() < 0
}

/// A record's bytes: the life that sent it, its place, then bytes that follow from these. Every second is longer than
/// a frame.
pub(crate) fn record_bytes(life: usize, place: u32) -> Vec<u8> {
    let len = if place % 2 == 1 { 600 } else { 40 };
    let head = [life as u32, place].map(u32::to_be_bytes).concat();
    head.iter().copied().chain((8..len).map(|at| (at + life + place as usize) as u8)).collect()
}

impl Lives {
    /// None yet; whether epochs are drawn twice.
    pub(crate) fn new(are_alike: bool) -> Self {
        Self { are_alike, ..Self::default() }
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn of(&self, life: usize) -> &Life {
        &self.all[life]
    }

    pub(crate) fn of_mut(&mut self, life: usize) -> &mut Life {
        &mut self.all[life]
    }

    pub(crate) fn blame(&mut self, fault: impl FnOnce() -> String) {
        self.fault.get_or_insert_with(fault);
    }

    /// A life begins; `credit` is what the peer's Hello gives.
    pub(crate) fn begin(&mut self, at: usize, epoch: u32, partner: Option<usize>, credit: u32) -> usize {
        if epoch == 0 {
            self.blame(|| "a session has epoch 0".into());
        }
        self.all.push(Life { at, epoch, partner, put: 0, taken: 0, source: None, credit, peer_epoch: 0 });
        self.all.len() - 1
    }

    /// Whether this epoch of this node has had a session, and should have no other.
    pub(crate) fn is_used(&self, at: usize, epoch: u32) -> bool {
        !self.are_alike && self.named(at, epoch).is_some()
    }

    /// The last life of this node with this epoch.
    pub(crate) fn named(&self, at: usize, epoch: u32) -> Option<usize> {
        self.all.iter().rposition(|life| life.at == at && life.epoch == epoch)
    }

    /// The most lives that were begun for one life of the other node.
    pub(crate) fn most_partners(&self) -> usize {
        let partners = |one| self.all.iter().filter(|life| life.partner == Some(one)).count();
        (0..self.all.len()).map(partners).max().unwrap_or(0)
    }

    /// Whether one of the two has confirmed the other.
    pub(crate) fn are_partners(&self, one: usize, other: usize) -> bool {
        self.all[one].partner == Some(other) || self.all[other].partner == Some(one)
    }

    /// Whether `one` has taken all that was put in at the other.
    pub(crate) fn has_all(&self, one: usize, other: usize) -> bool {
        self.all[one].taken == self.all[other].put
    }

    /// A frame of its peer has reached this life.
    pub(crate) fn heard(&mut self, life: usize, header: &Header) {
        let life = &mut self.all[life];
        if let Some(ack) = header.ack.filter(|_| header.src_epoch == life.peer_epoch)
            && before(life.credit, ack.credit)
        {
            life.credit = ack.credit;
        }
    }

    /// A frame leaves node `at`, from `life` unless it is an answer of the listener.
    pub(crate) fn said(&mut self, at: usize, life: Option<usize>, header: &Header) {
        let epoch = header.src_epoch;
        let numbers = &mut self.packet_numbers;
        if !self.are_alike && !numbers.insert((at, epoch, header.packet_number)) {
            self.blame(|| format!("packet number {} of {epoch:#x} twice", header.packet_number));
        }
        // Answers of the listener: see timers.rs.
        let times = &mut self.timestamps;
        if !self.are_alike && !times.insert((at, epoch, header.tx_ts_ns)) {
            self.blame(|| format!("timestamp {} of {epoch:#x} twice", header.tx_ts_ns));
        }
        let Some(index) = life else { return };
        let life = &mut self.all[index];
        life.peer_epoch = header.dst_epoch;
        let (own, credit) = (life.epoch, life.credit);
        if epoch != own {
            self.blame(|| format!("a frame from {epoch:#x}, which is {own:#x}"));
        }
        if header.kind == Kind::Data && !before(header.sequence, credit) {
            self.blame(|| format!("{epoch:#x} sends {} on a credit of {credit}", header.sequence));
        }
    }

    fn take(&mut self, life: usize, payload: &[u8]) -> Option<&'static str> {
        let (source, place) = tag(payload)?;
        if source >= self.all.len() || payload != record_bytes(source, place) {
            return Some("is damaged");
        }
        if !self.are_partners(source, life) {
            return Some("is of another life");
        }
        let life = &mut self.all[life];
        if *life.source.get_or_insert(source) != source {
            return Some("is of a second source");
        }
        if place != life.taken {
            return Some("is not the next");
        }
        life.taken += 1;
        None
    }
}

/// The life and the place that a record tells.
fn tag(payload: &[u8]) -> Option<(usize, u32)> {
    let word = |at: usize| Some(u32::from_be_bytes(payload.get(at..at + 4)?.try_into().ok()?));
    Some((word(0)? as usize, word(4)?))
}

/// Takes the records that arrive at a life.
pub(crate) struct Sink<'a>(pub(crate) &'a mut Lives, pub(crate) usize);

impl Deliver for Sink<'_> {
    fn record(&mut self, _kind: record::Kind, _stream: u16, payload: &[u8]) {
        let Self(lives, life) = self;
        lives.delivered += 1;
        if let Some(fault) = lives.take(*life, payload) {
            let taken = lives.of(*life).taken;
            lives.blame(|| format!("{:?} delivered to life {life} after {taken}: {fault}", tag(payload)));
        }
    }
}
