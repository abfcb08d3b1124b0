//! The named benchmarks: which loads on which contenders, and what is drawn over what.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use crate::contender::{Contender, Link, Setup};
use crate::load::{Direction, Load};

/// What is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Measure {
    /// Thousands of accesses a second.
    Kiops,
    /// 10^9 bytes a second.
    GigabytesPerSecond,
    /// Median latency, microseconds.
    P50,
    /// CPU time of the box for an access, microseconds.
    ServerTime,
}

impl Measure {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Kiops => "thousand IOPS",
            Self::GigabytesPerSecond => "GB/s",
            Self::P50 => "median latency, us",
            Self::ServerTime => "CPU time of the box per access, us",
        }
    }
}

/// A place on the x axis, and what is measured there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Point {
    pub(crate) setup: Setup,
    pub(crate) load: Load,
    /// The value on the x axis.
    pub(crate) x: u32,
}

/// A named benchmark.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Benchmark {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    /// What is on the x axis.
    pub(crate) over: &'static str,
    pub(crate) measure: Measure,
    points: fn() -> Vec<Point>,
}

/// All of them, in the order of the page; that of the guest is apart.
pub(crate) const BENCHMARKS: &[Benchmark] = &[
    Benchmark {
        name: "qd",
        title: "4 KiB accesses over queue depth",
        over: "queue depth",
        measure: Measure::Kiops,
        points: qd,
    },
    Benchmark {
        name: "bs",
        title: "Throughput over block size, queue depth 8",
        over: "block size, bytes",
        measure: Measure::GigabytesPerSecond,
        points: bs,
    },
    Benchmark {
        name: "latency",
        title: "Latency of 4 KiB accesses at queue depth 1",
        over: "queue depth",
        measure: Measure::P50,
        points: latency,
    },
    Benchmark {
        name: "links",
        title: "Link against link, 4 KiB at queue depth 32 and larger blocks at 8",
        over: "block size, bytes",
        measure: Measure::GigabytesPerSecond,
        points: links,
    },
    Benchmark {
        name: "devices",
        title: "What an access costs a box of many devices, 4 KiB at queue depth 32 on one of them",
        over: "devices that hosts have attached",
        measure: Measure::ServerTime,
        points: devices,
    },
    Benchmark {
        name: "hosts",
        title: "What an access costs a box that several hosts share, 4 KiB, 32 in flight together, a device each",
        over: "hosts at work",
        measure: Measure::ServerTime,
        points: hosts,
    },
    Benchmark {
        name: "commands",
        title: "The ways of a command: ahead of its doorbell, into the controller's memory, fetched; 4 KiB",
        over: "queue depth",
        measure: Measure::Kiops,
        points: commands,
    },
    Benchmark {
        name: "mtu",
        title: "4 KiB accesses at queue depth 32 over the MTU",
        over: "MTU, bytes",
        measure: Measure::Kiops,
        points: mtu,
    },
    Benchmark {
        name: "payload",
        title: "4 KiB accesses at queue depth 32 over the payload of a TLP",
        over: "payload of a TLP, bytes",
        measure: Measure::Kiops,
        points: payload,
    },
    Benchmark {
        name: "security",
        title: "What sealed frames cost",
        over: "block size, bytes",
        measure: Measure::Kiops,
        points: security,
    },
    Benchmark {
        name: "peers",
        title: "All contenders side by side",
        over: "block size, bytes",
        measure: Measure::Kiops,
        points: peers,
    },
];

impl Benchmark {
    pub(crate) fn named(name: &str) -> Option<Self> {
        BENCHMARKS.iter().copied().find(|benchmark| benchmark.name == name)
    }

    /// In the order in which they are measured: contenders innermost, so that what is compared is close in time.
    pub(crate) fn points(&self) -> Vec<Point> {
        (self.points)()
    }
}

/// Powers of two.
fn powers(exponents: RangeInclusive<u32>) -> impl Iterator<Item = u32> + Clone {
    exponents.map(|exponent| 1 << exponent)
}

/// Loads, each on all of the setups.
fn on_all(
    setups: &[Setup],
    loads: impl IntoIterator<Item = (u32, u32)>,
    x: impl Fn(u32, u32) -> u32,
) -> Vec<Point> {
    let mut points = Vec::new();
    for (block_bytes, depth) in loads {
        for direction in Direction::BOTH {
            let load = Load { direction, block_bytes, depth };
            points.extend(setups.iter().map(|&setup| Point { setup, load, x: x(block_bytes, depth) }));
        }
    }
    points
}

fn everybody() -> Vec<Setup> {
    Contender::all().into_iter().map(Setup::new).collect()
}

fn ours(links: &[Link]) -> Vec<Setup> {
    links.iter().map(|&link| Setup::new(Contender::Etherslot(link))).collect()
}

fn qd() -> Vec<Point> {
    on_all(&everybody(), powers(0..=8).map(|depth| (4096, depth)), |_, depth| depth)
}

fn bs() -> Vec<Point> {
    on_all(&everybody(), powers(9..=22).map(|block| (block, 8)), |block, _| block)
}

fn latency() -> Vec<Point> {
    on_all(&everybody(), [(4096, 1)], |_, depth| depth)
}

/// Small accesses need more of them in flight to fill a link.
pub(crate) fn depth_of(block_bytes: u32) -> u32 {
    match block_bytes {
        0..=4096 => 32,
        4097..1_048_576 => 8,
        _ => 4,
    }
}

fn links() -> Vec<Point> {
    let blocks = powers(12..=20).map(|block| (block, depth_of(block)));
    on_all(&ours(&Link::ALL), blocks, |block, _| block)
}

/// Small and large, one at a time and many.
const MIXED: [(u32, u32); 4] = [(4096, 1), (4096, 32), (128 << 10, 8), (1 << 20, 4)];

fn security() -> Vec<Point> {
    on_all(&ours(&[Link::Udp, Link::UdpSealed]), MIXED, |block, depth| block + depth)
}

fn peers() -> Vec<Point> {
    on_all(&everybody(), MIXED, |block, depth| block + depth)
}

/// One device is loaded, the others are attached and idle: whatever the box does for each of its devices, needed or not, shows.
/// The box sleeps when it has nothing to do, so that its CPU time is that of its work.
pub(crate) fn device_point(direction: Direction, devices: u16) -> Point {
    let setup = Setup { devices, sleeps: true, ..Setup::new(Contender::Etherslot(Link::Udp)) };
    Point { setup, load: Load { direction, block_bytes: 4096, depth: 32 }, x: devices.into() }
}

fn devices() -> Vec<Point> {
    let all = |direction| powers(0..=6).map(move |devices| device_point(direction, devices as u16));
    Direction::BOTH.into_iter().flat_map(all).collect()
}

/// The same load, shared by more and more hosts.
fn hosts() -> Vec<Point> {
    let point = |direction, hosts: u32| {
        let contender = Setup::new(Contender::Etherslot(Link::Udp));
        let setup = Setup { devices: hosts as u16, hosts: hosts as u16, sleeps: true, ..contender };
        Point { setup, load: Load { direction, block_bytes: 4096, depth: 32 }, x: hosts }
    };
    let all = |direction| powers(0..=4).map(move |hosts| point(direction, hosts));
    Direction::BOTH.into_iter().flat_map(all).collect()
}

fn commands() -> Vec<Point> {
    let setups: Vec<Setup> = Contender::ways_of_commands().into_iter().map(Setup::new).collect();
    on_all(&setups, [1, 4, 16, 64].map(|depth| (4096, depth)), |_, depth| depth)
}

fn mtu() -> Vec<Point> {
    let links = [Link::Packet, Link::Published, Link::Udp, Link::Xdp].map(Contender::Etherslot);
    let mut points = Vec::new();
    for mtu in [1500, 3000, 9000] {
        let setups: Vec<Setup> =
            links.into_iter().chain([Contender::Spdk]).map(|one| Setup { mtu, ..Setup::new(one) }).collect();
        points.extend(on_all(&setups, [(4096, 32)], |_, _| mtu.into()));
    }
    points
}

fn payload() -> Vec<Point> {
    let links = [Link::Packet, Link::Published, Link::Udp, Link::Ring].map(Contender::Etherslot);
    let mut points = Vec::new();
    for payload in powers(7..=12) {
        let setup = |one| Setup { payload: payload as u16, ..Setup::new(one) };
        points.extend(on_all(&links.map(setup), [(4096, 32)], |_, _| payload));
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_every_benchmark_measures_something_of_ours() {
        let names: BTreeSet<&str> = BENCHMARKS.iter().map(|benchmark| benchmark.name).collect();
        assert_eq!(names.len(), BENCHMARKS.len());
        for benchmark in BENCHMARKS {
            assert!(benchmark.points().iter().any(|point| point.setup.contender.is_ours()));
            assert_eq!(Benchmark::named(benchmark.name).map(|found| found.title), Some(benchmark.title));
        }
    }

    #[test]
    fn no_point_is_measured_twice() {
        for benchmark in BENCHMARKS {
            let points = benchmark.points();
            for (at, point) in points.iter().enumerate() {
                assert!(
                    points[..at].iter().all(|other| (other.setup, other.load) != (point.setup, point.load))
                );
            }
        }
    }
}
