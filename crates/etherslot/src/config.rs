//! The configuration files of box and host (TOML): their keys, what is allowed, and how a mistake is told.
//!
//! A key that is not known here and a value that is not possible are refused with the line they stand in; what does not
//! go together, with the line of its table. Durations carry their unit (`"50us"`), sizes are bytes.

mod fabric;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use etherslot_runtime::link_spec::DPDK_MTU;
use etherslot_runtime::options::{
    Address, Backing, BoxOptions, DeviceOptions, FabricOptions, Group, HostOptions, Interrupts, LinkKind,
    LinkOptions, ListenAddress, LoopOptions, MAX_PATHS, MAX_PAYLOAD_BYTES, NamespaceOptions, NvmeOptions,
    PublicKey, Routes, SecurityOptions, SessionOptions, SlotOptions, Wanted, XdpMode,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::Spanned;

use self::fabric::Fabric;
use crate::security::{self, Security, SecurityFlags};
use crate::value::{self, OneOrMore};

/// A peer silent for this long is dead.
pub(crate) const DEFAULT_DEAD_AFTER: Duration = Duration::from_secs(1);
/// Signs of life of an idle session in that time.
pub(crate) const HEARTBEATS: u32 = 10;

/// `etherslot box --config`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BoxFile {
    node: Node,
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
    node: Node,
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

/// Keys of all kinds of links; which belong together is seen to afterwards.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Link {
    kind: Kind,
    /// `packet`, `xdp`: the network interface.
    interface: Option<String>,
    /// `udp`: address and port to listen on.
    #[serde(default, deserialize_with = "value::listen")]
    listen: Option<SocketAddr>,
    /// `udp`, `dpdk`: the path's MTU, if it is not the interface's.
    mtu: Option<u16>,
    /// `xdp`: the interface's queue.
    #[serde(default, deserialize_with = "value::queue")]
    queue: Option<u32>,
    /// `xdp`: who runs the XDP program.
    mode: Option<Mode>,
    /// `ring`: the hub's folder.
    hub: Option<PathBuf>,
    /// `ring`: our number in it.
    port: Option<u32>,
    /// `dpdk`: the device with its arguments.
    device: Option<String>,
    /// `dpdk`: further arguments of EAL.
    #[serde(default)]
    eal: Vec<String>,
    /// `dpdk`: the Ethernet address, if it is not the device's.
    #[serde(default, deserialize_with = "value::mac")]
    mac: Option<[u8; 6]>,
    /// Where to write a pcapng capture.
    capture: Option<PathBuf>,
    /// Faults to make on purpose.
    #[serde(default, deserialize_with = "value::faults")]
    impair: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Packet,
    Udp,
    Xdp,
    Ring,
    Dpdk,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Mode {
    Auto,
    Native,
    Generic,
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
    #[serde(rename = "kind")]
    _kind: DeviceKind,
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
    /// The nodes that may have it, if not all.
    #[serde(default, deserialize_with = "value::public_keys")]
    owners: Option<Vec<PublicKey>>,
    #[serde(default, rename = "namespace")]
    namespaces: Vec<Namespace>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum DeviceKind {
    Nvme,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Namespace {
    /// A file or block device, or
    path: Option<PathBuf>,
    /// memory of the daemon, bytes.
    #[serde(default, deserialize_with = "value::memory")]
    memory: Option<u64>,
    #[serde(default = "default_block_bytes", deserialize_with = "value::block_bytes")]
    block_bytes: u32,
    #[serde(default)]
    read_only: bool,
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
    #[serde(default)]
    interrupts: InterruptKind,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
enum InterruptKind {
    #[default]
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

    /// Checks what the values mean together. `text` is what the file was read from.
    fn options(self, text: &str, overrides: &Overrides) -> Result<Self::Options>;
}

/// Reads a configuration file of either kind.
pub(crate) fn read<F: File>(path: &Path, overrides: &Overrides) -> Result<F::Options> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the configuration {}", path.display()))?;
    parse::<F>(&text, overrides).with_context(|| format!("in the configuration {}", path.display()))
}

fn parse<F: File>(text: &str, overrides: &Overrides) -> Result<F::Options> {
    // The error of the TOML library shows line, column and the keys that would be allowed.
    toml::from_str::<F>(text)?.options(text, overrides)
}

/// The line of a table, as people count.
fn place<T>(text: &str, table: &Spanned<T>) -> String {
    let before = text.get(..table.span().start).unwrap_or_default();
    format!("line {}", before.matches('\n').count() + 1)
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

/// All links. What a flag says about the link, it says about each of them.
fn links_options(
    text: &str,
    links: &Spanned<OneOrMore<Spanned<Link>, Link>>,
    overrides: &Overrides,
) -> Result<Vec<LinkOptions>> {
    let links = match links.get_ref() {
        OneOrMore::One(link) => {
            return Ok(vec![link_options(link, overrides).with_context(|| place(text, links))?]);
        }
        OneOrMore::More(more) => {
            ensure!(!more.is_empty(), "there is no link: add [link]");
            ensure!(more.len() <= MAX_PATHS, "there are more than {MAX_PATHS} [[link]]: remove some");
            more
        }
    };
    let mut all: Vec<LinkOptions> = Vec::new();
    for link in links {
        let mut options = link_options(link.get_ref(), overrides).with_context(|| place(text, link))?;
        let is_taken = |options: &LinkOptions| all.iter().any(|other| other.capture == options.capture);
        if options.capture.is_some() && is_taken(&options) {
            // One file takes one link.
            let mut path = options.capture.take().unwrap_or_default().into_os_string();
            path.push(format!(".{}", all.len()));
            options.capture = Some(path.into());
        }
        all.push(options);
    }
    Ok(all)
}

fn link_options(link: &Link, overrides: &Overrides) -> Result<LinkOptions> {
    // What each key belongs to; a key of another kind is a mistake, not something to pass over.
    let keys = [
        ("interface", link.interface.is_some(), &["packet", "xdp"][..]),
        ("listen", link.listen.is_some(), &["udp"]),
        ("mtu", link.mtu.is_some(), &["udp", "dpdk"]),
        ("device", link.device.is_some(), &["dpdk"]),
        ("eal", !link.eal.is_empty(), &["dpdk"]),
        ("mac", link.mac.is_some(), &["dpdk"]),
        ("queue", link.queue.is_some(), &["xdp"]),
        ("mode", link.mode.is_some(), &["xdp"]),
        ("hub", link.hub.is_some(), &["ring"]),
        ("port", link.port.is_some(), &["ring"]),
    ];
    let of_kind = |name: &str| {
        let foreign = keys.iter().find(|(_, is_set, kinds)| *is_set && !kinds.contains(&name));
        match foreign {
            Some((key, _, kinds)) => {
                let kinds = kinds.join("\" or \"");
                bail!("[link] {key} belongs to kind = \"{kinds}\": remove it, or change the kind")
            }
            None => Ok(()),
        }
    };
    let kind = match link.kind {
        Kind::Packet => {
            of_kind("packet")?;
            let interface = link.interface.clone();
            let interface = interface.context("[link] kind = \"packet\" needs interface = \"…\"")?;
            LinkKind::Packet { interface }
        }
        Kind::Udp => {
            of_kind("udp")?;
            let listen = link.listen.context("[link] kind = \"udp\" needs listen = \"ADDRESS:PORT\"")?;
            LinkKind::Udp { listen, mtu: link.mtu }
        }
        Kind::Xdp => {
            of_kind("xdp")?;
            let interface = link.interface.clone();
            let interface = interface.context("[link] kind = \"xdp\" needs interface = \"…\"")?;
            let mode = match link.mode.unwrap_or(Mode::Auto) {
                Mode::Auto => XdpMode::Auto,
                Mode::Native => XdpMode::Native,
                Mode::Generic => XdpMode::Generic,
            };
            LinkKind::Xdp { interface, queue: link.queue.unwrap_or(0), mode }
        }
        Kind::Ring => {
            of_kind("ring")?;
            let hub = link.hub.clone().context("[link] kind = \"ring\" needs hub = \"FOLDER\"")?;
            let port = link.port.context("[link] kind = \"ring\" needs port = N, a number of its own")?;
            LinkKind::Ring { hub, port }
        }
        Kind::Dpdk => {
            of_kind("dpdk")?;
            let device = link.device.clone();
            let device =
                device.context("[link] kind = \"dpdk\" needs device = \"…\", as net_memif0,role=server")?;
            ensure!(
                link.mtu.is_none_or(|mtu| DPDK_MTU.contains(&mtu)),
                "[link] mtu has to be {} to {}",
                DPDK_MTU.start(),
                DPDK_MTU.end()
            );
            LinkKind::Dpdk { device, eal: link.eal.clone(), mtu: link.mtu, mac: link.mac }
        }
    };
    Ok(LinkOptions {
        kind,
        capture: overrides.capture.clone().or_else(|| link.capture.clone()),
        impair: overrides.impair.clone().or_else(|| link.impair.clone()),
    })
}

fn session_options(session: &Session, links: usize) -> Result<SessionOptions> {
    let dead_after = session.dead_after.unwrap_or(DEFAULT_DEAD_AFTER);
    let heartbeat = session.heartbeat.unwrap_or(dead_after / HEARTBEATS);
    ensure!(
        heartbeat >= Duration::from_millis(1) && heartbeat.saturating_mul(4) <= dead_after,
        "[session] dead_after has to be at least four times heartbeat, and heartbeat at least 1ms"
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

/// Of a node with these links.
fn security_options(
    text: &str,
    security: Option<&Spanned<Security>>,
    links: &[LinkOptions],
    overrides: &Overrides,
) -> Result<SecurityOptions> {
    match security {
        Some(table) => {
            security::resolve(table.get_ref(), &overrides.security, links).with_context(|| place(text, table))
        }
        None => security::resolve(&Security::default(), &overrides.security, links),
    }
}

/// What both kinds of files begin with.
fn common(
    text: &str,
    node: &Node,
    metrics: Option<&Metrics>,
    links: &Spanned<OneOrMore<Spanned<Link>, Link>>,
    session: Option<&Spanned<Session>>,
    overrides: &Overrides,
) -> Result<(LoopOptions, Vec<LinkOptions>, SessionOptions)> {
    let links = links_options(text, links, overrides)?;
    let session = match session {
        Some(session) => {
            session_options(session.get_ref(), links.len()).with_context(|| place(text, session))?
        }
        None => session_options(&Session::default(), links.len())?,
    };
    Ok((loop_options(node, metrics, overrides)?, links, session))
}

fn device_options(
    device: Device,
    others: &[DeviceOptions],
    fabric: Option<&FabricOptions>,
) -> Result<DeviceOptions> {
    let Device { name, serial, group, model, queue_pairs, cmb_bytes, owners, namespaces, .. } = device;
    ensure!(
        group.is_none() || fabric.is_some(),
        "[[device]] group belongs to a fabric: add [fabric], or remove it"
    );
    ensure!(
        others.iter().all(|other| other.name != name),
        "[[device]] name = {name:?} stands twice: names are unique in a box"
    );
    ensure!(!namespaces.is_empty(), "[[device]] {name:?} has no [[device.namespace]]: add at least one");
    ensure!(namespaces.len() <= 32, "[[device]] {name:?} has more than 32 namespaces: use 32 or fewer");
    let namespaces =
        namespaces.into_iter().map(|namespace| namespace_options(&name, namespace)).collect::<Result<_>>()?;
    let nvme = NvmeOptions {
        serial,
        model: model.unwrap_or_else(|| "Etherslot NVMe".to_owned()),
        queue_pairs: queue_pairs.unwrap_or(64),
        cmb_bytes,
        namespaces,
    };
    let group = group.or_else(|| fabric?.group);
    Ok(DeviceOptions { name, group, owners, nvme })
}

fn namespace_options(device: &str, namespace: Namespace) -> Result<NamespaceOptions> {
    let Namespace { path, memory, block_bytes, read_only } = namespace;
    let backing = match (path, memory) {
        (Some(path), None) => Backing::File(path),
        (None, Some(bytes)) => Backing::Memory(bytes),
        _ => bail!("[[device.namespace]] of {device:?} needs path = \"…\" or memory = \"…\", and not both"),
    };
    Ok(NamespaceOptions { backing, block_bytes, read_only })
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
    let Slot { device, serial, r#box: addresses, box_key, socket, interrupts } = slot;
    let routes = addresses.map(|addresses| slot_routes(&addresses, links, others)).transpose()?;
    ensure!(
        routes.is_some() || fabric.is_some(),
        "[[slot]] has no box = \"ADDRESS\": add it, or [fabric], to have the device found"
    );
    let wanted = match (device, serial) {
        (Some(device), None) => Wanted::Name(device),
        (None, Some(serial)) if routes.is_none() => Wanted::Serial(serial),
        (None, Some(_)) => {
            bail!("[[slot]] serial is for devices that are found: remove box, or write device")
        }
        _ => bail!("[[slot]] needs device = \"NAME\" or serial = \"…\", and not both"),
    };
    let (Wanted::Name(label) | Wanted::Serial(label)) = &wanted;
    // Of `BOX/NAME` the slot is called by the name.
    let device = match (label.len() > 32, label.rsplit_once('/')) {
        (true, Some((_, name))) => name.to_owned(),
        _ => label.clone(),
    };
    ensure!(device.len() <= 32, "[[slot]] device = {device:?} has to be 1 to 32 bytes of text");
    ensure!(
        routes.is_none() || *label == device,
        "[[slot]] device = {label:?} has to be 1 to 32 bytes of text"
    );
    ensure!(
        others.iter().all(|other| other.socket != socket),
        "[[slot]] socket = {} stands twice: every slot needs its own",
        socket.display()
    );
    ensure!(
        others.iter().all(|other| other.wanted != wanted || other.routes != routes),
        "[[slot]] device = {device:?} stands twice: a device has one slot"
    );
    let interrupts = match interrupts {
        InterruptKind::MsiX => Interrupts::MsiX,
        InterruptKind::Msi => Interrupts::Msi,
    };
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
    Ok(SlotOptions { device, wanted, routes, box_key, socket, interrupts })
}

impl File for BoxFile {
    type Options = BoxOptions;

    fn options(self, text: &str, overrides: &Overrides) -> Result<BoxOptions> {
        let (run, links, session) =
            common(text, &self.node, self.metrics.as_ref(), &self.link, self.session.as_ref(), overrides)?;
        if let Some(session) = &self.session {
            ensure!(
                session.get_ref().max_payload.is_none(),
                "{}: max_payload is for hosts: a box keeps to what its host says",
                place(text, session)
            );
        }
        let fabric = fabric::options(text, self.fabric.as_ref(), &run, &links, true)?;
        let security = security_options(text, self.security.as_ref(), &links, overrides)?;
        ensure!(!self.devices.is_empty(), "the box has no [[device]]: add at least one");
        let mut devices = Vec::new();
        for device in self.devices {
            let place = place(text, &device);
            let device =
                device_options(device.into_inner(), &devices, fabric.as_ref()).context(place.clone())?;
            let is_possible = device.owners.is_none() || matches!(security, SecurityOptions::Keys { .. });
            ensure!(is_possible, "{place}: [[device]] owners needs keys: nodes without them are nobody");
            devices.push(device);
        }
        Ok(BoxOptions { run, links, session, security, devices, fabric })
    }
}

impl File for HostFile {
    type Options = HostOptions;

    fn options(self, text: &str, overrides: &Overrides) -> Result<HostOptions> {
        let (run, links, session) =
            common(text, &self.node, self.metrics.as_ref(), &self.link, self.session.as_ref(), overrides)?;
        let fabric = fabric::options(text, self.fabric.as_ref(), &run, &links, false)?;
        let security = security_options(text, self.security.as_ref(), &links, overrides)?;
        ensure!(!self.slots.is_empty(), "the host has no [[slot]]: add at least one");
        let mut slots = Vec::new();
        for slot in self.slots {
            let place = place(text, &slot);
            let slot =
                slot_options(slot.into_inner(), &links, &slots, fabric.as_ref()).context(place.clone())?;
            let is_possible = slot.box_key.is_none() || matches!(security, SecurityOptions::Keys { .. });
            ensure!(is_possible, "{place}: [[slot]] box_key needs keys: nodes without them are nobody");
            slots.push(slot);
        }
        Ok(HostOptions { run, links, session, security, slots, fabric })
    }
}

#[cfg(test)]
mod tests;
