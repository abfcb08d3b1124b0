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
        command.args(["-i", BRIDGE, "-n", "-U", "--immediate-mode", "-Z", "root"]);
        command.args(["-s", SNAP_BYTES, "-B", BUFFER_KIB, "-w"]).arg(&file);
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
        let full = !self.process.is_running();
        if !full {
            self.process.terminate(TIMEOUT)?;
        }
        let log = self.process.log();
        let counts = Counts::parse(&log).ok_or_else(|| Error::unexpected("read tcpdump's counters", log))?;
        // What passed the filter when the file was full is nobody's loss.
        let unread = if full { 0 } else { counts.received.saturating_sub(counts.captured) };
        Ok(Captured { tally: pcap::tally(&self.file)?, missed: counts.dropped + unread, file: self.file })
    }
}

/// What tcpdump says at its end.
#[derive(Debug, PartialEq, Eq)]
struct Counts {
    captured: u64,
    received: u64,
    dropped: u64,
}

impl Counts {
    fn parse(log: &str) -> Option<Self> {
        let sum = |what: &str| {
            log.lines()
                .filter(|line| line.contains(what))
                .map(|line| line.split_whitespace().next()?.parse::<u64>().ok())
                .reduce(|sum, count| Some(sum? + count?))
                .flatten()
        };
        Some(Self {
            captured: sum(" captured")?,
            received: sum(" received by filter")?,
            dropped: sum(" dropped by ")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Counts;

    #[test]
    fn drops_of_kernel_and_interface_add_up_and_silence_is_no_zero() {
        let log = "5 packets captured\n9 packets received by filter\n3 packets dropped by kernel\n1 packet dropped by interface\n";
        assert_eq!(Counts::parse(log), Some(Counts { captured: 5, received: 9, dropped: 4 }));
        assert_eq!(Counts::parse("tcpdump: listening on bridge0\n"), None);
    }
}
