//! The Physical Buffer List Management Table: which page of a region is where (docs/rnic.md, sections 3 and 6).

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

/// The page is there.
const PRESENT: u64 = 1;
/// Pages are at least of 4 KiB: the lower bits of an entry are not of its address.
const ADDRESS: u64 = !0xFFF;

/// A run of entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) first: u32,
    pub(crate) pages: u32,
}

/// The table.
#[derive(Debug)]
pub(crate) struct Pbl {
    entries: Box<[u64]>,
    /// Runs that are free, by place; neighbours are one.
    free: Vec<Run>,
}

/// A page that is not there: its number in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Miss(pub(crate) u32);

/// Bytes of a region after look-up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    /// Direct: the address. Else: bytes from the start of the first page.
    pub(crate) at: u64,
    pub(crate) length: u64,
    /// First entry of the region.
    pub(crate) first: u32,
    /// Of the page; 0 is direct.
    pub(crate) shift: u8,
}

impl Pbl {
    pub(crate) fn new(entries: usize) -> Self {
        let all = Run { first: 0, pages: entries as u32 };
        Self { entries: vec![0; entries].into_boxed_slice(), free: vec![all] }
    }

    /// Takes a run of so many entries, all absent.
    pub(crate) fn take(&mut self, pages: u32) -> Option<Run> {
        if pages == 0 {
            return Some(Run::default());
        }
        let at = self.free.iter().position(|run| run.pages >= pages)?;
        let run = &mut self.free[at];
        let taken = Run { first: run.first, pages };
        run.first += pages;
        run.pages -= pages;
        if run.pages == 0 {
            self.free.remove(at);
        }
        Some(taken)
    }

    /// Gives a run back.
    pub(crate) fn give(&mut self, run: Run) {
        if run.pages == 0 {
            return;
        }
        let range = run.first as usize..(run.first + run.pages) as usize;
        if let Some(entries) = self.entries.get_mut(range) {
            entries.fill(0);
        }
        let at = self.free.partition_point(|free| free.first < run.first);
        self.free.insert(at, run);
        for left in [at, at.wrapping_sub(1)] {
            let (Some(&one), Some(&next)) = (self.free.get(left), self.free.get(left.wrapping_add(1))) else {
                continue;
            };
            if one.first + one.pages == next.first {
                self.free[left].pages += next.pages;
                self.free.remove(left + 1);
            }
        }
    }

    /// Says where a page is, or that it is not there.
    pub(crate) fn set(&mut self, run: Run, page: u32, address: Option<u64>) -> bool {
        let entry = self.entries.get_mut((run.first + page) as usize).filter(|_| page < run.pages);
        let is_there = entry.is_some();
        if let Some(entry) = entry {
            *entry = address.map_or(0, |address| address & ADDRESS | PRESENT);
        }
        is_there
    }

    /// Writes an entry as it lies in the table.
    pub(crate) fn set_entry(&mut self, index: u32, value: u64) -> bool {
        let entry = self.entries.get_mut(index as usize);
        entry.map(|entry| *entry = value & (ADDRESS | PRESENT)).is_some()
    }

    /// Whether there are these entries.
    pub(crate) fn has(&self, first: u32, pages: u64) -> bool {
        u64::from(first) + pages <= self.entries.len() as u64
    }

    /// Calls `piece` with every run of bytes that is in one piece: its address, and where in the span it is.
    #[inline]
    pub(crate) fn walk<E: From<Miss>>(
        &self,
        span: &Span,
        mut piece: impl FnMut(u64, core::ops::Range<usize>) -> Result<(), E>,
    ) -> Result<(), E> {
        if span.shift == 0 {
            return if span.length == 0 { Ok(()) } else { piece(span.at, 0..span.length as usize) };
        }
        let page_bytes = 1_u64 << span.shift;
        let mut done = 0;
        while done < span.length {
            let at = span.at + done;
            let in_page = at & (page_bytes - 1);
            let address = self.page(span, at)? + in_page;
            let mut bytes = (page_bytes - in_page).min(span.length - done);
            // Pages that follow each other are one piece.
            while done + bytes < span.length {
                match self.page::<Miss>(span, span.at + done + bytes) {
                    Ok(next) if next == address.wrapping_add(bytes) => {
                        bytes += page_bytes.min(span.length - done - bytes);
                    }
                    _ => break,
                }
            }
            piece(address, done as usize..(done + bytes) as usize)?;
            done += bytes;
        }
        Ok(())
    }

    #[inline]
    fn page<E: From<Miss>>(&self, span: &Span, at: u64) -> Result<u64, E> {
        let index = u64::from(span.first) + (at >> span.shift);
        match self.entries.get(index as usize) {
            // Bits below the page's size are none of its address.
            Some(&entry) if entry & PRESENT != 0 => Ok(entry & ADDRESS & !((1 << span.shift) - 1)),
            _ => Err(Miss(index as u32).into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_given_back_in_any_order_and_become_one() {
        let mut pbl = Pbl::new(10);
        let runs = [pbl.take(3).unwrap(), pbl.take(3).unwrap(), pbl.take(4).unwrap()];
        assert_eq!(pbl.take(1), None);
        for order in [[0, 1, 2], [2, 0, 1], [1, 2, 0], [0, 2, 1]] {
            for at in order {
                pbl.give(runs[at]);
            }
            assert_eq!(pbl.free, [Run { first: 0, pages: 10 }]);
            assert_eq!([pbl.take(3), pbl.take(3), pbl.take(4)], runs.map(Some));
        }
    }

    #[test]
    fn a_span_is_walked_page_by_page_and_stops_at_one_that_is_absent() {
        let mut pbl = Pbl::new(8);
        let other = pbl.take(2).unwrap();
        let run = pbl.take(4).unwrap();
        for (page, address) in [(0, 0x7000), (1, 0x8000), (2, 0x3000)] {
            assert!(pbl.set(run, page, Some(address)));
        }
        assert!(!pbl.set(run, 4, Some(0)) && pbl.set(other, 1, Some(0)));
        let walk = |at, length| {
            let mut pieces = Vec::new();
            let span = Span { at, length, first: run.first, shift: 12 };
            let end = pbl.walk::<Miss>(&span, |address, range| {
                pieces.push((address, range.start, range.len()));
                Ok(())
            });
            (pieces, end)
        };
        assert_eq!(walk(0xFF0, 0x1020), (vec![(0x7FF0, 0, 0x1010), (0x3000, 0x1010, 0x10)], Ok(())));
        assert_eq!(walk(0x2FF0, 0x20), (vec![(0x3FF0, 0, 0x10)], Err(Miss(run.first + 3))));
        assert_eq!(walk(0x5000, 0), (vec![], Ok(())));
    }
}
