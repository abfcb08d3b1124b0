//! The set-up of all these tests: a controller in the box, at a TAP interface there, and a guest that has it as `eth0`.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use etherslot_lab::{
    BOX_MAC, Cache, Daemon, Guest, GuestDevice, GuestOptions, INTERFACE, Level, Net, NetOptions, Process,
    Role, Run, Side, ensure_programs, mortal, wait_until,
};

/// For whatever takes a moment on an idle machine.
pub(crate) const SOON: Duration = Duration::from_mins(1);
/// For a load of some seconds, and the driver's self-test.
pub(crate) const LOAD: Duration = Duration::from_mins(4);

/// The controller's address, and those of both ends in the network.
pub(crate) const MAC: &str = "02:00:00:00:82:57";
pub(crate) const TAP: &str = "tap0";
pub(crate) const BOX_IP: &str = "10.82.57.1";
pub(crate) const GUEST_IP: &str = "10.82.57.2";

/// A running set-up; the parts end in the order they stand here.
pub(crate) struct Bench {
    pub(crate) guest: Guest,
    pub(crate) host: Daemon,
    pub(crate) io_box: Daemon,
    pub(crate) net: Net,
    pub(crate) box_config: String,
    pub(crate) run: Run,
    /// Whatever the driver says from here on is its answer to what a test did.
    pub(crate) probe: String,
}

fn ip(arguments: &[&str]) -> String {
    let output = Command::new("ip").args(arguments).output().unwrap();
    assert!(output.status.success(), "ip {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// How it is made.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Options<'a> {
    /// Faults of the box's link.
    pub(crate) impairment: Option<&'a str>,
    /// A disk in the same box.
    pub(crate) disk: bool,
    /// No TAP interface, but a second controller.
    pub(crate) linked: bool,
}

impl Bench {
    pub(crate) fn start(name: &str, options: Options<'_>) -> Self {
        ensure_programs(&[("iperf3", "iperf3"), ("ping", "iputils-ping")]).unwrap();
        let cache = Cache::ensure().unwrap();
        let run = Run::new(name).unwrap();
        let net = Net::new(&run, NetOptions::default()).unwrap();
        let impair = options.impairment.map(|faults| format!("impair = {faults:?}\n")).unwrap_or_default();
        let mut box_config = format!(
            "[node]\nname = \"box\"\n[link]\nkind = \"packet\"\ninterface = \"{INTERFACE}\"\n{impair}\
             [[device]]\nkind = \"82576\"\nname = \"nic\"\nserial = \"NIC1\"\nmac = \"{MAC}\"\n\
             network = {{ tap = \"{TAP}\" }}\n"
        );
        if options.linked {
            let [one, other] = ["127.0.0.1:4801", "127.0.0.1:4802"];
            let link = |from, to| format!("{{ link = \"udp:{from}\", peer = \"{to}\" }}");
            let tap = format!("{{ tap = \"{TAP}\" }}");
            box_config = box_config.replace(&tap, &link(one, other));
            let second = "[[device]]\nkind = \"82576\"\nname = \"far\"\nserial = \"NIC2\"\n";
            let _ = writeln!(box_config, "{second}network = {}", link(other, one));
            ip(&["-n", &net.namespace(Side::Box), "link", "set", "lo", "up"]);
        }
        if options.disk {
            box_config.push_str(
                "[[device]]\nkind = \"nvme\"\nname = \"disk\"\nserial = \"DISK1\"\n[[device.namespace]]\nmemory = \"64 MiB\"\n",
            );
        }
        let mut host_config =
            format!("[node]\nname = \"host\"\n[link]\nkind = \"packet\"\ninterface = \"{INTERFACE}\"\n");
        let mut devices = Vec::new();
        let others = [("far", options.linked), ("disk", options.disk)];
        let others = others.iter().filter(|(_, is_there)| *is_there).map(|(name, _)| name);
        for name in std::iter::once(&"nic").chain(others) {
            let socket = run.path(&format!("{name}.sock"));
            let _ = write!(
                host_config,
                "[[slot]]\ndevice = \"{name}\"\nbox = \"{BOX_MAC}\"\nsocket = {:?}\n",
                socket.to_string_lossy()
            );
            devices.push(GuestDevice::VfioUser { socket, id: (*name).to_owned() });
        }
        let io_box = Daemon::start(&run, &net, Role::Box, "box", &box_config).unwrap();
        let host = Daemon::start(&run, &net, Role::Host, "host", &host_config).unwrap();
        let guest_options = GuestOptions {
            devices,
            kernel_arguments: vec!["lab.modules=igb,nvme".to_owned()],
            ..GuestOptions::default()
        };
        let guest = match Guest::start(&run, &cache, &guest_options) {
            Ok(guest) => guest,
            Err(error) => {
                run.keep_logs();
                panic!("{error}\n--- box ---\n{}\n--- host ---\n{}", io_box.log(), host.log());
            }
        };
        let mut bench = Self { guest, host, io_box, net, box_config, run, probe: String::new() };
        if !options.linked {
            bench.network(1500);
        }
        bench.up();
        bench.probe = bench.guest.dmesg(Level::Debug).unwrap();
        bench
    }

    /// The box's end of the network, which is new with each start of the box.
    pub(crate) fn network(&self, mtu: u32) {
        let namespace = self.net.namespace(Side::Box);
        let mtu = mtu.to_string();
        ip(&["-n", &namespace, "address", "replace", &format!("{BOX_IP}/24"), "dev", TAP]);
        ip(&["-n", &namespace, "link", "set", TAP, "mtu", &mtu, "up"]);
    }

    /// The guest's end, which is up when this returns.
    pub(crate) fn up(&self) {
        let script = format!(
            "ip link set lo up; ip addr add {GUEST_IP}/24 dev eth0 2>/dev/null; ip link set eth0 up
             n=0; until [ \"$(cat /sys/class/net/eth0/carrier)\" = 1 ]; do
                 n=$((n + 1)); [ $n -lt 300 ] || exit 1; sleep 0.1
             done"
        );
        if let Err(error) = self.guest.check(&script, SOON) {
            panic!("{error}\n{}", self.guest.dmesg(Level::Debug).unwrap_or_default());
        }
    }

    /// A program at the box's end of the network, running beside the test.
    pub(crate) fn far(&self, name: &str, program: &str, arguments: &[&str]) -> Process {
        let mut command = mortal(Some(&self.net.namespace(Side::Box)), Path::new(program));
        command.args(arguments);
        Process::start(name, command, &self.run.path(&format!("{name}.log"))).unwrap()
    }

    /// The same to its end; what it said.
    pub(crate) fn far_output(&self, program: &str, arguments: &[&str]) -> String {
        let namespace = self.net.namespace(Side::Box);
        let mut all = vec!["netns", "exec", &namespace, program];
        all.extend(arguments);
        ip(&all)
    }

    /// Pings the box until it answers.
    pub(crate) fn answers(&self) {
        let mut said = String::new();
        wait_until("an answer to a ping", SOON, || {
            let output = self.guest.run(&format!("ping -c 1 -W 1 {BOX_IP}"), SOON).unwrap();
            said = output.stdout;
            output.status == 0
        });
    }

    /// What the kernel complains of.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let messages = self.guest.dmesg(Level::Warning).unwrap();
        let subjects = ["igb", "eth0", "NETDEV", "AER", "pcieport", "Oops", "BUG", "WARNING"];
        messages
            .lines()
            .filter(|line| subjects.iter().any(|subject| line.contains(subject)))
            .map(str::to_owned)
            .collect()
    }

    /// A number of `ethtool -S`.
    pub(crate) fn statistic(&self, name: &str) -> u64 {
        let text = self.guest.check("ethtool -S eth0", SOON).unwrap();
        let line = text.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(": "));
        line.unwrap_or_else(|| panic!("{name} in {text}")).trim().parse().unwrap()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.run.keep_logs();
            eprintln!("--- dmesg ---\n{}", self.guest.dmesg(Level::Debug).unwrap_or_default());
            eprintln!("--- box ---\n{}--- host ---\n{}", self.io_box.log(), self.host.log());
        }
    }
}
