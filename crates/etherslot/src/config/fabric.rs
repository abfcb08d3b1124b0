//! `[fabric]`: a node's part in it.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use etherslot_runtime::options::{Address, FabricOptions, Group, LinkOptions, LoopOptions};
use serde::Deserialize;

use crate::value;

/// What a fabric's node names have at most, bytes.
const NAME_BYTES: usize = 32;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Fabric {
    /// A host's group; a box's is that of its devices.
    #[serde(deserialize_with = "value::group")]
    group: Option<Group>,
    /// Between two heartbeats.
    #[serde(deserialize_with = "value::duration")]
    interval: Option<Duration>,
    /// Heartbeats that may be missing before a node is down.
    misses: Option<u32>,
    /// Where heartbeats go on links that can't broadcast.
    #[serde(deserialize_with = "value::addresses")]
    peers: Vec<Address>,
    /// Pass on what is heard.
    rendezvous: bool,
    /// Take orders from other nodes.
    orders: Option<bool>,
    /// How long a box keeps a device for an owner that is out of reach.
    #[serde(deserialize_with = "value::duration")]
    hold: Option<Duration>,
    /// How long an owner has to give a device back.
    #[serde(deserialize_with = "value::duration")]
    recall: Option<Duration>,
    /// How long a new owner has to take it.
    #[serde(deserialize_with = "value::duration")]
    offer: Option<Duration>,
    /// Where a box keeps its leases.
    state: Option<PathBuf>,
}

/// What the table means.
pub(super) fn options(
    table: &Fabric,
    run: &LoopOptions,
    links: &[LinkOptions],
    is_box: bool,
) -> Result<FabricOptions> {
    let defaults = FabricOptions::default();
    let of_box = [
        ("orders", table.orders.is_some()),
        ("hold", table.hold.is_some()),
        ("recall", table.recall.is_some()),
        ("offer", table.offer.is_some()),
        ("state", table.state.is_some()),
    ];
    if let Some((key, _)) = of_box.iter().find(|(_, is_set)| *is_set && !is_box) {
        anyhow::bail!("[fabric] {key} belongs to a box: remove it");
    }
    ensure!(
        run.name.len() <= NAME_BYTES,
        "[node] name has more than {NAME_BYTES} bytes: in a fabric it has {NAME_BYTES} or less"
    );
    let interval = table.interval.unwrap_or(defaults.interval);
    let longest = Duration::from_mins(1);
    ensure!(
        (Duration::from_millis(10)..=longest).contains(&interval),
        "[fabric] interval has to be 10ms to 60s"
    );
    let misses = table.misses.unwrap_or(defaults.misses);
    ensure!((1..=100).contains(&misses), "[fabric] misses has to be 1 to 100");
    if let Some(peer) = table.peers.iter().find(|peer| !links.iter().any(|link| link.kind.reaches(peer))) {
        anyhow::bail!("[fabric] peers: no link leads to {peer}: remove it, or add the link");
    }
    let times = [("hold", table.hold), ("recall", table.recall), ("offer", table.offer)];
    for (key, time) in times {
        ensure!(time.is_none_or(|time| time <= longest), "[fabric] {key} is more than 60s: use 60s or less");
    }
    Ok(FabricOptions {
        group: table.group,
        interval,
        misses,
        peers: table.peers.clone(),
        rendezvous: table.rendezvous,
        orders: table.orders.unwrap_or(defaults.orders),
        hold: table.hold.unwrap_or(defaults.hold),
        recall: table.recall.unwrap_or(defaults.recall),
        offer: table.offer.unwrap_or(defaults.offer),
        state: table.state.clone(),
    })
}
