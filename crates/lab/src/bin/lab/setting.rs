//! What guest, disk and link a person asks for.

use std::path::PathBuf;
use std::process;
use std::thread;

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use etherslot_lab::{
    Cache, Console, Disk, GuestDevice, GuestOptions, Interrupts, KERNELS, KernelSource, Namespace,
    NetOptions, RigOptions, Run,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

const MIB: u64 = 1 << 20;

/// Options of every command that starts a guest.
#[derive(Clone, Debug, Args)]
pub(crate) struct Setting {
    /// Disk image or block device for the box to serve, instead of a temporary one
    #[arg(long, value_name = "FILE")]
    disk: Option<PathBuf>,
    /// Size of the temporary disk
    #[arg(long, value_name = "MIB", default_value_t = 1024)]
    disk_mib: u64,
    /// Logical block size of the disk
    #[arg(long, value_name = "BYTES", default_value_t = 512)]
    block_bytes: u32,
    /// Also give the guest QEMU's own NVMe controller
    #[arg(long)]
    local: bool,
    /// Only QEMU's own NVMe controller: no box, no host, no network
    #[arg(long, conflicts_with_all = ["disk", "impair"])]
    only_local: bool,
    /// Faults on the host's link, such as "loss=1%,reorder=1%"
    #[arg(long, value_name = "FAULTS")]
    impair: Option<String>,
    /// How the device interrupts
    #[arg(long, value_enum, default_value = "msi-x")]
    interrupts: InterruptChoice,
    /// MTU of the Ethernet
    #[arg(long, value_name = "BYTES", default_value_t = NetOptions::default().mtu)]
    mtu: u32,
    /// Virtual processors of the guest
    #[arg(long, default_value_t = 2)]
    cpus: u32,
    /// Memory of the guest
    #[arg(long, value_name = "MIB", default_value_t = 512)]
    memory_mib: u32,
    /// Kernel of the guest
    #[arg(long, value_name = "NAME", default_value = "stable", value_parser = kernel)]
    pub(crate) kernel: KernelSource,
    /// Words for the guest kernel's command line, such as `nvme_core.io_timeout=5`
    #[arg(long = "kernel-argument", value_name = "WORD")]
    kernel_arguments: Vec<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum InterruptChoice {
    MsiX,
    Msi,
}

/// For clap: a kernel by name.
pub(crate) fn kernel(name: &str) -> Result<KernelSource, String> {
    KERNELS.into_iter().find(|kernel| kernel.name == name).ok_or_else(|| {
        let names: Vec<&str> = KERNELS.iter().map(|kernel| kernel.name).collect();
        format!("known are: {}", names.join(", "))
    })
}

/// The cache, with what is done told on standard error.
pub(crate) fn cache(kernel: &KernelSource) -> Result<Cache> {
    Cache::ensure_with(kernel, &mut |text| eprintln!("lab: {text}")).context("set the lab up")
}

/// Serial number of the box's disk.
pub(crate) const REMOTE: &str = "ES0001";
/// Serial number of QEMU's own disk.
pub(crate) const LOCAL: &str = "QEMU0001";

impl Setting {
    /// Whether there is a box in it.
    pub(crate) fn has_remote(&self) -> bool {
        !self.only_local
    }

    /// The serial numbers of the guest's disks.
    pub(crate) fn serials(&self) -> Vec<&'static str> {
        match (self.only_local, self.local) {
            (true, _) => vec![LOCAL],
            (false, true) => vec![REMOTE, LOCAL],
            (false, false) => vec![REMOTE],
        }
    }

    pub(crate) fn rig_options(&self, run: &Run, console: Console) -> Result<RigOptions> {
        let mut devices = Vec::new();
        if self.local || self.only_local {
            let file = run.disk_image("local.img", self.disk_mib * MIB)?;
            devices.push(GuestDevice::LocalNvme { file, serial: LOCAL.to_owned() });
        }
        let namespace = Namespace {
            path: self.disk.clone(),
            bytes: self.disk_mib * MIB,
            block_bytes: self.block_bytes,
            ..Namespace::default()
        };
        let disk = Disk { serial: REMOTE.to_owned(), namespaces: vec![namespace], ..Disk::default() };
        Ok(RigOptions {
            disks: if self.only_local { Vec::new() } else { vec![disk] },
            interrupts: match self.interrupts {
                InterruptChoice::MsiX => Interrupts::MsiX,
                InterruptChoice::Msi => Interrupts::Msi,
            },
            net: NetOptions { mtu: self.mtu },
            host_impairment: self.impair.clone(),
            guest: GuestOptions {
                devices,
                cpus: self.cpus,
                memory_mib: self.memory_mib,
                kernel_arguments: self.kernel_arguments.clone(),
                console,
                ..GuestOptions::default()
            },
            ..RigOptions::default()
        })
    }
}

/// Ends the process cleanly on a signal: children die with it, what else the run made is removed here.
pub(crate) fn clean_up_on_signals(run: &Run) -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("listen for signals")?;
    let abandon = run.abandoner();
    thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            abandon();
            process::exit(128 + signal);
        }
    });
    Ok(())
}
