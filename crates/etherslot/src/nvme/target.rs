//! Which device a command is for, and how it is reached: the words of the command line.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use etherslot_runtime::direct::{DirectClient, DirectOptions};
use etherslot_runtime::initiator::driver::{Pieces, nvme};
use etherslot_runtime::initiator::{Client, ClientDevice, ClientOptions};
use etherslot_runtime::options::{
    Address, HostOptions, Impairment, LinkKind, LinkOptions, LoopOptions, MAX_PATHS, MAX_PAYLOAD_BYTES,
    PublicKey, Routes, SessionOptions, Wanted,
};

use crate::config;
use crate::security::{self, Security, SecurityFlags};
use crate::value;

/// The links to the box, and how to wait for it.
#[derive(Args, Clone)]
pub(crate) struct Reach {
    /// A link in one word: `packet:INTERFACE` or `udp:ADDRESS:PORT`. Given several times: several links, for a path each. Not
    /// needed to reach UDP addresses.
    #[arg(long, value_name = "LINK", conflicts_with = "config")]
    link: Vec<LinkKind>,
    /// Take links and session, and the addresses of devices, from this configuration of a host.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Wait for so long for the device to be there.
    #[arg(long, default_value = "5s", value_name = "DURATION", value_parser = humantime::parse_duration)]
    wait: Duration,
    /// Poll for this long before sleeping, as in 50us; 0s sleeps at once. The default is 50us, never to sleep for `bench`, and as
    /// long as it pays for `export`.
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    busy_poll: Option<Duration>,
    /// Send every TLP in a frame of its own, as the published kernel version does: to compare with.
    #[arg(long, conflicts_with = "config")]
    one_tlp_a_frame: bool,
    /// The largest payload of a TLP, bytes: a power of two from 128 to 4096.
    #[arg(long, conflicts_with = "config", default_value_t = MAX_PAYLOAD_BYTES, value_parser = payload)]
    max_payload: u16,
    #[command(flatten)]
    security: SecurityFlags,
    /// The box has to have this public key.
    #[arg(long, value_name = "KEY", conflicts_with = "config")]
    box_key: Option<PublicKey>,
    /// Write all frames of the link to this pcapng file.
    #[arg(long, value_name = "FILE")]
    capture: Option<PathBuf>,
    /// Make faults on purpose, as in `loss=1%,reorder=1%,duplicate=1%,seed=7`.
    #[arg(long, value_name = "FAULTS", value_parser = faults)]
    impair: Option<String>,
}

/// One device and one of its namespaces.
#[derive(Args, Clone)]
pub(crate) struct Target {
    /// `NAME@ADDRESS`: the device's name in its box, and the box's MAC address or ADDRESS:PORT, one for each link with commas
    /// between. With --config: the NAME of a slot's device.
    #[arg(value_name = "DEVICE")]
    device: String,
    /// The namespace.
    #[arg(long, default_value_t = 1, value_name = "NSID", value_parser = clap::value_parser!(u32).range(1..))]
    nsid: u32,
    #[command(flatten)]
    reach: Reach,
}

/// A name that no other running node of this machine has: a box takes the later of two for the earlier one's next life.
pub(crate) fn node_name(purpose: &str) -> String {
    format!("{purpose}-{}", std::process::id())
}

fn payload(text: &str) -> Result<u16, String> {
    value::payload(text.parse().map_err(|_| format!("{text:?} is no number of bytes"))?)
}

fn faults(text: &str) -> Result<String, String> {
    text.parse::<Impairment>().map(|_| text.to_owned()).map_err(|error| error.to_string())
}

impl Target {
    pub(crate) fn new(reach: &Reach, device: &str, nsid: u32) -> Self {
        Self { device: device.to_owned(), nsid, reach: reach.clone() }
    }

    /// The device, ready. `busy_poll` is how long to poll if the command line does not say; `None`: as long as it pays.
    pub(crate) fn connect(
        &self,
        driver: nvme::Config,
        busy_poll: impl Into<Option<Duration>>,
    ) -> Result<Client> {
        let driver = nvme::Config { nsid: self.nsid, ..driver };
        self.reach.connect(&self.device, driver, busy_poll)
    }

    pub(crate) fn nsid(&self) -> u32 {
        self.nsid
    }

    pub(crate) fn device(&self) -> &str {
        &self.device
    }

    pub(crate) fn reach(&self) -> &Reach {
        &self.reach
    }
}

impl Reach {
    /// What the flags change in a configuration that is asked for devices.
    fn overrides(&self) -> config::Overrides {
        config::Overrides { security: self.security.clone(), ..config::Overrides::default() }
    }

    /// The devices of the configuration.
    pub(crate) fn configured(&self) -> Result<Vec<String>> {
        let Some(path) = &self.config else { return Ok(Vec::new()) };
        let host = config::read::<config::HostFile>(path, &self.overrides())?;
        Ok(host.slots.into_iter().map(|slot| slot.device).collect())
    }

    /// The device of this name, ready.
    pub(crate) fn connect(
        &self,
        device: &str,
        driver: nvme::Config,
        busy_poll: impl Into<Option<Duration>>,
    ) -> Result<Client> {
        self.connect_all(&[device.to_owned()], "nvme", driver, busy_poll.into())
    }

    /// The configuration, if it is that of a member of a fabric.
    pub(crate) fn member(&self) -> Result<Option<HostOptions>> {
        let Some(path) = &self.config else { return Ok(None) };
        let host = config::read::<config::HostFile>(path, &self.overrides())?;
        Ok(Some(host).filter(|host| host.fabric.is_some()))
    }

    /// A device, ready, for the member of a fabric that the configuration is of.
    pub(crate) fn join(&self, member: HostOptions, device: &str, driver: nvme::Config) -> Result<Client> {
        let run = LoopOptions { busy_poll: self.busy_poll.or(member.run.busy_poll), ..member.run };
        let options = self.options(&[device.to_owned()], run, driver)?;
        let mut client = Client::open(&ClientOptions { fabric: member.fabric, ..options })?;
        client.connect(self.wait)?;
        Ok(client)
    }

    /// The devices of these names, ready; the node is called after `purpose`.
    pub(crate) fn connect_all(
        &self,
        devices: &[String],
        purpose: &str,
        driver: nvme::Config,
        busy_poll: Option<Duration>,
    ) -> Result<Client> {
        let run = LoopOptions {
            name: node_name(purpose),
            busy_poll: self.busy_poll.or(busy_poll),
            control: None,
            control_group: None,
            metrics: None,
        };
        let options = self.options(devices, run, driver)?;
        security::warn(&options.security);
        let mut client = Client::open(&options)?;
        client.connect(self.wait)?;
        Ok(client)
    }

    /// The devices of these names on one host node, with a buffer between them if one is named, ready.
    pub(crate) fn connect_direct(
        &self,
        devices: &[String],
        buffer: Option<&str>,
        pieces: Pieces,
        driver: nvme::Config,
        busy_poll: Duration,
    ) -> Result<DirectClient> {
        let names: Vec<String> = devices.iter().cloned().chain(buffer.map(str::to_owned)).collect();
        let run = LoopOptions {
            name: node_name("copy"),
            busy_poll: self.busy_poll.or(Some(busy_poll)),
            control: None,
            control_group: None,
            metrics: None,
        };
        let mut client = self.options(&names, run, driver)?;
        security::warn(&client.security);
        let buffer = buffer.and_then(|_| client.devices.pop());
        let mut client =
            DirectClient::open(&DirectOptions { client, namespaces: Vec::new(), buffer, pieces })?;
        client.connect(self.wait)?;
        Ok(client)
    }

    fn options(&self, devices: &[String], run: LoopOptions, driver: nvme::Config) -> Result<ClientOptions> {
        if let Some(path) = &self.config {
            let overrides = config::Overrides {
                capture: self.capture.clone(),
                impair: self.impair.clone(),
                security: self.security.clone(),
                ..config::Overrides::default()
            };
            let host = config::read::<config::HostFile>(path, &overrides)?;
            let slot_of = |device: &String| {
                let slot = host.slots.iter().find(|slot| slot.device == *device);
                let slot = slot.with_context(|| {
                    format!("there is no slot with device = {device:?} in {}", path.display())
                })?;
                let (name, wanted, routes) = (slot.device.clone(), slot.wanted.clone(), slot.routes.clone());
                Ok(ClientDevice { name, wanted, routes, box_key: slot.box_key })
            };
            let devices = devices.iter().map(slot_of).collect::<Result<Vec<_>>>()?;
            // Only to find a device, if its box is not named.
            let is_found = devices.iter().any(|device| device.routes.is_none());
            return Ok(ClientOptions {
                run,
                links: host.links,
                session: host.session,
                security: host.security,
                devices,
                driver,
                fabric: host.fabric.filter(|_| is_found),
                patience: self.wait,
            });
        }
        let mut kinds: Option<Vec<LinkKind>> = None;
        let mut found = Vec::new();
        for device in devices {
            let (name, addresses) = device.rsplit_once('@').with_context(|| {
                format!("{device:?} is no device: write NAME@ADDRESS, or NAME and --config FILE")
            })?;
            let addresses = addresses.split(',').map(str::parse).collect::<Result<Vec<Address>, _>>();
            let addresses = addresses.with_context(|| format!("in {device:?}"))?;
            let kinds = match &mut kinds {
                Some(kinds) => kinds,
                none => none.insert(self.kinds(&addresses)?),
            };
            ensure!(kinds.len() <= MAX_PATHS, "more than {MAX_PATHS} links: use {MAX_PATHS} or fewer");
            ensure!(
                kinds.len() == addresses.len(),
                "{} links and {} addresses of the box: write one for each link, in the order of the links",
                kinds.len(),
                addresses.len()
            );
            for (kind, address) in kinds.iter().zip(&addresses) {
                ensure!(
                    kind.reaches(address),
                    "{address} is not {}, as the link {kind} needs",
                    kind.peer_form()
                );
            }
            let routes = Routes::new(addresses[0], addresses[1..].iter().copied());
            let wanted = Wanted::Name(name.to_owned());
            found.push(ClientDevice {
                name: name.to_owned(),
                wanted,
                routes: Some(routes),
                box_key: self.box_key,
            });
        }
        let kinds = kinds.unwrap_or_default();
        ensure!(
            kinds.len() == 1 || self.capture.is_none(),
            "--capture takes one link: there are {}",
            kinds.len()
        );
        let session = SessionOptions {
            classic: false,
            one_tlp_a_frame: self.one_tlp_a_frame,
            read_ahead: true,
            max_payload: self.max_payload,
            window_frames: None,
            paths: kinds.len() as u8,
            dead_after: config::DEFAULT_DEAD_AFTER,
            heartbeat: config::DEFAULT_DEAD_AFTER / config::HEARTBEATS,
        };
        let links: Vec<LinkOptions> = kinds
            .into_iter()
            .map(|kind| LinkOptions { kind, capture: self.capture.clone(), impair: self.impair.clone() })
            .collect();
        let security = security::resolve(&Security::default(), &self.security, &links)?;
        let (fabric, patience) = (None, self.wait);
        Ok(ClientOptions { run, links, session, security, devices: found, driver, fabric, patience })
    }

    /// The links; to UDP addresses any free port of ours will do.
    fn kinds(&self, addresses: &[Address]) -> Result<Vec<LinkKind>> {
        if !self.link.is_empty() {
            return Ok(self.link.clone());
        }
        let unsaid = |address: &Address| {
            let listen = match address {
                Address::Udp(SocketAddr::V4(_)) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
                Address::Udp(SocketAddr::V6(_)) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
                _ => bail!("which link leads to {address}? Add --link, as in --link packet:eth0"),
            };
            Ok(LinkKind::Udp { listen, mtu: None })
        };
        addresses.iter().map(unsaid).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        target: Target,
    }

    fn options(words: &[&str]) -> Result<ClientOptions, String> {
        let cli = Cli::try_parse_from([&["nvme", "--plaintext"], words].concat())
            .map_err(|error| error.to_string())?;
        let Target { device, reach, .. } = cli.target;
        let run = LoopOptions {
            name: "test".to_owned(),
            busy_poll: None,
            control: None,
            control_group: None,
            metrics: None,
        };
        let devices: Vec<String> = device.split(' ').map(str::to_owned).collect();
        reach.options(&devices, run, nvme::Config::default()).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn a_device_is_a_name_and_an_address_on_each_link() {
        let one = options(&["disk@10.0.0.1:4700"]).unwrap();
        assert_eq!((one.devices[0].name.as_str(), one.links.len()), ("disk", 1));
        assert!(matches!(one.links[0].kind, LinkKind::Udp { .. }));
        let two = options(&[
            "a@b@02:00:00:00:00:01,02:00:00:00:00:02",
            "--link",
            "packet:eth0",
            "--link",
            "packet:eth1",
        ])
        .unwrap();
        let device = &two.devices[0];
        assert_eq!(
            (device.name.as_str(), device.routes.as_ref().unwrap().further.len(), two.session.paths),
            ("a@b", 1, 2)
        );
    }

    #[test]
    fn several_devices_share_the_links() {
        let both = options(&["a@10.0.0.1:4700 b@10.0.0.2:4700"]).unwrap();
        let names: Vec<&str> = both.devices.iter().map(|device| device.name.as_str()).collect();
        assert_eq!((names, both.links.len()), (vec!["a", "b"], 1));
        let error = options(&["a@10.0.0.1:1 b@[::1]:1"]).unwrap_err();
        assert!(error.contains("IPv4"), "{error}");
    }

    #[test]
    fn what_is_missing_is_told_with_its_remedy() {
        for (words, remedy) in [
            (&["disk"][..], "NAME@ADDRESS"),
            (&["disk@nowhere"], "MAC"),
            (&["disk@02:00:00:00:00:01"], "--link"),
            (&["disk@02:00:00:00:00:01", "--link", "udp:0.0.0.0:0"], "IPv4"),
            (&["disk@10.0.0.1:1,10.0.0.2:1", "--link", "udp:0.0.0.0:0"], "each link"),
            (&["disk@10.0.0.1:1", "--nsid", "0"], "nsid"),
            (&["disk", "--config", "/nonexistent/host.toml"], "host.toml"),
        ] {
            let error = options(words).unwrap_err();
            assert!(error.contains(remedy), "{words:?}: {error}");
        }
    }
}
