//! A remote device for a program of this machine: an [`Initiator`] with links, a clock and signals around it.
//!
//! The program owns the loop. A round of it:
//!
//! ```no_run
//! # use etherslot_runtime::initiator::{Client, ClientError};
//! # fn work(now_ns: u64, disk: &mut dyn etherslot_initiator::Disk) -> bool { false }
//! # fn run(mut client: Client) -> Result<(), ClientError> {
//! while !client.should_stop() {
//!     let mut progress = client.receive();
//!     progress |= work(client.now_ns(), client.disk());
//!     progress |= client.transmit();
//!     client.rest(progress, None)?;
//! }
//! # Ok(())
//! # }
//! ```

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use etherslot_initiator::nvme::{Config, Failure};
use etherslot_initiator::{Disk, Initiator};
use etherslot_wire::control::Name;

pub use crate::clock::Clock;
use crate::options::{LinkOptions, LoopOptions, Routes, SessionOptions, Via};
use crate::stat::SessionStat;
use crate::station::Station;
use crate::{StartError, identity};

pub use etherslot_initiator as driver;

/// Which device, and how to reach and drive it.
#[derive(Debug)]
pub struct ClientOptions {
    /// Name and poll loop. No two running nodes of a machine may have the same name: a box takes the later one for the
    /// earlier one's next life.
    pub run: LoopOptions,
    /// Our links.
    pub links: Vec<LinkOptions>,
    /// The session.
    pub session: SessionOptions,
    /// The device's name in its box.
    pub device: String,
    /// Where the box is.
    pub routes: Routes,
    /// The driver.
    pub driver: Config,
}

/// Why a device can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Our end could not start or go on.
    #[error(transparent)]
    Start(#[from] StartError),
    /// Nothing came from the box.
    #[error("no answer from {peer}: is a box running there, and is this the link to it?")]
    NoAnswer {
        /// Where it should be.
        peer: Via,
    },
    /// The box is there, the device is not.
    #[error(
        "the box at {peer} does not give us {device:?}: it has none of this name, or another host uses it"
    )]
    NotGiven {
        /// Where the box is.
        peer: Via,
        /// The device.
        device: String,
    },
    /// The device is there, and its driver can't use it.
    #[error("device {device:?}: {failure}")]
    Failed {
        /// The device.
        device: String,
        /// Why.
        failure: Failure,
    },
    /// The device is there, and does not get ready.
    #[error("device {device:?} does not get ready")]
    NotReady {
        /// The device.
        device: String,
    },
    /// SIGINT or SIGTERM.
    #[error("stopped")]
    Stopped,
}

impl From<io::Error> for ClientError {
    fn from(error: io::Error) -> Self {
        Self::Start(StartError::Loop(error))
    }
}

/// A remote device and what is around it.
pub struct Client {
    station: Station,
    initiator: Initiator<Via>,
    now_ns: u64,
    device: String,
    peer: Via,
}

impl Client {
    /// Opens the links; the device is asked for from the first round on.
    pub fn open(options: &ClientOptions) -> Result<Self, ClientError> {
        let station = Station::open(&options.run, &options.links)?;
        let session = station.session_config(&options.session, &options.run.name);
        let name = Name::new(&options.device).ok_or_else(|| StartError::Device {
            device: options.device.clone(),
            reason: "the name has to be 1 to 32 bytes long".to_owned(),
        })?;
        let first = options.routes.first;
        let mut initiator = Initiator::new(session, identity::seed(), name, first, options.driver.clone());
        for &further in &options.routes.further {
            initiator.add_address(first, further);
        }
        let now_ns = station.clock.now_ns();
        Ok(Self { station, initiator, now_ns, device: options.device.clone(), peer: first })
    }

    /// Goes round until the disk is known and ready, or says what is in the way after `patience`.
    pub fn connect(&mut self, patience: Duration) -> Result<(), ClientError> {
        let until_ns = self.now_ns + patience.as_nanos() as u64;
        while !self.initiator.is_ready() {
            let progress = self.receive() | self.transmit();
            let failure = self.initiator.failure();
            if let Some(failure) = failure.filter(|failure| failure.is_final() || self.now_ns > until_ns) {
                return Err(ClientError::Failed { device: self.device.clone(), failure: failure.clone() });
            }
            if self.should_stop() {
                return Err(ClientError::Stopped);
            }
            if self.now_ns > until_ns {
                return Err(self.what_is_missing());
            }
            self.rest(progress, Some(until_ns))?;
        }
        Ok(())
    }

    fn what_is_missing(&self) -> ClientError {
        let (peer, device) = (self.peer, self.device.clone());
        if self.initiator.node().counters().sessions_up == 0 {
            ClientError::NoAnswer { peer }
        } else if self.initiator.has_device() {
            ClientError::NotReady { device }
        } else {
            ClientError::NotGiven { peer, device }
        }
    }

    /// The start of a round: takes what came and goes on with session and driver. True if something was done.
    #[inline]
    pub fn receive(&mut self) -> bool {
        let Self { station, initiator, .. } = self;
        let (now_ns, came) =
            station.receive(&mut |now_ns, from, frame| initiator.receive(now_ns, from, frame));
        self.now_ns = now_ns;
        self.initiator.poll(now_ns) | came
    }

    /// The end of its work: rings the doorbells of what was submitted, and sends. True if something was sent.
    #[inline]
    pub fn transmit(&mut self) -> bool {
        let Station { clock, links, .. } = &mut self.station;
        self.initiator.transmit(clock.now_ns(), &mut |to, frames| links.send(to, frames))
    }

    /// The end of the round: sleeps if nothing was done for a while, until `deadline_ns` at most.
    #[inline]
    pub fn rest(&mut self, progress: bool, deadline_ns: Option<u64>) -> io::Result<()> {
        let Self { station, initiator, .. } = self;
        station.end_round(progress, || [initiator.deadline_ns(), deadline_ns].into_iter().flatten().min())
    }

    /// The time of this round, ns since the start.
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// The clock that it is of.
    pub fn clock(&self) -> Clock {
        self.station.clock
    }

    /// The disk. Before it is known ([`Client::connect`]) it has no blocks; while the device is away, requests wait for it.
    #[inline]
    pub fn disk(&mut self) -> &mut dyn Disk {
        &mut self.initiator
    }

    /// The driver and its node.
    pub fn initiator(&self) -> &Initiator<Via> {
        &self.initiator
    }

    /// Sleeps end when `fd` is readable.
    pub fn watch(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.station.sleeper.watch(fd)
    }

    /// Whether SIGINT or SIGTERM came.
    pub fn should_stop(&self) -> bool {
        self.station.signals.stop()
    }

    /// Whether SIGUSR1 has asked for the counters since the last call.
    pub fn should_report(&mut self) -> bool {
        self.station.signals.report()
    }

    /// The session to the box, if there is one.
    pub fn session(&self) -> Option<SessionStat> {
        self.initiator.node().sessions().next().map(|(peer, session)| SessionStat::of(peer, session))
    }
}

impl Drop for Client {
    /// Shuts the device down in order, which a stop of the program may be waiting for: 5 s at most. Then says goodbye, so that the
    /// box gives it to the next one at once.
    fn drop(&mut self) {
        self.initiator.shut_down();
        while !self.initiator.is_shut_down() {
            let progress = self.receive() | self.transmit();
            if self.rest(progress, None).is_err() {
                break;
            }
        }
        self.initiator.close();
        self.transmit();
    }
}
