//! Hostile peers, a hostile network and a hostile guest against the box and the host node, in virtual time.
//!
//! The first byte of an input says who takes part beside the two nodes and their guest: nobody, another host, another box in
//! place of the box, another box beside it; whether the device is attached before it begins; whether devices reach other boxes; and which mode the
//! sessions have. What follows are steps: time passes, frames are delivered, dropped, doubled, replayed (those of earlier lives too), changed and sealed
//! again, or made up; peers in a session of their own say what they should not; the guest accesses whatever it wants;
//! nodes die. Whatever happens, no node panics, works or waits without end, or grows, and every access of the guest is
//! answered once and in time. When it is over, and nothing was heard for a while, the device is attached and works.

#![no_main]

#[path = "peer/engine.rs"]
mod engine;
#[path = "peer/evil.rs"]
mod evil;
#[path = "peer/forge.rs"]
mod forge;
#[path = "peer/guest.rs"]
mod guest;
#[path = "peer/world.rs"]
mod world;

use etherslot_fuzz::Input;
use etherslot_node::{Guest as _, Interrupts};
use etherslot_session::{Config, Mode};
use etherslot_wire::control::feature;
use evil::{Evil, MANNERS};
use guest::Machine;
use libfuzzer_sys::fuzz_target;
use world::{EVIL, MS, Way, World, session_config};

/// The most time that the steps of an input take, ns.
const MAX_TIME_NS: u64 = 20_000 * MS;

fuzz_target!(|input: &[u8]| {
    let mut input = Input::new(input);
    let form = input.u8();
    let mode = if form & 16 == 0 { Mode::Selective } else { Mode::Classic };
    let mut world = World::new(mode, form & 32 != 0);
    let begins_well = form & 4 == 0;
    if begins_well {
        assert!(world.attach(), "the device is not attached to begin with");
    }
    let now_ns = world.now_ns;
    match form & 3 {
        1 => {
            // As itself, or as the host.
            let node = if form & 8 == 0 { EVIL } else { 2 };
            let epoch = world.other_epoch();
            // As a host, or as a box whose device comes in, and into which those of others do.
            let features = if form & 64 == 0 { feature::BOXES } else { feature::JOINS };
            let config = Config { features, ..session_config(EVIL, mode) };
            world.evil_host = Some(Evil::new(&config, node, true, now_ns, epoch));
        }
        2 => {
            let epoch = world.other_epoch();
            let mut evil = Evil::new(&session_config(1, mode), 1, false, now_ns, epoch);
            dress(&mut input, &mut evil);
            world.evil_box = Some(evil);
        }
        _ => {}
    }
    while !input.is_empty() && world.now_ns < MAX_TIME_NS {
        step(&mut input, &mut world);
    }
    world.fall_silent();
    if !world.works() {
        // Who hears lies about a device from the beginning may believe them for as long as he lives.
        assert!(!begins_well, "the device does not work again");
        world.restart_host();
        assert!(world.works(), "the device does not work with a new host node");
    }
});

/// Changes what a box shows of its device.
fn dress(input: &mut Input<'_>, evil: &mut Evil) {
    for _ in 0..input.below(32) {
        let place = input.u8();
        let at = match place >> 6 {
            0 => usize::from(place & 63) * 4,
            1 => 0x40 + usize::from(place & 63) * 4,
            2 => 0x100 + usize::from(place & 7) * 4,
            _ => input.u16() as usize & 0xFFC,
        };
        evil.image[at..at + 4].copy_from_slice(&input.u32().to_le_bytes());
    }
    for _ in 0..input.below(6) {
        let index = input.below(6);
        evil.bar_sizes[index] = (input.number() as u32).wrapping_neg() | u32::from(input.u8() & 15);
    }
}

fn step(input: &mut Input<'_>, world: &mut World) {
    let choice = input.u8();
    let way = if choice & 1 == 0 { Way::ToBox } else { Way::ToHost };
    match choice >> 1 {
        0..=11 => world.run(1 << (10 + input.u8() % 18)),
        12..=15 => {
            world.cut = true;
            world.run(1 << (16 + input.u8() % 15));
            world.cut = false;
        }
        16..=35 => {
            world.now_ns += u64::from(input.u8()) << 10;
            world.collect();
        }
        36..=47 => handle(input, world, way),
        48..=59 => replay(input, world, way),
        60..=79 => {
            let frame = forge::frame(input, &world.lane(way).heard);
            world.deliver(way, sender(input, way), &frame);
        }
        80..=83 => {
            let count = input.u8() as usize;
            let mut frame = input.bytes(count).to_vec();
            if input.flag() {
                forge::seal(&mut frame);
            }
            world.deliver(way, sender(input, way), &frame);
        }
        84..=103 => speak(input, world),
        104..=106 => {
            let manner = input.one_of(&MANNERS);
            for evil in [&mut world.evil_host, &mut world.evil_box].into_iter().flatten() {
                evil.manner = manner;
            }
        }
        107 => {
            let now_ns = world.now_ns;
            world.evil_host.iter_mut().for_each(|evil| evil.open(now_ns));
        }
        108 => world.restart_box(),
        109 => world.restart_host(),
        _ => {
            // Now and then two things in turn, often.
            let repeats = if input.once_in(16) { input.u8() } else { 0 };
            for _ in 0..repeats {
                let mut pair = input.clone();
                access(&mut pair, world);
                access(&mut pair, world);
            }
            access(input, world);
        }
    }
}

fn sender(input: &mut Input<'_>, way: Way) -> u8 {
    if input.once_in(16) { EVIL } else { World::sender(way) }
}

/// Does something with the first frame that waits.
fn handle(input: &mut Input<'_>, world: &mut World, way: Way) {
    let what = input.u8();
    let lane = world.lane(way);
    let place = if what & 0x80 == 0 || lane.frames.is_empty() { 0 } else { input.below(lane.frames.len()) };
    let Some((from, mut frame)) = lane.frames.remove(place) else { return };
    match what & 7 {
        0 => {}
        1 => {
            world.deliver(way, from, &frame);
            world.deliver(way, from, &frame);
        }
        2 | 3 => {
            forge::mutate(input, &mut frame);
            forge::seal(&mut frame);
            world.deliver(way, from, &frame);
        }
        4 => {
            forge::mutate(input, &mut frame);
            world.deliver(way, from, &frame);
        }
        _ => world.deliver(way, from, &frame),
    }
}

/// Delivers a frame that was sent before, there or back, as it was or changed.
fn replay(input: &mut Input<'_>, world: &mut World, way: Way) {
    let lane = world.lane(way);
    if lane.past.is_empty() {
        return;
    }
    // Most often one of the last.
    let back = if input.flag() { input.below(4) } else { input.below(64) } % lane.past.len();
    let mut frame = lane.past[lane.past.len() - 1 - back].clone();
    let what = input.u8();
    if what & 3 != 0 {
        forge::mutate(input, &mut frame);
        forge::seal(&mut frame);
    }
    let way = if what & 0xF0 != 0xF0 {
        way
    } else if way == Way::ToBox {
        Way::ToHost
    } else {
        Way::ToBox
    };
    world.deliver(way, sender(input, way), &frame);
}

/// Those who have a session say something in it.
fn speak(input: &mut Input<'_>, world: &mut World) {
    let (kind, stream, payload) = forge::payload(input);
    let repeats = if input.once_in(8) { input.u8() } else { 1 };
    for evil in [&mut world.evil_host, &mut world.evil_box].into_iter().flatten() {
        for _ in 0..repeats {
            evil.say(kind, stream, &payload);
        }
    }
    if input.flag() {
        world.run(MS / 4);
    }
}

/// The guest does something.
fn access(input: &mut Input<'_>, world: &mut World) {
    let now_ns = world.now_ns;
    world.wake_host();
    let World { host, machine, .. } = world;
    // The socket passes on what is at most a little longer than an access may be.
    let length = |input: &mut Input<'_>| input.number() as usize % 4200;
    match input.u8() % 16 {
        0..=2 => {
            let (offset, bytes) = (input.number(), length(input));
            let id = machine.id();
            let outcome = host.config_read(now_ns, 0, id, offset, bytes);
            machine.note(now_ns, outcome, bytes);
        }
        3..=7 => {
            let offset = if input.flag() { u64::from(input.u8()) & !3 } else { input.number() };
            let count = input.below(20);
            let data = input.bytes(count % 10);
            if count < 10 {
                let id = machine.id();
                let outcome = host.config_write(now_ns, 0, id, offset, data);
                machine.note(now_ns, outcome, 0);
            } else {
                let _ = host.config_write(now_ns, 0, Machine::NOBODY, offset, data);
            }
        }
        8 | 9 => {
            let (id, bar, offset, bytes) = (machine.id(), input.below(7), input.number(), length(input));
            let outcome = host.bar_read(now_ns, 0, id, bar, offset, bytes);
            machine.note(now_ns, outcome, bytes);
        }
        10..=12 => {
            let (bar, offset) = (input.below(7) / 3, input.number());
            let mut data = vec![0; length(input)];
            for (place, byte) in data.iter_mut().zip(input.bytes(8)) {
                *place = *byte;
            }
            if host.has_room(0) {
                let _ = host
                    .bar_write(0, bar, offset, &data, &mut |address, data| machine.read(0, address, data));
            }
        }
        13 => {
            let id = input.flag().then(|| machine.id());
            let outcome = host.reset(now_ns, 0, id);
            if id.is_some() {
                machine.note(now_ns, outcome, 0);
            }
        }
        14 => {
            let value = u32::from(input.u8() % 10);
            if host.has_room(0) {
                let read = &mut |address, data: &mut [u8]| machine.read(0, address, data);
                let _ = host.bar_write(0, 0, 24, &value.to_le_bytes(), read);
            }
        }
        _ => {
            let interrupts = [Interrupts::Legacy, Interrupts::MsiX, Interrupts::Msi(1), Interrupts::Msi(4)];
            host.set_interrupts(0, input.one_of(&interrupts));
        }
    }
}
