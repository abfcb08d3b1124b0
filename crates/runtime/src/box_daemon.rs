//! `etherslot box`: devices over media, served to the hosts of a link.

use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

use etherslot_devices::dc::DcBuffer;
use etherslot_devices::e82576::{Config as NicConfig, E82576};
use etherslot_devices::nvme::{Config as NvmeConfig, Namespace, Nvme};
use etherslot_devices::rnic::{Config as RnicConfig, Frames, Rnic, Sessions, Whereabouts};
use etherslot_devices::sata::{Ahci, Bay, Bays, Config as SataConfig, Drive, Sil3132};
use etherslot_fabric::{DeviceConfig, Failover, Leases, Owner, Place as _};
use etherslot_netio::{Address, Port};
use etherslot_node::{BoxLimits, BoxNode};
use etherslot_pci::endpoint::{Endpoint, EndpointConfig};
use etherslot_pci::function::Function;
use etherslot_session::Config as SessionConfig;
use etherslot_storage::Medium;
use etherslot_storage::file::{FileMedium, OpenError, Options as MediumOptions};
use etherslot_storage::paced::{Paced, Rate};
use etherslot_storage::ram::RamMedium;
use etherslot_wire::control::Name;
use etherslot_wire::discovery::{
    Assigned, Device as Told, DeviceState, Port as ToldPort, Role, Serial, is_discovery,
};

use crate::bay::FileBay;
use crate::carrier::Carriers;
use crate::control::Control;
use crate::events;
use crate::fabric::{self, Fabric};
use crate::network::Network;
use crate::notices::{Knocks, Notices};
use crate::options::{
    Backing, BoxOptions, DeviceKind, DeviceOptions, LinkOptions, NicOptions, NvmeOptions, RnicOptions,
    SataController, SataOptions, SessionOptions, StoreOptions, Via,
};
use crate::stat;
use crate::station::Station;
use crate::{StartError, format_file, identity, link};

/// A device, and what wakes the daemon for it.
struct Made {
    name: Name,
    endpoint: Box<Endpoint>,
    wakers: Vec<OwnedFd>,
    network: Option<Network>,
    /// What the fabric is told of it.
    told: Told,
}

/// A Function, and the bytes that it keeps.
type Model = (Box<dyn Function>, u64);

fn make(options: &DeviceOptions, session: &SessionOptions) -> Result<Made, StartError> {
    let failed = |reason: String| StartError::Device { device: options.name.clone(), reason };
    let (mut wakers, mut network) = (Vec::new(), None);
    let (function, bytes): Model = match &options.kind {
        DeviceKind::Nvme(nvme) => make_nvme(options, nvme, &mut wakers)?,
        DeviceKind::Sata(sata) => make_sata(options, sata, &mut wakers)?,
        DeviceKind::Rnic(rnic) => (make_rnic(options, rnic, session, &mut wakers)?, 0),
        DeviceKind::Dc { bytes } => {
            let buffer = DcBuffer::new(*bytes, number_of(&options.serial));
            (Box::new(buffer.map_err(|error| failed(error.to_string()))?), *bytes)
        }
        DeviceKind::E82576(nic) => make_e82576(options, nic, &mut network)?,
    };
    let spec = function.spec();
    let name =
        Name::new(&options.name).ok_or_else(|| failed("the name has to be 1 to 32 bytes long".to_owned()))?;
    let told = Told {
        name,
        serial: Serial::new(&options.serial)
            .ok_or_else(|| failed("the serial number is too long".to_owned()))?,
        id: (spec.vendor, spec.device),
        class: spec.class,
        state: DeviceState::Free,
        bytes,
        epoch: 0,
        owner: None,
        assigned: Assigned::Group,
        has_owners: options.owners.is_some(),
        group: options.group,
    };
    let endpoint = Box::new(Endpoint::new(function, EndpointConfig::default()));
    Ok(Made { name, endpoint, wakers, network, told })
}

/// A Device Serial Number from one that is a text.
fn number_of(serial: &str) -> u64 {
    let fold = |sum: u64, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
    serial.bytes().fold(0xCBF2_9CE4_8422_2325, fold)
}

fn make_nvme(
    options: &DeviceOptions,
    nvme: &NvmeOptions,
    wakers: &mut Vec<OwnedFd>,
) -> Result<Model, StartError> {
    let mut namespaces = Vec::new();
    let rate = nvme.rate.map(Rate::new);
    for namespace in &nvme.namespaces {
        let (medium, block_bytes) = open_store(&options.name, namespace, wakers)?;
        let medium = match &rate {
            Some(rate) => Box::new(Paced::new(medium, rate.clone())),
            None => medium,
        };
        let mut made = Namespace::new(medium, block_bytes);
        // A block size that the guest chooses is forgotten with the content.
        if let Backing::File(path) = namespace.backing.clone() {
            made.formatted = Some(Box::new(move |block_bytes| format_file::keep(&path, block_bytes)));
        }
        namespaces.push(made);
    }
    let config = NvmeConfig {
        serial: options.serial.clone(),
        model: nvme.model.clone(),
        namespaces,
        max_queue_pairs: nvme.queue_pairs,
        cmb_bytes: nvme.cmb_bytes.map(|bytes| bytes as usize),
        ..NvmeConfig::default().with_max_transfer(nvme.max_transfer_bytes as usize)
    };
    let bytes = config.namespaces.iter().map(|namespace| namespace.medium.info().bytes).sum();
    let nvme = Nvme::new(config)
        .map_err(|error| StartError::Device { device: options.name.clone(), reason: error.to_string() })?;
    Ok((Box::new(nvme), bytes))
}

fn make_rnic(
    options: &DeviceOptions,
    rnic: &RnicOptions,
    session: &SessionOptions,
    wakers: &mut Vec<OwnedFd>,
) -> Result<Box<dyn Function>, StartError> {
    let link = LinkOptions { kind: rnic.link.clone(), capture: None, impair: None };
    let port = link::open(&link)?;
    if let Some(fd) = port.fd() {
        wakers.push(fd.try_clone_to_owned()?);
    }
    tracing::info!(device = options.name, address = %port.address(), peers = rnic.peers.len(), "RNIC has its link");
    let session = link::session_config(session, &options.name, port.max_frame_bytes());
    let session = SessionConfig { paths: 1, ..session };
    let sessions = Sessions::new(RnicPort(port), &session, &rnic.peers, identity::seed());
    let config = RnicConfig { serial: number_of(&options.serial), ..RnicConfig::default() };
    let rnic = Rnic::new(config, Box::new(sessions))
        .map_err(|error| StartError::Device { device: options.name.clone(), reason: error.to_string() })?;
    Ok(Box::new(rnic))
}

/// The Port of an RNIC.
struct RnicPort(Box<dyn Port>);

impl Frames<Address> for RnicPort {
    fn tick(&mut self, now_ns: u64) {
        self.0.tick(now_ns);
    }

    fn receive(&mut self, take: &mut dyn FnMut(&Address, &[u8])) -> usize {
        self.0.receive(take)
    }

    fn send(&mut self, to: &Address, frames: &[&[u8]]) -> usize {
        self.0.send(to, frames)
    }

    fn whereabouts(&self, address: Option<&Address>) -> Whereabouts {
        match address.copied().unwrap_or_else(|| self.0.address()) {
            Address::Udp(SocketAddr::V4(at)) => {
                Whereabouts::Udp { ip: at.ip().to_ipv6_mapped(), port: at.port() }
            }
            Address::Udp(SocketAddr::V6(at)) => Whereabouts::Udp { ip: *at.ip(), port: at.port() },
            Address::Mac(address) => Whereabouts::Ethernet(address),
            Address::Memory(_) | Address::Ring(_) => Whereabouts::Untold,
        }
    }
}

fn make_sata(
    options: &DeviceOptions,
    sata: &SataOptions,
    wakers: &mut Vec<OwnedFd>,
) -> Result<Model, StartError> {
    let mut ports = Vec::new();
    let mut bays = Bays::default();
    let mut bytes = 0;
    for (port, disk) in sata.disks.iter().enumerate() {
        let serial = if port == 0 { options.serial.clone() } else { format!("{}-{port}", options.serial) };
        if let (true, Backing::File(path)) = (disk.removable, &disk.backing) {
            let bay = FileBay::new(&options.name, serial, path.clone(), disk)?;
            wakers.push(bay.waker()?);
            bytes += std::fs::metadata(path).map_or(0, |found| found.len());
            bays.0.push((port, Box::new(bay) as Box<dyn Bay>));
            ports.push(None);
            continue;
        }
        let (medium, block_bytes) = open_store(&options.name, disk, wakers)?;
        bytes += medium.info().bytes;
        ports.push(Some(Drive { serial, medium, block_bytes }));
    }
    ports.resize_with(usize::from(sata.ports), || None);
    let config = SataConfig {
        serial: options.serial.clone(),
        model: sata.model.clone(),
        ports,
        bays,
        ..SataConfig::default()
    };
    let function: Result<Box<dyn Function>, _> = match sata.controller {
        SataController::Ahci => Ahci::new(config).map(|ahci| Box::new(ahci) as _),
        SataController::Sil3132 => Sil3132::new(config).map(|sil3132| Box::new(sil3132) as _),
    };
    let function = function
        .map_err(|error| StartError::Device { device: options.name.clone(), reason: error.to_string() })?;
    Ok((function, bytes))
}

/// Opens what keeps the blocks of a namespace or disk; with the block size it is to have.
fn open_store(
    device: &str,
    options: &StoreOptions,
    wakers: &mut Vec<OwnedFd>,
) -> Result<(Box<dyn Medium>, u32), StartError> {
    match &options.backing {
        Backing::File(path) => on_file(device, path, options, wakers),
        Backing::Memory(bytes) => in_memory(device, *bytes, options),
    }
}

fn make_e82576(
    options: &DeviceOptions,
    nic: &NicOptions,
    network: &mut Option<Network>,
) -> Result<Model, StartError> {
    let (cable, opened) = Network::open(&options.name, &nic.network)?;
    *network = Some(opened);
    let mac = nic.mac.unwrap_or_else(|| identity::mac(&options.serial));
    let controller = E82576::new(NicConfig { mac, cable })
        .map_err(|error| StartError::Device { device: options.name.clone(), reason: error.to_string() })?;
    Ok((Box::new(controller), 0))
}

fn on_file(
    device: &str,
    path: &Path,
    options: &StoreOptions,
    wakers: &mut Vec<OwnedFd>,
) -> Result<(Box<dyn Medium>, u32), StartError> {
    let block_bytes = format_file::kept(path).unwrap_or(options.block_bytes);
    let medium = open_medium(path, options.read_only, block_bytes)
        .map_err(|source| StartError::Medium { device: device.to_owned(), source })?;
    tracing::info!(
        device,
        path = %path.display(),
        bytes = medium.info().bytes,
        block_bytes,
        direct = medium.is_direct(),
        "medium opened"
    );
    if let Some(fd) = medium.fd() {
        wakers.push(fd.try_clone_to_owned()?);
    }
    Ok((Box::new(medium), block_bytes))
}

fn in_memory(device: &str, bytes: u64, options: &StoreOptions) -> Result<(Box<dyn Medium>, u32), StartError> {
    let StoreOptions { block_bytes, read_only, .. } = *options;
    let medium = RamMedium::new(bytes, read_only)
        .map_err(|source| StartError::Memory { device: device.to_owned(), source })?;
    tracing::info!(device, bytes, block_bytes, "medium made in memory");
    Ok((Box::new(medium), block_bytes))
}

/// In the smallest blocks there are, so that the guest can choose; in larger ones if only those go past the page cache.
pub(crate) fn open_medium(path: &Path, read_only: bool, block_bytes: u32) -> Result<FileMedium, OpenError> {
    let options = MediumOptions { read_only, ..MediumOptions::default() };
    let medium = FileMedium::open(path, &options)?;
    if medium.is_direct() || block_bytes == options.block_bytes {
        return Ok(medium);
    }
    drop(medium);
    FileMedium::open(path, &MediumOptions { block_bytes, ..options })
}

/// Runs a box until SIGTERM or SIGINT.
pub fn run(options: &BoxOptions) -> Result<(), StartError> {
    let mut station = Station::open(&options.run, &options.links, &options.security)?;
    let mut functions = Vec::new();
    let (mut wakers, mut networks) = (Vec::new(), Vec::new());
    let mut told = Vec::new();
    for device in &options.devices {
        let made = make(device, &options.session)?;
        told.push(made.told);
        functions.push((made.name, made.endpoint));
        wakers.extend(made.wakers);
        networks.extend(made.network);
    }
    for waker in &wakers {
        station.sleeper.watch(waker.as_fd())?;
    }
    for network in &networks {
        match network.fd() {
            Some(fd) => station.sleeper.watch(fd)?,
            None => station.sleeper.nap(),
        }
    }
    let config = station.session_config(&options.session, &options.run.name);
    let places = places(station.links.addresses().collect());
    let mut node =
        BoxNode::new(&config, BoxLimits::default(), identity::seed(), functions).with_boxes(places);
    if let Some(keys) = &station.keys {
        node.protect(keys.security()?);
    }
    for device in &options.devices {
        if let (Some(name), Some(owners)) = (Name::new(&device.name), &device.owners) {
            node.set_owners(name, owners.clone());
        }
    }
    let mut fabric = match &options.fabric {
        None => None,
        Some(fabric) => {
            let devices = told.iter().map(|told| DeviceConfig { name: told.name, group: told.group });
            let mut leases = Leases::new(fabric::lease_config(fabric), devices);
            for (told, device) in told.iter().zip(&options.devices) {
                if let Some(owners) = &device.owners {
                    leases.restrict(&told.name, owners.iter().map(|key| Owner(key.keyed_id())).collect());
                }
            }
            let name = &options.run.name;
            let mut fabric = Fabric::open(fabric, name, Role::Box, &options.links, &station, told.clone())?;
            fabric.restore(station.clock.now_ns(), &mut leases)?;
            let policies = options.devices.iter().map(|device| device.failover.clone());
            fabric.set_failover(Failover::new(policies));
            node = node.with_leases(leases);
            Some(fabric)
        }
    };
    let mut control = Control::open(&options.run, &station.sleeper)?
        .with_metrics(options.run.metrics.as_ref(), &station.sleeper)?
        .with_carriers(Carriers::of(&options.links));
    let teller = control.teller();
    if let Some(fabric) = &mut fabric {
        fabric.tell_to(teller.clone());
    }
    let name = &options.run.name;
    let (mut notices, mut knocks) = (Notices::default(), Knocks::default());
    let devices = options.devices.len();
    tracing::info!(name, address = station.links.address(), devices, "ready");

    while !station.signals.stop() {
        let (now_ns, mut progress) = station.receive(&mut |now_ns, from, frame| match &mut fabric {
            Some(fabric) if is_discovery(frame) => {
                fabric.receive(now_ns, from, frame, Some(node.leases_mut()));
            }
            _ => node.receive(now_ns, from, frame),
        });
        for network in &mut networks {
            progress |= network.poll(now_ns);
        }
        progress |= node.poll(now_ns);
        while let Some(event) = node.session_event() {
            teller.tell(|| event.into());
        }
        if fabric.is_none() {
            events::tell_leases(&teller, name, node.leases_mut());
        }
        if let Some(fabric) = &mut fabric {
            // Before a host hears of a lease: it is kept.
            progress |= fabric.poll_box(now_ns, node.leases_mut());
            progress |= fabric.transmit(&mut station.links);
        }
        notices.look(now_ns, || {
            let fabric = fabric.as_mut().map(|fabric| fabric.wrong(now_ns, std::iter::empty()));
            fabric.unwrap_or_default().into_iter().chain(knocks.look(node.guard_counters())).collect()
        });
        progress |= transmit(&mut node, &mut station);
        let Station { links, signals, sleeper, .. } = &mut station;
        progress |= control.poll(now_ns, sleeper, &mut |request| {
            let stat = notices.shown_in(stat::of_box(name, now_ns, &node, links));
            Fabric::answer(fabric.as_mut(), now_ns, &request, Some(node.leases_mut()), || stat)
        });
        if signals.report() {
            stat::of_box(name, now_ns, &node, links).log();
        }
        let progress = progress || networks.iter_mut().any(|network| !network.before_sleep());
        station.end_round(progress, || {
            let networks_ns = networks.iter().filter_map(Network::deadline_ns).min();
            let fabric_ns = fabric.as_ref().map(|fabric| fabric.deadline_ns(now_ns));
            [node.deadline_ns(), control.deadline_ns(), fabric_ns, networks_ns].into_iter().flatten().min()
        })?;
    }
    if let Some(fabric) = &mut fabric {
        fabric.leave(station.clock.now_ns(), &mut station.links);
    }
    control.stop(station.clock.now_ns(), &mut |request| {
        let now_ns = station.clock.now_ns();
        let stat = stat::of_box(name, now_ns, &node, &station.links);
        Fabric::answer(fabric.as_mut(), now_ns, &request, Some(node.leases_mut()), || stat)
    });
    // A session that is closed counts no more.
    stat::of_box(name, station.clock.now_ns(), &node, &station.links).log();
    node.close();
    while !node.is_closed() {
        let (now_ns, came) = station.receive(&mut |now_ns, from, frame| node.receive(now_ns, from, frame));
        let progress = came | node.poll(now_ns) | transmit(&mut node, &mut station);
        station.end_round(progress, || node.deadline_ns())?;
    }
    tracing::info!("stopped");
    Ok(())
}

/// Where a port that a host tells of may be seen from here, whose links have these addresses: on each link of its kind.
fn places(links: Vec<Address>) -> impl Fn(&ToldPort) -> Vec<Via> {
    move |port| {
        let at = |link| {
            Via::at(link, *port)
                .filter(|via| std::mem::discriminant(&via.address) == std::mem::discriminant(&links[link]))
        };
        (0..links.len()).filter_map(at).collect()
    }
}

fn transmit(node: &mut BoxNode<Via>, Station { clock, links, .. }: &mut Station) -> bool {
    node.transmit(clock.now_ns(), &mut |to, frames| links.send(to, frames))
}
