//! An `etherslot` process, in a namespace or not, driven as an operator does: a configuration file, signals, a log.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::keys::{KEY_VARIABLE, node_keys};
use crate::net::{Net, Side};
use crate::process::{Process, mortal};
use crate::run::Run;

const BINARY_VARIABLE: &str = "ETHERSLOT_BIN";
const READY: &str = "ready";
const READY_TIMEOUT: Duration = Duration::from_mins(1);
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// Which daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// `etherslot box`.
    Box,
    /// `etherslot host`.
    Host,
}

impl Role {
    fn command(self) -> &'static str {
        match self {
            Self::Box => "box",
            Self::Host => "host",
        }
    }

    fn side(self) -> Side {
        match self {
            Self::Box => Side::Box,
            Self::Host => Side::Host,
        }
    }
}

/// The `etherslot` binary to test: that of the environment, else the one built beside this program.
pub fn etherslot_binary() -> Result<PathBuf> {
    if let Some(binary) = env::var_os(BINARY_VARIABLE) {
        let binary = PathBuf::from(binary);
        return if binary.is_file() {
            Ok(binary)
        } else {
            Err(Error::setup(
                format!("{BINARY_VARIABLE}={} is no file", binary.display()),
                "correct or unset it",
            ))
        };
    }
    let program = env::current_exe().map_err(Error::io("find this program"))?;
    program
        .ancestors()
        .skip(1)
        .take(2)
        .map(|folder| folder.join("etherslot"))
        .find(|path| path.is_file())
        .ok_or_else(|| {
            Error::setup(
                format!("no etherslot binary beside {}", program.display()),
                format!("build it (./run build) or name it in {BINARY_VARIABLE}"),
            )
        })
}

/// The `etherslot` command in the namespace of a side, killed when the lab dies; arguments are the caller's to add.
pub fn etherslot_command(net: &Net, side: Side) -> Result<Command> {
    Ok(mortal(Some(&net.namespace(side)), &etherslot_binary()?))
}

/// A running `etherslot box` or `etherslot host`.
#[derive(Debug)]
pub struct Daemon {
    run: Run,
    namespace: Option<String>,
    role: Role,
    name: String,
    starts: u32,
    process: Process,
}

impl Daemon {
    /// Writes `config` to `NAME.toml` of the run's folder, starts the daemon in its side's namespace and waits until
    /// it says that it is ready. `name` must be unique in the run.
    pub fn start(run: &Run, net: &Net, role: Role, name: &str, config: &str) -> Result<Self> {
        Self::start_at(run, net, role.side(), role, name, config)
    }

    /// The same at whichever side.
    pub fn start_at(run: &Run, net: &Net, side: Side, role: Role, name: &str, config: &str) -> Result<Self> {
        Self::start_in(run, Some(net.namespace(side)), role, name, config)
    }

    /// The same on the machine itself, without an Ethernet of the lab's.
    pub fn start_here(run: &Run, role: Role, name: &str, config: &str) -> Result<Self> {
        Self::start_in(run, None, role, name, config)
    }

    fn start_in(run: &Run, namespace: Option<String>, role: Role, name: &str, config: &str) -> Result<Self> {
        let process = launch(run, namespace.as_deref(), role, name, config, 0)?;
        let mut daemon =
            Self { run: run.clone(), namespace, role, name: name.to_owned(), starts: 1, process };
        daemon.wait_ready()?;
        Ok(daemon)
    }

    /// Starts it again, after it has ended, with the same or another configuration.
    pub fn restart(&mut self, config: &str) -> Result<()> {
        self.process.kill();
        self.process =
            launch(&self.run, self.namespace.as_deref(), self.role, &self.name, config, self.starts)?;
        self.starts += 1;
        self.wait_ready()
    }

    fn wait_ready(&mut self) -> Result<()> {
        self.wait_for_log(READY, READY_TIMEOUT)
    }

    /// Waits until a line of the log of its present life contains `text`.
    pub fn wait_for_log(&mut self, text: &str, timeout: Duration) -> Result<()> {
        self.process
            .wait_until(&format!("\"{text}\" in its log"), timeout, |process| process.log().contains(text))
    }

    /// Its control socket.
    pub fn control(&self) -> PathBuf {
        self.run.path(&format!("{}.control", self.name))
    }

    /// The log of its present life.
    pub fn log(&self) -> String {
        self.process.log()
    }

    /// Its process, for signals, memory and so on.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Whether it runs.
    pub fn is_running(&mut self) -> bool {
        self.process.is_running()
    }

    /// SIGTERM; its exit status.
    pub fn stop(&mut self) -> Result<ExitStatus> {
        self.process.terminate(STOP_TIMEOUT)
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        self.process.kill();
    }
}

fn launch(
    run: &Run,
    namespace: Option<&str>,
    role: Role,
    name: &str,
    config: &str,
    start: u32,
) -> Result<Process> {
    let file = run.path(&format!("{name}.toml"));
    fs::write(&file, config).map_err(Error::io(format!("write {}", file.display())))?;
    let mut command = mortal(namespace, &etherslot_binary()?);
    command.arg(role.command()).arg("--config").arg(&file).current_dir(run.folder());
    // Nodes of other runs on this machine may have the same name.
    // One that says nothing about keys has some.
    if !config.contains("[security]") {
        command.env(KEY_VARIABLE, node_keys(run, name)?);
    }
    command.env("ETHERSLOT_CONTROL", run.path(&format!("{name}.control")));
    Process::start(name, command, &run.path(&format!("{name}.{start}.log")))
}
