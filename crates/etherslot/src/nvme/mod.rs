//! `etherslot nvme`: remote NVMe devices used by this very machine, without a VM.

mod bench;
pub(crate) mod shape;
mod show;
mod target;
pub(crate) mod transfer;
mod workload;

use anyhow::Result;
use clap::Subcommand;

pub(crate) use target::{Reach, node_name};

#[derive(Subcommand)]
pub(crate) enum Nvme {
    /// Lists the namespaces of devices.
    List(show::List),
    /// Shows what a controller and a namespace say of themselves (Identify).
    Id(show::Id),
    /// Copies from a device to a file.
    Read(transfer::Read),
    /// Copies from a file to a device, whose content it replaces.
    Write(transfer::Write),
    /// Measures operations per second and latencies, one process for many points. Writing replaces the device's content.
    Bench(bench::Bench),
}

impl Nvme {
    pub(crate) fn run(self) -> Result<()> {
        match self {
            Self::List(list) => list.run(),
            Self::Id(id) => id.run(),
            Self::Read(read) => read.run(),
            Self::Write(write) => write.run(),
            Self::Bench(bench) => bench.run(),
        }
    }
}
