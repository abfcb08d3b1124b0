//! The guests' sides of the slots: their sockets, and what the node asks of guests.

use std::sync::Arc;

use etherslot_node::{Device, Guest, HostNode, Interrupt, Interrupts as GuestInterrupts};
use etherslot_vfio_user::message::{irq, region};
use etherslot_vfio_user::{DeviceInfo, Keeper, MessageId, RegionInfo, Server};

use super::handler::SlotHandler;
use crate::StartError;
use crate::events::{Event, SlotChange, Teller};
use crate::fabric::Which;
use crate::options::{Interrupts, SlotOptions, Via};
use crate::plug::{Move, Plugs};
use crate::sleeper::Sleeper;

const CONFIG_BYTES: u64 = 4096;

/// The guest's side of a slot: its socket, once the device is known.
pub(super) struct Door {
    pub(super) options: SlotOptions,
    /// What a slot for any device has now.
    pub(super) held: Option<Which>,
    server: Option<Server>,
    is_watched: bool,
    failed: Option<StartError>,
    waiting: Waiting,
    keeper: Option<Arc<Keeper>>,
}

/// The guest's messages that wait for the device, by the numbers under which the node knows them.
#[derive(Default)]
pub(super) struct Waiting {
    messages: Vec<(u64, MessageId)>,
    next: u64,
}

impl Waiting {
    pub(super) fn add(&mut self, id: MessageId) -> u64 {
        self.next += 1;
        self.messages.push((self.next, id));
        self.next
    }

    pub(super) fn take(&mut self, number: u64) -> Option<MessageId> {
        let at = self.messages.iter().position(|&(known, _)| known == number)?;
        Some(self.messages.swap_remove(at).1)
    }

    /// Whoever asked is gone.
    pub(super) fn clear(&mut self) {
        self.messages.clear();
    }
}

impl Door {
    fn new(options: SlotOptions, keeper: Option<Arc<Keeper>>) -> Self {
        Self {
            options,
            held: None,
            server: None,
            is_watched: false,
            failed: None,
            waiting: Waiting::default(),
            keeper,
        }
    }

    /// What a guest is told of the device.
    fn info(&self, device: &Device) -> DeviceInfo {
        let msix = if self.options.interrupts == Interrupts::MsiX { device.msix_vectors } else { 0 };
        let mut info = DeviceInfo::default();
        for (region, bytes) in device.bar_bytes.into_iter().enumerate().filter(|&(_, bytes)| bytes != 0) {
            info.regions[region] = RegionInfo::read_write(bytes);
        }
        info.regions[region::CONFIG as usize] = RegionInfo::read_write(CONFIG_BYTES);
        info.irqs[irq::INTX as usize] = u32::from(device.intx);
        info.irqs[irq::MSI as usize] = u32::from(device.msi_vectors);
        info.irqs[irq::MSIX as usize] = u32::from(msix);
        info
    }

    /// Opens the socket for a device that was attached; a guest that comes from now on finds this device.
    fn open(&mut self, device: &Device) {
        let info = self.info(device);
        if let Some(server) = self.server.as_mut().filter(|server| !server.is_connected()) {
            if let Err(error) = server.set_info(info) {
                tracing::error!(device = self.options.device, %error, "no guest can be told of this device");
            }
        } else if self.server.is_none() {
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

    /// Serves the guest. True if there was something to do.
    fn poll(&mut self, node: &mut HostNode<Via>, slot: usize, now_ns: u64, teller: &Teller) -> bool {
        let Some(server) = &mut self.server else { return false };
        let waiting = &mut self.waiting;
        let mut handler = SlotHandler {
            node,
            waiting,
            slot,
            now_ns,
            irqs_changed: false,
            released: false,
            connected: false,
        };
        let progress = server.poll(&mut handler);
        let SlotHandler { irqs_changed, released, connected, .. } = handler;
        if connected || released {
            let device = &self.options.device;
            teller.tell(|| Event::Guest {
                slot,
                device: device.clone(),
                is_connected: connected && !released,
            });
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
        if !server.is_connected() && node.is_strange(slot) {
            node.vacate(slot, now_ns);
        }
        progress
    }
}

/// All guests of the host node.
pub(super) struct Doors {
    all: Vec<Door>,
    plugs: Plugs,
    teller: Teller,
    /// All sockets that guests need at their start are open.
    is_ready: bool,
}

impl Doors {
    pub(super) fn new(
        slots: Vec<SlotOptions>,
        keeper: Option<&Arc<Keeper>>,
        teller: Teller,
    ) -> Result<Self, StartError> {
        let mut plugs = Plugs::new();
        let mut doors = Vec::new();
        for mut slot in slots {
            let path = std::path::absolute(&slot.socket)?.display().to_string();
            plugs.add(slot.hot_plug.take(), path);
            doors.push(Door::new(slot, keeper.cloned()));
        }
        Ok(Self { all: doors, plugs, teller, is_ready: false })
    }

    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = &Door> {
        self.all.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Door> {
        self.all.iter_mut()
    }

    /// What is wrong with the guests' sides.
    pub(super) fn wrong(&self) -> Vec<String> {
        let mut wrong = self.plugs.wrong();
        wrong.extend(self.all.iter().filter_map(|door| {
            let why = door.server.as_ref()?.complaint()?;
            Some(format!("{} can't reach the memory of its guest, which hangs: {why}", door.options.device))
        }));
        wrong
    }

    /// Where the device of a slot is, in a word.
    pub(super) fn stage(&self, slot: usize) -> Option<&'static str> {
        self.plugs.stage(slot)
    }

    /// Serves the guests, and brings devices into them and out of them. True if there was something to do.
    pub(super) fn poll(
        &mut self,
        node: &mut HostNode<Via>,
        now_ns: u64,
        sleeper: &Sleeper,
    ) -> Result<bool, StartError> {
        let mut progress = false;
        for (slot, door) in self.all.iter_mut().enumerate() {
            progress |= door.poll(node, slot, now_ns, &self.teller);
        }
        let Self { all, plugs, .. } = self;
        let is_connected = |slot: usize| all[slot].server.as_ref().is_some_and(Server::is_connected);
        progress |= plugs.poll(now_ns, sleeper, &is_connected);
        while let Some((slot, moved)) = self.plugs.take_move() {
            let Move::Out { is_recalled } = moved else {
                self.tell(slot, SlotChange::Plugged);
                continue;
            };
            self.tell(slot, SlotChange::Unplugged);
            if is_recalled {
                node.release(slot, self);
            }
            node.vacate(slot, now_ns);
        }
        self.watch(sleeper)?;
        Ok(progress)
    }

    fn tell(&self, slot: usize, what: SlotChange) {
        let device = &self.all[slot].options.device;
        self.teller.tell(|| Event::Slot { slot, device: device.clone(), what });
    }

    pub(super) fn deadline_ns(&self) -> Option<u64> {
        self.plugs.deadline_ns()
    }

    /// Watches the sockets that have been opened.
    fn watch(&mut self, sleeper: &Sleeper) -> Result<(), StartError> {
        for door in &mut self.all {
            if let Some(error) = door.failed.take() {
                return Err(error);
            }
            if let Some(server) = door.server.as_ref().filter(|_| !door.is_watched) {
                sleeper.watch(server.fd())?;
                door.is_watched = true;
            }
        }
        let mut doors = self.all.iter().enumerate();
        if !self.is_ready && doors.all(|(slot, door)| door.is_watched || self.plugs.has(slot)) {
            self.is_ready = true;
            tracing::info!("ready");
        }
        Ok(())
    }
}

impl Guest for Doors {
    fn read(&mut self, slot: usize, address: u64, data: &mut [u8]) -> bool {
        self.all[slot].server.as_ref().is_some_and(|server| server.memory().read(address, data).is_ok())
    }

    fn write(&mut self, slot: usize, address: u64, data: &[u8]) -> bool {
        self.all[slot].server.as_ref().is_some_and(|server| server.memory().write(address, data).is_ok())
    }

    fn interrupt(&mut self, slot: usize, interrupt: Interrupt) {
        let Some(server) = &mut self.all[slot].server else { return };
        match interrupt {
            Interrupt::IntX(level) => server.set_intx_level(level),
            Interrupt::Message(vector) => {
                let index = if server.irqs_assigned(irq::MSIX) != 0 { irq::MSIX } else { irq::MSI };
                server.trigger(index, u32::from(vector))
            }
        };
    }

    fn completed(&mut self, slot: usize, access: u64, data: &[u8]) {
        let door = &mut self.all[slot];
        if let (Some(id), Some(server)) = (door.waiting.take(access), &mut door.server) {
            if data.is_empty() {
                server.reply_done(id)
            } else {
                server.reply_read(id, data)
            };
        }
    }

    fn attached(&mut self, slot: usize, device: &Device) {
        self.all[slot].open(device);
        self.plugs.attached(slot);
        self.tell(slot, SlotChange::Attached);
    }

    fn recalled(&mut self, slot: usize, window_ns: u64) -> bool {
        let is_asked = self.plugs.recalled(slot);
        if is_asked {
            let device = &*self.all[slot].options.device;
            tracing::info!(device, within_ms = window_ns / 1_000_000, "the box wants the device back");
        }
        is_asked
    }

    fn kept(&mut self, slot: usize) {
        tracing::info!(device = self.all[slot].options.device, "the box leaves the device here");
        self.plugs.kept(slot);
    }

    fn lost(&mut self, slot: usize) {
        self.plugs.lost(slot);
        self.tell(slot, SlotChange::Detached);
    }
}
