//! What a driver is told, and what it tells.

use crate::pool::BufferClass;
use crate::status::Status;

/// Where entries of I/O Submission Queues are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Submission {
    /// In our memory, from where the controller fetches them.
    #[default]
    HostMemory,
    /// In the Controller Memory Buffer, if there is one that takes them: pushed there, and not fetched.
    ControllerMemory,
}

/// How commands point to data of more than two pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DataPointers {
    /// By an SGL descriptor in the command, if the controller takes SGLs; nothing more has to be fetched.
    #[default]
    Sgl,
    /// By PRP lists, which every controller fetches.
    Prp,
}

/// What an NVMe driver is told.
#[derive(Clone, Debug)]
pub struct Config {
    /// The namespace that is the disk.
    pub nsid: u32,
    /// Ask for the data of all namespaces, of 256 at most, and not only for this one's.
    pub identify_all: bool,
    /// I/O queue pairs, 1 to 64; the controller may grant fewer.
    pub queues: u16,
    /// Commands under way in each, 1 to 4095; the controller may allow fewer.
    pub queue_depth: u16,
    /// The buffers.
    pub buffers: Vec<BufferClass>,
    /// Where entries are.
    pub submission: Submission,
    /// How data is pointed to.
    pub data_pointers: DataPointers,
    /// Have completions told by MSI-X, and look only then. Otherwise queues are looked at in every round.
    pub interrupts: bool,
    /// A command that is under way for longer makes the driver reset the controller.
    pub command_timeout_ns: u64,
    /// A request that is not done by then ends with an error. Until then it is submitted again after every reset.
    pub give_up_ns: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            nsid: 1,
            identify_all: false,
            queues: 1,
            queue_depth: 128,
            buffers: vec![
                BufferClass { bytes: 4096, count: 256 },
                BufferClass { bytes: 64 << 10, count: 64 },
                BufferClass { bytes: 1 << 20, count: 16 },
            ],
            submission: Submission::default(),
            data_pointers: DataPointers::default(),
            interrupts: false,
            command_timeout_ns: 10_000_000_000,
            give_up_ns: 30_000_000_000,
        }
    }
}

impl Config {
    /// The same with every number in its range.
    pub(crate) fn clamped(mut self) -> Self {
        self.queues = self.queues.clamp(1, 64);
        self.queue_depth = self.queue_depth.clamp(1, 4095);
        self.nsid = self.nsid.max(1);
        self
    }
}

/// What a driver has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requests taken.
    pub submitted: u64,
    /// Requests that ended well.
    pub completed: u64,
    /// Requests that ended with an error.
    pub failed: u64,
    /// Commands submitted again after a reset.
    pub resubmitted: u64,
    /// Controllers started: the first time, and after each loss or reset.
    pub started: u64,
    /// Resets because a command took too long or the controller was not well.
    pub resets: u64,
    /// Times that the device was lost.
    pub losses: u64,
    /// Completion Queue Entries for no command of ours.
    pub stray_completions: u64,
    /// Doorbells rung, in groups of those that were due together.
    pub doorbells: u64,
}

/// Why a controller can't be used, or not now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The device is of another kind.
    #[error("the device is no NVMe controller: its class is {0:02x?}")]
    NotNvme([u8; 3]),
    /// It can't do what every controller here has to.
    #[error("the controller has no NVM command set, or no pages of 4 KiB")]
    Unsuited,
    /// There is no such namespace.
    #[error("the controller has no active namespace {nsid}: there are {active:?}")]
    NoNamespace {
        /// The one that is to be used.
        nsid: u32,
        /// Those that there are.
        active: Vec<u32>,
    },
    /// Its format is one that we can't use.
    #[error(
        "namespace {nsid} has blocks of 2^{block_shift} bytes and {metadata_bytes} bytes of metadata: it needs 512 to 65536, and none"
    )]
    Format {
        /// Which.
        nsid: u32,
        /// Of its blocks.
        block_shift: u8,
        /// Of each block.
        metadata_bytes: u16,
    },
    /// What came back is not what was there.
    #[error("another disk came back in the place of the one that was lost")]
    Changed,
    /// It did not change its state in the time that it says it needs, or is not there.
    #[error("the controller does not {0}")]
    Silent(&'static str),
    /// It says that it has failed.
    #[error("the controller has failed (CSTS.CFS)")]
    Fatal,
    /// An Admin command ended badly.
    #[error("{command}: {status}")]
    Command {
        /// Its name.
        command: &'static str,
        /// How.
        status: Status,
    },
}

impl Failure {
    /// Whether another attempt is in vain.
    pub fn is_final(&self) -> bool {
        !matches!(self, Self::Silent(_) | Self::Fatal | Self::Command { .. })
    }
}
