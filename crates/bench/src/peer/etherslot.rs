//! Ourselves: `etherslot box` with namespaces in memory, and `etherslot nvme bench`.

use std::fmt::Write as _;
use std::fs;
use std::ops::Range;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use etherslot_lab::{HOST_IP, KEY_VARIABLE, Process, Side, etherslot_binary, node_keys};
use serde_json::Value;

use super::Peer;
use crate::bed::{self, Bed};
use crate::contender::{Commands, Link, Setup};
use crate::load::{Figures, Load};

const START: Duration = Duration::from_secs(20);
/// Longer than any pause within a turn: who has a core of his own polls.
const BUSY_POLL: &str = "10s";
/// Devices that one idle host attaches: no more have room below a host's switch.
const SLOTS: u16 = 31;
/// For the queues of any depth that is measured.
const CMB_BYTES: u32 = 1 << 20;
/// The largest access that is measured.
const MAX_TRANSFER_MIB: u32 = 4;
/// For the idle ones: nobody reads or writes them.
const IDLE_MIB: u32 = 1;

pub(crate) struct Etherslot {
    server: Process,
    setup: Setup,
    link: Link,
    /// They hold all devices that nobody works with.
    idle: Vec<Process>,
}

impl Etherslot {
    pub(crate) fn start(bed: &Bed, setup: Setup, link: Link) -> Result<Self> {
        let name = setup.name();
        let folder = folder(bed, setup);
        fs::create_dir_all(&folder)?;
        let config = bed.path(&format!("{name}.toml"));
        fs::write(
            &config,
            configuration(setup, link, &folder.display().to_string(), bed.choices.memory_mib),
        )?;
        let mut command = bed.command(Side::Box, setup, &etherslot_binary()?)?;
        command.arg("box").arg("--config").arg(&config);
        protect(&mut command, bed, link, "box")?;
        command.arg("--control").arg(folder.join("box.control"));
        let mut server = bed.serve(&name, command)?;
        server.wait_until("that it is ready", START, |server| server.log().contains("ready"))?;
        let mut peer = Self { server, setup, link, idle: Vec::new() };
        let mut first = setup.hosts.max(1);
        while first < setup.devices {
            let end = setup.devices.min(first + SLOTS);
            let host = peer.idle_host(bed, first..end)?;
            peer.idle.push(host);
            first = end;
        }
        Ok(peer)
    }

    /// A host that has these devices, ready, and does nothing with them.
    fn idle_host(&self, bed: &Bed, devices: Range<u16>) -> Result<Process> {
        let name = format!("{}-host{}", self.setup.name(), devices.start);
        let folder = folder(bed, self.setup);
        let config = bed.path(&format!("{name}.toml"));
        let address = self.link.box_address();
        let mut text = format!(
            "[node]\nname = \"idle{}\"\nbusy_poll = \"0s\"\n\
             [link]\nkind = \"udp\"\nlisten = \"{HOST_IP}:0\"\n\
             [session]\ndead_after = \"4s\"\n",
            devices.start
        );
        ensure!(self.link == Link::Udp, "idle hosts share an interface: that takes UDP");
        for device in devices.clone() {
            let socket = folder.join(format!("{device}.sock"));
            // Writing to a string does not fail.
            let _ = write!(
                text,
                "[[slot]]\ndevice = \"disk{device}\"\nbox = \"{address}\"\nsocket = \"{}\"\n",
                socket.display()
            );
        }
        fs::write(&config, text)?;
        let mut command = bed.command(Side::Host, self.setup, &etherslot_binary()?)?;
        command.arg("host").arg("--config").arg(&config);
        protect(&mut command, bed, self.link, "host")?;
        command.arg("--control").arg(folder.join(format!("host{}.control", devices.start)));
        let mut host = bed.serve(&name, command)?;
        let is_up = |host: &Process| host.log().matches("device attached").count() >= devices.len();
        host.wait_until("that all its devices are attached", START, is_up)?;
        Ok(host)
    }

    /// A host that puts a load on its device; what it says is for [`figures`].
    fn client(&self, bed: &Bed, device: u16, load: &Load, time: Duration) -> Result<Process> {
        let folder = folder(bed, self.setup).display().to_string();
        let mut command = bed.command(Side::Host, self.setup, &etherslot_binary()?)?;
        command.args(["nvme", "bench", &format!("disk{device}@{}", self.link.box_address())]);
        command.args(["--link", &self.link.of_host(&folder)]);
        command.args(["--rw", load.direction.random(), "--block-size", &load.block_bytes.to_string()]);
        protect(&mut command, bed, self.link, "host")?;
        // A client before may have gone without the box's having seen it.
        command.args(["--wait", "10s"]);
        command.args(["--queue-depth", &load.depth.to_string()]);
        // The server's CPU time is to be that of what is counted.
        let warm_up = if self.setup.sleeps { 0.0 } else { time.as_secs_f64().min(WARM_UP) };
        command.args(["--warm-up", &warm_up.to_string()]);
        command.args(["--seconds", &time.as_secs_f64().to_string(), "--output", "json"]);
        command.args(["--max-payload", &self.setup.payload.to_string()]);
        if self.link.one_tlp_a_frame() {
            command.arg("--one-tlp-a-frame");
        }
        if self.setup.contender.commands() == Some(Commands::Cmb) {
            command.args(["--submission", "cmb"]);
        }
        if self.setup.hosts > 0 {
            // They share a core.
            command.args(["--busy-poll", "0s"]);
        }
        bed.serve(&format!("etherslot-client{device}"), command)
    }

    /// Puts a load on the first device, or a part of it on that of each host.
    fn load(&self, bed: &Bed, load: &Load, time: Duration) -> Result<Figures> {
        let hosts = self.setup.hosts.max(1);
        let share = Load { depth: (load.depth / u32::from(hosts)).max(1), ..*load };
        let clients: Result<Vec<Process>> =
            (0..hosts).map(|device| self.client(bed, device, &share, time)).collect();
        let mut sum = Figures::default();
        for mut client in clients? {
            let output = bed::outcome(&mut client, time)?;
            let one = figures(&output).with_context(|| format!("no figures in {output:?}"))?;
            ensure!(one.iops > 0.0, "no access was completed");
            // Latencies of several are not those of their sum.
            sum = if hosts == 1 { one } else { Figures { iops: sum.iops + one.iops, ..sum } };
        }
        Ok(sum)
    }
}

/// Seconds: until windows and caches are what they will be.
const WARM_UP: f64 = 0.2;

/// For sockets of this setup, whose paths may not be long.
fn folder(bed: &Bed, setup: Setup) -> PathBuf {
    bed.path(&setup.name().replace("etherslot-", ""))
}

/// Gives a node keys of its own, or the word that it has none.
fn protect(command: &mut Command, bed: &Bed, link: Link, node: &str) -> Result<()> {
    if link.is_sealed() {
        command.env(KEY_VARIABLE, node_keys(bed.run(), node)?);
    } else {
        command.arg("--plaintext");
    }
    Ok(())
}

fn configuration(setup: Setup, link: Link, folder: &str, memory_mib: u32) -> String {
    let busy_poll = if setup.sleeps { "0s" } else { BUSY_POLL };
    // Writing to a string does not fail.
    let mut text = format!("[node]\nname = \"bench\"\nbusy_poll = \"{busy_poll}\"\n");
    text.push_str(&link.box_table(folder));
    // Idle hosts show that they live now and then only; of clients, the box is to forget soon.
    let dead_after = if setup.devices > 1 { "4s" } else { "1s" };
    let _ = writeln!(text, "[session]\ndead_after = \"{dead_after}\"");
    if link.one_tlp_a_frame() {
        text.push_str("one_tlp_a_frame = true\n");
    }
    if link.one_tlp_a_frame() || setup.contender.commands() == Some(Commands::Fetched) {
        text.push_str("read_ahead = false\n");
    }
    for device in 0..setup.devices {
        // However many are at work: as much memory.
        let busy = setup.hosts.max(1);
        let mib = if device < busy { memory_mib / u32::from(busy) } else { IDLE_MIB };
        let cmb = if setup.contender.commands() == Some(Commands::Cmb) {
            format!("cmb_bytes = {CMB_BYTES}\n")
        } else {
            String::new()
        };
        let _ = write!(
            text,
            "[[device]]\nkind = \"nvme\"\nname = \"disk{device}\"\nserial = \"BENCH{device}\"\n\
             max_transfer = \"{MAX_TRANSFER_MIB} MiB\"\n{cmb}\
             [[device.namespace]]\nmemory = \"{mib} MiB\"\n"
        );
    }
    text
}

/// Reads what `nvme bench --output json` prints: one object on a line, with one point; log lines may stand before it.
fn figures(output: &str) -> Option<Figures> {
    let line = output.lines().rev().find(|line| line.starts_with('{'))?;
    let value: Value = serde_json::from_str(line).ok()?;
    let point = value["points"].get(0)?;
    let us = |name: &str| point["latency"][name].as_f64().map(|ns| ns / 1000.0);
    Some(Figures {
        iops: point["operations_per_second"].as_f64()?,
        p50_us: us("p50_ns"),
        p99_us: us("p99_ns"),
        p999_us: us("p999_ns"),
        server_us: None,
    })
}

impl Peer for Etherslot {
    fn measure(&mut self, bed: &Bed, load: &Load, time: Duration) -> Result<Figures> {
        self.load(bed, load, time)
    }

    fn server(&mut self) -> Option<&mut Process> {
        Some(&mut self.server)
    }

    fn rests(&self) -> bool {
        // Otherwise its sessions would die, and the idle hosts come back within the next turn.
        !self.setup.sleeps
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::benchmark::{BENCHMARKS, Benchmark};
    use crate::contender::Contender;

    #[test]
    fn a_box_has_a_device_for_each_that_is_asked_for_and_the_link() {
        let setup = Setup { devices: 3, ..Setup::new(Contender::Etherslot(Link::Published)) };
        let text = configuration(setup, Link::Published, "/f", 96);
        assert_eq!(text.matches("memory = \"96 MiB\"").count(), 1);
        assert_eq!(text.matches("[[device]]").count(), 3);
        assert!(text.contains("[link]\nkind = \"packet\"\n") && text.contains("one_tlp_a_frame = true"));
        assert!(text.contains(BUSY_POLL));
        let setup = Setup { devices: 4, hosts: 4, ..Setup::new(Contender::Etherslot(Link::Udp)) };
        assert_eq!(configuration(setup, Link::Udp, "/f", 96).matches("memory = \"24 MiB\"").count(), 4);
        let of = |commands| Setup::new(Contender::Commands(Link::Udp, commands));
        let text = |commands| configuration(of(commands), Link::Udp, "/f", 96);
        assert!(text(Commands::Fetched).contains("read_ahead = false"));
        assert!(text(Commands::Cmb).contains("cmb_bytes = 1048576\n[[device.namespace]]"));
        let setup = Setup { sleeps: true, ..Setup::new(Contender::Etherslot(Link::Ring)) };
        let text = configuration(setup, Link::Ring, "/f", 96);
        assert!(text.contains("hub = \"/f/hub\"") && text.contains("busy_poll = \"0s\""));
    }

    #[test]
    fn no_benchmark_has_an_access_that_the_device_does_not_take() {
        let accesses = BENCHMARKS.iter().flat_map(Benchmark::points).map(|point| point.load.block_bytes);
        assert_eq!(accesses.max(), Some(MAX_TRANSFER_MIB << 20));
    }

    #[test]
    fn the_figures_are_those_of_the_point() {
        let output = "INFO the device is up\n{\"device\":\"d\",\"points\":[{\"rw\":\"randread\",\"operations_per_second\":1500.5,\
                      \"latency\":{\"p50_ns\":9000,\"p99_ns\":20000,\"p999_ns\":30000}}]}\n";
        let figures = figures(output).unwrap();
        assert!((figures.iops - 1500.5).abs() < 1e-9);
        assert!(figures.p999_us.is_some_and(|us| (us - 30.0).abs() < 1e-9));
        assert!(super::figures("INFO nothing\n").is_none() && super::figures("{\"points\":[]}").is_none());
    }
}
