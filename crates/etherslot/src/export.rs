//! `etherslot export`: remote disks for programs that speak the Network Block Device protocol, or as block devices of this machine.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use clap::{ArgGroup, Args};
use etherslot_runtime::export::ublk::{self, UblkOptions};
use etherslot_runtime::export::{self, ExportOptions, ListenAddress};
use etherslot_runtime::initiator::driver::nvme;

use crate::nvme::{Reach, node_name};

/// The longest name of an export.
const NAME_BYTES: usize = 4096;
/// What the node is called after, before the number of its process.
const PURPOSE: &str = "export";

#[derive(Args)]
#[command(group(ArgGroup::new("door").required(true).multiple(true).args(["nbd", "ublk"])))]
pub(crate) struct Export {
    /// `NAME@ADDRESS`: the device's name in its box, and the box's MAC address or ADDRESS:PORT, one for each link with commas
    /// between. With --config: the NAME of a slot's device. Given several times: several exports, over the same links.
    #[arg(value_name = "DEVICE", required = true)]
    devices: Vec<String>,
    /// The namespace.
    #[arg(long, default_value_t = 1, value_name = "NSID", value_parser = clap::value_parser!(u32).range(1..))]
    nsid: u32,
    #[command(flatten)]
    reach: Reach,
    /// Where clients come: `unix:PATH`, a path, or ADDRESS:PORT (no TLS: everybody who reaches it). May be given several times.
    #[arg(long, value_name = "ADDRESS", conflicts_with = "ublk")]
    nbd: Vec<ListenAddress>,
    /// Make block devices of this machine, `/dev/ublkbN`: the log says which. Needs root and the kernel's module `ublk_drv` (Linux 6.5 or
    /// newer).
    #[arg(long)]
    ublk: bool,
    /// What clients call it, once for each device. The default is the device's name; clients that ask for no name get the first
    /// device.
    #[arg(long, value_name = "NAME", value_parser = export_name, conflicts_with = "ublk")]
    name: Vec<String>,
    /// Refuse writes.
    #[arg(long)]
    read_only: bool,
    /// While the box is away requests wait for so long, then they fail.
    #[arg(long, default_value = "30s", value_name = "DURATION", value_parser = humantime::parse_duration)]
    patience: Duration,
    /// Where the control socket is to be, if not in its usual folder.
    #[arg(long, env = "ETHERSLOT_CONTROL", value_name = "PATH")]
    control: Option<PathBuf>,
    /// Serve metrics for Prometheus at this place, as in 127.0.0.1:9464 or `unix:/PATH`.
    #[arg(long, env = "ETHERSLOT_METRICS", value_name = "ADDRESS")]
    metrics: Option<ListenAddress>,
}

fn export_name(text: &str) -> Result<String, String> {
    if (1..=NAME_BYTES).contains(&text.len()) && !text.chars().any(char::is_control) {
        Ok(text.to_owned())
    } else {
        Err(format!("write 1 to {NAME_BYTES} bytes of text"))
    }
}

/// What clients call each of the devices.
fn names(devices: &[String], given: Vec<String>) -> Result<Vec<String>> {
    let names: Vec<String> = if given.is_empty() {
        let of =
            |device: &String| device.rsplit_once('@').map_or(device.as_str(), |(name, _)| name).to_owned();
        devices.iter().map(of).collect()
    } else {
        given
    };
    ensure!(
        names.len() == devices.len(),
        "{} devices and {} names: write --name once for each device, in their order, or not at all",
        devices.len(),
        names.len()
    );
    for (at, name) in names.iter().enumerate() {
        ensure!(
            !names[..at].contains(name),
            "two exports are called {name:?}: give each a --name of its own"
        );
    }
    Ok(names)
}

impl Export {
    pub(crate) fn run(self) -> Result<()> {
        let Self { devices, nsid, reach, nbd, ublk, name, read_only, patience, control, metrics } = self;
        let names = names(&devices, name)?;
        let driver = if ublk { ublk::driver(patience) } else { export::driver(patience) };
        let driver = nvme::Config { nsid, ..driver };
        let (node, client) = match reach.member()? {
            Some(member) => {
                let [device] = devices.as_slice() else {
                    bail!(
                        "in a fabric an export has one device: start one for each, under names of their own"
                    );
                };
                (member.run.name.clone(), reach.join(member, device, driver)?)
            }
            None => (node_name(PURPOSE), reach.connect_all(&devices, PURPOSE, driver, None)?),
        };
        if ublk {
            return Ok(ublk::run(client, UblkOptions { node, control, metrics, read_only })?);
        }
        Ok(export::run(client, ExportOptions { node, control, metrics, names, read_only, addresses: nbd })?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_export_has_a_name_of_its_own() {
        let strings = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        let named = |devices: &[&str], given: &[&str]| {
            names(&strings(devices), strings(given)).map_err(|error| error.to_string())
        };
        assert_eq!(named(&["a@1", "b@1"], &[]), Ok(strings(&["a", "b"])));
        assert_eq!(named(&["a@1", "a@2"], &["x", "y"]), Ok(strings(&["x", "y"])));
        assert!(named(&["a@1", "a@2"], &[]).unwrap_err().contains("two exports"));
        assert!(named(&["a@1", "b@1"], &["x"]).unwrap_err().contains("once for each"));
    }
}
