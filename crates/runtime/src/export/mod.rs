//! `etherslot export`: remote disks for programs of this machine and others, by the Network Block Device protocol, or as block devices
//! of this machine ([`ublk`]).

mod doors;
pub mod ublk;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use etherslot_initiator::{BufferClass, DiskInfo, Op, Request as DiskRequest, nvme};
use etherslot_nbd::{Config, Counters, Export, Server};

use crate::control::{BindError, Control};
use crate::counted::{Counted, counted};
use crate::fabric::Fabric;
use crate::initiator::{Client, ClientError};
use crate::options::LoopOptions;
use crate::stat::{self, NodeStat};
use crate::streams::Stream;
pub use crate::streams::{AddressError, ListenAddress, ListenError};
use doors::Doors;

/// From the request to stop on, what is under way has so much time.
const DRAIN: Duration = Duration::from_secs(10);
/// No token of the server's.
const FLUSH: u64 = u64::MAX;

/// What is exported, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportOptions {
    /// The node's name: that of its control socket.
    pub node: String,
    /// Where the control socket is to be, if not in its usual folder.
    pub control: Option<PathBuf>,
    /// Where metrics are served, if anywhere.
    pub metrics: Option<ListenAddress>,
    /// What clients call each disk of the client, in their order; those that call it nothing get the first.
    pub names: Vec<String>,
    /// Refuse writes.
    pub read_only: bool,
    /// Where clients come.
    pub addresses: Vec<ListenAddress>,
}

/// Why there is no export, or not any more.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The device.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// An address can't be listened at.
    #[error("--nbd {0}")]
    Listen(#[from] ListenError),
    /// A device can't be used any more.
    #[error("device {device:?} can't be used any more: {failure}")]
    Failed {
        /// Its name.
        device: String,
        /// Why.
        failure: nvme::Failure,
    },
    /// Metrics can't be served where they were asked for.
    #[error("--metrics {0}")]
    Metrics(#[source] ListenError),
    /// The control socket could not be made where it was asked for.
    #[error("--control {0}")]
    Control(#[source] BindError),
    /// The kernel does not make, or stop, a block device.
    #[error("--ublk, device {device:?}: {source}")]
    Ublk {
        /// Its name.
        device: String,
        /// Why.
        source: etherslot_ublk::DeviceError,
    },
}

impl From<io::Error> for ExportError {
    fn from(error: io::Error) -> Self {
        Self::Client(error.into())
    }
}

/// What the driver of an exported disk has to be told: the server's buffers, and how long requests wait for a device that is away.
pub fn driver(patience: Duration) -> nvme::Config {
    driver_with(Config::default().buffers, patience)
}

fn driver_with(buffers: Vec<BufferClass>, patience: Duration) -> nvme::Config {
    let give_up_ns = u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX);
    nvme::Config { buffers, give_up_ns, ..nvme::Config::default() }
}

/// Serves the disks of `client`, which is connected and was told what [`driver`] says, until SIGTERM or SIGINT.
pub fn run(mut client: Client, options: ExportOptions) -> Result<(), ExportError> {
    let mut doors = Doors::open(&options.addresses)?;
    client.watch(doors.fd())?;
    let ExportOptions { node, control, metrics, names, read_only, addresses } = options;
    let mut control = open_control(&mut client, &node, control, metrics)?;
    let teller = control.teller();
    let disks: Vec<DiskInfo> = client.disks().map(|disk| disk.info().clone()).collect();
    let exports = names.iter().zip(&disks).enumerate().map(|(disk, (name, info))| {
        let description = format!("{}, serial number {}", info.model.trim(), info.serial.trim());
        Export { disk, name: name.clone(), description, read_only }
    });
    let config = Config { exports: exports.collect(), ..Config::default() };
    let mut server = Server::new(config, &disks);
    for address in &addresses {
        tracing::info!(%address, "listening");
    }
    for (name, info) in names.iter().zip(&disks) {
        let (bytes, block_bytes, read_only) = (info.bytes(), info.block_bytes, info.read_only || read_only);
        tracing::info!(export = name, bytes, block_bytes, read_only, "ready");
    }

    while !client.should_stop() {
        let mut progress = client.receive();
        client.tell(&teller);
        progress |= doors.poll(client.now_ns(), &mut server)?;
        progress |= server.poll(client.now_ns(), &mut client);
        progress |= client.transmit();
        progress |= serve_control(&mut control, &mut client, |client| show(client, &node, &server));
        if client.should_report() {
            show(&client, &node, &server).log();
        }
        still_usable(&client)?;
        let deadline_ns = [server.deadline_ns(), control.deadline_ns()].into_iter().flatten().min();
        client.rest(progress, deadline_ns)?;
    }
    stop_control(&mut control, &mut client, |client| show(client, &node, &server));
    drain(&mut client, doors, &mut server, disks.len())?;
    show(&client, &node, &server).log();
    tracing::info!("stopped");
    Ok(())
}

/// The control socket and the metrics of a node, which the fabric tells its events to.
fn open_control(
    client: &mut Client,
    node: &str,
    control: Option<PathBuf>,
    metrics: Option<ListenAddress>,
) -> Result<Control, ExportError> {
    let run = LoopOptions { name: node.to_owned(), busy_poll: None, control, control_group: None, metrics };
    let control = Control::open(&run, &client.station.sleeper)
        .map_err(ExportError::Control)?
        .with_metrics(run.metrics.as_ref(), &client.station.sleeper)
        .map_err(ExportError::Metrics)?
        .with_carriers(std::mem::take(&mut client.carriers));
    if let Some(fabric) = &mut client.fabric {
        fabric.tell_to(control.teller());
    }
    Ok(control)
}

fn show(client: &Client, node: &str, server: &Server<Stream>) -> NodeStat {
    let counted: Counted = counted!(server.counters() => Counters {
        connections, refused, broken, slow, reads, writes, others, errors, bytes_read, bytes_written, bytes_sent,
    });
    stat::of_export(node, client.now_ns(), counted, &client.station.links, client.initiators())
}

/// An error once the driver of a device has given it up.
fn still_usable(client: &Client) -> Result<(), ExportError> {
    for (device, initiator) in client.initiators() {
        if let Some(failure) = initiator.failure().filter(|failure| failure.is_final()) {
            return Err(ExportError::Failed { device: device.to_owned(), failure: failure.clone() });
        }
    }
    Ok(())
}

fn serve_control(control: &mut Control, client: &mut Client, show: impl Fn(&Client) -> NodeStat) -> bool {
    let now_ns = client.now_ns();
    let is_woken = client.station.sleeper.take_control_wake();
    control.poll_woken(now_ns, is_woken, &mut |request| {
        let stat = show(client);
        Fabric::answer(client.fabric.as_mut(), now_ns, &request, None, || stat)
    })
}

/// Tells those who follow the node of its end.
fn stop_control(control: &mut Control, client: &mut Client, show: impl Fn(&Client) -> NodeStat) {
    let now_ns = client.now_ns();
    control.stop(now_ns, &mut |request| {
        let stat = show(client);
        Fabric::answer(client.fabric.as_mut(), now_ns, &request, None, || stat)
    });
}

/// Answers what was asked, and makes it durable.
fn drain(client: &mut Client, mut doors: Doors, server: &mut Server<Stream>, disks: usize) -> io::Result<()> {
    doors.close();
    server.drain();
    let until_ns = client.now_ns() + DRAIN.as_nanos() as u64;
    let mut flushed = 0;
    loop {
        let mut progress = client.receive();
        progress |= doors.poll(client.now_ns(), server)?;
        progress |= server.poll(client.now_ns(), client);
        if server.is_idle() {
            if flushed == disks && client.disks().all(|disk| disk.in_flight() == 0) {
                return Ok(());
            }
            if let Some(disk) = client.disks().nth(flushed) {
                let flush =
                    DiskRequest { token: FLUSH, op: Op::Flush, first_block: 0, blocks: 0, buffer: None };
                flushed += usize::from(disk.submit(flush).is_ok());
            }
        }
        progress |= client.transmit();
        if client.now_ns() > until_ns {
            tracing::warn!("not all that was under way could be ended");
            return Ok(());
        }
        client.rest(progress, Some(until_ns))?;
    }
}
