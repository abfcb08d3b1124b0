//! The configuration files of box and host (TOML): their keys, what is allowed, and how a mistake is told.
//!
//! A key that is not known here and a value that is not possible are refused with the line they stand in; what does not
//! go together, with the line of its table. Durations carry their unit (`"50us"`), sizes are bytes.

pub(crate) mod check;
pub(crate) mod command;
mod fabric;
mod hot_plug;
mod link;
mod network;
mod odd;
pub(crate) mod problems;
pub(crate) mod show;

use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use etherslot_runtime::options::{
    ANY, Address, Backing, BoxOptions, DeviceKind, DeviceOptions, FabricOptions, FailoverPolicy, Group,
    HostOptions, Interrupts, LinkKind, LinkOptions, ListenAddress, LoopOptions, MAX_PAYLOAD_BYTES, Name,
    NicOptions, NvmeOptions, PublicKey, RnicOptions, Routes, SataController, SataOptions, SecurityOptions,
    SessionOptions, SlotOptions, StoreOptions, Wanted,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::Spanned;

use self::fabric::Fabric;
use self::hot_plug::HotPlug;
use self::link::Link;
use self::problems::Problems;
use crate::security::{self, Security, SecurityFlags};
use crate::value::{self, OneOrMore};

/// A peer silent for this long is dead.
pub(crate) const DEFAULT_DEAD_AFTER: Duration = Duration::from_secs(1);
/// Signs of life of an idle session in that time.
pub(crate) const HEARTBEATS: u32 = 10;

/// The most that one command of an NVMe controller transfers.
const DEFAULT_MAX_TRANSFER_BYTES: u32 = 1 << 20;

/// `etherslot box --config`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BoxFile {
    node: Spanned<Node>,
    link: Spanned<OneOrMore<Spanned<Link>, Link>>,
    session: Option<Spanned<Session>>,
    fabric: Option<Spanned<Fabric>>,
    security: Option<Spanned<Security>>,
    metrics: Option<Metrics>,
    #[serde(default, rename = "device")]
    devices: Vec<Spanned<Device>>,
}

/// `etherslot host --config`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HostFile {
    node: Spanned<Node>,
    link: Spanned<OneOrMore<Spanned<Link>, Link>>,
    session: Option<Spanned<Session>>,
    fabric: Option<Spanned<Fabric>>,
    security: Option<Spanned<Security>>,
    metrics: Option<Metrics>,
    #[serde(default, rename = "slot")]
    slots: Vec<Spanned<Slot>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Node {
    /// What people call the node; with the machine's identity it makes the node's ID.
    #[serde(deserialize_with = "value::node_name")]
    name: String,
    /// How long to poll before sleeping.
    #[serde(default, deserialize_with = "value::duration")]
    busy_poll: Option<Duration>,
    /// Where the control socket is, if not in its usual folder.
    control: Option<PathBuf>,
    /// Whose members may use the control socket, too.
    #[serde(default, deserialize_with = "value::user_group")]
    control_group: Option<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Metrics {
    /// Where they are served.
    #[serde(deserialize_with = "value::place_to_listen")]
    listen: ListenAddress,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Session {
    /// Published behaviour: in-order receiver, Go-Back-N.
    classic: bool,
    /// A frame for each TLP.
    one_tlp_a_frame: bool,
    /// Memory comes along with doorbells: yes, if it is not said.
    read_ahead: Option<bool>,
    /// The largest payload of a TLP.
    #[serde(deserialize_with = "value::max_payload")]
    max_payload: Option<u16>,
    /// The most paths of a session.
    #[serde(deserialize_with = "value::paths")]
    paths: Option<u8>,
    /// Frames in flight and held out of order.
    #[serde(deserialize_with = "value::window_frames")]
    window_frames: Option<u16>,
    /// A peer silent for this long is dead.
    #[serde(deserialize_with = "value::duration")]
    dead_after: Option<Duration>,
    /// How often an idle session shows that it lives.
    #[serde(deserialize_with = "value::duration")]
    heartbeat: Option<Duration>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Device {
    kind: Kind,
    #[serde(deserialize_with = "value::device_name")]
    name: String,
    #[serde(deserialize_with = "value::serial")]
    serial: String,
    /// Its assignment group, if not that of `[fabric]`.
    #[serde(default, deserialize_with = "value::group")]
    group: Option<Group>,
    #[serde(default, deserialize_with = "value::model")]
    model: Option<String>,
    #[serde(default, deserialize_with = "value::queue_pairs")]
    queue_pairs: Option<u16>,
    #[serde(default, deserialize_with = "value::cmb_bytes")]
    cmb_bytes: Option<u32>,
    /// The most that one command transfers, bytes.
    #[serde(default, deserialize_with = "value::max_transfer")]
    max_transfer: Option<u32>,
    /// Bytes of a DC buffer.
    #[serde(default, deserialize_with = "value::dc_bytes")]
    size: Option<u64>,
    /// The link of an RNIC, as in `packet:eth1`; who is there; and that it is not protected.
    #[serde(default)]
    link: Option<String>,
    #[serde(default, deserialize_with = "value::addresses")]
    peers: Vec<Address>,
    #[serde(default)]
    plaintext: bool,
    /// Bytes a second at most.
    #[serde(default, deserialize_with = "value::rate")]
    rate: Option<NonZeroU64>,
    /// What becomes of it when its host is lost.
    #[serde(default)]
    on_host_loss: HostLoss,
    /// The hosts to which it moves then, in this order.
    #[serde(default, deserialize_with = "value::host_names")]
    standby: Vec<Name>,
    /// The nodes that may have it, if not all.
    #[serde(default, deserialize_with = "value::public_keys")]
    owners: Option<Vec<PublicKey>>,
    #[serde(default, rename = "namespace")]
    namespaces: Vec<Store>,
    /// Of a SATA controller.
    #[serde(default, deserialize_with = "value::ports")]
    ports: Option<u8>,
    #[serde(default, rename = "disk")]
    disks: Vec<Store>,
    /// Its Ethernet address.
    #[serde(default, deserialize_with = "value::mac")]
    mac: Option<[u8; 6]>,
    /// What it is plugged into.
    #[serde(default)]
    network: Option<network::Network>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Nvme,
    Ahci,
    Dc,
    #[serde(rename = "82576")]
    E82576,
    Sil3132,
    Rnic,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Nvme => "nvme",
            Self::Ahci => "ahci",
            Self::Dc => "dc",
            Self::E82576 => "82576",
            Self::Sil3132 => "sil3132",
            Self::Rnic => "rnic",
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Store {
    /// A file or block device, or
    path: Option<PathBuf>,
    /// memory of the daemon, bytes.
    #[serde(default, deserialize_with = "value::memory")]
    memory: Option<u64>,
    #[serde(default = "default_block_bytes", deserialize_with = "value::block_bytes")]
    block_bytes: u32,
    #[serde(default)]
    read_only: bool,
    /// In as long as the file is there.
    #[serde(default)]
    removable: bool,
}

fn default_block_bytes() -> u32 {
    512
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Slot {
    /// The device's name in the box, or
    #[serde(default, deserialize_with = "value::some_device")]
    device: Option<String>,
    /// its serial number, by which it is found in the fabric.
    #[serde(default, deserialize_with = "value::some_serial")]
    serial: Option<String>,
    /// The box's address: a MAC for `packet`, address and port for `udp`; with several links, one for each. Without it the
    /// device is found in the fabric.
    #[serde(default, deserialize_with = "value::some_addresses")]
    r#box: Option<Vec<Address>>,
    /// Who the box has to be.
    #[serde(default, deserialize_with = "value::public_key")]
    box_key: Option<PublicKey>,
    /// Where QEMU connects.
    socket: PathBuf,
    /// By default `msi-x`, or `msi` of a device that enters and leaves a running guest.
    #[serde(default)]
    interrupts: Option<InterruptKind>,
    #[serde(default)]
    hot_plug: Option<HotPlug>,
    /// The guest's address space, shared with the devices of other slots.
    #[serde(default, deserialize_with = "value::domain")]
    domain: u16,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum HostLoss {
    /// It stays with its host, or its group.
    #[default]
    Keep,
    /// It moves to another.
    Move,
}

#[derive(Clone, Copy, Debug, Deserialize)]
enum InterruptKind {
    #[serde(rename = "msi-x")]
    MsiX,
    #[serde(rename = "msi")]
    Msi,
}

/// What flags and environment change in a file.
#[derive(Debug, Default)]
pub(crate) struct Overrides {
    pub(crate) busy_poll: Option<Duration>,
    pub(crate) control: Option<PathBuf>,
    pub(crate) metrics: Option<ListenAddress>,
    pub(crate) capture: Option<PathBuf>,
    pub(crate) impair: Option<String>,
    pub(crate) security: SecurityFlags,
}

/// A configuration file of either kind.
pub(crate) trait File: DeserializeOwned {
    /// What the daemon takes.
    type Options;
    /// The table that no file of this kind is without, that of the other kind, and the other kind's command.
    const KIND: [&str; 3];

    /// Checks what the values mean together, and notes all that is wrong; nothing if anything is. What hangs on something that is wrong
    /// is not looked at.
    fn options(self, overrides: &Overrides, problems: &mut Problems) -> Option<Self::Options>;
}

/// Reads a configuration file of either kind.
pub(crate) fn read<F: File>(path: &Path, overrides: &Overrides) -> Result<F::Options> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the configuration {}", path.display()))?;
    parse::<F>(&text, overrides).with_context(|| format!("in the configuration {}", path.display()))
}

fn parse<F: File>(text: &str, overrides: &Overrides) -> Result<F::Options> {
    let mut problems = Problems::default();
    let [own, others, command] = F::KIND;
    if let Ok(tables) = text.parse::<toml::Table>()
        && tables.contains_key(others)
        && !tables.contains_key(own)
    {
        bail!("it has [[{others}]] and no [[{own}]]: it is for `etherslot {command}`");
    }
    // The error of the TOML library shows line, column and the keys that would be allowed.
    let options = toml::from_str::<F>(text)?.options(overrides, &mut problems);
    match problems.first() {
        Some(first) => Err(anyhow!("{}{}", first.line(text), first.what)),
        None => options.context("nothing can be made of it"),
    }
}

fn loop_options(node: &Node, metrics: Option<&Metrics>, overrides: &Overrides) -> Result<LoopOptions> {
    let busy_poll = overrides.busy_poll.or(node.busy_poll);
    let is_possible = busy_poll.is_none_or(|time| time <= Duration::from_secs(10));
    ensure!(is_possible, "[node] busy_poll is more than 10s: use 10s or less");
    let control = overrides.control.clone().or_else(|| node.control.clone());
    let metrics = overrides.metrics.clone().or_else(|| Some(metrics?.listen.clone()));
    Ok(LoopOptions {
        name: node.name.clone(),
        busy_poll,
        control,
        control_group: node.control_group,
        metrics,
    })
}

fn session_options(session: &Session, links: usize, is_box: bool) -> Result<SessionOptions> {
    let dead_after = session.dead_after.unwrap_or(DEFAULT_DEAD_AFTER);
    let heartbeat = session.heartbeat.unwrap_or(dead_after / HEARTBEATS);
    ensure!(
        heartbeat >= Duration::from_millis(1) && heartbeat.saturating_mul(4) <= dead_after,
        "[session] dead_after has to be at least four times heartbeat, and heartbeat at least 1ms"
    );
    ensure!(
        session.max_payload.is_none() || !is_box,
        "[session] max_payload is for hosts: a box keeps to what its host says"
    );
    ensure!(dead_after <= Duration::from_secs(4), "[session] dead_after is more than 4s: use 4s or less");
    Ok(SessionOptions {
        classic: session.classic,
        one_tlp_a_frame: session.one_tlp_a_frame,
        read_ahead: session.read_ahead.unwrap_or(true),
        max_payload: session.max_payload.unwrap_or(MAX_PAYLOAD_BYTES),
        paths: session.paths.unwrap_or(links as u8),
        window_frames: session.window_frames,
        dead_after,
        heartbeat,
    })
}

/// What both kinds of files begin with; in place of what is wrong there is nothing.
struct Common {
    run: Option<LoopOptions>,
    links: Option<Vec<LinkOptions>>,
    session: Option<SessionOptions>,
    fabric: Option<FabricOptions>,
    security: Option<SecurityOptions>,
}

/// The tables that both kinds of files have.
struct Tables<'a> {
    node: &'a Spanned<Node>,
    metrics: Option<&'a Metrics>,
    link: &'a Spanned<OneOrMore<Spanned<Link>, Link>>,
    session: Option<&'a Spanned<Session>>,
    fabric: Option<&'a Spanned<Fabric>>,
    security: Option<&'a Spanned<Security>>,
    is_box: bool,
}

impl Common {
    /// What is not known, because it is wrong, may have been meant to be keys.
    fn may_have_keys(&self) -> bool {
        !matches!(self.security, Some(SecurityOptions::Plaintext | SecurityOptions::Memory))
    }
}

impl Tables<'_> {
    fn common(&self, overrides: &Overrides, problems: &mut Problems) -> Common {
        let run = loop_options(self.node.get_ref(), self.metrics, overrides);
        let run = problems.note(self.node.span(), run);
        let links = link::options(self.link, overrides, problems);
        let count = match self.link.get_ref() {
            OneOrMore::One(_) => 1,
            OneOrMore::More(more) => more.len(),
        };
        let session = match self.session {
            Some(session) => {
                problems.note(session.span(), session_options(session.get_ref(), count, self.is_box))
            }
            None => problems.note_of_all(session_options(&Session::default(), count, self.is_box)),
        };
        let known = run.as_ref().zip(links.as_ref());
        let fabric = known.zip(self.fabric).and_then(|((run, links), table)| {
            problems.note(table.span(), fabric::options(table.get_ref(), run, links, self.is_box))
        });
        let security = links.as_ref().and_then(|links| match self.security {
            Some(table) => {
                let security = security::resolve(table.get_ref(), &overrides.security, links);
                problems.note(table.span(), security)
            }
            None => problems.note_of_all(security::resolve(&Security::default(), &overrides.security, links)),
        });
        Common { run, links, session, fabric, security }
    }

    /// The fabric to look at devices and slots with: one without anything special if that of the file is wrong.
    fn fabric_for_others(&self, fabric: Option<&FabricOptions>) -> Option<FabricOptions> {
        self.fabric.map(|_| fabric.cloned().unwrap_or_default())
    }
}

fn device_options(
    device: Device,
    others: &[DeviceOptions],
    fabric: Option<&FabricOptions>,
) -> Result<DeviceOptions> {
    let Device {
        kind,
        name,
        serial,
        group,
        model,
        queue_pairs,
        cmb_bytes,
        max_transfer,
        owners,
        size,
        link,
        peers,
        plaintext,
        rate,
        namespaces,
        ports,
        disks,
        on_host_loss,
        standby,
        mac,
        network,
    } = device;
    ensure!(
        group.is_none() || fabric.is_some(),
        "[[device]] group belongs to a fabric: add [fabric], or remove it"
    );
    ensure!(
        on_host_loss == HostLoss::Keep || fabric.is_some(),
        "[[device]] on_host_loss = \"move\" needs other hosts to be known: add [fabric]"
    );
    ensure!(
        on_host_loss == HostLoss::Move || standby.is_empty(),
        "[[device]] standby is for a device that moves: add on_host_loss = \"move\""
    );
    let failover = (on_host_loss == HostLoss::Move).then_some(FailoverPolicy { standby });
    ensure!(
        others.iter().all(|other| other.name != name),
        "[[device]] name = {name:?} stands twice: names are unique in a box"
    );
    let group = group.or_else(|| fabric?.group);
    let (is_nvme, is_ahci, is_dc) = (kind == Kind::Nvme, kind == Kind::Ahci, kind == Kind::Dc);
    let (is_nic, is_rnic) = (kind == Kind::E82576, kind == Kind::Rnic);
    let is_sata = is_ahci || kind == Kind::Sil3132;
    // Each key, whether it is there, and whether it belongs to the kind.
    let keys = [
        ("model", model.is_some(), is_nvme || is_sata),
        ("queue_pairs", queue_pairs.is_some(), is_nvme),
        ("cmb_bytes", cmb_bytes.is_some(), is_nvme),
        ("max_transfer", max_transfer.is_some(), is_nvme),
        ("rate", rate.is_some(), is_nvme),
        ("namespace", !namespaces.is_empty(), is_nvme),
        ("ports", ports.is_some(), is_ahci),
        ("disk", !disks.is_empty(), is_sata),
        ("size", size.is_some(), is_dc),
        ("mac", mac.is_some(), is_nic),
        ("network", network.is_some(), is_nic),
        ("link", link.is_some(), is_rnic),
        ("peers", !peers.is_empty(), is_rnic),
        ("plaintext", plaintext, is_rnic),
    ];
    let stray = keys.into_iter().find(|&(_, is_there, belongs)| is_there && !belongs);
    if let Some((key, ..)) = stray {
        bail!("[[device]] {name:?}: {key} is not for kind = {:?}: remove it", kind.name());
    }
    let kind = match kind {
        Kind::Nvme => {
            let mut nvme = nvme_options(&name, model, queue_pairs, cmb_bytes, namespaces)?;
            nvme.rate = rate;
            nvme.max_transfer_bytes = max_transfer.unwrap_or(nvme.max_transfer_bytes);
            DeviceKind::Nvme(nvme)
        }
        Kind::Ahci => {
            DeviceKind::Sata(sata_options(&name, &serial, SataController::Ahci, model, ports, disks)?)
        }
        Kind::Sil3132 => {
            let controller = SataController::Sil3132;
            DeviceKind::Sata(sata_options(&name, &serial, controller, model, Some(2), disks)?)
        }
        Kind::Dc => {
            let bytes = size.with_context(|| {
                format!("[[device]] {name:?} is a DC buffer and needs a size, as in size = \"256 MiB\"")
            })?;
            DeviceKind::Dc { bytes }
        }
        Kind::E82576 => DeviceKind::E82576(NicOptions { mac, network: network::options(&name, network)? }),
        Kind::Rnic => DeviceKind::Rnic(rnic_options(&name, link, peers, plaintext)?),
    };
    Ok(DeviceOptions { name, serial, group, failover, owners, kind })
}

fn rnic_options(
    name: &str,
    link: Option<String>,
    peers: Vec<Address>,
    is_plaintext: bool,
) -> Result<RnicOptions> {
    let text = link.with_context(|| {
        format!("[[device]] {name:?} is an RNIC and needs a link of its own, as in link = \"packet:eth1\"")
    })?;
    let link: LinkKind = text.parse()?;
    ensure!(
        matches!(link, LinkKind::Packet { .. } | LinkKind::Udp { .. } | LinkKind::Xdp { .. }),
        "[[device]] {name:?}: the link of an RNIC is of the kind packet, xdp or udp"
    );
    ensure!(
        !peers.is_empty(),
        "[[device]] {name:?} has nobody to speak with: add peers, the addresses of other RNICs"
    );
    ensure!(
        is_plaintext,
        "[[device]] {name:?}: what an RNIC sends is not protected: say plaintext = true if only those whom you trust are on its link"
    );
    Ok(RnicOptions { link, peers })
}

fn nvme_options(
    name: &str,
    model: Option<String>,
    queue_pairs: Option<u16>,
    cmb_bytes: Option<u32>,
    namespaces: Vec<Store>,
) -> Result<NvmeOptions> {
    ensure!(!namespaces.is_empty(), "[[device]] {name:?} has no [[device.namespace]]: add at least one");
    ensure!(namespaces.len() <= 32, "[[device]] {name:?} has more than 32 namespaces: use 32 or fewer");
    let namespaces =
        namespaces.into_iter().map(|store| store_options(name, "namespace", store)).collect::<Result<_>>()?;
    Ok(NvmeOptions {
        model: model.unwrap_or_else(|| "Etherslot NVMe".to_owned()),
        queue_pairs: queue_pairs.unwrap_or(64),
        cmb_bytes,
        max_transfer_bytes: DEFAULT_MAX_TRANSFER_BYTES,
        rate: None,
        namespaces,
    })
}

fn sata_options(
    name: &str,
    serial: &str,
    controller: SataController,
    model: Option<String>,
    ports: Option<u8>,
    disks: Vec<Store>,
) -> Result<SataOptions> {
    let ports = ports.unwrap_or_else(|| u8::try_from(disks.len()).unwrap_or(u8::MAX));
    ensure!(ports > 0, "[[device]] {name:?} has no [[device.disk]]: add at least one, or ports = 1");
    ensure!(ports <= 8, "[[device]] {name:?} has more than 8 disks: use 8 or fewer");
    ensure!(
        disks.len() <= usize::from(ports),
        "[[device]] {name:?} has {} disks, but ports = {ports}: a disk has a port",
        disks.len()
    );
    ensure!(
        ports == 1 || serial.len() <= 18,
        "[[device]] {name:?}: the disks' serial numbers are made of serial with their port: use 18 characters or fewer"
    );
    let disks = disks.into_iter().map(|store| store_options(name, "disk", store)).collect::<Result<_>>()?;
    Ok(SataOptions { controller, model: model.unwrap_or_else(|| "Etherslot SATA".to_owned()), ports, disks })
}

fn store_options(device: &str, table: &str, store: Store) -> Result<StoreOptions> {
    let Store { path, memory, block_bytes, read_only, removable } = store;
    ensure!(
        !removable || (table == "disk" && path.is_some()),
        "[[device.{table}]] of {device:?}: removable is for a [[device.disk]] with a path: remove it"
    );
    let backing = match (path, memory) {
        (Some(path), None) => Backing::File(path),
        (None, Some(bytes)) => Backing::Memory(bytes),
        _ => bail!("[[device.{table}]] of {device:?} needs path = \"…\" or memory = \"…\", and not both"),
    };
    Ok(StoreOptions { backing, block_bytes, read_only, removable })
}

/// Where a slot's box is, as far as that is said.
fn slot_routes(addresses: &[Address], links: &[LinkOptions], others: &[SlotOptions]) -> Result<Routes> {
    ensure!(
        addresses.len() <= links.len(),
        "[[slot]] box has {} addresses, but there are {} links: write one for each link, in the order of the links",
        addresses.len(),
        links.len()
    );
    for (link, &address) in links.iter().zip(addresses) {
        ensure!(
            link.kind.reaches(&address),
            "[[slot]] box = \"{address}\" is not {}, as a link of kind = \"{}\" needs",
            link.kind.peer_form(),
            link.kind.name()
        );
    }
    let Some((&address, further)) = addresses.split_first() else {
        bail!("[[slot]] box is empty: write the box's address on each link");
    };
    let routes = Routes::new(address, further.iter().copied());
    let is_apart = |other: &Routes| other.iter().all(|known| routes.iter().all(|via| via != known));
    ensure!(
        others
            .iter()
            .filter_map(|other| other.routes.as_ref())
            .all(|other| *other == routes || is_apart(other)),
        "[[slot]] box = \"{address}\": the slots of a box have all to name the same addresses"
    );
    Ok(routes)
}

fn slot_options(
    slot: Slot,
    links: &[LinkOptions],
    others: &[SlotOptions],
    fabric: Option<&FabricOptions>,
) -> Result<SlotOptions> {
    let Slot { device, serial, r#box: addresses, box_key, socket, interrupts, hot_plug, domain } = slot;
    let routes = addresses.map(|addresses| slot_routes(&addresses, links, others)).transpose()?;
    ensure!(
        routes.is_some() || fabric.is_some(),
        "[[slot]] has no box = \"ADDRESS\": add it, or [fabric], to have the device found"
    );
    let wanted = match (device, serial) {
        (Some(device), None) if device == ANY => {
            ensure!(
                routes.is_none() && hot_plug.is_some(),
                "[[slot]] device = \"{ANY}\" takes whatever is given to this host: it needs hot_plug, and no box"
            );
            Wanted::Any
        }
        (Some(device), None) => Wanted::Name(device),
        (None, Some(serial)) if routes.is_none() => Wanted::Serial(serial),
        (None, Some(_)) => {
            bail!("[[slot]] serial is for devices that are found: remove box, or write device")
        }
        _ => bail!("[[slot]] needs device = \"NAME\" or serial = \"…\", and not both"),
    };
    let label = match &wanted {
        Wanted::Name(label) | Wanted::Serial(label) => label,
        Wanted::Any => ANY,
    };
    // Of `BOX/NAME` the slot is called by the name.
    let device = match (label.len() > 32, label.rsplit_once('/')) {
        (true, Some((_, name))) => name.to_owned(),
        _ => label.to_owned(),
    };
    ensure!(device.len() <= 32, "[[slot]] device = {device:?} has to be 1 to 32 bytes of text");
    ensure!(
        routes.is_none() || label == device,
        "[[slot]] device = {label:?} has to be 1 to 32 bytes of text"
    );
    ensure!(
        others.iter().all(|other| other.socket != socket),
        "[[slot]] socket = {} stands twice: every slot needs its own",
        socket.display()
    );
    ensure!(
        wanted == Wanted::Any || others.iter().all(|other| other.wanted != wanted || other.routes != routes),
        "[[slot]] device = {device:?} stands twice: a device has one slot"
    );
    let interrupts = match (interrupts, &hot_plug) {
        (Some(InterruptKind::MsiX), Some(_)) => bail!(
            "[[slot]] device = {device:?} has interrupts = \"msi-x\" and hot_plug: QEMU ends when such a device is \
             unplugged; leave interrupts out"
        ),
        (Some(InterruptKind::MsiX) | None, None) => Interrupts::MsiX,
        (Some(InterruptKind::Msi), _) | (None, Some(_)) => Interrupts::Msi,
    };
    let hot_plug = hot_plug.map(|hot_plug| hot_plug.options(&device, others)).transpose()?;
    ensure!(
        box_key.is_none() || routes.is_some(),
        "[[slot]] box_key belongs to a box that is named: add box, or name peers in [security]"
    );
    ensure!(
        others
            .iter()
            .all(|other| other.routes.is_none() || other.routes != routes || other.box_key == box_key),
        "[[slot]] device = {device:?}: the slots of a box have all to name the same box_key, or none"
    );
    Ok(SlotOptions { device, wanted, routes, box_key, socket, interrupts, hot_plug, domain })
}

impl File for BoxFile {
    type Options = BoxOptions;
    const KIND: [&str; 3] = ["device", "slot", "host"];

    fn options(self, overrides: &Overrides, problems: &mut Problems) -> Option<BoxOptions> {
        let tables = Tables {
            node: &self.node,
            metrics: self.metrics.as_ref(),
            link: &self.link,
            session: self.session.as_ref(),
            fabric: self.fabric.as_ref(),
            security: self.security.as_ref(),
            is_box: true,
        };
        let common = tables.common(overrides, problems);
        let fabric = tables.fabric_for_others(common.fabric.as_ref());
        if self.devices.is_empty() {
            problems.of_all("the box has no [[device]]: add at least one");
        }
        let mut devices = Vec::new();
        for device in self.devices {
            let span = device.span();
            let options = device_options(device.into_inner(), &devices, fabric.as_ref());
            let options = options.and_then(|device| {
                let is_possible = device.owners.is_none() || common.may_have_keys();
                ensure!(is_possible, "[[device]] owners needs keys: nodes without them are nobody");
                Ok(device)
            });
            devices.extend(problems.note(span, options));
        }
        let Common { run, links, session, fabric, security } = common;
        if !problems.is_empty() {
            return None;
        }
        Some(BoxOptions { run: run?, links: links?, session: session?, security: security?, devices, fabric })
    }
}

impl File for HostFile {
    type Options = HostOptions;
    const KIND: [&str; 3] = ["slot", "device", "box"];

    fn options(self, overrides: &Overrides, problems: &mut Problems) -> Option<HostOptions> {
        let tables = Tables {
            node: &self.node,
            metrics: self.metrics.as_ref(),
            link: &self.link,
            session: self.session.as_ref(),
            fabric: self.fabric.as_ref(),
            security: self.security.as_ref(),
            is_box: false,
        };
        let common = tables.common(overrides, problems);
        let fabric = tables.fabric_for_others(common.fabric.as_ref());
        if self.slots.is_empty() {
            problems.of_all("the host has no [[slot]]: add at least one");
        }
        let mut slots = Vec::new();
        for slot in self.slots {
            // Whether an address is good, the links tell.
            let Some(links) = &common.links else { break };
            let span = slot.span();
            let options = slot_options(slot.into_inner(), links, &slots, fabric.as_ref());
            let options = options.and_then(|slot| {
                let is_possible = slot.box_key.is_none() || common.may_have_keys();
                ensure!(is_possible, "[[slot]] box_key needs keys: nodes without them are nobody");
                Ok(slot)
            });
            slots.extend(problems.note(span, options));
        }
        let Common { run, links, session, fabric, security } = common;
        if !problems.is_empty() {
            return None;
        }
        Some(HostOptions { run: run?, links: links?, session: session?, security: security?, slots, fabric })
    }
}

#[cfg(test)]
mod tests;
