//! Remote devices for a program of this machine: an [`Initiator`] for each, with links, a clock and signals around them.
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
use etherslot_nbd::Disks;
use etherslot_wire::control::Name;
use etherslot_wire::discovery::is_discovery;

use crate::carrier::Carriers;
pub use crate::clock::Clock;
use crate::events::{Event, SlotChange, Teller};
use crate::fabric::{Fabric, Found, Wanted};
use crate::options::{
    FabricOptions, LinkOptions, LoopOptions, PublicKey, Routes, SecurityOptions, SessionOptions, Via,
};
use crate::stat::SessionStat;
use crate::station::Station;
use crate::{StartError, identity};

pub use etherslot_initiator as driver;

/// Which devices, and how to reach and drive them.
#[derive(Debug)]
pub struct ClientOptions {
    /// Name and poll loop. No two running nodes of a machine may have the same name: a box takes the later one for the
    /// earlier one's next life. Each device has a session, and so a node, of its own: those behind the first add a number.
    pub run: LoopOptions,
    /// Our links.
    pub links: Vec<LinkOptions>,
    /// The sessions.
    pub session: SessionOptions,
    /// Their protection.
    pub security: SecurityOptions,
    /// The devices, one at least.
    pub devices: Vec<ClientDevice>,
    /// The driver of each.
    pub driver: Config,
    /// Take part in the fabric, as a host, with the first device.
    pub fabric: Option<FabricOptions>,
    /// How long to look for devices whose boxes are not named.
    pub patience: Duration,
}

/// A device.
#[derive(Clone, Debug)]
pub struct ClientDevice {
    /// Its name in its box, or what it is found by.
    pub name: String,
    /// What it is found by in the fabric.
    pub wanted: Wanted,
    /// Where the box is; without it, the device is found.
    pub routes: Option<Routes>,
    /// Who the box has to be.
    pub box_key: Option<PublicKey>,
}

/// Why a device can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Our end could not start or go on.
    #[error(transparent)]
    Start(#[from] StartError),
    /// Nothing came from the box.
    #[error(
        "no answer from {peer}: is a box running there, is this the link to it, and has it the same fabric.key?"
    )]
    NoAnswer {
        /// Where it should be.
        peer: Via,
    },
    /// No box that was heard has the device.
    #[error(
        "no device {device:?} was heard of: is its box running, on this link, and with [fabric] in its configuration?"
    )]
    NotFound {
        /// The device.
        device: String,
    },
    /// The box is there, the device is not.
    #[error(
        "the box at {peer} does not give us {device:?}: it has none of this name, another host uses it, or it is not assigned to us"
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
    /// The device is there, and is no DC buffer, or one that is too small.
    #[error("device {device:?} is no DC buffer with room for a chunk: is it of kind = \"dc\" in its box?")]
    NoBuffer {
        /// The device.
        device: String,
    },
    /// The boxes of a disk and of the DC buffer do not find each other.
    #[error(
        "{device:?} does not reach the buffer {buffer:?} in another box: is there a link between the boxes, and \
         has each the other's key among its peers? Or name a buffer of one box, or none"
    )]
    NoWay {
        /// The disk.
        device: String,
        /// The buffer.
        buffer: String,
    },
    /// The DC buffer is in another box than a disk, and one of them can't let them reach each other.
    #[error(
        "{device:?} and the buffer {buffer:?} are in different boxes, one of which is of a version, \
         or on a link, that joins no other: name a buffer of their box, or none"
    )]
    Apart {
        /// The disk.
        device: String,
        /// The buffer.
        buffer: String,
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

/// A device, its driver and its node.
struct Member {
    name: String,
    wanted: Wanted,
    peer: Via,
    initiator: Initiator<Via>,
    /// Whether those who listen know it as attached.
    is_attached: bool,
}

impl Member {
    fn what_is_missing(&self) -> ClientError {
        let (peer, device) = (self.peer, self.name.clone());
        if self.initiator.node().counters().sessions_up == 0 {
            ClientError::NoAnswer { peer }
        } else if self.initiator.has_device() {
            ClientError::NotReady { device }
        } else {
            ClientError::NotGiven { peer, device }
        }
    }
}

/// A device whose box is said.
pub(crate) fn named(device: &ClientDevice) -> Result<Found, ClientError> {
    let name = Name::new(&device.name).ok_or_else(|| StartError::Device {
        device: device.name.clone(),
        reason: "the name has to be 1 to 32 bytes long".to_owned(),
    })?;
    let ways = device.routes.iter().flat_map(Routes::iter).collect();
    Ok(Found { node: None, name, ways, is_given: false, is_to_be_had: true })
}

/// Takes part in the fabric until it is known where the device is.
pub(crate) fn find(
    station: &mut Station,
    fabric: &mut Fabric,
    device: &ClientDevice,
    patience: Duration,
) -> Result<Found, ClientError> {
    let until_ns = station.clock.now_ns() + patience.as_nanos() as u64;
    loop {
        let (now_ns, came) = station.receive(&mut |now_ns, from, frame| {
            if is_discovery(frame) {
                fabric.receive(now_ns, from, frame, None);
            }
        });
        let progress = came | fabric.poll_host(now_ns) | fabric.transmit(&mut station.links);
        if let Some(found) = fabric.find(&device.wanted) {
            return Ok(found);
        }
        if station.signals.stop() {
            return Err(ClientError::Stopped);
        }
        if now_ns > until_ns {
            return Err(ClientError::NotFound { device: device.name.clone() });
        }
        station.end_round(progress, || Some(fabric.deadline_ns(now_ns).min(until_ns)))?;
    }
}

/// Remote devices and what is around them.
pub struct Client {
    pub(crate) station: Station,
    pub(crate) fabric: Option<Fabric>,
    pub(crate) carriers: Carriers,
    members: Vec<Member>,
    now_ns: u64,
}

impl Client {
    /// Opens the links; the devices are asked for from the first round on.
    ///
    /// # Panics
    /// If there is no device.
    pub fn open(options: &ClientOptions) -> Result<Self, ClientError> {
        assert!(!options.devices.is_empty(), "a client has a device");
        let mut station = Station::open(&options.run, &options.links, &options.security)?;
        let name = &options.run.name;
        let mut fabric = Fabric::of_host(options.fabric.as_ref(), name, &options.links, &station)?;
        let mut members = Vec::new();
        for (number, device) in options.devices.iter().enumerate() {
            let node = match number {
                0 => options.run.name.clone(),
                number => format!("{}.{number}", options.run.name),
            };
            let session = station.session_config(&options.session, &node);
            let not_found = || ClientError::NotFound { device: device.name.clone() };
            let found = match (&device.routes, &mut fabric) {
                (Some(_), _) => named(device)?,
                (None, Some(fabric)) => find(&mut station, fabric, device, options.patience)?,
                (None, None) => return Err(not_found()),
            };
            let [first, further @ ..] = found.ways.as_slice() else { return Err(not_found()) };
            let driver = options.driver.clone();
            let mut initiator = Initiator::new(session, identity::seed(), found.name, *first, driver);
            initiator.set_max_payload(options.session.max_payload);
            if let Some(keys) = &station.keys {
                initiator.protect(keys.security().map_err(StartError::from)?);
            }
            if let Some(key) = device.box_key {
                initiator.expect(*first, key);
            }
            for &further in further {
                initiator.add_address(*first, further);
            }
            initiator.set_group(fabric.as_ref().and_then(Fabric::group));
            let (name, wanted) = (device.name.clone(), device.wanted.clone());
            members.push(Member { name, wanted, peer: *first, initiator, is_attached: false });
        }
        let now_ns = station.clock.now_ns();
        let carriers = Carriers::of(&options.links);
        Ok(Self { station, fabric, carriers, members, now_ns })
    }

    /// Goes round until all disks are known and ready, or says what is in the way after `patience`.
    pub fn connect(&mut self, patience: Duration) -> Result<(), ClientError> {
        let until_ns = self.now_ns + patience.as_nanos() as u64;
        while let Some(waiting) = self.members.iter().position(|member| !member.initiator.is_ready()) {
            let progress = self.receive() | self.transmit();
            for member in &self.members {
                let failure = member.initiator.failure();
                let failure = failure.filter(|failure| failure.is_final() || self.now_ns > until_ns);
                if let Some(failure) = failure {
                    let device = member.name.clone();
                    return Err(ClientError::Failed { device, failure: failure.clone() });
                }
            }
            if self.should_stop() {
                return Err(ClientError::Stopped);
            }
            if self.now_ns > until_ns {
                return Err(self.members[waiting].what_is_missing());
            }
            self.rest(progress, Some(until_ns))?;
        }
        Ok(())
    }

    /// The start of a round: takes what came and goes on with sessions and drivers. True if something was done.
    #[inline]
    pub fn receive(&mut self) -> bool {
        let Self { station, fabric, members, .. } = self;
        let (now_ns, came) = station.receive(&mut |now_ns, from, frame| {
            if let Some(fabric) = fabric.as_mut().filter(|_| is_discovery(frame)) {
                return fabric.receive(now_ns, from, frame, None);
            }
            // What is for none of them, the first one counts.
            let member = match &members[..] {
                [_] => 0,
                all => all.iter().position(|member| member.initiator.node().knows(frame)).unwrap_or(0),
            };
            members[member].initiator.receive(now_ns, from, frame);
        });
        self.now_ns = now_ns;
        let mut progress = came;
        if let Some(fabric) = fabric {
            progress |= fabric.poll_host(now_ns);
            progress |= fabric.transmit(&mut station.links);
            if fabric.take_news() {
                for member in &mut *members {
                    if fabric.find(&member.wanted).is_some_and(|found| found.is_to_be_had) {
                        member.initiator.ask_again();
                    }
                }
            }
        }
        for member in members {
            progress |= member.initiator.poll(now_ns);
        }
        progress
    }

    /// Tells what has become of sessions and devices since the last call.
    pub(crate) fn tell(&mut self, teller: &Teller) {
        for (slot, member) in self.members.iter_mut().enumerate() {
            while let Some(event) = member.initiator.session_event() {
                teller.tell(|| event.into());
            }
            let is_attached = member.initiator.has_device();
            if std::mem::replace(&mut member.is_attached, is_attached) != is_attached {
                let what = if is_attached { SlotChange::Attached } else { SlotChange::Detached };
                teller.tell(|| Event::Slot { slot, device: member.name.clone(), what });
            }
        }
    }

    /// The end of its work: rings the doorbells of what was submitted, and sends. True if something was sent.
    #[inline]
    pub fn transmit(&mut self) -> bool {
        let Station { clock, links, .. } = &mut self.station;
        let mut progress = false;
        for member in &mut self.members {
            progress |= member.initiator.transmit(clock.now_ns(), &mut |to, frames| links.send(to, frames));
        }
        progress
    }

    /// The end of the round: sleeps if nothing was done for a while, until `deadline_ns` at most.
    #[inline]
    pub fn rest(&mut self, progress: bool, deadline_ns: Option<u64>) -> io::Result<()> {
        let Self { station, fabric, members, now_ns, .. } = self;
        let own = || members.iter().filter_map(|member| member.initiator.deadline_ns());
        let fabric_ns = || fabric.as_ref().map(|fabric| fabric.deadline_ns(*now_ns));
        station.end_round(progress, || own().chain(deadline_ns).chain(fabric_ns()).min())
    }

    /// The time of this round, ns since the start.
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// The clock that it is of.
    pub fn clock(&self) -> Clock {
        self.station.clock
    }

    /// The disk, or the first of several. Before it is known ([`Client::connect`]) it has no blocks; while the device is away,
    /// requests wait for it.
    #[inline]
    pub fn disk(&mut self) -> &mut dyn Disk {
        &mut self.members[0].initiator
    }

    /// The disk of each device, in their order.
    pub fn disks(&mut self) -> impl Iterator<Item = &mut dyn Disk> {
        self.members.iter_mut().map(|member| &mut member.initiator as &mut dyn Disk)
    }

    /// The driver of the first device, and its node.
    pub fn initiator(&self) -> &Initiator<Via> {
        &self.members[0].initiator
    }

    /// The devices' names, drivers and nodes, in their order.
    pub fn initiators(&self) -> impl Iterator<Item = (&str, &Initiator<Via>)> {
        self.members.iter().map(|member| (member.name.as_str(), &member.initiator))
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

    /// The session to the first device's box, if there is one.
    pub fn session(&self) -> Option<SessionStat> {
        self.initiator().node().sessions().next().map(|(peer, session)| SessionStat::of(peer, session))
    }
}

impl Disks for Client {
    #[inline]
    fn disk(&mut self, number: usize) -> &mut dyn Disk {
        &mut self.members[number].initiator
    }
}

impl Client {
    /// Goes round until it is so of all devices.
    fn until(&mut self, is_so: impl Fn(&Initiator<Via>) -> bool) {
        while !self.members.iter().all(|member| is_so(&member.initiator)) {
            let progress = self.receive() | self.transmit();
            if self.rest(progress, None).is_err() {
                break;
            }
        }
    }
}

impl Drop for Client {
    /// Shuts the devices down in order, which a stop of the program may be waiting for: 5 s at most. Then says goodbye, so that
    /// boxes give them to the next one at once.
    fn drop(&mut self) {
        self.members.iter_mut().for_each(|member| member.initiator.shut_down());
        self.until(Initiator::is_shut_down);
        self.members.iter_mut().for_each(|member| member.initiator.close());
        self.until(Initiator::is_closed);
        if let Some(fabric) = &mut self.fabric {
            fabric.leave(self.station.clock.now_ns(), &mut self.station.links);
        }
    }
}
