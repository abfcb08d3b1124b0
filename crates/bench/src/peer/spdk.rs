//! SPDK: its NVMe/TCP target on a block device in memory, and its `perf`. Both poll.
//!
//! SPDK is not packaged; who has built it gives its tree.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use etherslot_lab::{BOX_IP, Process, Side};
use serde_json::json;

use super::Peer;
use crate::bed::Bed;
use crate::contender::Setup;
use crate::load::{Figures, Load};

const SUBSYSTEM: &str = "nqn.2026-01.invalid.etherslot:memory";
const PORT: &str = "4420";
const START: Duration = Duration::from_secs(30);
/// Memory of `perf`, and of the target besides its block device, MiB.
const CLIENT_MIB: u32 = 256;
const SERVER_MIB: u32 = 400;
/// What both take beyond what they are told to.
const SPARE_MIB: u32 = 128;

pub(crate) struct Spdk {
    server: Process,
    setup: Setup,
    tree: PathBuf,
    runtime: PathBuf,
}

/// Huge pages of target and client, MiB.
pub(crate) fn huge_mib(memory_mib: u32) -> u32 {
    memory_mib + SERVER_MIB + CLIENT_MIB + SPARE_MIB
}

/// The target and `perf` of a tree.
fn programs(tree: &Path) -> [PathBuf; 2] {
    ["build/bin/nvmf_tgt", "build/examples/perf"].map(|program| tree.join(program))
}

/// The tree that was given, if it is built.
pub(crate) fn tree(given: Option<&Path>) -> Result<PathBuf> {
    let Some(tree) = given else {
        bail!("SPDK's tree is not given: build SPDK, and name it in --spdk or SPDK_TREE");
    };
    let tree = fs::canonicalize(tree).with_context(|| format!("SPDK's tree {}", tree.display()))?;
    match programs(&tree).iter().find(|program| !program.is_file()) {
        Some(missing) => bail!("SPDK is not built: {} is missing", missing.display()),
        None => Ok(tree),
    }
}

impl Spdk {
    pub(crate) fn start(bed: &Bed, setup: Setup) -> Result<Self> {
        let tree = tree(bed.choices.spdk.as_deref())?;
        let server_mib = bed.choices.memory_mib + SERVER_MIB;
        let pages = bed.huge_pages()?;
        let runtime = bed.path("spdk");
        fs::create_dir_all(&runtime)?;
        let config = bed.path("spdk.json");
        fs::write(&config, configuration(bed.memory_bytes()).to_string())?;
        let [target, _] = programs(&tree);
        let mut command = bed.command(Side::Box, setup, &target)?;
        surroundings(&mut command, &tree, &runtime);
        command.args(["--no-pci", "--cpumask", &format!("[{}]", bed.choices.server_cpu)]);
        command.args(["--mem-size", &server_mib.to_string(), "--huge-unlink", "--huge-dir"]).arg(pages);
        // Neither traces nor locks, which would be left behind.
        command.args(["--num-trace-entries", "0", "--disable-cpumask-locks"]);
        command.arg("--rpc-socket").arg(bed.path("spdk.rpc")).arg("--config").arg(&config);
        let mut server = bed.serve(&setup.name(), command)?;
        server.wait_until("its listener", START, |server| server.log().contains("Target Listening"))?;
        Ok(Self { server, setup, tree, runtime })
    }
}

/// Built with shared libraries or without; what DPDK writes goes to a folder of the run.
fn surroundings(command: &mut Command, tree: &Path, runtime: &Path) {
    command.env("LD_LIBRARY_PATH", tree.join("build/lib")).env("RUNTIME_DIRECTORY", runtime);
}

fn configuration(memory_bytes: u64) -> serde_json::Value {
    let block_device = json!({"name": "memory", "num_blocks": memory_bytes / 512, "block_size": 512});
    let subsystem = json!({"nqn": SUBSYSTEM, "allow_any_host": true, "serial_number": "MEMORY"});
    let namespace = json!({"nqn": SUBSYSTEM, "namespace": {"bdev_name": "memory"}});
    let address = json!({"trtype": "TCP", "adrfam": "IPv4", "traddr": BOX_IP, "trsvcid": PORT});
    let listener = json!({"nqn": SUBSYSTEM, "listen_address": address});
    json!({"subsystems": [
        {"subsystem": "bdev", "config": [{"method": "bdev_malloc_create", "params": block_device}]},
        {"subsystem": "nvmf", "config": [
            {"method": "nvmf_create_transport", "params": {"trtype": "TCP"}},
            {"method": "nvmf_create_subsystem", "params": subsystem},
            {"method": "nvmf_subsystem_add_ns", "params": namespace},
            {"method": "nvmf_subsystem_add_listener", "params": listener},
        ]},
    ]})
}

/// Reads what `perf -L` prints: a line of totals, and percentiles.
fn figures(output: &str) -> Option<Figures> {
    let total = output.lines().find_map(|line| line.trim().strip_prefix("Total ")?.split_once(':'))?.1;
    let iops = total.split_whitespace().next()?.parse().ok()?;
    let percentile = |name: &str| {
        let line =
            output.lines().find_map(|line| line.trim().strip_prefix(name)?.trim().strip_prefix(':'))?;
        line.trim().strip_suffix("us")?.parse().ok()
    };
    Some(Figures {
        iops,
        p50_us: percentile("50.00000%"),
        p99_us: percentile("99.00000%"),
        p999_us: percentile("99.90000%"),
        server_us: None,
    })
}

impl Peer for Spdk {
    fn measure(&mut self, bed: &Bed, load: &Load, time: Duration) -> Result<Figures> {
        let [_, perf] = programs(&self.tree);
        let mut command = bed.command(Side::Host, self.setup, &perf)?;
        surroundings(&mut command, &self.tree, &self.runtime);
        command.args(["-c", &format!("[{}]", bed.choices.client_cpu), "-s", &CLIENT_MIB.to_string(), "-L"]);
        command.args(["-q", &load.depth.to_string(), "-o", &load.block_bytes.to_string()]);
        command.args(["-w", load.direction.random(), "-t", &time.as_secs().max(1).to_string()]);
        command
            .arg("-r")
            .arg(format!("trtype:TCP adrfam:IPv4 traddr:{BOX_IP} trsvcid:{PORT} subnqn:{SUBSYSTEM}"));
        let output = bed.client("spdk-client", command, time)?;
        figures(&output).context("perf told no total")
    }

    fn server(&mut self) -> Option<&mut Process> {
        Some(&mut self.server)
    }
}

#[cfg(test)]
mod tests {
    use super::figures;

    const OUTPUT: &str = "Initialization complete. Launching workers.
========================================================
                                                          Latency(us)
Device Information                  :       IOPS      MiB/s    Average        min        max
TCP (addr:10.77.0.2) NSID 1 from core  0:  160310.42     626.21     199.77      51.43   24142.97
========================================================
Total                               :  160310.42     626.21     199.77      51.43   24142.97

Summary latency data for TCP (addr:10.77.0.2 subnqn:x from core 0:
=================================================================================
  1.00000% :    71.680us
 50.00000% :    98.816us
 99.00000% :  4292.608us
 99.90000% :  8978.432us
 99.99000% : 20447.232us
";

    #[test]
    fn totals_and_percentiles_of_perf_are_read() {
        let figures = figures(OUTPUT).unwrap();
        assert!((figures.iops - 160_310.42).abs() < 1e-6);
        assert_eq!(
            (figures.p50_us, figures.p99_us, figures.p999_us),
            (Some(98.816), Some(4292.608), Some(8978.432))
        );
        assert_eq!(super::figures("Initializing NVMe Controllers"), None);
    }
}
