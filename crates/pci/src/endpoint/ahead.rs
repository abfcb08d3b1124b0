//! Memory that the host sent along with a doorbell, kept until the Function reads it (docs/wire.md, Read-ahead).
//!
//! What is here was read by the host when it sent the doorbell. That makes it as good as a read by the Function as long as these
//! hold, which this module sees to:
//!
//! 1. A piece counts only under the very declaration of its rule that it names. A reset, a rule that is withdrawn or declared anew, and the
//!    loss of Bus Master Enable end all pieces concerned, also those that are still on their way.
//! 2. An entry can be had once: from its doorbell to the first time that the Function reads it. A read of memory that touches
//!    an entry, or any piece, ends it, and so does a write of the Function; so what is in the ring's next round is never answered with this round's bytes.
//! 3. Data and lists belong to one entry and can be had once, for that entry only, after it was itself had from its piece: then both are of the
//!    same moment. They end when their entry is sent anew or read from memory.
//!
//! The Function's part: it reads no entry before its doorbell, declares its rule anew when it refuses a doorbell, and asks for data on
//! behalf of the command that it found in the entry.
//!
//! Memory is taken with the first declaration. When it is full the oldest pieces go, at the price of a read each. Data are left in the
//! frame that they came in as long as that is in hand, in case the Function takes them from there.

use std::collections::VecDeque;

use etherslot_wire::ahead::{Piece, PieceKind, RULES, Rule};
use etherslot_wire::control::Message;

use super::Core;
use crate::TlpOut;
use crate::function::{Entry, Function, ReadAhead};

/// Bytes of pieces that are kept.
const POOL_BYTES: usize = 128 << 10;
/// Pieces that are kept.
const PIECES: usize = 256;
const ALIGN_BYTES: usize = 64;
/// Data of this length and more are left in the frame in hand: less is copied in no time.
const IN_HAND_BYTES: usize = 512;

#[derive(Clone, Copy, Debug, Default)]
struct Declared {
    rule: Option<Rule>,
    /// The host has not been told yet.
    is_news: bool,
    /// The host knows of a rule of this number.
    is_known: bool,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    kind: PieceKind,
    rule: u8,
    /// The first entry that is left, or the one that it belongs to.
    index: u32,
    /// Entries that are left; 1 of other kinds, 0 if nothing is.
    count: u32,
    /// Bytes of them, and where those were.
    bytes: usize,
    address: u64,
    /// The memory of these entries.
    entries: (u64, u64),
    /// Its entry was had from its piece.
    is_usable: bool,
    /// Where it is kept, counted on without end.
    at: u64,
    end: u64,
    /// It has its place there, but its bytes are still in the frame in hand, from here on.
    in_hand: Option<usize>,
}

impl Held {
    /// It begins `bytes` later.
    fn pass(&mut self, bytes: usize) {
        self.at += bytes as u64;
        self.in_hand = self.in_hand.map(|at| at + bytes);
        self.address += bytes as u64;
        self.bytes -= bytes;
    }

    fn is_of(&self, rule: u8, indices: &std::ops::Range<u32>) -> bool {
        self.rule == rule && indices.start < self.index + self.count && self.index < indices.end
    }
}

/// What was counted of pieces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AheadCounters {
    /// Pieces taken in.
    pub pieces: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Reads that found their bytes here.
    pub hits: u64,
    /// Reads under a rule that did not.
    pub misses: u64,
    /// Pieces that ended unread, or went for want of memory.
    pub dropped: u64,
    /// Pieces of no rule in force, or that contradict theirs.
    pub refused: u64,
}

impl AheadCounters {
    pub(crate) fn plus(self, other: &Self) -> Self {
        Self {
            pieces: self.pieces + other.pieces,
            bytes: self.bytes + other.bytes,
            hits: self.hits + other.hits,
            misses: self.misses + other.misses,
            dropped: self.dropped + other.dropped,
            refused: self.refused + other.refused,
        }
    }
}

/// Rules and pieces of one Function.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    /// By their numbers; empty before the first declaration.
    rules: Vec<Declared>,
    /// How many of them the host has not been told of.
    news: usize,
    generation: u16,
    pieces: VecDeque<Held>,
    /// Pieces of which something is left.
    live: usize,
    pool: Box<[u8]>,
    end: u64,
    /// Pieces may have been left in the frame in hand.
    any_in_hand: bool,
    pub(super) counters: AheadCounters,
}

impl Ahead {
    /// Whether the host has been told of all changes.
    pub(super) fn is_told(&self) -> bool {
        self.news == 0
    }

    /// Another host: it knows nothing.
    pub(super) fn attach(&mut self) {
        self.drop_pieces();
        self.rules.fill(Declared::default());
        self.news = 0;
    }

    /// No rule is in force any more.
    pub(super) fn reset(&mut self) {
        self.drop_pieces();
        for rule in 0..self.rules.len() {
            self.set(rule as u8, None);
        }
    }

    pub(super) fn drop_pieces(&mut self) {
        self.counters.dropped += self.live as u64;
        self.pieces.clear();
        self.live = 0;
    }

    /// Rule `rule` becomes another one, or none.
    fn set(&mut self, number: u8, rule: Option<Rule>) {
        if self.rules.is_empty() {
            if rule.is_none() {
                return;
            }
            self.rules = vec![Declared::default(); RULES];
            self.pieces = VecDeque::with_capacity(PIECES);
            self.pool = vec![0; POOL_BYTES].into_boxed_slice();
        }
        self.end_pieces(|piece| piece.rule == number);
        let Some(declared) = self.rules.get_mut(number as usize) else { return };
        // A ring that the guest put where there is none is read entry by entry, or not at all.
        declared.rule = rule.filter(Rule::is_valid);
        if let Some(rule) = &mut declared.rule {
            self.generation = self.generation.wrapping_add(1);
            rule.generation = self.generation;
        }
        let is_news = declared.rule.is_some() || declared.is_known;
        self.news = self.news + usize::from(is_news) - usize::from(declared.is_news);
        declared.is_news = is_news;
    }

    /// Tells the host what is new, as far as there is room. True if something was told.
    fn tell(&mut self, out: &mut dyn TlpOut, stream: u16) -> bool {
        let mut progress = false;
        for (number, declared) in self.rules.iter_mut().enumerate() {
            if self.news == 0 {
                break;
            }
            if !declared.is_news {
                continue;
            }
            let message = match declared.rule {
                Some(rule) => Message::ReadAhead(rule),
                None => Message::Withdraw { rule: number as u8 },
            };
            if out.room(stream) == 0 || !out.declare(stream, message) {
                break;
            }
            declared.is_known = declared.rule.is_some();
            declared.is_news = false;
            self.news -= 1;
            progress = true;
        }
        progress
    }

    fn rule(&self, number: u8) -> Option<&Rule> {
        self.rules.get(number as usize)?.rule.as_ref()
    }

    /// Takes in a piece, whose bytes may be in a frame in hand, from `in_hand` on. True if they were left there.
    pub(super) fn receive(&mut self, piece: &Piece, bytes: &[u8], in_hand: Option<usize>) -> bool {
        let Some(mut held) = self.admit(piece, bytes.len()) else {
            self.counters.refused += 1;
            return false;
        };
        held.in_hand = in_hand.filter(|_| held.kind == PieceKind::Data && held.bytes >= IN_HAND_BYTES);
        let is_left = held.in_hand.is_some();
        self.any_in_hand |= is_left;
        self.keep(held, bytes);
        is_left
    }

    /// Whether the frame in hand may have pieces in it.
    pub(super) fn has_in_hand(&self) -> bool {
        self.any_in_hand
    }

    /// The frame with this body is in hand no longer: what is left of its pieces is kept.
    pub(super) fn settle(&mut self, body: &[u8]) {
        self.any_in_hand = false;
        for piece in &mut self.pieces {
            let Some(from) = piece.in_hand.take() else { continue };
            if piece.count != 0
                && let Some(bytes) = body.get(from..from + piece.bytes)
            {
                let at = (piece.at % POOL_BYTES as u64) as usize;
                self.pool[at..at + bytes.len()].copy_from_slice(bytes);
            }
        }
    }

    fn admit(&mut self, piece: &Piece, bytes: usize) -> Option<Held> {
        let rule = self.rule(piece.rule).filter(|rule| rule.generation == piece.generation)?;
        let index = u32::from(piece.index);
        let entry_bytes = usize::from(rule.entry_bytes);
        let count = match piece.kind {
            PieceKind::Entries => (bytes / entry_bytes) as u32,
            PieceKind::Data | PieceKind::List => 1,
        };
        let entry = rule.entry(index);
        if index >= rule.entries || count > rule.entries - index {
            return None;
        }
        if piece.kind == PieceKind::Entries {
            if piece.address != entry || bytes == 0 || !bytes.is_multiple_of(entry_bytes) {
                return None;
            }
            self.end_pieces(|held| held.is_of(piece.rule, &(index..index + count)));
        } else {
            let mut back = self.pieces.iter().rev();
            back.find(|held| held.kind == PieceKind::Entries && held.is_of(piece.rule, &(index..index + 1)))?;
        }
        Some(Held {
            kind: piece.kind,
            rule: piece.rule,
            index,
            count,
            bytes,
            address: piece.address,
            entries: (entry, entry + u64::from(count) * entry_bytes as u64),
            is_usable: false,
            at: 0,
            end: 0,
            in_hand: None,
        })
    }

    fn keep(&mut self, mut held: Held, bytes: &[u8]) {
        let room = bytes.len().next_multiple_of(ALIGN_BYTES);
        let behind = (self.end % POOL_BYTES as u64) as usize;
        // A piece lies in one row.
        held.at = if behind + room > POOL_BYTES { self.end + (POOL_BYTES - behind) as u64 } else { self.end };
        held.end = held.at + room as u64;
        while let Some(oldest) = self.pieces.front() {
            let has_room = self.pieces.len() < PIECES && held.end - oldest.at <= POOL_BYTES as u64;
            if oldest.count != 0 {
                if has_room {
                    break;
                }
                self.live -= 1;
                self.counters.dropped += 1;
            }
            self.pieces.pop_front();
        }
        if held.in_hand.is_none() {
            let at = (held.at % POOL_BYTES as u64) as usize;
            self.pool[at..at + bytes.len()].copy_from_slice(bytes);
        }
        self.end = held.end;
        self.pieces.push_back(held);
        self.live += 1;
        self.counters.pieces += 1;
        self.counters.bytes += bytes.len() as u64;
    }

    /// Ends pieces unread.
    fn end_pieces(&mut self, is_over: impl Fn(&Held) -> bool) {
        if self.live == 0 {
            return;
        }
        for piece in self.pieces.iter_mut().filter(|piece| piece.count != 0) {
            if is_over(piece) {
                piece.count = 0;
                self.live -= 1;
                self.counters.dropped += 1;
            }
        }
    }

    /// The Function reads this from memory, or writes it.
    pub(super) fn touch(&mut self, address: u64, bytes: usize) {
        let end = address.saturating_add(bytes as u64);
        let meets = |start: u64, behind: u64| start < end && address < behind;
        self.end_pieces(|piece| {
            meets(piece.address, piece.address + piece.bytes as u64)
                || meets(piece.entries.0, piece.entries.1)
        });
    }

    /// Whole entries from `first` on, as many as are here in one piece and fit.
    pub(super) fn take_entries(&mut self, first: Entry, data: &mut [u8]) -> usize {
        let Some(rule) = self.rule(first.rule) else { return 0 };
        let entry_bytes = usize::from(rule.entry_bytes);
        let found = self.pieces.iter_mut().find(|piece| {
            piece.kind == PieceKind::Entries
                && piece.count != 0
                && (piece.rule, piece.index) == (first.rule, first.index)
        });
        let Some(piece) = found.filter(|_| data.len() >= entry_bytes) else {
            self.counters.misses += 1;
            return 0;
        };
        let count = piece.count.min((data.len() / entry_bytes) as u32);
        let bytes = count as usize * entry_bytes;
        let at = (piece.at % POOL_BYTES as u64) as usize;
        data[..bytes].copy_from_slice(&self.pool[at..at + bytes]);
        piece.pass(bytes);
        piece.index += count;
        piece.count -= count;
        piece.entries.0 += bytes as u64;
        self.live -= usize::from(piece.count == 0);
        self.counters.hits += 1;
        let taken = first.index..first.index + count;
        for piece in &mut self.pieces {
            piece.is_usable |= piece.kind != PieceKind::Entries && piece.is_of(first.rule, &taken);
        }
        bytes
    }

    /// What is here, from `address` on, of what `entry` points to; `body` is the frame in hand's, if there is one.
    pub(super) fn take_for(
        &mut self,
        entry: Entry,
        address: u64,
        most: usize,
        body: &[u8],
        take: &mut dyn FnMut(&[u8]),
    ) -> usize {
        if self.rule(entry.rule).is_none() {
            return 0;
        }
        let found = self.pieces.iter_mut().find(|piece| {
            piece.is_usable
                && piece.count != 0
                && (piece.rule, piece.index, piece.address) == (entry.rule, entry.index, address)
        });
        let Some(piece) = found else {
            self.counters.misses += 1;
            return 0;
        };
        let bytes = piece.bytes.min(most);
        let (memory, at) = match piece.in_hand {
            Some(at) => (body, at),
            None => (&*self.pool, (piece.at % POOL_BYTES as u64) as usize),
        };
        let Some(data) = memory.get(at..at + bytes) else { return 0 };
        take(data);
        piece.pass(bytes);
        if piece.bytes == 0 {
            piece.count = 0;
            self.live -= 1;
        }
        self.counters.hits += 1;
        bytes
    }
}

impl Core {
    /// Takes over what the Function declares, and tells the host. True if something was told.
    pub(super) fn declare(&mut self, function: &mut dyn Function, out: &mut dyn TlpOut, stream: u16) -> bool {
        self.take_rules(function);
        self.ahead.news != 0 && self.ahead.tell(out, stream)
    }

    /// Takes over what the Function declares.
    pub(super) fn take_rules(&mut self, function: &mut dyn Function) {
        for _ in 0..RULES {
            match function.read_ahead() {
                None => break,
                Some(ReadAhead::Declare(rule)) => self.ahead.set(rule.rule, Some(rule)),
                Some(ReadAhead::Withdraw(rule)) => self.ahead.set(rule, None),
            }
        }
    }
}
