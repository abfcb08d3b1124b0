//! The configuration files of box and host (TOML): their keys, what is allowed, and how a mistake is told.
//!
//! A key that is not known here is refused, with the line it stands in. Durations carry their unit (`"50us"`), sizes
//! are bytes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use etherslot_runtime::options::{
    BoxOptions, DeviceOptions, HostOptions, Interrupts, LinkKind, LinkOptions, LoopOptions, NamespaceOptions,
    NvmeOptions, SessionOptions, SlotOptions,
};
use serde::{Deserialize, Deserializer, de};

/// `etherslot box --config`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BoxFile {
    node: Node,
    link: Link,
    #[serde(default)]
    session: Session,
    #[serde(default, rename = "device")]
    devices: Vec<Device>,
}

/// `etherslot host --config`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HostFile {
    node: Node,
    link: Link,
    #[serde(default)]
    session: Session,
    #[serde(default, rename = "slot")]
    slots: Vec<Slot>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Node {
    /// What people call the node; with the machine's identity it makes the node's ID.
    name: String,
    /// How long to poll before sleeping.
    #[serde(default, deserialize_with = "duration")]
    busy_poll: Option<Duration>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Link {
    kind: Kind,
    /// `packet`: the network interface.
    interface: Option<String>,
    /// `udp`: address and port to listen on.
    listen: Option<String>,
    /// `udp`: the path's MTU, if it is not the interface's.
    mtu: Option<u16>,
    /// Where to write a pcapng capture.
    capture: Option<PathBuf>,
    /// Faults to make on purpose.
    impair: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Packet,
    Udp,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Session {
    /// Published behaviour: in-order receiver, Go-Back-N.
    classic: bool,
    /// Frames in flight and held out of order.
    window_frames: Option<u16>,
    /// A peer silent for this long is dead.
    #[serde(deserialize_with = "duration")]
    dead_after: Option<Duration>,
    /// How often an idle session shows that it lives.
    #[serde(deserialize_with = "duration")]
    heartbeat: Option<Duration>,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
enum Device {
    Nvme {
        name: String,
        serial: String,
        model: Option<String>,
        queue_pairs: Option<u16>,
        cmb_bytes: Option<u32>,
        #[serde(default, rename = "namespace")]
        namespaces: Vec<Namespace>,
    },
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Namespace {
    path: PathBuf,
    #[serde(default = "default_block_bytes")]
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
    /// The device's name in the box.
    device: String,
    /// The box's address: a MAC for `packet`, host:port for `udp`.
    r#box: String,
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

fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    let text = String::deserialize(deserializer)?;
    humantime::parse_duration(&text).map(Some).map_err(|error| {
        de::Error::custom(format!(
            "{error}; write a number and its unit, as in \"50us\", \"100ms\" or \"2s\""
        ))
    })
}

/// Reads a configuration file of either kind.
pub(crate) fn read<T: de::DeserializeOwned>(path: &Path) -> Result<T> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the configuration {}", path.display()))?;
    parse(&text).with_context(|| format!("in the configuration {}", path.display()))
}

fn parse<T: de::DeserializeOwned>(text: &str) -> Result<T> {
    // The error of the TOML library shows line, column and the keys that would be allowed.
    Ok(toml::from_str(text)?)
}

/// What flags and environment change in a file.
#[derive(Debug, Default)]
pub(crate) struct Overrides {
    pub(crate) busy_poll: Option<Duration>,
    pub(crate) capture: Option<PathBuf>,
    pub(crate) impair: Option<String>,
}

fn loop_options(node: &Node, overrides: &Overrides) -> Result<LoopOptions> {
    ensure!(!node.name.is_empty(), "[node] name is empty: give the node a name");
    let busy_poll = overrides.busy_poll.or(node.busy_poll).unwrap_or(Duration::ZERO);
    ensure!(busy_poll <= Duration::from_secs(10), "[node] busy_poll is more than 10s: use 10s or less");
    Ok(LoopOptions { name: node.name.clone(), busy_poll })
}

fn link_options(link: Link, overrides: &Overrides) -> Result<LinkOptions> {
    let kind = match link.kind {
        Kind::Packet => {
            if link.listen.is_some() || link.mtu.is_some() {
                bail!("[link] listen and mtu belong to kind = \"udp\": remove them, or change the kind");
            }
            let interface = link.interface.context("[link] kind = \"packet\" needs interface = \"…\"")?;
            LinkKind::Packet { interface }
        }
        Kind::Udp => {
            if link.interface.is_some() {
                bail!("[link] interface belongs to kind = \"packet\": remove it, or change the kind");
            }
            let listen = link.listen.context("[link] kind = \"udp\" needs listen = \"ADDRESS:PORT\"")?;
            let listen = listen.parse().with_context(|| {
                format!("[link] listen = {listen:?} is not ADDRESS:PORT, as in \"0.0.0.0:4700\"")
            })?;
            LinkKind::Udp { listen, mtu: link.mtu }
        }
    };
    Ok(LinkOptions {
        kind,
        capture: overrides.capture.clone().or(link.capture),
        impair: overrides.impair.clone().or(link.impair),
    })
}

fn session_options(session: &Session) -> Result<SessionOptions> {
    if let Some(window) = session.window_frames {
        ensure!(
            (16..=4096).contains(&window),
            "[session] window_frames = {window} is out of range: use 16 to 4096"
        );
    }
    let dead_after = session.dead_after.unwrap_or(Duration::from_secs(1));
    let heartbeat = session.heartbeat.unwrap_or(dead_after / 10);
    ensure!(
        heartbeat >= Duration::from_millis(1) && heartbeat * 4 <= dead_after,
        "[session] dead_after has to be at least four times heartbeat, and heartbeat at least 1ms"
    );
    ensure!(dead_after <= Duration::from_secs(4), "[session] dead_after is more than 4s: use 4s or less");
    Ok(SessionOptions {
        classic: session.classic,
        window_frames: session.window_frames,
        dead_after,
        heartbeat,
    })
}

impl BoxFile {
    /// Checks the values and makes the box's options of them.
    pub(crate) fn options(self, overrides: &Overrides) -> Result<BoxOptions> {
        ensure!(!self.devices.is_empty(), "the box has no [[device]]: add at least one");
        let mut devices: Vec<DeviceOptions> = Vec::new();
        for device in self.devices {
            let Device::Nvme { name, serial, model, queue_pairs, cmb_bytes, namespaces } = device;
            ensure!(
                (1..=32).contains(&name.len()) && !name.contains('\0'),
                "[[device]] name = {name:?} has to be 1 to 32 bytes long"
            );
            ensure!(
                devices.iter().all(|other| other.name != name),
                "[[device]] name = {name:?} stands twice: names are unique in a box"
            );
            let ascii = |text: &str| text.bytes().all(|byte| (0x20..0x7F).contains(&byte));
            ensure!(
                (1..=20).contains(&serial.len()) && ascii(&serial),
                "[[device]] serial = {serial:?} has to be 1 to 20 printable ASCII characters"
            );
            let model = model.unwrap_or_else(|| "Etherslot NVMe".to_owned());
            ensure!(
                (1..=40).contains(&model.len()) && ascii(&model),
                "[[device]] model = {model:?} has to be 1 to 40 printable ASCII characters"
            );
            let queue_pairs = queue_pairs.unwrap_or(64);
            ensure!(
                (1..=64).contains(&queue_pairs),
                "[[device]] queue_pairs = {queue_pairs} is out of range: use 1 to 64"
            );
            if let Some(bytes) = cmb_bytes {
                ensure!(
                    bytes.is_power_of_two() && (4096..=64 << 20).contains(&bytes),
                    "[[device]] cmb_bytes = {bytes} has to be a power of two from 4096 to 67108864"
                );
            }
            ensure!(
                !namespaces.is_empty(),
                "[[device]] {name:?} has no [[device.namespace]]: add at least one"
            );
            ensure!(
                namespaces.len() <= 32,
                "[[device]] {name:?} has more than 32 namespaces: use 32 or fewer"
            );
            for namespace in &namespaces {
                ensure!(
                    matches!(namespace.block_bytes, 512 | 4096),
                    "[[device.namespace]] block_bytes = {} is not possible: use 512 or 4096",
                    namespace.block_bytes
                );
            }
            let namespaces = namespaces
                .into_iter()
                .map(|Namespace { path, block_bytes, read_only }| NamespaceOptions {
                    path,
                    block_bytes,
                    read_only,
                })
                .collect();
            devices.push(DeviceOptions {
                name,
                nvme: NvmeOptions { serial, model, queue_pairs, cmb_bytes, namespaces },
            });
        }
        Ok(BoxOptions {
            run: loop_options(&self.node, overrides)?,
            link: link_options(self.link, overrides)?,
            session: session_options(&self.session)?,
            devices,
        })
    }
}

impl HostFile {
    /// Checks the values and makes the host's options of them.
    pub(crate) fn options(self, overrides: &Overrides) -> Result<HostOptions> {
        ensure!(!self.slots.is_empty(), "the host has no [[slot]]: add at least one");
        let mut slots: Vec<SlotOptions> = Vec::new();
        for slot in self.slots {
            let Slot { device, r#box, socket, interrupts } = slot;
            ensure!(
                (1..=32).contains(&device.len()) && !device.contains('\0'),
                "[[slot]] device = {device:?} has to be 1 to 32 bytes long"
            );
            ensure!(
                slots.iter().all(|other| other.socket != socket),
                "[[slot]] socket = {} stands twice: every slot needs its own",
                socket.display()
            );
            let address = r#box.parse().context("[[slot]] box")?;
            ensure!(
                slots.iter().all(|other| other.device != device || other.address != address),
                "[[slot]] device = {device:?} of box {address} stands twice: a device has one slot"
            );
            let interrupts = match interrupts {
                InterruptKind::MsiX => Interrupts::MsiX,
                InterruptKind::Msi => Interrupts::Msi,
            };
            slots.push(SlotOptions { device, address, socket, interrupts });
        }
        Ok(HostOptions {
            run: loop_options(&self.node, overrides)?,
            link: link_options(self.link, overrides)?,
            session: session_options(&self.session)?,
            slots,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOX: &str = r#"
        [node]
        name = "box"
        [link]
        kind = "packet"
        interface = "eth0"
        [[device]]
        kind = "nvme"
        name = "disk0"
        serial = "ES0001"
        [[device.namespace]]
        path = "/disk.img"
    "#;

    fn box_error(text: &str) -> String {
        let result = parse::<BoxFile>(text).and_then(|file| file.options(&Overrides::default()));
        format!("{:#}", result.expect_err("the text has a mistake"))
    }

    #[test]
    fn a_minimal_box_is_taken_with_defaults() {
        let options = parse::<BoxFile>(BOX).unwrap().options(&Overrides::default()).unwrap();
        assert_eq!(options.devices[0].nvme.namespaces[0].block_bytes, 512);
        assert_eq!(options.session.dead_after, Duration::from_secs(1));
    }

    #[test]
    fn an_unknown_key_is_refused_with_its_line() {
        let error = box_error(&BOX.replace("name = \"disk0\"", "nmae = \"disk0\""));
        assert!(error.contains("nmae") && error.contains("line"), "{error}");
    }

    #[test]
    fn bad_values_name_the_key_and_the_remedy() {
        let cases = [
            ("kind = \"packet\"", "kind = \"pakcet\"", "packet"),
            ("interface = \"eth0\"", "listen = \"eth0\"", "listen"),
            ("serial = \"ES0001\"", "serial = \"\"", "serial"),
            ("path = \"/disk.img\"", "path = \"/disk.img\"\nblock_bytes = 520", "512 or 4096"),
            ("name = \"box\"", "name = \"box\"\nbusy_poll = \"50\"", "unit"),
            ("[[device]]", "[session]\nwindow_frames = 3\n[[device]]", "16 to 4096"),
        ];
        for (from, to, expected) in cases {
            let error = box_error(&BOX.replace(from, to));
            assert!(error.contains(expected), "{to}: {error}");
        }
    }

    #[test]
    fn a_host_slot_needs_an_address() {
        let text = r#"
            [node]
            name = "host"
            [link]
            kind = "packet"
            interface = "eth0"
            [[slot]]
            device = "disk0"
            box = "nowhere"
            socket = "/run/disk0.sock"
        "#;
        let result = parse::<HostFile>(text).and_then(|file| file.options(&Overrides::default()));
        let error = format!("{:#}", result.expect_err("no address"));
        assert!(error.contains("MAC"), "{error}");
    }
}
