//! `[[slot]] hot_plug`: where a device enters and leaves a running guest.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use etherslot_runtime::options::{ANY, HotPlugOptions, SlotOptions};
use serde::Deserialize;

use crate::value;

const GRACE: Duration = Duration::from_secs(10);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HotPlug {
    /// The socket of QEMU's monitor.
    monitor: PathBuf,
    /// QEMU's name of a port.
    #[serde(deserialize_with = "value::qemu_id")]
    bus: String,
    /// What QEMU is to call the device; if not said, the device's name, or that of the port with `-device` for any device.
    #[serde(default, deserialize_with = "value::some_qemu_id")]
    id: Option<String>,
    #[serde(default, deserialize_with = "value::duration")]
    grace: Option<Duration>,
}

impl HotPlug {
    pub(super) fn options(self, device: &str, others: &[SlotOptions]) -> Result<HotPlugOptions> {
        let Self { monitor, bus, id, grace } = self;
        let named = || match device {
            ANY => Ok(format!("{bus}-device")),
            device => value::as_qemu_id(device.to_owned()),
        };
        let id = id.map_or_else(named, Ok).map_err(anyhow::Error::msg);
        let id = id.with_context(|| {
            format!("[[slot]] hot_plug: QEMU can't call a device {device:?}; write id = \"…\"")
        })?;
        let others = others.iter().filter_map(|other| other.hot_plug.as_ref());
        for other in others.filter(|other| other.monitor == monitor) {
            ensure!(
                other.id != id && other.bus != bus,
                "[[slot]] hot_plug of {device:?}: another slot has the same id or bus in this guest"
            );
        }
        Ok(HotPlugOptions { monitor, bus, id, grace: grace.unwrap_or(GRACE) })
    }
}
