//! Several remote disks on one host node, for a program that copies between them: a [`Direct`] with links, a clock and signals around it.
//!
//! The program owns the loop, as that of [`crate::initiator::Client`].

use std::io;
use std::time::Duration;

use etherslot_fabric::Place as _;
use etherslot_initiator::{Direct, Disks, Pieces};
use etherslot_node::SlotConfig;
use etherslot_session::State as SessionState;

use crate::fabric::Fabric;
use crate::identity;
use crate::initiator::{ClientDevice, ClientError, ClientOptions, find, named};
use crate::options::Via;
use crate::station::Station;

/// Where a program copies: disks, and what goes on around them. A round of its loop is [`Site::receive`], its own work, [`Site::transmit`] and
/// [`Site::rest`].
pub trait Site {
    /// What the disks are.
    type Disks: Disks;

    /// The disks and what is between them.
    fn disks(&mut self) -> &mut Self::Disks;

    /// The time of this round, ns since the start.
    fn now_ns(&self) -> u64;

    /// Whether SIGINT or SIGTERM came.
    fn should_stop(&self) -> bool;

    /// The start of a round: takes what came. True if something was done.
    fn receive(&mut self) -> bool;

    /// The end of its work: what was submitted is on its way. True if something was sent.
    fn transmit(&mut self) -> bool;

    /// The end of the round: sleeps if nothing was done for a while, until `deadline_ns` at most.
    fn rest(&mut self, progress: bool, deadline_ns: Option<u64>) -> io::Result<()>;
}

/// Which devices, and how to reach and drive them.
#[derive(Debug)]
pub struct DirectOptions {
    /// The disks, and all that is common; `nsid` of the driver counts for those that `namespaces` does not tell of.
    pub client: ClientOptions,
    /// The namespace of each disk, in their order.
    pub namespaces: Vec<u32>,
    /// The DC buffer; without it, data is handed over in memory of this process.
    pub buffer: Option<ClientDevice>,
    /// What the memory between the disks consists of.
    pub pieces: Pieces,
}

/// Remote disks, what is between them, and what is around them.
pub struct DirectClient {
    station: Station,
    fabric: Option<Fabric>,
    direct: Direct<Via>,
    /// The disks', then the buffer's, and where their boxes are.
    devices: Vec<(String, Via)>,
    now_ns: u64,
}

impl DirectClient {
    /// Opens the links; the devices are asked for from the first round on.
    pub fn open(options: &DirectOptions) -> Result<Self, ClientError> {
        let DirectOptions { client, namespaces, buffer, pieces } = options;
        let mut station = Station::open(&client.run, &client.links, &client.security)?;
        let name = &client.run.name;
        let mut fabric = Fabric::of_host(client.fabric.as_ref(), name, &client.links, &station)?;
        let session = station.session_config(&client.session, name);
        let (mut disks, mut ways, mut devices, mut slot_of_buffer) =
            (Vec::new(), Vec::new(), Vec::new(), None);
        for (number, device) in client.devices.iter().chain(buffer).enumerate() {
            let found = match (&device.routes, &mut fabric) {
                (Some(_), _) => named(device)?,
                (None, Some(fabric)) => find(&mut station, fabric, device, client.patience)?,
                (None, None) => return Err(ClientError::NotFound { device: device.name.clone() }),
            };
            let [first, further @ ..] = found.ways.as_slice() else {
                return Err(ClientError::NotFound { device: device.name.clone() });
            };
            ways.push((*first, further.to_vec(), device.box_key));
            devices.push((device.name.clone(), *first));
            let slot = SlotConfig { name: found.name, address: *first, hide_msix: false };
            if number < client.devices.len() {
                let mut driver = client.driver.clone();
                driver.nsid = namespaces.get(number).copied().unwrap_or(driver.nsid);
                disks.push((slot, driver));
            } else {
                slot_of_buffer = Some(slot);
            }
        }
        let mut direct = Direct::new(session, identity::seed(), disks, slot_of_buffer, *pieces);
        direct.join_boxes(Via::port);
        direct.set_max_payload(client.session.max_payload);
        if let Some(keys) = &station.keys {
            direct.protect(keys.security().map_err(crate::StartError::from)?);
        }
        for (first, further, key) in ways {
            if let Some(key) = key {
                direct.expect(first, key);
            }
            for further in further {
                direct.add_address(first, further);
            }
        }
        direct.set_group(fabric.as_ref().and_then(Fabric::group));
        let now_ns = station.clock.now_ns();
        Ok(Self { station, fabric, direct, devices, now_ns })
    }

    /// Goes round until all devices are ready, or says what is in the way after `patience`.
    pub fn connect(&mut self, patience: Duration) -> Result<(), ClientError> {
        let until_ns = self.now_ns + patience.as_nanos() as u64;
        while !self.direct.is_ready() {
            let progress = self.receive() | self.transmit();
            for disk in 0..self.direct.disks() {
                let failure = self.direct.failure(disk);
                if let Some(failure) = failure.filter(|failure| failure.is_final() || self.now_ns > until_ns)
                {
                    let device = self.devices[disk].0.clone();
                    return Err(ClientError::Failed { device, failure: failure.clone() });
                }
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
        let is_up = |peer: &Via| {
            let mut sessions = self.direct.node().sessions();
            sessions.any(|(address, session)| address == peer && session.state() == SessionState::Up)
        };
        let missing = (0..self.devices.len()).find(|&slot| !self.direct.has_device(slot));
        let (device, peer) = self.devices[missing.unwrap_or(0)].clone();
        match missing {
            Some(_) if !is_up(&peer) => ClientError::NoAnswer { peer },
            Some(_) => ClientError::NotGiven { peer, device },
            None if !self.direct.has_pieces() => {
                ClientError::NoBuffer { device: self.devices[self.devices.len() - 1].0.clone() }
            }
            None if !self.direct.reaches_pieces() => {
                let is_cut_off = |disk: &usize| !self.direct.is_reaching(*disk);
                let disk = (0..self.direct.disks()).find(is_cut_off).unwrap_or(0);
                let (device, buffer) =
                    (self.devices[disk].0.clone(), self.devices[self.devices.len() - 1].0.clone());
                if self.direct.can_join(disk) {
                    ClientError::NoWay { device, buffer }
                } else {
                    ClientError::Apart { device, buffer }
                }
            }
            None => ClientError::NotReady { device },
        }
    }

    /// The disks and what is between them.
    pub fn direct(&mut self) -> &mut Direct<Via> {
        &mut self.direct
    }

    /// Bytes of frames sent and received on our links so far.
    pub fn link_bytes(&self) -> (u64, u64) {
        let counters = self.station.links.counters();
        let bytes = |name| counters.get(name).unwrap_or(0);
        (bytes("tx_bytes"), bytes("rx_bytes"))
    }

    fn until(&mut self, is_so: impl Fn(&Direct<Via>) -> bool) {
        while !is_so(&self.direct) {
            let progress = self.receive() | self.transmit();
            if self.rest(progress, None).is_err() {
                break;
            }
        }
    }
}

impl Site for DirectClient {
    type Disks = Direct<Via>;

    fn disks(&mut self) -> &mut Direct<Via> {
        &mut self.direct
    }

    fn now_ns(&self) -> u64 {
        self.now_ns
    }

    fn should_stop(&self) -> bool {
        self.station.signals.stop()
    }

    fn receive(&mut self) -> bool {
        let Self { station, fabric, direct, .. } = self;
        let (now_ns, came) = station.receive(&mut |now_ns, from, frame| match fabric {
            Some(fabric) if etherslot_wire::discovery::is_discovery(frame) => {
                fabric.receive(now_ns, from, frame, None);
            }
            _ => direct.receive(now_ns, from, frame),
        });
        self.now_ns = now_ns;
        let mut progress = came;
        if let Some(fabric) = fabric {
            progress |= fabric.poll_host(now_ns) | fabric.transmit(&mut station.links);
        }
        progress | direct.poll(now_ns)
    }

    fn transmit(&mut self) -> bool {
        let Self { station: Station { clock, links, .. }, direct, .. } = self;
        direct.transmit(clock.now_ns(), &mut |to, frames| links.send(to, frames))
    }

    fn rest(&mut self, progress: bool, deadline_ns: Option<u64>) -> io::Result<()> {
        let Self { station, fabric, direct, now_ns, .. } = self;
        let fabric_ns = || fabric.as_ref().map(|fabric| fabric.deadline_ns(*now_ns));
        station.end_round(progress, || {
            [direct.deadline_ns(), deadline_ns, fabric_ns()].into_iter().flatten().min()
        })
    }
}

impl Drop for DirectClient {
    /// Shuts the devices down in order and says goodbye, as [`crate::initiator::Client`] does.
    fn drop(&mut self) {
        self.direct.shut_down();
        self.until(Direct::is_shut_down);
        self.direct.close();
        self.until(Direct::is_closed);
        if let Some(fabric) = &mut self.fabric {
            fabric.leave(self.station.clock.now_ns(), &mut self.station.links);
        }
    }
}
