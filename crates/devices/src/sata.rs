//! SATA: ATA disks on media, behind a host controller.
//!
//! * [`Ahci`]: AHCI 1.3.1, which every system has a driver for.
//! * [`Sil3132`]: Silicon Image's `SiI3132`, the controller of the published experiments.
//!
//! The way of a command: the host tells of it in a register; the controller reads what it is (`ahci`, `sil3132`), the disk says
//! what has to be done (`command`, `disk`), the channel of the port moves its data between memory, Buf and medium (`channel`,
//! `list`), the controller tells the host that it has ended.
//!
//! Everything is bounded and made at the start; there is no allocation per command. What a host does wrong becomes an architected
//! status of disk or controller. A disk can be taken out and put in while the host runs.
//!
//! Not there: ATAPI, port multipliers, link power management, SECURITY, host protected areas, queued forms of TRIM and logs.

mod ahci;
mod channel;
mod command;
mod disk;
mod fis;
mod identify;
mod list;
mod sil3132;

pub use ahci::Ahci;
pub use sil3132::{PORTS as SIL3132_PORTS, Sil3132};

use etherslot_storage::Medium;
use std::fmt;

/// Ports of a controller at most.
pub const MAX_PORTS: usize = 8;

/// What is to become a disk.
pub struct Drive {
    /// Serial number: 1 to 20 printable ASCII characters. Its World Wide Name follows from it.
    pub serial: String,
    /// Where its sectors are.
    pub medium: Box<dyn Medium>,
    /// Bytes of a logical sector, 512 or 4096; not less than the medium's.
    pub block_bytes: u32,
}

impl fmt::Debug for Drive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Drive")
            .field("serial", &self.serial)
            .field("medium", &self.medium.info())
            .field("block_bytes", &self.block_bytes)
            .finish()
    }
}

/// What happens at a [`Bay`].
#[derive(Debug)]
pub enum Change {
    /// A disk is put in.
    In(Drive),
    /// The disk is taken out.
    Out,
}

/// A place for a disk that comes and goes while the controller works.
pub trait Bay {
    /// Whether something has happened; asked from time to time, not before [`Bay::deadline_ns`].
    fn look(&mut self, now_ns: u64) -> Option<Change>;

    /// When to look the next time.
    fn deadline_ns(&self) -> u64;
}

/// The bays of a controller, each with its port.
#[derive(Default)]
pub struct Bays(pub Vec<(usize, Box<dyn Bay>)>);

impl Bays {
    /// The next thing that has happened, and at which port.
    fn look(&mut self, now_ns: u64) -> Option<(usize, Change)> {
        let mut due = self.0.iter_mut().filter(|(_, bay)| bay.deadline_ns() <= now_ns);
        due.find_map(|(port, bay)| Some((*port, bay.look(now_ns)?)))
    }

    fn deadline_ns(&self) -> Option<u64> {
        self.0.iter().map(|(_, bay)| bay.deadline_ns()).min()
    }
}

impl fmt::Debug for Bays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(port, _)| port)).finish()
    }
}

/// What a controller is to be.
#[derive(Debug)]
pub struct Config {
    /// What all identifiers of the controller follow from.
    pub serial: String,
    /// Model number of its disks: 1 to 40 printable ASCII characters.
    pub model: String,
    /// Their firmware revision: 1 to 8 printable ASCII characters.
    pub firmware: String,
    /// What is at each port: a disk, or nothing.
    pub ports: Vec<Option<Drive>>,
    /// The ports at which disks come and go.
    pub bays: Bays,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            serial: "ETHERSLOT".into(),
            model: "Etherslot SATA".into(),
            firmware: env!("CARGO_PKG_VERSION").into(),
            ports: Vec::new(),
            bays: Bays::default(),
        }
    }
}

/// Why there can be no such controller or disk.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Of the wrong length, or with characters that are not printable ASCII.
    #[error("{field} must have 1 to {max} printable ASCII characters")]
    Text {
        /// Which one.
        field: &'static str,
        /// Characters at most.
        max: usize,
    },
    /// More ports than the controller can have, or none.
    #[error("the controller must have 1 to {max} ports")]
    Ports {
        /// At most.
        max: usize,
    },
    /// A disk whose sectors are none of ours, smaller than its medium's blocks, or larger than all of it.
    #[error("port {port}: sectors must be of 512 or 4096 bytes, and not below the medium's")]
    Sectors {
        /// Of the disk.
        port: usize,
    },
}

fn check_text(field: &'static str, text: &str, max: usize) -> Result<(), ConfigError> {
    let is_printable = text.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ');
    if is_printable && (1..=max).contains(&text.len()) {
        Ok(())
    } else {
        Err(ConfigError::Text { field, max })
    }
}

impl Drive {
    fn check(&self, port: usize) -> Result<(), ConfigError> {
        check_text("serial", &self.serial, 20)?;
        let info = self.medium.info();
        let is_valid = matches!(self.block_bytes, 512 | 4096)
            && self.block_bytes >= info.block_bytes
            && info.bytes >= u64::from(self.block_bytes)
            && info.bytes >> self.block_bytes.trailing_zeros() < 1 << 48;
        if is_valid { Ok(()) } else { Err(ConfigError::Sectors { port }) }
    }
}

impl Config {
    fn check(&self, max_ports: usize) -> Result<(), ConfigError> {
        check_text("model", &self.model, 40)?;
        check_text("firmware", &self.firmware, 8)?;
        if !(1..=max_ports).contains(&self.ports.len()) {
            return Err(ConfigError::Ports { max: max_ports });
        }
        self.ports
            .iter()
            .enumerate()
            .try_for_each(|(port, drive)| drive.as_ref().map_or(Ok(()), |drive| drive.check(port)))
    }
}

/// What the disks of a controller have counted.
fn count<'a>(disks: impl Iterator<Item = &'a disk::Disk>, each: &mut dyn FnMut(&'static str, u64)) {
    let mut sum = disk::Counters::default();
    for disk in disks {
        let counters = disk.counters;
        sum.reads += counters.reads;
        sum.bytes_read += counters.bytes_read;
        sum.writes += counters.writes;
        sum.bytes_written += counters.bytes_written;
        sum.media_errors += counters.media_errors;
    }
    each("reads", sum.reads);
    each("bytes_read", sum.bytes_read);
    each("writes", sum.writes);
    each("bytes_written", sum.bytes_written);
    each("media_errors", sum.media_errors);
}
