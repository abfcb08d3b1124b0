//! Commands whose replies are still to come.

use crate::message::Header;

/// Names a command that was answered [`crate::Answer::Later`]. Never reused: a reply that comes after its client is
/// gone finds nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MessageId {
    generation: u64,
    index: u16,
}

/// A command that waits for its reply.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    pub(crate) header: Header,
    pub(crate) kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Read { offset: u64, region: u32, count: u32 },
    Write { offset: u64, region: u32, count: u32 },
    Reset,
}

/// How many commands can wait; further ones stay unread.
pub(crate) const CAPACITY: usize = 256;

/// Bounded; allocated once.
#[derive(Debug)]
pub(crate) struct Table {
    slots: Vec<(u64, Option<Pending>)>,
    free: Vec<u16>,
    generation: u64,
}

impl Table {
    pub(crate) fn new() -> Self {
        Self {
            slots: (0..CAPACITY).map(|_| (0, None)).collect(),
            free: (0..CAPACITY as u16).rev().collect(),
            generation: 0,
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    pub(crate) fn insert(&mut self, pending: Pending) -> Option<MessageId> {
        let index = self.free.pop()?;
        self.generation += 1;
        self.slots[index as usize] = (self.generation, Some(pending));
        Some(MessageId { generation: self.generation, index })
    }

    pub(crate) fn take(&mut self, id: MessageId) -> Option<Pending> {
        let (generation, pending) = self.slots.get_mut(id.index as usize)?;
        if *generation != id.generation {
            return None;
        }
        let pending = pending.take()?;
        self.free.push(id.index);
        Some(pending)
    }

    pub(crate) fn clear(&mut self) {
        for (index, (_, pending)) in self.slots.iter_mut().enumerate() {
            if pending.take().is_some() {
                self.free.push(index as u16);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::header_of_reply;

    fn pending() -> Pending {
        Pending { header: header_of_reply(1, 2, Ok(0)), kind: Kind::Reset }
    }

    #[test]
    fn an_id_names_one_command_once() {
        let mut table = Table::new();
        let first = table.insert(pending()).unwrap();
        assert!(table.take(first).is_some());
        assert!(table.take(first).is_none());
        let second = table.insert(pending()).unwrap();
        assert_ne!(first, second);
        assert!(table.take(first).is_none());
        table.clear();
        assert!(table.take(second).is_none());
        assert_eq!(table.free.len(), CAPACITY);
    }

    #[test]
    fn it_is_bounded_and_every_place_comes_back() {
        let mut table = Table::new();
        let ids: Vec<_> = std::iter::from_fn(|| table.insert(pending())).collect();
        assert_eq!(ids.len(), CAPACITY);
        assert!(table.is_full());
        assert!(ids.into_iter().rev().all(|id| table.take(id).is_some()));
        assert_eq!(table.free.len(), CAPACITY);
    }
}
