//! Links: interfaces, frames, offloads, buffers, and what a process needs to open them.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use etherslot_runtime::options::{LinkKind, LinkOptions, XdpMode};

use super::Findings;
use super::machine::Machine;

/// What a session needs, and what a Port takes, of the payload of an Ethernet frame.
const FRAME_BYTES: (u64, u64) = (576, 9216);
const JUMBO_BYTES: u64 = 9000;
/// The largest frame of a link of kind `xdp`.
const XDP_FRAME_BYTES: u64 = 3826;
/// What a socket's buffers are raised towards.
const BUFFER_BYTES: u64 = 8 << 20;
/// What DPDK takes from huge pages if it is there.
const HUGE_BYTES: u64 = 64 << 20;
/// What an `AF_XDP` socket locks, and some.
const LOCKED_BYTES: u64 = 64 << 20;

/// Bits of a process's capabilities (capability.h).
pub(super) const NET_ADMIN: u32 = 12;
pub(super) const NET_RAW: u32 = 13;
const IPC_LOCK: u32 = 14;
const SYS_ADMIN: u32 = 21;
const BPF: u32 = 39;

/// Whether this process has one of these capabilities.
pub(super) fn may(machine: &dyn Machine, any_of: &[u32]) -> bool {
    let status = machine.read("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = line.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or(0);
    any_of.iter().any(|bit| bits >> bit & 1 != 0)
}

/// Looks at every link.
pub(super) fn check(machine: &dyn Machine, links: &[LinkOptions], findings: &mut Findings) {
    let mut frames: Vec<u64> = Vec::new();
    for (number, link) in links.iter().enumerate() {
        let subject = format!("link {number}, {}", link.kind);
        findings.about("link", subject);
        match &link.kind {
            LinkKind::Packet { interface } => {
                raw(machine, findings);
                if let Some(bytes) = ethernet(machine, interface, FRAME_BYTES.1, findings) {
                    frames.push(bytes);
                    offloads(machine, interface, &[("large-receive-offload", false)], findings);
                }
                buffers(machine, findings);
            }
            LinkKind::Xdp { interface, mode, .. } => {
                raw(machine, findings);
                xdp(machine, *mode, findings);
                if let Some(bytes) = ethernet(machine, interface, XDP_FRAME_BYTES, findings) {
                    frames.push(bytes);
                    offloads(machine, interface, &[("large-receive-offload", false)], findings);
                }
            }
            LinkKind::Udp { listen, mtu } => {
                frames.extend(udp(machine, *listen, mtu.map(u64::from), findings));
                buffers(machine, findings);
            }
            LinkKind::Ring { hub, .. } => {
                super::node::folder_for(machine, "hub", &hub.join("x"), findings);
            }
            LinkKind::Dpdk { device, .. } => dpdk(machine, device, findings),
        }
    }
    if let (Some(least), Some(most)) = (frames.iter().min(), frames.iter().max())
        && least != most
    {
        findings.about("frames", "links".to_owned());
        findings.hint(
            format!(
                "sessions use frames of {least} bytes, since one link has no larger ones; another has {most}"
            ),
            "give all links the same MTU",
        );
    }
}

/// The size of an interface's frames, if it is there.
fn ethernet(machine: &dyn Machine, name: &str, most: u64, findings: &mut Findings) -> Option<u64> {
    let known = machine.read("/proc/net/dev").unwrap_or_default();
    let known: Vec<&str> = known.lines().filter_map(|line| Some(line.split_once(':')?.0.trim())).collect();
    if !known.contains(&name) {
        let what = format!("there is no interface {name}: there are {}", known.join(", "));
        findings.impossible(what, "name one of them");
        return None;
    }
    // `2: eth0: <BROADCAST,UP,LOWER_UP> mtu 1500 …`
    let shown = machine.run("ip", &["-o", "link", "show", "dev", name]).unwrap_or_default();
    let flags: Vec<&str> = shown
        .split_once('<')
        .and_then(|(_, rest)| rest.split_once('>'))
        .map(|(flags, _)| flags.split(',').collect())
        .unwrap_or_default();
    let mut words = shown.split_whitespace().skip_while(|&word| word != "mtu").skip(1);
    let Some(mtu) = words.next().and_then(|mtu| mtu.parse::<u64>().ok()) else {
        findings.hint(format!("{name} can't be looked at"), "install iproute2");
        return None;
    };
    if !flags.contains(&"UP") {
        findings.impossible(format!("{name} is not up"), format!("ip link set {name} up"));
    } else if !flags.contains(&"LOWER_UP") {
        findings.warning(
            format!("{name} has no carrier: nobody can be reached"),
            "look at cable, switch and the other end",
        );
    }
    let frame_bytes = mtu.min(most);
    if mtu < FRAME_BYTES.0 {
        let remedy = format!("ip link set {name} mtu {JUMBO_BYTES}, or 1500, on all machines of the segment");
        findings.impossible(format!("the MTU of {name} is {mtu}: a session needs {}", FRAME_BYTES.0), remedy);
    } else if frame_bytes < JUMBO_BYTES.min(most) {
        findings.hint(
            format!("frames of {name} have {mtu} bytes: large transfers take more of them, and more of the processor, than with {JUMBO_BYTES}"),
            format!("where all NICs and switches can: ip link set {name} mtu {JUMBO_BYTES}, on both ends"),
        );
    } else {
        findings.fine(format!("{name} has frames of {frame_bytes} bytes"));
    }
    Some(frame_bytes)
}

/// Tells of offloads that are not as they should be.
fn offloads(machine: &dyn Machine, name: &str, wanted: &[(&str, bool)], findings: &mut Findings) {
    let Some(features) = machine.run("ethtool", &["-k", name]) else {
        findings.hint(format!("the offloads of {name} can't be seen"), "install ethtool");
        return;
    };
    for &(feature, should_be) in wanted {
        let line = features.lines().find_map(|line| line.trim().strip_prefix(feature)?.strip_prefix(": "));
        let Some(is_on) = line.map(|value| value.starts_with("on")) else { continue };
        if is_on == should_be {
            continue;
        }
        let (what, short) = match feature {
            "large-receive-offload" => {
                ("joins frames of others on arrival, which XDP programs and bridges can't have", "lro off")
            }
            "tx-udp-segmentation" => {
                ("is off: the kernel cuts what is sent at once in software", "tx-udp-segmentation on")
            }
            _ => ("is off: each datagram passes the kernel by itself", "gro on"),
        };
        let how = format!("ethtool -K {name} {short}, if the NIC can");
        findings.hint(format!("{feature} of {name} {what}"), how);
    }
}

fn raw(machine: &dyn Machine, findings: &mut Findings) {
    if may(machine, &[NET_RAW]) {
        findings.fine("raw frames may be sent and received");
    } else {
        findings.impossible(
            "this user may not open raw sockets (CAP_NET_RAW)",
            "run the daemon as root, or with AmbientCapabilities=CAP_NET_RAW in its unit, or setcap cap_net_raw+ep on the program",
        );
    }
}

fn xdp(machine: &dyn Machine, mode: XdpMode, findings: &mut Findings) {
    let release = machine.read("/proc/sys/kernel/osrelease").unwrap_or_default();
    let config = machine.read(&format!("/boot/config-{release}"));
    if config.is_some_and(|config| !config.lines().any(|line| line == "CONFIG_XDP_SOCKETS=y")) {
        findings.impossible(
            format!("the kernel {release} was built without AF_XDP (CONFIG_XDP_SOCKETS)"),
            "use kind = \"packet\", or another kernel",
        );
    }
    if !may(machine, &[NET_ADMIN]) || !may(machine, &[BPF, SYS_ADMIN]) {
        findings.impossible(
            "this user may not load XDP programs (CAP_NET_ADMIN and CAP_BPF)",
            "run the daemon as root, or with AmbientCapabilities=CAP_NET_RAW CAP_NET_ADMIN CAP_BPF in its unit",
        );
    }
    if mode == XdpMode::Generic {
        findings.hint(
            "mode = \"generic\" runs in the kernel's stack: it is not quicker than kind = \"packet\" by much",
            "mode = \"auto\"",
        );
    }
    locked(machine, findings);
}

/// Memory that may be locked.
fn locked(machine: &dyn Machine, findings: &mut Findings) {
    if may(machine, &[IPC_LOCK]) {
        return;
    }
    let limits = machine.read("/proc/self/limits").unwrap_or_default();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max locked memory"));
    let Some(soft) = line.and_then(|line| line.split_whitespace().next()) else { return };
    if soft.parse::<u64>().is_ok_and(|soft| soft < LOCKED_BYTES) {
        findings.warning(
            format!("only {soft} bytes of memory may be locked: the link may not open"),
            "LimitMEMLOCK=infinity in the unit, or ulimit -l unlimited",
        );
    }
}

/// Buffers of sockets that this process may not raise past the system's limit.
fn buffers(machine: &dyn Machine, findings: &mut Findings) {
    if may(machine, &[NET_ADMIN]) {
        findings.fine("socket buffers can be as large as they need to be");
        return;
    }
    let keys = [
        ("rmem_max", "bursts are lost (rx_overflow in `etherslot stat`)"),
        ("wmem_max", "large bursts leave in pieces, each after a wait"),
    ];
    for (key, so) in keys {
        let value = machine.read(&format!("/proc/sys/net/core/{key}"));
        if let Some(bytes) =
            value.and_then(|value| value.parse::<u64>().ok()).filter(|&bytes| bytes < BUFFER_BYTES)
        {
            findings.warning(
                format!("net.core.{key} is {bytes}: {so}"),
                format!("sysctl -w net.core.{key}={BUFFER_BYTES}, or CAP_NET_ADMIN for the daemon"),
            );
        }
    }
}

/// The path's MTU, as far as it is known.
fn udp(machine: &dyn Machine, listen: SocketAddr, mtu: Option<u64>, findings: &mut Findings) -> Option<u64> {
    let addresses = machine.run("ip", &["-o", "addr", "show"]).unwrap_or_default();
    let interface_of = |wanted: IpAddr| {
        addresses.lines().find_map(|line| {
            let mut words = line.split_whitespace().skip(1);
            let (name, address) = (words.next()?, words.nth(1)?);
            (address.split('/').next()?.parse::<IpAddr>().ok()? == wanted).then(|| name.to_owned())
        })
    };
    if listen.ip().is_unspecified() || listen.ip().is_loopback() || addresses.is_empty() {
        return mtu;
    }
    let Some(interface) = interface_of(listen.ip()) else {
        findings.impossible(
            format!("no interface of this machine has the address {}", listen.ip()),
            "listen at one of those that `ip addr` shows, or at 0.0.0.0",
        );
        return mtu;
    };
    let of_interface = ethernet(machine, &interface, FRAME_BYTES.1, findings);
    offloads(
        machine,
        &interface,
        &[("tx-udp-segmentation", true), ("generic-receive-offload", true)],
        findings,
    );
    if let (Some(mtu), Some(most)) = (mtu, of_interface)
        && mtu > most
    {
        findings.impossible(
            format!("mtu = {mtu} is more than the {most} of {interface}: datagrams are never fragmented, and all large ones are lost"),
            format!("mtu = {most} or less, or raise the MTU of {interface} and of all between"),
        );
    }
    mtu.or(of_interface)
}

fn dpdk(machine: &dyn Machine, device: &str, findings: &mut Findings) {
    if let Err(reason) = machine.dpdk() {
        findings.impossible(
            reason,
            "install libdpdk of the version that etherslot was built with, or build it where libdpdk-dev is",
        );
    }
    let pages = "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages";
    let large = "/sys/kernel/mm/hugepages/hugepages-1048576kB/free_hugepages";
    let free = |path: &str, bytes: u64| {
        machine.read(path).and_then(|free| free.parse::<u64>().ok()).unwrap_or(0).saturating_mul(bytes)
    };
    let bytes = free(pages, 2 << 20) + free(large, 1 << 30);
    if bytes < HUGE_BYTES {
        findings.warning(
            format!("{} MiB of huge pages are free: without 64 MiB DPDK goes on without them, slower, and NICs by vfio-pci may not start", bytes >> 20),
            "sysctl -w vm.nr_hugepages=64, and for good in /etc/sysctl.d",
        );
    } else {
        findings.fine(format!("{} MiB of huge pages are free", bytes >> 20));
    }
    let name = device.split(',').next().unwrap_or(device);
    let is_pci = name.split(':').count() == 3 && name.contains('.');
    if is_pci {
        let driver = machine.link(&format!("/sys/bus/pci/devices/{name}/driver"));
        match driver.as_deref().and_then(|driver| driver.rsplit('/').next()) {
            _ if machine.entry(Path::new(&format!("/sys/bus/pci/devices/{name}"))).is_none() => {
                findings.impossible(format!("there is no PCI device {name}"), "lspci -D shows all");
            }
            Some("vfio-pci" | "igb_uio" | "uio_pci_generic") => {
                findings.fine(format!("{name} is free for DPDK"));
            }
            driver => {
                let driver = driver.unwrap_or("no driver");
                findings.impossible(
                    format!("{name} is bound to {driver}: DPDK can't have it (NICs of mlx5 excepted)"),
                    format!("dpdk-devbind.py --bind=vfio-pci {name}"),
                );
            }
        }
    }
}
