//! The records that are sent, and the checker of what arrives: each exactly once, in the order of its stream, with its
//! content. It knows nothing of the session but what is delivered.

use etherslot_wire::record::MAX_PAYLOAD_BYTES;

use crate::random::mix;

/// Bytes that say what a record is; the least length of one.
pub(crate) const LABEL_BYTES: usize = 24;
/// Streams that are checked.
pub(crate) const STREAMS: u16 = 4;

/// What a record says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Label {
    /// Which sender.
    pub(crate) sender: u32,
    /// Sessions that the sender has had before.
    pub(crate) life: u16,
    pub(crate) stream: u16,
    /// Its place in the stream.
    pub(crate) place: u64,
    /// When it was put in.
    pub(crate) sent_ns: u64,
}

impl Label {
    pub(crate) fn emit(self) -> [u8; LABEL_BYTES] {
        let mut out = [0; LABEL_BYTES];
        out[..4].copy_from_slice(&self.sender.to_be_bytes());
        out[4..6].copy_from_slice(&self.life.to_be_bytes());
        out[6..8].copy_from_slice(&self.stream.to_be_bytes());
        out[8..16].copy_from_slice(&self.place.to_be_bytes());
        out[16..].copy_from_slice(&self.sent_ns.to_be_bytes());
        out
    }

    pub(crate) fn parse(payload: &[u8]) -> Option<(Self, &[u8])> {
        let (sender, rest) = payload.split_first_chunk()?;
        let (life, rest) = rest.split_first_chunk()?;
        let (stream, rest) = rest.split_first_chunk()?;
        let (place, rest) = rest.split_first_chunk()?;
        let (sent_ns, rest) = rest.split_first_chunk()?;
        let label = Self {
            sender: u32::from_be_bytes(*sender),
            life: u16::from_be_bytes(*life),
            stream: u16::from_be_bytes(*stream),
            place: u64::from_be_bytes(*place),
            sent_ns: u64::from_be_bytes(*sent_ns),
        };
        Some((label, rest))
    }

    /// Where in the [`Pattern`] its content begins.
    fn offset(self) -> usize {
        let place = self.place.wrapping_mul(31) ^ u64::from(self.sender) << 3 ^ u64::from(self.stream) << 7;
        (place % MAX_PAYLOAD_BYTES as u64) as usize
    }
}

/// Bytes that content is cut from.
#[derive(Debug)]
pub(crate) struct Pattern {
    bytes: Vec<u8>,
}

impl Pattern {
    pub(crate) fn new() -> Self {
        let words = 2 * MAX_PAYLOAD_BYTES as u64 / 8;
        Self { bytes: (0..words).flat_map(|word| mix(word).to_be_bytes()).collect() }
    }

    /// The content behind a label.
    pub(crate) fn content(&self, label: Label, len: usize) -> &[u8] {
        &self.bytes[label.offset()..label.offset() + len]
    }
}

/// What was wrong with what arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Violations {
    /// Not the next of its stream: late, early, or there already.
    pub order: u64,
    /// Not what was sent, or from another life of the sender.
    pub content: u64,
}

impl Violations {
    /// All of them.
    pub fn total(self) -> u64 {
        self.order + self.content
    }
}

/// Checks what one session delivers.
#[derive(Debug)]
pub(crate) struct Checker {
    sender: u32,
    life: u16,
    next: [u64; STREAMS as usize],
    pub(crate) violations: Violations,
}

impl Checker {
    pub(crate) fn new(sender: u32) -> Self {
        Self { sender, life: 0, next: [0; STREAMS as usize], violations: Violations::default() }
    }

    /// The sender has begun a new life; its streams begin anew.
    pub(crate) fn begin_life(&mut self, life: u16) {
        self.life = life;
        self.next = [0; STREAMS as usize];
    }

    /// Takes a record of this stream; its label, if it is one that could have been sent.
    pub(crate) fn take(&mut self, pattern: &Pattern, stream: u16, payload: &[u8]) -> Option<Label> {
        let parsed = Label::parse(payload).filter(|(label, content)| {
            label.sender == self.sender
                && label.life == self.life
                && label.stream == stream
                && stream < STREAMS
                && pattern.content(*label, content.len()) == *content
        });
        let Some((label, _)) = parsed else {
            self.violations.content += 1;
            return None;
        };
        let next = &mut self.next[stream as usize];
        if label.place != *next {
            self.violations.order += 1;
        }
        *next = label.place + 1;
        Some(label)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(pattern: &Pattern, label: Label) -> Vec<u8> {
        [&label.emit()[..], pattern.content(label, 100)].concat()
    }

    #[test]
    fn the_checker_finds_what_is_not_next_and_what_was_not_sent() {
        let pattern = Pattern::new();
        let mut checker = Checker::new(7);
        let label = |life, stream, place| Label { sender: 7, life, stream, place, sent_ns: 5 };
        let mut take = |label: Label, spoil: bool| {
            let mut payload = payload(&pattern, label);
            payload[60] ^= u8::from(spoil);
            checker.take(&pattern, label.stream, &payload);
            checker.violations
        };
        assert_eq!(take(label(0, 0, 0), false).total(), 0);
        assert_eq!(take(label(0, 1, 0), false).total(), 0);
        assert_eq!(take(label(0, 0, 1), false).total(), 0);
        assert_eq!(take(label(0, 0, 1), false), Violations { order: 1, content: 0 }, "twice");
        assert_eq!(take(label(0, 0, 3), false), Violations { order: 2, content: 0 }, "early");
        assert_eq!(take(label(0, 0, 2), false), Violations { order: 3, content: 0 }, "late");
        assert_eq!(take(label(0, 0, 3), true), Violations { order: 3, content: 1 }, "damaged");
        assert_eq!(take(label(1, 0, 3), false), Violations { order: 3, content: 2 }, "another life");
        assert_eq!(checker.take(&pattern, 0, &[0; 10]), None);
    }
}
