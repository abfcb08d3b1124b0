//! `lab`: the test lab for a person. `lab demo` shows the product, `lab shell` puts one in front of it.

mod demo;
mod progress;
mod setting;
mod shell;
mod table;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};
use etherslot_lab::{Cache, Root, Run};

use crate::setting::Setting;

/// Etherslot's test lab: guests, network namespaces and daemons on this machine. Needs root.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 110)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Fetch and build what is missing: QEMU, a guest kernel, the guest's programs
    Setup {
        #[arg(long, value_name = "NAME", default_value = "stable", value_parser = setting::kernel)]
        kernel: etherslot_lab::KernelSource,
    },
    /// Show a guest with a disk at the other end of an Ethernet, and what it does
    Demo(demo::Arguments),
    /// A shell in such a guest
    Shell(Setting),
    /// Run one command in such a guest, and print what it prints
    Exec(shell::Exec),
    /// The lab's QEMU, for guests of your own: everything that follows are its options
    Qemu {
        /// Boot the lab's kernel and programs, with a shell on this terminal
        #[arg(long)]
        guest: bool,
        /// QEMU's options
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTION")]
        options: Vec<String>,
    },
    /// Fetch Debian 13's programs that use RDMA verbs, and print the folder that they are in
    Verbs,
    /// Remove the cache, and what killed runs have left behind
    Clean,
}

fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("lab: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Setup { kernel } => {
            let cache = setting::cache(&kernel)?;
            eprintln!(
                "lab: ready in {}: {}, Linux {}, {}",
                Cache::folder().display(),
                cache.qemu().version(),
                cache.kernel_release(),
                cache.accel().name()
            );
            let script = Cache::folder().join("qemu-system-x86_64");
            fs::write(&script, cache.qemu().script())
                .and_then(|()| fs::set_permissions(&script, fs::Permissions::from_mode(0o755)))
                .with_context(|| format!("write {}", script.display()))?;
            eprintln!("lab: QEMU for guests of your own: {}, or `./run lab qemu`", script.display());
            Ok(ExitCode::SUCCESS)
        }
        Command::Demo(arguments) => demo::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Shell(setting) => shell::shell(&setting).map(|()| ExitCode::SUCCESS),
        Command::Exec(exec) => shell::exec(&exec),
        Command::Qemu { guest, options } => shell::qemu(guest, &options),
        Command::Verbs => {
            println!("{}", Root::ensure()?.path().display());
            Ok(ExitCode::SUCCESS)
        }
        Command::Clean => {
            Run::clean_stale().context("clean up after killed runs")?;
            Cache::remove().context("remove the cache")?;
            eprintln!("lab: removed {}", Cache::folder().display());
            Ok(ExitCode::SUCCESS)
        }
    }
}
