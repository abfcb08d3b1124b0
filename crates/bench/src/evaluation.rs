//! `./run bench s4`: the published evaluation of software `ExpEther` again, with the same devices and stock drivers.
//!
//! One guest has an 82576 and a Sil3132 behind each of several links, and QEMU's own controllers (igb, AHCI); iperf3 sends and receives by UDP,
//! fio reads and writes at random. A round measures every way at every point once, in turn: on links as they are, and on an Ethernet of
//! 1 Gbit/s as the published one.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use etherslot_chart::{Chart, Line, Scale};
use etherslot_lab::fio::{Load, Pattern, Until};
use etherslot_lab::{
    BOX_MAC, Cache, Daemon, Guest, GuestDevice, GuestOptions, HOST_MAC, INTERFACE, KERNELS, Net, NetOptions,
    Process, Role, Run, Side, ensure_net, ensure_programs, mortal, wait_until,
};
use serde::Serialize;
use serde_json::Value;

use crate::check::Limit;
use crate::hugepages::{self, HugePages};
use crate::load::{Direction, size};
use crate::machine::Machine;
use crate::page;
use crate::runner::Stop;
use crate::section::{self, Choices};
use crate::statistic::{Spread, digits};

const GIGABIT: u64 = 1_000_000_000;
const DISK_MIB: u32 = 256;
/// For the memory of DPDK on both sides of two links, MiB.
const DPDK_MIB: u32 = 512;
/// Accesses in flight of the one job.
const DEPTH: u32 = 4;
const TAP: &str = "tap0";
const LOCAL_SERIAL: &str = "LOCAL";
const PATIENCE: Duration = Duration::from_mins(2);

/// What lies between guest and devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Way {
    /// The published kernel version: `AF_PACKET`, a frame for each TLP of 256 bytes at most.
    Published,
    /// `AF_PACKET` as we use it.
    Packet,
    /// DPDK: by memif where the link is free, by its `AF_PACKET` driver on the Ethernet of 1 Gbit/s.
    Dpdk,
    /// A ring in shared memory.
    Ring,
    /// Nothing: QEMU's igb and AHCI.
    Local,
}

/// What the nodes stand on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Ethernet {
    /// As quick as it can be.
    Free,
    /// A token bucket each way.
    Gigabit,
}

/// What is measured; Mbit/s of a network, MB/s of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum What {
    /// UDP from the guest.
    Send,
    /// UDP to the guest.
    Receive,
    /// Random accesses of so many bytes.
    Disk(Direction, u32),
}

/// What is measured, by which way, on which Ethernet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct Case {
    ethernet: Ethernet,
    way: Way,
    what: What,
}

impl Case {
    fn name(self) -> String {
        format!("{}, {}, {}", self.ethernet.name(), self.way.name(), self.what.name())
    }
}

type Record = section::Record<Case, f64>;

impl Way {
    const ALL: [Self; 5] = [Self::Published, Self::Packet, Self::Dpdk, Self::Ring, Self::Local];

    fn name(self) -> &'static str {
        match self {
            Self::Published => "published",
            Self::Packet => "packet",
            Self::Dpdk => "dpdk",
            Self::Ring => "shared memory",
            Self::Local => "local",
        }
    }

    fn color(self) -> &'static str {
        match self {
            Self::Published => "#7f7f7f",
            Self::Packet => "#1f77b4",
            Self::Dpdk => "#d62728",
            Self::Ring => "#17becf",
            Self::Local => "#000000",
        }
    }

    /// Shared memory is no Ethernet that could be slow.
    fn is_on(self, ethernet: Ethernet) -> bool {
        ethernet == Ethernet::Free || self != Self::Ring
    }
}

impl Ethernet {
    const ALL: [Self; 2] = [Self::Free, Self::Gigabit];

    fn name(self) -> &'static str {
        match self {
            Self::Free => "links as quick as they can be",
            Self::Gigabit => "1 Gbit/s Ethernet",
        }
    }
}

impl What {
    fn name(self) -> String {
        match self {
            Self::Send => "UDP, send, Mbit/s".to_owned(),
            Self::Receive => "UDP, receive, Mbit/s".to_owned(),
            Self::Disk(direction, bytes) => format!("{} {}, MB/s", direction.random(), size(bytes)),
        }
    }
}

/// All that is measured, in the order of a round.
fn whats(is_quick: bool) -> Vec<What> {
    let sizes: Vec<u32> = if is_quick {
        vec![4 << 10, 128 << 10, 1 << 20]
    } else {
        (12..=20).map(|power| 1 << power).collect()
    };
    let disk = |direction| sizes.iter().map(move |&bytes| What::Disk(direction, bytes));
    [What::Send, What::Receive].into_iter().chain(Direction::BOTH.into_iter().flat_map(disk)).collect()
}

/// A way, its nodes, and what the guest calls the devices behind it.
struct Station {
    way: Way,
    /// DPDK has one for each.
    ethernets: &'static [Ethernet],
    number: usize,
    net: Net,
    /// In the order in which they end.
    nodes: Vec<Daemon>,
    devices: Vec<GuestDevice>,
    server: Option<Process>,
    disk: String,
    run: Run,
}

/// Addresses of the far end and of the guest's.
fn addresses(number: usize) -> [String; 2] {
    [1, 2].map(|end| format!("10.82.{}.{end}", 100 + number))
}

fn mac(number: usize) -> String {
    format!("02:00:00:00:82:{number:02x}")
}

/// The `[link]` tables of box and host, and the box's address.
fn links(way: Way, ethernet: Ethernet, folder: &str) -> ([String; 2], String) {
    let both = |table: String| [table.clone(), table];
    let tables = match (way, ethernet) {
        (Way::Ring, _) => {
            [1, 2].map(|port| format!("kind = \"ring\"\nhub = \"{folder}/hub\"\nport = {port}\n"))
        }
        (Way::Dpdk, Ethernet::Free) => [("role=server,", BOX_MAC), ("", HOST_MAC)].map(|(role, mac)| {
            format!("kind = \"dpdk\"\ndevice = \"net_memif0,{role}socket={folder}/memif\"\nmac = \"{mac}\"\n")
        }),
        (Way::Dpdk, Ethernet::Gigabit) => {
            both(format!("kind = \"dpdk\"\ndevice = \"net_af_packet0,iface={INTERFACE}\"\n"))
        }
        _ => both(format!("kind = \"packet\"\ninterface = \"{INTERFACE}\"\n")),
    };
    let address = if way == Way::Ring { "ring:1" } else { BOX_MAC };
    (tables, address.to_owned())
}

impl Station {
    fn start(way: Way, ethernets: &'static [Ethernet], number: usize) -> Result<Self> {
        let run = Run::new("bench-s4")?;
        let net = Net::new(&run, NetOptions::default())?;
        let mut station = Self {
            way,
            ethernets,
            number,
            net,
            nodes: Vec::new(),
            devices: Vec::new(),
            server: None,
            disk: String::new(),
            run,
        };
        if way != Way::Local {
            station.start_nodes()?;
        }
        Ok(station)
    }

    fn start_nodes(&mut self) -> Result<()> {
        let folder = self.run.folder().display().to_string();
        let (links, address) = links(self.way, self.ethernets[0], &folder);
        let [box_session, host_session] = if self.way == Way::Published {
            let both = "[session]\none_tlp_a_frame = true\nread_ahead = false\n";
            [both.to_owned(), format!("{both}max_payload = 256\n")]
        } else {
            [String::new(), String::new()]
        };
        let head = |name: &str, link: &str, session: &str| {
            // As the published ones, which had no protection.
            format!("[node]\nname = \"{name}\"\n[link]\n{link}{session}[security]\nplaintext = true\n")
        };
        let (number, mac) = (self.number, mac(self.number));
        let box_config = head("box", &links[0], &box_session)
            + &format!(
                "[[device]]\nkind = \"82576\"\nname = \"nic\"\nserial = \"NIC{number}\"\nmac = \"{mac}\"\nnetwork = {{ tap = \"{TAP}\" }}\n\
                 [[device]]\nkind = \"sil3132\"\nname = \"sata\"\nserial = \"SATA{number}\"\n[[device.disk]]\nmemory = \"{DISK_MIB} MiB\"\n"
            );
        let mut host_config = head("host", &links[1], &host_session);
        for device in ["nic", "sata"] {
            let socket = self.run.path(&format!("{device}.sock"));
            // Writing to a string does not fail.
            let _ = write!(
                host_config,
                "[[slot]]\ndevice = \"{device}\"\nbox = \"{address}\"\nsocket = {:?}\n",
                socket.to_string_lossy()
            );
            self.devices.push(GuestDevice::VfioUser { socket, id: format!("{device}{number}") });
        }
        let io_box = Daemon::start(&self.run, &self.net, Role::Box, "box", &box_config)?;
        let host = Daemon::start(&self.run, &self.net, Role::Host, "host", &host_config)?;
        self.nodes = vec![host, io_box];
        Ok(())
    }

    /// Both ends of the network, and the names in the guest.
    fn set_up(&mut self, guest: &Guest) -> Result<()> {
        let namespace = self.net.namespace(Side::Box);
        let [far, near] = addresses(self.number);
        let tap = if self.way == Way::Local { local_tap() } else { TAP.to_owned() };
        if self.way == Way::Local {
            // QEMU keeps it open wherever it is.
            ip(&["link", "set", &tap, "netns", &namespace])?;
        }
        ip(&["-n", &namespace, "address", "add", &format!("{far}/24"), "dev", &tap])?;
        ip(&["-n", &namespace, "link", "set", &tap, "up"])?;
        let script = format!(
            "for nic in /sys/class/net/*; do
                 [ \"$(cat $nic/address)\" = {} ] && name=$(basename $nic)
             done
             ip addr add {near}/24 dev $name && ip link set $name up || exit 1
             n=0; until [ \"$(cat /sys/class/net/$name/carrier)\" = 1 ]; do
                 n=$((n + 1)); [ $n -lt 300 ] || exit 1; sleep 0.1
             done",
            mac(self.number)
        );
        guest.check(&script, PATIENCE)?;
        let serial = match self.way {
            Way::Local => LOCAL_SERIAL.to_owned(),
            _ => format!("SATA{}", self.number),
        };
        self.disk = guest.sata(&serial, PATIENCE)?;
        let mut server = mortal(Some(&namespace), Path::new("iperf3"));
        server.args(["--server", "--bind", &far]);
        self.server = Some(Process::start("iperf3", server, &self.run.path("iperf3.log"))?);
        wait_until("an answer to a ping", PATIENCE, || {
            guest.run(&format!("ping -c 1 -W 1 {far}"), PATIENCE).is_ok_and(|output| output.status == 0)
        });
        Ok(())
    }

    fn limit(&self, ethernet: Ethernet) -> Result<()> {
        let limit = (ethernet == Ethernet::Gigabit).then_some(GIGABIT);
        for side in [Side::Host, Side::Box] {
            self.net.limit_rate(side, limit)?;
        }
        Ok(())
    }

    fn measure(&self, guest: &Guest, what: What, time: Duration) -> Result<f64> {
        let (direction, block_bytes) = match what {
            What::Send | What::Receive => {
                let [far, _] = addresses(self.number);
                let reverse = if what == What::Receive { " -R" } else { "" };
                let command =
                    format!("iperf3 --json -u -b 1G -t {} -c {far}{reverse}", time.as_secs_f64().ceil());
                return received(&guest.check(&command, time + PATIENCE)?);
            }
            What::Disk(direction, block_bytes) => (direction, block_bytes),
        };
        let load = Load {
            device: self.disk.clone(),
            pattern: match direction {
                Direction::Read => Pattern::RandomRead,
                Direction::Write => Pattern::RandomWrite,
            },
            block_bytes,
            depth: DEPTH,
            area_bytes: u64::from(DISK_MIB) << 20,
            until: Until::Time(time),
            ..Load::default()
        };
        Ok(guest.fio(&load, time + PATIENCE)?.bytes_per_second() / 1e6)
    }
}

/// Mbit/s that came, of what iperf3 tells: some releases tell of UDP only what was sent, and which part of it was lost.
fn received(json: &str) -> Result<f64> {
    let report: Value = serde_json::from_str(json).with_context(|| format!("iperf3 said {json:?}"))?;
    let end = &report["end"];
    let came = end["sum_received"]["bits_per_second"].as_f64().filter(|rate| *rate > 0.0);
    let sum = || {
        let lost = end["sum"]["lost_percent"].as_f64()?;
        Some(end["sum"]["bits_per_second"].as_f64()? * (1.0 - lost / 100.0))
    };
    Ok(came.or_else(sum).with_context(|| format!("no rate in {json}"))? / 1e6)
}

fn ip(arguments: &[&str]) -> Result<()> {
    let output = Command::new("ip").args(arguments).output()?;
    ensure!(output.status.success(), "ip {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// The TAP interface that QEMU makes, named as no other run's is.
fn local_tap() -> String {
    format!("es{}", std::process::id())
}

/// QEMU's own controllers, each below a root port as a card in a slot is.
fn local_devices(number: usize, disk: &Path) -> Vec<String> {
    let disk = disk.display();
    let words = [
        "-device".to_owned(),
        "pcie-root-port,id=local0,bus=pcie.0,chassis=8,slot=8".to_owned(),
        "-device".to_owned(),
        "pcie-root-port,id=local1,bus=pcie.0,chassis=9,slot=9".to_owned(),
        "-netdev".to_owned(),
        format!("tap,id=localnet,ifname={},script=no,downscript=no", local_tap()),
        "-device".to_owned(),
        format!("igb,netdev=localnet,bus=local0,mac={}", mac(number)),
        "-blockdev".to_owned(),
        format!("driver=raw,node-name=localdisk,file.driver=file,file.filename={disk},file.aio=io_uring"),
        "-device".to_owned(),
        "ahci,id=localahci,bus=local1".to_owned(),
        "-device".to_owned(),
        format!("ide-hd,drive=localdisk,bus=localahci.0,serial={LOCAL_SERIAL}"),
    ];
    words.into()
}

/// Whether all bars were met, if they are asked for. `disk` is a file in memory of [`DISK_MIB`].
pub(crate) fn run(choices: Choices, stop: &Stop) -> Result<bool> {
    ensure_net()?;
    ensure_programs(&[("iperf3", "iperf3"), ("ping", "iputils-ping")])?;
    let cache =
        Cache::ensure_with(&KERNELS[0], &mut |text| eprintln!("lab: {text}")).context("set the lab up")?;
    hugepages::clear_stale();
    let own = Run::new("bench-s4")?;
    let pages = HugePages::new(DPDK_MIB, own.path("huge"));
    if let Err(error) = &pages {
        eprintln!("bench: DPDK without huge pages: {error:#}");
    }
    let machine = Machine::look(None);
    let disk = crate::bed::memory_file(DISK_MIB)?;

    let mut stations = Vec::new();
    for (number, (way, ethernets)) in [
        (Way::Published, &Ethernet::ALL[..]),
        (Way::Packet, &Ethernet::ALL[..]),
        (Way::Dpdk, &[Ethernet::Free][..]),
        (Way::Dpdk, &[Ethernet::Gigabit][..]),
        (Way::Ring, &[Ethernet::Free][..]),
        (Way::Local, &Ethernet::ALL[..]),
    ]
    .into_iter()
    .enumerate()
    {
        stations.push(Station::start(way, ethernets, number).with_context(|| way.name())?);
    }
    let options = GuestOptions {
        devices: stations.iter().flat_map(|station| station.devices.iter().cloned()).collect(),
        spare_ports: 0,
        kernel_arguments: vec!["lab.modules=igb,sata_sil24,ahci,sd_mod".to_owned()],
        qemu_arguments: local_devices(stations.len() - 1, &disk.path()),
        ..GuestOptions::default()
    };
    let guest = Guest::start(&own, &cache, &options)?;
    for station in &mut stations {
        station.set_up(&guest).with_context(|| station.way.name())?;
    }

    let rounds = choices.rounds.unwrap_or(if choices.is_quick { 2 } else { 3 });
    let seconds = choices.seconds.unwrap_or(1);
    let mut rows = Vec::new();
    for ethernet in Ethernet::ALL {
        let here: Vec<&Station> =
            stations.iter().filter(|station| station.ethernets.contains(&ethernet)).collect();
        for station in &here {
            station.limit(ethernet)?;
        }
        let of = |what| here.iter().map(move |station| Case { ethernet, way: station.way, what });
        let cases: Vec<Case> = whats(choices.is_quick).into_iter().flat_map(of).collect();
        let time = Duration::from_secs(seconds);
        let turn = |case: Case| {
            let station = here.iter().find(|station| station.way == case.way).context("no such way")?;
            station.measure(&guest, case.what, time)
        };
        rows.extend(section::measure(&cases, rounds, stop, Case::name, |value| digits(*value), turn)?);
    }
    let record = Record {
        benchmark: "s4",
        machine: machine.ended(),
        rounds,
        seconds: Some(seconds as f64),
        bytes: None,
        rows,
    };
    let bars = bars(&record).into_iter().map(|(name, ratio, limit)| (name.to_owned(), ratio, limit));
    let charts = Ethernet::ALL
        .into_iter()
        .flat_map(|ethernet| Direction::BOTH.map(|direction| (ethernet, direction)))
        .map(|(ethernet, direction)| (file(ethernet, direction), chart(&record, ethernet, direction).svg()));
    section::finish(choices, &record, bars, &markdown(&record), charts)
}

impl Record {
    fn spread(&self, ethernet: Ethernet, way: Way, what: What) -> Option<Spread> {
        Spread::of(self.turns(Case { ethernet, way, what })?.iter().copied())
    }

    fn ratio(&self, ethernet: Ethernet, what: What, above: Way, below: Way) -> Option<Spread> {
        let turns = |way| self.turns(Case { ethernet, way, what });
        Spread::of_ratios(turns(above)?, turns(below)?)
    }

    /// What was measured, in the order of a round.
    fn whats(&self) -> Vec<What> {
        let mut whats: Vec<What> = Vec::new();
        for row in &self.rows {
            if !whats.contains(&row.case.what) {
                whats.push(row.case.what);
            }
        }
        whats
    }
}

/// What is to hold, with what was published as its name says.
fn bars(record: &Record) -> Vec<(&'static str, Option<Spread>, Limit)> {
    let dpdk = |what| record.ratio(Ethernet::Free, what, Way::Dpdk, Way::Published);
    let disks = record.whats().into_iter().filter(|what| matches!(what, What::Disk(..))).filter_map(dpdk);
    let best = disks.max_by(|one, other| one.median.total_cmp(&other.median));
    let nic = |what| record.ratio(Ethernet::Gigabit, what, Way::Packet, Way::Local);
    vec![
        ("S4: NIC send, DPDK / published way", dpdk(What::Send), Limit::AtLeast(2.65)),
        ("S4: NIC receive, DPDK / published way", dpdk(What::Receive), Limit::AtLeast(3.79)),
        ("S4: SATA at best, DPDK / published way", best, Limit::AtLeast(3.98)),
        ("S4: 82576 on 1 Gbit/s, send / local igb", nic(What::Send), Limit::AtLeast(0.9)),
        ("S4: 82576 on 1 Gbit/s, receive / local igb", nic(What::Receive), Limit::AtLeast(0.9)),
    ]
}

fn markdown(record: &Record) -> String {
    let Record { machine, rounds, .. } = record;
    let seconds = record.seconds.unwrap_or_default();
    let mut out = format!(
        "`./run bench s4`: one guest (TCG) with an 82576 and a Sil3132 by each way, medians of {rounds} interleaved rounds of {seconds} s and their \
         ends; iperf3 UDP at 1 Gbit/s, what arrived; fio, one job, {DEPTH} accesses in flight; {machine}. Published: DPDK over the \
         kernel way 2.65 (send), 3.79 (receive), up to 3.98 (SATA), and the kernel way failed at 256 KiB and more.\n\n"
    );
    for ethernet in Ethernet::ALL {
        let ways: Vec<Way> = Way::ALL.into_iter().filter(|way| way.is_on(ethernet)).collect();
        let names: Vec<&str> = ways.iter().map(|way| way.name()).collect();
        // Writing to a string does not fail.
        let _ = writeln!(out, "With {}:\n\n| | {} | dpdk / published |", ethernet.name(), names.join(" | "));
        let _ = writeln!(out, "|{}", "---|".repeat(names.len() + 2));
        for what in record.whats() {
            let cell = |&way: &Way| match record.spread(ethernet, way, what) {
                Some(Spread { median, least, most }) => format!("{median:.0} ({least:.0}-{most:.0})"),
                None => "-".to_owned(),
            };
            let cells: Vec<String> = ways.iter().map(cell).collect();
            let ratio = record.ratio(ethernet, what, Way::Dpdk, Way::Published);
            let ratio = ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{:.2}", ratio.median));
            let _ = writeln!(out, "| {} | {} | {ratio} |", what.name(), cells.join(" | "));
        }
        out.push('\n');
        for direction in Direction::BOTH {
            let title = title(ethernet, direction);
            let _ = writeln!(out, "![{title}]({}/{})\n", page::CHARTS, file(ethernet, direction));
        }
    }
    out
}

fn title(ethernet: Ethernet, direction: Direction) -> String {
    format!("Sil3132, random {}s, {}", direction.name(), ethernet.name())
}

fn file(ethernet: Ethernet, direction: Direction) -> String {
    let ethernet = match ethernet {
        Ethernet::Free => "free",
        Ethernet::Gigabit => "gigabit",
    };
    format!("s4-{ethernet}-{}.svg", direction.name())
}

fn chart(record: &Record, ethernet: Ethernet, direction: Direction) -> Chart {
    let sizes: Vec<u32> = record
        .whats()
        .into_iter()
        .filter_map(|what| match what {
            What::Disk(of, bytes) if of == direction => Some(bytes),
            _ => None,
        })
        .collect();
    let part = |place: usize| place as f64 / (sizes.len().max(2) - 1) as f64;
    let line = |way: Way| {
        let point = |(place, &bytes): (usize, &u32)| {
            Some((part(place), record.spread(ethernet, way, What::Disk(direction, bytes))?.median))
        };
        let points: Vec<(f64, f64)> = sizes.iter().enumerate().filter_map(point).collect();
        let is_dashed = way == Way::Local;
        Line { name: way.name().to_owned(), color: way.color(), is_dashed, is_strong: false, points }
    };
    let lines: Vec<Line> = Way::ALL.into_iter().filter(|way| way.is_on(ethernet)).map(line).collect();
    Chart {
        title: title(ethernet, direction),
        x_label: "bytes of an access".to_owned(),
        x_marks: sizes.iter().enumerate().map(|(place, &bytes)| (part(place), size(bytes))).collect(),
        y_label: "MB/s".to_owned(),
        scale: Scale::log_around(lines.iter().flat_map(|line| &line.points).map(|point| point.1)),
        lines,
        has_dots: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        let mut rows = Vec::new();
        for ethernet in Ethernet::ALL {
            for way in Way::ALL.into_iter().filter(|way| way.is_on(ethernet)) {
                for what in whats(false) {
                    let value = match (way, what) {
                        (Way::Dpdk, What::Disk(Direction::Read, 65_536)) => 50.0,
                        (Way::Dpdk, _) => 30.0,
                        _ => 10.0,
                    };
                    rows.push(section::Row { case: Case { ethernet, way, what }, turns: vec![value; 3] });
                }
            }
        }
        let machine = Machine::default();
        Record { benchmark: "s4", machine, rounds: 3, seconds: Some(1.0), bytes: None, rows }
    }

    #[test]
    fn bars_compare_what_was_measured_on_the_same_ethernet() {
        let medians: Vec<f64> =
            bars(&record()).into_iter().map(|(_, ratio, _)| ratio.unwrap().median).collect();
        assert_eq!(medians.len(), 5);
        for (median, expected) in medians.into_iter().zip([3.0, 3.0, 5.0, 1.0, 1.0]) {
            assert!((median - expected).abs() < 1e-9);
        }
    }

    #[test]
    fn the_page_has_all_ways_and_its_charts() {
        let text = markdown(&record());
        assert_eq!(text.matches("shared memory |").count(), 1, "it is no Ethernet: {text}");
        assert!(
            text.contains("| randread 4 KiB, MB/s | 10 (10-10) |") && text.contains("| 3.00 |"),
            "{text}"
        );
        let svg = chart(&record(), Ethernet::Free, Direction::Read).svg();
        assert!(svg.contains("64 KiB") && text.contains("s4-gigabit-write.svg"), "{svg}");
    }

    #[test]
    fn what_arrived_is_told_by_old_and_new_releases_of_iperf3() {
        let old = r#"{"end": {"sum": {"bits_per_second": 2e8, "lost_percent": 25.0}}}"#;
        let new = r#"{"end": {"sum": {"bits_per_second": 2e8, "lost_percent": 25.0}, "sum_received": {"bits_per_second": 1.5e8}}}"#;
        for json in [old, new] {
            assert!((received(json).unwrap() - 150.0).abs() < 1e-9, "{json}");
        }
        assert!(received("{}").is_err() && received("iperf3: error").is_err());
    }

    #[test]
    fn nodes_of_a_way_name_its_link() {
        let ([io_box, host], address) = links(Way::Dpdk, Ethernet::Free, "/r");
        assert!(
            io_box.contains("role=server,socket=/r/memif") && host.contains("net_memif0,socket=/r/memif")
        );
        assert_eq!(address, BOX_MAC);
        assert!(links(Way::Dpdk, Ethernet::Gigabit, "/r").0[0].contains("net_af_packet0,iface=eth0"));
        assert_eq!(links(Way::Ring, Ethernet::Free, "/r").1, "ring:1");
    }
}
