//! Remote disks as block devices of this machine, by the kernel's ublk driver.

use std::path::PathBuf;
use std::time::Duration;

use etherslot_initiator::{DiskInfo, Op, Request, nvme};
use etherslot_ublk::{Counters, Device, DeviceError, Server, State};

use super::{
    DRAIN, ExportError, FLUSH, driver_with, open_control, serve_control, still_usable, stop_control,
};
use crate::counted::Counted;
use crate::initiator::Client;
use crate::stat::{self, NodeStat};
use crate::streams::ListenAddress;

/// The least that a device can be asked for at once: a page.
const PAGE_BYTES: u32 = 4096;

/// What is exported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UblkOptions {
    /// The node's name: that of its control socket.
    pub node: String,
    /// Where the control socket is to be, if not in its usual folder.
    pub control: Option<PathBuf>,
    /// Where metrics are served, if anywhere.
    pub metrics: Option<ListenAddress>,
    /// Refuse writes.
    pub read_only: bool,
}

/// What the driver of a disk that becomes a block device has to be told.
pub fn driver(patience: Duration) -> nvme::Config {
    driver_with(Server::buffers(), patience)
}

/// A disk and its block device.
struct Volume {
    name: String,
    device: Device,
    server: Server,
}

impl Volume {
    fn new(name: &str, info: &DiskInfo, read_only: bool) -> Result<Self, DeviceError> {
        let (depth, most_bytes) = Server::LIMITS;
        let depth = depth.min(u16::try_from(info.queue_depth).unwrap_or(depth));
        let most_bytes = most_bytes.min(info.max_transfer_bytes / PAGE_BYTES * PAGE_BYTES).max(PAGE_BYTES);
        let device = Device::add(info, read_only, depth, most_bytes)?;
        Ok(Self { name: name.to_owned(), device, server: Server::default() })
    }

    /// True if something was done.
    fn poll(&mut self, disk: &mut dyn etherslot_initiator::Disk) -> Result<bool, DeviceError> {
        let broken = |source| DeviceError::Step { step: "answer requests", source };
        let progress = self.server.poll(&mut self.device, disk).map_err(broken)?;
        let before = self.device.state();
        let changed = self.device.poll()?;
        if before != State::Live && self.device.state() == State::Live {
            let info = disk.info();
            let (bytes, block_bytes) = (info.bytes(), info.block_bytes);
            tracing::info!(export = self.name, device = %self.device.path().display(), bytes, block_bytes, "ready");
        }
        Ok(progress | changed)
    }
}

/// Makes a block device of each disk of `client`, which is connected and was told what [`driver`] says, and serves them until SIGTERM or
/// SIGINT. Then the kernel writes back what it has of them, and they are gone.
pub fn run(mut client: Client, options: UblkOptions) -> Result<(), ExportError> {
    let UblkOptions { node, control, metrics, read_only } = options;
    let mut control = open_control(&mut client, &node, control, metrics)?;
    let teller = control.teller();
    let names: Vec<String> = client.initiators().map(|(name, _)| name.to_owned()).collect();
    let infos: Vec<DiskInfo> = client.disks().map(|disk| disk.info().clone()).collect();
    let mut volumes = Vec::new();
    for (name, info) in names.iter().zip(&infos) {
        let failed = |source| ExportError::Ublk { device: name.clone(), source };
        let volume = Volume::new(name, info, read_only).map_err(failed)?;
        for fd in volume.device.fds() {
            client.watch(fd)?;
        }
        volumes.push(volume);
    }

    let mut until_ns = None;
    while !volumes.iter().all(|volume| volume.device.state() == State::Stopped) {
        let mut progress = client.receive();
        client.tell(&teller);
        progress |= serve(&mut client, &mut volumes)?;
        progress |= client.transmit();
        progress |= serve_control(&mut control, &mut client, |client| show(client, &node, &volumes));
        if client.should_report() {
            show(&client, &node, &volumes).log();
        }
        still_usable(&client)?;
        if client.should_stop() {
            let until_ns = *until_ns.get_or_insert(client.now_ns() + DRAIN.as_nanos() as u64);
            for Volume { name, device, .. } in &mut volumes {
                device.stop().map_err(|source| ExportError::Ublk { device: name.clone(), source })?;
            }
            if client.now_ns() > until_ns {
                tracing::warn!("not all that was under way could be ended");
                break;
            }
        }
        client.rest(progress, [until_ns, control.deadline_ns()].into_iter().flatten().min())?;
    }
    stop_control(&mut control, &mut client, |client| show(client, &node, &volumes));
    flush(&mut client, &mut volumes)?;
    show(&client, &node, &volumes).log();
    tracing::info!("stopped");
    Ok(())
}

fn serve(client: &mut Client, volumes: &mut [Volume]) -> Result<bool, ExportError> {
    let mut progress = false;
    for (disk, volume) in client.disks().zip(volumes) {
        let polled = volume.poll(disk);
        progress |= polled.map_err(|source| ExportError::Ublk { device: volume.name.clone(), source })?;
    }
    Ok(progress)
}

/// Makes durable what was answered.
fn flush(client: &mut Client, volumes: &mut [Volume]) -> Result<(), ExportError> {
    let until_ns = client.now_ns() + DRAIN.as_nanos() as u64;
    for disk in client.disks() {
        // A device that takes nothing now has lost what it had not been told to keep; the kernel asked for that long ago.
        let _ = disk.submit(Request { token: FLUSH, op: Op::Flush, first_block: 0, blocks: 0, buffer: None });
    }
    while client.disks().any(|disk| disk.in_flight() > 0) && client.now_ns() < until_ns {
        let mut progress = client.receive();
        progress |= serve(client, volumes)?;
        progress |= client.transmit();
        client.rest(progress, Some(until_ns))?;
    }
    Ok(())
}

fn show(client: &Client, node: &str, volumes: &[Volume]) -> NodeStat {
    let sum = |pick: fn(&Counters) -> u64| volumes.iter().map(|volume| pick(volume.server.counters())).sum();
    let counted = Counted::from([
        ("reads", sum(|counters| counters.reads)),
        ("writes", sum(|counters| counters.writes)),
        ("others", sum(|counters| counters.others)),
        ("errors", sum(|counters| counters.errors)),
        ("bytes_read", sum(|counters| counters.bytes_read)),
        ("bytes_written", sum(|counters| counters.bytes_written)),
    ]);
    stat::of_export(node, client.now_ns(), counted, &client.station.links, client.initiators())
}
