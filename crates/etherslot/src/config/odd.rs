//! What is possible in a configuration, and perhaps not meant.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use etherslot_runtime::options::{
    Backing, BoxOptions, DeviceKind, HostOptions, Interrupts, LinkKind, LinkOptions, ListenAddress,
    LoopOptions, SecurityOptions, SessionOptions,
};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::problems::Problem;
use super::show::Shown;

/// A node that polls for so long after its last work has a core of its own, or takes it from others.
const LONG_POLL: Duration = Duration::from_millis(1);
/// `sun_path` of a Unix socket address, less the terminating zero.
const SOCKET_PATH_BYTES: usize = 107;

/// Where in the file keys stand.
struct Places<'a>(&'a Spanned<DeTable<'a>>);

impl Places<'_> {
    /// The place of `key` in the table `name`, the `at`th if there are several; of the table, if it does not have the key.
    fn of(&self, name: &str, at: usize, key: &str) -> Option<usize> {
        let value = self.0.get_ref().get(name)?;
        let value = match value.get_ref() {
            DeValue::Array(array) => array.get(at)?,
            _ => value,
        };
        let key = value.get_ref().as_table().and_then(|table| table.get_key_value(key));
        Some(key.map_or(value.span().start, |(key, _)| key.span().start))
    }
}

/// Everything that is odd about a file that a daemon would take.
pub(super) fn of(options: &Shown, document: &Spanned<DeTable<'_>>) -> Vec<Problem> {
    let mut odd = Odd { places: Places(document), found: Vec::new() };
    match options {
        Shown::Box(options) => odd.of_box(options),
        Shown::Host(options) => odd.of_host(options),
    }
    odd.found.sort_by_key(|problem| problem.at);
    odd.found
}

struct Odd<'a> {
    places: Places<'a>,
    found: Vec<Problem>,
}

impl Odd<'_> {
    fn note(&mut self, (name, at, key): (&str, usize, &str), what: impl Into<String>) {
        let at = self.places.of(name, at, key);
        self.found.push(Problem { at, what: what.into() });
    }

    fn of_all(&mut self, run: &LoopOptions, links: &[LinkOptions], session: &SessionOptions) {
        if run.busy_poll.is_some_and(|time| time >= LONG_POLL) {
            let what = "[node] busy_poll keeps a core busy for so long after each piece of work: \
                        give the daemon a core of its own, or leave it out";
            self.note(("node", 0, "busy_poll"), what);
        }
        if let Some(ListenAddress::Tcp(address)) = &run.metrics
            && !address.ip().is_loopback()
        {
            let who = if address.ip() == IpAddr::from([0; 4]) || address.ip().is_unspecified() {
                "every network of this machine"
            } else {
                "the network"
            };
            let what = format!(
                "[metrics] listen = \"{address}\" shows names, addresses and counters to {who}: \
                 use 127.0.0.1 with a proxy in front, or a firewall"
            );
            self.note(("metrics", 0, "listen"), what);
        }
        for (at, link) in links.iter().enumerate() {
            if link.impair.is_some() {
                self.note(
                    ("link", at, "impair"),
                    "[link] impair makes faults on purpose: remove it outside of tests",
                );
            }
            if link.capture.is_some() {
                let what = "[link] capture writes every frame, and stops for nothing: watch the disk, remove it when done";
                self.note(("link", at, "capture"), what);
            }
            let is_same = |other: &LinkOptions| match (&link.kind, &other.kind) {
                (
                    LinkKind::Packet { interface: a } | LinkKind::Xdp { interface: a, .. },
                    LinkKind::Packet { interface: b } | LinkKind::Xdp { interface: b, .. },
                ) => a == b,
                _ => false,
            };
            if links[..at].iter().any(is_same) {
                let what =
                    "[[link]] is over the interface of another one: two ways through one cable fail together";
                self.note(("link", at, "interface"), what);
            }
        }
        let paths = usize::from(session.paths);
        if paths < links.len() {
            let what = format!("[session] paths = {paths} leaves links unused: there are {}", links.len());
            self.note(("session", 0, "paths"), what);
        }
        if session.classic && paths > 1 {
            self.note(
                ("session", 0, "classic"),
                "[session] classic has one path: the other links are not used",
            );
        }
    }

    fn of_security(&mut self, security: &SecurityOptions) {
        if *security == SecurityOptions::Plaintext {
            let what = "[security] plaintext: whoever reaches the link can read, change and use everything; \
                        `etherslot keygen` makes keys";
            self.note(("security", 0, "plaintext"), what);
        }
    }

    fn of_box(&mut self, options: &BoxOptions) {
        let BoxOptions { run, links, session, security, devices, fabric } = options;
        self.of_all(run, links, session);
        self.of_security(security);
        let mut files: Vec<(&Path, bool)> = Vec::new();
        for (at, device) in devices.iter().enumerate() {
            let name = &device.name;
            if devices[..at].iter().any(|other| other.serial == device.serial) {
                let what = format!(
                    "[[device]] {name:?} has the serial number of another one: guests that know disks by it take one for the other"
                );
                self.note(("device", at, "serial"), what);
            }
            if fabric.is_some() && device.group.is_none() {
                let what = format!(
                    "[[device]] {name:?} has no group: the first host that asks has it; give it a group"
                );
                self.note(("device", at, "name"), what);
            }
            let table = match device.kind {
                DeviceKind::Nvme(_) => "namespace",
                DeviceKind::Sata(_) => "disk",
                DeviceKind::Dc { .. } | DeviceKind::E82576(_) | DeviceKind::Rnic(_) => continue,
            };
            for namespace in device.stores() {
                match &namespace.backing {
                    Backing::Memory(_) if namespace.read_only => {
                        let what = format!(
                            "[[device]] {name:?}: read_only memory is zeros for ever: remove read_only"
                        );
                        self.note(("device", at, table), what);
                    }
                    Backing::Memory(_) => {}
                    Backing::File(path) => {
                        let is_shared = files
                            .iter()
                            .any(|(other, read_only)| other == path && !(*read_only && namespace.read_only));
                        if is_shared {
                            let what = format!(
                                "[[device]] {name:?}: {} belongs to another namespace or disk, too: two writers destroy it",
                                path.display()
                            );
                            self.note(("device", at, table), what);
                        }
                        files.push((path, namespace.read_only));
                        self.relative(("device", at, table), path);
                    }
                }
            }
        }
    }

    fn of_host(&mut self, options: &HostOptions) {
        let HostOptions { run, links, session, security, slots, fabric } = options;
        self.of_all(run, links, session);
        self.of_security(security);
        for (at, slot) in slots.iter().enumerate() {
            let device = &slot.device;
            if fabric.is_some() && slot.interrupts == Interrupts::MsiX {
                let what = format!(
                    "[[slot]] {device:?} shows MSI-X, and QEMU can't unplug such a device: \
                     interrupts = \"msi\" if it is to move while the guest runs"
                );
                self.note(("slot", at, "interrupts"), what);
            }
            if fabric.is_some() && slot.routes.is_some() {
                let what = format!(
                    "[[slot]] {device:?} has a box address although there is a fabric: it is not found if the box moves; remove box"
                );
                self.note(("slot", at, "box"), what);
            }
            self.relative(("slot", at, "socket"), &slot.socket);
            let bytes = slot.socket.as_os_str().len();
            if bytes > SOCKET_PATH_BYTES {
                let what = format!(
                    "[[slot]] socket has {bytes} bytes: no socket can have more than {SOCKET_PATH_BYTES}"
                );
                self.note(("slot", at, "socket"), what);
            }
        }
    }

    fn relative(&mut self, place: (&str, usize, &str), path: &Path) {
        if path.is_relative() {
            let what = format!(
                "{} depends on the folder that the daemon is started in: write a path from /",
                path.display()
            );
            self.note(place, what);
        }
    }
}
