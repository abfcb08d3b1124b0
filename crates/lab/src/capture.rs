//! A capture of what passes the bridge.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::net::{BRIDGE, Net};
use crate::packages::find_program;
use crate::pcap::{self, ETHERTYPE, Tally};
use crate::process::{Process, mortal};
use crate::run::Run;

const TIMEOUT: Duration = Duration::from_secs(10);
/// Enough for every header; data is of no interest here.
const SNAP_BYTES: &str = "128";
const BUFFER_KIB: &str = "16384";

/// Which frames a capture keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// All, up to a number.
    All {
        /// The capture ends with this many frames.
        frames_max: u32,
    },
    /// Only those that are not Etherslot's. The kernel sorts the others out, so that this costs next to nothing.
    Foreign,
}

/// A running capture.
#[derive(Debug)]
pub struct Capture {
    process: Process,
    file: PathBuf,
}

/// What a capture saw.
#[derive(Clone, Debug)]
pub struct Captured {
    /// The frames kept.
    pub tally: Tally,
    /// Frames that the kernel could not hand over in time. A claim on all frames needs 0 here.
    pub missed: u64,
    /// The pcap file, in the run's folder.
    pub file: PathBuf,
}

impl Capture {
    /// Starts to capture on the bridge of `net`, into `NAME.pcap` of the run's folder.
    pub fn start(run: &Run, net: &Net, name: &str, keep: Keep) -> Result<Self> {
        let program =
            find_program("tcpdump").ok_or_else(|| Error::setup("tcpdump is missing", "run ./run setup"))?;
        let file = run.path(&format!("{name}.pcap"));
        let mut command = mortal(Some(&net.bridge_namespace()), Path::new(&program));
        command
            .args(["-i", BRIDGE, "-n", "-U", "-Z", "root", "-s", SNAP_BYTES, "-B", BUFFER_KIB, "-w"])
            .arg(&file);
        match keep {
            Keep::All { frames_max } => command.arg("-c").arg(frames_max.to_string()),
            Keep::Foreign => command.arg(format!("not ether proto {ETHERTYPE:#x}")),
        };
        let mut process = Process::start("tcpdump", command, &run.path(&format!("{name}.tcpdump.log")))?;
        process.wait_until("listening", TIMEOUT, |process| process.log().contains("listening on"))?;
        Ok(Self { process, file })
    }

    /// Ends the capture and counts.
    pub fn finish(mut self) -> Result<Captured> {
        if self.process.is_running() {
            self.process.terminate(TIMEOUT)?;
        }
        let log = self.process.log();
        let missed = dropped(&log).ok_or_else(|| Error::unexpected("read tcpdump's counters", log))?;
        Ok(Captured { tally: pcap::tally(&self.file)?, missed, file: self.file })
    }
}

fn dropped(log: &str) -> Option<u64> {
    let mut total = None;
    for line in log.lines().filter(|line| line.contains(" dropped by ")) {
        let count: u64 = line.split_whitespace().next()?.parse().ok()?;
        total = Some(total.unwrap_or(0) + count);
    }
    total
}

#[cfg(test)]
mod tests {
    use super::dropped;

    #[test]
    fn drops_of_kernel_and_interface_add_up_and_silence_is_no_zero() {
        let log = "5 packets captured\n9 packets received by filter\n3 packets dropped by kernel\n1 packet dropped by interface\n";
        assert_eq!(dropped(log), Some(4));
        assert_eq!(dropped("tcpdump: listening on bridge0\n"), None);
    }
}
