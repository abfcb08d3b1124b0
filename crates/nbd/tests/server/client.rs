//! A client that says what a test tells it to, and the streams between it and the server.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::rc::Rc;

use etherslot_initiator::{BufferClass, Disk, MemoryDisk};
use etherslot_nbd::message::{
    FIXED_NEWSTYLE, NO_ZEROES, OPTION_MAGIC, OPTION_REPLY_MAGIC, Request, SIMPLE_REPLY_MAGIC,
    STRUCTURED_REPLY_MAGIC, chunk, info, option, reply,
};
use etherslot_nbd::{Config, Disks, Export, Server};

#[derive(Debug, Default)]
pub(crate) struct Wire {
    to_server: VecDeque<u8>,
    pub(crate) to_client: VecDeque<u8>,
    /// As many bytes wait for the client at most.
    room: usize,
    /// As many bytes go at most at each call.
    pub(crate) at_once: usize,
    closed: bool,
    pub(crate) dropped: bool,
}

/// The server's end.
#[derive(Debug)]
pub(crate) struct Stream(Rc<RefCell<Wire>>);

impl Read for Stream {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let mut wire = self.0.borrow_mut();
        let bytes = to.len().min(wire.to_server.len()).min(wire.at_once);
        if bytes == 0 {
            return if wire.closed { Ok(0) } else { Err(io::ErrorKind::WouldBlock.into()) };
        }
        for (to, byte) in to.iter_mut().zip(wire.to_server.drain(..bytes)) {
            *to = byte;
        }
        Ok(bytes)
    }

    fn read_vectored(&mut self, parts: &mut [io::IoSliceMut<'_>]) -> io::Result<usize> {
        let mut count = 0;
        for part in parts {
            match self.read(part) {
                Ok(bytes) if bytes == part.len() => count += bytes,
                Ok(bytes) => return Ok(count + bytes),
                Err(error) if count == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(count)
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut wire = self.0.borrow_mut();
        let count = bytes.len().min(wire.room.saturating_sub(wire.to_client.len())).min(wire.at_once);
        if count == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        wire.to_client.extend(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.0.borrow_mut().dropped = true;
    }
}

/// The disks of a [`World`].
struct Both<'a> {
    disk: &'a mut MemoryDisk,
    other: Option<&'a mut MemoryDisk>,
}

impl Disks for Both<'_> {
    fn disk(&mut self, number: usize) -> &mut dyn Disk {
        match (number, &mut self.other) {
            (0, _) => self.disk,
            (1, Some(other)) => *other,
            _ => panic!("the server was told of no disk {number}"),
        }
    }
}

/// A disk of 16 MiB, its server, and time.
pub(crate) struct World {
    pub(crate) disk: MemoryDisk,
    /// A second disk of the same server.
    pub(crate) other: Option<MemoryDisk>,
    pub(crate) server: Server<Stream>,
    pub(crate) now_ns: u64,
}

pub(crate) const DISK_BYTES: usize = 16 << 20;
pub(crate) const OTHER_BYTES: usize = 4 << 20;

pub(crate) fn config() -> Config {
    Config {
        exports: vec![
            Export { disk: 0, name: "disk".into(), description: "a disk".into(), read_only: false },
            Export { disk: 0, name: "kept".into(), description: String::new(), read_only: true },
        ],
        buffers: vec![BufferClass { bytes: 4096, count: 32 }, BufferClass { bytes: 65536, count: 16 }],
        connections: 4,
        requests: 16,
        ..Config::default()
    }
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(config(), |_| {})
    }

    pub(crate) fn with(config: Config, change: impl FnOnce(&mut MemoryDisk)) -> Self {
        let mut disk = MemoryDisk::new(512, DISK_BYTES as u64 / 512, 24, &config.buffers);
        change(&mut disk);
        let info = Disk::info(&disk).clone();
        Self { server: Server::new(config, &[info]), disk, other: None, now_ns: 1 }
    }

    /// With a second disk of 4 MiB in blocks of 4096 bytes, exported as `other`.
    pub(crate) fn with_two_disks() -> Self {
        let mut config = config();
        config.exports.push(Export {
            disk: 1,
            name: "other".into(),
            description: String::new(),
            read_only: false,
        });
        config.exports.push(Export {
            disk: 2,
            name: "nowhere".into(),
            description: String::new(),
            read_only: false,
        });
        let mut world = Self::with(config.clone(), |_| {});
        let other = MemoryDisk::new(4096, OTHER_BYTES as u64 / 4096, 24, &config.buffers);
        let infos = [&world.disk, &other].map(|disk| Disk::info(disk).clone());
        world.server = Server::new(config, &infos);
        world.other = Some(other);
        world
    }

    /// A client that has said nothing.
    pub(crate) fn connect(&mut self) -> Client {
        let wire = Rc::new(RefCell::new(Wire { room: 1 << 20, at_once: usize::MAX, ..Wire::default() }));
        let place = self.server.connect(self.now_ns, Stream(Rc::clone(&wire)), "test".into());
        Client { wire, place: place.unwrap_or(usize::MAX), cookie: 0 }
    }

    /// A client that uses this export.
    pub(crate) fn enter(&mut self, name: &str, structured: bool) -> Client {
        let mut client = self.connect();
        client.greet(self);
        if structured {
            client.option(option::STRUCTURED_REPLY, &[]);
            self.run();
            assert_eq!(client.replies(option::STRUCTURED_REPLY).len(), 1);
        }
        client.option(option::GO, &go(name, &[info::BLOCK_SIZE]));
        self.run();
        assert_eq!(client.replies(option::GO).last().map(|reply| reply.0), Some(reply::ACK));
        client
    }

    /// Until nothing more is to be done.
    pub(crate) fn run(&mut self) {
        // A stream may bring a byte at a time.
        for _ in 0..400_000 {
            for place in 0..4 {
                self.server.wake(place, false);
            }
            let Self { disk, other, .. } = self;
            if !self.server.poll(self.now_ns, &mut Both { disk, other: other.as_mut() }) {
                return;
            }
        }
        panic!("the server has no rest");
    }

    /// All buffers are where they belong.
    pub(crate) fn assert_clean(&mut self) {
        assert_eq!(self.disk.in_flight(), 0);
        assert!(self.server.is_idle());
        for class in config().buffers {
            let taken: Vec<_> =
                std::iter::from_fn(|| self.disk.take_buffer(class.bytes)).take(class.count).collect();
            assert_eq!(taken.len(), class.count, "buffers of {} bytes", class.bytes);
            for buffer in taken {
                self.disk.give_back(buffer);
            }
        }
    }
}

/// The data of `NBD_OPT_GO`.
pub(crate) fn go(name: &str, asked: &[u16]) -> Vec<u8> {
    let mut data = (name.len() as u32).to_be_bytes().to_vec();
    data.extend(name.as_bytes());
    data.extend((asked.len() as u16).to_be_bytes());
    data.extend(asked.iter().flat_map(|kind| kind.to_be_bytes()));
    data
}

/// What came for a request: its error, and data with their places.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) cookie: u64,
    pub(crate) error: u32,
    pub(crate) data: Vec<(u64, Vec<u8>)>,
}

pub(crate) struct Client {
    pub(crate) wire: Rc<RefCell<Wire>>,
    pub(crate) place: usize,
    cookie: u64,
}

impl Client {
    pub(crate) fn say(&self, bytes: &[u8]) {
        self.wire.borrow_mut().to_server.extend(bytes);
    }

    /// No more than this waits for the client unread.
    pub(crate) fn stop_reading_at(&self, bytes: usize) {
        self.wire.borrow_mut().room = bytes;
    }

    pub(crate) fn close(&self) {
        self.wire.borrow_mut().closed = true;
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.wire.borrow().dropped
    }

    pub(crate) fn take(&self, count: usize) -> Vec<u8> {
        let mut wire = self.wire.borrow_mut();
        let count = count.min(wire.to_client.len());
        wire.to_client.drain(..count).collect()
    }

    fn u32(&self) -> u32 {
        u32::from_be_bytes(self.take(4).try_into().unwrap())
    }

    fn u64(&self) -> u64 {
        u64::from_be_bytes(self.take(8).try_into().unwrap())
    }

    pub(crate) fn unread(&self) -> usize {
        self.wire.borrow().to_client.len()
    }

    pub(crate) fn greet(&mut self, world: &mut World) {
        world.run();
        assert_eq!(self.take(18)[..16], *b"NBDMAGICIHAVEOPT");
        self.say(&u32::from(FIXED_NEWSTYLE | NO_ZEROES).to_be_bytes());
    }

    pub(crate) fn option(&self, option: u32, data: &[u8]) {
        self.say(&OPTION_MAGIC.to_be_bytes());
        self.say(&option.to_be_bytes());
        self.say(&(data.len() as u32).to_be_bytes());
        self.say(data);
    }

    /// All that was replied to the option: types and data.
    pub(crate) fn replies(&self, option: u32) -> Vec<(u32, Vec<u8>)> {
        let mut replies = Vec::new();
        while self.unread() != 0 {
            assert_eq!((self.u64(), self.u32()), (OPTION_REPLY_MAGIC, option));
            let (kind, length) = (self.u32(), self.u32());
            replies.push((kind, self.take(length as usize)));
        }
        replies
    }

    /// A request; its cookie.
    pub(crate) fn request(&mut self, command: u16, flags: u16, offset: u64, length: u32) -> u64 {
        self.cookie += 1;
        self.say(&Request { flags, command, cookie: self.cookie, offset, length }.encode());
        self.cookie
    }

    /// All replies, where those to reads have `read` bytes of data if they are simple.
    pub(crate) fn answers(&self, read: usize) -> Vec<Answer> {
        let mut answers: Vec<Answer> = Vec::new();
        let mut parts: Vec<Answer> = Vec::new();
        while self.unread() != 0 {
            let magic = self.u32();
            if magic == SIMPLE_REPLY_MAGIC {
                let (error, cookie) = (self.u32(), self.u64());
                let bytes = if error == 0 { self.take(read) } else { Vec::new() };
                let data = if bytes.is_empty() { Vec::new() } else { vec![(0, bytes)] };
                answers.push(Answer { cookie, error, data });
                continue;
            }
            assert_eq!(magic, STRUCTURED_REPLY_MAGIC);
            let [flags, kind] =
                [self.take(2), self.take(2)].map(|two| u16::from_be_bytes(two.try_into().unwrap()));
            let (cookie, length) = (self.u64(), self.u32());
            let at = parts.iter().position(|part| part.cookie == cookie);
            let mut part = at.map(|at| parts.swap_remove(at)).unwrap_or_default();
            part.cookie = cookie;
            match kind {
                chunk::NONE => assert_eq!(length, 0),
                chunk::OFFSET_DATA => part.data.push((self.u64(), self.take(length as usize - 8))),
                chunk::ERROR => {
                    part.error = self.u32();
                    self.take(length as usize - 4);
                }
                _ => panic!("no chunk is of type {kind}"),
            }
            if flags & chunk::FLAG_DONE == 0 { parts.push(part) } else { answers.push(part) }
        }
        assert!(parts.is_empty(), "{} replies have no end", parts.len());
        answers
    }
}
