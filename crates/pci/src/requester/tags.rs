//! A table of Tags, each on one of three lists: free, busy, quarantined.
//!
//! The lists are linked through the table, so a Tag moves between them in constant time from any place. Free
//! Tags are used in the order in which they came free: the longest unused one first.

use etherslot_wire::Tag;

const NONE: u16 = u16::MAX;

/// Which list a Tag is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum List {
    Free,
    Busy,
    Quarantined,
}

#[derive(Debug)]
struct Entry<P> {
    list: List,
    previous: u16,
    next: u16,
    /// Completion Timeout of a busy Tag, end of a quarantine.
    deadline_ns: u64,
    /// Present while busy.
    pending: Option<P>,
}

/// Deadlines rise from first to last, as Tags are only put behind and a deadline is never below the one before
/// it.
#[derive(Clone, Copy, Debug)]
struct Ends {
    first: u16,
    last: u16,
    len: usize,
}

#[derive(Debug)]
pub(super) struct Tags<P> {
    entries: Box<[Entry<P>]>,
    lists: [Ends; 3],
}

impl<P> Tags<P> {
    pub(super) fn new(tags: u16) -> Self {
        let entry = |_| Entry { list: List::Free, previous: NONE, next: NONE, deadline_ns: 0, pending: None };
        let mut table = Self {
            entries: (0..tags).map(entry).collect(),
            lists: [Ends { first: NONE, last: NONE, len: 0 }; 3],
        };
        for tag in 0..tags {
            table.push(tag, List::Free, 0);
        }
        table
    }

    pub(super) fn total(&self) -> u16 {
        self.entries.len() as u16
    }

    pub(super) fn len(&self, list: List) -> usize {
        self.lists[list as usize].len
    }

    pub(super) fn list_of(&self, tag: Tag) -> Option<List> {
        self.entries.get(tag as usize).map(|entry| entry.list)
    }

    pub(super) fn pending(&mut self, tag: Tag) -> Option<&mut P> {
        self.entries.get_mut(tag as usize)?.pending.as_mut()
    }

    pub(super) fn first(&self, list: List) -> Option<Tag> {
        Some(self.lists[list as usize].first).filter(|&tag| tag != NONE)
    }

    pub(super) fn first_deadline(&self, list: List) -> Option<u64> {
        self.first(list).map(|tag| self.entries[tag as usize].deadline_ns)
    }

    /// The first Tag of `list`, if its deadline has passed.
    pub(super) fn due(&self, list: List, now_ns: u64) -> Option<Tag> {
        self.first(list).filter(|&tag| self.entries[tag as usize].deadline_ns <= now_ns)
    }

    /// Makes the first free Tag busy.
    pub(super) fn take(&mut self, deadline_ns: u64, pending: P) -> Option<Tag> {
        let tag = self.first(List::Free)?;
        self.move_to(tag, List::Busy, deadline_ns);
        self.entries[tag as usize].pending = Some(pending);
        Some(tag)
    }

    pub(super) fn free(&mut self, tag: Tag) {
        self.entries[tag as usize].pending = None;
        self.move_to(tag, List::Free, 0);
    }

    pub(super) fn quarantine(&mut self, tag: Tag, until_ns: u64) {
        self.entries[tag as usize].pending = None;
        self.move_to(tag, List::Quarantined, until_ns);
    }

    fn move_to(&mut self, tag: Tag, list: List, deadline_ns: u64) {
        let Entry { list: from, previous, next, .. } = self.entries[tag as usize];
        match previous {
            NONE => self.lists[from as usize].first = next,
            previous => self.entries[previous as usize].next = next,
        }
        match next {
            NONE => self.lists[from as usize].last = previous,
            next => self.entries[next as usize].previous = previous,
        }
        self.lists[from as usize].len -= 1;
        self.push(tag, list, deadline_ns);
    }

    fn push(&mut self, tag: Tag, list: List, deadline_ns: u64) {
        let last = self.lists[list as usize].last;
        let floor_ns = match last {
            NONE => {
                self.lists[list as usize].first = tag;
                0
            }
            last => {
                self.entries[last as usize].next = tag;
                self.entries[last as usize].deadline_ns
            }
        };
        let ends = &mut self.lists[list as usize];
        ends.last = tag;
        ends.len += 1;
        let entry = &mut self.entries[tag as usize];
        entry.list = list;
        entry.previous = last;
        entry.next = NONE;
        entry.deadline_ns = deadline_ns.max(floor_ns);
    }
}
