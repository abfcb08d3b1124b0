//! A file in memory, read and written by the client itself: what one core can do without a network.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use etherslot_lab::{Process, Side};

use super::{Peer, fio_figures, fio_options};
use crate::bed::{Bed, MemoryFile};
use crate::contender::Setup;
use crate::load::{Figures, Load};

pub(crate) struct Local {
    file: MemoryFile,
    setup: Setup,
}

impl Local {
    pub(crate) fn start(bed: &Bed, setup: Setup) -> Result<Self> {
        Ok(Self { file: bed.memory_file()?, setup })
    }
}

impl Peer for Local {
    fn measure(&mut self, bed: &Bed, load: &Load, time: Duration) -> Result<Figures> {
        let mut command = bed.command(Side::Host, self.setup, Path::new("fio"))?;
        // Nothing is quicker in memory than a call that copies, whatever the queue depth.
        command.args(fio_options(load, bed.memory_bytes(), time)).arg("--ioengine=psync");
        command.arg(format!("--filename={}", self.file.path().display()));
        fio_figures(&bed.client("local-client", command, time)?, load)
    }

    fn server(&mut self) -> Option<&mut Process> {
        None
    }
}
