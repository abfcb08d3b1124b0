//! `etherslot host`: remote devices as vfio-user sockets.

use std::process::Command;
use std::sync::Arc;

use etherslot_mem::GuestMemory;
use etherslot_node::{Accepted, Device, Guest, HostNode, Interrupt, Interrupts as GuestInterrupts, Refused};
use etherslot_vfio_user::message::{irq, region};
use etherslot_vfio_user::{Answer, DeviceInfo, Errno, Handler, Keeper, MessageId, RegionInfo, Server};
use etherslot_wire::control::Name;
use etherslot_wire::discovery::is_discovery;

use crate::control::Control;
use crate::events::{Event, SlotChange, Teller};
use crate::fabric::Fabric;
use crate::links::Links;
use crate::options::{HostOptions, Interrupts, Routes, SlotOptions, Via};
use crate::sleeper::Sleeper;
use crate::stat::NodeStat;
use crate::station::Station;
use crate::{StartError, identity, keeper, stat};

const CONFIG_BYTES: u64 = 4096;

/// The guest's side of a slot: its socket, once the device is known.
struct Door {
    options: SlotOptions,
    server: Option<Server>,
    failed: Option<StartError>,
    waiting: Waiting,
    keeper: Option<Arc<Keeper>>,
}

/// The guest's messages that wait for the device, by the numbers under which the node knows them.
#[derive(Default)]
struct Waiting {
    messages: Vec<(u64, MessageId)>,
    next: u64,
}

impl Waiting {
    fn add(&mut self, id: MessageId) -> u64 {
        self.next += 1;
        self.messages.push((self.next, id));
        self.next
    }

    fn take(&mut self, number: u64) -> Option<MessageId> {
        let at = self.messages.iter().position(|&(known, _)| known == number)?;
        Some(self.messages.swap_remove(at).1)
    }
}

impl Door {
    fn new(options: SlotOptions, keeper: Option<Arc<Keeper>>) -> Self {
        Self { options, server: None, failed: None, waiting: Waiting::default(), keeper }
    }

    /// Opens the socket for a device that was attached for the first time.
    fn open(&mut self, device: &Device) {
        let msix = if self.options.interrupts == Interrupts::MsiX { device.msix_vectors } else { 0 };
        let mut info = DeviceInfo::default();
        for (region, bytes) in device.bar_bytes.into_iter().enumerate().filter(|&(_, bytes)| bytes != 0) {
            info.regions[region] = RegionInfo::read_write(bytes);
        }
        info.regions[region::CONFIG as usize] = RegionInfo::read_write(CONFIG_BYTES);
        info.irqs[irq::INTX as usize] = u32::from(device.intx);
        info.irqs[irq::MSI as usize] = u32::from(device.msi_vectors);
        info.irqs[irq::MSIX as usize] = u32::from(msix);
        match Server::bind(&self.options.socket, info) {
            Ok(mut server) => {
                if let Some(keeper) = &self.keeper {
                    server.set_keeper(Arc::clone(keeper));
                }
                tracing::info!(device = self.options.device, socket = %self.options.socket.display(), "socket open");
                self.server = Some(server);
            }
            Err(source) => {
                let device = self.options.device.clone();
                self.failed = Some(StartError::Socket { device, source });
            }
        }
    }
}

/// All guests of the host node.
struct Doors(Vec<Door>, Teller);

impl Doors {
    fn stat(&self, name: &str, now_ns: u64, node: &HostNode<Via>, links: &Links) -> NodeStat {
        let devices = self.0.iter().map(|door| &*door.options.device);
        stat::of_host(name, now_ns, node, links, devices)
    }
}

impl Doors {
    fn tell(&self, slot: usize, what: SlotChange) {
        let device = &self.0[slot].options.device;
        self.1.tell(|| Event::Slot { slot, device: device.clone(), what });
    }
}

impl Guest for Doors {
    fn read(&mut self, slot: usize, address: u64, data: &mut [u8]) -> bool {
        self.0[slot].server.as_ref().is_some_and(|server| server.memory().read(address, data).is_ok())
    }

    fn write(&mut self, slot: usize, address: u64, data: &[u8]) -> bool {
        self.0[slot].server.as_ref().is_some_and(|server| server.memory().write(address, data).is_ok())
    }

    fn interrupt(&mut self, slot: usize, interrupt: Interrupt) {
        let Some(server) = &mut self.0[slot].server else { return };
        match interrupt {
            Interrupt::IntX(level) => server.set_intx_level(level),
            Interrupt::Message(vector) => {
                let index = if server.irqs_assigned(irq::MSIX) != 0 { irq::MSIX } else { irq::MSI };
                server.trigger(index, u32::from(vector))
            }
        };
    }

    fn completed(&mut self, slot: usize, access: u64, data: &[u8]) {
        let door = &mut self.0[slot];
        if let (Some(id), Some(server)) = (door.waiting.take(access), &mut door.server) {
            if data.is_empty() {
                server.reply_done(id)
            } else {
                server.reply_read(id, data)
            };
        }
    }

    fn attached(&mut self, slot: usize, device: &Device) {
        if self.0[slot].server.is_none() {
            self.0[slot].open(device);
        }
        self.tell(slot, SlotChange::Attached);
    }

    fn lost(&mut self, slot: usize) {
        self.tell(slot, SlotChange::Detached);
    }
}

/// One slot's socket and the node, for the time of a poll.
struct SlotHandler<'a> {
    node: &'a mut HostNode<Via>,
    waiting: &'a mut Waiting,
    slot: usize,
    now_ns: u64,
    irqs_changed: bool,
    released: bool,
    connected: bool,
}

impl SlotHandler<'_> {
    /// What `outcome` means to the client; `number` is the message's, if it has one.
    fn answer(&mut self, number: Option<u64>, outcome: Result<Accepted, Refused>) -> Answer {
        if outcome == Ok(Accepted::Later) {
            return if number.is_some() { Answer::Later } else { Answer::Done };
        }
        if let Some(number) = number {
            self.waiting.take(number);
        }
        match outcome {
            Ok(_) => Answer::Done,
            Err(Refused::Range) => Answer::Error(Errno::INVAL),
            Err(Refused::Busy) => Answer::Error(Errno::NOSPC),
        }
    }

    /// The number under which the node is to know a message. A posted one gets a number nobody waits for.
    fn number(&mut self, id: Option<MessageId>) -> Option<u64> {
        id.map(|id| self.waiting.add(id))
    }
}

impl Handler for SlotHandler<'_> {
    fn connected(&mut self) {
        tracing::info!(slot = self.slot, "guest connected");
        self.connected = true;
    }

    fn disconnected(&mut self) {
        tracing::info!(slot = self.slot, "guest gone");
        self.waiting.messages.clear();
        self.released = true;
    }

    fn read(&mut self, id: MessageId, region: u32, offset: u64, data: &mut [u8]) -> Answer {
        let number = self.waiting.add(id);
        let (now_ns, slot) = (self.now_ns, self.slot);
        data.fill(0xFF);
        let outcome = match region {
            region::CONFIG => self.node.config_read(now_ns, slot, number, offset, data.len()),
            bar if bar < region::ROM => {
                self.node.bar_read(now_ns, slot, number, bar as usize, offset, data.len())
            }
            _ => Err(Refused::Range),
        };
        self.answer(Some(number), outcome)
    }

    fn write(
        &mut self,
        id: Option<MessageId>,
        region: u32,
        offset: u64,
        data: &[u8],
        memory: &GuestMemory,
    ) -> Answer {
        let (now_ns, slot) = (self.now_ns, self.slot);
        if region < region::ROM {
            // Posted on the wire whatever the client wants.
            let read = &mut |address, data: &mut [u8]| memory.read(address, data).is_ok();
            let outcome = self.node.bar_write(slot, region as usize, offset, data, read);
            return self.answer(None, outcome.map(|()| Accepted::AllOnes));
        }
        if region != region::CONFIG {
            return self.answer(None, Err(Refused::Range));
        }
        let number = self.number(id);
        let outcome = self.node.config_write(now_ns, slot, number.unwrap_or(0), offset, data);
        self.answer(number, outcome)
    }

    fn reset(&mut self, id: Option<MessageId>) -> Answer {
        let number = self.number(id);
        let outcome = self.node.reset(self.now_ns, self.slot, number);
        self.answer(number, outcome)
    }

    fn irqs_changed(&mut self, _index: u32) {
        self.irqs_changed = true;
    }

    fn memory_changed(&mut self) {}

    fn room(&self) -> bool {
        self.node.has_room(self.slot)
    }
}

fn poll_door(door: &mut Door, node: &mut HostNode<Via>, slot: usize, now_ns: u64, teller: &Teller) -> bool {
    let Some(server) = &mut door.server else { return false };
    let waiting = &mut door.waiting;
    let mut handler =
        SlotHandler { node, waiting, slot, now_ns, irqs_changed: false, released: false, connected: false };
    let progress = server.poll(&mut handler);
    let SlotHandler { irqs_changed, released, connected, .. } = handler;
    if connected || released {
        let device = &door.options.device;
        teller.tell(|| Event::Guest { slot, device: device.clone(), is_connected: connected && !released });
    }
    if released {
        // Nothing of the guest's device may go on: its memory is gone.
        let _ = node.reset(now_ns, slot, None);
    } else if irqs_changed {
        let (msi, msix) = (server.irqs_assigned(irq::MSI), server.irqs_assigned(irq::MSIX));
        node.set_interrupts(
            slot,
            match (msi, msix) {
                (_, 1..) => GuestInterrupts::MsiX,
                (1.., 0) => GuestInterrupts::Msi(msi as u16),
                (0, 0) => GuestInterrupts::Legacy,
            },
        );
    }
    progress
}

/// Runs a host node until SIGTERM or SIGINT. `keeper` is to call [`keeper::run`] in a process of its own.
pub fn run(options: HostOptions, keeper: Command) -> Result<(), StartError> {
    let mut station = Station::open(&options.run, &options.links, &options.security)?;
    let config = station.session_config(&options.session, &options.run.name);
    let mut node = HostNode::new(config, identity::seed(), &[]);
    node.set_max_payload(options.session.max_payload);
    for slot in &options.slots {
        // Of a device that is found by its serial number the name is not known yet.
        let name = Name::new(&slot.device).ok_or_else(|| StartError::Device {
            device: slot.device.clone(),
            reason: "the name has to be 1 to 32 bytes long".to_owned(),
        })?;
        let number = node.add_slot(name, slot.interrupts == Interrupts::Msi);
        if let Some(Routes { first, further }) = &slot.routes {
            give_route(&mut node, number, name, *first, further)?;
        }
    }
    if let Some(keys) = &station.keys {
        node.protect(keys.security()?);
    }
    for slot in &options.slots {
        if let (Some(routes), Some(key)) = (&slot.routes, slot.box_key) {
            node.expect(routes.first, key);
        }
    }
    let name = &options.run.name;
    let mut fabric = Fabric::of_host(options.fabric.as_ref(), name, &options.links, &station)?;
    node.set_group(fabric.as_ref().and_then(Fabric::group));
    let mut control = Control::open(&options.run, &station.sleeper)?
        .with_metrics(options.run.metrics.as_ref(), &station.sleeper)?
        .with_links(&options.links);
    let teller = control.teller();
    if let Some(fabric) = &mut fabric {
        fabric.tell_to(teller.clone());
    }
    let keeper = keeper::start(keeper)
        .inspect_err(
            |error| tracing::warn!(%error, "no keeper: guests may not outlive a kill of this daemon"),
        )
        .ok();
    let doors = options.slots.into_iter().map(|slot| Door::new(slot, keeper.clone())).collect();
    let mut doors = Doors(doors, teller.clone());
    let mut ready = false;
    let slots = doors.0.len();
    tracing::info!(name, address = station.links.address(), slots, "started");

    while !station.signals.stop() {
        let (now_ns, mut progress) = station.receive(&mut |now_ns, from, frame| match &mut fabric {
            Some(fabric) if is_discovery(frame) => fabric.receive(now_ns, from, frame, None),
            _ => node.receive(now_ns, from, frame, &mut doors),
        });
        if let Some(fabric) = &mut fabric {
            progress |= fabric.poll_host(now_ns);
            if fabric.take_news() {
                find_devices(fabric, &mut node, &doors)?;
            }
            progress |= fabric.transmit(&mut station.links);
        }
        for (slot, door) in doors.0.iter_mut().enumerate() {
            progress |= poll_door(door, &mut node, slot, now_ns, &teller);
        }
        progress |= node.poll(now_ns, &mut doors);
        while let Some(event) = node.session_event() {
            teller.tell(|| event.into());
        }
        progress |= transmit(&mut node, &mut station);
        if !ready {
            ready = open_doors(&mut doors, &station.sleeper)?;
        }
        let Station { links, signals, sleeper, .. } = &mut station;
        let show = || doors.stat(name, now_ns, &node, links);
        progress |= control.poll(now_ns, sleeper, &mut |request| {
            Fabric::answer(fabric.as_mut(), now_ns, &request, None, show)
        });
        if signals.report() {
            show().log();
        }
        station.end_round(progress, || {
            let fabric_ns = fabric.as_ref().map(|fabric| fabric.deadline_ns(now_ns));
            [node.deadline_ns(), control.deadline_ns(), fabric_ns].into_iter().flatten().min()
        })?;
    }
    if let Some(fabric) = &mut fabric {
        fabric.leave(station.clock.now_ns(), &mut station.links);
    }
    control.stop(station.clock.now_ns(), &mut |request| {
        let now_ns = station.clock.now_ns();
        let show = || doors.stat(name, now_ns, &node, &station.links);
        Fabric::answer(fabric.as_mut(), now_ns, &request, None, show)
    });
    // A session that is closed counts no more.
    doors.stat(name, station.clock.now_ns(), &node, &station.links).log();
    node.close();
    while !node.is_closed() {
        let (now_ns, came) =
            station.receive(&mut |now_ns, from, frame| node.receive(now_ns, from, frame, &mut doors));
        let progress = came | node.poll(now_ns, &mut doors) | transmit(&mut node, &mut station);
        station.end_round(progress, || node.deadline_ns())?;
    }
    tracing::info!("stopped");
    Ok(())
}

fn give_route(
    node: &mut HostNode<Via>,
    slot: usize,
    name: Name,
    first: Via,
    further: &[Via],
) -> Result<(), StartError> {
    if node.route(slot, name, first, further) {
        return Ok(());
    }
    let reason = format!("the host has too many slots for devices of the box at {first}");
    Err(StartError::Device { device: name.as_str().to_owned(), reason })
}

/// The directory may tell where devices are whose boxes were not named, and whether one may be had by now.
fn find_devices(fabric: &Fabric, node: &mut HostNode<Via>, doors: &Doors) -> Result<(), StartError> {
    for (slot, door) in doors.0.iter().enumerate() {
        if let Some(found) = fabric.find(&door.options.wanted) {
            if door.options.routes.is_none()
                && let Some((first, further)) = found.ways.split_first()
            {
                give_route(node, slot, found.name, *first, further)?;
            }
            if found.is_to_be_had {
                node.ask_again(slot);
            }
        }
    }
    Ok(())
}

/// Watches the sockets that have been opened; true once all of them are.
fn open_doors(doors: &mut Doors, sleeper: &Sleeper) -> Result<bool, StartError> {
    if let Some(error) = doors.0.iter_mut().find_map(|door| door.failed.take()) {
        return Err(error);
    }
    let servers: Vec<&Server> = doors.0.iter().filter_map(|door| door.server.as_ref()).collect();
    if servers.len() < doors.0.len() {
        return Ok(false);
    }
    for server in servers {
        sleeper.watch(server.fd())?;
    }
    tracing::info!("ready");
    Ok(true)
}

fn transmit(node: &mut HostNode<Via>, Station { clock, links, .. }: &mut Station) -> bool {
    node.transmit(clock.now_ns(), &mut |to, frames| links.send(to, frames))
}
