//! `lab demo`: a stock guest uses a disk at the other end of an Ethernet, before one's eyes.
//!
//! Speed and correctness are shown apart. Speed is measured by plain loads, in turn on the remote disk and on QEMU's own, so
//! that both see the same machine. Correctness is shown by loads that seal and check every 4 KiB, on an area of their own.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::ValueEnum;
use etherslot_lab::fio::{Load, Measured, Pattern, Until, Verify};
use etherslot_lab::{
    Cache, Capture, Disk, Guest, GuestDevice, GuestOptions, Keep, Level, Namespace, NetOptions, NvmeName,
    Rig, RigBase, RigOptions, Run,
};
use serde_json::{Value, json};

use crate::progress::Progress;
use crate::setting::{self, LOCAL, REMOTE, clean_up_on_signals};
use crate::table;

const MIB: u64 = 1 << 20;
const DISK_BYTES: u64 = 512 * MIB;
/// Where data is checked.
const CHECKED: (u64, u64) = (0, 64 * MIB);
/// Where speed is measured.
const MEASURED: (u64, u64) = (128 * MIB, 256 * MIB);
/// How long a load that checks is meant to write or read.
const CHECK_TIME: Duration = Duration::from_millis(1500);
/// For whatever takes a moment; only a broken run gets there.
const PATIENCE: Duration = Duration::from_mins(2);

/// Options of `lab demo`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Arguments {
    /// How long each load is measured
    #[arg(long, value_name = "SECONDS", default_value_t = 3)]
    seconds: u64,
    /// MTU of the Ethernet
    #[arg(long, value_name = "BYTES", default_value_t = NetOptions::default().mtu)]
    mtu: u32,
    /// Virtual processors of the guest
    #[arg(long, default_value_t = 2)]
    cpus: u32,
    /// Faults on the host's link, such as "loss=1%,reorder=1%"
    #[arg(long, value_name = "FAULTS")]
    impair: Option<String>,
    /// What comes on standard output; the demo itself is then shown on standard error
    #[arg(long, value_enum, default_value = "text")]
    output: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Json,
}

/// A load of the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) pattern: Pattern,
    pub(crate) block_bytes: u32,
    pub(crate) depth: u32,
}

/// A line of the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    pub(crate) shape: Shape,
    pub(crate) remote: Measured,
    pub(crate) local: Measured,
    pub(crate) checked_bytes: u64,
}

/// Where the demo is told: standard output, unless that is for a program.
struct Teller(Format);

impl Teller {
    fn say(&self, text: &str) {
        match self.0 {
            Format::Text => println!("{text}"),
            Format::Json => eprintln!("{text}"),
        }
    }

    fn title(&self, text: &str) {
        self.say(&format!("\n== {text}"));
    }

    fn indented(&self, text: &str) {
        for line in text.lines() {
            self.say(&format!("  {}", line.trim_end()));
        }
    }
}

/// The whole demo.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let teller = Teller(arguments.output);
    let cache = setting::cache(&etherslot_lab::KERNELS[0])?;
    let start = Instant::now();
    let run = Run::new("demo")?;
    clean_up_on_signals(&run)?;
    let result = show(arguments, &teller, &cache, &run);
    match result {
        Err(error) => {
            run.keep_logs();
            Err(error)
        }
        Ok(report) => {
            teller.say(&format!("\nThe demo took {:.0} s.", start.elapsed().as_secs_f64()));
            if arguments.output == Format::Json {
                println!("{report:#}");
            }
            Ok(())
        }
    }
}

fn show(arguments: &Arguments, teller: &Teller, cache: &Cache, run: &Run) -> Result<Value> {
    teller.say(&format!(
        "A guest (Linux {}, {} under {}) with a disk in a box.\nHost and box are two network namespaces, joined only by an \
         Ethernet bridge, MTU {}.",
        cache.kernel_release(),
        cache.qemu().version(),
        cache.accel().name(),
        arguments.mtu
    ));
    let local = run.disk_image("local.img", DISK_BYTES)?;
    let namespace = Namespace { bytes: DISK_BYTES, ..Namespace::default() };
    let options = RigOptions {
        disks: vec![Disk { serial: REMOTE.to_owned(), namespaces: vec![namespace], ..Disk::default() }],
        net: NetOptions { mtu: arguments.mtu },
        host_impairment: arguments.impair.clone(),
        guest: GuestOptions {
            devices: vec![GuestDevice::LocalNvme { file: local, serial: LOCAL.to_owned() }],
            cpus: arguments.cpus,
            spare_ports: 0,
            ..GuestOptions::default()
        },
        ..RigOptions::default()
    };
    let base = RigBase::start(run, options)?;
    let capture = Capture::start(run, &base.net, "foreign", Keep::Foreign)?;
    let booting = Progress::new("the guest boots", Duration::from_secs(7));
    let boot = Instant::now();
    let rig = base.boot(run, cache)?;
    drop(booting);
    teller.say(&format!("It was up after {:.1} s.", boot.elapsed().as_secs_f64()));

    let guest = &rig.guest;
    let remote = guest.nvme(REMOTE, PATIENCE)?;
    let local = guest.nvme(LOCAL, PATIENCE)?;
    introduce(teller, guest, &remote)?;
    let lines = loads(arguments, teller, guest, &remote, &local)?;
    teller.title("The same loads on the remote disk and on QEMU's own, in the same guest");
    teller.indented(&table::text(&lines));
    let complaints = complaints(guest, &remote)?;
    teller.title("What the guest's kernel complains about");
    teller.indented(if complaints.is_empty() { "nothing" } else { &complaints });
    let wire = wire(teller, &rig, capture)?;
    ensure!(complaints.is_empty(), "the driver logged warnings or errors");
    Ok(json!({
        "kernel": cache.kernel_release(), "qemu": cache.qemu().version(), "accel": cache.accel().name(),
        "cpus": arguments.cpus, "mtu": arguments.mtu, "impair": arguments.impair,
        "loads": table::json(&lines), "wire": wire,
    }))
}

/// The device as the guest's own tools see it.
fn introduce(teller: &Teller, guest: &Guest, remote: &NvmeName) -> Result<()> {
    teller.title("The guest's PCI tree (lspci -tv)");
    teller.indented(&guest.check("lspci -tv", PATIENCE)?);
    let address = remote.pci.trim_start_matches("0000:");
    teller.title(&format!("The remote controller, {address} (lspci -v)"));
    teller.indented(guest.check(&format!("lspci -v -s {address}"), PATIENCE)?.trim());
    teller.title("What nvme-cli says (nvme id-ctrl, id-ns, smart-log, list)");
    let fields = "'^(vid|sn|mn|fr|mdts|ver|nn|oncs|vwc|nsze|critical_warning|temperature|available_spare\
                  |percentage_used)[[:space:]]*:|in use'";
    let tools = format!(
        "(nvme id-ctrl {0} && nvme id-ns {1} && nvme smart-log {0}) | grep -E {fields}; nvme list",
        remote.controller, remote.disk
    );
    teller.indented(&guest.check(&tools, PATIENCE)?);
    Ok(())
}

fn loads(
    arguments: &Arguments,
    teller: &Teller,
    guest: &Guest,
    remote: &NvmeName,
    local: &NvmeName,
) -> Result<Vec<Line>> {
    let time = Duration::from_secs(arguments.seconds);
    teller.title(&format!(
        "Loads by fio, {} s each, then checked: data with checksum and offset in every 4 KiB",
        arguments.seconds
    ));
    {
        let _progress = Progress::new("both disks are filled", Duration::from_secs(8));
        // A block that was never written would be read faster than the medium can.
        for (disk, (area_at, area_bytes), verify) in
            [(remote, CHECKED, Verify::Seal), (remote, MEASURED, Verify::Off), (local, MEASURED, Verify::Off)]
        {
            let fill = Load {
                device: disk.disk.clone(),
                pattern: Pattern::Write,
                block_bytes: 128 << 10,
                depth: 32,
                area_at,
                area_bytes,
                until: Until::Bytes(area_bytes),
                verify,
                ..Load::default()
            };
            guest.fio(&fill, PATIENCE).with_context(|| format!("fill {}", disk.disk))?;
        }
    }
    let mut lines = Vec::new();
    for block_bytes in [4 << 10, 128 << 10] {
        for depth in [1, 32] {
            for pattern in [Pattern::RandomRead, Pattern::RandomWrite] {
                let shape = Shape { pattern, block_bytes, depth };
                let far = measure(guest, remote, shape, time, "remote")?;
                let near = measure(guest, local, shape, time, "local")?;
                let checked_bytes = check(guest, remote, shape, far)?;
                let line = Line { shape, remote: far, local: near, checked_bytes };
                teller.indented(&table::summary(&line));
                lines.push(line);
            }
        }
    }
    Ok(lines)
}

fn load(disk: &NvmeName, shape: Shape, (area_at, area_bytes): (u64, u64)) -> Load {
    let Shape { pattern, block_bytes, depth } = shape;
    Load { device: disk.disk.clone(), pattern, block_bytes, depth, area_at, area_bytes, ..Load::default() }
}

fn measure(guest: &Guest, disk: &NvmeName, shape: Shape, time: Duration, whose: &str) -> Result<Measured> {
    let name = format!("{}, {whose}", table::name(shape));
    let _progress = Progress::new(&name, time + Duration::from_millis(700));
    let load = Load { until: Until::Time(time), ..load(disk, shape, MEASURED) };
    guest.fio(&load, time + PATIENCE).with_context(|| name.clone())
}

/// A load of the same shape whose data is checked; how many bytes were.
fn check(guest: &Guest, disk: &NvmeName, shape: Shape, speed: Measured) -> Result<u64> {
    let name = format!("{}, checked", table::name(shape));
    let writes = shape.pattern.writes();
    let _progress = Progress::new(&name, CHECK_TIME * if writes { 2 } else { 1 });
    let load = load(disk, shape, CHECKED);
    let load = if writes {
        // As much as will take the time; at least a few blocks, at most the area once.
        let block = u64::from(shape.block_bytes);
        let blocks = u128::from(speed.accesses) * CHECK_TIME.as_nanos() / speed.took.as_nanos().max(1);
        let blocks = u64::try_from(blocks).unwrap_or(u64::MAX);
        let bytes = blocks.clamp(64, load.area_bytes / block) * block;
        Load { until: Until::Bytes(bytes), verify: Verify::ReadBack, ..load }
    } else {
        Load { until: Until::Time(CHECK_TIME), verify: Verify::Seal, ..load }
    };
    let checked = guest.fio(&load, PATIENCE).context(name)?;
    Ok(if writes { checked.read_back_bytes } else { checked.bytes })
}

/// Kernel messages of warning and worse that name the remote controller.
fn complaints(guest: &Guest, remote: &NvmeName) -> Result<String> {
    let name = remote.controller.trim_start_matches("/dev/");
    let messages = guest.dmesg(Level::Warning)?;
    let concerning: Vec<&str> =
        messages.lines().filter(|line| line.contains(name) || line.contains(remote.pci.as_str())).collect();
    Ok(concerning.join("\n"))
}

fn wire(teller: &Teller, rig: &Rig, capture: Capture) -> Result<Value> {
    let traffic = rig.net.traffic()?;
    let captured = capture.finish()?;
    let frames = traffic.host_frames + traffic.box_frames;
    let foreign = captured.tally.foreign();
    teller.title("What passed the bridge");
    teller.indented(&format!(
        "{} frames, {} MiB from the host and {} MiB from the box.\n\
         tcpdump, told to keep every frame whose EtherType is not 0x88B5, kept {foreign} (and missed {}).",
        table::grouped(frames),
        traffic.host_bytes / MIB,
        traffic.box_bytes / MIB,
        captured.missed
    ));
    ensure!(foreign == 0 && captured.missed == 0, "foreign frames passed the bridge: {:?}", captured.tally);
    Ok(json!({
        "frames": frames, "host_bytes": traffic.host_bytes, "box_bytes": traffic.box_bytes, "foreign_frames": foreign,
    }))
}
