//! A host with its guest: a stock Linux in QEMU, whose devices come and go.

use std::fmt::Write as _;
use std::time::Duration;

use etherslot_lab::{Cache, Daemon, Guest, GuestOptions, Role};

use crate::stand::Stand;

/// For whatever takes a moment on an idle machine.
pub(crate) const SOON: Duration = Duration::from_mins(1);

pub(crate) struct Machine {
    pub(crate) guest: Guest,
    pub(crate) host: Daemon,
    pub(crate) config: String,
}

impl Machine {
    /// Host `letter`, a or b, with a slot for each of the disks 1 to `disks`; its guest has none of them yet.
    pub(crate) fn start(stand: &Stand, cache: &Cache, letter: char, disks: u16, grace: &str) -> Self {
        let devices: Vec<String> = (1..=disks).map(|disk| format!("disk{disk}")).collect();
        Self::with_slots(stand, cache, letter, &devices, grace)
    }

    /// The same with slots for these devices.
    pub(crate) fn with_slots(
        stand: &Stand,
        cache: &Cache,
        letter: char,
        devices: &[String],
        grace: &str,
    ) -> Self {
        let port = 4711 + u32::from(letter) - u32::from('a');
        let group = 7 + u32::from(letter) - u32::from('a');
        let monitor = stand.run.path(&format!("{letter}.operator"));
        let mut config = format!(
            "[node]\nname = \"host-{letter}\"\n[link]\nkind = \"udp\"\nlisten = \"10.7.0.1:{port}\"\n\
             [fabric]\ngroup = {group}\npeers = [\"10.7.0.2:4701\"]\n"
        );
        for (place, device) in devices.iter().enumerate() {
            let _ = write!(
                config,
                "[[slot]]\ndevice = {device:?}\nsocket = \"{}\"\n\
                 hot_plug = {{ monitor = \"{}\", bus = {:?}, grace = \"{grace}\" }}\n",
                stand.run.path(&format!("{letter}.slot{place}")).display(),
                monitor.display(),
                Guest::port_bus(place),
            );
        }
        let host =
            Daemon::start(&stand.run, &stand.net, Role::Host, &format!("host-{letter}"), &config).unwrap();
        let guest =
            GuestOptions { spare_ports: devices.len(), monitor: Some(monitor), ..GuestOptions::default() };
        let guest = Guest::start(&stand.run, cache, &guest).unwrap();
        Self { guest, host, config }
    }

    /// What the guest calls the disk, once it is there.
    pub(crate) fn disk(&self, number: u16) -> String {
        let disk = self.guest.nvme(&format!("ES000{number}"), SOON);
        disk.unwrap_or_else(|error| panic!("{error}\n{}", self.host.log())).disk
    }

    /// How many NVMe controllers the guest has.
    pub(crate) fn controllers(&self) -> usize {
        let count = self.guest.check("ls /sys/class/nvme | wc -l", SOON).unwrap();
        count.trim().parse().unwrap()
    }
}
