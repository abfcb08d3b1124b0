//! NBD: nbdkit's memory plugin, and fio's engine for it.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use etherslot_lab::{BOX_IP, Process, Side};

use super::{Peer, fio_figures, fio_options};
use crate::bed::Bed;
use crate::contender::Setup;
use crate::load::{Direction, Figures, Load};

const PORT: &str = "10809";
const START: Duration = Duration::from_secs(10);

pub(crate) struct Nbdkit {
    server: Process,
    setup: Setup,
}

impl Nbdkit {
    pub(crate) fn start(bed: &Bed, setup: Setup) -> Result<Self> {
        let ready = bed.path("nbdkit.pid");
        let mut command = bed.command(Side::Box, setup, Path::new("nbdkit"))?;
        // One thread: it has one core.
        command.args(["--foreground", "--threads", "1", "--no-sr", "-i", BOX_IP, "--port", PORT]);
        command.arg("--pidfile").arg(&ready).arg("memory").arg(bed.memory_bytes().to_string());
        let mut server = bed.serve(&setup.name(), command)?;
        server.wait_until("its pid file", START, |_| ready.exists())?;
        let peer = Self { server, setup };
        // What was never written takes no memory there, and would be read faster than the memory can.
        let fill = Load { direction: Direction::Write, block_bytes: 1 << 20, depth: 4 };
        let mut command = peer.fio(bed)?;
        command.args(["--name=fill", "--rw=write", "--bs=1M", "--iodepth=4"]);
        command.arg(format!("--size={}", bed.memory_bytes()));
        command.args(["--percentile_list=50:99:99.9", "--output-format=json"]);
        fio_figures(&bed.client("nbdkit-fill", command, START)?, &fill)?;
        Ok(peer)
    }

    fn fio(&self, bed: &Bed) -> Result<Command> {
        let mut command = bed.command(Side::Host, self.setup, Path::new("fio"))?;
        command.arg("--ioengine=nbd").arg(format!("--uri=nbd://{BOX_IP}:{PORT}/"));
        Ok(command)
    }
}

impl Peer for Nbdkit {
    fn measure(&mut self, bed: &Bed, load: &Load, time: Duration) -> Result<Figures> {
        let mut command = self.fio(bed)?;
        command.args(fio_options(load, bed.memory_bytes(), time));
        fio_figures(&bed.client("nbdkit-client", command, time)?, load)
    }

    fn server(&mut self) -> Option<&mut Process> {
        Some(&mut self.server)
    }
}
