//! Read-ahead: which memory a host sends along with a doorbell, so that the Function need not ask for it.
//!
//! A box declares a [`Rule`] for a ring of entries in the memory of the host. When the guest writes the ring's doorbell, the
//! host sends the new entries, and what they point to as the rule's [`Follow`]s say, as [`Piece`]s in front of the doorbell.

use crate::bytes::{put, u16_at, u32_at, u64_at};

/// Rules of one Function: their numbers are below this.
pub const RULES: usize = 129;
/// Entries of a ring at most.
pub const MAX_ENTRIES: u32 = 65_536;
/// Bytes of an entry, and of a piece, at most.
pub const MAX_BYTES: usize = 4096;
/// Bytes at most that a Follow may have sent for one entry.
pub const MAX_FOLLOW_BYTES: u32 = 16_384;
/// The unit of [`Follow::PAGES`] and lists, bytes.
pub const PAGE_BYTES: u32 = 4096;
/// Follows of a rule at most.
pub const FOLLOWS: usize = 4;
/// Conditions of a Follow at most.
pub const CONDITIONS: usize = 2;

/// A masked comparison of 4 bytes of an entry, in the order of PCI Express: little-endian.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    /// Where in the entry.
    pub offset: u16,
    /// The bits that count.
    pub mask: u32,
    /// What they have to be.
    pub value: u32,
}

/// What follows an entry if all conditions hold: the data it points to, or the list of the pages where that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Follow {
    /// [`Follow::DATA`], [`Follow::PAGES`] and [`Follow::LIST`].
    pub flags: u8,
    /// The first [`Follow::conditions`] of these count.
    pub when: [Condition; CONDITIONS],
    /// How many conditions there are.
    pub conditions: u8,
    /// Where in the entry the address of the data is, 8 bytes.
    pub first: u16,
    /// Where in the entry the second address is, for data beyond the first page. Without [`Follow::PAGES`] it is not looked at.
    pub second: u16,
    /// Where in the entry the length is, 4 bytes: `((length & mask) + bias) << shift` bytes.
    pub length: u16,
    /// The bits of the length.
    pub mask: u32,
    /// Added to them.
    pub bias: u16,
    /// Then shifted left by this, 0..=16.
    pub shift: u8,
    /// Data is sent up to this length; there is none of a longer one.
    pub max_bytes: u32,
}

impl Follow {
    /// The data is sent, if it is neither too long nor behind a list.
    pub const DATA: u8 = 1 << 0;
    /// An address leads to the end of its page only. If what is left then is at most one page, the second
    /// address is that page's, otherwise that of a list of pages.
    pub const PAGES: u8 = 1 << 1;
    /// The list is sent, as far as its own page goes. Only with [`Follow::PAGES`].
    pub const LIST: u8 = 1 << 2;

    const BYTES: usize = 44;
    const NONE: Self = Self {
        flags: 0,
        when: [Condition { offset: 0, mask: 0, value: 0 }; CONDITIONS],
        conditions: 0,
        first: 0,
        second: 0,
        length: 0,
        mask: 0,
        bias: 0,
        shift: 0,
        max_bytes: 0,
    };

    /// The conditions.
    pub fn conditions(&self) -> &[Condition] {
        self.when.get(..self.conditions as usize).unwrap_or(&[])
    }

    fn is_valid(&self, entry_bytes: u16) -> bool {
        let holds = |offset: u16, bytes: u32| u32::from(offset) + bytes <= u32::from(entry_bytes);
        let pages = self.flags & Self::PAGES != 0;
        self.flags & !(Self::DATA | Self::PAGES | Self::LIST) == 0
            && (pages || self.flags & Self::LIST == 0)
            && self.conditions as usize <= CONDITIONS
            && self.conditions().iter().all(|condition| holds(condition.offset, 4))
            && holds(self.first, 8)
            && (!pages || holds(self.second, 8))
            && holds(self.length, 4)
            && self.shift <= 16
            && self.max_bytes <= MAX_FOLLOW_BYTES
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let mut follow = Self {
            flags: *bytes.first()?,
            conditions: *bytes.get(1)?,
            first: u16_at(bytes, 2)?,
            second: u16_at(bytes, 4)?,
            length: u16_at(bytes, 6)?,
            mask: u32_at(bytes, 8)?,
            bias: u16_at(bytes, 12)?,
            shift: *bytes.get(14)?,
            max_bytes: u32_at(bytes, 16)?,
            ..Self::NONE
        };
        for (place, condition) in follow.when.iter_mut().take(follow.conditions as usize).enumerate() {
            let at = 20 + 12 * place;
            *condition = Condition {
                offset: u16_at(bytes, at)?,
                mask: u32_at(bytes, at + 4)?,
                value: u32_at(bytes, at + 8)?,
            };
        }
        Some(follow)
    }

    fn emit(&self, out: &mut [u8]) -> Option<()> {
        put(out, 0, &[self.flags, self.conditions])?;
        put(out, 2, &self.first.to_be_bytes())?;
        put(out, 4, &self.second.to_be_bytes())?;
        put(out, 6, &self.length.to_be_bytes())?;
        put(out, 8, &self.mask.to_be_bytes())?;
        put(out, 12, &self.bias.to_be_bytes())?;
        put(out, 14, &[self.shift])?;
        put(out, 16, &self.max_bytes.to_be_bytes())?;
        for (place, condition) in self.conditions().iter().enumerate() {
            let at = 20 + 12 * place;
            put(out, at, &condition.offset.to_be_bytes())?;
            put(out, at + 4, &condition.mask.to_be_bytes())?;
            put(out, at + 8, &condition.value.to_be_bytes())?;
        }
        Some(())
    }
}

/// What a Function wants to have sent along with a doorbell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Its number, below [`RULES`]. A rule takes the place of an earlier one of the same number.
    pub rule: u8,
    /// Which declaration this is: pieces repeat it, so that those of an earlier one are known.
    pub generation: u16,
    /// BAR of the doorbell, 0..=5.
    pub bar: u8,
    /// Offset of the doorbell in it, a multiple of 4. Only writes of 4 bytes count.
    pub doorbell: u32,
    /// The bits of what is written there that are the index of the first entry that is not the Function's yet.
    pub mask: u32,
    /// Address of entry 0.
    pub ring: u64,
    /// Bytes of an entry, 1..=[`MAX_BYTES`].
    pub entry_bytes: u16,
    /// Entries of the ring, 2..=[`MAX_ENTRIES`].
    pub entries: u32,
    follows: [Follow; FOLLOWS],
    follow_count: u8,
}

impl Rule {
    /// Bytes of a rule without Follows.
    const FIXED_BYTES: usize = 32;
    /// Bytes of the longest rule.
    pub const MAX_RULE_BYTES: usize = Self::FIXED_BYTES + FOLLOWS * Follow::BYTES;

    /// A rule for a ring at `ring`, without Follows.
    pub const fn new(rule: u8, bar: u8, doorbell: u32, ring: u64, entry_bytes: u16, entries: u32) -> Self {
        Self {
            rule,
            generation: 0,
            bar,
            doorbell,
            mask: u32::MAX,
            ring,
            entry_bytes,
            entries,
            follows: [Follow::NONE; FOLLOWS],
            follow_count: 0,
        }
    }

    /// Adds a Follow; false if there are [`FOLLOWS`] already.
    pub fn follow(&mut self, follow: Follow) -> bool {
        let place = self.follows.get_mut(self.follow_count as usize);
        let fits = place.is_some();
        if let Some(place) = place {
            *place = follow;
            self.follow_count += 1;
        }
        fits
    }

    /// The Follows; the first whose conditions hold counts.
    pub fn follows(&self) -> &[Follow] {
        self.follows.get(..self.follow_count as usize).unwrap_or(&[])
    }

    /// Address of entry `index`.
    pub fn entry(&self, index: u32) -> u64 {
        self.ring.wrapping_add(u64::from(index) * u64::from(self.entry_bytes))
    }

    /// Whether all of it is within its bounds, and the ring within the addresses that there are.
    pub fn is_valid(&self) -> bool {
        let ring_bytes = u64::from(self.entry_bytes) * u64::from(self.entries);
        (self.rule as usize) < RULES
            && self.bar <= 5
            && self.doorbell.is_multiple_of(4)
            && (1..=MAX_BYTES).contains(&(self.entry_bytes as usize))
            && (2..=MAX_ENTRIES).contains(&self.entries)
            && self.ring.checked_add(ring_bytes).is_some()
            && self.follow_count as usize <= FOLLOWS
            && self.follows().iter().all(|follow| follow.is_valid(self.entry_bytes))
    }

    /// Bytes of it as a control message.
    pub(crate) const fn len(&self) -> usize {
        Self::FIXED_BYTES + self.follow_count as usize * Follow::BYTES
    }

    /// Decodes a control message of this kind; `None` if it is short or not valid.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let mut rule = Self {
            rule: *bytes.get(1)?,
            generation: u16_at(bytes, 2)?,
            bar: *bytes.get(4)?,
            follow_count: *bytes.get(5)?,
            entry_bytes: u16_at(bytes, 6)?,
            doorbell: u32_at(bytes, 8)?,
            mask: u32_at(bytes, 12)?,
            ring: u64_at(bytes, 16)?,
            entries: u32_at(bytes, 24)?,
            follows: [Follow::NONE; FOLLOWS],
        };
        if rule.follow_count as usize > FOLLOWS {
            return None;
        }
        let mut rest = bytes.get(Self::FIXED_BYTES..)?;
        for follow in rule.follows.iter_mut().take(rule.follow_count as usize) {
            let (one, behind) = rest.split_at_checked(Follow::BYTES)?;
            *follow = Follow::parse(one)?;
            rest = behind;
        }
        rule.is_valid().then_some(rule)
    }

    /// Writes all of the control message but its code, into zeros.
    pub(crate) fn emit(&self, out: &mut [u8]) -> Option<()> {
        put(out, 1, &[self.rule])?;
        put(out, 2, &self.generation.to_be_bytes())?;
        put(out, 4, &[self.bar, self.follow_count])?;
        put(out, 6, &self.entry_bytes.to_be_bytes())?;
        put(out, 8, &self.doorbell.to_be_bytes())?;
        put(out, 12, &self.mask.to_be_bytes())?;
        put(out, 16, &self.ring.to_be_bytes())?;
        put(out, 24, &self.entries.to_be_bytes())?;
        for (place, follow) in self.follows().iter().enumerate() {
            follow.emit(out.get_mut(Self::FIXED_BYTES + place * Follow::BYTES..)?)?;
        }
        Some(())
    }
}

/// What a piece is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PieceKind {
    /// Entries of the ring, whole ones, from the index on.
    Entries = 1,
    /// Data that the entry at the index points to.
    Data = 2,
    /// A list of pages that the entry at the index points to.
    List = 3,
}

/// The header of a piece; its bytes, 1..=[`MAX_BYTES`], stand behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The rule.
    pub rule: u8,
    /// Which declaration of it.
    pub generation: u16,
    /// What it is.
    pub kind: PieceKind,
    /// Which entry of the ring.
    pub index: u16,
    /// Where in the memory of the host the bytes were.
    pub address: u64,
}

impl Piece {
    /// Bytes of the header.
    pub const BYTES: usize = 16;

    /// Decodes the payload of a record; `None` if it is short or long, or of a kind that there is not.
    pub fn parse(payload: &[u8]) -> Option<(Self, &[u8])> {
        let (head, bytes) = payload.split_first_chunk::<{ Self::BYTES }>()?;
        let piece = Self {
            rule: head[0],
            kind: match head[1] {
                1 => PieceKind::Entries,
                2 => PieceKind::Data,
                3 => PieceKind::List,
                _ => return None,
            },
            generation: u16_at(head, 2)?,
            index: u16_at(head, 4)?,
            address: u64_at(head, 8)?,
        };
        let fits = (1..=MAX_BYTES).contains(&bytes.len())
            && (piece.rule as usize) < RULES
            && piece.address.checked_add(bytes.len() as u64).is_some();
        fits.then_some((piece, bytes))
    }

    /// The header as it goes in front of the bytes.
    pub fn emit(&self) -> [u8; Self::BYTES] {
        let mut out = [0; Self::BYTES];
        out[..2].copy_from_slice(&[self.rule, self.kind as u8]);
        out[2..4].copy_from_slice(&self.generation.to_be_bytes());
        out[4..6].copy_from_slice(&self.index.to_be_bytes());
        out[8..16].copy_from_slice(&self.address.to_be_bytes());
        out
    }
}

const _: () = assert!(Piece::BYTES + MAX_BYTES <= crate::record::MAX_PAYLOAD_BYTES);
