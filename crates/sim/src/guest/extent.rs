//! The blocks that commands are for, and which commands may meet there.

use crate::plan::GuestPlan;
use crate::random::Random;

/// What a driver knows of a namespace, or of a disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Namespace {
    /// Bytes of a block.
    pub(crate) block_bytes: usize,
    /// Blocks.
    pub(crate) blocks: u64,
}

/// Blocks of a namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Index of the namespace.
    pub(crate) namespace: usize,
    /// First block.
    pub(crate) block: u64,
    /// How many.
    pub(crate) blocks: u64,
}

impl Extent {
    fn overlaps(&self, other: &Self) -> bool {
        self.namespace == other.namespace
            && self.block < other.block + other.blocks
            && other.block < self.block + self.blocks
    }
}

/// What a command under way does with its blocks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Busy {
    /// Which.
    pub(crate) extent: Extent,
    /// It changes them.
    pub(crate) writes: bool,
    /// No other command may touch them meanwhile.
    pub(crate) exclusive: bool,
}

/// A command that looks for blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    /// Bytes at most.
    pub(crate) most_bytes: usize,
    /// It changes them.
    pub(crate) writes: bool,
    /// No other command may touch them meanwhile.
    pub(crate) exclusive: bool,
}

impl Wanted {
    /// Blocks of a namespace for the command. Commands under way that touch the same ones are rare, and never where they must not be:
    /// then there are none.
    pub(crate) fn draw(
        &self,
        random: &mut Random,
        plan: &GuestPlan,
        (namespace, of): (usize, Namespace),
        busy: impl Iterator<Item = Busy>,
    ) -> Option<Extent> {
        let span = if random.percent(50) { of.blocks.min(plan.hot_blocks) } else { of.blocks };
        let most = (self.most_bytes / of.block_bytes).max(1) as u64;
        let blocks = random.magnitude(1, most.min(span).max(1));
        let block = random.below(span - blocks + 1);
        let extent = Extent { namespace, block, blocks };
        let (mut clash, mut forbidden) = (false, false);
        for busy in busy.filter(|busy| busy.extent.overlaps(&extent)) {
            clash |= self.writes || busy.writes;
            forbidden |= busy.exclusive || self.exclusive;
        }
        (!forbidden && (!clash || random.percent(plan.overlap_percent))).then_some(extent)
    }
}
