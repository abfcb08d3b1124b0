//! Memory that driver, program and device share: which parts of it are free.

/// A part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The address by which the device knows its first byte.
    pub address: u64,
    /// Bytes.
    pub bytes: usize,
}

impl Place {
    const fn end(&self) -> u64 {
        self.address + self.bytes as u64
    }
}

/// The free parts, by address; neighbours are one.
#[derive(Debug)]
pub(super) struct Free(Vec<Place>);

/// Parts begin and end at multiples of this.
const GRAIN: usize = 64;

impl Free {
    pub(super) fn new(all: Place) -> Self {
        Self(vec![all])
    }

    /// Takes a part, zeroed by nobody.
    pub(super) fn take(&mut self, bytes: usize) -> Option<Place> {
        let bytes = bytes.max(1).checked_next_multiple_of(GRAIN)?;
        let at = self.0.iter().position(|free| free.bytes >= bytes)?;
        let free = &mut self.0[at];
        let taken = Place { address: free.address, bytes };
        free.address += bytes as u64;
        free.bytes -= bytes;
        if free.bytes == 0 {
            self.0.remove(at);
        }
        Some(taken)
    }

    pub(super) fn give_back(&mut self, place: Place) {
        let at = self.0.partition_point(|free| free.address < place.address);
        self.0.insert(at, place);
        if let [free, next, ..] = &mut self.0[at..]
            && free.end() == next.address
        {
            free.bytes += next.bytes;
            self.0.remove(at + 1);
        }
        if let Some(before) = at.checked_sub(1)
            && let [free, next, ..] = &mut self.0[before..]
            && free.end() == next.address
        {
            free.bytes += next.bytes;
            self.0.remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_in_any_order_is_one_again() {
        let all = Place { address: 0x1000, bytes: 1024 };
        let mut free = Free::new(all);
        for order in [[0, 1, 2], [2, 0, 1], [1, 2, 0], [1, 0, 2]] {
            let places: Vec<Place> = [100, 1, 700].iter().map(|&bytes| free.take(bytes).unwrap()).collect();
            assert_eq!(free.take(512), None);
            for at in order {
                free.give_back(places[at]);
            }
            assert_eq!(free.0, [all]);
        }
    }
}
