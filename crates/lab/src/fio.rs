//! fio in the guest: loads with verified data, and what they measured.
//!
//! Every 4 KiB that a load writes carry fio's header with a checksum and the offset it was written to; a load that reads
//! checks both. A load that writes can read everything back when it is done, not counted in its figures, and then also
//! checks that each block is of its latest write.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::Value;

use crate::error::{Error, Result};
use crate::guest::Guest;

/// How often data is sealed; no load uses smaller blocks.
pub const VERIFY_INTERVAL_BYTES: u32 = 4096;

/// Order and direction of the accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Reads in order.
    Read,
    /// Writes in order.
    Write,
    /// Reads at random.
    RandomRead,
    /// Writes at random, no block twice until all have been written.
    RandomWrite,
}

impl Pattern {
    /// fio's word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::RandomRead => "randread",
            Self::RandomWrite => "randwrite",
        }
    }

    /// Whether it writes.
    pub fn writes(self) -> bool {
        matches!(self, Self::Write | Self::RandomWrite)
    }
}

/// When a load ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// After this time, going over the area again if need be.
    Time(Duration),
    /// After this many bytes, at most the area once.
    Bytes(u64),
}

/// Whether and when data is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verify {
    /// No headers, no check.
    Off,
    /// Reads are checked; writes are sealed, for later loads to check.
    Seal,
    /// As `Seal`, and writes are all read back and checked at the end. For [`Until::Bytes`].
    ReadBack,
}

/// A load on a block device.
#[derive(Clone, Debug)]
pub struct Load {
    /// Block device in the guest.
    pub device: String,
    /// Accesses.
    pub pattern: Pattern,
    /// Bytes of one access.
    pub block_bytes: u32,
    /// Accesses in flight.
    pub depth: u32,
    /// Where on the device the area starts that is used.
    pub area_at: u64,
    /// Size of that area.
    pub area_bytes: u64,
    /// End.
    pub until: Until,
    /// Checks.
    pub verify: Verify,
    /// More of fio's options, such as `--fsync=32`.
    pub more: String,
}

/// What a load measured. Of a load that writes, the figures are of its writes alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured {
    /// Accesses completed.
    pub accesses: u64,
    /// Bytes they moved.
    pub bytes: u64,
    /// How long that took.
    pub took: Duration,
    /// Completion latency, median.
    pub p50: Duration,
    /// Completion latency, 99 of 100 below it.
    pub p99: Duration,
    /// Completion latency, 999 of 1000 below it.
    pub p999: Duration,
    /// Bytes that were read back and found as written, apart from the measured reads.
    pub read_back_bytes: u64,
}

impl Measured {
    /// Accesses per second.
    pub fn iops(&self) -> f64 {
        per_second(self.accesses, self.took)
    }

    /// Bytes per second.
    pub fn bytes_per_second(&self) -> f64 {
        per_second(self.bytes, self.took)
    }
}

#[expect(clippy::cast_precision_loss, reason = "a rate is no more precise than its time")]
fn per_second(count: u64, time: Duration) -> f64 {
    count as f64 / time.as_secs_f64().max(0.001)
}

impl Default for Load {
    /// Random reads of 4 KiB, one at a time, for a second; the device is to be named.
    fn default() -> Self {
        Self {
            device: String::new(),
            pattern: Pattern::RandomRead,
            block_bytes: 4096,
            depth: 1,
            area_at: 0,
            area_bytes: 64 << 20,
            until: Until::Time(Duration::from_secs(1)),
            verify: Verify::Off,
            more: String::new(),
        }
    }
}

impl Load {
    /// The command line.
    pub fn command(&self) -> String {
        let Self { device, pattern, block_bytes, depth, area_at, area_bytes, until, verify, more } = self;
        let mut line = format!(
            "fio --name=load --filename={device} --ioengine=io_uring --direct=1 --rw={} --bs={block_bytes} \
             --iodepth={depth} --offset={area_at} --size={area_bytes} --randrepeat=0 --percentile_list=50:99:99.9 --output-format=json",
            pattern.name()
        );
        // Writing to a string does not fail.
        let _ = match until {
            Until::Time(time) => write!(line, " --time_based --runtime={}ms", time.as_millis()),
            Until::Bytes(bytes) => write!(line, " --io_size={bytes}"),
        };
        if *verify != Verify::Off {
            let read_back = u8::from(*verify == Verify::ReadBack || !pattern.writes());
            let _ = write!(
                line,
                " --verify=crc32c --verify_interval={VERIFY_INTERVAL_BYTES} --verify_fatal=1 --do_verify={read_back}"
            );
            if !pattern.writes() {
                // The blocks were written by other loads, each with a seed of its own.
                line.push_str(" --verify_header_seed=0");
            }
        }
        if !more.is_empty() {
            let _ = write!(line, " {more}");
        }
        line
    }
}

impl Guest {
    /// Runs a load to its end; wrong data is an error.
    pub fn fio(&self, load: &Load, timeout: Duration) -> Result<Measured> {
        let output = self.check(&load.command(), timeout)?;
        measured(&output, load.pattern)
    }
}

/// Reads fio's JSON, which may follow messages. Percentiles 50, 99 and 99.9 have to be in it.
pub fn measured(output: &str, pattern: Pattern) -> Result<Measured> {
    let failed = || Error::unexpected("read fio's result", output.chars().take(2000).collect::<String>());
    let json = output.find('{').map(|start| &output[start..]).ok_or_else(failed)?;
    let result: Value = serde_json::from_str(json).map_err(|_| failed())?;
    let job = &result["jobs"][0];
    if job["error"].as_i64() != Some(0) {
        return Err(failed());
    }
    let side = &job[if pattern.writes() { "write" } else { "read" }];
    let percentile = |name: &str| side["clat_ns"]["percentile"][name].as_u64().map(Duration::from_nanos);
    let read = || {
        Some(Measured {
            accesses: side["total_ios"].as_u64()?,
            bytes: side["io_bytes"].as_u64()?,
            took: Duration::from_millis(side["runtime"].as_u64()?),
            p50: percentile("50.000000")?,
            p99: percentile("99.000000")?,
            p999: percentile("99.900000")?,
            read_back_bytes: if pattern.writes() { job["read"]["io_bytes"].as_u64()? } else { 0 },
        })
    };
    read().ok_or_else(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESULT: &str = r#"fio: a message
{ "jobs": [ { "error": 0,
    "read": { "io_bytes": 8192, "total_ios": 2, "runtime": 1 },
    "write": { "io_bytes": 12288, "total_ios": 3, "runtime": 2,
        "clat_ns": { "percentile": { "50.000000": 90000, "99.000000": 150000, "99.900000": 200000 } } } } ] }"#;

    #[test]
    fn figures_are_those_of_the_loads_own_direction() {
        let measured = measured(RESULT, Pattern::RandomWrite).unwrap();
        assert_eq!((measured.accesses, measured.bytes, measured.read_back_bytes), (3, 12288, 8192));
        assert_eq!(measured.p50, Duration::from_micros(90));
        assert!((measured.iops() - 1500.0).abs() < 1e-9);
    }

    #[test]
    fn a_job_with_an_error_and_other_text_are_no_result() {
        assert!(measured(&RESULT.replace("\"error\": 0", "\"error\": 84"), Pattern::RandomWrite).is_err());
        assert!(measured("fio: nothing", Pattern::Read).is_err());
        assert!(measured("{}", Pattern::Read).is_err());
    }
}
