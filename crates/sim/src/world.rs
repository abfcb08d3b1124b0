//! The event loop of one run.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use crate::attacker::Attacker;
use crate::checkers::Checks;
use crate::checkers::history::History;
use crate::checkers::order::Order;
use crate::checkers::verdict::{Rule, Verdict, Violation, digest};
use crate::checkers::wire::{Frames, describe};
use crate::events::Events;
use crate::guest::machine::Progress;
use crate::network::{Address, Hop, Network, NetworkCounters};
use crate::nodes::host::Host;
use crate::nodes::io_box::{Hooks, IoBox};
use crate::nodes::{Ran, Send};
use crate::plan::{Devices, Disaster, Plan, Scenario};
use crate::random::Random;

/// After nothing goes wrong any more, everything has to end within this.
const LIVENESS_NS: u64 = 60_000_000_000;
/// What may still be on its way when the last guest is done.
const AFTERMATH_NS: u64 = 20_000_000;
/// A node that asks to run at once, time and again, and then does nothing.
const VAIN_RUNS: u32 = 1000;
/// More than any run needs.
const MOST_EVENTS: u64 = 20_000_000;

/// What a run came to.
#[derive(Clone, Debug)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// The kind of run.
    pub scenario: Scenario,
    /// What its devices were.
    pub devices: Devices,
    /// The rule that was broken, if one was.
    pub violation: Option<Violation>,
    /// A hash of everything that happened.
    pub hash: u64,
    /// Virtual time at the end, ns.
    pub virtual_ns: u64,
    /// Events.
    pub events: u64,
    /// What the guests did, all together.
    pub progress: Progress,
    /// What the network did.
    pub network: NetworkCounters,
}

enum Event {
    AtSwitch(Hop),
    Arrive(Hop),
    Wake(usize),
    Disaster(Disaster),
    StartBox(usize),
    StartHost(usize),
    StartGuest(usize, usize),
    Attack(Hop),
    Calm,
}

#[expect(clippy::large_enum_variant, reason = "there are few of them")]
enum Node {
    Box(IoBox),
    Host(Host),
}

impl Node {
    fn run(&mut self, now_ns: u64, send: &mut Send<'_>) -> Ran {
        match self {
            Self::Box(node) => node.run(now_ns, send),
            Self::Host(node) => node.run(now_ns, send),
        }
    }

    fn deadline_ns(&self) -> Option<u64> {
        match self {
            Self::Box(node) => node.deadline_ns(),
            Self::Host(node) => node.deadline_ns(),
        }
    }

    fn is_running(&self) -> bool {
        match self {
            Self::Box(node) => node.is_running(),
            Self::Host(node) => node.is_running(),
        }
    }

    fn take(&mut self, from: Address, frame: Vec<u8>) {
        match self {
            Self::Box(node) => node.inbox.push(from, frame),
            Self::Host(node) => node.inbox.push(from, frame),
        }
    }
}

/// When a node runs.
#[derive(Clone, Copy, Debug, Default)]
struct Schedule {
    /// It is busy, or stands still, until then.
    busy_until_ns: u64,
    /// The next time it runs by itself.
    wake_at_ns: Option<u64>,
    vain_runs: u32,
}

struct World {
    plan: Plan,
    verdict: Rc<Verdict>,
    now_ns: u64,
    events: Events<Event>,
    network: Network,
    frames: Frames,
    nodes: Vec<Node>,
    schedules: Vec<Schedule>,
    attacker: Option<Attacker>,
    disasters_done: Vec<bool>,
    calm: bool,
}

impl World {
    fn new(plan: Plan, hooks: Hooks, verdict: Rc<Verdict>) -> Self {
        let random = Random::new(plan.seed);
        let checks = plan.devices.iter().enumerate().map(|(index, device)| {
            let namespaces: Vec<_> = device
                .namespaces
                .iter()
                .map(|namespace| (namespace.block_bytes as usize, namespace.blocks))
                .collect();
            let order = Order::new(format!("nvme{index}"), Rc::clone(&verdict));
            let history = History::new(index as u64, &namespaces);
            Checks { order: Rc::new(RefCell::new(order)), history: Rc::new(RefCell::new(history)) }
        });
        let checks: Vec<_> = checks.collect();
        let boxes = (0..plan.boxes)
            .map(|index| Node::Box(IoBox::new(&plan, index, &checks, hooks, Rc::clone(&verdict))));
        let hosts =
            (0..plan.hosts).map(|index| Node::Host(Host::new(&plan, index, &checks, Rc::clone(&verdict))));
        let nodes: Vec<Node> = boxes.chain(hosts).collect();
        let network = Network::new(plan.network.clone(), nodes.len(), &random);
        let attacker = plan.attacker.then(|| Attacker::new(random.fork("attacker", 0), nodes.len()));
        let frames = Frames::new(plan.network.mtu, Rc::clone(&verdict));
        let mut world = Self {
            now_ns: 0,
            events: Events::default(),
            network,
            frames,
            schedules: vec![Schedule::default(); nodes.len()],
            nodes,
            attacker,
            disasters_done: vec![false; plan.disasters.len()],
            calm: false,
            verdict,
            plan,
        };
        let mut starts = random.fork("starts", 0);
        for index in 0..world.plan.boxes {
            world.events.push(starts.below(3_000_000), Event::StartBox(index));
        }
        for index in 0..world.plan.hosts {
            world.events.push(starts.below(3_000_000), Event::StartHost(index));
        }
        world.events.push(world.plan.calm_ns, Event::Calm);
        world.strike();
        world
    }

    /// To the end of the run; events that were handled.
    fn run(&mut self) -> u64 {
        let mut handled = 0;
        let mut end_ns = self.plan.calm_ns + if self.plan.is_lawless() { 0 } else { LIVENESS_NS };
        let mut done = self.plan.is_lawless();
        while let Some((at_ns, event)) = self.events.pop() {
            if self.verdict.is_broken() {
                break;
            }
            if at_ns > end_ns {
                self.check_end(done);
                break;
            }
            self.now_ns = at_ns;
            self.verdict.set_now(at_ns);
            self.handle(event);
            handled += 1;
            if !done && handled % 64 == 0 && self.is_finished() {
                done = true;
                end_ns = end_ns.min(self.now_ns + AFTERMATH_NS);
            }
            if handled > MOST_EVENTS {
                self.verdict.broken(Rule::Spin, || format!("{MOST_EVENTS} events, and no end"));
            }
        }
        handled
    }

    fn hosts(&self) -> impl Iterator<Item = &Host> {
        self.nodes.iter().filter_map(|node| match node {
            Node::Host(host) => Some(host),
            Node::Box(_) => None,
        })
    }

    fn is_finished(&self) -> bool {
        self.hosts().flat_map(Host::progress).all(|progress| progress.finished)
    }

    fn check_end(&self, done: bool) {
        if !done {
            let progress: Vec<_> = self.hosts().flat_map(Host::progress).collect();
            self.verdict.broken(Rule::Liveness, || {
                format!("calm since {} s: {progress:?}", self.plan.calm_ns / 1_000_000_000)
            });
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::AtSwitch(hop) => {
                if let Some(attacker) = &mut self.attacker {
                    attacker.sees(&hop);
                }
                self.cross(&hop);
            }
            Event::Arrive(hop) => {
                let node = hop.to.0 as usize;
                if let Some(place) = self.nodes.get_mut(node).filter(|node| node.is_running()) {
                    place.take(hop.from, hop.frame);
                    self.run_node(node);
                }
            }
            Event::Wake(node) => {
                if self.schedules[node].wake_at_ns == Some(self.now_ns) {
                    self.schedules[node].wake_at_ns = None;
                    self.run_node(node);
                }
            }
            Event::Disaster(disaster) if !self.calm => self.disaster(disaster),
            Event::Disaster(_) => {}
            Event::StartBox(index) => {
                if let Node::Box(node) = &mut self.nodes[index]
                    && !node.is_running()
                {
                    self.verdict.event(index as u64, || format!("box {index} starts"));
                    node.start(&self.plan);
                    self.network.restart(Address(index as u8));
                    self.run_node(index);
                }
            }
            Event::StartHost(index) => {
                let at = self.plan.boxes + index;
                if let Node::Host(node) = &mut self.nodes[at]
                    && !node.is_running()
                {
                    self.verdict.event(index as u64, || format!("host {index} starts"));
                    node.start(&self.plan);
                    self.network.restart(Address(at as u8));
                    self.run_node(at);
                }
            }
            Event::StartGuest(index, slot) => {
                let at = self.plan.boxes + index;
                if let Node::Host(node) = &mut self.nodes[at] {
                    self.verdict.event(index as u64, || format!("guest {slot} of host {index} starts"));
                    node.start_guest(slot);
                    self.run_node(at);
                }
            }
            Event::Attack(hop) => {
                self.cross(&hop);
                self.strike();
            }
            Event::Calm => {
                self.verdict.event(0, || "nothing goes wrong from here on".to_owned());
                self.calm = true;
                self.network.heal();
                for node in &mut self.nodes {
                    if let Node::Box(node) = node {
                        node.heal();
                    }
                }
            }
        }
    }

    /// A frame crosses the switch.
    fn cross(&mut self, hop: &Hop) {
        let events = &mut self.events;
        self.network.switch(self.now_ns, hop, &mut |hop| events.push(hop.at_ns, Event::Arrive(hop)));
    }

    fn strike(&mut self) {
        if let Some((pause_ns, hop)) = self.attacker.as_mut().and_then(Attacker::strike) {
            self.verdict.event(digest(&hop.frame), || {
                format!("attacker as {}>{}: {}", hop.from, hop.to, describe(&hop.frame))
            });
            self.events.push(self.now_ns + pause_ns, Event::Attack(hop));
        }
    }

    /// Lets a node run now, or when it is not busy any more.
    fn run_node(&mut self, index: usize) {
        let now_ns = self.now_ns;
        let schedule = self.schedules[index];
        if schedule.busy_until_ns > now_ns {
            self.wake_at(index, schedule.busy_until_ns);
            return;
        }
        let (node, mut send, refused) = self.node_and_send(index);
        let ran = node.run(now_ns, &mut send);
        drop(send);
        let refused = refused.get();
        let schedule = &mut self.schedules[index];
        schedule.busy_until_ns = now_ns + ran.frames as u64 * self.plan.sessions[index].frame_cost_ns;
        if ran.endless {
            self.verdict.broken(Rule::Spin, || format!("node {index} does not come to rest"));
        }
        let room_ns = if refused { self.network.room_at_ns(now_ns, Address(index as u8)) } else { None };
        let next_ns = [self.nodes[index].deadline_ns(), room_ns].into_iter().flatten().min();
        let schedule = &mut self.schedules[index];
        match next_ns {
            Some(at_ns) if at_ns <= now_ns => {
                schedule.vain_runs = if ran.progress { 0 } else { schedule.vain_runs + 1 };
                if schedule.vain_runs > VAIN_RUNS {
                    self.verdict
                        .broken(Rule::Spin, || format!("node {index} asks to run at once and does nothing"));
                }
                self.wake_at(index, now_ns + 1000);
            }
            Some(at_ns) => {
                schedule.vain_runs = 0;
                self.wake_at(index, at_ns);
            }
            None => {}
        }
        if matches!(self.nodes[index], Node::Host(_)) {
            self.look_for_disasters();
        }
    }

    /// A node, and its way into the network; the cell tells whether the network refused a frame.
    fn node_and_send(&mut self, index: usize) -> (&mut Node, Box<Send<'_>>, Rc<std::cell::Cell<bool>>) {
        let refused = Rc::new(std::cell::Cell::new(false));
        let told = Rc::clone(&refused);
        let (now_ns, from) = (self.now_ns, Address(index as u8));
        let Self { network, events, frames: check, verdict, nodes, .. } = self;
        let send = move |to: &Address, frames: &[&[u8]]| {
            for (taken, frame) in frames.iter().enumerate() {
                let sent = network
                    .send(now_ns, from, *to, frame, &mut |hop| events.push(hop.at_ns, Event::AtSwitch(hop)));
                if !sent {
                    told.set(true);
                    return taken;
                }
                check.sent(from, frame);
                verdict.event(digest(frame) ^ index as u64, || format!("{from}>{to} {}", describe(frame)));
            }
            frames.len()
        };
        (&mut nodes[index], Box::new(send), refused)
    }

    fn wake_at(&mut self, index: usize, at_ns: u64) {
        let schedule = &mut self.schedules[index];
        if schedule.wake_at_ns.is_none_or(|planned_ns| at_ns < planned_ns || planned_ns <= self.now_ns) {
            schedule.wake_at_ns = Some(at_ns);
            self.events.push(at_ns, Event::Wake(index));
        }
    }

    // ----- what goes wrong -----

    fn look_for_disasters(&mut self) {
        if self.disasters_done.iter().all(|done| *done) {
            return;
        }
        let submitted: u64 = self.hosts().flat_map(Host::progress).map(|progress| progress.submitted).sum();
        for (planned, done) in self.plan.disasters.iter().zip(&mut self.disasters_done) {
            if !*done && submitted >= planned.after_commands {
                *done = true;
                self.events.push(self.now_ns + planned.delay_ns, Event::Disaster(planned.disaster));
            }
        }
    }

    fn disaster(&mut self, disaster: Disaster) {
        let now_ns = self.now_ns;
        self.verdict.event(now_ns, || format!("{disaster:?}"));
        let boxes = self.plan.boxes;
        let address = |index: usize| Address(index as u8);
        match disaster {
            Disaster::KillBox(index, away_ns, cache_is_lost) => {
                if let Node::Box(node) = &mut self.nodes[index] {
                    node.kill(cache_is_lost);
                }
                self.events.push(now_ns + away_ns, Event::StartBox(index));
            }
            Disaster::StopBox(index, away_ns) => {
                let (node, mut send, _) = self.node_and_send(index);
                if let Node::Box(node) = node {
                    node.stop(now_ns, &mut send);
                }
                drop(send);
                self.events.push(now_ns + away_ns, Event::StartBox(index));
            }
            Disaster::KillHost(index, away_ns) => {
                if let Node::Host(node) = &mut self.nodes[boxes + index] {
                    node.kill();
                }
                self.events.push(now_ns + away_ns, Event::StartHost(index));
            }
            Disaster::StopHost(index, away_ns) => {
                let (node, mut send, _) = self.node_and_send(boxes + index);
                if let Node::Host(node) = node {
                    node.stop(now_ns, &mut send);
                }
                drop(send);
                self.events.push(now_ns + away_ns, Event::StartHost(index));
            }
            Disaster::KillGuest(index, slot, away_ns) => {
                if let Node::Host(node) = &mut self.nodes[boxes + index]
                    && node.kill_guest(now_ns, slot)
                {
                    self.events.push(now_ns + away_ns, Event::StartGuest(index, slot));
                    self.run_node(boxes + index);
                }
            }
            Disaster::Cut(one, other, for_ns, one_way) => {
                self.network.cut(address(one), address(other), now_ns + for_ns);
                if !one_way {
                    self.network.cut(address(other), address(one), now_ns + for_ns);
                }
            }
            Disaster::SlowDown(index, by_ns, for_ns) => {
                self.network.slow_down(address(index), by_ns, now_ns + for_ns);
            }
            Disaster::Pause(index, for_ns) => {
                if let Node::Host(node) = &mut self.nodes[index] {
                    node.pause(for_ns);
                }
                let schedule = &mut self.schedules[index];
                schedule.busy_until_ns = schedule.busy_until_ns.max(now_ns + for_ns);
            }
        }
    }

    fn progress(&self) -> Progress {
        self.hosts().flat_map(Host::progress).fold(Progress::default(), |sum, one| Progress {
            submitted: sum.submitted + one.submitted,
            succeeded: sum.succeeded + one.succeeded,
            failed: sum.failed + one.failed,
            enabled: sum.enabled + one.enabled,
            troubles: sum.troubles + one.troubles,
            shut_down: sum.shut_down + one.shut_down,
            finished: one.finished,
        })
    }
}

/// Runs what `seed` decides; `printing` shows every event on standard error.
pub fn run(seed: u64, scenario: Scenario, printing: bool) -> Report {
    run_of(seed, scenario, Devices::Nvme, printing)
}

/// The same with devices of another kind.
pub fn run_of(seed: u64, scenario: Scenario, devices: Devices, printing: bool) -> Report {
    let plan = Plan::of(seed, scenario, devices);
    Report { devices, ..run_with(plan, scenario, printing, Hooks::default()) }
}

/// Runs a plan with something put between the parts of a box.
pub(crate) fn run_with(plan: Plan, scenario: Scenario, printing: bool, hooks: Hooks) -> Report {
    let seed = plan.seed;
    if printing {
        eprintln!("{plan:#?}");
    }
    let verdict = Rc::new(Verdict::new(plan.is_lawless(), printing));
    let mut report = Report {
        seed,
        scenario,
        devices: Devices::Nvme,
        violation: None,
        hash: 0,
        virtual_ns: 0,
        events: 0,
        progress: Progress::default(),
        network: NetworkCounters::default(),
    };
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let mut world = World::new(plan, hooks, Rc::clone(&verdict));
        report.events = world.run();
        report.progress = world.progress();
        report.network = *world.network.counters();
        report.virtual_ns = world.now_ns;
    }));
    if let Err(panic) = outcome {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        verdict.broken(Rule::Panic, || text.unwrap_or_else(|| "a panic without words".to_owned()));
        report.virtual_ns = verdict.now_ns();
    }
    report.hash = verdict.hash();
    report.violation = verdict.violation();
    report
}
