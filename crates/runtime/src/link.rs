//! Opening a daemon's link as its options say: back end, faults on purpose, capture.

use etherslot_dpdk::{DpdkConfig, DpdkPort};
use etherslot_netio::Port;
use etherslot_netio::impair::{Impaired, Impairment};
use etherslot_netio::packet::{PacketConfig, PacketPort};
use etherslot_netio::ring::{RingConfig, RingPort};
use etherslot_netio::tap::Tap;
use etherslot_netio::udp::{UdpConfig, UdpPort};
use etherslot_netio::xdp::{XdpConfig, XdpPort};

use etherslot_session::{Config as SessionConfig, Mode};

use crate::options::{LinkKind, LinkOptions, SessionOptions};
use crate::{StartError, identity};

/// IPv6 and UDP headers, the larger of what stands before a session frame in a datagram.
const IPV6_UDP_BYTES: usize = 40 + 8;
const IPV4_UDP_BYTES: usize = 20 + 8;
/// A loop that sleeps may be woken or scheduled this late. Paced frames that it owes then leave at once: if their successors
/// waited for them, the link would idle as long each time.
const PACING_BURST_NS: u64 = 1_000_000;

/// Opens the link. The capture sees what passes the link itself, behind the faults.
pub(crate) fn open(options: &LinkOptions) -> Result<Box<dyn Port>, StartError> {
    let mut port: Box<dyn Port> = match &options.kind {
        LinkKind::Packet { interface } => Box::new(PacketPort::open(&PacketConfig::new(interface))?),
        LinkKind::Udp { listen, mtu } => {
            let headers = if listen.is_ipv4() { IPV4_UDP_BYTES } else { IPV6_UDP_BYTES };
            let mut config = UdpConfig::new(*listen);
            config.max_frame_bytes = mtu.map(|mtu| (mtu as usize).saturating_sub(headers));
            Box::new(UdpPort::open(&config)?)
        }
        LinkKind::Xdp { interface, queue, mode } => {
            let config = XdpConfig { queue: *queue, mode: *mode, ..XdpConfig::new(interface) };
            Box::new(XdpPort::open(&config)?)
        }
        LinkKind::Ring { hub, port } => Box::new(RingPort::open(&RingConfig::new(hub, *port))?),
        LinkKind::Dpdk { device, eal, mtu, mac } => Box::new(DpdkPort::open(&DpdkConfig {
            device: device.clone(),
            eal: eal.clone(),
            max_frame_bytes: mtu.map(usize::from),
            mac: *mac,
        })?),
    };
    if let Some(path) = &options.capture {
        port = Box::new(Tap::create(port, path)?);
    }
    if let Some(faults) = &options.impair {
        let impairment: Impairment = faults.parse()?;
        tracing::warn!(%faults, "the link is impaired on purpose");
        port = Box::new(Impaired::new(port, &impairment));
    }
    Ok(port)
}

/// What a session over a link with frames of `max_frame_bytes` is set up with.
pub(crate) fn session_config(options: &SessionOptions, name: &str, max_frame_bytes: usize) -> SessionConfig {
    let defaults = SessionConfig::default();
    SessionConfig {
        node: identity::node_id(name),
        max_frame_bytes: max_frame_bytes.min(u16::MAX as usize) as u16,
        window_frames: options.window(),
        paths: options.paths,
        mode: if options.classic { Mode::Classic } else { Mode::Selective },
        one_record_a_frame: options.one_tlp_a_frame,
        read_ahead: options.read_ahead,
        pacing_burst_ns: PACING_BURST_NS,
        heartbeat_ns: options.heartbeat.as_nanos() as u64,
        dead_after_ns: options.dead_after.as_nanos() as u64,
        ..defaults
    }
}
