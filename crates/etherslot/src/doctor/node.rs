//! What every node needs of its machine: keys, folders, processors, a clock.

use std::path::Path;
use std::time::Duration;

use etherslot_runtime::control;
use etherslot_runtime::options::{FabricOptions, LoopOptions, SecurityOptions};

use super::Findings;
use super::machine::Machine;

/// `sun_path` of a Unix socket address, less the terminating zero.
const SOCKET_PATH_BYTES: usize = 107;
/// A node that polls for so long wants a core of its own.
const LONG_POLL: Duration = Duration::from_millis(1);
/// 2025-01-01: a clock before it was never set.
const LONG_AGO_S: u64 = 1_735_689_600;

/// Looks at what a configuration says of the node itself.
pub(super) fn check(
    machine: &dyn Machine,
    run: &LoopOptions,
    security: Option<&SecurityOptions>,
    fabric: Option<&FabricOptions>,
    findings: &mut Findings,
) {
    findings.about("keys", "[security]".to_owned());
    match security {
        None => {}
        Some(SecurityOptions::Keys { files, .. }) => match machine.keys(files) {
            Ok(()) => {
                findings.fine(format!("{} and {} can be used", files.fabric.display(), files.node.display()));
            }
            Err(reason) => findings.impossible(reason, "`etherslot keygen` makes what is missing"),
        },
        Some(SecurityOptions::Plaintext) => findings.warning(
            "plaintext: whoever reaches the link can read, change and use everything",
            "`etherslot keygen` on each node, and remove plaintext = true",
        ),
        Some(SecurityOptions::Memory) => {
            findings.fine("no keys are needed: all links are memory of this user");
        }
    }
    findings.about("control", "[node] control".to_owned());
    let usual = || Some(control::folder()?.join(control::file_name(&run.name)));
    match run.control.clone().or_else(usual) {
        Some(path) => socket_at(machine, "the control socket", &path, run.control.is_some(), findings),
        None => findings.warning(
            "there is no folder for the control socket: `etherslot stat` and `ls` can't ask the node",
            "set XDG_RUNTIME_DIR, or [node] control",
        ),
    }
    if let Some(path) = fabric.and_then(|fabric| fabric.state.as_ref()) {
        findings.about("state", "[fabric] state".to_owned());
        folder_for(machine, "leases", path, findings);
    }
    processors(machine, run, findings);
}

/// What holds without a configuration, too.
pub(super) fn clock(machine: &dyn Machine, is_in_fabric: bool, findings: &mut Findings) {
    findings.about("clock", "the machine".to_owned());
    let source = machine.read("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    if let Some(source) =
        source.filter(|source| matches!(&**source, "hpet" | "acpi_pm" | "jiffies" | "refined-jiffies"))
    {
        findings.warning(
            format!("the clock source is {source}: each look at the clock takes a microsecond, and a node looks for every frame"),
            "tsc where the machine has one that it trusts: look for `clocksource` in the kernel's log",
        );
    }
    if machine.now_s() < LONG_AGO_S {
        let what = "the clock was never set";
        if is_in_fabric {
            let what = format!(
                "{what}: the others take this node for an earlier life of itself, and refuse its orders"
            );
            findings.warning(what, "set it, and run a time service: chrony, systemd-timesyncd");
        } else {
            findings.hint(what, "set it, and run a time service");
        }
        return;
    }
    let status = machine.run("timedatectl", &["show", "--property=NTPSynchronized", "--value"]);
    match status.as_deref().map(str::trim) {
        Some("no") if is_in_fabric => findings.hint(
            "no time service sets the clock: set back, it makes the others refuse this node's orders",
            "chrony or systemd-timesyncd",
        ),
        _ => findings.fine("the clock is set"),
    }
}

fn processors(machine: &dyn Machine, run: &LoopOptions, findings: &mut Findings) {
    findings.about("processors", "the machine".to_owned());
    let governor = machine.read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
    if let Some(governor) = governor.filter(|governor| governor != "performance") {
        findings.hint(
            format!(
                "the processors' frequency follows the load (governor {governor}): short work finds them slow"
            ),
            "cpupower frequency-set -g performance",
        );
    }
    if run.busy_poll.is_some_and(|time| time >= LONG_POLL) {
        let isolated = machine.read("/sys/devices/system/cpu/isolated").unwrap_or_default();
        if isolated.is_empty() {
            findings.hint(
                "busy_poll wants a core of its own, and no core is set apart",
                "isolcpus=N on the kernel's command line, and CPUAffinity=N in the unit; or leave busy_poll out",
            );
        } else {
            findings
                .fine(format!("cores {isolated} are set apart: give the daemon one of them (CPUAffinity)"));
        }
        if machine.read("/sys/devices/system/cpu/online").is_some_and(|online| online == "0") {
            findings.warning("busy_poll keeps the only processor busy", "leave busy_poll out");
        }
    }
}

/// A socket that is to be made at `path`; `is_asked_for`: the node does not start without it.
pub(super) fn socket_at(
    machine: &dyn Machine,
    what: &str,
    path: &Path,
    is_asked_for: bool,
    findings: &mut Findings,
) {
    let bytes = path.as_os_str().len();
    if bytes > SOCKET_PATH_BYTES {
        let told = format!(
            "the path of {what} has {bytes} bytes, and no socket can have more than {SOCKET_PATH_BYTES}"
        );
        findings.unless(is_asked_for, told, "choose a shorter one");
        return;
    }
    match folder_of(machine, path) {
        Ok(()) => findings.fine(format!("{what} can be made at {}", path.display())),
        Err(reason) => {
            let remedy = "make the folder, with this user as its owner (RuntimeDirectory= in the unit)";
            findings.unless(is_asked_for, format!("{what}: {reason}"), remedy);
        }
    }
}

/// A file that is to be made, or replaced, at `path`.
pub(super) fn folder_for(machine: &dyn Machine, what: &str, path: &Path, findings: &mut Findings) {
    match folder_of(machine, path) {
        Ok(()) => findings.fine(format!("{what} can be kept at {}", path.display())),
        Err(reason) => {
            findings.impossible(format!("{what}: {reason}"), "make the folder, with this user as its owner");
        }
    }
}

/// Whether the folder that `path` is in can be written to, or made.
fn folder_of(machine: &dyn Machine, path: &Path) -> Result<(), String> {
    let ancestors = path.ancestors().skip(1).filter(|folder| !folder.as_os_str().is_empty());
    for folder in ancestors {
        let Some(entry) = machine.entry(folder) else { continue };
        return match (entry.is_folder, entry.is_writable) {
            (false, _) => Err(format!("{} is no folder", folder.display())),
            (true, false) => Err(format!("this user may not make files in {}", folder.display())),
            (true, true) => Ok(()),
        };
    }
    Ok(())
}
