//! `etherslot export`: a remote disk for programs of this machine and others, by the Network Block Device protocol.

mod address;
mod doors;

use std::io;
use std::time::Duration;

use etherslot_initiator::{Op, Request, nvme};
use etherslot_nbd::{Config, Counters, Export, Server};

pub use address::{AddressError, ExportAddress};

use crate::control::BindError;
use crate::counted::{Counted, counted};
use crate::initiator::{Client, ClientError};
use doors::{Doors, Stream};

/// From the request to stop on, what is under way has so much time.
const DRAIN: Duration = Duration::from_secs(10);
/// No token of the server's.
const FLUSH: u64 = u64::MAX;

/// What is exported, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportOptions {
    /// What clients call it; those that call it nothing get it as well.
    pub name: String,
    /// For people.
    pub description: String,
    /// Refuse writes.
    pub read_only: bool,
    /// Where clients come.
    pub addresses: Vec<ExportAddress>,
}

/// Why there is no export, or not any more.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The device.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// A socket of the file system could not be made.
    #[error("--nbd {0}")]
    Unix(#[from] BindError),
    /// An address can't be listened at.
    #[error("--nbd {address}: {source}: is it an address of this machine, and the port free?")]
    Tcp {
        /// The address.
        address: ExportAddress,
        /// Why.
        source: io::Error,
    },
    /// The device can't be used any more.
    #[error("the device can't be used any more: {0}")]
    Failed(nvme::Failure),
}

impl From<io::Error> for ExportError {
    fn from(error: io::Error) -> Self {
        Self::Client(error.into())
    }
}

/// What the driver of an exported disk has to be told: the server's buffers, and how long requests wait for a device that is away.
pub fn driver(patience: Duration) -> nvme::Config {
    let give_up_ns = u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX);
    nvme::Config { buffers: Config::default().buffers, give_up_ns, ..nvme::Config::default() }
}

/// Serves the disk of `client`, which is connected and was told what [`driver`] says, until SIGTERM or SIGINT.
pub fn run(mut client: Client, options: ExportOptions) -> Result<(), ExportError> {
    let mut doors = Doors::open(&options.addresses)?;
    client.watch(doors.fd())?;
    let info = client.disk().info().clone();
    let ExportOptions { name, description, read_only, .. } = options;
    let export = Export { name: name.clone(), description, read_only };
    let mut server = Server::new(Config { exports: vec![export], ..Config::default() }, &info);
    let (bytes, block_bytes, read_only) = (info.bytes(), info.block_bytes, info.read_only || read_only);
    for address in &options.addresses {
        tracing::info!(%address, export = name, "listening");
    }
    tracing::info!(export = name, bytes, block_bytes, read_only, "ready");

    while !client.should_stop() {
        let mut progress = client.receive();
        progress |= doors.poll(client.now_ns(), &mut server)?;
        progress |= server.poll(client.now_ns(), client.disk());
        progress |= client.transmit();
        if client.should_report() {
            log(server.counters());
        }
        if let Some(failure) = client.initiator().failure().filter(|failure| failure.is_final()) {
            return Err(ExportError::Failed(failure.clone()));
        }
        client.rest(progress, server.deadline_ns())?;
    }
    drain(&mut client, doors, &mut server)?;
    log(server.counters());
    tracing::info!("stopped");
    Ok(())
}

/// Answers what was asked, and makes it durable.
fn drain(client: &mut Client, mut doors: Doors, server: &mut Server<Stream>) -> io::Result<()> {
    doors.close();
    server.drain();
    let until_ns = client.now_ns() + DRAIN.as_nanos() as u64;
    let mut is_flushing = false;
    loop {
        let mut progress = client.receive();
        progress |= doors.poll(client.now_ns(), server)?;
        progress |= server.poll(client.now_ns(), client.disk());
        if server.is_idle() {
            if is_flushing && client.disk().in_flight() == 0 {
                return Ok(());
            }
            if !is_flushing {
                let flush = Request { token: FLUSH, op: Op::Flush, first_block: 0, blocks: 0, buffer: None };
                is_flushing = client.disk().submit(flush).is_ok();
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

fn log(counters: &Counters) {
    let counted: Counted = counted!(counters => Counters {
        connections, refused, broken, slow, reads, writes, others, errors, bytes_read, bytes_written, bytes_sent,
    });
    tracing::info!("{counted}");
}
