//! Frame slots of the sender, and how records are put into them.
//!
//! A slot has room for header and SACK block before the body, so that a frame is sent from where it lies: with a SACK
//! block the frame starts at the slot's first byte, without at [`SACK_BYTES`]. Behind the body is room for what protects
//! the frame. A body is not touched any more once its frame has left for the first time.
//!
//! A small record of a stream that has nothing waiting, and had none for a while, goes first: it does not stay behind
//! what other streams have put in, which are independent of it. Such records share *express* frames that are put in before all others that
//! have not left; these move one sequence up, by their places in a ring of slot numbers.

use std::ops::Range;

use etherslot_wire::frame::{self, CHECK_BYTES, SACK_BYTES, TAG_BYTES};
use etherslot_wire::record::{FIRST, HEADER_BYTES, Kind, LAST, MAX_PAYLOAD_BYTES, Record, size};

use crate::before;

/// Bytes of a slot before the body.
const RESERVED_BYTES: usize = frame::HEADER_BYTES + SACK_BYTES;
/// A frame with room for less payload than this is complete: a TLP that carries so little is not worth its header.
const MIN_PART_BYTES: usize = 64;
/// Parts of a stream's records that may be unacknowledged. The receiver tells old parts from new ones by 16-bit stream
/// sequences, which works as long as fewer than 2^15 of a stream are under way.
const MAX_PARTS: u32 = 32_000;

/// The longest record that goes first, bytes: a request, or a completion with a register or an entry of a queue.
const EXPRESS_BYTES: usize = 128;
/// Other frames that have to leave before a stream goes first again: a stream of many small records takes its turns.
const EXPRESS_PAUSE: u32 = 8;
/// Express frames that may wait.
const EXPRESS_FRAMES: u32 = 4;

/// The body's size in frames of at most `frame_bytes`: there is always room for a SACK block and an AEAD tag.
pub(crate) const fn body_max(frame_bytes: usize) -> usize {
    (frame_bytes - RESERVED_BYTES - TAG_BYTES) / 4 * 4
}

/// Parts that the longest record may be split into: the first in what is left of a frame.
fn max_parts(body_max: usize) -> u32 {
    1 + MAX_PAYLOAD_BYTES.div_ceil(body_max - HEADER_BYTES) as u32
}

/// A record as its sender gives it: head, zeros, data, zeros up to the length.
#[derive(Clone, Copy)]
pub(crate) struct Pieces<'a> {
    pub(crate) head: &'a [u8],
    pub(crate) lead_zeros: usize,
    pub(crate) data: &'a [u8],
    pub(crate) total_len: usize,
}

impl Pieces<'_> {
    /// Whether the pieces fit into the length, and the length into a record.
    pub(crate) fn fits(&self) -> bool {
        self.total_len <= MAX_PAYLOAD_BYTES
            && self.head.len().saturating_add(self.lead_zeros).saturating_add(self.data.len())
                <= self.total_len
    }

    /// Writes the bytes from `at` on.
    fn copy(&self, at: usize, out: &mut [u8]) {
        let data_at = self.head.len() + self.lead_zeros;
        let end = at + out.len();
        let mut zero_from = 0;
        for (start, piece) in [(0, self.head), (data_at, self.data)] {
            let (from, to) = (at.max(start), end.min(start + piece.len()));
            if from < to {
                out[zero_from..from - at].fill(0);
                out[from - at..to - at].copy_from_slice(&piece[from - start..to - start]);
                zero_from = to - at;
            }
        }
        out[zero_from..].fill(0);
    }
}

/// What lies in a slot.
#[derive(Clone, Copy, Debug, Default)]
struct Body {
    bytes: u16,
    /// The stream of its first record, and the stream sequence of the last one that was put in.
    stream: u16,
    sequence: u16,
    /// There are records of several streams.
    is_mixed: bool,
}

impl Body {
    /// A record, or part of one, that takes so many bytes is in it now.
    fn add(&mut self, bytes: usize, stream: u16, sequence: u16) {
        if self.bytes == 0 {
            self.stream = stream;
        }
        self.is_mixed |= stream != self.stream;
        self.sequence = sequence;
        self.bytes += bytes as u16;
    }
}

/// The slots, in a ring by sequence.
#[derive(Debug)]
pub(crate) struct Pack {
    buffer: Box<[u8]>,
    stride: usize,
    mask: u32,
    bodies: Box<[Body]>,
    body_max: usize,
    max_parts: u32,
    /// The frame under construction, or the next one if that is empty.
    tail: u32,
    /// The slot of each sequence, by its place in the ring.
    slots: Box<[u32]>,
    /// How many places behind the tail have slots that were freed last: they are used next, as they are in the processor's caches.
    warm: u32,
    /// The first express frames of those that have not left.
    express: u32,
    /// Frames that are not express count up: that of the next to leave, and of the one at `tail`.
    bulk_next: u32,
    bulk_tail: u32,
    streams: Box<[Stream]>,
    /// Frames have one record, or part of one, each.
    is_alone: bool,
}

/// What has been put in of a stream.
#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    sequence: u16,
    /// The stream sequence after that of the last part that was acknowledged.
    released: u16,
    /// The number of the last frame with a part of it that is not express.
    bulk: u32,
    /// The number from which on it may go first again.
    express_from: u32,
}

impl Pack {
    /// `slots` (a power of two) slots for frames of `frame_bytes`, the first one for sequence `first`.
    pub(crate) fn new(slots: u32, frame_bytes: usize, streams: u16, first: u32) -> Self {
        let stride = frame_bytes.next_multiple_of(64);
        Self {
            buffer: vec![0; slots as usize * stride].into_boxed_slice(),
            stride,
            mask: slots - 1,
            bodies: vec![Body::default(); slots as usize].into_boxed_slice(),
            body_max: body_max(frame_bytes),
            max_parts: max_parts(body_max(frame_bytes)),
            tail: first,
            slots: (0..slots).collect(),
            warm: 0,
            express: 0,
            bulk_next: 1,
            bulk_tail: 1,
            streams: vec![Stream::default(); streams as usize].into_boxed_slice(),
            is_alone: false,
        }
    }

    /// The same with a frame for each record, or part of one.
    pub(crate) fn alone(self, is_alone: bool) -> Self {
        Self { is_alone, ..self }
    }

    /// The peer takes only frames of this size. Nothing has been put in yet.
    pub(crate) fn limit_frame_bytes(&mut self, frame_bytes: usize) {
        self.body_max = body_max(frame_bytes);
        self.max_parts = max_parts(self.body_max);
    }

    /// Sequence of the frame under construction, or of the next one if that is empty.
    pub(crate) fn tail(&self) -> u32 {
        self.tail
    }

    /// Whether the frame at `tail` has anything in it.
    pub(crate) fn is_open(&self) -> bool {
        self.body(self.tail).bytes != 0
    }

    /// Slots that must be free besides the one at `tail` for a record of any length.
    pub(crate) fn slots_needed(&self) -> u32 {
        self.max_parts
    }

    /// Whether the limit on a stream's parts under way leaves room for a record of any length.
    pub(crate) fn has_parts(&self, stream: u16) -> bool {
        let under_way = |stream: &Stream| u32::from(stream.sequence.wrapping_sub(stream.released));
        self.streams.get(stream as usize).is_none_or(|stream| under_way(stream) + self.max_parts <= MAX_PARTS)
    }

    /// The next part of a stream.
    pub(crate) fn mark(&self, stream: u16) -> u16 {
        self.streams.get(stream as usize).map_or(0, |stream| stream.sequence)
    }

    /// Whether the parts before this one have been acknowledged, with all frames before theirs.
    pub(crate) fn has_arrived(&self, stream: u16, mark: u16) -> bool {
        self.streams
            .get(stream as usize)
            .is_none_or(|stream| stream.released.wrapping_sub(mark).cast_signed() >= 0)
    }

    /// Payload of the largest record that fits into the frame under construction.
    pub(crate) fn room(&self) -> usize {
        self.body_max - self.body(self.tail).bytes as usize - HEADER_BYTES
    }

    /// Whether the stream exists.
    pub(crate) fn has_stream(&self, stream: u16) -> bool {
        (stream as usize) < self.streams.len()
    }

    /// Whether a small record of this stream would go first, and a long one is the only one of it that waits.
    pub(crate) fn is_clear(&self, stream: u16) -> bool {
        let waits = |stream: &Stream| !before(stream.bulk, self.bulk_next);
        self.express < EXPRESS_FRAMES && !self.streams.get(stream as usize).is_none_or(waits)
    }

    /// Puts a record in; the caller has seen to slots, parts, stream and length. `next` is the first sequence that has not
    /// left.
    pub(crate) fn push(&mut self, kind: Kind, stream: u16, pieces: &Pieces<'_>, next: u32) {
        let waits = next.wrapping_add(self.express) != self.tail;
        let has_paused = !before(self.bulk_next, self.streams[stream as usize].express_from);
        if waits && has_paused && pieces.total_len <= EXPRESS_BYTES && self.is_clear(stream) {
            self.streams[stream as usize].express_from = self.bulk_next.wrapping_add(EXPRESS_PAUSE);
            return self.push_first(kind, stream, pieces, next);
        }
        self.make_room(pieces.total_len);
        let mut at = 0;
        let mut first = FIRST;
        loop {
            let rest = pieces.total_len - at;
            let room = self.room();
            // A part that is not the last fills its frame; sizes stay multiples of 4.
            let (bytes, last) = if rest <= room { (rest, LAST) } else { (room & !3, 0) };
            self.streams[stream as usize].bulk = self.bulk_tail;
            self.part(self.tail, kind, first | last, stream, pieces, at..at + bytes);
            self.close_if_complete();
            at += bytes;
            first = 0;
            if last != 0 {
                return;
            }
        }
    }

    /// Whether a record of this length goes in unsplit: into the frame under construction, or into the one behind it.
    pub(crate) fn fits(&self, total_len: usize) -> bool {
        total_len <= self.room() || total_len + HEADER_BYTES <= self.body_max
    }

    /// Ends the frame under construction if a record of this length fits only the one behind it.
    fn make_room(&mut self, total_len: usize) {
        if total_len > self.room() && self.fits(total_len) {
            self.close();
        }
    }

    /// Puts a record in whose data `fill` writes where they lie, if it can: otherwise nothing is put in. The record
    /// [fits](Pack::fits).
    pub(crate) fn push_filled(
        &mut self,
        kind: Kind,
        stream: u16,
        head: &[u8],
        data: Range<usize>,
        total_len: usize,
        fill: &mut dyn FnMut(&mut [u8]) -> bool,
    ) -> bool {
        self.make_room(total_len);
        let slot = self.slot(self.tail);
        let body = &mut self.bodies[slot];
        let start = slot * self.stride + RESERVED_BYTES + body.bytes as usize;
        let out = &mut self.buffer[start..start + size(total_len)];
        let payload = &mut out[HEADER_BYTES..];
        if !fill(&mut payload[data.clone()]) {
            return false;
        }
        payload[..head.len()].copy_from_slice(head);
        payload[head.len()..data.start].fill(0);
        payload[data.end..].fill(0);
        let of = &mut self.streams[stream as usize];
        let written = Record::emit_header(kind, FIRST | LAST, stream, of.sequence, total_len as u16, out);
        debug_assert!(written.is_some());
        body.add(size(total_len), stream, of.sequence);
        of.sequence = of.sequence.wrapping_add(1);
        of.bulk = self.bulk_tail;
        self.close_if_complete();
        true
    }

    /// Puts a small record into the last express frame, or into a new one.
    fn push_first(&mut self, kind: Kind, stream: u16, pieces: &Pieces<'_>, next: u32) {
        let behind = next.wrapping_add(self.express);
        let last = behind.wrapping_sub(1);
        let fits = |bytes: u16| bytes as usize + HEADER_BYTES + size(pieces.total_len) <= self.body_max;
        let sequence = if self.express > 0 && !self.is_alone && fits(self.body(last).bytes) {
            last
        } else {
            self.insert(behind);
            self.express += 1;
            behind
        };
        self.part(sequence, kind, FIRST | LAST, stream, pieces, 0..pieces.total_len);
    }

    /// Makes an empty frame of this sequence; the one that had it, and all behind, move up by one.
    fn insert(&mut self, sequence: u32) {
        let place = |sequence: u32| (sequence & self.mask) as usize;
        let end = self.tail.wrapping_add(1);
        let free = self.slots[place(end)];
        let mut at = end;
        while at != sequence {
            let before = at.wrapping_sub(1);
            self.slots[place(at)] = self.slots[place(before)];
            at = before;
        }
        self.slots[place(sequence)] = free;
        self.advance(end);
    }

    /// Writes a part into the frame.
    fn part(
        &mut self,
        frame: u32,
        kind: Kind,
        flags: u8,
        stream: u16,
        pieces: &Pieces<'_>,
        range: Range<usize>,
    ) {
        let bytes = range.len();
        let slot = self.slot(frame);
        let body = &mut self.bodies[slot];
        let start = slot * self.stride + RESERVED_BYTES + body.bytes as usize;
        let out = &mut self.buffer[start..start + size(bytes)];
        let sequence = &mut self.streams[stream as usize].sequence;
        let written = Record::emit_header(kind, flags, stream, *sequence, bytes as u16, out);
        debug_assert!(written.is_some());
        body.add(size(bytes), stream, *sequence);
        *sequence = sequence.wrapping_add(1);
        pieces.copy(range.start, &mut out[HEADER_BYTES..HEADER_BYTES + bytes]);
        out[HEADER_BYTES + bytes..].fill(0);
    }

    /// Ends the frame under construction if nothing more is to go in.
    fn close_if_complete(&mut self) {
        let filled = self.body(self.tail).bytes as usize;
        if self.is_alone || filled + HEADER_BYTES + MIN_PART_BYTES > self.body_max {
            self.close();
        }
    }

    /// Ends the frame under construction, if it has anything in it.
    fn close(&mut self) {
        if self.is_open() {
            self.advance(self.tail.wrapping_add(1));
            self.bulk_tail = self.bulk_tail.wrapping_add(1);
        }
    }

    fn advance(&mut self, tail: u32) {
        self.tail = tail;
        self.warm = self.warm.saturating_sub(1);
    }

    /// The next frame has left for the first time.
    pub(crate) fn sent(&mut self, sequence: u32) {
        if sequence == self.tail {
            self.close();
        }
        if self.express > 0 {
            self.express -= 1;
        } else {
            self.bulk_next = self.bulk_next.wrapping_add(1);
        }
    }

    /// Frees the slot of an acknowledged frame.
    pub(crate) fn release(&mut self, sequence: u32) {
        let slot = self.slot(sequence);
        let body = std::mem::take(&mut self.bodies[slot]);
        if body.is_mixed {
            let start = slot * self.stride + RESERVED_BYTES;
            let mut records = &self.buffer[start..start + body.bytes as usize];
            while let Ok((record, rest)) = Record::parse(records) {
                if let Some(stream) = self.streams.get_mut(record.stream as usize) {
                    stream.released = record.stream_sequence.wrapping_add(1);
                }
                records = rest;
            }
        } else if body.bytes > 0 {
            // Without a look at what is in no cache any more.
            self.streams[body.stream as usize].released = body.sequence.wrapping_add(1);
        }
        // Places from the tail to a whole ring behind this one are free, and it is.
        let next = self.tail.wrapping_add(1 + self.warm);
        if next.wrapping_sub(sequence) <= self.mask {
            self.slots.swap((sequence & self.mask) as usize, (next & self.mask) as usize);
            self.warm += 1;
        }
    }

    fn slot(&self, sequence: u32) -> usize {
        self.slots[(sequence & self.mask) as usize] as usize
    }

    fn body(&self, sequence: u32) -> Body {
        self.bodies[self.slot(sequence)]
    }

    /// Bytes of a frame's body.
    pub(crate) fn body_bytes(&self, sequence: u32) -> u16 {
        self.body(sequence).bytes
    }

    /// Writes the header in front of the body, and the check behind it.
    pub(crate) fn emit(&mut self, sequence: u32, header: &frame::Header) {
        let range = self.range(sequence, header.len());
        let frame = &mut self.buffer[range];
        let written = header.emit(frame).and_then(|_| frame::put_check(frame, crate::crc32c));
        debug_assert!(written.is_some());
    }

    fn range(&self, sequence: u32, header_bytes: usize) -> Range<usize> {
        let body = self.slot(sequence) * self.stride + RESERVED_BYTES;
        body - header_bytes..body + self.body(sequence).bytes as usize + CHECK_BYTES
    }

    /// The frame with a header of `header_bytes`, as written by [`Pack::emit`].
    pub(crate) fn frame(&self, sequence: u32, header_bytes: usize) -> &[u8] {
        &self.buffer[self.range(sequence, header_bytes)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn records(pack: &Pack, from: u32) -> Vec<(u8, u16, Vec<u8>)> {
        let end = if pack.is_open() { pack.tail + 1 } else { pack.tail };
        let mut all = Vec::new();
        for sequence in from..end {
            let (mut body, _) = pack.frame(sequence, 0).split_last_chunk::<CHECK_BYTES>().expect("a check");
            assert!(body.len() <= pack.body_max && body.len().is_multiple_of(4));
            while !body.is_empty() {
                let (record, rest) = Record::parse(body).expect("own record");
                all.push((record.flags, record.stream_sequence, record.payload.to_vec()));
                body = rest;
            }
        }
        all
    }

    #[test]
    fn small_records_share_a_frame_and_long_ones_are_split() {
        let mut pack = Pack::new(64, 576, 1, 0);
        let put = |pack: &mut Pack, len| {
            pack.push(Kind::Tlp, 0, &Pieces { head: &[], lead_zeros: 0, data: &[], total_len: len }, 0);
        };
        put(&mut pack, 100);
        put(&mut pack, 100);
        assert_eq!((pack.tail(), pack.is_open()), (0, true));
        put(&mut pack, MAX_PAYLOAD_BYTES);
        let parts = records(&pack, 0);
        assert_eq!(parts.iter().filter(|part| part.0 & FIRST != 0).count(), 3);
        assert_eq!(parts.iter().filter(|part| part.0 & LAST != 0).count(), 3);
        assert_eq!(parts.iter().map(|part| part.2.len()).sum::<usize>(), MAX_PAYLOAD_BYTES + 200);
        assert!(parts.iter().enumerate().all(|(index, part)| part.1 as usize == index));
    }

    #[test]
    fn a_record_that_fits_a_frame_of_its_own_is_not_split() {
        let mut pack = Pack::new(64, 1500, 1, 0);
        for len in [1000, 1000, 1396, 1397] {
            pack.push(Kind::Tlp, 0, &Pieces { head: &[], lead_zeros: 0, data: &[], total_len: len }, 0);
        }
        let flags: Vec<u8> = records(&pack, 0).iter().map(|part| part.0).collect();
        assert_eq!(flags, [3, 3, 3, FIRST, LAST]);
    }

    /// Streams and stream sequences of the records in frames from `from` on, a list a frame.
    fn frames(pack: &Pack, from: u32) -> Vec<Vec<(u16, u16)>> {
        let end = if pack.is_open() { pack.tail + 1 } else { pack.tail };
        let mut all = Vec::new();
        for sequence in from..end {
            let (mut body, _) = pack.frame(sequence, 0).split_last_chunk::<CHECK_BYTES>().expect("a check");
            let mut one = Vec::new();
            while !body.is_empty() {
                let (record, rest) = Record::parse(body).expect("own record");
                one.push((record.stream, record.stream_sequence));
                body = rest;
            }
            all.push(one);
        }
        all
    }

    fn put(pack: &mut Pack, stream: u16, len: usize, next: u32) {
        pack.push(Kind::Tlp, stream, &Pieces { head: &[], lead_zeros: 0, data: &[], total_len: len }, next);
    }

    #[test]
    fn a_small_record_of_a_stream_with_nothing_waiting_goes_first() {
        let mut pack = Pack::new(64, 1500, 4, 0);
        for _ in 0..3 {
            put(&mut pack, 0, 1300, 0);
        }
        pack.sent(0);
        put(&mut pack, 1, 16, 1);
        put(&mut pack, 2, 16, 1);
        put(&mut pack, 1, 16, 1);
        // Its own bulk holds a record back, and a long one takes its turn.
        put(&mut pack, 0, 16, 1);
        put(&mut pack, 3, 1300, 1);
        put(&mut pack, 3, 16, 1);
        let want = [vec![(1, 0), (2, 0)], vec![(0, 1)], vec![(0, 2), (1, 1), (0, 3)], vec![(3, 0), (3, 1)]];
        assert_eq!(frames(&pack, 1), want);
        // Once all of it has left, and some more, a stream goes first again.
        for sequence in 1..4 {
            pack.sent(sequence);
        }
        assert!(pack.is_clear(0) && !pack.is_clear(3) && pack.is_clear(1));
        for sequence in 4..12 {
            put(&mut pack, 0, 1390, sequence);
            pack.sent(sequence);
        }
        put(&mut pack, 0, 1390, 12);
        put(&mut pack, 1, 16, 12);
        assert_eq!(frames(&pack, 12)[0], [(1, 2)]);
    }

    #[test]
    fn with_nothing_before_it_a_small_record_shares_the_frame_under_construction() {
        let mut pack = Pack::new(64, 1500, 2, 0);
        put(&mut pack, 0, 600, 0);
        put(&mut pack, 1, 16, 0);
        assert_eq!(frames(&pack, 0), [[(0, 0), (1, 0)]]);
    }

    #[test]
    fn records_that_are_to_be_alone_share_no_frame() {
        let mut pack = Pack::new(64, 1500, 4, 0).alone(true);
        put(&mut pack, 0, 16, 0);
        put(&mut pack, 1, 16, 0);
        put(&mut pack, 2, 16, 0);
        put(&mut pack, 0, 2000, 0);
        pack.push_filled(Kind::Tlp, 0, &[], 0..8, 8, &mut |_| true);
        // Those that went first did so one by one.
        let want = [vec![(1, 0)], vec![(2, 0)], vec![(0, 0)], vec![(0, 1)], vec![(0, 2)], vec![(0, 3)]];
        assert_eq!(frames(&pack, 0), want);
        assert!(!pack.is_open());
    }

    #[test]
    fn express_frames_that_wait_are_few() {
        let mut pack = Pack::new(64, 576, 64, 0);
        for _ in 0..3 {
            put(&mut pack, 0, 400, 0);
        }
        let first = (1..64).take_while(|&stream| {
            let is_first = pack.is_clear(stream);
            put(&mut pack, stream, 128, 0);
            is_first
        });
        assert!((8..20).contains(&first.count()));
        assert_eq!(pack.express, EXPRESS_FRAMES);
    }

    proptest! {
        #[test]
        fn whatever_goes_first_each_stream_keeps_its_order(
            steps in proptest::collection::vec((0u16..5, 0usize..1400, any::<bool>()), 1..400)
        ) {
            let mut pack = Pack::new(64, 1500, 4, u32::MAX - 100);
            let (mut una, mut next) = (u32::MAX - 100, u32::MAX - 100);
            let mut expected = [0u16; 4];
            let mut sent = Vec::new();
            for (stream, len, small) in steps {
                if stream < 4 && pack.tail().wrapping_sub(una) + pack.slots_needed() < 60 {
                    put(&mut pack, stream, if small { len % 64 } else { len }, next);
                } else if next != pack.tail() || pack.is_open() {
                    let (mut body, _) = pack.frame(next, 0).split_last_chunk::<CHECK_BYTES>().expect("a check");
                    while !body.is_empty() {
                        let (record, rest) = Record::parse(body).expect("own record");
                        prop_assert_eq!(record.stream_sequence, expected[record.stream as usize]);
                        expected[record.stream as usize] += 1;
                        body = rest;
                    }
                    pack.sent(next);
                    sent.push((next, pack.frame(next, 0).to_vec()));
                    next = next.wrapping_add(1);
                }
                // What has left stays where it is and as it is, until it is released.
                for (sequence, bytes) in &sent {
                    prop_assert_eq!(pack.frame(*sequence, 0), &bytes[..]);
                }
                if sent.len() > 20 {
                    for (sequence, _) in sent.drain(..) {
                        pack.release(sequence);
                        una = sequence.wrapping_add(1);
                    }
                }
            }
        }

        #[test]
        fn the_payload_is_head_zeros_data_zeros(
            head in proptest::collection::vec(any::<u8>(), 0..20), lead_zeros in 0usize..4,
            data in proptest::collection::vec(any::<u8>(), 0..2000), more in 0usize..2000,
            before in 0usize..1300,
        ) {
            let total_len = head.len() + lead_zeros + data.len() + more;
            let mut pack = Pack::new(64, 576, 1, 0);
            // Slots are reused: what lay in them before must not show.
            pack.buffer.fill(0xEE);
            pack.push(Kind::Tlp, 0, &Pieces { head: &[], lead_zeros: 0, data: &[], total_len: before }, 0);
            let first = records(&pack, 0).len();
            pack.push(Kind::Tlp, 0, &Pieces { head: &head, lead_zeros, data: &data, total_len }, 0);
            let mut expected = head.clone();
            expected.resize(head.len() + lead_zeros, 0);
            expected.extend_from_slice(&data);
            expected.resize(total_len, 0);
            let got: Vec<u8> = records(&pack, 0).into_iter().skip(first).flat_map(|part| part.2).collect();
            prop_assert_eq!(got, expected);
        }
    }
}
