//! `etherslot`: the I/O box and the host node of PCI Express over Ethernet.
#![allow(clippy::cast_precision_loss)] // Of rates and scaled numbers three digits are shown.

mod config;
mod copy;
mod doctor;
mod events;
mod export;
mod fabric;
mod link;
mod nvme;
mod pages;
mod security;
mod stat;
mod units;
mod value;
mod verbs;

use std::io::{IsTerminal as _, stderr};
use std::path::PathBuf;
use std::process::{self, ExitCode};
use std::time::Duration;

use anyhow::Result;
use clap::{Args, Parser, Subcommand};
use etherslot_runtime::options::ListenAddress;
use tracing_subscriber::EnvFilter;

const EXIT_STATUS: &str = "Exit status: 0, done; 1, not done, and why is on standard error; 2, wrong usage.";

/// PCI Express over plain Ethernet.
#[derive(Parser)]
#[command(version, about, max_term_width = 100, after_help = EXIT_STATUS)]
struct Cli {
    /// What to log: a level, or directives such as `etherslot_node=debug`. The default is info, but warn for `nvme` and `copy`.
    #[arg(long, global = true, env = "ETHERSLOT_LOG", value_name = "FILTER")]
    log: Option<String>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serves the devices of an I/O box to the hosts of the network.
    Box(Daemon),
    /// Offers remote devices to virtual machines of this host, as vfio-user sockets.
    Host(Daemon),
    /// Checks configuration files, and shows them as they are in effect.
    #[command(subcommand)]
    Config(config::command::Config),
    /// Makes the keys that a node needs, and shows its public key.
    Keygen(security::Keygen),
    /// Shows what running nodes of this machine count: sessions, round-trip times, losses.
    Stat(stat::Stat),
    /// Looks whether this machine can do what a configuration asks of it. Exit status 1: something makes it impossible.
    Doctor(Box<doctor::Doctor>),
    /// Tells what happens to a node as it happens: nodes, devices, sessions, links, guests.
    Events(events::Events),
    /// Shows the fabric: hosts, boxes, devices, and who uses what.
    Ls(fabric::Ls),
    /// Gives a device to a host, puts it into a group, or makes it anybody's.
    ///
    /// A guest that has it is asked to let it go, and does, mounted or not: what a file system has not written yet is lost. Unmount first.
    Assign(fabric::Assign),
    /// Takes a device back: nobody has it until it is assigned again, to a host, a group, or `anybody`.
    ///
    /// A guest that has it is asked to let it go, and does, mounted or not: what a file system has not written yet is lost. Unmount first.
    Release(fabric::Release),
    /// Measures what a session carries over a link.
    #[command(subcommand)]
    Link(link::Link),
    /// Uses remote NVMe devices from this very machine, without a VM.
    #[command(subcommand)]
    Nvme(nvme::Nvme),
    /// Copies between remote disks, past this machine, or between a disk and a file.
    Copy(Box<copy::Copy>),
    /// Offers remote disks to programs by the Network Block Device protocol (NBD).
    Export(Box<export::Export>),
    /// Runs programs that use RDMA verbs, without RDMA hardware or a driver.
    #[command(subcommand)]
    Verbs(verbs::Verbs),
    /// Prints what a shell needs to complete commands, options and their values.
    Completions(pages::Completions),
    /// Prints the manual page of etherslot, or writes those of all commands into a folder.
    Man(pages::Man),
    /// Started by `host`, to end its guests' connections in order should it be killed.
    #[command(hide = true)]
    Keeper,
}

#[derive(Args)]
struct Daemon {
    /// The configuration file (TOML).
    #[arg(long, env = "ETHERSLOT_CONFIG", value_name = "FILE")]
    config: PathBuf,
    /// Check the configuration and stop; `etherslot config check` tells more.
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    changes: Changes,
}

/// What changes a configuration file.
#[derive(Args)]
struct Changes {
    /// Poll for this long before sleeping, as in 50us; 0s sleeps at once. By default, as long as it pays.
    #[arg(long, env = "ETHERSLOT_BUSY_POLL", value_name = "DURATION", value_parser = humantime::parse_duration)]
    busy_poll: Option<Duration>,
    /// Where the control socket is to be, if not in its usual folder.
    #[arg(long, env = "ETHERSLOT_CONTROL", value_name = "PATH")]
    control: Option<PathBuf>,
    /// Serve metrics for Prometheus at this place, as in 127.0.0.1:9464 or `unix:/PATH`.
    #[arg(long, env = "ETHERSLOT_METRICS", value_name = "ADDRESS")]
    metrics: Option<ListenAddress>,
    /// Write all frames of the link to this pcapng file.
    #[arg(long, env = "ETHERSLOT_CAPTURE", value_name = "FILE")]
    capture: Option<PathBuf>,
    /// Make faults on purpose, as in `loss=1%,reorder=1%,duplicate=1%,seed=7`.
    #[arg(long, env = "ETHERSLOT_IMPAIR", value_name = "FAULTS")]
    impair: Option<String>,
    #[command(flatten)]
    security: security::SecurityFlags,
}

fn run(cli: Cli) -> Result<()> {
    let log = cli.log.unwrap_or_else(|| {
        // What is printed there is the answer.
        let level = if matches!(cli.command, Command::Nvme(_) | Command::Copy(_)) { "warn" } else { "info" };
        level.to_owned()
    });
    let filter = EnvFilter::try_new(&log)
        .map_err(|error| anyhow::anyhow!("--log {log:?}: {error}; use a level such as info or debug"))?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(stderr)
        .with_ansi(stderr().is_terminal())
        .with_target(false)
        .init();
    match cli.command {
        Command::Box(daemon) => {
            let options = config::read::<config::BoxFile>(&daemon.config, &daemon.changes.overrides())?;
            security::warn(&options.security);
            if !daemon.check {
                etherslot_runtime::box_daemon::run(&options)?;
            }
        }
        Command::Host(daemon) => {
            let options = config::read::<config::HostFile>(&daemon.config, &daemon.changes.overrides())?;
            security::warn(&options.security);
            if !daemon.check {
                // This very program, whatever has become of its file.
                let mut keeper = process::Command::new("/proc/self/exe");
                keeper.arg("keeper");
                etherslot_runtime::host_daemon::run(options, keeper)?;
            }
        }
        Command::Config(config) => config.run()?,
        Command::Keygen(keygen) => keygen.run()?,
        Command::Stat(stat) => stat.run()?,
        Command::Doctor(doctor) => doctor.run()?,
        Command::Events(events) => events.run()?,
        Command::Ls(ls) => ls.run()?,
        Command::Assign(assign) => assign.run()?,
        Command::Release(release) => release.run()?,
        Command::Link(link) => link.run()?,
        Command::Nvme(nvme) => nvme.run()?,
        Command::Copy(copy) => copy.run()?,
        Command::Export(export) => export.run()?,
        Command::Verbs(verbs) => verbs.run()?,
        Command::Completions(completions) => completions.run()?,
        Command::Man(man) => man.run()?,
        Command::Keeper => etherslot_runtime::keeper::run()?,
    }
    Ok(())
}

impl Changes {
    fn overrides(self) -> config::Overrides {
        let Self { busy_poll, control, metrics, capture, impair, security } = self;
        config::Overrides { busy_poll, control, metrics, capture, impair, security }
    }
}

/// An error with its causes, but for those that it has told already.
fn told(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |told, cause| match told {
        told if told.is_empty() => cause,
        told if told.contains(&cause) => told,
        told => format!("{told}: {cause}"),
    })
}

/// 0: a clean stop. 1: it could not start or go on. 2: wrong usage (clap).
fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("etherslot: {}", told(&error));
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_told_once() {
        let cause = anyhow::anyhow!("no such interface");
        assert_eq!(told(&cause.context("[link] no such interface")), "[link] no such interface");
        assert_eq!(
            told(&anyhow::anyhow!("no such file").context("in box.toml")),
            "in box.toml: no such file"
        );
    }
}
