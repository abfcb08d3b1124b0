//! The receiving half: which frames have come, and the records in them, delivered in the order of their streams.
//!
//! A frame that is next in order is delivered from the caller's bytes. One that is ahead of a gap is looked through at
//! once: records that are next in their stream are delivered, and only if others remain its body is kept, in a slot
//! of the receive window. Whatever has been delivered from it is told by the stream sequences.
//!
//! Invariant: what is in frames before `next` has been delivered, since all that precedes it in its stream has come.

use etherslot_wire::frame::{SACK_BITS, Sack};
use etherslot_wire::record::{FIRST, HEADER_BYTES, Kind, LAST, MAX_PAYLOAD_BYTES, Record};

use crate::bits::Bits;
use crate::config::{Config, Mode};
use crate::counters::Counters;
use crate::pack::body_max;
use crate::session::Deliver;

/// What a Data frame was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// The next in order, nothing missing around it.
    InOrder,
    /// It filled a gap, or came ahead of one.
    Disordered,
    /// It had come before.
    Duplicate,
    /// Its sequence is beyond the credit.
    BeyondCredit,
    /// Its body is not a row of records.
    Malformed,
    /// Its records break the order of their stream: the peer is out of its mind.
    Violation,
}

/// The peer broke the order of a stream or of a record's parts.
#[derive(Debug)]
struct Violation;

/// What has come of a stream.
#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    /// Stream sequence of the next part to deliver.
    expected: u16,
    /// Bytes of the record under assembly.
    assembled: u16,
    /// Its kind, if there is one.
    kind: Option<Kind>,
}

/// How a frame's records are looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    /// The frame is new and in order: every record is next in its stream.
    InOrder,
    /// The frame is new and ahead of a gap: a record may have to wait.
    Ahead,
    /// The frame was kept and everything before it has come: what has not been delivered is next.
    Kept,
}

/// The receiving half of a session.
#[derive(Debug)]
pub(crate) struct Receiver {
    mode: Mode,
    next: u32,
    window_frames: u32,
    body_max: usize,
    /// Bodies of frames ahead of a gap.
    buffer: Box<[u8]>,
    /// Their bytes, 0 if nothing in it waits.
    kept_bytes: Box<[u16]>,
    mask: u32,
    /// Frames ahead of `next` that have come.
    arrived: Bits,
    arrived_frames: u32,
    /// The sequence after the highest that has come.
    end: u32,
    /// The last that came out of order: the SACK block of a wide window turns around it.
    latest: u32,
    sack_turn: u32,
    order: Order,
    cap_bytes: u32,
}

/// The streams and what waits for each.
#[derive(Debug)]
struct Order {
    streams: Box<[Stream]>,
    /// [`MAX_PAYLOAD_BYTES`] for each stream.
    assembly: Box<[u8]>,
    /// For each stream, the slots in which a part of it waits.
    waiting: Box<[Bits]>,
    /// Streams that got on while frames were kept.
    advanced: Box<[u64]>,
    any_kept: bool,
}

impl Receiver {
    pub(crate) fn new(config: &Config) -> Self {
        let slots = u32::from(config.window_frames).next_power_of_two().max(64);
        let streams = config.streams as usize;
        let body_max = body_max(config.max_frame_bytes as usize);
        Self {
            mode: config.mode,
            next: 0,
            window_frames: u32::from(config.window_frames),
            body_max,
            buffer: vec![0; slots as usize * body_max].into_boxed_slice(),
            kept_bytes: vec![0; slots as usize].into_boxed_slice(),
            mask: slots - 1,
            arrived: Bits::new(slots),
            arrived_frames: 0,
            end: 0,
            latest: 0,
            sack_turn: 0,
            order: Order {
                streams: vec![Stream::default(); streams].into_boxed_slice(),
                assembly: vec![0; streams * MAX_PAYLOAD_BYTES].into_boxed_slice(),
                waiting: (0..streams).map(|_| Bits::new(slots)).collect(),
                advanced: vec![0; streams.div_ceil(64)].into_boxed_slice(),
                any_kept: false,
            },
            cap_bytes: u32::MAX,
        }
    }

    /// What was agreed with the peer. Nothing has been received yet.
    pub(crate) fn agree(&mut self, mode: Mode, first_sequence: u32) {
        self.mode = mode;
        self.next = first_sequence;
        self.end = first_sequence;
    }

    /// The sequence that is missing first.
    pub(crate) fn next(&self) -> u32 {
        self.next
    }

    /// The first sequence that is not taken.
    pub(crate) fn credit(&self) -> u32 {
        self.next.wrapping_add(self.window_frames)
    }

    /// The bound on the sender's window that we ask for.
    pub(crate) fn cap_bytes(&self) -> u32 {
        self.cap_bytes
    }

    /// Asks for another one.
    pub(crate) fn set_cap_bytes(&mut self, bytes: u32) {
        self.cap_bytes = bytes;
    }

    /// Whether frames are missing before others that have come.
    pub(crate) fn has_gap(&self) -> bool {
        self.arrived_frames > 0
    }

    /// The next SACK block, if there is a gap. When what has come spans more than one block, every other one ends with
    /// the newest arrival, and the others go through the span in turns.
    pub(crate) fn sack(&mut self) -> Option<Sack> {
        if !self.has_gap() {
            return None;
        }
        let span = self.end.wrapping_sub(self.next);
        let mut base = self.next;
        if span > SACK_BITS {
            self.sack_turn = self.sack_turn.wrapping_add(1);
            let latest = self.latest.wrapping_sub(self.next);
            base = self.next.wrapping_add(if self.sack_turn.is_multiple_of(2) && latest < span {
                (latest + 1).saturating_sub(SACK_BITS)
            } else {
                self.sack_turn / 2 % span.div_ceil(SACK_BITS) * SACK_BITS
            });
        }
        // Behind `end` the ring holds nothing, unless it has come round to where this block began.
        let mut left = self.end.wrapping_sub(base);
        let mut sack = Sack::new(base);
        for (index, chunk) in sack.bitmap.chunks_mut(8).enumerate() {
            let known = if left >= 64 { u64::MAX } else { (1 << left) - 1 };
            let word = self.arrived.word(base.wrapping_add(index as u32 * 64)) & known;
            let bytes = word.reverse_bits().to_be_bytes();
            chunk.copy_from_slice(&bytes[..chunk.len()]);
            left = left.saturating_sub(64);
        }
        Some(sack)
    }

    /// Takes a Data frame.
    pub(crate) fn take(
        &mut self,
        sequence: u32,
        body: &[u8],
        deliver: &mut dyn Deliver,
        counters: &mut Counters,
    ) -> Arrival {
        let ahead = sequence.wrapping_sub(self.next);
        if ahead >= self.window_frames {
            return if ahead.cast_signed() < 0 { Arrival::Duplicate } else { Arrival::BeyondCredit };
        }
        if self.arrived_frames > 0 && self.arrived.get(sequence) {
            return Arrival::Duplicate;
        }
        if !self.order.is_well_formed(body, self.body_max) {
            return Arrival::Malformed;
        }
        let taken = if ahead == 0 {
            self.take_next(body, deliver, counters)
        } else {
            counters.out_of_order += 1;
            if self.mode == Mode::Classic {
                counters.dropped_not_in_order += 1;
                return Arrival::Disordered;
            }
            self.take_ahead(sequence, body, deliver, counters).map(|()| Arrival::Disordered)
        };
        taken.unwrap_or(Arrival::Violation)
    }

    fn take_next(
        &mut self,
        body: &[u8],
        deliver: &mut dyn Deliver,
        counters: &mut Counters,
    ) -> Result<Arrival, Violation> {
        self.order.any_kept = self.arrived_frames > 0;
        let looked = self.order.look(Look::InOrder, body, 0, deliver, counters);
        deliver.let_go(body);
        looked?;
        self.next = self.next.wrapping_add(1);
        if self.arrived_frames == 0 {
            self.end = self.next;
            return Ok(Arrival::InOrder);
        }
        while self.arrived_frames > 0 && self.arrived.get(self.next) {
            let slot = self.next & self.mask;
            let start = slot as usize * self.body_max;
            let body = &self.buffer[start..start + self.kept_bytes[slot as usize] as usize];
            self.arrived.clear(slot);
            self.arrived_frames -= 1;
            self.next = self.next.wrapping_add(1);
            self.order.look(Look::Kept, body, slot, deliver, counters)?;
        }
        self.drain(deliver, counters)?;
        Ok(Arrival::Disordered)
    }

    fn take_ahead(
        &mut self,
        sequence: u32,
        body: &[u8],
        deliver: &mut dyn Deliver,
        counters: &mut Counters,
    ) -> Result<(), Violation> {
        let slot = sequence & self.mask;
        self.order.any_kept = self.arrived_frames > 0;
        let waits = self.order.look(Look::Ahead, body, slot, deliver, counters)?;
        let start = slot as usize * self.body_max;
        self.kept_bytes[slot as usize] = if waits {
            self.buffer[start..start + body.len()].copy_from_slice(body);
            body.len() as u16
        } else {
            0
        };
        self.arrived.set(slot);
        self.arrived_frames += 1;
        self.latest = sequence;
        let end = sequence.wrapping_add(1);
        if self.end.wrapping_sub(self.next) < end.wrapping_sub(self.next) {
            self.end = end;
        }
        self.drain(deliver, counters)
    }

    /// Delivers what waited for the streams that got on.
    fn drain(&mut self, deliver: &mut dyn Deliver, counters: &mut Counters) -> Result<(), Violation> {
        if !self.order.any_kept {
            return Ok(());
        }
        for word in 0..self.order.advanced.len() {
            let mut set = std::mem::take(&mut self.order.advanced[word]);
            while set != 0 {
                self.drain_stream(word * 64 + set.trailing_zeros() as usize, deliver, counters)?;
                set &= set - 1;
            }
        }
        Ok(())
    }

    fn drain_stream(
        &mut self,
        stream: usize,
        deliver: &mut dyn Deliver,
        counters: &mut Counters,
    ) -> Result<(), Violation> {
        while let Some(ahead) = self.order.waiting[stream].first_from(self.next) {
            let slot = self.next.wrapping_add(ahead) & self.mask;
            let start = slot as usize * self.body_max;
            let mut body = &self.buffer[start..start + self.kept_bytes[slot as usize] as usize];
            while let Ok((record, rest)) = Record::parse(body) {
                body = rest;
                if record.stream as usize != stream {
                    continue;
                }
                match self.order.streams[stream].lag(&record) {
                    0 => self.order.part(&record, None, deliver, counters)?,
                    1.. => return Ok(()),
                    _ => {}
                }
            }
            self.order.waiting[stream].clear(slot);
        }
        Ok(())
    }
}

impl Stream {
    /// How many parts have to come before this one; negative if it has been delivered.
    fn lag(self, record: &Record<'_>) -> i16 {
        record.stream_sequence.wrapping_sub(self.expected).cast_signed()
    }
}

impl Order {
    /// Whether the body is a row of records of this session. It is looked through before anything is delivered, so that
    /// a frame is taken as a whole or not at all.
    fn is_well_formed(&self, mut body: &[u8], body_max: usize) -> bool {
        if body.len() > body_max {
            return false;
        }
        while !body.is_empty() {
            match Record::parse(body) {
                Ok((record, rest))
                    if record.payload.len() <= MAX_PAYLOAD_BYTES
                        && (record.stream as usize) < self.streams.len() =>
                {
                    body = rest;
                }
                _ => return false,
            }
        }
        true
    }

    /// Delivers what can be delivered of a frame; whether something has to wait.
    fn look(
        &mut self,
        look: Look,
        frame: &[u8],
        slot: u32,
        deliver: &mut dyn Deliver,
        counters: &mut Counters,
    ) -> Result<bool, Violation> {
        let (mut waits, mut body) = (false, frame);
        while let Ok((record, rest)) = Record::parse(body) {
            let in_hand = (look == Look::InOrder).then_some((frame, frame.len() - body.len() + HEADER_BYTES));
            body = rest;
            let stream = record.stream as usize;
            if look == Look::Kept {
                self.waiting[stream].clear(slot);
            }
            match (self.streams[stream].lag(&record), look) {
                (0, _) => {
                    self.part(&record, in_hand, deliver, counters)?;
                    if self.any_kept {
                        self.advanced[stream / 64] |= 1 << (stream % 64);
                    }
                }
                (1.., Look::Ahead) => {
                    self.waiting[stream].set(slot);
                    waits = true;
                }
                (..0, Look::Kept) => {}
                _ => return Err(Violation),
            }
        }
        Ok(waits)
    }

    /// Takes the next part of its stream, and delivers the record if it is whole; `in_hand` is the body of the frame in hand, and where
    /// in it the part's payload is.
    fn part(
        &mut self,
        record: &Record<'_>,
        in_hand: Option<(&[u8], usize)>,
        deliver: &mut dyn Deliver,
        counters: &mut Counters,
    ) -> Result<(), Violation> {
        let stream = &mut self.streams[record.stream as usize];
        stream.expected = stream.expected.wrapping_add(1);
        let payload = match (record.flags & FIRST != 0, stream.kind) {
            (true, None) if record.flags & LAST != 0 => {
                let bytes = record.payload.len();
                counters.records_received += 1;
                counters.record_bytes_received += bytes as u64;
                match in_hand {
                    Some((body, at)) => {
                        deliver.record_in_hand(record.kind, record.stream, body, at..at + bytes);
                    }
                    None => deliver.record(record.kind, record.stream, record.payload),
                }
                return Ok(());
            }
            (true, None) | (false, Some(_)) => {
                if stream.kind.is_some_and(|kind| kind != record.kind) {
                    return Err(Violation);
                }
                let from = stream.assembled as usize;
                let to = from + record.payload.len();
                let assembly = self
                    .assembly
                    .get_mut(record.stream as usize * MAX_PAYLOAD_BYTES..)
                    .and_then(|assembly| assembly.get_mut(..MAX_PAYLOAD_BYTES))
                    .ok_or(Violation)?;
                assembly.get_mut(from..to).ok_or(Violation)?.copy_from_slice(record.payload);
                stream.assembled = to as u16;
                stream.kind = Some(record.kind);
                if record.flags & LAST == 0 {
                    return Ok(());
                }
                stream.assembled = 0;
                stream.kind = None;
                &assembly[..to]
            }
            _ => return Err(Violation),
        };
        counters.records_received += 1;
        counters.record_bytes_received += payload.len() as u64;
        deliver.record(record.kind, record.stream, payload);
        Ok(())
    }
}
