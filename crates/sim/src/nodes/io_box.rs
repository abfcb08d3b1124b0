//! An I/O box: its node, its devices, and the media that outlive both.

use std::cell::RefCell;
use std::rc::Rc;

use etherslot_devices::cable::cable;
use etherslot_devices::e82576::{Config as E82576Config, E82576};
use etherslot_devices::nvme::{Config as NvmeConfig, Namespace, Nvme};
use etherslot_devices::sata::{Ahci, Config as SataConfig, Drive, Sil3132};
use etherslot_node::{BoxLimits, BoxNode};
use etherslot_pci::endpoint::{Endpoint, EndpointConfig};
use etherslot_pci::function::Function;
use etherslot_storage::memory::{Disk, FaultOn, Latency, MemoryMedium, Options};
use etherslot_storage::{Medium, MediumError};
use etherslot_wire::control::Name;

use crate::checkers::Checks;
use crate::checkers::history::History;
use crate::checkers::order::Order;
use crate::checkers::verdict::Verdict;
use crate::network::Address;
use crate::nodes::station::Station;
use crate::nodes::{Inbox, Ran, Send, check_session, check_zero, rounds, security, session_config};
use crate::plan::{DeviceKind, DevicePlan, InterruptPlan, Plan};
use crate::random::Random;
use crate::tap::Tapped;

/// Ways to put something between the parts of a box: tests of the checkers break them on purpose.
#[derive(Clone, Copy)]
pub(crate) struct Hooks {
    /// Around each medium.
    pub(crate) medium: fn(MemoryMedium) -> Box<dyn Medium>,
    /// Around each device model.
    pub(crate) device: fn(Nvme) -> Box<dyn Function>,
}

impl Default for Hooks {
    fn default() -> Self {
        Self { medium: |medium| Box::new(medium), device: |device| Box::new(device) }
    }
}

/// A device of a box.
struct Device {
    name: Name,
    plan: DevicePlan,
    /// Its guest wants MSI-X, if it wants messages.
    msix: bool,
    disks: Vec<Disk>,
    /// At the other end of a network controller's cable.
    station: Option<Station>,
    /// Whether each frame that its guest sends has to come.
    is_gapless: bool,
    order: Rc<RefCell<Order>>,
    history: Rc<RefCell<History>>,
}

/// Frames that a cable holds each way.
const CABLE_FRAMES: usize = 64;

impl Device {
    /// The model, over the same media as before, or at a new cable.
    fn function(&mut self, number: usize, hooks: Hooks, verdict: &Rc<Verdict>) -> Box<dyn Function> {
        match self.plan.kind {
            DeviceKind::Nvme => (hooks.device)(self.nvme(hooks)),
            DeviceKind::Ahci | DeviceKind::Sil3132 => self.sata(hooks),
            DeviceKind::E82576 => {
                let (near, far) = cable(CABLE_FRAMES);
                let last = self.station.as_ref().and_then(Station::last);
                let name = format!("the station of {}", self.name.as_str());
                self.station = Some(Station::new(far, name, Rc::clone(verdict), last, self.is_gapless));
                let mac = [0x02, 0, 0, 0, 0x82, number as u8];
                let config = E82576Config { mac, cable: near };
                Box::new(E82576::new(config).expect("the plan is of a device that can be"))
            }
        }
    }

    fn nvme(&self, hooks: Hooks) -> Nvme {
        let namespaces =
            self.disks.iter().zip(&self.plan.namespaces).map(|(disk, namespace)| {
                Namespace::new((hooks.medium)(disk.medium()), namespace.block_bytes)
            });
        let config = NvmeConfig {
            serial: self.name.as_str().to_owned(),
            namespaces: namespaces.collect(),
            msix: self.msix,
            cmb_bytes: self.plan.buffer_bytes,
            commands: self.plan.commands,
            max_transfer_bytes: self.plan.max_transfer_bytes,
            large_buffers: self.plan.buffers.0,
            small_buffers: self.plan.buffers.1,
            ..NvmeConfig::default()
        };
        Nvme::new(config).expect("the plan is of a device that can be")
    }

    fn sata(&self, hooks: Hooks) -> Box<dyn Function> {
        let drives =
            self.disks.iter().zip(&self.plan.namespaces).enumerate().map(|(port, (disk, namespace))| {
                let serial = format!("{}-{port}", self.name.as_str());
                Some(Drive {
                    serial,
                    medium: (hooks.medium)(disk.medium()),
                    block_bytes: namespace.block_bytes,
                })
            });
        let config = SataConfig { ports: drives.collect(), ..SataConfig::default() };
        if self.plan.kind == DeviceKind::Ahci {
            Box::new(Ahci::new(config).expect("the plan is of a device that can be"))
        } else {
            Box::new(Sil3132::new(config).expect("the plan is of a device that can be"))
        }
    }
}

/// A box.
pub(crate) struct IoBox {
    node: Option<BoxNode<Address>>,
    /// What the network brought.
    pub(crate) inbox: Inbox,
    index: usize,
    devices: Vec<Device>,
    hooks: Hooks,
    verdict: Rc<Verdict>,
    random: Random,
    healed: bool,
    /// What its clock shows at the beginning of time.
    clock_ns: u64,
    window_frames: usize,
}

/// The name of device number `index`.
///
/// # Panics
/// Never: the name is short.
pub(crate) fn device_name(index: usize) -> Name {
    Name::new(&format!("nvme{index}")).expect("a short name")
}

impl IoBox {
    /// Box number `index`, stopped.
    pub(crate) fn new(
        plan: &Plan,
        index: usize,
        checks: &[Checks],
        hooks: Hooks,
        verdict: Rc<Verdict>,
    ) -> Self {
        let random = Random::new(plan.seed).fork("box", index as u64);
        let mut devices = Vec::new();
        for (number, device) in plan.devices.iter().enumerate().filter(|(_, device)| device.node == index) {
            let [read_ns, write_ns, flush_ns, jitter_ns] = device.latency_ns;
            let disk = |(at, namespace): (usize, &crate::plan::NamespacePlan)| {
                Disk::new(Options {
                    block_bytes: namespace.block_bytes,
                    bytes: u64::from(namespace.block_bytes) * namespace.blocks,
                    latency: Latency { read_ns, write_ns, flush_ns, jitter_ns },
                    depth: device.medium_depth,
                    seed: random.fork("disk", (number * 16 + at) as u64).bits(),
                    ..Options::default()
                })
            };
            let Checks { order, history } = &checks[number];
            let guest = &plan.guests[number].1;
            devices.push(Device {
                name: device_name(number),
                plan: device.clone(),
                msix: guest.interrupts != InterruptPlan::Msi,
                station: None,
                is_gapless: guest.transparent && guest.reset_ppm == 0,
                disks: device.namespaces.iter().enumerate().map(disk).collect(),
                order: Rc::clone(order),
                history: Rc::clone(history),
            });
        }
        let receive_frames = plan.sessions[index].receive_frames;
        let window_frames =
            plan.sessions.iter().map(|session| session.window_frames).max().unwrap_or(0) as usize;
        Self {
            node: None,
            inbox: Inbox::new(receive_frames),
            index,
            devices,
            hooks,
            verdict,
            random,
            healed: false,
            clock_ns: plan.sessions[index].clock_ns,
            window_frames,
        }
    }

    /// Starts it: new devices over the same media.
    ///
    /// # Panics
    /// If the plan asks for a device that cannot be.
    pub(crate) fn start(&mut self, plan: &Plan) {
        let hooks = self.hooks;
        let verdict = &self.verdict;
        let functions = self.devices.iter_mut().enumerate().map(|(number, device)| {
            let tapped = Tapped::new(device.function(number, hooks, verdict), Rc::clone(&device.order));
            let config = EndpointConfig { tags: device.plan.tags, ..EndpointConfig::default() };
            (device.name, Box::new(Endpoint::new(Box::new(tapped), config)))
        });
        let functions = functions.collect();
        self.spoil();
        let config = session_config(plan, self.index);
        let seed = self.random.bits();
        let mut node = BoxNode::new(&config, BoxLimits::default(), seed, functions);
        if let Some(security) = security(plan, self.index, &mut self.random) {
            node.protect(security);
        }
        self.node = Some(node);
        self.inbox.clear();
    }

    /// Makes some accesses to the media fail, as the plan says.
    fn spoil(&mut self) {
        for device in self.devices.iter().filter(|device| device.plan.media_faults && !self.healed) {
            for (disk, namespace) in device.disks.iter().zip(&device.plan.namespaces) {
                let block_bytes = u64::from(namespace.block_bytes);
                for on in [FaultOn::Read, FaultOn::Write, FaultOn::Flush] {
                    let first = self.random.below(namespace.blocks);
                    let blocks = self.random.magnitude(1, namespace.blocks - first);
                    let range = first * block_bytes..(first + blocks) * block_bytes;
                    disk.fail(on, range, MediumError::Failed, self.random.magnitude(1, 20) as u32);
                }
            }
        }
    }

    /// The media do not fail any more.
    pub(crate) fn heal(&mut self) {
        self.healed = true;
        self.devices.iter().flat_map(|device| &device.disks).for_each(Disk::heal);
    }

    /// Whether it runs.
    pub(crate) fn is_running(&self) -> bool {
        self.node.is_some()
    }

    /// `kill -9`; `cache_is_lost` if the power failed, too.
    pub(crate) fn kill(&mut self, cache_is_lost: bool) {
        self.node = None;
        self.inbox.clear();
        for device in &mut self.devices {
            if cache_is_lost {
                device.disks.iter().for_each(Disk::crash);
            }
            device.history.borrow_mut().crash(cache_is_lost);
            device.order.borrow_mut().device_reset();
        }
    }

    /// Says goodbye and stops.
    pub(crate) fn stop(&mut self, now_ns: u64, send: &mut Send<'_>) {
        if let Some(node) = &mut self.node {
            node.close();
            node.transmit(now_ns + self.clock_ns, send);
        }
        self.kill(false);
    }

    /// Lets it run until it has nothing left to do now.
    pub(crate) fn run(&mut self, now_ns: u64, send: &mut Send<'_>) -> Ran {
        let now_ns = now_ns + self.clock_ns;
        let Some(node) = &mut self.node else { return Ran::default() };
        let (inbox, devices) = (&mut self.inbox, &mut self.devices);
        let ran = rounds(|| {
            let frames = inbox.receive(|from, frame| node.receive(now_ns, from, frame));
            let mut progress = node.poll(now_ns);
            for station in devices.iter_mut().filter_map(|device| device.station.as_mut()) {
                progress |= station.poll();
            }
            progress |= node.transmit(now_ns, send);
            (frames, progress)
        });
        for (host, session, hierarchy) in node.hosts() {
            check_session(&self.verdict, self.index, *host, session, self.window_frames);
            let counters = hierarchy.counters();
            let who = format!("the switch for {host}");
            check_zero(
                &self.verdict,
                &who,
                &[
                    ("stray TLPs", counters.stray),
                    ("malformed TLPs", counters.malformed),
                    ("spoofed TLPs", counters.spoofed),
                    ("trespassing TLPs", counters.trespassing),
                    ("overflows", counters.overflows),
                    ("TLPs between guests", counters.peer),
                ],
            );
        }
        ran
    }

    /// When it has to run though nothing happened.
    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        let deadline_ns = self.node.as_ref().and_then(BoxNode::deadline_ns)?;
        Some(deadline_ns.saturating_sub(self.clock_ns))
    }
}
