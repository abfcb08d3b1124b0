//! Which addresses of a Function's address space are free.

use std::collections::BTreeMap;

use crate::PAGE_BYTES;

/// Maps of this much or more begin where a large page of an IOMMU may begin.
const LARGE_BYTES: u64 = 2 << 20;

/// Free runs, by where they begin: the first address behind each.
#[derive(Debug)]
pub(crate) struct Addresses(BTreeMap<u64, u64>);

impl Addresses {
    /// Of these ranges, the first and the last address of each. Address 0 is not given out: to too many it is no address.
    pub(crate) fn new(ranges: &[(u64, u64)]) -> Self {
        let runs = ranges.iter().filter_map(|&(first, last)| {
            let start = first.max(PAGE_BYTES).checked_next_multiple_of(PAGE_BYTES)?;
            let end = last.saturating_add(1) & !(PAGE_BYTES - 1);
            (start < end).then_some((start, end))
        });
        Self(runs.collect())
    }

    /// Takes `bytes`, a multiple of the page.
    pub(crate) fn take(&mut self, bytes: u64) -> Option<u64> {
        debug_assert!(bytes > 0 && bytes.is_multiple_of(PAGE_BYTES));
        let align = if bytes >= LARGE_BYTES { LARGE_BYTES } else { PAGE_BYTES };
        let (start, end, at) = self.0.iter().find_map(|(&start, &end)| {
            let at = start.checked_next_multiple_of(align)?;
            (at.checked_add(bytes)? <= end).then_some((start, end, at))
        })?;
        self.0.remove(&start);
        for (start, end) in [(start, at), (at + bytes, end)] {
            if start < end {
                self.0.insert(start, end);
            }
        }
        Some(at)
    }

    /// Gives back what was taken.
    pub(crate) fn give_back(&mut self, at: u64, bytes: u64) {
        let (mut start, mut end) = (at, at + bytes);
        if let Some((&before, &its_end)) = self.0.range(..at).next_back()
            && its_end == at
        {
            self.0.remove(&before);
            start = before;
        }
        if let Some(behind) = self.0.remove(&end) {
            end = behind;
        }
        self.0.insert(start, end);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What an IOMMU of a PC says: the addresses of interrupts are left out.
    const PC: [(u64, u64); 2] = [(0, 0xFEDF_FFFF), (0xFEF0_0000, (1 << 39) - 1)];

    #[test]
    fn the_first_page_and_what_is_no_whole_page_is_not_given_out() {
        let mut free = Addresses::new(&[(0, 0x2FFF), (0x5001, 0x6FFE)]);
        assert_eq!(free.take(0x2000), Some(0x1000));
        assert_eq!(free.take(0x1000), None);
        assert_eq!(Addresses::new(&[(0, u64::MAX)]).take(1 << 40), Some(LARGE_BYTES));
    }

    #[test]
    fn large_maps_begin_at_large_pages() {
        let mut free = Addresses::new(&PC);
        assert_eq!(free.take(PAGE_BYTES), Some(PAGE_BYTES));
        assert_eq!(free.take(LARGE_BYTES), Some(LARGE_BYTES));
        assert_eq!(free.take(4 << 30), Some(0xFF00_0000), "it has no room below what is left out");
    }

    proptest! {
        #[test]
        fn what_is_taken_never_overlaps_and_is_one_again_when_it_is_given_back(
            sizes in proptest::collection::vec(1_u64..2000, 1..40),
            order in any::<u64>(),
        ) {
            let mut free = Addresses::new(&PC);
            let all = free.0.clone();
            let mut taken: Vec<(u64, u64)> =
                sizes.iter().map(|pages| (free.take(pages * PAGE_BYTES).unwrap(), pages * PAGE_BYTES)).collect();
            let mut sorted = taken.clone();
            sorted.sort_unstable();
            prop_assert!(sorted.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));
            taken.rotate_left((order % sizes.len() as u64) as usize);
            for (at, bytes) in taken {
                free.give_back(at, bytes);
            }
            prop_assert_eq!(&free.0, &all);
        }
    }
}
