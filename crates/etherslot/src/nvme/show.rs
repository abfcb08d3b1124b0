//! `etherslot nvme list` and `id`: what devices say of themselves.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use etherslot_runtime::initiator::driver::nvme;
use serde::Serialize;

use super::target::{Reach, Target};
use crate::stat::Output;
use crate::units;

/// Polls for so long, then sleeps: nothing here is in a hurry.
const BUSY_POLL: Duration = Duration::from_micros(50);

#[derive(Args)]
pub(crate) struct List {
    /// The devices, NAME@ADDRESS each. A box does not tell what it has: without any, those of the --config are listed.
    #[arg(value_name = "DEVICE")]
    devices: Vec<String>,
    #[command(flatten)]
    reach: Reach,
    /// How to print: json is an array of objects.
    #[arg(long, value_enum, default_value_t, value_name = "FORM")]
    output: Output,
}

#[derive(Args)]
pub(crate) struct Id {
    #[command(flatten)]
    target: Target,
    /// How to print: json is one object.
    #[arg(long, value_enum, default_value_t, value_name = "FORM")]
    output: Output,
}

#[derive(Serialize)]
struct Controller {
    vendor: u16,
    subsystem_vendor: u16,
    serial: String,
    model: String,
    firmware: String,
    id: u16,
    version: String,
    max_transfer_bytes: Option<u64>,
    namespaces: u32,
    capacity_bytes: u128,
    subsystem_name: String,
    volatile_write_cache: bool,
    dataset_management: bool,
    write_zeroes: bool,
    sgls: bool,
}

#[derive(Serialize)]
struct Namespace {
    nsid: u32,
    blocks: u64,
    block_bytes: u64,
    bytes: u64,
    used_blocks: u64,
    read_only: bool,
    deallocated_reads_zeros: bool,
    eui64: String,
    nguid: String,
}

#[derive(Serialize)]
struct Identified {
    device: String,
    controller: Controller,
    namespaces: Vec<Namespace>,
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

impl From<&nvme::ControllerData> for Controller {
    fn from(data: &nvme::ControllerData) -> Self {
        let (major, minor, tertiary) = data.version;
        Self {
            vendor: data.vendor,
            subsystem_vendor: data.subsystem_vendor,
            serial: data.serial.clone(),
            model: data.model.clone(),
            firmware: data.firmware.clone(),
            id: data.controller_id,
            version: format!("{major}.{minor}.{tertiary}"),
            max_transfer_bytes: data.max_transfer_bytes,
            namespaces: data.namespaces,
            capacity_bytes: data.capacity,
            subsystem_name: data.subsystem_name.clone(),
            volatile_write_cache: data.volatile_cache,
            dataset_management: data.can_deallocate(),
            write_zeroes: data.can_write_zeroes(),
            sgls: data.can_use_sgls(),
        }
    }
}

impl From<&nvme::NamespaceData> for Namespace {
    fn from(data: &nvme::NamespaceData) -> Self {
        // What the namespace says may be nonsense; it is shown, not used.
        let block_bytes = 1u64.checked_shl(data.block_shift.into()).unwrap_or(0);
        Self {
            nsid: data.nsid,
            blocks: data.blocks,
            block_bytes,
            bytes: data.blocks.saturating_mul(block_bytes),
            used_blocks: data.used_blocks,
            read_only: data.read_only,
            deallocated_reads_zeros: data.deallocated_zeroes,
            eui64: hex(&data.eui64),
            nguid: hex(&data.nguid),
        }
    }
}

fn identify(reach: &Reach, device: &str, nsid: u32, all: bool) -> Result<Identified> {
    let driver = nvme::Config { nsid, identify_all: all, ..nvme::Config::default() };
    let client = reach.connect(device, driver, BUSY_POLL)?;
    let initiator = client.initiator();
    let controller = initiator.controller_data().context("the controller told nothing of itself")?.into();
    let namespaces = initiator.namespaces().iter().map(Namespace::from).collect();
    drop(client);
    Ok(Identified { device: device.to_owned(), controller, namespaces })
}

impl List {
    pub(crate) fn run(self) -> Result<()> {
        let Self { mut devices, reach, output } = self;
        if devices.is_empty() {
            devices = reach.configured()?;
        }
        ensure!(
            !devices.is_empty(),
            "which devices? Write NAME@ADDRESS, or --config FILE for those of its slots"
        );
        let (mut found, mut failed) = (Vec::new(), 0);
        for device in &devices {
            match identify(&reach, device, 1, true) {
                Ok(identified) => found.push(identified),
                Err(error) => {
                    eprintln!("{device}: {error:#}");
                    failed += 1;
                }
            }
        }
        match output {
            Output::Json => println!("{}", serde_json::to_string(&found)?),
            Output::Text => {
                println!(
                    "{:24} {:>5} {:>10} {:>6} {:24} {:20} FIRMWARE",
                    "DEVICE", "NSID", "SIZE", "BLOCK", "MODEL", "SERIAL"
                );
                for Identified { device, controller, namespaces } in &found {
                    for namespace in namespaces {
                        println!(
                            "{device:24} {:>5} {:>10} {:>6} {:24} {:20} {}",
                            namespace.nsid,
                            units::bytes(namespace.bytes),
                            namespace.block_bytes,
                            controller.model,
                            controller.serial,
                            controller.firmware
                        );
                    }
                }
            }
        }
        ensure!(failed == 0, "{failed} of {} devices can't be listed", devices.len());
        Ok(())
    }
}

impl Id {
    pub(crate) fn run(self) -> Result<()> {
        let identified = self.target.identify()?;
        match self.output {
            Output::Json => println!("{}", serde_json::to_string(&identified)?),
            Output::Text => print!("{}", show(&identified)),
        }
        Ok(())
    }
}

impl Target {
    fn identify(&self) -> Result<Identified> {
        identify(self.reach(), self.device(), self.nsid(), false)
    }
}

fn show(identified: &Identified) -> String {
    use std::fmt::Write as _;
    let Identified { controller, namespaces, .. } = identified;
    let yes = |it| if it { "yes" } else { "no" };
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        // Values may be empty.
        let _ = writeln!(text, "{}", format!("{name:32} {value}").trim_end());
    };
    line("Model", controller.model.clone());
    line("Serial number", controller.serial.clone());
    line("Firmware revision", controller.firmware.clone());
    line("NVMe version", controller.version.clone());
    line(
        "PCI vendor, subsystem vendor",
        format!("{:04x} {:04x}", controller.vendor, controller.subsystem_vendor),
    );
    line("Controller ID", controller.id.to_string());
    line("NVM subsystem", controller.subsystem_name.clone());
    line("Capacity", units::bytes(u64::try_from(controller.capacity_bytes).unwrap_or(u64::MAX)));
    let most = controller.max_transfer_bytes;
    line("Largest transfer (MDTS)", most.map_or_else(|| "no limit".to_owned(), |most| format!("{most} B")));
    line("Volatile write cache", yes(controller.volatile_write_cache).to_owned());
    line("Dataset Management", yes(controller.dataset_management).to_owned());
    line("Write Zeroes", yes(controller.write_zeroes).to_owned());
    line("SGLs", yes(controller.sgls).to_owned());
    for namespace in namespaces {
        line("", String::new());
        line("Namespace", namespace.nsid.to_string());
        let size = units::bytes(namespace.bytes);
        line("Size", format!("{size}: {} blocks of {} B", namespace.blocks, namespace.block_bytes));
        line("Used", format!("{} blocks", namespace.used_blocks));
        line("Write protected", yes(namespace.read_only).to_owned());
        line("Deallocated blocks read zeros", yes(namespace.deallocated_reads_zeros).to_owned());
        line("EUI-64", namespace.eui64.clone());
        line("NGUID", namespace.nguid.clone());
    }
    text
}
