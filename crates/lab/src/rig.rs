//! The whole of it: disks in a box, a host, the Ethernet between them, and a guest that has the disks.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::cable::{BOX_IP, HOST_IP};
use crate::cache::Cache;
use crate::daemon::{Daemon, Role};
use crate::error::{Error, Result};
use crate::guest::{Guest, GuestDevice, GuestOptions};
use crate::net::{BOX_MAC, INTERFACE, Net, NetOptions, Side};
use crate::process::tool;
use crate::run::Run;

/// Where a box listens whose frames go in UDP.
const BOX_PORT: u16 = 4700;

/// What joins host and box.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RigLink {
    /// An Ethernet, with frames of their own.
    #[default]
    Packet,
    /// The same Ethernet, with the frames in UDP.
    Udp,
    /// Memory that both share.
    Ring,
}

/// How the Function interrupts the guest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Interrupts {
    /// MSI-X. QEMU can't hot-remove such a device (it aborts).
    #[default]
    MsiX,
    /// MSI with several vectors; hot removal works.
    Msi,
}

impl Interrupts {
    fn name(self) -> &'static str {
        match self {
            Self::MsiX => "msi-x",
            Self::Msi => "msi",
        }
    }
}

/// What a controller in the box is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// NVMe, with namespaces.
    #[default]
    Nvme,
    /// SATA by AHCI; its namespaces are disks.
    Ahci,
    /// SATA by a Silicon Image 3132, which has two ports.
    Sil3132,
}

impl Kind {
    /// How configurations name it, and what it has its blocks in.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Nvme => ("nvme", "namespace"),
            Self::Ahci => ("ahci", "disk"),
            Self::Sil3132 => ("sil3132", "disk"),
        }
    }
}

/// A controller in the box.
#[derive(Clone, Debug)]
pub struct Disk {
    /// What it is.
    pub kind: Kind,
    /// Serial number; unique, and at most 20 characters.
    pub serial: String,
    /// Its namespaces, from ID 1.
    pub namespaces: Vec<Namespace>,
    /// Further lines of its table, such as `rate = "24 MB/s"`.
    pub settings: String,
}

impl Default for Disk {
    fn default() -> Self {
        let (kind, namespaces) = (Kind::default(), vec![Namespace::default()]);
        Self { kind, serial: "ES0001".to_owned(), namespaces, settings: String::new() }
    }
}

/// A namespace of an NVMe controller in the box, or a disk.
#[derive(Clone, Debug)]
pub struct Namespace {
    /// Image file or block device; without one, a sparse image is made in the run's folder.
    pub path: Option<PathBuf>,
    /// Size of an image made.
    pub bytes: u64,
    /// Logical block size, 512 or 4096.
    pub block_bytes: u32,
    /// Of a disk: it comes and goes with its file.
    pub removable: bool,
    /// In the box's memory: it has no file.
    pub in_memory: bool,
}

impl Default for Namespace {
    fn default() -> Self {
        Self { path: None, bytes: 1 << 30, block_bytes: 512, removable: false, in_memory: false }
    }
}

/// How a rig is made.
#[derive(Clone, Debug)]
pub struct RigOptions {
    /// The box's controllers, in the order of the guest's ports.
    pub disks: Vec<Disk>,
    /// Interrupts of all of them.
    pub interrupts: Interrupts,
    /// The domain of their slots: they reach each other in the box.
    pub domain: Option<u16>,
    /// The Ethernet.
    pub net: NetOptions,
    /// What joins host and box.
    pub link: RigLink,
    /// What the host's link does to frames on purpose (the `impair` of its configuration).
    pub host_impairment: Option<String>,
    /// The same of the box's link.
    pub box_impairment: Option<String>,
    /// Lines for the `[session]` table of both configurations.
    pub session: String,
    /// The guest; its own devices follow the box's.
    pub guest: GuestOptions,
}

impl Default for RigOptions {
    fn default() -> Self {
        Self {
            disks: vec![Disk::default()],
            interrupts: Interrupts::default(),
            domain: None,
            net: NetOptions::default(),
            link: RigLink::default(),
            host_impairment: None,
            box_impairment: None,
            session: String::new(),
            guest: GuestOptions::default(),
        }
    }
}

/// A running rig. The parts may be used, killed and restarted one by one; they end in the order they stand here.
pub struct Rig {
    /// The guest.
    pub guest: Guest,
    /// `etherslot host`.
    pub host: Daemon,
    /// `etherslot box`.
    pub io_box: Daemon,
    /// The Ethernet.
    pub net: Net,
    /// The devices that the host offers, for [`Guest::plug`] and [`Guest::unplug`].
    pub devices: Vec<GuestDevice>,
    /// Configuration of the host.
    pub host_config: String,
    /// Configuration of the box.
    pub box_config: String,
    /// Its files.
    pub run: Run,
}

/// A rig without its guest, for those that need to do something before the guest starts.
pub struct RigBase {
    /// `etherslot host`.
    pub host: Daemon,
    /// `etherslot box`.
    pub io_box: Daemon,
    /// The Ethernet.
    pub net: Net,
    /// The devices that the host offers.
    pub devices: Vec<GuestDevice>,
    host_config: String,
    box_config: String,
    guest: GuestOptions,
}

impl RigBase {
    /// Starts everything but the guest.
    pub fn start(run: &Run, mut options: RigOptions) -> Result<Self> {
        for Disk { serial, namespaces, .. } in &mut options.disks {
            for (index, namespace) in namespaces.iter_mut().enumerate() {
                if namespace.path.is_none() && !namespace.in_memory {
                    let name = format!("{serial}-{}.img", index + 1);
                    namespace.path = Some(run.disk_image(&name, namespace.bytes)?);
                }
            }
        }
        let devices: Vec<GuestDevice> = options
            .disks
            .iter()
            .map(|disk| GuestDevice::VfioUser {
                socket: run.path(&format!("{}.sock", disk.serial)),
                id: disk.serial.clone(),
            })
            .collect();
        let net = Net::new(run, options.net)?;
        if options.link == RigLink::Udp {
            for (side, address) in [(Side::Host, HOST_IP), (Side::Box, BOX_IP)] {
                let namespace = net.namespace(side);
                tool("ip", ["-n", &namespace, "address", "add", &format!("{address}/24"), "dev", INTERFACE])?;
            }
        }
        let hub = run.path("hub");
        let box_config = box_config(&options, &hub);
        let host_config = host_config(&options, &hub, &devices);
        let io_box = Daemon::start(run, &net, Role::Box, "box", &box_config)?;
        let host = Daemon::start(run, &net, Role::Host, "host", &host_config)?;
        let mut guest = options.guest;
        guest.devices = devices.iter().cloned().chain(guest.devices).collect();
        Ok(Self { host, io_box, net, devices, host_config, box_config, guest })
    }

    /// Starts the guest.
    pub fn boot(self, run: &Run, cache: &Cache) -> Result<Rig> {
        let guest = Guest::start(run, cache, &self.guest).inspect_err(|_| {
            eprintln!("--- box ---\n{}--- host ---\n{}", self.io_box.log(), self.host.log());
        })?;
        let Self { host, io_box, net, devices, host_config, box_config, .. } = self;
        Ok(Rig { guest, host, io_box, net, devices, host_config, box_config, run: run.clone() })
    }
}

impl Rig {
    /// Starts everything; the guest is up when this returns.
    pub fn start(name: &str, cache: &Cache, options: RigOptions) -> Result<Self> {
        let run = Run::new(name)?;
        let rig = RigBase::start(&run, options).and_then(|base| base.boot(&run, cache));
        if rig.is_err() {
            run.keep_logs();
        }
        rig
    }
}

fn box_config(options: &RigOptions, hub: &Path) -> String {
    let mut text = head("box", options, hub, options.box_impairment.as_deref());
    for disk in &options.disks {
        let (kind, table) = disk.kind.names();
        let _ = write!(text, "\n[[device]]\nkind = {kind:?}\nname = {0:?}\nserial = {0:?}\n", disk.serial);
        if !disk.settings.is_empty() {
            let _ = writeln!(text, "{}", disk.settings);
        }
        for Namespace { path, bytes, block_bytes, removable, in_memory } in &disk.namespaces {
            let medium = if *in_memory {
                format!("memory = \"{bytes} B\"")
            } else {
                format!("path = {}", quoted(path.as_deref().unwrap_or(Path::new(""))))
            };
            let _ = write!(text, "\n[[device.{table}]]\n{medium}\nblock_bytes = {block_bytes}\n");
            if *removable {
                text.push_str("removable = true\n");
            }
        }
    }
    text
}

fn host_config(options: &RigOptions, hub: &Path, devices: &[GuestDevice]) -> String {
    let mut text = head("host", options, hub, options.host_impairment.as_deref());
    let io_box = match options.link {
        RigLink::Packet => BOX_MAC.to_owned(),
        RigLink::Udp => format!("{BOX_IP}:{BOX_PORT}"),
        RigLink::Ring => "ring:1".to_owned(),
    };
    for device in devices {
        if let GuestDevice::VfioUser { socket, id } = device {
            let _ = write!(
                text,
                "\n[[slot]]\ndevice = {id:?}\nbox = \"{io_box}\"\nsocket = {}\ninterrupts = \"{}\"\n",
                quoted(socket),
                options.interrupts.name()
            );
            if let Some(domain) = options.domain {
                let _ = writeln!(text, "domain = {domain}");
            }
        }
    }
    text
}

/// A path as a basic string of TOML.
fn quoted(path: &Path) -> String {
    format!("{:?}", path.to_string_lossy())
}

fn head(name: &str, options: &RigOptions, hub: &Path, impairment: Option<&str>) -> String {
    let RigOptions { link, session, .. } = options;
    let is_box = name == "box";
    let link = match link {
        RigLink::Packet => format!("kind = \"packet\"\ninterface = \"{INTERFACE}\""),
        RigLink::Udp if is_box => format!("kind = \"udp\"\nlisten = \"{BOX_IP}:{BOX_PORT}\""),
        RigLink::Udp => format!("kind = \"udp\"\nlisten = \"{HOST_IP}:0\""),
        RigLink::Ring => {
            format!("kind = \"ring\"\nhub = {}\nport = {}", quoted(hub), if is_box { 1 } else { 2 })
        }
    };
    let mut text = format!("[node]\nname = \"{name}\"\n\n[link]\n{link}\n");
    if let Some(impairment) = impairment {
        let _ = writeln!(text, "impair = {impairment:?}");
    }
    if !session.is_empty() {
        let _ = writeln!(text, "\n[session]\n{session}");
    }
    text
}

/// What the guest calls an NVMe controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NvmeName {
    /// The controller, such as `/dev/nvme0`.
    pub controller: String,
    /// Its first namespace, such as `/dev/nvme0n1`.
    pub disk: String,
    /// Its PCI address, such as `0000:03:00.0`.
    pub pci: String,
}

impl Guest {
    /// Waits until the controller with `serial` has a disk, and says what the guest calls it.
    pub fn nvme(&self, serial: &str, timeout: Duration) -> Result<NvmeName> {
        let seconds = timeout.as_secs();
        let look = format!(
            r#"end=$(($(date +%s) + {seconds}))
            while :; do
                for controller in /sys/class/nvme/nvme*; do
                    read -r serial <$controller/serial || continue
                    [ "$serial" = '{serial}' ] || continue
                    for disk in $controller/nvme*n*; do
                        name=$(basename $disk)
                        [ -b /dev/$name ] && address=$(cat $controller/address) && [ "$address" ] || continue
                        echo /dev/$(basename $controller) /dev/$name $address && exit
                    done
                done 2>/dev/null
                [ $(date +%s) -ge $end ] && exit 1
                sleep 0.1
            done"#
        );
        let start = Instant::now();
        let output = loop {
            let output = self.run(&look, timeout + Duration::from_secs(10))?;
            // What a program complains of on a busy guest comes before it.
            let answer = output.stdout.lines().next_back().unwrap_or_default();
            let words: Vec<&str> = answer.split_whitespace().collect();
            if let (0, [controller, disk, pci]) = (output.status, words.as_slice()) {
                return Ok(NvmeName {
                    controller: (*controller).to_owned(),
                    disk: (*disk).to_owned(),
                    pci: (*pci).to_owned(),
                });
            }
            if start.elapsed() >= timeout {
                break output;
            }
        };
        Err(Error::Timeout {
            what: format!("a disk with serial number {serial} in the guest"),
            after: timeout,
            evidence: self.dmesg(crate::guest::Level::Debug).map_or_else(
                |error| format!(" ({error})"),
                |messages| {
                    let said = format!("status {}\n{}", output.status, output.stdout);
                    crate::error::tail("the search", &said, 10) + &crate::error::tail("dmesg", &messages, 25)
                },
            ),
        })
    }
}

impl Guest {
    /// Waits until the ATA disk with `serial` is there, and says what the guest calls it: `/dev/sda`.
    pub fn sata(&self, serial: &str, timeout: Duration) -> Result<String> {
        let seconds = timeout.as_secs();
        let look = format!(
            r#"end=$(($(date +%s) + {seconds}))
            while :; do
                for disk in /sys/block/sd*; do
                    name=${{disk##*/}}
                    [ "$(tail -c +5 $disk/device/vpd_pg80 | tr -d ' ')" = '{serial}' ] && [ -b /dev/$name ] &&
                        echo /dev/$name && exit
                done 2>/dev/null
                [ $(date +%s) -ge $end ] && dmesg | tail -n 40 && exit 1
                sleep 0.1
            done"#
        );
        let found = self.check(&look, timeout + Duration::from_secs(20))?;
        Ok(found.lines().next_back().unwrap_or_default().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configurations_name_link_devices_and_slots() {
        let first = Namespace { path: Some("/a b.img".into()), block_bytes: 4096, ..Namespace::default() };
        let second = Namespace { path: Some("/c.img".into()), ..Namespace::default() };
        let options = RigOptions {
            disks: vec![Disk {
                namespaces: vec![first, second],
                settings: "cmb_bytes = 4096".to_owned(),
                ..Disk::default()
            }],
            interrupts: Interrupts::Msi,
            domain: Some(7),
            host_impairment: Some("loss=1%".to_owned()),
            session: "classic = true".to_owned(),
            ..RigOptions::default()
        };
        let text = box_config(&options, Path::new("hub"));
        assert!(text.contains("interface = \"eth0\"") && !text.contains("impair"), "{text}");
        assert!(text.contains("serial = \"ES0001\"\ncmb_bytes = 4096\n\n[[device.namespace]]"), "{text}");
        assert!(text.contains("path = \"/a b.img\"\nblock_bytes = 4096\n\n[[device.namespace]]"), "{text}");
        assert!(text.contains("path = \"/c.img\"\nblock_bytes = 512\n"), "{text}");
        let devices = [GuestDevice::VfioUser { socket: "/s/x.sock".into(), id: "ES0001".to_owned() }];
        let text = host_config(&options, Path::new("hub"), &devices);
        assert!(text.contains("impair = \"loss=1%\"\n\n[session]\nclassic = true\n"), "{text}");
        assert!(
            text.contains(
                "box = \"02:00:00:00:00:02\"\nsocket = \"/s/x.sock\"\ninterrupts = \"msi\"\ndomain = 7\n"
            ),
            "{text}"
        );
        let namespaces = vec![Namespace { bytes: 1 << 20, in_memory: true, ..Namespace::default() }];
        let disks = vec![Disk { namespaces, ..Disk::default() }];
        let options = RigOptions { disks, link: RigLink::Ring, ..RigOptions::default() };
        let text = box_config(&options, Path::new("/s/hub"));
        assert!(text.contains("kind = \"ring\"\nhub = \"/s/hub\"\nport = 1\n"), "{text}");
        assert!(text.contains("[[device.namespace]]\nmemory = \"1048576 B\"\n"), "{text}");
        let text = host_config(&options, Path::new("/s/hub"), &devices);
        assert!(text.contains("port = 2\n") && text.contains("box = \"ring:1\"\n"), "{text}");
    }
}
