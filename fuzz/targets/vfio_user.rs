//! A hostile client against the vfio-user server.
//!
//! The first byte of an input says what it is: for one in 4, bytes for the decoders; else what clients do one after the other:
//! commands that are right, wrong, cut and flooded, with files that are memory, eventfds, neither, or change afterwards;
//! with a device that answers later or has no room. Whatever they do, no call of the server panics or works without end,
//! nothing is answered twice or left unanswered, the heap stays bounded, and when they are gone no file of theirs is left and
//! the next client is served.

#![no_main]

#[path = "vfio_user/client.rs"]
mod client;
#[path = "vfio_user/commands.rs"]
mod commands;
#[path = "vfio_user/device.rs"]
mod device;
#[path = "vfio_user/files.rs"]
mod files;

use std::os::fd::AsFd;

use client::Client;
use device::Device;
use etherslot_fuzz::{Input, heap};
use etherslot_mem::Access;
use etherslot_vfio_user::Server;
use etherslot_vfio_user::message::{
    HEADER_BYTES, Header, IrqAction, IrqData, IrqInfoReply, RegionInfoReply, Request, Version, irq, region,
};
use files::Files;
use libfuzzer_sys::fuzz_target;

/// What all that clients do may add to the heap, bytes: 64 KiB to send, files, and windows for each command of an input.
const MAX_GROWTH_BYTES: usize = 1 << 20;
/// Calls of the server after which it should have nothing to do any more.
const MAX_POLLS: usize = 10_000;

fuzz_target!(|input: &[u8]| {
    let mut input = Input::new(input);
    if input.once_in(4) {
        decode(&mut input);
    } else {
        serve(&mut input);
    }
});

fn decode(input: &mut Input<'_>) {
    let bytes = input.bytes(usize::MAX);
    let Some((head, body)) = bytes.split_first_chunk::<HEADER_BYTES>() else { return };
    if let Ok(header) = Header::parse(head) {
        assert_eq!(Header::parse(&header.encode()), Ok(header));
        let request = Request::parse(&header, body);
        if let Some(request) = request.filter(|request| *request != Request::Unknown) {
            if let Request::RegionWriteMulti(writes) = request {
                let whole = writes.writes(0).flatten().filter(|write| (1..=8).contains(&write.data().len()));
                assert!(whole.count() <= writes.count());
            }
            let mut again = Vec::new();
            request.encode(&mut again);
            assert_eq!(request.command(), header.command);
            assert_eq!(Request::parse(&header, &again), Some(request));
        }
    }
    if let Some(version) = Version::parse(body) {
        assert_eq!(Version::parse(&version.encode()), Some(version));
    }
    let _ = (RegionInfoReply::parse(body), IrqInfoReply::parse(body));
}

fn serve(input: &mut Input<'_>) {
    let directory = tempfile::tempdir().expect("a directory for the socket");
    let path = directory.path().join("socket");
    let mut server = Server::bind(&path, device::info(input)).expect("the device can be served");
    let mut device = Device::default();
    let (fds, heap_bytes) = (open_files(), heap::taken_bytes());
    while !input.is_empty() {
        let mut client = Client::connect(&path);
        let mut files = Files::new(client.as_fd());
        if !input.once_in(16) {
            client.request(&mut server, &mut device, &commands::version(), &[]);
        }
        while !input.is_empty() && act(input, &mut server, &mut device, &mut client, &mut files) {
            assert!(heap::taken_bytes() <= heap_bytes + MAX_GROWTH_BYTES, "a client makes the heap grow");
        }
        client.conclude(&mut server, &mut device);
        drop((client, files));
        settle(&mut server, &mut device);
        assert!(!server.is_connected() && !device.connected);
        assert_eq!((server.memory().windows(), server.memory().files()), (0, 0));
        assert_eq!(open_files(), fds, "a file of a client's is left");
        device.answer_gone(&mut server);
    }
    assert!(heap::taken_bytes() <= heap_bytes + MAX_GROWTH_BYTES);
    serve_well(&mut server, &mut device);
}

/// One step; false ends the client.
fn act(
    input: &mut Input<'_>,
    server: &mut Server,
    device: &mut Device,
    client: &mut Client,
    files: &mut Files,
) -> bool {
    match input.u8() {
        0..=159 => {
            let command = commands::command(input);
            let repeats = if input.once_in(16) { 1 + input.u8() as usize } else { 1 };
            files.prepare(&command.files);
            let fds = files.get(&command.files);
            for _ in 0..repeats {
                client.send(server, device, &command.bytes[..command.cut], &fds);
                client.send(server, device, &command.bytes[command.cut..], &[]);
            }
        }
        160..=167 => {
            let count = input.u8() as usize;
            client.send(server, device, input.bytes(count), &[]);
        }
        168..=183 => device.room = input.flag(),
        184..=199 => device.answer_one(input, server),
        200..=207 => device.answer_all(server),
        208..=219 => {
            let vector = input.number() as u32;
            let index = input.below(irq::COUNT + 1) as u32;
            server.trigger(index, vector);
            server.set_intx_level(input.flag());
        }
        220..=235 => {
            let mut data = [0; 4096];
            let address = input.number();
            let data = &mut data[..=input.number() as usize % 4096];
            if input.flag() {
                let _ = server.memory().read(address, data);
            } else {
                let _ = server.memory().write(address, data);
            }
        }
        236..=243 => files.change(input),
        244..=249 => client.reading = !client.reading,
        250..=252 => server.disconnect(device),
        253 => assert!(server.set_info(device::info(input)).is_ok() || client.is_served()),
        _ => return false,
    }
    settle(server, device);
    client.receive();
    true
}

/// Calls the server until it has nothing to do.
fn settle(server: &mut Server, device: &mut Device) {
    assert!((0..MAX_POLLS).any(|_| !server.poll(device)), "the server works without end");
}

/// A client in its right mind finds a server that is as new.
fn serve_well(server: &mut Server, device: &mut Device) {
    device.room = true;
    let mut client = Client::connect(server.path());
    let mut files = Files::new(client.as_fd());
    files.prepare(&[files::MEMORY, files::EVENT]);
    let mut call = |request: &Request<'_>, fds: &[_], server: &mut Server, device: &mut Device| {
        client.request(server, device, request, fds);
        settle(server, device);
        client.receive();
        assert!(client.is_satisfied(), "{request:?} is not answered well");
    };
    call(&commands::version(), &[], server, device);
    for address in [0, 0x1_0000] {
        let map = Request::DmaMap { readable: true, writable: true, offset: 0, address, bytes: 0x8000 };
        call(&map, &files.get(&[files::MEMORY]), server, device);
    }
    server.memory().write(0x1000, &[1, 2, 3]).expect("memory is mapped");
    let mut data = [0; 3];
    server.memory().read(0x1_1000, &mut data).expect("memory is mapped");
    assert_eq!(data, [1, 2, 3]);
    assert!(server.memory().check(0x8000, 1, Access::READ).is_err());
    let set = commands::set_irqs(IrqAction::Trigger, IrqData::Eventfd, (irq::MSIX, 0, 1));
    call(&set, &files.get(&[files::EVENT]), server, device);
    assert!(!server.is_irq_masked(irq::MSIX, 0) && server.trigger(irq::MSIX, 0));
    assert_eq!(files.events(), 1);
    call(&Request::RegionRead { offset: 0, region: region::CONFIG, count: 4 }, &[], server, device);
    call(&Request::RegionWrite { offset: 0, region: region::BAR0, data: &[0; 8] }, &[], server, device);
    if server.info().reset {
        call(&Request::DeviceReset, &[], server, device);
    }
}

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}
