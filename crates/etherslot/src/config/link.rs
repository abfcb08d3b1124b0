//! `[link]` and `[[link]]`: the keys of all kinds of links, and which belong together.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use etherslot_runtime::link_spec::DPDK_MTU;
use etherslot_runtime::options::{LinkKind, LinkOptions, MAX_PATHS, XdpMode};
use serde::Deserialize;
use toml::Spanned;

use super::Overrides;
use super::problems::Problems;
use crate::value::{self, OneOrMore};

/// Keys of all kinds of links; which belong together is seen to afterwards.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Link {
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

/// All links. What a flag says about the link, it says about each of them.
pub(super) fn options(
    links: &Spanned<OneOrMore<Spanned<Link>, Link>>,
    overrides: &Overrides,
    problems: &mut Problems,
) -> Option<Vec<LinkOptions>> {
    let more = match links.get_ref() {
        OneOrMore::One(link) => {
            return problems.note(links.span(), link_options(link, overrides)).map(|link| vec![link]);
        }
        OneOrMore::More(more) => more,
    };
    if more.is_empty() {
        return problems.note(links.span(), Err(anyhow!("there is no link: add [link]")));
    }
    let mut all: Vec<LinkOptions> = Vec::new();
    for (number, link) in more.iter().enumerate() {
        let options = link_options(link.get_ref(), overrides).and_then(|options| {
            ensure!(number < MAX_PATHS, "there are more than {MAX_PATHS} [[link]]: remove some");
            Ok(options)
        });
        let Some(mut options) = problems.note(link.span(), options) else { continue };
        let is_taken = |options: &LinkOptions| all.iter().any(|other| other.capture == options.capture);
        if options.capture.is_some() && is_taken(&options) {
            // One file takes one link.
            let mut path = options.capture.take().unwrap_or_default().into_os_string();
            path.push(format!(".{}", all.len()));
            options.capture = Some(path.into());
        }
        all.push(options);
    }
    (all.len() == more.len()).then_some(all)
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
