//! Writers in a guest that note what the disk has acknowledged, to be compared with what it holds after a disaster.

use std::time::{Duration, Instant};

use etherslot_lab::fio::{Load, Pattern, Until};
use etherslot_lab::{Guest, Job};

use crate::story::{LOAD, MIB, SOON, Story, wait_until};

/// A guest that hangs does not answer its shell.
pub(crate) const PROMPT: Duration = Duration::from_secs(10);
const BLOCK_BYTES: u64 = 4096;

/// How a writer makes sure that its data is durable.
#[derive(Clone, Copy, Debug)]
enum Sync {
    /// Each write with Force Unit Access, by `O_DSYNC`.
    Fua,
    /// Sixteen blocks through the page cache, then `fsync`: Flush.
    Flush,
}

/// A writer in the guest. It writes block after block, each with its number in it, and notes a block's number only once
/// it knows that the block is durable. Its notes are in the guest's memory.
struct Writer {
    sync: Sync,
    at_block: u64,
    job: Job,
}

/// What a writer had noted when it ended: blocks below this number are durable.
pub(crate) struct Acknowledged {
    sync: Sync,
    at_block: u64,
    blocks: u64,
}

impl Writer {
    fn start(guest: &Guest, disk: &str, sync: Sync, at_block: u64) -> Self {
        let (step, flags) = match sync {
            Sync::Fua => (1, "oflag=direct,dsync conv=notrunc"),
            Sync::Flush => (16, "conv=notrunc,fsync"),
        };
        let script = format!(
            "echo 0 >/tmp/noted.{sync:?}; n=0
             while printf '{sync:?} %0{digits}d\\n' $(seq $n $((n + {step} - 1))) |
                 dd of={disk} bs={bytes} seek=$((({at_block} + n) / {step})) iflag=fullblock {flags} status=none
             do n=$((n + {step})); echo $n >>/tmp/noted.{sync:?}; done",
            digits = Self::digits(sync),
            bytes = step * BLOCK_BYTES,
        );
        Self { sync, at_block, job: guest.spawn(&script).unwrap() }
    }

    /// A block is a line: the writer's name, a number with this many digits, and the line's end.
    fn digits(sync: Sync) -> usize {
        BLOCK_BYTES as usize - format!("{sync:?} \n").len()
    }

    fn noted(&self, guest: &Guest) -> u64 {
        let text = guest
            .check(&format!("tail -n 1 /tmp/noted.{:?} 2>/dev/null || echo 0", self.sync), PROMPT)
            .unwrap();
        text.trim().parse().unwrap()
    }

    /// Waits until it goes on by some blocks.
    fn goes_on(&self, guest: &Guest, within: Duration) -> Duration {
        let before = self.noted(guest);
        wait_until(&format!("more of {:?} after {before} blocks", self.sync), within, || {
            assert!(!self.job.is_done(), "{:?} got an error", self.sync);
            self.noted(guest) > before + 20
        })
    }

    /// Waits until an error has ended it.
    fn fails(self, guest: &Guest, within: Duration) -> Acknowledged {
        self.job.wait(within).unwrap_or_else(|error| panic!("{:?} hangs: {error}", self.sync));
        self.acknowledged(guest)
    }

    fn acknowledged(&self, guest: &Guest) -> Acknowledged {
        Acknowledged { sync: self.sync, at_block: self.at_block, blocks: self.noted(guest) }
    }
}

impl Acknowledged {
    /// Compares what the disk holds with what was acknowledged.
    pub(crate) fn check(&self, guest: &Guest, disk: &str, story: &Story) {
        let Self { sync, at_block, blocks } = self;
        assert!(*blocks > 20, "{sync:?} has hardly begun: {blocks} blocks");
        let compare = format!(
            "dd if={disk} bs={BLOCK_BYTES} skip={at_block} count={blocks} iflag=direct status=none >/tmp/found
             printf '{sync:?} %0{digits}d\\n' $(seq 0 {last}) | cmp - /tmp/found && rm /tmp/found",
            digits = Writer::digits(*sync),
            last = blocks - 1,
        );
        guest
            .check(&compare, SOON)
            .unwrap_or_else(|error| panic!("{sync:?}: {blocks} blocks were acknowledged: {error}"));
        story.tell(format!("all {blocks} blocks acknowledged by {sync:?} are there"));
    }
}

/// Both writers, and a load with many writes in flight beside them in the disk's last 64 MiB of 256.
pub(crate) struct Writers {
    fua: Writer,
    flush: Writer,
    load: Job,
}

impl Writers {
    pub(crate) fn start(guest: &Guest, disk: &str) -> Self {
        let load = Load {
            device: disk.to_owned(),
            pattern: Pattern::RandomWrite,
            depth: 16,
            area_at: 192 * MIB,
            area_bytes: 64 * MIB,
            until: Until::Time(Duration::from_mins(10)),
            more: "--rate_iops=1000".to_owned(),
            ..Load::default()
        };
        let writers = Self {
            fua: Writer::start(guest, disk, Sync::Fua, 0),
            flush: Writer::start(guest, disk, Sync::Flush, 64 * MIB / BLOCK_BYTES),
            load: guest.spawn(&load.command()).unwrap(),
        };
        writers.go_on(guest, LOAD);
        writers
    }

    /// Waits until both go on; how long that took.
    pub(crate) fn go_on(&self, guest: &Guest, within: Duration) -> Duration {
        let start = Instant::now();
        self.fua.goes_on(guest, within);
        self.flush.goes_on(guest, within);
        assert!(!self.load.is_done(), "the load got an error");
        start.elapsed()
    }

    /// What is acknowledged by now, while they go on.
    pub(crate) fn acknowledged(&self, guest: &Guest) -> [Acknowledged; 2] {
        [&self.fua, &self.flush].map(|writer| writer.acknowledged(guest))
    }

    /// Waits until all three have their errors, and the shell and `sync` answer meanwhile and after.
    pub(crate) fn fail(self, guest: &Guest, within: Duration, story: &Story) -> [Acknowledged; 2] {
        let start = Instant::now();
        guest.check("true", PROMPT).unwrap();
        let sync = guest.spawn("sync").unwrap();
        let left = || within.saturating_sub(start.elapsed());
        let output = self.load.wait(left()).unwrap();
        assert_ne!(output.status, 0, "the load ends with errors");
        let acknowledged = [self.fua, self.flush].map(|writer| writer.fails(guest, left()));
        sync.wait(left()).unwrap();
        story.tell(format!("everything has its error {:.1} s after the kill", start.elapsed().as_secs_f64()));
        guest.check("sync; cat /proc/partitions", PROMPT).unwrap();
        acknowledged
    }
}
