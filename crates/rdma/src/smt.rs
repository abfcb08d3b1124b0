//! The STag Management Table: regions and windows, who may do what with them (docs/rnic.md, sections 3 and 6).

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use etherslot_wire::rdmap::Cause;

use crate::config::{Pd, Qpn};
use crate::engine::ControlError;
use crate::pbl::{Miss, Pbl, Run, Span};
use crate::placed::{Placed, StagState};

/// What may be done with a region or window; local reads always may.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access(pub u8);

impl Access {
    /// Answers and received messages may be placed in it.
    pub const LOCAL_WRITE: Self = Self(1 << 0);
    /// The peer may read it.
    pub const REMOTE_READ: Self = Self(1 << 1);
    /// The peer may write it.
    pub const REMOTE_WRITE: Self = Self(1 << 2);
    /// The peer may do atomics on it.
    pub const REMOTE_ATOMIC: Self = Self(1 << 3);
    /// Windows may be bound to it.
    pub const BIND: Self = Self(1 << 4);
    /// No more than local reads.
    pub const LOCAL_READ: Self = Self(0);
    /// All of it.
    pub const ALL: Self = Self(0x1F);

    /// Whether it is one that a region may have: what the peer may write its owner may, too.
    const fn is_sound(self) -> bool {
        let remote_writes = Self::REMOTE_WRITE.0 | Self::REMOTE_ATOMIC.0;
        self.0 & !Self::ALL.0 == 0 && (self.0 & remote_writes == 0 || self.has(Self::LOCAL_WRITE))
    }

    /// Whether all of `other` is in it.
    #[inline]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl core::ops::BitOr for Access {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Where the bytes of a region are.
#[derive(Clone, Copy, Debug)]
pub enum Layout<'a> {
    /// In one piece.
    Direct {
        /// Of the first byte.
        address: u64,
    },
    /// In pages.
    Pages {
        /// A page is of `2^shift` bytes, 12 to 30.
        shift: u8,
        /// Of the first byte, in the first page.
        offset: u64,
        /// Their addresses; a page that is not in it is absent.
        pages: &'a [u64],
    },
}

/// A region to be registered.
#[derive(Clone, Copy, Debug)]
pub struct Region<'a> {
    /// Whose QPs may use it.
    pub pd: Pd,
    /// What for.
    pub access: Access,
    /// The TO of the first byte: often its address in the process; 0 is zero-based.
    pub base: u64,
    /// Bytes.
    pub length: u64,
    /// The key that its STag gets.
    pub key: u8,
    /// Where it is.
    pub layout: Layout<'a>,
}

/// Why bytes are not to be had by an STag; in the order in which it is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denied {
    Stag,
    NotAssociated,
    Access,
    Wrap,
    Bounds,
}

impl Denied {
    /// The cause for a tagged segment.
    pub(crate) const fn tagged(self) -> Cause {
        match self {
            Self::Stag => Cause::TAGGED_STAG,
            Self::NotAssociated => Cause::TAGGED_NOT_ASSOCIATED,
            Self::Access => Cause::ACCESS,
            Self::Wrap => Cause::TAGGED_WRAP,
            Self::Bounds => Cause::TAGGED_BOUNDS,
        }
    }

    /// The cause for what a request names.
    pub(crate) const fn named(self) -> Cause {
        match self {
            Self::Stag => Cause::INVALID_STAG,
            Self::NotAssociated => Cause::NOT_ASSOCIATED,
            Self::Access => Cause::ACCESS,
            Self::Wrap => Cause::TO_WRAP,
            Self::Bounds => Cause::BOUNDS,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Free,
    /// A window that is not bound.
    Allocated,
    Region,
    Window,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    in_use: Use,
    key: u8,
    access: Access,
    shift: u8,
    pd: Pd,
    qp: Qpn,
    base: u64,
    length: u64,
    /// As in [`Span`], of the first byte.
    at: u64,
    run: Run,
    /// Window: the region's index.
    parent: u32,
    /// Region: windows bound to it.
    windows: u32,
}

impl Entry {
    pub(crate) fn state(&self) -> StagState {
        StagState {
            is_valid: matches!(self.in_use, Use::Region | Use::Window),
            is_window: matches!(self.in_use, Use::Allocated | Use::Window),
            key: self.key,
            windows: self.windows,
        }
    }
}

const FREE: Entry = Entry {
    in_use: Use::Free,
    key: 0,
    access: Access(0),
    shift: 0,
    pd: Pd(0),
    qp: Qpn(0),
    base: 0,
    length: 0,
    at: 0,
    run: Run { first: 0, pages: 0 },
    parent: 0,
    windows: 0,
};

/// What a Bind asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bind {
    pub(crate) window: u32,
    pub(crate) region: u32,
    pub(crate) to: u64,
    pub(crate) length: u64,
    pub(crate) access: Access,
    pub(crate) is_zero_based: bool,
}

/// The table, with that of the pages.
#[derive(Debug)]
pub(crate) struct Smt {
    entries: Box<[Entry]>,
    free: VecDeque<u32>,
    pub(crate) pbl: Pbl,
}

impl Smt {
    pub(crate) fn new(stags: usize, pages: usize) -> Self {
        // Index 0 is never given out; low ones first.
        let free = (1..stags as u32).rev().collect();
        Self { entries: alloc::vec![FREE; stags].into_boxed_slice(), free, pbl: Pbl::new(pages) }
    }

    #[inline]
    fn entry(&self, stag: u32) -> Option<&Entry> {
        let entry = self.entries.get((stag >> 8) as usize)?;
        (entry.key == stag as u8).then_some(entry)
    }

    fn index(&self, stag: u32, in_use: Use) -> Option<usize> {
        self.entry(stag).filter(|entry| entry.in_use == in_use).map(|_| (stag >> 8) as usize)
    }

    pub(crate) fn register(&mut self, region: &Region<'_>) -> Option<u32> {
        if region.base.checked_add(region.length).is_none() || !region.access.is_sound() {
            return None;
        }
        let (at, shift, pages, run) = match region.layout {
            Layout::Direct { address } => {
                address.checked_add(region.length)?;
                (address, 0, &[][..], Run::default())
            }
            Layout::Pages { shift, offset, pages } => {
                if !(12..=30).contains(&shift) || offset >> shift != 0 {
                    return None;
                }
                let needed = offset.checked_add(region.length)?.div_ceil(1 << shift);
                if (pages.len() as u64) > needed || pages.iter().any(|page| page & ((1 << shift) - 1) != 0) {
                    return None;
                }
                (offset, shift, pages, self.pbl.take(u32::try_from(needed).ok()?)?)
            }
        };
        let Some(index) = self.free.pop_back() else {
            self.pbl.give(run);
            return None;
        };
        for (page, &address) in pages.iter().enumerate() {
            self.pbl.set(run, page as u32, Some(address));
        }
        self.entries[index as usize] = Entry {
            in_use: Use::Region,
            key: region.key,
            access: region.access,
            shift,
            pd: region.pd,
            base: region.base,
            length: region.length,
            at,
            run,
            ..FREE
        };
        Some(index << 8 | u32::from(region.key))
    }

    /// Removes a region; not while windows are bound to it.
    pub(crate) fn deregister(&mut self, stag: u32) -> bool {
        let Some(index) = self.index(stag, Use::Region).filter(|&index| self.entries[index].windows == 0)
        else {
            return false;
        };
        self.pbl.give(self.entries[index].run);
        self.entries[index] = FREE;
        self.free.push_front(index as u32);
        true
    }

    /// Puts a region in this place.
    pub(crate) fn place_region(&mut self, index: u32, placed: &Placed) -> Result<(), ControlError> {
        let Placed { pd, access, base, length, key, shift, at, first } = *placed;
        self.check_free(index)?;
        if base.checked_add(length).is_none() || !access.is_sound() {
            return Err(ControlError::Invalid);
        }
        let end = at.checked_add(length).ok_or(ControlError::Invalid)?;
        let pages = match shift {
            0 => 0,
            12..=30 if at >> shift == 0 => end.div_ceil(1 << shift),
            _ => return Err(ControlError::Invalid),
        };
        if !self.pbl.has(first, pages) {
            return Err(ControlError::Invalid);
        }
        let run = Run { first, pages: pages as u32 };
        let region = Entry { in_use: Use::Region, key, access, shift, pd, base, length, at, run, ..FREE };
        self.put(index, region);
        Ok(())
    }

    /// Puts a window that is not bound in this place.
    pub(crate) fn place_window(&mut self, index: u32, pd: Pd) -> Result<(), ControlError> {
        self.check_free(index)?;
        self.put(index, Entry { in_use: Use::Allocated, pd, ..FREE });
        Ok(())
    }

    /// Empties this place.
    pub(crate) fn clear(&mut self, index: u32) -> Result<(), ControlError> {
        let entry = self.entry_at(index).ok_or(ControlError::Unknown)?;
        match entry.in_use {
            Use::Free => return Err(ControlError::Unknown),
            Use::Region if entry.windows > 0 => return Err(ControlError::InUse),
            Use::Window => self.unbind(index as usize),
            _ => {}
        }
        self.entries[index as usize] = FREE;
        self.free.push_front(index);
        Ok(())
    }

    pub(crate) fn entry_at(&self, index: u32) -> Option<&Entry> {
        self.entries.get(index as usize)
    }

    /// The STag of a region, and which of its pages this entry of the PBLMT is.
    pub(crate) fn page_of(&self, page: u32) -> Option<(u32, u32)> {
        let has = |entry: &Entry| {
            entry.in_use == Use::Region
                && page.checked_sub(entry.run.first).is_some_and(|at| at < entry.run.pages)
        };
        let index = self.entries.iter().position(has)?;
        let Entry { key, run, .. } = self.entries[index];
        Some(((index as u32) << 8 | u32::from(key), page - run.first))
    }

    fn check_free(&self, index: u32) -> Result<(), ControlError> {
        match self.entry_at(index).map(|entry| entry.in_use) {
            Some(Use::Free) if index != 0 => Ok(()),
            Some(Use::Free) | None => Err(ControlError::Unknown),
            Some(_) => Err(ControlError::InUse),
        }
    }

    fn put(&mut self, index: u32, entry: Entry) {
        self.entries[index as usize] = entry;
        self.free.retain(|&other| other != index);
    }

    pub(crate) fn set_page(&mut self, stag: u32, page: u32, address: Option<u64>) -> bool {
        let Some(index) = self.index(stag, Use::Region) else { return false };
        let Entry { run, shift, .. } = self.entries[index];
        let is_aligned = address.is_none_or(|address| shift == 0 || address & ((1 << shift) - 1) == 0);
        is_aligned && self.pbl.set(run, page, address)
    }

    pub(crate) fn allocate_window(&mut self, pd: Pd) -> Option<u32> {
        let index = self.free.pop_back()?;
        self.entries[index as usize] = Entry { in_use: Use::Allocated, pd, ..FREE };
        Some(index << 8)
    }

    /// Removes a window, bound or not, whatever its key is by now.
    pub(crate) fn free_window(&mut self, stag: u32) -> bool {
        let index = (stag >> 8) as usize;
        let Some(entry) = self.entries.get(index) else { return false };
        match entry.in_use {
            Use::Window => self.unbind(index),
            Use::Allocated => {}
            _ => return false,
        }
        self.entries[index] = FREE;
        self.free.push_front(index as u32);
        true
    }

    /// Binds a window of type 2 (Verbs 7.10.2).
    pub(crate) fn bind(&mut self, bind: &Bind, pd: Pd, qp: Qpn) -> bool {
        let (window, region) = ((bind.window >> 8) as usize, (bind.region >> 8) as usize);
        let is_free =
            self.entries.get(window).is_some_and(|entry| entry.in_use == Use::Allocated && entry.pd == pd);
        let Some(&parent) = self.entry(bind.region).filter(|entry| entry.in_use == Use::Region) else {
            return false;
        };
        let needs_write = bind.access.0 & (Access::REMOTE_WRITE | Access::REMOTE_ATOMIC).0 != 0;
        let start = bind.to.wrapping_sub(parent.base);
        let may = is_free
            && parent.pd == pd
            && parent.access.has(Access::BIND)
            && (!needs_write || parent.access.has(Access::LOCAL_WRITE))
            && bind.length != 0
            && bind.to >= parent.base
            && start.checked_add(bind.length).is_some_and(|end| end <= parent.length);
        if !may {
            return false;
        }
        self.entries[window] = Entry {
            in_use: Use::Window,
            key: bind.window as u8,
            access: bind.access,
            shift: parent.shift,
            pd,
            qp,
            base: if bind.is_zero_based { 0 } else { bind.to },
            length: bind.length,
            at: parent.at + start,
            run: parent.run,
            parent: region as u32,
            windows: 0,
        };
        self.entries[region].windows += 1;
        true
    }

    /// Whether this is a window that is bound on this QP.
    pub(crate) fn is_bound(&self, stag: u32, qp: Qpn) -> bool {
        self.index(stag, Use::Window).is_some_and(|index| self.entries[index].qp == qp)
    }

    /// Makes a window invalid: by its own QP, or by the peer of that.
    pub(crate) fn invalidate(&mut self, stag: u32, qp: Qpn) -> bool {
        let is_bound = self.is_bound(stag, qp);
        if is_bound {
            self.unbind((stag >> 8) as usize);
        }
        is_bound
    }

    fn unbind(&mut self, index: usize) {
        let Entry { parent, pd, key, .. } = self.entries[index];
        if let Some(region) = self.entries.get_mut(parent as usize) {
            region.windows = region.windows.saturating_sub(1);
        }
        self.entries[index] = Entry { in_use: Use::Allocated, pd, key, ..FREE };
    }

    /// The windows of a QP that is no more are invalid.
    pub(crate) fn forget(&mut self, qp: Qpn) {
        for index in 0..self.entries.len() {
            if self.entries[index].in_use == Use::Window && self.entries[index].qp == qp {
                self.unbind(index);
            }
        }
    }

    /// Checks a use of bytes (docs/rnic.md, section 6).
    #[inline]
    pub(crate) fn look_up(
        &self,
        stag: u32,
        to: u64,
        length: u64,
        right: Access,
        (pd, qp): (Pd, Qpn),
    ) -> Result<Span, Denied> {
        let entry = self
            .entry(stag)
            .filter(|entry| matches!(entry.in_use, Use::Region | Use::Window))
            .ok_or(Denied::Stag)?;
        if entry.pd != pd || entry.in_use == Use::Window && entry.qp != qp {
            return Err(Denied::NotAssociated);
        }
        // A window is for the peer; nothing local goes through it.
        if !entry.access.has(right) || entry.in_use == Use::Window && right.0 <= Access::LOCAL_WRITE.0 {
            return Err(Denied::Access);
        }
        let end = to.checked_add(length).ok_or(Denied::Wrap)?;
        if to < entry.base || end > entry.base + entry.length {
            return Err(Denied::Bounds);
        }
        let at = entry.at + (to - entry.base);
        Ok(Span { at, length, first: entry.run.first, shift: entry.shift })
    }

    /// Whether all pages of the span are there.
    pub(crate) fn check_present(&self, span: &Span) -> Result<(), Miss> {
        if span.shift == 0 { Ok(()) } else { self.pbl.walk(span, |_, _| Ok(())) }
    }
}
