//! The contenders: how each is started, and how a load is put on it.

pub(crate) mod etherslot;
pub(crate) mod iscsi;
pub(crate) mod local;
pub(crate) mod nbdkit;
pub(crate) mod spdk;

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use etherslot_lab::Process;
use etherslot_lab::fio::{self, Pattern};

use crate::bed::Bed;
use crate::load::{Direction, Figures, Load};

/// A contender at work.
pub(crate) trait Peer {
    /// Puts a load on it for this time.
    fn measure(&mut self, bed: &Bed, load: &Load, time: Duration) -> Result<Figures>;

    /// Its server, if there is one.
    fn server(&mut self) -> Option<&mut Process>;

    /// Whether the server is stopped while others are measured.
    fn rests(&self) -> bool {
        true
    }

    /// Whether it can be given such a load.
    fn takes(&self, _load: &Load) -> bool {
        true
    }
}

/// fio's options for a load on `memory_bytes`; the engine is the caller's to add.
fn fio_options(load: &Load, memory_bytes: u64, time: Duration) -> Vec<String> {
    vec![
        "--name=load".to_owned(),
        format!("--rw={}", load.direction.random()),
        format!("--bs={}", load.block_bytes),
        format!("--iodepth={}", load.depth),
        format!("--size={memory_bytes}"),
        format!("--runtime={}ms", time.as_millis()),
        "--time_based".to_owned(),
        "--randrepeat=0".to_owned(),
        "--norandommap".to_owned(),
        "--percentile_list=50:99:99.9".to_owned(),
        "--output-format=json".to_owned(),
    ]
}

fn fio_figures(output: &str, load: &Load) -> Result<Figures> {
    let pattern = match load.direction {
        Direction::Read => Pattern::RandomRead,
        Direction::Write => Pattern::RandomWrite,
    };
    let measured = fio::measured(output, pattern)?;
    ensure!(measured.accesses > 0, "no access was completed");
    let us = |time: Duration| Some(time.as_secs_f64() * 1e6);
    Ok(Figures {
        iops: measured.iops(),
        p50_us: us(measured.p50),
        p99_us: us(measured.p99),
        p999_us: us(measured.p999),
        server_us: None,
    })
}

/// CPU time of a process so far, seconds: that of its threads, finer than the ticks of `/proc/PID/stat`.
pub(crate) fn cpu_seconds(pid: u32) -> Option<f64> {
    let threads = fs::read_dir(Path::new("/proc").join(pid.to_string()).join("task")).ok()?;
    let times = threads.flatten().filter_map(|thread| {
        let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    });
    let ns: u64 = times.sum();
    (ns > 0).then(|| ns as f64 / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_cpu_time_and_none_has_none() {
        assert!(cpu_seconds(std::process::id()).is_some_and(|seconds| seconds > 0.0));
        assert_eq!(cpu_seconds(u32::MAX), None);
    }

    #[test]
    fn figures_of_fio_are_in_microseconds() {
        let output = r#"fio: connected to NBD server
            { "jobs": [ { "error": 0, "read": { "io_bytes": 8192000, "total_ios": 2000, "runtime": 1000,
              "clat_ns": { "percentile": { "50.000000": 9000, "99.000000": 15000, "99.900000": 20000 } } },
              "write": {} } ] }"#;
        let load = Load { direction: Direction::Read, block_bytes: 4096, depth: 1 };
        let figures = fio_figures(output, &load).unwrap();
        assert!((figures.iops - 2000.0).abs() < 1e-6);
        assert!(figures.p999_us.is_some_and(|us| (us - 20.0).abs() < 1e-6));
        assert!(fio_figures("fio: nothing", &load).is_err());
    }
}
