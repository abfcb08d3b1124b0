//! Two boxes and two hosts on one network, and an operator who asks the first box.

use std::fmt::Write as _;
use std::fs;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use etherslot_lab::{
    Daemon, INTERFACE, KEY_VARIABLE, Net, NetOptions, Role, Run, Side, ensure_nbd_clients, ensure_net,
    etherslot_command, node_keys,
};
use serde_json::Value;

pub(crate) const DISK_BYTES: u64 = 64 << 20;
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Stand {
    pub(crate) net: Net,
    pub(crate) run: Run,
}

impl Stand {
    pub(crate) fn new(name: &str) -> Self {
        ensure_net().unwrap();
        ensure_nbd_clients().unwrap();
        let run = Run::new(name).unwrap();
        let net = Net::new(&run, NetOptions { mtu: 1500 }).unwrap();
        for (side, address) in [(Side::Host, "10.7.0.1/24"), (Side::Box, "10.7.0.2/24")] {
            let namespace = net.namespace(side);
            let added = Command::new("ip")
                .args(["-n", &namespace, "address", "add", address, "dev", INTERFACE])
                .status()
                .unwrap();
            // Two boxes in one namespace reach each other by its loopback.
            let up = Command::new("ip").args(["-n", &namespace, "link", "set", "lo", "up"]).status().unwrap();
            assert!(added.success() && up.success());
        }
        Self { net, run }
    }

    /// Of box `number`, 1 or 2, which has these disks, called `diskN`; the first box is the rendezvous that all know.
    pub(crate) fn box_config(
        &self,
        number: u16,
        fabric: &str,
        disks: RangeInclusive<u16>,
        device: &str,
    ) -> String {
        let mut config = format!(
            "[node]\nname = \"box-{number}\"\n[link]\nkind = \"udp\"\nlisten = \"10.7.0.2:470{number}\"\n\
             [fabric]\nstate = \"{}\"\n{fabric}\n",
            self.run.path(&format!("box-{number}.leases")).display(),
        );
        for disk in disks {
            let name = format!("disk{disk}.img");
            let path = self.run.path(&name);
            if !path.exists() {
                self.run.disk_image(&name, DISK_BYTES).unwrap();
            }
            let _ = write!(
                config,
                "[[device]]\nkind = \"nvme\"\nname = \"disk{disk}\"\nserial = \"ES000{disk}\"\n{device}\
                 [[device.namespace]]\npath = \"{}\"\n",
                path.display()
            );
        }
        config
    }

    /// A box with the disk of its number, whose hosts have little time.
    pub(crate) fn io_box(&self, number: u16, fabric: &str) -> (Daemon, String) {
        self.start_box(number, &format!("recall = \"2s\"\noffer = \"3s\"\n{fabric}"), number..=number)
    }

    pub(crate) fn start_box(
        &self,
        number: u16,
        fabric: &str,
        disks: RangeInclusive<u16>,
    ) -> (Daemon, String) {
        self.start_box_with(number, fabric, disks, "")
    }

    /// The same, with more lines for each disk.
    pub(crate) fn start_box_with(
        &self,
        number: u16,
        fabric: &str,
        disks: RangeInclusive<u16>,
        device: &str,
    ) -> (Daemon, String) {
        let config = self.box_config(number, fabric, disks, device);
        let name = format!("box-{number}");
        (Daemon::start(&self.run, &self.net, Role::Box, &name, &config).unwrap(), config)
    }

    /// An operator's command to the first box.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = etherslot_command(&self.net, Side::Host).unwrap();
        command.args(arguments).arg("--node").arg(self.run.path("box-1.control"));
        command
    }

    /// The same; whether it went well, and what it said.
    pub(crate) fn operator(&self, arguments: &[&str]) -> (bool, String) {
        let output = self.command(arguments).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&said).into_owned())
    }

    pub(crate) fn done(&self, arguments: &[&str]) -> String {
        let (is_well, said) = self.operator(arguments);
        assert!(is_well, "{arguments:?}: {said}");
        said
    }

    /// What the first box knows of a node.
    pub(crate) fn node(&self, name: &str) -> Option<Value> {
        let view: Value = serde_json::from_str(&self.done(&["ls", "--output", "json"])).unwrap();
        view["nodes"].as_array().unwrap().iter().find(|node| node["name"] == name).cloned()
    }

    /// The only device of a box.
    pub(crate) fn device(&self, number: u16) -> Value {
        self.node(&format!("box-{number}")).unwrap()["devices"][0].clone()
    }

    pub(crate) fn wait_for(&self, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        let until = Instant::now() + PATIENCE;
        while !holds(self) {
            assert!(Instant::now() < until, "not {what}: {}", self.operator(&["ls"]).1);
            sleep(Duration::from_millis(50));
        }
    }

    pub(crate) fn wait_for_node(&self, name: &str, state: &str) {
        self.wait_for(&format!("{name} {state}"), |stand| {
            stand.node(name).is_some_and(|node| node["state"] == state)
        });
    }
}

/// A host that offers one device to programs by NBD.
pub(crate) struct Host {
    child: Child,
    log: PathBuf,
    pub(crate) uri: String,
}

impl Host {
    /// `letter` is a or b; `life` tells its starts apart.
    pub(crate) fn start(stand: &Stand, letter: char, device: &str, group: u16, life: u32) -> Self {
        let port = 4711 + u32::from(letter) - u32::from('a');
        let file = stand.run.path(&format!("host-{letter}.toml"));
        let config = format!(
            "[node]\nname = \"host-{letter}\"\n[link]\nkind = \"udp\"\nlisten = \"10.7.0.1:{port}\"\n\
             [fabric]\ngroup = {group}\npeers = [\"10.7.0.2:4701\"]\n\
             [[slot]]\ndevice = \"{device}\"\nsocket = \"/nowhere\"\n"
        );
        fs::write(&file, config).unwrap();
        let (socket, log) = (
            stand.run.path(&format!("host-{letter}.{life}.nbd")),
            stand.run.path(&format!("host-{letter}.{life}.log")),
        );
        let mut command = etherslot_command(&stand.net, Side::Host).unwrap();
        command.env(KEY_VARIABLE, node_keys(&stand.run, &format!("host-{letter}")).unwrap());
        command.args(["export", device, "--wait", "60s", "--patience", "2s", "--config"]).arg(&file);
        command.arg("--nbd").arg(&socket).stdin(Stdio::null()).stderr(fs::File::create(&log).unwrap());
        let uri = format!("nbd+unix:///{device}?socket={}", socket.display());
        Self { child: command.spawn().unwrap(), log, uri }
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.log().contains("ready export")
    }

    pub(crate) fn wait_ready(&self) {
        let until = Instant::now() + PATIENCE;
        while !self.is_ready() {
            assert!(Instant::now() < until, "{}", self.log());
            sleep(Duration::from_millis(20));
        }
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// A command of `qemu-io`; whether it went well.
    pub(crate) fn io(&self, command: &str) -> bool {
        let arguments = ["20", "qemu-io", "-f", "raw", "-c", command, &self.uri];
        let output = Command::new("timeout").args(arguments).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        output.status.success() && !String::from_utf8_lossy(&said).contains("failed")
    }

    /// fio writes and verifies for `seconds`.
    pub(crate) fn load(&self, seconds: u32) -> Child {
        let uri = format!("--uri={}", self.uri);
        let runtime = format!("--runtime={seconds}");
        Command::new("timeout")
            .args([
                "60",
                "fio",
                "--name=job",
                "--ioengine=nbd",
                &uri,
                "--rw=randwrite",
                "--bs=4k",
                "--iodepth=16",
            ])
            .args(["--offset=32m", "--size=16m", "--time_based", &runtime, "--rate_iops=2000"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.kill();
    }
}
