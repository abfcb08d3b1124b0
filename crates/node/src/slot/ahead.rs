//! Read-ahead: the rules of the Function, and what of the guest's memory goes in front of its doorbells (docs/wire.md, section 9).
//!
//! A rule is data from the box: it leads nowhere that the Function could not read by itself, and it makes a doorbell no more work than
//! [`ENTRIES`] and [`BYTES`] allow. What is sent is always of entries that this very doorbell hands over: those from the last index that the
//! Function was told of. If that is not known, nothing is sent.

use etherslot_pci::enumerate::Layout;
use etherslot_session::Session;
use etherslot_wire::ahead::{Follow, MAX_BYTES, PAGE_BYTES, Piece, PieceKind, RULES, Rule};

use crate::out::send_piece;

/// Entries that go along with one doorbell at most.
const ENTRIES: u32 = 32;
/// Bytes that do; the last piece may go beyond.
const BYTES: usize = 32 << 10;

#[derive(Clone, Copy, Debug)]
struct Known {
    rule: Rule,
    /// What the Function was last told by the doorbell, if that is known.
    index: Option<u32>,
}

/// A write to a doorbell, as it is about to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rung {
    rule: u8,
    value: u32,
}

/// What has gone along with doorbells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sent {
    pub(super) pieces: u64,
    pub(super) bytes: u64,
}

/// The rules in force.
#[derive(Debug, Default)]
pub(super) struct ReadAhead {
    /// By their numbers; empty before the first.
    rules: Vec<Option<Known>>,
    /// BAR and offset of each doorbell, in ascending order, and the rule's number.
    doorbells: Vec<(u8, u32, u8)>,
    scratch: Vec<u8>,
}

impl ReadAhead {
    /// There are none any more.
    pub(super) fn clear(&mut self) {
        self.rules.fill(None);
        self.doorbells.clear();
    }

    /// Takes a rule for a Function with this layout; false if it asks for what can't be.
    pub(super) fn declare(&mut self, rule: &Rule, layout: &Layout) -> bool {
        self.withdraw(rule.rule);
        if !is_doorbell(rule, layout) {
            return false;
        }
        let place = (rule.bar, rule.doorbell);
        let at = self.doorbells.partition_point(|&(bar, doorbell, _)| (bar, doorbell) < place);
        if self.doorbells.get(at).is_some_and(|&(bar, doorbell, _)| (bar, doorbell) == place) {
            return false;
        }
        if self.rules.is_empty() {
            self.rules = vec![None; RULES];
            self.doorbells.reserve(RULES);
            self.scratch = vec![0; 2 * MAX_BYTES];
        }
        let Some(known) = self.rules.get_mut(rule.rule as usize) else { return false };
        *known = Some(Known { rule: *rule, index: None });
        self.doorbells.insert(at, (rule.bar, rule.doorbell, rule.rule));
        true
    }

    /// Forgets a rule.
    pub(super) fn withdraw(&mut self, rule: u8) {
        if self.rules.get_mut(rule as usize).and_then(Option::take).is_some() {
            self.doorbells.retain(|&(_, _, number)| number != rule);
        }
    }

    /// The doorbell that a write of the guest rings, if it is one. The owner says by [`ReadAhead::told`] when the write is on its way.
    pub(super) fn rung(&mut self, bar: usize, offset: u64, data: &[u8]) -> Option<Rung> {
        if self.doorbells.is_empty() {
            return None;
        }
        let (bar, end) = (bar as u8, offset + data.len() as u64);
        let first = self
            .doorbells
            .partition_point(|&(at, doorbell, _)| at < bar || at == bar && u64::from(doorbell) + 4 <= offset);
        for at in first..self.doorbells.len() {
            let (of, doorbell, rule) = self.doorbells[at];
            if of != bar || u64::from(doorbell) >= end {
                break;
            }
            if u64::from(doorbell) == offset
                && let Ok(value) = data.try_into().map(u32::from_le_bytes)
            {
                return Some(Rung { rule, value });
            }
            // Whatever the Function makes of it.
            if let Some(Some(known)) = self.rules.get_mut(rule as usize) {
                known.index = None;
            }
        }
        None
    }

    /// The doorbell is on its way, with its pieces or without.
    pub(super) fn told(&mut self, rung: Rung) {
        if let Some(Some(known)) = self.rules.get_mut(rung.rule as usize) {
            known.index = Some(rung.value & known.rule.mask).filter(|&index| index < known.rule.entries);
        }
    }

    /// Sends what goes in front of the doorbell, as far as the session has room; `read` reads the guest's memory.
    pub(super) fn send(
        &mut self,
        rung: Rung,
        session: &mut Session,
        stream: u16,
        read: &mut dyn FnMut(u64, &mut [u8]) -> bool,
    ) -> Sent {
        let mut sent = Sent::default();
        let Some(Some(Known { rule, index: Some(index) })) = self.rules.get(rung.rule as usize) else {
            return sent;
        };
        let end = rung.value & rule.mask;
        if end >= rule.entries {
            return sent;
        }
        let (entries, spare) = self.scratch.split_at_mut(MAX_BYTES);
        let mut out = Out { rule, session, stream, read, spare, sent: &mut sent };
        let entry_bytes = usize::from(rule.entry_bytes);
        let (mut index, mut left) = (*index, ENTRIES);
        while index != end && left != 0 {
            let to_end = if end > index { end - index } else { rule.entries - index };
            let count = to_end.min(left).min((MAX_BYTES / entry_bytes) as u32);
            let entries = &mut entries[..count as usize * entry_bytes];
            if !out.entries(index, entries) {
                break;
            }
            for (index, entry) in (index..).zip(entries.chunks_exact(entry_bytes)) {
                out.follow(index, entry);
            }
            left -= count;
            index = (index + count) % rule.entries;
        }
        sent
    }
}

/// The way of the pieces of one doorbell.
struct Out<'a> {
    rule: &'a Rule,
    session: &'a mut Session,
    stream: u16,
    read: &'a mut dyn FnMut(u64, &mut [u8]) -> bool,
    spare: &'a mut [u8],
    sent: &'a mut Sent,
}

impl Out<'_> {
    fn has_room(&self) -> bool {
        (self.sent.bytes as usize) < BYTES && self.session.room_for(self.stream) != 0
    }

    fn piece(&self, kind: PieceKind, index: u32, address: u64) -> Piece {
        let Rule { rule, generation, .. } = *self.rule;
        Piece { rule, generation, kind, index: index as u16, address }
    }

    fn count(&mut self, bytes: usize) {
        self.sent.pieces += 1;
        self.sent.bytes += bytes as u64;
    }

    /// Entries from `index` on, which are then in `entries`. False if they were not sent.
    fn entries(&mut self, index: u32, entries: &mut [u8]) -> bool {
        let address = self.rule.entry(index);
        if !self.has_room() || !(self.read)(address, entries) {
            return false;
        }
        let piece = self.piece(PieceKind::Entries, index, address);
        let copied = &mut |data: &mut [u8]| {
            data.copy_from_slice(entries);
            true
        };
        let sent = send_piece(self.session, self.stream, &piece, entries.len(), self.spare, copied);
        if sent {
            self.count(entries.len());
        }
        sent
    }

    /// What follows an entry.
    fn follow(&mut self, index: u32, entry: &[u8]) {
        let dword = |offset: u16| {
            let bytes = entry.get(usize::from(offset)..).and_then(|bytes| bytes.first_chunk());
            bytes.copied().map_or(0, u32::from_le_bytes)
        };
        let pointer = |offset: u16| u64::from(dword(offset + 4)) << 32 | u64::from(dword(offset));
        let holds = |follow: &&Follow| {
            follow.conditions().iter().all(|when| dword(when.offset) & when.mask == when.value)
        };
        let Some(follow) = self.rule.follows().iter().find(holds) else { return };
        let length = (u64::from(dword(follow.length) & follow.mask) + u64::from(follow.bias)) << follow.shift;
        let Ok(length) = u32::try_from(length) else { return };
        let has = |flag: u8| follow.flags & flag != 0;
        let is_data = has(Follow::DATA) && length <= follow.max_bytes;
        let first = pointer(follow.first);
        if !has(Follow::PAGES) {
            if is_data {
                self.memory(PieceKind::Data, index, first, length);
            }
            return;
        }
        let to_page_end = |address: u64| PAGE_BYTES - (address as u32 & (PAGE_BYTES - 1));
        let in_first = length.min(to_page_end(first));
        let second = pointer(follow.second);
        let rest = length - in_first;
        if rest <= PAGE_BYTES {
            if is_data {
                self.memory(PieceKind::Data, index, first, in_first);
                self.memory(PieceKind::Data, index, second, rest);
            }
        } else if has(Follow::LIST) {
            let bytes = rest.div_ceil(PAGE_BYTES).saturating_mul(8).min(to_page_end(second));
            self.memory(PieceKind::List, index, second, bytes);
        }
    }

    fn memory(&mut self, kind: PieceKind, index: u32, mut address: u64, mut bytes: u32) {
        while bytes != 0 && self.has_room() {
            let part = bytes.min(MAX_BYTES as u32);
            let Some(end) = address.checked_add(u64::from(part)) else { return };
            let piece = self.piece(kind, index, address);
            let read = &mut |data: &mut [u8]| (self.read)(address, data);
            if !send_piece(self.session, self.stream, &piece, part as usize, self.spare, read) {
                return;
            }
            self.count(part as usize);
            (address, bytes) = (end, bytes - part);
        }
    }
}

/// Whether the Function has such a register for its driver: MSI-X table and PBA are none of its own.
fn is_doorbell(rule: &Rule, layout: &Layout) -> bool {
    let (start, end) = (u64::from(rule.doorbell), u64::from(rule.doorbell) + 4);
    let bar = layout.bars.get(rule.bar as usize).copied().flatten();
    let in_msix = layout.msix.is_some_and(|msix| {
        let meets = |bar: u8, offset: u32, bytes: u64| {
            bar == rule.bar && start < u64::from(offset) + bytes && u64::from(offset) < end
        };
        let vectors = u64::from(msix.vectors);
        meets(msix.bar, msix.table_offset, 16 * vectors)
            || meets(msix.pba_bar, msix.pba_offset, 8 * vectors.div_ceil(64))
    });
    rule.is_valid() && bar.is_some_and(|bar| end <= bar.bytes) && !in_msix
}
