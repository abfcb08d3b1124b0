//! Hostile clients against the NBD server, on a disk in memory.
//!
//! An input is what up to three clients do one after the other, in turns: options and requests that are right, wrong, cut and flooded,
//! payload that comes or does not, replies that are read or not; with a disk that stands still and fails now and then.
//! Whatever they do, no call of the server panics or works without end, the heap stays bounded, and when they are gone
//! all buffers are back and a good client is served.

#![no_main]

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, IoSliceMut, Read, Write};
use std::rc::Rc;

use etherslot_fuzz::{Input, heap};
use etherslot_initiator::{BufferClass, Disk, DiskError, MemoryDisk};
use etherslot_nbd::message::{OPTION_MAGIC, Request, SIMPLE_REPLY_MAGIC, option};
use etherslot_nbd::{Config, Export, Server};
use libfuzzer_sys::fuzz_target;

const BLOCKS: u64 = 128;
const CLIENTS: usize = 3;
const BUFFERS: [BufferClass; 2] =
    [BufferClass { bytes: 4096, count: 8 }, BufferClass { bytes: 8192, count: 6 }];
/// What is on the way to and from clients, places for their requests, and names for the log.
const MAX_GROWTH_BYTES: usize = 1 << 20;
/// Rounds after which there should be nothing to do any more.
const MAX_ROUNDS: usize = 40_000;

#[derive(Default)]
struct Wire {
    to_server: VecDeque<u8>,
    to_client: VecDeque<u8>,
    room: usize,
    at_once: usize,
    closed: bool,
}

struct Stream(Rc<RefCell<Wire>>);

impl Read for Stream {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let mut wire = self.0.borrow_mut();
        let count = to.len().min(wire.to_server.len()).min(wire.at_once);
        if count == 0 {
            return if wire.closed { Ok(0) } else { Err(io::ErrorKind::WouldBlock.into()) };
        }
        for (to, byte) in to.iter_mut().zip(wire.to_server.drain(..count)) {
            *to = byte;
        }
        Ok(count)
    }

    fn read_vectored(&mut self, parts: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let mut count = 0;
        for part in parts {
            match self.read(part) {
                Ok(bytes) => count += bytes,
                Err(error) if count == 0 => return Err(error),
                Err(_) => break,
            }
            if self.0.borrow().to_server.is_empty() {
                break;
            }
        }
        Ok(count)
    }
}

impl Write for Stream {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        let mut wire = self.0.borrow_mut();
        if wire.closed {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let count = from.len().min(wire.room.saturating_sub(wire.to_client.len())).min(wire.at_once);
        if count == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        wire.to_client.extend(&from[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct World {
    disk: MemoryDisk,
    server: Server<Stream>,
    now_ns: u64,
}

impl World {
    fn connect(&mut self) -> Rc<RefCell<Wire>> {
        let wire = Rc::new(RefCell::new(Wire { room: 1 << 16, at_once: usize::MAX, ..Wire::default() }));
        assert!(self.server.connect(self.now_ns, Stream(Rc::clone(&wire)), String::new()).is_ok());
        wire
    }

    fn round(&mut self) -> bool {
        for place in 0..CLIENTS {
            self.server.wake(place, false);
        }
        self.server.poll(self.now_ns, &mut self.disk)
    }

    fn settle(&mut self) {
        assert!((0..MAX_ROUNDS).any(|_| !self.round()), "the server works without end");
    }
}

fuzz_target!(|input: &[u8]| {
    let mut input = Input::new(input);
    let exports = vec![
        Export { disk: 0, name: "disk".into(), description: "of the fuzzer".into(), read_only: false },
        Export { disk: 0, name: "kept".into(), description: String::new(), read_only: true },
    ];
    let mut disk = MemoryDisk::new(512, BLOCKS, 4, &BUFFERS);
    disk.info_mut().max_zero_blocks = 5;
    disk.info_mut().max_discard_blocks = 7;
    let config = Config {
        exports,
        buffers: BUFFERS.to_vec(),
        connections: CLIENTS as u16,
        requests: 4,
        ..Config::default()
    };
    let server = Server::new(config, std::slice::from_ref(disk.info()));
    let mut world = World { disk, server, now_ns: 1 };
    let heap_bytes = heap::taken_bytes();
    let mut clients: [Option<Rc<RefCell<Wire>>>; CLIENTS] = Default::default();
    while !input.is_empty() {
        act(&mut input, &mut world, &mut clients);
        assert!(heap::taken_bytes() <= heap_bytes + MAX_GROWTH_BYTES, "clients make the heap grow");
    }
    world.disk.hold(false);
    for wire in clients.iter().flatten() {
        let mut wire = wire.borrow_mut();
        (wire.closed, wire.room, wire.at_once) = (true, usize::MAX, usize::MAX);
    }
    drop(clients);
    world.settle();
    assert!(world.server.is_idle() && world.disk.in_flight() == 0);
    for class in BUFFERS {
        let all: Vec<_> = (0..class.count).filter_map(|_| world.disk.take_buffer(class.bytes)).collect();
        assert_eq!(all.len(), class.count, "a buffer of {} bytes is lost", class.bytes);
        for buffer in all {
            world.disk.give_back(buffer);
        }
    }
    serve_well(&mut world);
});

fn act(input: &mut Input<'_>, world: &mut World, clients: &mut [Option<Rc<RefCell<Wire>>>; CLIENTS]) {
    let place = input.below(CLIENTS);
    let Some(wire) = &clients[place] else {
        world.settle();
        if world.server.vacancy().is_none() {
            return;
        }
        let wire = world.connect();
        if !input.once_in(8) {
            let flags = if input.once_in(8) { input.u32() } else { 3 };
            wire.borrow_mut().to_server.extend(flags.to_be_bytes());
        }
        clients[place] = Some(wire);
        return;
    };
    let say = |bytes: &[u8]| {
        let mut wire = wire.borrow_mut();
        if wire.to_server.len() < 1 << 16 {
            wire.to_server.extend(bytes);
        }
    };
    match input.u8() % 16 {
        0 | 1 => {
            let (option, data) = an_option(input);
            say(&OPTION_MAGIC.to_be_bytes());
            say(&option.to_be_bytes());
            let length = if input.once_in(16) { input.number() as u32 } else { data.len() as u32 };
            say(&length.to_be_bytes());
            say(&data);
        }
        2..=7 => {
            let command = input.u16() % 9;
            let flags = if input.once_in(4) { input.u16() } else { 0 };
            let offset = if input.once_in(6) { input.number() } else { u64::from(input.u8()) % BLOCKS * 512 };
            let length =
                if input.once_in(6) { input.number() as u32 } else { (u32::from(input.u8()) % 90) * 512 };
            say(&Request { flags, command, cookie: input.u8().into(), offset, length }.encode());
            if command == 1 && !input.once_in(8) {
                say(&vec![0xA5; length.min(1 << 16) as usize]);
            }
        }
        8 => say(input.bytes(20)),
        9 => {
            let mut wire = wire.borrow_mut();
            wire.room = if input.flag() { 1 << 16 } else { input.u16().into() };
            wire.at_once = if input.flag() { usize::MAX } else { 16 + usize::from(input.u8()) };
        }
        10 => world.disk.hold(input.flag()),
        11 => world.disk.fail_next(DiskError::Lost),
        12 => world.now_ns += u64::from(input.u32()) * 8,
        13 => {
            wire.borrow_mut().closed = true;
            clients[place] = None;
        }
        14 => wire.borrow_mut().to_client.clear(),
        _ => {
            world.round();
        }
    }
    if input.once_in(4) {
        world.settle();
    }
}

fn an_option(input: &mut Input<'_>) -> (u32, Vec<u8>) {
    let name = input.one_of(&[&b"disk"[..], b"kept", b"", b"no"]);
    let option = if input.once_in(8) { input.u32() } else { u32::from(input.u8() % 12) };
    if !matches!(option, option::INFO | option::GO) {
        let data = if option == option::EXPORT_NAME {
            name
        } else {
            input.bytes(usize::from(input.clone().u8() % 4))
        };
        return (option, data.to_vec());
    }
    let mut data = (name.len() as u32).to_be_bytes().to_vec();
    data.extend(name);
    data.extend([0, 2, 0, 3, 0, input.u8()]);
    (option, data)
}

/// A client that keeps to the protocol gets what it asks for.
fn serve_well(world: &mut World) {
    let wire = world.connect();
    wire.borrow_mut().to_server.extend(3u32.to_be_bytes());
    wire.borrow_mut().to_server.extend(OPTION_MAGIC.to_be_bytes());
    wire.borrow_mut().to_server.extend(option::EXPORT_NAME.to_be_bytes());
    wire.borrow_mut().to_server.extend(0u32.to_be_bytes());
    let read = Request { flags: 0, command: 0, cookie: 9, offset: 512, length: 20_480 };
    wire.borrow_mut().to_server.extend(read.encode());
    // The failure that was asked for may have met nobody yet.
    wire.borrow_mut().to_server.extend(Request { cookie: 10, ..read }.encode());
    world.settle();
    let said: Vec<u8> = wire.borrow().to_client.iter().copied().collect();
    let expected = [&SIMPLE_REPLY_MAGIC.to_be_bytes()[..], &[0; 4], &10u64.to_be_bytes()].concat();
    let at = said.len() - 20_480 - expected.len();
    assert_eq!(said[at..at + expected.len()], expected);
    wire.borrow_mut().closed = true;
    world.settle();
    assert!(world.server.is_idle());
}
