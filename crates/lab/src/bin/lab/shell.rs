//! A guest for a person, or for one command.

use std::io::{IsTerminal as _, Write as _, stderr, stdin, stdout};
use std::os::unix::process::CommandExt as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Args;
use etherslot_lab::{Cache, Console, Guest, KERNELS, RigBase, Run, bare_qemu};
use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};

use crate::setting::{self, Setting, clean_up_on_signals};

const DISK_TIMEOUT: Duration = Duration::from_secs(30);
const FOREVER: Duration = Duration::from_secs(u64::MAX / 4);

/// Options of `lab exec`.
#[derive(Clone, Debug, Args)]
pub(crate) struct Exec {
    #[command(flatten)]
    setting: Setting,
    /// How long the command may take
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    timeout: u64,
    /// Shell text to run
    command: String,
}

/// The guest of a setting, with the daemons it needs: they live as long as the second value.
fn start(
    run: &Run,
    cache: &Cache,
    setting: &Setting,
    console: Console,
) -> Result<(Guest, Option<impl Sized>)> {
    let options = setting.rig_options(run, console)?;
    if !setting.has_remote() {
        return Ok((Guest::start(run, cache, &options.guest)?, None));
    }
    let rig = RigBase::start(run, options)?.boot(run, cache)?;
    Ok((rig.guest, Some((rig.host, rig.io_box, rig.net))))
}

/// Runs one command; its exit status is ours.
pub(crate) fn exec(exec: &Exec) -> Result<ExitCode> {
    let cache = setting::cache(&exec.setting.kernel)?;
    let run = Run::new("exec")?;
    clean_up_on_signals(&run)?;
    let (mut guest, _daemons) = start(&run, &cache, &exec.setting, Console::Log)?;
    for serial in exec.setting.serials() {
        guest.nvme(serial, DISK_TIMEOUT)?;
    }
    let output = guest.run(&exec.command, Duration::from_secs(exec.timeout))?;
    stdout().write_all(output.stdout.as_bytes()).context("print the command's output")?;
    guest.power_off(DISK_TIMEOUT)?;
    Ok(ExitCode::from(u8::try_from(output.status).unwrap_or(u8::MAX)))
}

/// The guest's console on this terminal, until the guest is powered off.
pub(crate) fn shell(setting: &Setting) -> Result<()> {
    let cache = setting::cache(&setting.kernel)?;
    let run = Run::new("shell")?;
    clean_up_on_signals(&run)?;
    // QEMU puts the terminal into raw mode; if it is killed, nobody else would put it back.
    let before = if stdin().is_terminal() { tcgetattr(stdin()).ok() } else { None };
    if stderr().is_terminal() {
        eprintln!("lab: starting; logs are in {} until the end", run.folder().display());
    }
    let result = start(&run, &cache, setting, Console::Terminal)
        .and_then(|(mut guest, _daemons)| guest.wait(FOREVER).map(drop).context("the guest's console"));
    if let Some(before) = before {
        let _ = tcsetattr(stdin(), OptionalActions::Now, &before);
    }
    result
}

/// Becomes the lab's QEMU.
pub(crate) fn qemu(boots: bool, options: &[String]) -> Result<ExitCode> {
    let cache = setting::cache(&KERNELS[0])?;
    let error = bare_qemu(&cache, boots).args(options).exec();
    Err(error).context("start QEMU")
}
