//! In the guest: the remote drive beside QEMU's own, both on memory, the stock driver and fio.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use etherslot_lab::fio::{Load as GuestLoad, Pattern, Until};
use etherslot_lab::{
    Cache, Disk, Guest, GuestDevice, GuestOptions, KERNELS, Namespace, NvmeName, RigBase, RigOptions, Run,
};
use std::sync::atomic::Ordering;

use crate::bed::Bed;
use crate::check::{GuestBar, Verdict, guest_bars};
use crate::load::{Direction, Load};
use crate::runner::{Pace, Stop};
use crate::statistic::Spread;

const REMOTE: &str = "ES0001";
const LOCAL: &str = "QEMU0001";
/// For whatever takes a moment; only a broken run gets there.
const PATIENCE: Duration = Duration::from_mins(2);

/// IOPS of a bar's load, round by round.
pub(crate) struct Compared {
    pub(crate) bar: GuestBar,
    remote: Vec<f64>,
    local: Vec<f64>,
}

impl Compared {
    pub(crate) fn ratio(&self) -> Option<Spread> {
        Spread::of_ratios(&self.remote, &self.local)
    }

    /// Whether the bar is met; none if nothing was measured.
    pub(crate) fn verdict(&self) -> Option<Verdict> {
        Some(Verdict::new(self.ratio()?, self.bar.limit))
    }
}

/// Nothing measured yet.
pub(crate) fn none() -> Vec<Compared> {
    guest_bars().into_iter().map(|bar| Compared { bar, remote: Vec::new(), local: Vec::new() }).collect()
}

/// Boots a guest for each link and measures the loads of its bars, remote and local in turn. What went wrong with a link leaves
/// out its bars.
pub(crate) fn run(bed: &Bed, pace: Pace, stop: &Stop) -> Vec<Compared> {
    let mut all = none();
    for of_link in all.chunk_by_mut(|one, other| one.bar.link == other.bar.link) {
        if let Err(error) = compare(bed, pace, stop, of_link) {
            eprintln!(
                "bench: {} and the guest's other bars over this link are left out: {error:#}",
                of_link[0].bar.name()
            );
        }
    }
    all
}

/// In a guest of their own.
fn compare(bed: &Bed, pace: Pace, stop: &Stop, all: &mut [Compared]) -> Result<()> {
    let cache =
        Cache::ensure_with(&KERNELS[0], &mut |text| eprintln!("lab: {text}")).context("set the lab up")?;
    let near = bed.memory_file()?;
    let namespace = Namespace { in_memory: true, bytes: bed.memory_bytes(), ..Namespace::default() };
    let options = RigOptions {
        disks: vec![Disk { serial: REMOTE.to_owned(), namespaces: vec![namespace], ..Disk::default() }],
        guest: GuestOptions {
            devices: vec![GuestDevice::LocalNvme { file: near.path(), serial: LOCAL.to_owned() }],
            cpus: 2,
            spare_ports: 0,
            ..GuestOptions::default()
        },
        link: all[0].bar.link,
        ..RigOptions::default()
    };
    // A run of its own: two guests do not share a folder.
    let run = Run::new("bench-guest")?;
    let rig = RigBase::start(&run, options)?.boot(&run, &cache)?;
    let remote = rig.guest.nvme(REMOTE, PATIENCE)?;
    let local = rig.guest.nvme(LOCAL, PATIENCE)?;
    for round in 1..=pace.rounds {
        for one in &mut *all {
            if stop.load(Ordering::Relaxed) {
                bail!("interrupted");
            }
            let load = one.bar.load;
            let (far, near) = (
                measure(bed, &rig.guest, &remote, load, pace.time)?,
                measure(bed, &rig.guest, &local, load, pace.time)?,
            );
            eprintln!("bench: round {round}: {}: remote {far:.0}, local {near:.0} IOPS", one.bar.name());
            one.remote.push(far);
            one.local.push(near);
        }
    }
    Ok(())
}

fn measure(bed: &Bed, guest: &Guest, disk: &NvmeName, load: Load, time: Duration) -> Result<f64> {
    let load = GuestLoad {
        device: disk.disk.clone(),
        pattern: match load.direction {
            Direction::Read => Pattern::RandomRead,
            Direction::Write => Pattern::RandomWrite,
        },
        block_bytes: load.block_bytes,
        depth: load.depth,
        area_bytes: bed.memory_bytes(),
        until: Until::Time(time),
        ..GuestLoad::default()
    };
    Ok(guest.fio(&load, time + PATIENCE)?.iops())
}
