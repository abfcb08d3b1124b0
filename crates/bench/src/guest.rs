//! In the guest: the remote drive beside QEMU's own, both on memory, the stock driver and fio.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use etherslot_lab::fio::{Load as GuestLoad, Pattern, Until};
use etherslot_lab::{
    Cache, Disk, Guest, GuestDevice, GuestOptions, KERNELS, Namespace, NvmeName, RigBase, RigOptions,
};
use std::sync::atomic::Ordering;

use crate::bed::Bed;
use crate::check::{Verdict, guest_bars};
use crate::load::{Direction, Load};
use crate::runner::{Pace, Stop};
use crate::statistic::Spread;

const REMOTE: &str = "ES0001";
const LOCAL: &str = "QEMU0001";
/// For whatever takes a moment; only a broken run gets there.
const PATIENCE: Duration = Duration::from_mins(2);

/// IOPS of a load, round by round.
pub(crate) struct Compared {
    pub(crate) load: Load,
    pub(crate) remote: Vec<f64>,
    pub(crate) local: Vec<f64>,
}

impl Compared {
    pub(crate) fn ratio(&self) -> Option<Spread> {
        Spread::of_ratios(&self.remote, &self.local)
    }
}

/// Boots a guest and measures the loads of the bars, remote and local in turn.
pub(crate) fn run(bed: &Bed, pace: Pace, stop: &Stop) -> Result<Vec<Compared>> {
    let cache =
        Cache::ensure_with(&KERNELS[0], &mut |text| eprintln!("lab: {text}")).context("set the lab up")?;
    let (far, near) = (bed.memory_file()?, bed.memory_file()?);
    let namespace = Namespace { path: Some(far.path()), ..Namespace::default() };
    let options = RigOptions {
        disks: vec![Disk { serial: REMOTE.to_owned(), namespaces: vec![namespace], ..Disk::default() }],
        guest: GuestOptions {
            devices: vec![GuestDevice::LocalNvme { file: near.path(), serial: LOCAL.to_owned() }],
            cpus: 2,
            spare_ports: 0,
            ..GuestOptions::default()
        },
        udp: true,
        ..RigOptions::default()
    };
    let rig = RigBase::start(bed.run(), options)?.boot(bed.run(), &cache)?;
    let remote = rig.guest.nvme(REMOTE, PATIENCE)?;
    let local = rig.guest.nvme(LOCAL, PATIENCE)?;
    let mut all: Vec<Compared> = guest_bars()
        .into_iter()
        .map(|(_, load, _)| Compared { load, remote: Vec::new(), local: Vec::new() })
        .collect();
    for round in 1..=pace.rounds {
        for one in &mut all {
            if stop.load(Ordering::Relaxed) {
                bail!("interrupted");
            }
            let (far, near) = (
                measure(bed, &rig.guest, &remote, one.load, pace.time)?,
                measure(bed, &rig.guest, &local, one.load, pace.time)?,
            );
            eprintln!(
                "bench: guest, round {round}: {}: remote {far:.0}, local {near:.0} IOPS",
                one.load.name()
            );
            one.remote.push(far);
            one.local.push(near);
        }
    }
    Ok(all)
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

/// The lines of the guest's bars.
pub(crate) fn verdicts(compared: &[Compared]) -> Vec<Option<Verdict>> {
    let bars = guest_bars();
    bars.iter()
        .map(|(_, load, limit)| {
            let one = compared.iter().find(|one| one.load == *load)?;
            Some(Verdict::new(one.ratio()?, *limit))
        })
        .collect()
}
