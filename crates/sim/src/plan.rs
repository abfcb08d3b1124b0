//! What a seed decides about its run: who is there, how the network is, what goes wrong and when, what the guests do.
//!
//! Each seed of the default mix picks at random which faults there are at all and how strong they are ("swarm testing"):
//! faults that are always on hide what only their absence shows.

use std::fmt;
use std::str::FromStr;

use etherslot_devices::sata::SIL3132_PORTS;

use crate::network::{Burst, Faults, NetworkPlan};
use crate::random::Random;

/// Kinds of runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    /// Nothing goes wrong.
    Clean,
    /// Frames are lost, damaged, doubled, late and out of order; no driver may notice.
    Lossy,
    /// Nodes do not reach each other for a while, or stand still.
    Partitions,
    /// Boxes, hosts and guests are killed or stopped, and come back.
    Restarts,
    /// Frames are forged between nodes without keys; only safety is judged.
    Hostile,
    /// Frames are forged between nodes with keys, on a faulty network; no driver may notice.
    Stranger,
    /// Any of the above but forged frames.
    Swarm,
}

impl Scenario {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Clean,
        Self::Lossy,
        Self::Partitions,
        Self::Restarts,
        Self::Hostile,
        Self::Stranger,
        Self::Swarm,
    ];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Clean => "clean",
            Self::Lossy => "lossy",
            Self::Partitions => "partitions",
            Self::Restarts => "restarts",
            Self::Hostile => "hostile",
            Self::Stranger => "stranger",
            Self::Swarm => "swarm",
        }
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Scenario {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|scenario| scenario.name() == text).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|scenario| scenario.name()).collect();
            format!("no such scenario; there are {}", names.join(", "))
        })
    }
}

/// What the devices of a run are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Devices {
    /// NVMe controllers.
    Nvme,
    /// SATA controllers, of AHCI or a Silicon Image 3132.
    Sata,
    /// Network controllers, of Intel's 82576.
    Network,
}

impl Devices {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Nvme, Self::Sata, Self::Network];

    /// Their name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nvme => "nvme",
            Self::Sata => "sata",
            Self::Network => "network",
        }
    }
}

impl fmt::Display for Devices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Devices {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|devices| devices.name() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::name);
            format!("no such devices; there are {}", names.join(", "))
        })
    }
}

/// What a device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeviceKind {
    /// An NVMe controller.
    Nvme,
    /// A SATA controller by AHCI; its namespaces are disks.
    Ahci,
    /// A Silicon Image 3132; the same.
    Sil3132,
    /// An 82576, at whose cable is a station that sends every frame back.
    E82576,
}

/// How a guest is interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InterruptPlan {
    /// MSI-X.
    MsiX,
    /// MSI.
    Msi,
    /// INTA.
    IntX,
    /// Not at all: it looks.
    Polling,
}

/// A guest and its work.
#[derive(Clone, Debug)]
pub(crate) struct GuestPlan {
    /// Address of its memory.
    pub(crate) memory_base: u64,
    /// Pages of it.
    pub(crate) memory_pages: usize,
    /// Where BARs may be.
    pub(crate) bar_base: u64,
    /// Interrupts.
    pub(crate) interrupts: InterruptPlan,
    /// MSI vectors that it has, a power of two.
    pub(crate) msi_vectors: u16,
    /// MPS and MRRS of Device Control, in place.
    pub(crate) device_control: u32,
    /// Its hypervisor resets the device at the start.
    pub(crate) reset_first: bool,
    /// I/O queue pairs.
    pub(crate) queue_pairs: u16,
    /// Entries of an I/O queue.
    pub(crate) queue_entries: u16,
    /// All I/O submission queues have one completion queue.
    pub(crate) shared_completions: bool,
    /// Commands under way at once.
    pub(crate) depth: usize,
    /// Commands to do.
    pub(crate) commands: u32,
    /// Commands of a burst at most.
    pub(crate) burst: u32,
    /// From one burst to the next, ns.
    pub(crate) pause_ns: (u64, u64),
    /// Bytes of a command at most.
    pub(crate) max_bytes: usize,
    /// Half of the commands go to so many blocks.
    pub(crate) hot_blocks: u64,
    /// How often commands may overlap.
    pub(crate) overlap_percent: u32,
    /// How often a doorbell is rung after a command, and not after several.
    pub(crate) doorbell_percent: u32,
    /// How often a data pointer is an SGL.
    pub(crate) sgl_percent: u32,
    /// How often a write has FUA.
    pub(crate) fua_percent: u32,
    /// Weight of Flush; reads and writes have 40 each.
    pub(crate) flush_weight: u32,
    /// The volatile write cache is switched off.
    pub(crate) cache_off: bool,
    /// I/O submission queues are in the controller's memory buffer, if it has one.
    pub(crate) use_buffer: bool,
    /// How often a command under way is aborted between bursts.
    pub(crate) abort_running_percent: u32,
    /// How often admin commands come between bursts.
    pub(crate) admin_percent: u32,
    /// How often the controller is reset between bursts, in a million.
    pub(crate) reset_ppm: u32,
    /// How often a command that takes too long is aborted first.
    pub(crate) abort_percent: u32,
    /// How often recovery begins with FLR.
    pub(crate) function_reset_percent: u32,
    /// How often recovery begins with a reset from outside.
    pub(crate) bus_reset_percent: u32,
    /// Times that it sets the device up, looks at all of it and shuts it down.
    pub(crate) looks: u32,
    /// Another program reads configuration space and registers meanwhile.
    pub(crate) prober: bool,
    /// Another program writes to configuration space and registers at random.
    pub(crate) vandal: bool,
    /// Its device's media fail at times.
    pub(crate) media_faults: bool,
    /// Trouble is a violation.
    pub(crate) transparent: bool,
}

/// Namespace of a device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NamespacePlan {
    /// 512 or 4096.
    pub(crate) block_bytes: u32,
    /// Blocks.
    pub(crate) blocks: u64,
}

/// A device.
#[derive(Clone, Debug)]
pub(crate) struct DevicePlan {
    /// What it is.
    pub(crate) kind: DeviceKind,
    /// Which box it is in.
    pub(crate) node: usize,
    /// Its namespaces.
    pub(crate) namespaces: Vec<NamespacePlan>,
    /// What its medium takes for a read, a write, a flush, and at most more, ns.
    pub(crate) latency_ns: [u64; 4],
    /// Requests that its medium takes at once.
    pub(crate) medium_depth: usize,
    /// Tags that it has.
    pub(crate) tags: u16,
    /// Commands that its controller works on at once.
    pub(crate) commands: u16,
    /// Bytes of its controller's memory buffer, if it has one.
    pub(crate) buffer_bytes: Option<usize>,
    /// Some accesses to its media fail.
    pub(crate) media_faults: bool,
    /// Bytes of its largest command, a power of two.
    pub(crate) max_transfer_bytes: usize,
    /// Its buffers for large and for small commands.
    pub(crate) buffers: (usize, usize),
}

/// What is wrong, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disaster {
    /// A box is killed, and started again after so many ns; the caches of its media are lost or not.
    KillBox(usize, u64, bool),
    /// A box is stopped in good order, and started again after so many ns.
    StopBox(usize, u64),
    /// A host is killed with its guests, and started again after so many ns.
    KillHost(usize, u64),
    /// A host is stopped in good order with its guests, and started again after so many ns.
    StopHost(usize, u64),
    /// A guest is killed, and started again after so many ns. Host and slot.
    KillGuest(usize, usize, u64),
    /// Two nodes do not reach each other for so many ns; only one way if true.
    Cut(usize, usize, u64, bool),
    /// Frames to and from a node take longer by ns, for ns.
    SlowDown(usize, u64, u64),
    /// A node stands still for so many ns.
    Pause(usize, u64),
}

/// A disaster and when it comes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Planned {
    /// When all guests together have submitted so many commands,
    pub(crate) after_commands: u64,
    /// and so many ns later.
    pub(crate) delay_ns: u64,
    /// What.
    pub(crate) disaster: Disaster,
}

/// Set-up of a node's sessions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionPlan {
    /// Go-Back-N wanted.
    pub(crate) classic: bool,
    /// The largest frame that its Port carries.
    pub(crate) max_frame_bytes: u16,
    /// Window, frames.
    pub(crate) window_frames: u16,
    /// Frames that may wait for their first transmission.
    pub(crate) backlog_frames: u16,
    /// First sequence.
    pub(crate) first_sequence: u32,
    /// Frames that an acknowledgement may answer, and how long it may wait, ns.
    pub(crate) ack: (u16, u64),
    /// Silence after which a peer is dead, ns.
    pub(crate) dead_after_ns: u64,
    /// Silence after which a peer is asked for a sign of life, ns.
    pub(crate) heartbeat_ns: u64,
    /// Retransmission timeout's floor, ns.
    pub(crate) rto_min_ns: u64,
    /// What its clock shows at the beginning of time, ns.
    pub(crate) clock_ns: u64,
    /// What a frame costs the node's processor, ns.
    pub(crate) frame_cost_ns: u64,
    /// Frames that its receive queue holds.
    pub(crate) receive_frames: usize,
}

/// All of a run. Nodes are boxes first, then hosts.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// The seed.
    pub(crate) seed: u64,
    /// Boxes.
    pub(crate) boxes: usize,
    /// Hosts.
    pub(crate) hosts: usize,
    /// Network.
    pub(crate) network: NetworkPlan,
    /// One a node.
    pub(crate) sessions: Vec<SessionPlan>,
    /// Devices.
    pub(crate) devices: Vec<DevicePlan>,
    /// For each device, the host whose guest uses it, and the guest.
    pub(crate) guests: Vec<(usize, GuestPlan)>,
    /// What goes wrong.
    pub(crate) disasters: Vec<Planned>,
    /// Nothing goes wrong from here on.
    pub(crate) calm_ns: u64,
    /// Somebody forges frames.
    pub(crate) attacker: bool,
    /// The nodes have keys.
    pub(crate) keys: bool,
}

const MILLISECOND_NS: u64 = 1_000_000;

impl Plan {
    /// Somebody forges frames, and nothing keeps him from it.
    pub(crate) fn is_lawless(&self) -> bool {
        self.attacker && !self.keys
    }

    /// What `seed` decides, with such devices.
    pub(crate) fn of(seed: u64, scenario: Scenario, devices: Devices) -> Self {
        let mut plan = Self::new(seed, scenario);
        match devices {
            Devices::Nvme => {}
            Devices::Sata => plan_sata(&mut plan),
            Devices::Network => plan_network(&mut plan),
        }
        plan
    }

    /// What `seed` decides.
    pub(crate) fn new(seed: u64, scenario: Scenario) -> Self {
        let source = Random::new(seed);
        let random = &mut source.fork("plan", 0);
        // A long run takes 16-bit numbers round.
        let long = random.percent(1);
        let boxes = if long || random.percent(75) { 1 } else { 2 };
        let hosts = if long { 1 } else { random.range(1, 3) as usize };
        let more = if long || random.percent(60) { 0 } else { random.range(1, 2) as usize };
        let device_count = hosts + more;
        let disasters = matches!(scenario, Scenario::Restarts | Scenario::Partitions)
            || scenario == Scenario::Swarm && random.percent(60);
        let transparent = !disasters && scenario != Scenario::Hostile;

        let jumbo = random.percent(50);
        let mtu = if jumbo { 9000 } else { 1500 };
        let faulty = match scenario {
            Scenario::Clean => false,
            Scenario::Lossy | Scenario::Hostile | Scenario::Stranger => true,
            Scenario::Partitions | Scenario::Restarts => random.percent(50),
            Scenario::Swarm => random.percent(80),
        };
        let faults = if faulty { plan_faults(random, scenario) } else { Faults::default() };
        let network = NetworkPlan {
            rate_bps: random.magnitude(1_000_000_000, 100_000_000_000),
            delay_ns: random.magnitude(500, 250_000),
            jitter_ns: if random.percent(50) { 0 } else { random.magnitude(100, 20_000) },
            transmit_frames: random.magnitude(8, 512) as usize,
            switch_bytes: random.magnitude(128_000, 4_000_000),
            mtu,
            faults,
        };
        let sessions: Vec<_> = (0..boxes + hosts).map(|_| plan_session(random, mtu)).collect();
        let devices: Vec<_> = (0..device_count).map(|index| plan_device(random, index, boxes)).collect();
        let commands = if long { 20_000 } else { random.magnitude(50, 800) as u32 };
        let mut guests = Vec::new();
        for (index, device) in devices.iter().enumerate() {
            let mut guest = plan_guest(random, device, commands / device_count as u32, transparent);
            if long {
                guest.max_bytes = 131_072;
                guest.depth = guest.depth.max(8);
                guest.burst = 1_000;
                guest.pause_ns = (1_000, 10_000);
                (guest.reset_ppm, guest.abort_running_percent) = (0, 0);
            }
            guest.vandal = scenario == Scenario::Hostile && random.percent(50);
            guests.push((index % hosts, guest));
        }
        let total: u64 = guests.iter().map(|(_, guest)| u64::from(guest.commands)).sum();
        let count = if disasters { random.range(1, 4) } else { 0 };
        let disasters = (0..count)
            .map(|_| {
                // During the work, or while devices are found and set up.
                let (after_commands, longest_ns) = match random.below(4) {
                    0 => (0, 100 * MILLISECOND_NS),
                    1 => (random.range(1, total.max(1)), 3_000 * MILLISECOND_NS),
                    _ => (random.range(1, total.max(1)), 2 * MILLISECOND_NS),
                };
                Planned {
                    after_commands,
                    delay_ns: random.magnitude(1_000, longest_ns),
                    disaster: plan_disaster(random, scenario, boxes, hosts, device_count.div_ceil(hosts)),
                }
            })
            .collect();
        Self {
            seed,
            boxes,
            hosts,
            network,
            sessions,
            devices,
            guests,
            disasters,
            calm_ns: if scenario == Scenario::Hostile {
                1_500 * MILLISECOND_NS
            } else {
                random.range(3_000, 12_000) * MILLISECOND_NS
            },
            attacker: matches!(scenario, Scenario::Hostile | Scenario::Stranger),
            // Of a fork: the rest of the plan is as without keys.
            keys: match scenario {
                Scenario::Hostile => false,
                Scenario::Stranger => true,
                _ => source.fork("keys", 0).percent(25),
            },
        }
    }
}

/// Puts BARs where those with 32 bits can be.
fn low_bars(guest: &mut GuestPlan) {
    let low = [0x8000_0000, 0xFE00_0000];
    if !low.contains(&guest.bar_base) {
        guest.bar_base = low[usize::from(guest.memory_base == low[0])];
    }
}

/// Makes network controllers of a plan's devices.
fn plan_network(plan: &mut Plan) {
    for (device, (_, guest)) in plan.devices.iter_mut().zip(&mut plan.guests) {
        device.kind = DeviceKind::E82576;
        device.media_faults = false;
        guest.media_faults = false;
        low_bars(guest);
    }
}

/// Makes SATA controllers of a plan's devices.
fn plan_sata(plan: &mut Plan) {
    // Of a fork: the rest of the plan is as with NVMe controllers.
    let random = &mut Random::new(plan.seed).fork("sata", 0);
    for (device, (_, guest)) in plan.devices.iter_mut().zip(&mut plan.guests) {
        device.kind = random.pick(&[DeviceKind::Ahci, DeviceKind::Sil3132]);
        if device.kind == DeviceKind::Sil3132 {
            device.namespaces.truncate(SIL3132_PORTS);
        }
        if guest.interrupts == InterruptPlan::MsiX {
            guest.interrupts = InterruptPlan::Msi;
        }
        low_bars(guest);
        let smallest = device.namespaces.iter().map(|namespace| namespace.blocks).min();
        guest.hot_blocks = guest.hot_blocks.min(smallest.unwrap_or(1));
    }
}

fn plan_faults(random: &mut Random, scenario: Scenario) -> Faults {
    let hostile = scenario == Scenario::Hostile;
    let mut some = |high: u64| if random.percent(50) { random.magnitude(100, high) as u32 } else { 0 };
    let (loss_ppm, duplicate_ppm, reorder_ppm, corrupt_ppm) =
        (some(50_000), some(50_000), some(100_000), some(20_000));
    let burst = random.percent(35).then(|| Burst {
        begins_ppm: random.magnitude(100, 4_000) as u32,
        lasts_ns: random.magnitude(10_000, 5 * MILLISECOND_NS),
        loss_ppm: random.magnitude(300_000, 1_000_000) as u32,
    });
    Faults {
        loss_ppm,
        burst,
        duplicate_ppm,
        reorder_ppm,
        reorder_ns: random.magnitude(1_000, 2 * MILLISECOND_NS),
        corrupt_ppm,
        // The frames' own check finds what the links let through.
        deliver_corrupt: hostile || random.percent(50),
        replay_ppm: if hostile || random.percent(25) { random.magnitude(100, 20_000) as u32 } else { 0 },
        replay_ns: random.magnitude(MILLISECOND_NS, 3_000 * MILLISECOND_NS),
    }
}

fn plan_session(random: &mut Random, mtu: u16) -> SessionPlan {
    SessionPlan {
        max_frame_bytes: if random.percent(80) { mtu } else { random.range(576, u64::from(mtu)) as u16 },
        classic: random.percent(25),
        window_frames: random.magnitude(16, 512) as u16,
        backlog_frames: random.magnitude(4, 64) as u16,
        first_sequence: if random.percent(50) {
            u32::MAX - random.below(200) as u32
        } else {
            random.bits() as u32
        },
        ack: if random.percent(50) {
            (2, 50_000)
        } else {
            (random.range(1, 16) as u16, random.magnitude(1_000, 200_000))
        },
        dead_after_ns: if random.percent(60) {
            1_000 * MILLISECOND_NS
        } else {
            random.magnitude(300, 1_500) * MILLISECOND_NS
        },
        heartbeat_ns: if random.percent(60) {
            100 * MILLISECOND_NS
        } else {
            random.magnitude(5, 200) * MILLISECOND_NS
        },
        rto_min_ns: random.magnitude(200_000, 10 * MILLISECOND_NS),
        clock_ns: random.bits() >> random.range(16, 40),
        frame_cost_ns: random.pick(&[0, 200, 1_000, 3_000, 20_000]),
        receive_frames: random.magnitude(128, 4096) as usize,
    }
}

fn plan_device(random: &mut Random, index: usize, boxes: usize) -> DevicePlan {
    let namespaces = (0..random.range(1, 3)).map(|_| {
        if random.percent(60) {
            NamespacePlan { block_bytes: 512, blocks: random.magnitude(64, 1024) }
        } else {
            NamespacePlan { block_bytes: 4096, blocks: random.magnitude(16, 128) }
        }
    });
    let namespaces = namespaces.collect();
    let latency_ns = if random.percent(30) {
        [0; 4]
    } else {
        let mut some = |high| random.magnitude(500, high);
        [some(200_000), some(100_000), some(2 * MILLISECOND_NS), some(300_000)]
    };
    DevicePlan {
        kind: DeviceKind::Nvme,
        node: index % boxes,
        namespaces,
        latency_ns,
        medium_depth: random.magnitude(2, 256) as usize,
        tags: random.pick(&[4, 32, 256, 256]),
        buffer_bytes: random.percent(25).then(|| 4096 << random.below(8)),
        media_faults: random.percent(15),
        commands: random.magnitude(16, 256) as u16,
        max_transfer_bytes: random.pick(&[16_384, 65_536, 131_072, 262_144]),
        buffers: (random.magnitude(2, 16) as usize, random.magnitude(2, 64) as usize),
    }
}

fn plan_guest(random: &mut Random, device: &DevicePlan, commands: u32, transparent: bool) -> GuestPlan {
    let smallest = device.namespaces.iter().map(|namespace| namespace.blocks).min().unwrap_or(1);
    let depth = random.magnitude(1, 64) as usize;
    // One guest's memory may be where another has its BARs.
    let bar_base = random.pick(&[0x8000_0000, 0xFE00_0000, 0x38_0000_0000, 0x7F_FFF0_0000]);
    let memory_base =
        random.pick(&[0x10_0000, 0xFFFF_C000, 0x40_0000_0000, 0x8000_0000, 0xFE00_0000, 0x38_0000_0000]);
    GuestPlan {
        // Low, across 4 GiB, and high: 3- and 4-DW headers.
        memory_base: if memory_base == bar_base { 0x10_0000 } else { memory_base },
        memory_pages: 1536,
        bar_base,
        interrupts: random.pick(&[
            InterruptPlan::MsiX,
            InterruptPlan::MsiX,
            InterruptPlan::MsiX,
            InterruptPlan::Msi,
            InterruptPlan::IntX,
            InterruptPlan::Polling,
        ]),
        msi_vectors: random.pick(&[1, 2, 8, 32]),
        device_control: (random.range(0, 5) << 5 | random.range(0, 5) << 12) as u32,
        reset_first: random.percent(50),
        queue_pairs: random.range(1, 4) as u16,
        queue_entries: random.magnitude(2, 128) as u16,
        shared_completions: random.percent(20),
        depth,
        commands: commands.max(4),
        burst: random.magnitude(1, 128) as u32,
        pause_ns: (1_000, random.magnitude(10_000, 200 * MILLISECOND_NS)),
        max_bytes: random.pick(&[4096, 16_384, 65_536, 131_072]),
        hot_blocks: random.magnitude(1, smallest),
        overlap_percent: random.pick(&[0, 10, 50]),
        doorbell_percent: random.pick(&[0, 30, 100]),
        sgl_percent: random.pick(&[0, 30, 80]),
        fua_percent: random.pick(&[0, 10, 40]),
        flush_weight: random.pick(&[0, 2, 10, 40]),
        cache_off: random.percent(15),
        use_buffer: random.percent(80),
        abort_running_percent: random.pick(&[0, 0, 20]),
        admin_percent: random.pick(&[0, 10, 50]),
        reset_ppm: if random.percent(25) { 50_000 } else { 0 },
        abort_percent: random.pick(&[0, 50]),
        function_reset_percent: random.pick(&[0, 30]),
        bus_reset_percent: random.pick(&[0, 30]),
        looks: if random.percent(20) { 2 } else { 1 },
        prober: random.percent(25),
        vandal: false,
        media_faults: device.media_faults,
        transparent,
    }
}

fn plan_disaster(
    random: &mut Random,
    scenario: Scenario,
    boxes: usize,
    hosts: usize,
    slots: usize,
) -> Disaster {
    let restarts = match scenario {
        Scenario::Restarts => true,
        Scenario::Partitions => false,
        _ => random.percent(60),
    };
    let the_box = random.below(boxes as u64) as usize;
    let host = random.below(hosts as u64) as usize;
    let away_ns = random.magnitude(MILLISECOND_NS, 3_000 * MILLISECOND_NS);
    if restarts {
        return match random.below(10) {
            0..=4 => Disaster::KillBox(the_box, away_ns, random.percent(70)),
            5 => Disaster::StopBox(the_box, away_ns),
            6 | 7 => Disaster::KillHost(host, away_ns),
            8 => Disaster::StopHost(host, away_ns),
            // A hypervisor can be started again at once.
            _ => {
                let away_ns = random.magnitude(1_000, 1_000 * MILLISECOND_NS);
                Disaster::KillGuest(host, random.below(slots as u64) as usize, away_ns)
            }
        };
    }
    let node = random.below((boxes + hosts) as u64) as usize;
    match random.below(10) {
        0..=5 => Disaster::Cut(the_box, boxes + host, away_ns, random.percent(30)),
        6 | 7 => Disaster::SlowDown(node, random.magnitude(10_000, 50 * MILLISECOND_NS), away_ns),
        _ => Disaster::Pause(node, random.magnitude(100_000, 1_500 * MILLISECOND_NS)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_decides_the_same_each_time_and_scenarios_keep_their_promise() {
        for seed in 0..200 {
            for scenario in Scenario::ALL {
                let plan = Plan::new(seed, scenario);
                assert_eq!(format!("{plan:?}"), format!("{:?}", Plan::new(seed, scenario)));
                let transparent = plan.disasters.is_empty() && scenario != Scenario::Hostile;
                assert!(plan.guests.iter().all(|(_, guest)| guest.transparent == transparent));
                assert!(plan.guests.iter().all(|&(host, _)| host < plan.hosts));
                assert_eq!(scenario.name().parse(), Ok(scenario));
            }
            assert!(Plan::new(seed, Scenario::Clean).network.faults.loss_ppm == 0);
        }
    }
}
