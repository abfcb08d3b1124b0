//! Where the transmitted frames are: on their way, lost, or arrived ahead of the cumulative acknowledgement.
//!
//! Rows run through the slots: for each path the frames on their way there in the order of their (last) transmission,
//! and for all paths together the lost frames in the order in which they go out again. Every step is O(1).

use crate::bits::Bits;
use crate::path::MAX_PATHS;

/// Ends a row.
const NONE: u32 = u32::MAX;

/// Where a frame is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Place {
    /// Not transmitted, or acknowledged for good.
    #[default]
    None,
    /// On its way.
    Flight,
    /// Taken as lost, to be transmitted again.
    Lost,
    /// Arrived; something before it has not.
    Arrived,
}

/// Why a transmission was not waited for any longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GivenUp {
    /// A probe was needed; it was not taken as lost.
    Probed,
    /// Later ones had arrived.
    Passed,
    /// Nothing was heard for too long.
    TimedOut,
}

/// The last transmission of a frame.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Transmission {
    pub(crate) sequence: u32,
    pub(crate) place: Place,
    /// Why there is, or will be, another transmission than the first.
    pub(crate) given_up: Option<GivenUp>,
    /// The path it left on.
    pub(crate) path: u8,
    pub(crate) bytes: u32,
    /// When it left; no two transmissions have the same time.
    pub(crate) tx_ns: u64,
    previous: u32,
    next: u32,
}

#[derive(Clone, Copy, Debug)]
struct Row {
    first: u32,
    last: u32,
}

impl Row {
    const EMPTY: Self = Self { first: NONE, last: NONE };

    fn push(&mut self, slots: &mut [Transmission], at: u32) {
        slots[at as usize].previous = self.last;
        slots[at as usize].next = NONE;
        match slots.get_mut(self.last as usize) {
            Some(last) => last.next = at,
            None => self.first = at,
        }
        self.last = at;
    }

    fn remove(&mut self, slots: &mut [Transmission], at: u32) {
        let Transmission { previous, next, .. } = slots[at as usize];
        match slots.get_mut(previous as usize) {
            Some(slot) => slot.next = next,
            None => self.first = next,
        }
        match slots.get_mut(next as usize) {
            Some(slot) => slot.previous = previous,
            None => self.last = previous,
        }
    }
}

/// All transmissions not acknowledged for good.
#[derive(Debug)]
pub(crate) struct Flight {
    slots: Box<[Transmission]>,
    mask: u32,
    on_way: [Row; MAX_PATHS],
    lost: Row,
    arrived: Bits,
    bytes: [u64; MAX_PATHS],
    total_bytes: u64,
}

impl Flight {
    /// Nothing on its way; `slots` is a power of two.
    pub(crate) fn new(slots: u32) -> Self {
        Self {
            slots: vec![Transmission::default(); slots as usize].into_boxed_slice(),
            mask: slots - 1,
            on_way: [Row::EMPTY; MAX_PATHS],
            lost: Row::EMPTY,
            arrived: Bits::new(slots),
            bytes: [0; MAX_PATHS],
            total_bytes: 0,
        }
    }

    /// Bytes on their way on a path.
    pub(crate) fn bytes(&self, path: usize) -> u64 {
        self.bytes[path]
    }

    /// Bytes on their way on all paths.
    pub(crate) fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    /// Whether nothing is on its way on a path (lost frames are not).
    pub(crate) fn is_empty(&self, path: usize) -> bool {
        self.on_way[path].first == NONE
    }

    fn get(&self, at: u32) -> Option<&Transmission> {
        self.slots.get(at as usize)
    }

    /// The oldest transmission on its way on a path.
    pub(crate) fn oldest(&self, path: usize) -> Option<&Transmission> {
        self.get(self.on_way[path].first)
    }

    /// The newest transmission on its way on a path.
    pub(crate) fn newest(&self, path: usize) -> Option<&Transmission> {
        self.get(self.on_way[path].last)
    }

    /// The lost frame that goes out next.
    pub(crate) fn first_lost(&self) -> Option<&Transmission> {
        self.get(self.lost.first)
    }

    /// The lost frame that goes out after this one.
    pub(crate) fn lost_after(&self, lost: &Transmission) -> Option<&Transmission> {
        self.get(lost.next)
    }

    /// The transmission of a frame that has been transmitted.
    pub(crate) fn of(&self, sequence: u32) -> &Transmission {
        &self.slots[(sequence & self.mask) as usize]
    }

    /// Frames from `sequence` on that have arrived out of order; bit 0 stands for `sequence`.
    pub(crate) fn arrived_word(&self, sequence: u32) -> u64 {
        self.arrived.word(sequence)
    }

    #[inline]
    fn take_out(&mut self, at: u32) -> Transmission {
        let slot = self.slots[at as usize];
        match slot.place {
            Place::Flight => {
                self.on_way[slot.path as usize].remove(&mut self.slots, at);
                self.bytes[slot.path as usize] -= u64::from(slot.bytes);
                self.total_bytes -= u64::from(slot.bytes);
            }
            Place::Lost => self.lost.remove(&mut self.slots, at),
            Place::None | Place::Arrived => {}
        }
        slot
    }

    /// A frame has left on a path, for the first time or again.
    pub(crate) fn sent(&mut self, path: usize, sequence: u32, bytes: u32, tx_ns: u64) {
        let at = sequence & self.mask;
        let before = self.take_out(at);
        self.slots[at as usize] = Transmission {
            sequence,
            place: Place::Flight,
            given_up: match before.place {
                Place::Flight => Some(GivenUp::Probed),
                Place::Lost => before.given_up,
                Place::None | Place::Arrived => None,
            },
            path: path as u8,
            bytes,
            tx_ns,
            previous: NONE,
            next: NONE,
        };
        self.on_way[path].push(&mut self.slots, at);
        self.bytes[path] += u64::from(bytes);
        self.total_bytes += u64::from(bytes);
    }

    /// A frame on its way is taken as lost.
    pub(crate) fn lose(&mut self, sequence: u32, reason: GivenUp) {
        let at = sequence & self.mask;
        debug_assert_eq!(self.slots[at as usize].place, Place::Flight);
        self.take_out(at);
        self.slots[at as usize].place = Place::Lost;
        self.slots[at as usize].given_up = Some(reason);
        self.lost.push(&mut self.slots, at);
    }

    /// A transmitted frame has arrived; the transmission as it was, if that is news.
    pub(crate) fn arrive(&mut self, sequence: u32) -> Option<Transmission> {
        let at = sequence & self.mask;
        if !matches!(self.slots[at as usize].place, Place::Flight | Place::Lost) {
            return None;
        }
        let slot = self.take_out(at);
        self.slots[at as usize].place = Place::Arrived;
        self.arrived.set(at);
        Some(slot)
    }

    /// Everything up to this frame has arrived, it too: its slot is free.
    pub(crate) fn release(&mut self, sequence: u32) {
        let at = sequence & self.mask;
        debug_assert_eq!(self.slots[at as usize].place, Place::Arrived);
        self.slots[at as usize].place = Place::None;
        self.arrived.clear(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(flight: &Flight) -> Vec<u32> {
        let first = flight.first_lost();
        std::iter::successors(first, |lost| flight.lost_after(lost)).map(|lost| lost.sequence).collect()
    }

    #[test]
    fn frames_move_between_the_rows_in_any_order() {
        let mut flight = Flight::new(64);
        for sequence in 0..5 {
            flight.sent(0, sequence, 10, 100 + u64::from(sequence));
        }
        assert_eq!((flight.bytes(0), flight.oldest(0).map(|slot| slot.sequence)), (50, Some(0)));
        for sequence in [2, 0, 4] {
            flight.lose(sequence, GivenUp::Passed);
        }
        assert_eq!((flight.bytes(0), lost(&flight)), (20, vec![2, 0, 4]));
        assert!(flight.arrive(0).is_some_and(|slot| slot.place == Place::Lost));
        assert!(flight.arrive(0).is_none());
        assert_eq!(lost(&flight), [2, 4]);
        flight.sent(0, 2, 10, 200);
        assert_eq!(flight.of(2).given_up, Some(GivenUp::Passed));
        assert_eq!(flight.newest(0).map(|slot| slot.sequence), Some(2));
        flight.sent(0, 1, 10, 201);
        assert_eq!(flight.of(1).given_up, Some(GivenUp::Probed));
        assert_eq!(flight.oldest(0).map(|slot| slot.sequence), Some(3));
        for sequence in [1, 2, 3, 4] {
            assert!(flight.arrive(sequence).is_some());
        }
        assert!(flight.is_empty(0) && flight.bytes(0) == 0 && lost(&flight).is_empty());
        assert_eq!(flight.arrived_word(0), 0b11111);
        for sequence in 0..5 {
            flight.release(sequence);
        }
        assert_eq!(flight.arrived_word(0), 0);
    }

    #[test]
    fn each_path_has_a_row_of_its_own_and_a_frame_is_in_the_last_it_left_on() {
        let mut flight = Flight::new(64);
        for sequence in 0..6 {
            flight.sent(sequence as usize % 2, sequence, 10, u64::from(sequence));
        }
        assert_eq!((flight.bytes(0), flight.bytes(1), flight.total_bytes()), (30, 30, 60));
        flight.sent(1, 0, 10, 10);
        assert_eq!((flight.bytes(0), flight.bytes(1), flight.total_bytes()), (20, 40, 60));
        assert_eq!(flight.oldest(0).map(|slot| slot.sequence), Some(2));
        assert_eq!(flight.newest(1).map(|slot| slot.sequence), Some(0));
        flight.lose(3, GivenUp::Passed);
        flight.lose(2, GivenUp::Passed);
        assert_eq!(lost(&flight), [3, 2]);
        flight.sent(0, 3, 10, 11);
        assert_eq!((flight.of(3).path, flight.newest(0).map(|slot| slot.sequence)), (0, Some(3)));
        for sequence in 0..6 {
            assert!(flight.arrive(sequence).is_some());
        }
        assert!(flight.is_empty(0) && flight.is_empty(1) && flight.total_bytes() == 0);
    }
}
