//! What boxes and hosts have at their ends: files and disks, QEMU and its sockets.

use std::path::Path;

use etherslot_runtime::options::{Backing, DeviceOptions, SlotOptions};

use super::Findings;
use super::machine::Machine;
use super::node::socket_at;

/// The first release of QEMU with a vfio-user client.
const OLDEST_QEMU: (u32, u32) = (10, 1);
/// The program that is looked for unless another one is named.
pub(super) const QEMU: &str = "qemu-system-x86_64";

/// Looks at a box's devices.
pub(super) fn of_box(machine: &dyn Machine, devices: &[DeviceOptions], findings: &mut Findings) {
    let mut has_files = false;
    let mut memory_bytes = 0_u64;
    for device in devices {
        findings.about("medium", format!("device {}", device.name));
        for namespace in device.stores() {
            let path = match &namespace.backing {
                Backing::Memory(bytes) => {
                    memory_bytes = memory_bytes.saturating_add(*bytes);
                    continue;
                }
                Backing::File(path) => path,
            };
            has_files = true;
            let shown = path.display();
            let Some(entry) = machine.entry(path) else {
                if namespace.removable {
                    findings.hint(format!("{shown} is not there: the disk is out"), "put the file there");
                    continue;
                }
                findings
                    .impossible(format!("{shown} is not there"), format!("make it: truncate -s 10G {shown}"));
                continue;
            };
            let is_enough = entry.is_readable && (namespace.read_only || entry.is_writable);
            if entry.is_folder {
                findings.impossible(format!("{shown} is a folder"), "name a file or a block device");
            } else if !is_enough {
                let how = if namespace.read_only { "read" } else { "write to" };
                findings.impossible(
                    format!("this user may not {how} {shown}"),
                    "chown or chmod it, add the user to the group disk, or read_only = true",
                );
            } else if !entry.is_block_device && entry.bytes < u64::from(namespace.block_bytes) {
                findings.impossible(
                    format!("{shown} has {} bytes: not one block", entry.bytes),
                    format!("truncate -s 10G {shown}"),
                );
            } else if !entry.is_block_device && !entry.bytes.is_multiple_of(u64::from(namespace.block_bytes))
            {
                findings.hint(
                    format!(
                        "{shown} has {} bytes: the end that is no whole block of {} is not used",
                        entry.bytes, namespace.block_bytes
                    ),
                    "truncate it to a multiple",
                );
            } else {
                findings.fine(format!("{shown} can be used"));
            }
        }
    }
    findings.about("memory", "the machine".to_owned());
    let available = machine.read("/proc/meminfo").and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?.to_owned();
        line.split_whitespace().next()?.parse::<u64>().ok()
    });
    if let Some(available) = available.map(|kib| kib << 10).filter(|&available| memory_bytes > available) {
        findings.impossible(
            format!(
                "namespaces in memory take {} MiB, and {} MiB are there",
                memory_bytes >> 20,
                available >> 20
            ),
            "make them smaller, or use files",
        );
    }
    findings.about("io_uring", "the kernel".to_owned());
    match machine.read("/proc/sys/kernel/io_uring_disabled").as_deref() {
        Some("2") if has_files => findings.impossible(
            "io_uring is switched off: files and block devices can't be used",
            "sysctl -w kernel.io_uring_disabled=0",
        ),
        Some("1") if has_files && !super::links::may(machine, &[21]) => findings.impossible(
            "io_uring is for privileged users alone (kernel.io_uring_disabled = 1)",
            "sysctl -w kernel.io_uring_disabled=0, or put the user into kernel.io_uring_group",
        ),
        _ => {}
    }
}

/// Looks at a host's slots.
pub(super) fn of_host(machine: &dyn Machine, slots: &[SlotOptions], program: &str, findings: &mut Findings) {
    for slot in slots {
        findings.about("socket", format!("slot of {}", slot.device));
        socket_at(machine, "the socket for QEMU", &slot.socket, true, findings);
        if let Some(hot_plug) = &slot.hot_plug {
            findings.about("monitor", format!("slot of {}", slot.device));
            monitor(machine, &hot_plug.monitor, findings);
        }
    }
    qemu(machine, program, true, findings);
}

/// Looks at the monitor of a guest, which may start later.
fn monitor(machine: &dyn Machine, path: &Path, findings: &mut Findings) {
    let shown = path.display();
    match machine.entry(path) {
        None => findings.hint(
            format!("{shown} is not there: no guest runs that devices could enter"),
            format!("QEMU makes it: -qmp unix:{shown},server=on,wait=off"),
        ),
        Some(entry) if !entry.is_writable => findings.impossible(
            format!("this user may not use QEMU's monitor {shown}"),
            "run the host as QEMU's user, or give it QEMU's group",
        ),
        Some(_) => findings.fine(format!("QEMU's monitor is at {shown}")),
    }
}

/// Looks at QEMU; `is_needed`: there are slots for it.
pub(super) fn qemu(machine: &dyn Machine, program: &str, is_needed: bool, findings: &mut Findings) {
    findings.about("qemu", program.to_owned());
    let newer = "QEMU 10.1 or newer, with vfio-user-pci: Debian 13 has it in trixie-backports; elsewhere `./run lab qemu` of Etherslot's sources fetches and runs it";
    let Some(version) = machine.run(program, &["--version"]) else {
        let is_there = program.contains('/') && machine.entry(Path::new(program)).is_some();
        let what = if is_there {
            format!("{program} does not run: it says itself why")
        } else {
            format!("{program} is not there: virtual machines need one")
        };
        if is_needed {
            findings.warning(what, format!("{newer}; --qemu says which one to look at"));
        } else {
            findings.hint(what, newer);
        }
        return;
    };
    let first = version.lines().next().unwrap_or_default().to_owned();
    let Some(number) = number(&version) else {
        findings.warning(format!("{program} is of no version that is understood: {first}"), newer);
        return;
    };
    if number < OLDEST_QEMU {
        let what = format!("{first} has no vfio-user client: its virtual machines can't use a slot");
        findings.unless(is_needed, what, newer);
        return;
    }
    let devices = machine.run(program, &["-device", "help"]).unwrap_or_default();
    if devices.contains("\"vfio-user-pci\"") {
        findings.fine(format!("{first} has vfio-user-pci"));
    } else {
        let remedy = "another build of QEMU (--enable-vfio-user-client), or its package of modules";
        findings.unless(is_needed, format!("{first} was built without vfio-user-pci"), remedy);
    }
}

/// Major and minor version in `QEMU emulator version 10.1.0 (…)`.
fn number(version: &str) -> Option<(u32, u32)> {
    let (_, rest) = version.split_once("version ")?;
    let mut parts = rest.split(|letter: char| !letter.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}
