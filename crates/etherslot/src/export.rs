//! `etherslot export`: a remote disk for programs that speak the Network Block Device protocol.

use std::time::Duration;

use anyhow::Result;
use clap::Args;
use etherslot_runtime::export::{self, ExportAddress, ExportOptions};

use crate::nvme::Target;

/// The longest name of an export.
const NAME_BYTES: usize = 4096;

#[derive(Args)]
pub(crate) struct Export {
    #[command(flatten)]
    target: Target,
    /// Where clients come: `unix:PATH`, a path, or ADDRESS:PORT (no TLS: everybody who reaches it). May be given several times.
    #[arg(long, value_name = "ADDRESS", required = true)]
    nbd: Vec<ExportAddress>,
    /// What clients call it. The default is the device's name; those that ask for no name get it as well.
    #[arg(long, value_name = "NAME", value_parser = export_name)]
    name: Option<String>,
    /// Refuse writes.
    #[arg(long)]
    read_only: bool,
    /// While the box is away requests wait for so long, then they fail.
    #[arg(long, default_value = "30s", value_name = "DURATION", value_parser = humantime::parse_duration)]
    patience: Duration,
}

fn export_name(text: &str) -> Result<String, String> {
    if (1..=NAME_BYTES).contains(&text.len()) && !text.chars().any(char::is_control) {
        Ok(text.to_owned())
    } else {
        Err(format!("write 1 to {NAME_BYTES} bytes of text"))
    }
}

impl Export {
    pub(crate) fn run(self) -> Result<()> {
        let Self { target, nbd, name, read_only, patience } = self;
        let device = target.device();
        let name =
            name.unwrap_or_else(|| device.rsplit_once('@').map_or(device, |(name, _)| name).to_owned());
        let mut client = target.connect(export::driver(patience), None)?;
        let info = client.disk().info();
        let description = format!("{}, serial number {}", info.model.trim(), info.serial.trim());
        let options = ExportOptions { name, description, read_only, addresses: nbd };
        Ok(export::run(client, options)?)
    }
}
