//! One box with one device, two hosts, and between them what sessions are to leases: streams in order, that end with their session.

use std::collections::VecDeque;

use etherslot_fabric::{DeviceConfig, Image, Key, LeaseConfig, Leases, Presence, RecallKind};
use etherslot_wire::NodeId;
use etherslot_wire::control::Name;
use etherslot_wire::discovery::{Change, Order, Progress};

const HOSTS: usize = 2;
const BOX: NodeId = NodeId([9; 16]);

fn node(host: usize) -> NodeId {
    NodeId([host as u8 + 1; 16])
}

/// What may still go wrong.
#[derive(Clone, Copy, Debug, Hash)]
pub(crate) struct Budget {
    pub(crate) orders: u8,
    pub(crate) box_crashes: u8,
    pub(crate) host_crashes: u8,
    pub(crate) lost_sessions: u8,
    pub(crate) accesses: u8,
    pub(crate) waits: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A host opens a session; an earlier one is over at both ends.
    Connect(usize),
    /// It asks for the device, maybe in haste: before it has heard that it has given it back.
    Attach(usize),
    /// It uses it.
    Access(usize),
    /// It gives it back, asked or not.
    Detach(usize),
    /// The box gets the next message of the control stream.
    ControlUp(usize),
    /// The box gets the next message of the device's stream.
    DeviceUp(usize),
    /// The host gets the next one, of either.
    ControlDown(usize),
    DeviceDown(usize),
    /// The host loses its memory; the box does not know yet.
    HostCrash(usize),
    /// The box finds the session dead; the host does not know yet.
    BoxDropsSession(usize),
    BoxCrash,
    /// The box has given a lease and is killed before that was durable, and before anybody could know.
    BoxCrashBeforeKeeping(usize),
    /// A new order: to host 0, host 1, nobody or anybody; by force or not.
    Order(u8, bool),
    /// The latest order comes again.
    OrderAgain,
    /// Time passes up to the next deadline.
    Wait,
}

#[derive(Clone, Copy, Debug)]
enum Up {
    Attach,
    Access { epoch: u64 },
    Detach,
}

#[derive(Clone, Copy, Debug)]
enum Down {
    Attached(Option<u64>),
    Recall,
    Keep,
    Detached,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attachment {
    None,
    Plugged { epoch: u64 },
    Fenced,
}

/// The box's end of a session and what is on its way in it.
#[derive(Clone, Debug)]
struct Session {
    control_up: VecDeque<Up>,
    device_up: VecDeque<Up>,
    control_down: VecDeque<Down>,
    device_down: VecDeque<Down>,
    attachment: Attachment,
    box_has: bool,
    host_has: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Host {
    Idle,
    Asked,
    Has { epoch: u64 },
    Detaching,
}

#[derive(Clone, Debug)]
pub(crate) struct World {
    now_ns: u64,
    leases: Leases,
    durable: Vec<Image>,
    sessions: [Option<Session>; HOSTS],
    hosts: [Host; HOSTS],
    orders: u64,
    latest: Option<Order>,
    /// The owner of each epoch so far.
    grants: Vec<(u64, usize)>,
    budget: Budget,
}

fn name() -> Name {
    Name::new("disk0").unwrap()
}

fn table() -> Leases {
    let config = LeaseConfig { hold_ns: 10, recall_ns: 20, offer_ns: 30 };
    Leases::new(config, [DeviceConfig { name: name(), group: None }])
}

impl World {
    pub(crate) fn new(budget: Budget) -> Self {
        Self {
            now_ns: 1,
            leases: table(),
            durable: table().image().collect(),
            sessions: [const { None }; HOSTS],
            hosts: [Host::Idle; HOSTS],
            orders: 0,
            latest: None,
            grants: Vec::new(),
            budget,
        }
    }

    /// A text that two worlds share if nothing tells them apart any more.
    pub(crate) fn digest(&self) -> String {
        format!("{self:?}")
    }

    fn can(&self, step: Step) -> bool {
        let session = |host: usize| self.sessions[host].as_ref();
        let host_end = |host: usize| session(host).filter(|session| session.host_has);
        let box_end = |host: usize| session(host).filter(|session| session.box_has);
        match step {
            Step::Connect(host) => host_end(host).is_none() || box_end(host).is_none(),
            Step::Attach(host) => {
                host_end(host).is_some() && matches!(self.hosts[host], Host::Idle | Host::Detaching)
            }
            Step::Access(host) => self.budget.accesses > 0 && matches!(self.hosts[host], Host::Has { .. }),
            Step::Detach(host) => matches!(self.hosts[host], Host::Has { .. }),
            Step::ControlUp(host) => box_end(host).is_some_and(|session| !session.control_up.is_empty()),
            Step::DeviceUp(host) => box_end(host).is_some_and(|session| !session.device_up.is_empty()),
            Step::ControlDown(host) => host_end(host).is_some_and(|session| !session.control_down.is_empty()),
            Step::DeviceDown(host) => host_end(host).is_some_and(|session| !session.device_down.is_empty()),
            Step::HostCrash(host) => self.budget.host_crashes > 0 && host_end(host).is_some(),
            Step::BoxDropsSession(host) => self.budget.lost_sessions > 0 && box_end(host).is_some(),
            Step::BoxCrash => self.budget.box_crashes > 0,
            Step::BoxCrashBeforeKeeping(host) => {
                self.budget.box_crashes > 0
                    && box_end(host)
                        .is_some_and(|session| matches!(session.control_up.front(), Some(Up::Attach)))
            }
            Step::Order(..) => self.budget.orders > 0,
            Step::OrderAgain => self.latest.is_some(),
            Step::Wait => self.budget.waits > 0 && self.leases.deadline_ns().is_some(),
        }
    }

    pub(crate) fn steps(&self) -> Vec<Step> {
        let mut steps: Vec<Step> = (0..HOSTS)
            .flat_map(|host| {
                [
                    Step::Connect(host),
                    Step::Attach(host),
                    Step::Access(host),
                    Step::Detach(host),
                    Step::ControlUp(host),
                    Step::DeviceUp(host),
                    Step::ControlDown(host),
                    Step::DeviceDown(host),
                    Step::HostCrash(host),
                    Step::BoxDropsSession(host),
                    Step::BoxCrashBeforeKeeping(host),
                ]
            })
            .collect();
        steps.extend([Step::BoxCrash, Step::OrderAgain, Step::Wait]);
        steps.extend((0..4).flat_map(|to| [Step::Order(to, false), Step::Order(to, true)]));
        steps.retain(|&step| self.can(step));
        steps
    }

    pub(crate) fn take(&mut self, step: Step) {
        match step {
            Step::Connect(host) => {
                self.box_drops(host);
                self.sessions[host] = Some(Session {
                    control_up: VecDeque::new(),
                    device_up: VecDeque::new(),
                    control_down: VecDeque::new(),
                    device_down: VecDeque::new(),
                    attachment: Attachment::None,
                    box_has: true,
                    host_has: true,
                });
                self.hosts[host] = Host::Idle;
            }
            Step::Attach(host) => {
                self.hosts[host] = Host::Asked;
                self.session(host).control_up.push_back(Up::Attach);
            }
            Step::Access(host) => {
                self.budget.accesses -= 1;
                if let Host::Has { epoch } = self.hosts[host] {
                    self.session(host).device_up.push_back(Up::Access { epoch });
                }
            }
            Step::Detach(host) => {
                self.hosts[host] = Host::Detaching;
                self.session(host).device_up.push_back(Up::Detach);
            }
            Step::ControlUp(host) => self.control_up(host),
            Step::DeviceUp(host) => self.device_up(host),
            Step::ControlDown(host) => self.control_down(host),
            Step::DeviceDown(host) => self.device_down(host),
            Step::HostCrash(host) => {
                self.budget.host_crashes -= 1;
                self.session(host).host_has = false;
                self.hosts[host] = Host::Idle;
            }
            Step::BoxDropsSession(host) => {
                self.budget.lost_sessions -= 1;
                self.box_drops(host);
            }
            Step::BoxCrash => {
                self.budget.box_crashes -= 1;
                self.box_restarts();
            }
            Step::BoxCrashBeforeKeeping(host) => {
                self.budget.box_crashes -= 1;
                let _ = self.leases.admit(self.now_ns, node(host), None, &name());
                self.box_restarts();
            }
            Step::Order(to, force) => {
                self.budget.orders -= 1;
                self.orders += 1;
                let change = match to {
                    0 | 1 => Change::Host(node(to as usize)),
                    2 => Change::Nobody,
                    _ => Change::Anybody,
                };
                let number = self.orders;
                self.latest =
                    Some(Order { number, to: BOX, life: 0, device: name(), change, dry_run: false, force });
                self.order();
            }
            Step::OrderAgain => self.order(),
            Step::Wait => {
                self.budget.waits -= 1;
                self.now_ns = self.now_ns.max(self.leases.deadline_ns().unwrap_or(0));
                self.leases.poll(self.now_ns);
            }
        }
        self.act();
        self.durable = self.leases.image().collect();
        self.check();
    }

    fn session(&mut self, host: usize) -> &mut Session {
        self.sessions[host].as_mut().unwrap()
    }

    fn order(&mut self) {
        let Some(order) = self.latest else { return };
        let key = Key { asker: BOX, life: 1, number: order.number };
        let owner = self.leases.iter().next().unwrap().owner;
        let outcome = self.leases.order(self.now_ns, key, &order, &|_| Some(Presence::Up));
        if order.change == Change::Anybody {
            assert_ne!(outcome.progress, Progress::Working, "nobody has to be waited for");
            assert_eq!(self.leases.iter().next().unwrap().owner, owner, "who has it keeps it");
        }
    }

    fn box_drops(&mut self, host: usize) {
        let Some(session) = self.sessions[host].as_mut().filter(|session| session.box_has) else { return };
        session.box_has = false;
        session.control_up.clear();
        session.device_up.clear();
        if let Attachment::Plugged { .. } = std::mem::replace(&mut session.attachment, Attachment::None) {
            self.leases.owner_lost(self.now_ns, 0);
        }
    }

    fn box_restarts(&mut self) {
        for session in self.sessions.iter_mut().flatten() {
            session.box_has = false;
            session.attachment = Attachment::None;
            session.control_up.clear();
            session.device_up.clear();
        }
        self.leases = table();
        self.leases.restore(self.now_ns, self.durable.iter().copied());
    }

    fn control_up(&mut self, host: usize) {
        let now_ns = self.now_ns;
        let session = self.sessions[host].as_mut().unwrap();
        let Some(Up::Attach) = session.control_up.pop_front() else { return };
        let granted = if session.attachment == Attachment::None {
            self.leases.admit(now_ns, node(host), None, &name()).ok()
        } else {
            None
        };
        if let Some(epoch) = granted {
            session.attachment = Attachment::Plugged { epoch };
            assert!(self.grants.last().is_none_or(|&(last, _)| last < epoch), "epochs only grow");
            self.grants.push((epoch, host));
        }
        session.control_down.push_back(Down::Attached(granted));
    }

    fn device_up(&mut self, host: usize) {
        let now_ns = self.now_ns;
        let session = self.sessions[host].as_mut().unwrap();
        let message = session.device_up.pop_front().unwrap();
        match (message, session.attachment) {
            (Up::Access { epoch: made_under }, Attachment::Plugged { epoch }) => {
                let lease = self.leases.iter().next().unwrap();
                assert_eq!(made_under, epoch, "an access of an earlier lease reached the device");
                assert_eq!((lease.epoch, lease.owner), (epoch, Some(node(host))));
            }
            (Up::Access { .. }, _) => {}
            (Up::Detach, attachment) => {
                session.attachment = Attachment::None;
                if let Attachment::Plugged { .. } = attachment {
                    self.leases.released(now_ns, 0);
                }
                session.device_down.push_back(Down::Detached);
            }
            (Up::Attach, _) => unreachable!(),
        }
    }

    fn control_down(&mut self, host: usize) {
        let Some(Down::Attached(granted)) = self.session(host).control_down.pop_front() else { return };
        if self.hosts[host] == Host::Asked {
            self.hosts[host] = granted.map_or(Host::Idle, |epoch| Host::Has { epoch });
        }
    }

    /// Hosts obey a recall or not: [`Step::Detach`] is their answer, or it is not taken.
    fn device_down(&mut self, host: usize) {
        if let Some(Down::Detached) = self.session(host).device_down.pop_front()
            && self.hosts[host] == Host::Detaching
        {
            self.hosts[host] = Host::Idle;
        }
    }

    /// What the box does at once when its leases say so.
    fn act(&mut self) {
        while let Some(action) = self.leases.action() {
            let host = (0..HOSTS).find(|&host| node(host) == action.host).unwrap();
            let session = self.sessions[host].as_mut().filter(|session| session.box_has);
            let Some(session) =
                session.filter(|session| matches!(session.attachment, Attachment::Plugged { .. }))
            else {
                panic!("nobody to tell: {action:?}");
            };
            match action.kind {
                RecallKind::Recall { .. } => session.device_down.push_back(Down::Recall),
                RecallKind::Keep => session.device_down.push_back(Down::Keep),
                RecallKind::Fence => {
                    session.attachment = Attachment::Fenced;
                    session.device_down.push_back(Down::Recall);
                    self.leases.released(self.now_ns, 0);
                }
            }
        }
    }

    fn check(&self) {
        let plugged: Vec<(usize, u64)> = (0..HOSTS)
            .filter_map(|host| {
                match self.sessions[host].as_ref().filter(|session| session.box_has)?.attachment {
                    Attachment::Plugged { epoch } => Some((host, epoch)),
                    _ => None,
                }
            })
            .collect();
        assert!(plugged.len() <= 1, "two owners: {plugged:?}");
        let lease = self.leases.iter().next().unwrap();
        for (host, epoch) in plugged {
            assert_eq!((lease.owner, lease.epoch), (Some(node(host)), epoch));
            assert!(self.grants.contains(&(epoch, host)));
        }
    }

    /// The trouble ends; hosts obey. Every order ends, and who is to have the device gets it.
    pub(crate) fn settle(&mut self) {
        self.budget =
            Budget { orders: 0, box_crashes: 0, host_crashes: 0, lost_sessions: 0, accesses: 0, waits: 64 };
        let recalled = |world: &Self, host: usize| {
            let lease = world.leases.iter().next().unwrap();
            let moving = lease.state == etherslot_wire::discovery::DeviceState::Moving;
            let fenced = world.sessions[host].as_ref().is_some_and(|it| it.attachment == Attachment::Fenced);
            moving && lease.owner == Some(node(host)) || fenced
        };
        for _ in 0..200 {
            for host in 0..HOSTS {
                let steps = [
                    Step::Connect(host),
                    Step::Attach(host),
                    Step::ControlUp(host),
                    Step::ControlDown(host),
                    Step::DeviceUp(host),
                    Step::DeviceDown(host),
                ];
                for step in steps {
                    let is_hasty = step == Step::Attach(host) && self.hosts[host] != Host::Idle;
                    if self.can(step) && !is_hasty {
                        self.take(step);
                    }
                }
                // No haste.
                if self.can(Step::Detach(host)) && recalled(self, host) {
                    self.take(Step::Detach(host));
                }
            }
            let is_waiting =
                self.leases.iter().all(|lease| lease.state != etherslot_wire::discovery::DeviceState::Used);
            if is_waiting && self.can(Step::Wait) && self.hosts.iter().all(|host| *host == Host::Idle) {
                self.take(Step::Wait);
            }
        }
        let lease = self.leases.iter().next().unwrap();
        if let Some(order) = self.latest {
            let key = Key { asker: BOX, life: 1, number: order.number };
            let outcome = self.leases.outcome(self.now_ns, key);
            assert!(
                outcome.is_none_or(|outcome| outcome.progress != Progress::Working),
                "an order that never ends: {outcome:?}, {self:?}"
            );
        }
        match lease.assigned {
            etherslot_wire::discovery::Assigned::Nobody => assert_eq!(lease.owner, None),
            etherslot_wire::discovery::Assigned::Host(host) => {
                assert_eq!(lease.owner, Some(host), "{self:?}");
            }
            etherslot_wire::discovery::Assigned::Group => assert!(lease.owner.is_some(), "{self:?}"),
        }
    }
}
