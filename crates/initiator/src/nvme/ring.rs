//! A Submission Queue and the Completion Queue it completes to (NVMe Base 1.4, 4.1, 4.6): rings in memory and their doorbells.

use std::fmt;

use super::bits::{CQE_BYTES, REGISTERS, SQE_BYTES, register};
use super::sqe::Sqe;
use crate::arena::Arena;
use crate::machine::Machine;
use crate::status::Status;

/// What one Completion Queue Entry tells.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Completion {
    pub(crate) result: u32,
    pub(crate) queue: u16,
    pub(crate) command_id: u16,
    pub(crate) status: Status,
}

/// Where the entries of a Submission Queue are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entries {
    /// Where they are written: in our memory.
    Here,
    /// In the Controller Memory Buffer, at this offset of this BAR; they are pushed there before the doorbell is rung.
    Pushed { bar: u8, offset: u32 },
}

/// The rings of one queue pair.
#[derive(Debug)]
pub(crate) struct Ring {
    pub(crate) id: u16,
    /// Offsets in the arena.
    pub(crate) sq: usize,
    pub(crate) cq: usize,
    pub(crate) sq_entries: u16,
    pub(crate) cq_entries: u16,
    pub(crate) entries: Entries,
    tail: u16,
    /// The tail as the controller knows it.
    rung: u16,
    head: u16,
    phase: u8,
    /// Entries that were taken from the Completion Queue and not given back by its doorbell.
    kept: u16,
    /// As many may be kept: all that is under way has room behind them.
    may_keep: u16,
    doorbell_bytes: u32,
}

impl Ring {
    /// Rings at these places, with room for these many entries.
    pub(crate) fn new(id: u16, (sq, sq_entries): (usize, u16), (cq, cq_entries): (usize, u16)) -> Self {
        Self {
            id,
            sq,
            cq,
            sq_entries,
            cq_entries,
            entries: Entries::Here,
            tail: 0,
            rung: 0,
            head: 0,
            phase: 1,
            kept: 0,
            may_keep: 0,
            doorbell_bytes: 4,
        }
    }

    /// Empty again, as the controller takes it when it is created. At most `commands` will be under way.
    pub(crate) fn restart(&mut self, arena: &mut Arena, doorbell_bytes: u32, commands: u16) {
        (self.tail, self.rung, self.head, self.phase, self.kept) = (0, 0, 0, 1, 0);
        self.doorbell_bytes = doorbell_bytes;
        self.may_keep = (self.cq_entries - 1).saturating_sub(commands);
        arena.at_mut(self.cq, usize::from(self.cq_entries) * CQE_BYTES).fill(0);
    }

    /// Writes an entry; the owner sees to it that there are fewer under way than entries.
    #[inline]
    pub(crate) fn push(&mut self, arena: &mut Arena, sqe: &Sqe) {
        let at = self.sq + usize::from(self.tail) * SQE_BYTES;
        arena.at_mut(at, SQE_BYTES).copy_from_slice(sqe.bytes());
        self.tail += 1;
        if self.tail == self.sq_entries {
            self.tail = 0;
        }
    }

    /// Takes the next completion, if there is one.
    #[inline]
    pub(crate) fn pop(&mut self, arena: &Arena) -> Option<Completion> {
        let entry = arena.at(self.cq + usize::from(self.head) * CQE_BYTES, CQE_BYTES);
        if entry[14] & 1 != self.phase {
            return None;
        }
        self.head += 1;
        if self.head == self.cq_entries {
            self.head = 0;
            self.phase ^= 1;
        }
        self.kept += 1;
        let word = |at: usize| u16::from_le_bytes([entry[at], entry[at + 1]]);
        Some(Completion {
            result: u32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]),
            queue: word(10),
            command_id: word(12),
            status: Status::of_field(word(14) >> 1),
        })
    }

    /// Whether a doorbell is due.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.tail != self.rung || self.kept > self.may_keep
    }

    /// Rings the doorbells that are due, as far as there is room. True if one was rung.
    ///
    /// The Completion Queue's is not needed before what is under way could fill the queue: the controller's own view of
    /// it is all that it changes.
    #[inline]
    pub(crate) fn ring<A: Copy + Eq + fmt::Display>(&mut self, machine: &mut Machine<'_, A>) -> bool {
        let mut progress = false;
        if self.tail != self.rung {
            if !self.push_entries(machine) || !self.doorbell(machine, 0, self.tail) {
                return false;
            }
            self.rung = self.tail;
            progress = true;
        }
        if self.kept > self.may_keep && self.doorbell(machine, 1, self.head) {
            self.kept = 0;
            progress = true;
        }
        progress
    }

    #[inline]
    fn doorbell<A: Copy + Eq + fmt::Display>(
        &self,
        machine: &mut Machine<'_, A>,
        which: u32,
        value: u16,
    ) -> bool {
        let at = register::DOORBELLS + (2 * u32::from(self.id) + which) * self.doorbell_bytes;
        machine.bar_write(REGISTERS, at, &u32::from(value).to_le_bytes())
    }

    /// Brings new entries to where the controller has them. One that was brought twice is the same.
    fn push_entries<A: Copy + Eq + fmt::Display>(&self, machine: &mut Machine<'_, A>) -> bool {
        let Entries::Pushed { bar, offset } = self.entries else { return true };
        let mut at = self.rung;
        while at != self.tail {
            let end = if at < self.tail { self.tail } else { self.sq_entries };
            let start = usize::from(at) * SQE_BYTES;
            // One TLP each.
            let to = offset + start as u32;
            let bytes = (usize::from(end - at) * SQE_BYTES).min(4096 - (to & 0xFFF) as usize);
            if !machine.bar_write_from(bar, to, self.sq + start, bytes) {
                return false;
            }
            at += (bytes / SQE_BYTES) as u16;
            if at == self.sq_entries {
                at = 0;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::BASE;

    #[test]
    fn completions_are_taken_once_each_time_the_phase_turns() {
        let mut arena = Arena::new(8192);
        let mut ring = Ring::new(1, (0, 4), (4096, 3));
        ring.restart(&mut arena, 4, 1);
        let mut expected = 0u16;
        for lap in 0..4u16 {
            for entry in 0..3u16 {
                assert!(ring.pop(&arena).is_none());
                let mut cqe = [0; 16];
                cqe[12..14].copy_from_slice(&expected.to_le_bytes());
                cqe[14] = 1 - (lap % 2) as u8;
                assert!(arena.write(BASE + 4096 + u64::from(entry) * 16, &cqe));
                assert_eq!(ring.pop(&arena).map(|completion| completion.command_id), Some(expected));
                expected += 1;
            }
        }
        assert!(ring.is_due(), "entries are given back some time");
    }
}
