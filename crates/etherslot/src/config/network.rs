//! `[[device]] network`: what a network controller is plugged into.

use anyhow::{Context as _, Result, bail, ensure};
use etherslot_runtime::options::{Address, LinkKind, NetworkOptions};
use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Network {
    /// A TAP interface, or
    tap: Option<String>,
    /// a link in one word, and
    link: Option<String>,
    /// the address of its other end.
    peer: Option<String>,
}

pub(super) fn options(device: &str, network: Option<Network>) -> Result<NetworkOptions> {
    let Some(Network { tap, link, peer }) = network else {
        bail!("[[device]] {device:?} has no network: add network = {{ tap = \"tap0\" }}")
    };
    match (tap, link, peer) {
        (Some(tap), None, None) => {
            ensure!(
                (1..16).contains(&tap.len()) && !tap.contains(['/', '\0', ' ']),
                "[[device]] network tap = {tap:?} is no name of an interface: 1 to 15 characters"
            );
            Ok(NetworkOptions::Tap(tap))
        }
        (None, Some(link), Some(peer)) => {
            let kind: LinkKind = link.parse().context("[[device]] network link")?;
            let peer: Address = peer.parse().context("[[device]] network peer")?;
            ensure!(
                kind.reaches(&peer),
                "[[device]] network peer = \"{peer}\" is not {}, as the link needs",
                kind.peer_form()
            );
            Ok(NetworkOptions::Link { kind, peer })
        }
        _ => bail!("[[device]] network of {device:?} needs tap = \"…\", or link = \"…\" and peer = \"…\""),
    }
}
