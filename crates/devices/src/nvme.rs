//! An NVMe controller (NVM Express Base Specification 1.4, over PCIe), with its namespaces on media.
//!
//! The way of a command: the host rings a doorbell; its Submission Queue Entry is fetched into a slot, together with as many
//! others as there are (`engine`); it is parsed (`command`) and carried out (`admin`, `io`): its data pointer is walked (`transfer`),
//! data go from memory to a Buf and on to the medium (`gather`), or the other way (`scatter`); a medium that is memory itself is written and
//! read where it lies. Its Completion Queue Entry follows its data, the interrupt follows the entry (`completion`). `lifecycle` starts, resets and shuts down.
//!
//! Everything is bounded and made at the start or with a queue; there is no allocation per command. What a host does wrong becomes an
//! architected status, an Asynchronous Event, or CSTS.CFS.
//!
//! Not there: metadata and protection information, fused commands, firmware download, directives, reservations, namespace
//! management, weighted arbitration. Identify says so.

mod admin;
mod ahead;
mod bits;
mod cmb;
mod command;
mod completion;
mod engine;
mod events;
mod features;
mod format;
mod function;
mod gather;
mod identify;
mod identity;
mod io;
mod lifecycle;
mod logs;
mod medium;
mod namespace;
mod queue;
mod registers;
mod scatter;
mod slot;
mod status;
mod transfer;

pub use namespace::{Formatted, Namespace};

use bits::MIN_BLOCK_BYTES;
use cmb::Cmb;
use engine::{Queues, Set};
use etherslot_pci::function::InterruptMode;
use etherslot_storage::Done;
use events::Events;
use features::Features;
use identity::Identity;
use lifecycle::{Life, ShuttingDown};
use logs::Logs;
use namespace::Active;
use registers::Registers;
use slot::{Pool, Slot};
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;

/// I/O queue pairs at most.
pub const MAX_QUEUE_PAIRS: u16 = 64;

/// Namespaces at most.
pub const MAX_NAMESPACES: usize = 256;

/// Bytes of a middle Buf: the largest transfer unless it is said.
const MIDDLE_BUFFER_BYTES: usize = 1 << 20;

/// Memory of all Bufs that are not small, unless it is said.
const LARGE_POOL_BYTES: usize = 64 << 20;

/// What a controller is to be.
#[derive(Debug)]
pub struct Config {
    /// Serial number: 1 to 20 printable ASCII characters. All identifiers follow from it, so no two controllers may share one.
    pub serial: String,
    /// Model number: up to 40 printable ASCII characters.
    pub model: String,
    /// Firmware revision: up to 8 printable ASCII characters.
    pub firmware: String,
    /// NSID 1 and up.
    pub namespaces: Vec<Namespace>,
    /// I/O queue pairs, 1..=64.
    pub max_queue_pairs: u16,
    /// Size of the Controller Memory Buffer, if there is to be one: a power of two, 4 KiB to 1 GiB.
    pub cmb_bytes: Option<usize>,
    /// Whether there is an MSI-X capability. Without it there are 32 MSI vectors: what a slot of a QEMU needs whose devices are
    /// to be removed while it runs.
    pub msix: bool,
    /// Commands under way at most, 16..=4096.
    pub commands: u16,
    /// Largest transfer of one command (MDTS): a power of two, 4 KiB to 16 MiB.
    pub max_transfer_bytes: usize,
    /// Bufs of that size: transfers of that kind under way at most. At least 2.
    pub large_buffers: usize,
    /// Bufs of 1 MiB, so that who moves no more does not wait for a larger one. None, or at least 2.
    pub middle_buffers: usize,
    /// Bytes of a small Buf, for the transfers that fit it.
    pub small_buffer_bytes: usize,
    /// How many of those. At least 2.
    pub small_buffers: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            serial: "ETHERSLOT".into(),
            model: "Etherslot NVMe Controller".into(),
            firmware: env!("CARGO_PKG_VERSION").into(),
            namespaces: Vec::new(),
            max_queue_pairs: MAX_QUEUE_PAIRS,
            cmb_bytes: None,
            msix: true,
            commands: 1024,
            max_transfer_bytes: MIDDLE_BUFFER_BYTES,
            large_buffers: LARGE_POOL_BYTES / MIDDLE_BUFFER_BYTES,
            middle_buffers: 0,
            small_buffer_bytes: 16 << 10,
            small_buffers: 512,
        }
    }
}

/// Why there can be no such controller.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Of the wrong length, or with characters that are not printable ASCII.
    #[error("{field} must have {min} to {max} printable ASCII characters")]
    Text {
        /// Which one.
        field: &'static str,
        /// Characters at least.
        min: usize,
        /// Characters at most.
        max: usize,
    },
    /// Out of its range.
    #[error("{field} must be {allowed}")]
    Number {
        /// Which one.
        field: &'static str,
        /// What it may be.
        allowed: &'static str,
    },
    /// A namespace whose block size is none of ours, smaller than its medium's, or larger than all of it.
    #[error("namespace {nsid}: block size must be 512 or 4096, and not below the medium's")]
    Namespace {
        /// Which one.
        nsid: usize,
    },
}

impl Config {
    /// With another largest transfer, and no more memory for Bufs than by default: the larger they are, the fewer. Beyond 1 MiB half of that memory
    /// is for those who need no more.
    #[must_use]
    pub fn with_max_transfer(self, bytes: usize) -> Self {
        let (large, middle) = if bytes > MIDDLE_BUFFER_BYTES {
            (LARGE_POOL_BYTES / 2 / bytes, LARGE_POOL_BYTES / 2 / MIDDLE_BUFFER_BYTES)
        } else {
            (self.large_buffers, 0)
        };
        Self {
            max_transfer_bytes: bytes,
            large_buffers: large,
            middle_buffers: middle,
            small_buffer_bytes: self.small_buffer_bytes.min(bytes),
            ..self
        }
    }

    fn check(&self) -> Result<(), ConfigError> {
        for (field, text, min, max) in [
            ("serial", &self.serial, 1, 20),
            ("model", &self.model, 1, 40),
            ("firmware", &self.firmware, 1, 8),
        ] {
            let printable = text.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ');
            if !printable || !(min..=max).contains(&text.len()) {
                return Err(ConfigError::Text { field, min, max });
            }
        }
        let power =
            |bytes: usize, min: usize, max: usize| bytes.is_power_of_two() && (min..=max).contains(&bytes);
        for (fits, field, allowed) in [
            ((1..=MAX_QUEUE_PAIRS).contains(&self.max_queue_pairs), "max_queue_pairs", "1 to 64"),
            (
                self.cmb_bytes.is_none_or(|bytes| power(bytes, 4096, 1 << 30)),
                "cmb_bytes",
                "a power of two from 4 KiB to 1 GiB",
            ),
            ((16..=4096).contains(&self.commands), "commands", "16 to 4096"),
            (
                power(self.max_transfer_bytes, 4096, 16 << 20),
                "max_transfer_bytes",
                "a power of two from 4 KiB to 16 MiB",
            ),
            (self.large_buffers >= 2, "large_buffers", "at least 2"),
            (
                self.middle_buffers == 0
                    || (self.middle_buffers >= 2 && self.max_transfer_bytes > MIDDLE_BUFFER_BYTES),
                "middle_buffers",
                "0, or at least 2 if max_transfer_bytes is more than 1 MiB",
            ),
            (
                (4096..=self.max_transfer_bytes).contains(&self.small_buffer_bytes),
                "small_buffer_bytes",
                "from 4 KiB to max_transfer_bytes",
            ),
            (self.small_buffers >= 2, "small_buffers", "at least 2"),
            ((1..=MAX_NAMESPACES).contains(&self.namespaces.len()), "namespaces", "1 to 256"),
        ] {
            if !fits {
                return Err(ConfigError::Number { field, allowed });
            }
        }
        match self.namespaces.iter().position(|namespace| !namespace.is_valid()) {
            Some(at) => Err(ConfigError::Namespace { nsid: at + 1 }),
            None => Ok(()),
        }
    }
}

/// The controller.
pub struct Nvme {
    identity: Identity,
    registers: Registers,
    cmb: Cmb,
    life: Life,
    shutting_down: ShuttingDown,
    queues: Queues,
    slots: Vec<Slot>,
    free: Vec<u16>,
    /// Slots that want something of the bus: memory to be read, or to be written. What lacks room in one direction does not hold up
    /// the other.
    reading: VecDeque<u16>,
    writing: VecDeque<u16>,
    pool: Pool,
    namespaces: Vec<Active>,
    features: Features,
    logs: Logs,
    events: Events,
    /// The slot of the Format NVM under way.
    formatter: Option<u16>,
    /// Submission Queues whose rule of read-ahead has to be told.
    rules_changed: Set,
    /// Bytes asked for from memory that have not come.
    reads_outstanding: u64,
    /// Requests that are with media, or wait for one.
    media_outstanding: u32,
    /// I/O commands under way, and since when there are any: the controller is busy.
    io_active: u32,
    busy_since_ns: u64,
    /// Filled while a medium is polled, then emptied.
    done: Vec<Done>,
    max_transfer_bytes: usize,
    vectors: u16,
    now_ns: u64,
    interrupt_mode: InterruptMode,
}

impl Nvme {
    /// A controller, as it is after power-on.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        let identity = Identity::new(&config.serial, &config.model, &config.firmware);
        let slots = usize::from(config.commands);
        let namespaces: Vec<Active> = (1..)
            .zip(config.namespaces)
            .map(|(nsid, namespace)| Active::new(namespace, identity.namespace_ids(nsid), slots))
            .collect();
        let vectors = if config.msix { config.max_queue_pairs + 1 } else { 0 };
        Ok(Self {
            registers: Registers::new(config.cmb_bytes.is_some()),
            cmb: Cmb::new(config.cmb_bytes.unwrap_or(0)),
            life: Life::Disabled,
            shutting_down: ShuttingDown::No,
            queues: Queues::new(config.max_queue_pairs),
            slots: (0..slots).map(|_| Slot::new(config.max_transfer_bytes / MIN_BLOCK_BYTES)).collect(),
            free: (0..config.commands).rev().collect(),
            reading: VecDeque::with_capacity(slots),
            writing: VecDeque::with_capacity(slots),
            pool: Pool::new(
                [
                    (config.small_buffers, config.small_buffer_bytes),
                    (config.middle_buffers, MIDDLE_BUFFER_BYTES),
                    (config.large_buffers, config.max_transfer_bytes),
                ],
                slots,
            ),
            features: Features::new(config.max_queue_pairs, vectors.max(32), namespaces.len()),
            namespaces,
            logs: Logs::new(identity.firmware),
            events: Events::default(),
            formatter: None,
            rules_changed: 0,
            reads_outstanding: 0,
            media_outstanding: 0,
            io_active: 0,
            busy_since_ns: 0,
            done: Vec::with_capacity(slots),
            max_transfer_bytes: config.max_transfer_bytes,
            vectors,
            now_ns: 0,
            interrupt_mode: InterruptMode::Disabled,
            identity,
        })
    }

    /// What to sleep on besides the bus: readable when a medium has something done.
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.namespaces.iter().filter_map(|namespace| namespace.medium.fd())
    }

    /// Bytes of the largest command's data.
    pub fn max_transfer_bytes(&self) -> usize {
        self.max_transfer_bytes
    }

    /// The NVMe Qualified Name of its subsystem.
    pub fn nqn(&self) -> &str {
        &self.identity.nqn
    }
}

impl std::fmt::Debug for Nvme {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Nvme")
            .field("nqn", &self.identity.nqn)
            .field("life", &self.life)
            .field("commands", &(self.slots.len() - self.free.len()))
            .finish_non_exhaustive()
    }
}
