//! A daemon as a member of the fabric: its heartbeats on its links, what it hears, the orders that it is given.

mod find;
mod keep;
mod place;
mod tags;
pub mod view;
mod wrong;

use std::time::{SystemTime, UNIX_EPOCH};

use etherslot_fabric::{
    Candidate, Counters, DirectoryConfig, DirectoryCounters, Event, Failover, Identity, Known, LeaseConfig,
    LeaseCounters, Leases, Member, MemberConfig, NodeEvent, Place as _, Presence, To,
};
use etherslot_netio::Address;
use etherslot_wire::NodeId;
use etherslot_wire::control::Name;
use etherslot_wire::discovery::{Assigned, Change, Device, DeviceState, Group, MAX_DEVICES, Order, Role};

pub use find::{ANY, Wanted};
pub(crate) use find::{Found, Which};
use keep::Keeping;
pub use keep::usual_path as usual_state_path;
use tags::{Stranger, TAG_BYTES, Tags};
use view::{Beginning, FabricView, OrderState, OrderView, To as ViewTo};
use wrong::Wrong;

use crate::control::{Answer, NO_FABRIC, Request};
use crate::counted::{Counted, counted};
use crate::events::{self, Teller};
use crate::links::Links;
use crate::options::{FabricOptions, LinkKind, LinkOptions, Via};
use crate::stat::{self, MOST_PEERS, NodeStat, PeerStat, SessionStat};
use crate::station::Station;
use crate::{StartError, identity};

/// What everybody on an Ethernet hears.
const EVERYBODY: Address = Address::Mac([0xFF; 6]);
/// An order is withdrawn after so long, unless it says when; and at the latest.
const ORDER_MS: u64 = 30_000;
const ORDER_MOST_MS: u64 = 3_600_000;
/// How often a box looks whether hosts of its devices are lost.
const FAILOVER_LOOK_NS: u64 = 50_000_000;

/// An order, as it is asked for at a control socket.
#[derive(Clone, Debug)]
pub(crate) struct Asked<'a> {
    pub(crate) device: &'a str,
    pub(crate) to: &'a ViewTo,
    pub(crate) dry_run: bool,
    pub(crate) force: bool,
    /// After so long it is withdrawn.
    pub(crate) wait_ms: Option<u64>,
}

/// A member and what is around it.
pub(crate) struct Fabric {
    member: Member<Via>,
    /// What a box tells of its devices: what does not change, with what its leases say.
    devices: Vec<Device>,
    keeping: Keeping,
    /// What becomes of a box's devices whose hosts are lost.
    failover: Failover,
    failover_look_ns: u64,
    /// Of a node with keys.
    tags: Option<Tags>,
    wrong: Wrong,
    /// Something was heard that may tell where a slot's device is.
    is_news: bool,
    /// To whom is told what is heard.
    teller: Teller,
}

/// What a box's leases are set up with.
pub(crate) fn lease_config(options: &FabricOptions) -> LeaseConfig {
    LeaseConfig {
        hold_ns: options.hold.as_nanos() as u64,
        recall_ns: options.recall.as_nanos() as u64,
        offer_ns: options.offer.as_nanos() as u64,
    }
}

impl Fabric {
    /// Joins as a host under the node's name, if there is a fabric.
    pub(crate) fn of_host(
        options: Option<&FabricOptions>,
        name: &str,
        link_options: &[LinkOptions],
        station: &Station,
    ) -> Result<Option<Self>, StartError> {
        let open = |options| Self::open(options, name, Role::Host, link_options, station, Vec::new());
        options.map(open).transpose()
    }

    /// Joins under the node's name, as a box with `devices` or as a host.
    pub(crate) fn open(
        options: &FabricOptions,
        name: &str,
        role: Role,
        link_options: &[LinkOptions],
        Station { links, keys, .. }: &Station,
        devices: Vec<Device>,
    ) -> Result<Self, StartError> {
        let keys = keys.as_ref();
        let failed = |reason: String| StartError::Fabric(reason);
        let node = keys.map_or_else(|| identity::node_id(name), |keys| keys.public().node_id(name));
        let tags = keys.map(|keys| Tags::new(keys.fabric()));
        let frame_bytes = links.max_frame_bytes() - if tags.is_some() { TAG_BYTES } else { 0 };
        let too_long = || failed(format!("[node] name = {name:?}: in a fabric it has 32 bytes at most"));
        if devices.len() > MAX_DEVICES {
            return Err(failed(format!("a box has {MAX_DEVICES} devices at most")));
        }
        let addresses: Vec<Address> = links.addresses().collect();
        let ports = addresses.iter().enumerate();
        let ports = ports.filter_map(|(link, &address)| Via { link, address }.port()).collect();
        let to = link_options.iter().enumerate().map(|(link, of)| match of.kind {
            LinkKind::Packet { .. } | LinkKind::Xdp { .. } | LinkKind::Dpdk { .. } => {
                To::Broadcast(Via { link, address: EVERYBODY })
            }
            LinkKind::Udp { .. } | LinkKind::Ring { .. } => {
                let peers = options.peers.iter().filter(|peer| of.kind.reaches(peer));
                To::List(peers.map(|&address| Via { link, address }).collect())
            }
        });
        let life = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_nanos() as u64);
        let member = Member::new(MemberConfig {
            identity: Identity {
                node,
                life,
                name: Name::new(name).ok_or_else(too_long)?,
                role,
                group: options.group,
                ports,
            },
            interval_ns: options.interval.as_nanos() as u64,
            frame_bytes,
            directory: DirectoryConfig { misses: options.misses, ..DirectoryConfig::default() },
            to: to.collect(),
            is_rendezvous: options.rendezvous,
            takes_orders: options.orders,
        });
        let keeping = if role == Role::Box { Keeping::at(options, name)? } else { Keeping::nowhere() };
        Ok(Self {
            member,
            devices,
            keeping,
            failover: Failover::new([]),
            failover_look_ns: 0,
            tags,
            wrong: Wrong::default(),
            is_news: false,
            teller: Teller::default(),
        })
    }

    /// What is heard is to be told to `teller`.
    pub(crate) fn tell_to(&mut self, teller: Teller) {
        self.teller = teller;
    }

    /// Takes up the leases of an earlier life.
    pub(crate) fn restore(&mut self, now_ns: u64, leases: &mut Leases) -> Result<(), StartError> {
        self.keeping.restore(now_ns, leases)
    }

    /// Takes a frame of discovery.
    pub(crate) fn receive(&mut self, now_ns: u64, from: &Via, frame: &[u8], leases: Option<&mut Leases>) {
        let frame = if let Some(tags) = &mut self.tags {
            let Some(taken) = tags.take(frame) else {
                tracing::debug!(%from, refused = tags.refused(), "a frame of discovery that is none of ours");
                self.wrong.strangers.heard(now_ns, from, || Stranger::of(frame, Some(&*tags)));
                return;
            };
            taken
        } else {
            let why = Stranger::of(frame, None);
            self.wrong.strangers.heard(now_ns, from, || why);
            self.wrong.strangers.came(frame, why.is_some());
            frame
        };
        self.member.receive(now_ns, from, frame, leases);
    }

    /// A round of a box: what its leases say is kept and told. To be called between the node's poll and its transmit.
    pub(crate) fn poll_box(&mut self, now_ns: u64, leases: &mut Leases) -> bool {
        self.keeping.keep(leases);
        while let Some(place) = leases.changed() {
            let (Some(lease), Some(device)) = (leases.iter().nth(place), self.devices.get_mut(place)) else {
                continue;
            };
            let before = *device;
            (device.state, device.epoch, device.owner) = (lease.state, lease.epoch, lease.owner);
            (device.assigned, device.group) = (lease.assigned, lease.group);
            let now = *device;
            self.member.changed(now_ns, place);
            let node = self.member.identity().node;
            self.tell_device(&node, Some(&before), &now);
        }
        self.fail_over(now_ns, leases);
        let progress = self.member.poll(now_ns, &self.devices, Some(leases));
        self.log_events();
        progress
    }

    /// Says to whom devices move whose hosts are lost.
    pub(crate) fn set_failover(&mut self, failover: Failover) {
        self.failover = failover;
    }

    /// Gives devices whose hosts are lost to others.
    fn fail_over(&mut self, now_ns: u64, leases: &mut Leases) {
        if self.failover.is_idle() || now_ns < self.failover_look_ns {
            return;
        }
        self.failover_look_ns = now_ns + FAILOVER_LOOK_NS;
        let nodes = self.member.directory().nodes();
        let hosts = nodes.filter(|(_, known)| known.role == Role::Host && known.presence == Presence::Up);
        let hosts: Vec<Candidate> =
            hosts.map(|(&node, known)| Candidate { node, name: known.name, group: known.group }).collect();
        while let Some((device, to)) = self.failover.poll(now_ns, leases.iter(), &hosts) {
            tracing::warn!(
                device = device.as_str(),
                to = self.name_of(&to),
                "the device's host is lost: it moves"
            );
            let Identity { node, life, .. } = *self.member.identity();
            let change = Change::Host(to);
            let order = Order { number: 0, to: node, life, device, change, dry_run: false, force: false };
            self.member.order(now_ns, ORDER_MS * 1_000_000, order, Some(leases));
        }
    }

    /// A round of a host.
    pub(crate) fn poll_host(&mut self, now_ns: u64) -> bool {
        let progress = self.member.poll(now_ns, &[], None);
        self.log_events();
        progress
    }

    /// Sends what waits to be sent.
    pub(crate) fn transmit(&mut self, links: &mut Links) -> bool {
        let tags = &mut self.tags;
        self.member.transmit(&mut |to, frame| match tags {
            Some(tags) => links.send(to, &[tags.put(frame)]) != 0,
            None => links.send(to, &[frame]) != 0,
        })
    }

    /// Says goodbye.
    pub(crate) fn leave(&mut self, now_ns: u64, links: &mut Links) {
        self.member.leave(now_ns);
        self.transmit(links);
    }

    /// When the next round is due.
    pub(crate) fn deadline_ns(&self, now_ns: u64) -> u64 {
        self.member.deadline_ns(now_ns)
    }

    /// Whether something was heard since the last call that may tell where a device is, or whose.
    pub(crate) fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.is_news)
    }

    fn log_events(&mut self) {
        while let Some(event) = self.member.directory_mut().event() {
            self.is_news = true;
            match event {
                Event::Node(node, what) => {
                    self.wrong.has_news = true;
                    let name = self.name_of(&node);
                    self.teller.tell(|| {
                        let role = self.member.directory().get(&node).map(|known| known.role.into());
                        events::Event::Node { node: name.clone(), role, what: what.into() }
                    });
                    match what {
                        NodeEvent::Up | NodeEvent::Back => tracing::info!(node = name, "node is up"),
                        NodeEvent::Restarted => tracing::info!(node = name, "node was started again"),
                        NodeEvent::Down => tracing::warn!(node = name, "node is silent"),
                        NodeEvent::Left => tracing::info!(node = name, "node has left"),
                    }
                }
                Event::Device { node, before, now } => {
                    self.tell_device(&node, before.as_ref(), &now);
                    let changed = before.is_none_or(|it| (it.state, it.owner) != (now.state, now.owner));
                    let is_used = now.state == DeviceState::Used || before.is_some();
                    if changed && is_used {
                        let owner = now.owner.map(|owner| self.name_of(&owner)).unwrap_or_default();
                        let (node, device) = (self.name_of(&node), now.name.as_str());
                        tracing::debug!(r#box = node, device, state = ?now.state, owner, "device");
                    }
                }
            }
        }
    }

    fn tell_device(&self, node: &NodeId, before: Option<&Device>, now: &Device) {
        self.teller.tell(|| events::Event::Device {
            r#box: self.name_of(node),
            device: now.name.as_str().to_owned(),
            what: events::DeviceChange::of(before, now),
            state: view::device_state(now.state).to_owned(),
            owner: now.owner.map(|owner| self.name_of(&owner)),
            epoch: now.epoch,
        });
    }

    /// What people call a node; its ID if that is not known.
    fn name_of(&self, node: &NodeId) -> String {
        let own = self.member.identity();
        if own.node == *node {
            return own.name.as_str().to_owned();
        }
        let known = self.member.directory().get(node);
        known.map_or_else(|| format!("{node:?}"), |known| known.name.as_str().to_owned())
    }

    /// The same, but the address of its session if its name is not known: programs and hosts without a fabric have none.
    fn name_or_address_of(&self, node: &NodeId, sessions: &[SessionStat]) -> String {
        let name = self.name_of(node);
        stat::address_of(sessions, &name).map_or(name.clone(), str::to_owned)
    }

    /// All that is known, to be shown.
    pub(crate) fn view(&self, now_ns: u64) -> FabricView {
        view::of(&self.member, &self.devices, now_ns, &self.wrong.strangers)
    }

    /// Gives an order to the box that has the device; what is known of it so far. `sessions`: of a box.
    fn order(
        &mut self,
        now_ns: u64,
        asked: &Asked<'_>,
        leases: Option<&mut Leases>,
        sessions: &[SessionStat],
    ) -> Result<OrderView, String> {
        let order = find::order(&self.member, &self.devices, &self.wrong.strangers, asked, now_ns)?;
        let patience_ms = asked.wait_ms.unwrap_or(ORDER_MS).min(ORDER_MOST_MS);
        let number = self.member.order(now_ns, patience_ms * 1_000_000, order, leases);
        self.order_state(now_ns, number, sessions)
    }

    /// What is known of an order.
    fn order_state(&self, now_ns: u64, number: u64, sessions: &[SessionStat]) -> Result<OrderView, String> {
        let asked = self.member.asked(number).ok_or_else(|| format!("there is no order {number}"))?;
        let mut view = view::order(asked, now_ns, &|node| self.name_or_address_of(&node, sessions));
        if let Change::Group(group) = asked.order.change
            && view.state == OrderState::Done
            && !self.has_host(group)
        {
            view.note =
                format!("no host of group {group} is up: {} waits for one in {}", view.device, view.r#box);
        }
        let is_nobodys = || find::known(&self.member, &self.devices, &asked.order);
        if asked.order.dry_run
            && asked.order.change == Change::Nobody
            && is_nobodys().is_some_and(|device| device.assigned == Assigned::Nobody)
        {
            view.begins_with = view.begins_with.map(|_| Beginning::Nothing);
        }
        Ok(view)
    }

    /// Whether a host of a group is there.
    fn has_host(&self, group: Group) -> bool {
        let (own, nodes) = (self.member.identity(), self.member.directory().nodes());
        let is_it = |role, of| role == Role::Host && of == Some(group);
        is_it(own.role, own.group)
            || nodes
                .filter(|(_, known)| known.presence == Presence::Up)
                .any(|(_, known)| is_it(known.role, known.group))
    }

    /// Answers what a control socket asks of a member; `stat` is all else that it asks.
    pub(crate) fn answer(
        fabric: Option<&mut Self>,
        now_ns: u64,
        request: &Request,
        leases: Option<&mut Leases>,
        stat: impl FnOnce() -> NodeStat,
    ) -> Result<Answer, String> {
        let member = || NO_FABRIC.to_owned();
        let is_box = leases.is_some();
        match request {
            Request::Stat {} => {
                let mut stat = Box::new(stat());
                if let Some(fabric) = fabric.as_deref() {
                    fabric.add_to(&mut stat, leases.as_deref());
                }
                stat.call_owners_by_address();
                Ok(Answer::Stat(stat))
            }
            Request::Events { .. } => Err("events are told at the control socket".to_owned()),
            Request::Ls {} => {
                let mut view = fabric.ok_or_else(member)?.view(now_ns);
                view.add_sessions(&stat().sessions);
                Ok(Answer::Ls(view))
            }
            Request::Order { device, to, dry_run, force, wait_ms } => {
                let asked = Asked { device, to, dry_run: *dry_run, force: *force, wait_ms: *wait_ms };
                fabric
                    .ok_or_else(member)?
                    .order(now_ns, &asked, leases, &owners(is_box, stat))
                    .map(Answer::Order)
            }
            Request::OrderState { order } => fabric
                .ok_or_else(member)?
                .order_state(now_ns, *order, &owners(is_box, stat))
                .map(Answer::Order),
            Request::Withdraw { order } => {
                let fabric = fabric.ok_or_else(member)?;
                fabric.member.withdraw(now_ns, *order);
                fabric.order_state(now_ns, *order, &owners(is_box, stat)).map(Answer::Order)
            }
        }
    }

    /// What a member knows beside what a node counts.
    fn add_to(&self, stat: &mut NodeStat, leases: Option<&Leases>) {
        stat.fabric = Some(self.counted());
        stat.leases = leases.map(leases_counted);
        for (device, lease) in stat.devices.iter_mut().zip(leases.into_iter().flat_map(Leases::iter)) {
            device.owner = lease.owner.map(|owner| self.name_of(&owner));
        }
        stat.peers = self.member.directory().nodes().take(MOST_PEERS).map(|(_, known)| peer(known)).collect();
    }

    /// What was counted.
    fn counted(&self) -> Counted {
        let Counters { malformed, sent, dropped, relayed, orders, orders_stale, doubles } =
            *self.member.counters();
        let DirectoryCounters { heartbeats, stale, refused, own, lost, events_dropped } =
            *self.member.directory().counters();
        Counted::from([
            ("frames_sent", sent),
            ("frames_dropped", dropped),
            ("frames_malformed", malformed),
            ("frames_refused", self.tags.as_ref().map_or(0, Tags::refused)),
            ("heartbeats", heartbeats),
            ("heartbeats_stale", stale),
            ("heartbeats_relayed", relayed),
            ("own_id_heard", own),
            ("own_id_doubled", doubles),
            ("nodes_lost", lost),
            ("nodes_refused", refused),
            ("orders_heard", orders),
            ("orders_stale", orders_stale),
            ("events_dropped", events_dropped),
        ])
    }

    /// Where the device is that a slot is for.
    pub(crate) fn find(&self, wanted: &Wanted) -> Option<Found> {
        find::device(&self.member, wanted)
    }

    /// Where the device is that a slot for any device has.
    pub(crate) fn look(&self, which: Which) -> Option<Found> {
        find::held(&self.member, which)
    }

    /// A device for a slot for any device; `taken`: by other slots.
    pub(crate) fn find_any(&self, taken: &[Which]) -> Option<Found> {
        find::any(&self.member, taken)
    }

    /// The group that the node is in.
    pub(crate) fn group(&self) -> Option<Group> {
        self.member.identity().group
    }
}

/// The sessions with owners of devices, which a box has alone.
fn owners(is_box: bool, stat: impl FnOnce() -> NodeStat) -> Vec<SessionStat> {
    if is_box { stat().sessions } else { Vec::new() }
}

fn peer(known: &Known<Via>) -> PeerStat {
    let (lost, expected) = known.ways().fold((0, 0), |sum, (_, _, quality)| {
        let (lost, expected) = quality.lost();
        (sum.0 + lost, sum.1 + expected)
    });
    PeerStat {
        name: known.name.as_str().to_owned(),
        role: known.role.into(),
        is_up: known.presence == Presence::Up,
        heartbeats_lost: lost,
        heartbeats_expected: expected,
    }
}

fn leases_counted(leases: &Leases) -> Counted {
    counted!(leases.counters() => LeaseCounters {
        granted, denied, released, owners_lost, fenced, moved, rolled_back, refused,
    })
}
