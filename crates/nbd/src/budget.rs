//! Who may take how many buffers of the disk.

use etherslot_initiator::{Buffer, BufferClass, Disk};

/// Sizes of buffers that are told apart.
pub(crate) const MAX_CLASSES: usize = 4;

/// The buffers that one connection has, by class.
pub(crate) type Held = [u16; MAX_CLASSES];

#[derive(Debug)]
struct Class {
    bytes: usize,
    free: usize,
    /// Each connection can have so many at any time.
    guaranteed: usize,
    /// Of the free ones, those that are kept for connections which have fewer than that, or may come.
    kept: usize,
}

/// The buffers of a disk that is used by nobody else.
///
/// The rule by which one connection holds up no other: what is free is never less than what the others were guaranteed and do not have.
#[derive(Debug)]
pub(crate) struct Budget {
    /// The small ones first.
    classes: Vec<Class>,
}

impl Budget {
    /// For these buffers, shared by at most `connections`. The most that are guaranteed is half of all.
    pub(crate) fn new(buffers: &[BufferClass], connections: usize) -> Self {
        let mut classes: Vec<Class> = buffers
            .iter()
            .take(MAX_CLASSES)
            .map(|class| {
                let guaranteed = (class.count / connections).min((class.count / connections / 2).max(1));
                let kept = guaranteed * connections;
                Class { bytes: class.bytes.next_multiple_of(4096), free: class.count, guaranteed, kept }
            })
            .collect();
        classes.sort_by_key(|class| class.bytes);
        Self { classes }
    }

    /// The most that one buffer holds.
    pub(crate) fn largest(&self) -> usize {
        self.classes.last().map_or(0, |class| class.bytes)
    }

    /// A buffer of at least `bytes`, for the connection that holds `held`.
    pub(crate) fn take(&mut self, disk: &mut dyn Disk, held: &mut Held, bytes: usize) -> Option<Buffer> {
        for (class, held) in self.classes.iter_mut().zip(held).filter(|(class, _)| class.bytes >= bytes) {
            let is_guaranteed = usize::from(*held) < class.guaranteed;
            if class.free == 0 || !is_guaranteed && class.free <= class.kept {
                continue;
            }
            let Some(buffer) = disk.take_buffer(class.bytes) else { continue };
            class.free -= 1;
            class.kept -= usize::from(is_guaranteed);
            *held += 1;
            return Some(buffer);
        }
        None
    }

    /// Gives it back.
    pub(crate) fn give_back(&mut self, disk: &mut dyn Disk, held: &mut Held, buffer: Buffer) {
        let found = self.classes.iter_mut().zip(held).find(|(class, _)| class.bytes == buffer.bytes());
        if let Some((class, held)) = found {
            *held = held.saturating_sub(1);
            class.free += 1;
            class.kept += usize::from(usize::from(*held) < class.guaranteed);
        }
        disk.give_back(buffer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherslot_initiator::MemoryDisk;

    #[test]
    fn one_that_takes_all_it_can_leaves_each_other_what_is_guaranteed() {
        let buffers = [BufferClass { bytes: 4096, count: 16 }, BufferClass { bytes: 65536, count: 4 }];
        let mut disk = MemoryDisk::new(512, 64, 4, &buffers);
        let mut budget = Budget::new(&buffers, 4);
        let mut greedy = Held::default();
        let mut taken = Vec::new();
        while let Some(buffer) = budget.take(&mut disk, &mut greedy, 1) {
            taken.push(buffer);
        }
        assert_eq!(greedy[..2], [10, 1]);
        for _ in 0..3 {
            let mut modest = Held::default();
            assert!(budget.take(&mut disk, &mut modest, 4097).is_some());
            assert!(budget.take(&mut disk, &mut modest, 1).is_some());
            assert!(budget.take(&mut disk, &mut modest, 1).is_some());
            assert_eq!(modest[..2], [2, 1]);
        }
        assert_eq!(budget.take(&mut disk, &mut Held::default(), 65536), None, "all are taken");
        for buffer in taken {
            budget.give_back(&mut disk, &mut greedy, buffer);
        }
        assert_eq!(greedy, Held::default());
        assert!(budget.take(&mut disk, &mut greedy, 65536).is_some());
    }
}
