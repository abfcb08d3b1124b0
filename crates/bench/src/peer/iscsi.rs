//! iSCSI: tgt on a file in memory, and iscsi-perf of libiscsi, which only reads and tells no latencies.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use etherslot_lab::{BOX_IP, Process, Side};

use super::Peer;
use crate::bed::{Bed, MemoryFile};
use crate::contender::Setup;
use crate::load::{Direction, Figures, Load};

const TARGET: &str = "iqn.2026-01.invalid.etherslot:memory";
const PORT: u16 = 3260;
/// The number by which its control socket is found: the same for all runs, so that what a killed one left is taken over.
const CONTROL: &str = "31999";
const START: Duration = Duration::from_secs(10);
/// Of tgt's logical unit.
const SECTOR_BYTES: u32 = 512;

pub(crate) struct Iscsi {
    server: Process,
    setup: Setup,
    _file: MemoryFile,
}

impl Iscsi {
    pub(crate) fn start(bed: &Bed, setup: Setup) -> Result<Self> {
        let mut command = bed.command(Side::Box, setup, Path::new("tgtd"))?;
        command.args(["--foreground", "--control-port", CONTROL]);
        command.args(["--iscsi", &format!("portal={BOX_IP}:{PORT}")]);
        let mut server = bed.serve(&setup.name(), command)?;
        let file = bed.memory_file()?;
        let path = file.path().display().to_string();
        let new_target = ["--op", "new", "--mode", "target", "--tid", "1", "--targetname", TARGET];
        let new_unit = ["--op", "new", "--mode", "logicalunit", "--tid", "1", "--lun", "1", "-b", &path];
        let open = ["--op", "bind", "--mode", "target", "--tid", "1", "--initiator-address", "ALL"];
        let mut orders: Vec<&[&str]> = vec![&open, &new_unit, &new_target];
        let refused = |process: &Process| format!("tgtadm failed: {}", process.log());
        // Until it listens, the first order fails.
        let start = std::time::Instant::now();
        while let Some(order) = orders.last() {
            let mut command = bed.command(Side::Box, setup, Path::new("tgtadm"))?;
            command.args(["--control-port", CONTROL, "--lld", "iscsi"]).args(*order);
            let mut admin = bed.serve("tgtadm", command)?;
            if admin.wait(START)?.success() {
                orders.pop();
            } else {
                ensure!(server.is_running(), "tgtd ended: {}", server.log());
                ensure!(start.elapsed() < START, refused(&admin));
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        Ok(Self { server, setup, _file: file })
    }
}

impl Drop for Iscsi {
    fn drop(&mut self) {
        self.server.kill();
        for end in ["", ".lock"] {
            let _ = std::fs::remove_file(format!("/run/tgtd/socket.{CONTROL}{end}"));
        }
    }
}

/// The last line but one: `iops average 11612 (45 MB/s)`.
fn average(output: &str) -> Option<f64> {
    output.split(['\r', '\n']).rev().find_map(|line| {
        let rest = line.trim().strip_prefix("iops average ")?;
        rest.split_whitespace().next()?.parse().ok()
    })
}

impl Peer for Iscsi {
    fn measure(&mut self, bed: &Bed, load: &Load, time: Duration) -> Result<Figures> {
        let mut command = bed.command(Side::Host, self.setup, Path::new("iscsi-perf"))?;
        let blocks = load.block_bytes / SECTOR_BYTES;
        command.args(["-r", "-m", &load.depth.to_string(), "-b", &blocks.to_string()]);
        command.args(["-t", &time.as_secs().max(1).to_string()]);
        command.arg(format!("iscsi://{BOX_IP}:{PORT}/{TARGET}/1"));
        let output = bed.client("iscsi-client", command, time)?;
        let iops = average(&output).context("iscsi-perf told no average")?;
        Ok(Figures { iops, ..Figures::default() })
    }

    fn server(&mut self) -> Option<&mut Process> {
        Some(&mut self.server)
    }

    fn takes(&self, load: &Load) -> bool {
        load.direction == Direction::Read
    }
}

#[cfg(test)]
mod tests {
    use super::average;

    #[test]
    fn the_average_is_that_of_the_end() {
        let output = "\r00:00:01 - lba 2060187, iops current 11301 (44 MB/s), iops average 11301 (44 MB/s)\r\
                      iops average 11612 (45 MB/s)        \n\nfinished.\n";
        assert_eq!(average(output), Some(11612.0));
        assert_eq!(average("finished."), None);
    }
}
