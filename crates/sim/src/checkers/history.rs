//! What each block of a device may hold.
//!
//! Every write puts a value of its own into the blocks it writes, so a read tells which write it saw. For each block the
//! history keeps the writes whose value may still be seen, as intervals on a logical clock:
//!
//! - A write that succeeded replaces what had ended before it began. One that failed, or whose fate is unknown, may have
//!   taken effect until it ended, and replaces nothing.
//! - A read may return what was not replaced before it began, and what was written while it went on. What it returned is
//!   the block's value from then on: what had ended before the read began does not come back.
//! - When a device loses its volatile cache, all that was replaced but not *durably* replaced may be seen again. A write
//!   is durable if it was made so (FUA, no cache) or completed before a Flush began that succeeded.

use std::collections::{BTreeMap, BTreeSet};

use crate::random::mix;

/// What a block holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    /// Zeros: never written, or written by Write Zeroes.
    Zero,
    /// The pattern of this stamp.
    Stamp(u64),
}

/// How a write ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It succeeded and is durable.
    Durable,
    /// It succeeded, in a volatile cache.
    Cached,
    /// It may have taken effect.
    Unknown,
}

/// A write, as it is known to its maker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Write {
    namespace: usize,
    block: u64,
    blocks: u64,
    begun: u64,
}

const NEVER: u64 = u64::MAX;

#[derive(Clone, Copy, Debug)]
struct Entry {
    value: Value,
    begun: u64,
    ended: u64,
    /// When it was known not to be there any more.
    replaced: u64,
    succeeded: bool,
    /// It will not come back even if the cache is lost.
    buried: bool,
}

#[derive(Debug, Default)]
struct Block {
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct Namespace {
    block_bytes: usize,
    blocks: Vec<Block>,
    /// Blocks with more than one entry.
    unsettled: BTreeSet<u64>,
}

/// The history of one device.
#[derive(Debug)]
pub(crate) struct History {
    device: u64,
    namespaces: Vec<Namespace>,
    clock: u64,
    cache_lost: u64,
    reads: BTreeMap<u64, u32>,
    open: Vec<Write>,
}

/// Writes the pattern of `stamp` for a block of a device.
fn fill(device: u64, namespace: usize, block: u64, stamp: u64, data: &mut [u8]) {
    let start = mix(stamp ^ mix(device << 56 ^ (namespace as u64) << 48 ^ block));
    let (words, _) = data.as_chunks_mut::<8>();
    let mut word = start;
    for place in words.iter_mut() {
        *place = word.to_le_bytes();
        word = word.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(start | 1);
    }
    words[0] = stamp.to_le_bytes();
}

fn identify(device: u64, namespace: usize, block: u64, data: &[u8]) -> Option<Value> {
    let stamp = data.first_chunk().map(|word| u64::from_le_bytes(*word))?;
    if stamp == 0 {
        return data.iter().all(|&byte| byte == 0).then_some(Value::Zero);
    }
    let start = mix(stamp ^ mix(device << 56 ^ (namespace as u64) << 48 ^ block));
    let mut word = start;
    let (words, _) = data.as_chunks::<8>();
    for (index, place) in words.iter().enumerate() {
        if index != 0 && u64::from_le_bytes(*place) != word {
            return None;
        }
        word = word.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(start | 1);
    }
    Some(Value::Stamp(stamp))
}

impl History {
    /// The history of device number `device`, all zeros, with namespaces of (bytes of a block, blocks).
    pub(crate) fn new(device: u64, namespaces: &[(usize, u64)]) -> Self {
        let first =
            Entry { value: Value::Zero, begun: 0, ended: 0, replaced: NEVER, succeeded: true, buried: false };
        let namespaces = namespaces.iter().map(|&(block_bytes, blocks)| Namespace {
            block_bytes,
            blocks: (0..blocks).map(|_| Block { entries: vec![first] }).collect(),
            unsettled: BTreeSet::new(),
        });
        Self {
            device,
            namespaces: namespaces.collect(),
            clock: 1,
            cache_lost: 0,
            reads: BTreeMap::new(),
            open: Vec::new(),
        }
    }

    /// Bytes of a block and number of blocks of each namespace.
    pub(crate) fn namespaces(&self) -> impl Iterator<Item = (usize, u64)> {
        self.namespaces.iter().map(|namespace| (namespace.block_bytes, namespace.blocks.len() as u64))
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// A stamp for a write.
    pub(crate) fn stamp(&mut self) -> u64 {
        self.tick()
    }

    /// Begins a write of `blocks` blocks from `block` on. A stamp is not 0 and used for one write alone.
    pub(crate) fn begin_write(&mut self, namespace: usize, block: u64, blocks: u64, value: Value) -> Write {
        let begun = self.tick();
        let entry = Entry { value, begun, ended: NEVER, replaced: NEVER, succeeded: false, buried: false };
        let of = &mut self.namespaces[namespace];
        for at in block..block + blocks {
            of.blocks[at as usize].entries.push(entry);
            of.unsettled.insert(at);
        }
        let write = Write { namespace, block, blocks, begun };
        self.open.push(write);
        write
    }

    /// The data of a write of `stamp`, block by block.
    pub(crate) fn fill(&self, namespace: usize, block: u64, stamp: u64, data: &mut [u8]) {
        let block_bytes = self.namespaces[namespace].block_bytes;
        for (index, data) in data.chunks_exact_mut(block_bytes).enumerate() {
            fill(self.device, namespace, block + index as u64, stamp, data);
        }
    }

    /// A write has ended.
    pub(crate) fn end_write(&mut self, write: Write, how: Ended) {
        let now = self.tick();
        self.open.retain(|open| *open != write);
        // What was put into a cache that was lost meanwhile may be gone.
        let how = if how == Ended::Cached && write.begun < self.cache_lost { Ended::Unknown } else { how };
        let oldest = self.oldest_read();
        let of = &mut self.namespaces[write.namespace];
        for at in write.block..write.block + write.blocks {
            let entries = &mut of.blocks[at as usize].entries;
            if let Some(entry) = entries.iter_mut().find(|entry| entry.begun == write.begun) {
                entry.ended = now;
                entry.succeeded = how != Ended::Unknown;
            }
            if how != Ended::Unknown {
                for entry in entries.iter_mut().filter(|entry| entry.ended < write.begun) {
                    entry.replaced = entry.replaced.min(now);
                    entry.buried |= how == Ended::Durable;
                }
            }
            if prune(entries, oldest) {
                of.unsettled.remove(&at);
            }
        }
    }

    /// All writes under way are over: the controller was seen to be stopped.
    pub(crate) fn stop(&mut self) {
        for write in std::mem::take(&mut self.open) {
            self.end_write(write, Ended::Unknown);
        }
    }

    /// Begins a read or a Flush; the result is for its end.
    pub(crate) fn begin_read(&mut self) -> u64 {
        let begun = self.tick();
        *self.reads.entry(begun).or_default() += 1;
        begun
    }

    /// A read or a Flush is over, whatever became of it.
    pub(crate) fn end_read(&mut self, begun: u64) {
        self.reads.remove(&begun);
    }

    fn oldest_read(&self) -> u64 {
        self.reads.keys().next().copied().unwrap_or(NEVER)
    }

    /// A read that began at `begun` has returned `data` for one block.
    pub(crate) fn check_read(
        &mut self,
        begun: u64,
        namespace: usize,
        block: u64,
        data: &[u8],
    ) -> Result<(), String> {
        let now = self.tick();
        let cache_lost = self.cache_lost;
        let entries = &mut self.namespaces[namespace].blocks[block as usize].entries;
        let place = || format!("namespace {}, block {block}", namespace + 1);
        let Some(value) = identify(self.device, namespace, block, data) else {
            let head = &data[..data.len().min(32)];
            return Err(format!("{}: the data is of no write: {head:02x?}", place()));
        };
        let seen = |entry: &Entry| entry.value == value && entry.replaced > begun;
        if !entries.iter().any(seen) {
            let known: Vec<_> =
                entries.iter().map(|entry| (entry.value, entry.begun, entry.ended, entry.replaced)).collect();
            return Err(format!("{}: read begun at {begun} saw {value:x?}, known are {known:x?}", place()));
        }
        if begun > cache_lost {
            let survived = entries.iter().filter(|entry| seen(entry)).all(|entry| entry.ended <= cache_lost);
            let first_begun =
                entries.iter().filter(|entry| seen(entry)).map(|entry| entry.begun).min().unwrap_or(0);
            for entry in entries
                .iter_mut()
                .filter(|entry| entry.value != value && entry.ended < begun.max(first_begun))
            {
                entry.replaced = entry.replaced.min(now);
                // What is seen after a loss of the cache comes from the medium, so it is durable.
                entry.buried |= survived && entry.ended <= cache_lost;
            }
        }
        Ok(())
    }

    /// A Flush that began at `begun` has succeeded.
    pub(crate) fn flushed(&mut self, namespace: usize, begun: u64) {
        let now = self.tick();
        let oldest = self.oldest_read();
        let of = &mut self.namespaces[namespace];
        let blocks = &mut of.blocks;
        of.unsettled.retain(|&block| {
            let entries = &mut blocks[block as usize].entries;
            let durable = entries.iter().filter(|entry| entry.succeeded && entry.ended < begun);
            let durable = durable.map(|entry| entry.begun).max().unwrap_or(0);
            for entry in entries.iter_mut().filter(|entry| entry.ended < durable) {
                entry.buried = true;
                entry.replaced = entry.replaced.min(now);
            }
            !prune(entries, oldest)
        });
    }

    /// The device was stopped without warning; its volatile cache may be lost with it.
    pub(crate) fn crash(&mut self, cache_is_lost: bool) {
        let now = self.tick();
        if cache_is_lost {
            self.cache_lost = now;
        }
        for namespace in &mut self.namespaces {
            for block in &namespace.unsettled {
                for entry in &mut namespace.blocks[*block as usize].entries {
                    entry.ended = entry.ended.min(now);
                    if cache_is_lost && !entry.buried {
                        entry.replaced = NEVER;
                        // A later Flush does not say which of them is there.
                        entry.succeeded = false;
                    }
                }
            }
        }
    }

    /// Whether the device has ever lost its cache.
    pub(crate) fn has_lost_cache(&self) -> bool {
        self.cache_lost != 0
    }

    /// The one value that a block has, if there is no doubt and no write of it is under way.
    pub(crate) fn certain(&self, namespace: usize, block: u64) -> Option<Value> {
        let mut visible = self.namespaces[namespace].blocks[block as usize]
            .entries
            .iter()
            .filter(|entry| entry.replaced == NEVER);
        let only = visible.next()?;
        (visible.next().is_none() && only.ended != NEVER).then_some(only.value)
    }
}

/// Forgets what can't be seen any more; true if one entry is left.
fn prune(entries: &mut Vec<Entry>, oldest_read: u64) -> bool {
    entries.retain(|entry| !(entry.buried && entry.replaced < oldest_read));
    entries.len() == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Device(History, u64);

    impl Device {
        fn new() -> Self {
            Self(History::new(1, &[(512, 4)]), 0)
        }

        fn begin(&mut self) -> (Write, u64) {
            self.1 += 1;
            (self.0.begin_write(0, 2, 1, Value::Stamp(self.1)), self.1)
        }

        fn write(&mut self, how: Ended) -> u64 {
            let (write, stamp) = self.begin();
            self.0.end_write(write, how);
            stamp
        }

        fn returns(&mut self, stamp: u64) -> bool {
            let begun = self.0.begin_read();
            self.ends(begun, stamp)
        }

        fn ends(&mut self, begun: u64, stamp: u64) -> bool {
            let mut data = [0; 512];
            if stamp != 0 {
                self.0.fill(0, 2, stamp, &mut data);
            }
            self.0.end_read(begun);
            self.0.check_read(begun, 0, 2, &data).is_ok()
        }
    }

    #[test]
    fn a_read_sees_the_last_write_and_nothing_before_it() {
        let mut device = Device::new();
        assert!(device.returns(0));
        let first = device.write(Ended::Cached);
        let second = device.write(Ended::Cached);
        assert!(!device.returns(first) && !device.returns(0));
        assert!(device.returns(second));
        assert_eq!(device.0.certain(0, 2), Some(Value::Stamp(second)));
    }

    #[test]
    fn concurrent_writes_may_be_seen_either_way_but_only_one_of_them_stays() {
        let mut device = Device::new();
        let (first, first_stamp) = device.begin();
        let (second, second_stamp) = device.begin();
        assert!(device.returns(0));
        device.0.end_write(second, Ended::Cached);
        device.0.end_write(first, Ended::Cached);
        assert!(device.returns(first_stamp));
        assert!(!device.returns(second_stamp));
        assert!(!device.returns(0));
    }

    #[test]
    fn a_read_that_went_on_meanwhile_may_see_the_value_before_or_after_a_write() {
        let mut device = Device::new();
        let begun = device.0.begin_read();
        let again = device.0.begin_read();
        let stamp = device.write(Ended::Durable);
        assert!(device.ends(begun, 0));
        assert!(device.ends(again, stamp));
        assert!(!device.returns(0));
    }

    #[test]
    fn a_write_of_unknown_fate_may_be_seen_until_a_read_tells() {
        let mut device = Device::new();
        let before = device.write(Ended::Durable);
        let (_, lost) = device.begin();
        device.0.stop();
        assert!(device.returns(before));
        assert!(!device.returns(lost));
    }

    #[test]
    fn what_was_flushed_survives_and_what_came_later_may() {
        let mut device = Device::new();
        let old = device.write(Ended::Cached);
        let flushed = device.write(Ended::Cached);
        let begun = device.0.begin_read();
        device.0.end_read(begun);
        device.0.flushed(0, begun);
        let later = device.write(Ended::Cached);
        let latest = device.write(Ended::Cached);
        assert!(device.returns(latest));
        device.0.crash(true);
        assert!(!device.returns(old) && !device.returns(0));
        assert!(device.returns(later));
        assert!(!device.returns(latest) && !device.returns(flushed));
        device.0.crash(true);
        assert!(device.returns(later) && !device.returns(flushed), "what survived once is on the medium");
    }

    #[test]
    fn a_flush_covers_only_writes_that_were_complete_when_it_began() {
        let mut device = Device::new();
        let (write, stamp) = device.begin();
        let begun = device.0.begin_read();
        device.0.end_write(write, Ended::Cached);
        device.0.end_read(begun);
        device.0.flushed(0, begun);
        device.0.crash(true);
        assert!(device.returns(0));
        assert!(!device.returns(stamp));
    }

    #[test]
    fn a_durable_write_survives_without_a_flush_and_a_stopped_device_keeps_its_cache() {
        let mut device = Device::new();
        device.write(Ended::Cached);
        let durable = device.write(Ended::Durable);
        device.0.crash(true);
        assert!(!device.returns(0) && device.returns(durable));
        let cached = device.write(Ended::Cached);
        device.0.crash(false);
        assert!(!device.returns(durable) && device.returns(cached));
    }

    #[test]
    fn a_flush_after_a_loss_does_not_bring_back_what_was_lost() {
        let mut device = Device::new();
        device.write(Ended::Cached);
        device.0.crash(true);
        let begun = device.0.begin_read();
        device.0.end_read(begun);
        device.0.flushed(0, begun);
        assert!(device.returns(0));
    }

    #[test]
    fn acknowledgements_that_arrive_after_the_crash_count_for_what_they_promise() {
        let mut device = Device::new();
        let (cached, cached_stamp) = device.begin();
        device.0.crash(true);
        device.0.end_write(cached, Ended::Cached);
        assert!(device.returns(0) && !device.returns(cached_stamp));
        let (durable, durable_stamp) = device.begin();
        device.0.crash(true);
        device.0.end_write(durable, Ended::Durable);
        assert!(!device.returns(0) && device.returns(durable_stamp));
    }

    #[test]
    fn damaged_and_misplaced_blocks_are_of_no_write() {
        let mut device = Device::new();
        let stamp = device.write(Ended::Cached);
        let mut data = [0; 512];
        device.0.fill(0, 2, stamp, &mut data);
        data[511] ^= 1;
        assert!(device.0.check_read(device.0.clock, 0, 2, &data).is_err());
        data[511] ^= 1;
        assert!(device.0.check_read(device.0.clock, 0, 3, &data).is_err());
    }
}
