//! `etherslot host`: remote devices as vfio-user sockets.

mod doors;
mod handler;

use std::process::Command;

use etherslot_fabric::Place as _;
use etherslot_node::HostNode;
use etherslot_wire::control::Name;
use etherslot_wire::discovery::is_discovery;

use crate::carrier::Carriers;
use crate::control::Control;
use crate::fabric::{ANY, Fabric, Found, Wanted, Which};
use crate::links::Links;
use crate::notices::Notices;
use crate::options::{HostOptions, Interrupts, Routes, Via};
use crate::stat::NodeStat;
use crate::station::Station;
use crate::{StartError, identity, keeper, stat};
use doors::Doors;

/// A slot that waits to be rid of its device is looked at so often.
const SETTLE_NS: u64 = 20_000_000;

/// Runs a host node until SIGTERM or SIGINT. `keeper` is to call [`keeper::run`] in a process of its own.
pub fn run(options: HostOptions, keeper: Command) -> Result<(), StartError> {
    let mut station = Station::open(&options.run, &options.links, &options.security)?;
    let config = station.session_config(&options.session, &options.run.name);
    let mut node = HostNode::new(config, identity::seed(), &[]);
    node.set_max_payload(options.session.max_payload);
    node.join_boxes(Via::port);
    for slot in &options.slots {
        // Of a device that is found by its serial number, or of any, the name is not known yet.
        let name = Name::new(&slot.device).ok_or_else(|| StartError::Device {
            device: slot.device.clone(),
            reason: "the name has to be 1 to 32 bytes long".to_owned(),
        })?;
        let number = node.add_slot(name, slot.interrupts == Interrupts::Msi);
        node.set_domain(number, slot.domain);
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
        .with_carriers(Carriers::of(&options.links));
    let teller = control.teller();
    if let Some(fabric) = &mut fabric {
        fabric.tell_to(teller.clone());
    }
    let keeper = keeper::start(keeper)
        .inspect_err(
            |error| tracing::warn!(%error, "no keeper: guests may not outlive a kill of this daemon"),
        )
        .ok();
    let mut doors = Doors::new(options.slots, keeper.as_ref(), teller.clone())?;
    let slots = doors.iter().len();
    tracing::info!(name, address = station.links.address(), slots, "started");
    let mut settle_at_ns = None;
    let mut notices = Notices::default();

    while !station.signals.stop() {
        let (now_ns, mut progress) = station.receive(&mut |now_ns, from, frame| match &mut fabric {
            Some(fabric) if is_discovery(frame) => fabric.receive(now_ns, from, frame, None),
            _ => node.receive(now_ns, from, frame, &mut doors),
        });
        if let Some(fabric) = &mut fabric {
            progress |= fabric.poll_host(now_ns);
            if fabric.take_news() || settle_at_ns.is_some_and(|at_ns| at_ns <= now_ns) {
                let is_unsettled = find_devices(fabric, &mut node, &mut doors)?;
                settle_at_ns = is_unsettled.then_some(now_ns + SETTLE_NS);
            }
            progress |= fabric.transmit(&mut station.links);
        }
        progress |= doors.poll(&mut node, now_ns, &station.sleeper)?;
        progress |= node.poll(now_ns, &mut doors);
        while let Some(event) = node.session_event() {
            teller.tell(|| event.into());
        }
        progress |= transmit(&mut node, &mut station);
        let Station { links, signals, sleeper, .. } = &mut station;
        notices.look(now_ns, || wrong(now_ns, fabric.as_mut(), &node, &doors));
        let show = || notices.shown_in(shown(name, now_ns, &node, links, &doors));
        progress |= control.poll(now_ns, sleeper, &mut |request| {
            Fabric::answer(fabric.as_mut(), now_ns, &request, None, show)
        });
        if signals.report() {
            show().log();
        }
        station.end_round(progress, || {
            let fabric_ns = fabric.as_ref().map(|fabric| fabric.deadline_ns(now_ns));
            [
                node.deadline_ns(),
                control.deadline_ns(),
                doors.deadline_ns(),
                fabric_ns,
                settle_at_ns,
                Some(notices.deadline_ns()),
            ]
            .into_iter()
            .flatten()
            .min()
        })?;
    }
    if let Some(fabric) = &mut fabric {
        fabric.leave(station.clock.now_ns(), &mut station.links);
    }
    control.stop(station.clock.now_ns(), &mut |request| {
        let now_ns = station.clock.now_ns();
        let show = || shown(name, now_ns, &node, &station.links, &doors);
        Fabric::answer(fabric.as_mut(), now_ns, &request, None, show)
    });
    // A session that is closed counts no more.
    shown(name, station.clock.now_ns(), &node, &station.links, &doors).log();
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

/// The directory may tell where devices are whose boxes were not named, and whether one may be had by now. True if a slot waits to be
/// rid of its device.
fn find_devices(fabric: &Fabric, node: &mut HostNode<Via>, doors: &mut Doors) -> Result<bool, StartError> {
    let mut taken: Vec<Which> = doors.iter().filter_map(|door| door.held).collect();
    for (slot, door) in doors.iter().enumerate() {
        let Some(found) = fabric.find(&door.options.wanted) else { continue };
        taken.extend(found.which());
        if door.options.routes.is_none() {
            follow(node, slot, &found)?;
        }
        if found.is_to_be_had {
            node.ask_again(slot);
        }
    }
    let mut is_unsettled = false;
    for (slot, door) in doors.iter_mut().enumerate().filter(|(_, door)| door.options.wanted == Wanted::Any) {
        let held = door.held.map(|which| (which, fabric.look(which)));
        if let Some((_, Some(found))) = &held
            && found.is_given
        {
            follow(node, slot, found)?;
            if found.is_to_be_had {
                node.ask_again(slot);
            }
            continue;
        }
        if let Some((which, found)) = held {
            // A box that is away may come back with it.
            if found.is_none() || !node.unroute(slot) {
                is_unsettled |= found.is_some();
                continue;
            }
            door.held = None;
            ANY.clone_into(&mut door.options.device);
            taken.retain(|other| *other != which);
        }
        if let Some(found) = fabric.find_any(&taken) {
            follow(node, slot, &found)?;
            door.held = found.which();
            found.name.as_str().clone_into(&mut door.options.device);
            taken.extend(door.held);
        }
    }
    Ok(is_unsettled)
}

/// The slot's device is there now.
fn follow(node: &mut HostNode<Via>, slot: usize, found: &Found) -> Result<(), StartError> {
    let Some((first, further)) = found.ways.split_first() else { return Ok(()) };
    give_route(node, slot, found.name, *first, further)
}

/// What is wrong now, and would be silent.
fn wrong(now_ns: u64, fabric: Option<&mut Fabric>, node: &HostNode<Via>, doors: &Doors) -> Vec<String> {
    let mut wrong = doors.wrong();
    let keys = if node.public_key().is_some() { ", with the same fabric.key" } else { "" };
    let silent = doors.iter().enumerate().filter(|(slot, _)| !node.is_in_session(*slot));
    let mut places: Vec<Via> =
        silent.filter_map(|(_, door)| door.options.routes.as_ref()).map(|routes| routes.first).collect();
    places.dedup();
    wrong.extend(places.iter().map(|at| format!("no answer from {at}: is a box there, and running{keys}?")));
    if let Some(fabric) = fabric {
        let sought = doors.iter().filter(|door| door.options.routes.is_none());
        wrong.extend(fabric.wrong(now_ns, sought.map(|door| &door.options.wanted)));
    }
    wrong
}

fn shown(name: &str, now_ns: u64, node: &HostNode<Via>, links: &Links, doors: &Doors) -> NodeStat {
    let slots = doors.iter().enumerate().map(|(slot, door)| (&*door.options.device, doors.stage(slot)));
    stat::of_host(name, now_ns, node, links, slots)
}

fn transmit(node: &mut HostNode<Via>, Station { clock, links, .. }: &mut Station) -> bool {
    node.transmit(clock.now_ns(), &mut |to, frames| links.send(to, frames))
}
