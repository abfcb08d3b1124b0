//! All clients of some disks.

use std::io::{Read, Write};

use etherslot_initiator::{BufferClass, Disk, DiskInfo, Done};

use crate::budget::Budget;
use crate::connection::{Connection, Ending, Shared, Turn, Volume, slot_of};
use crate::export::{Export, Geometry, Offer};
use crate::message::MAX_STRING_BYTES;

/// Payload that nobody wants is read in pieces of this.
const SINK_BYTES: usize = 64 << 10;

/// What a server is told.
#[derive(Clone, Debug)]
pub struct Config {
    /// What clients can choose from; those of disks that there are not are left out.
    pub exports: Vec<Export>,
    /// The buffers of each disk, up to four sizes; nobody else may take any.
    pub buffers: Vec<BufferClass>,
    /// Clients at the same time. Of each size there have to be as many buffers at least.
    pub connections: u16,
    /// Requests under way of each client; then its stream is not read.
    pub requests: u16,
    /// A client that has not chosen an export by then is sent away.
    pub handshake_timeout_ns: u64,
}

impl Default for Config {
    /// Buffers of 30 MiB in all for each disk, for 32 clients.
    fn default() -> Self {
        Self {
            exports: Vec::new(),
            buffers: vec![
                BufferClass { bytes: 4096, count: 512 },
                BufferClass { bytes: 32 << 10, count: 128 },
                BufferClass { bytes: 256 << 10, count: 96 },
            ],
            connections: 32,
            requests: 128,
            handshake_timeout_ns: 10_000_000_000,
        }
    }
}

/// What a server has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Clients that came.
    pub connections: u64,
    /// Clients that were sent away because there were too many.
    pub refused: u64,
    /// Clients that broke the protocol.
    pub broken: u64,
    /// Clients that did not choose an export in time.
    pub slow: u64,
    /// `NBD_CMD_READ` requests.
    pub reads: u64,
    /// `NBD_CMD_WRITE` requests.
    pub writes: u64,
    /// Requests of other types.
    pub others: u64,
    /// Requests that were answered by an error.
    pub errors: u64,
    /// Bytes read from the disk.
    pub bytes_read: u64,
    /// Bytes written to the disk.
    pub bytes_written: u64,
    /// Bytes of all kinds sent to clients.
    pub bytes_sent: u64,
}

/// The disks of a server.
pub trait Disks {
    /// The disk of this number, one of as many as the server was told of.
    fn disk(&mut self, number: usize) -> &mut dyn Disk;
}

/// The only one.
impl<D: Disk> Disks for D {
    fn disk(&mut self, _number: usize) -> &mut dyn Disk {
        self
    }
}

impl<D: Disk> Disks for [D] {
    fn disk(&mut self, number: usize) -> &mut dyn Disk {
        &mut self[number]
    }
}

/// The server of some disks. `S` is a stream that never blocks: it fails with `WouldBlock`.
#[derive(Debug)]
pub struct Server<S> {
    shared: Shared,
    /// In the order of the disks.
    volumes: Vec<Volume>,
    slots: Vec<Option<Connection<S>>>,
    requests: u16,
    handshake_timeout_ns: u64,
    done: Vec<Done>,
    /// The connection whose turn is first.
    first: usize,
    is_draining: bool,
}

impl<S: Read + Write> Server<S> {
    /// For disks that are as `disks` says.
    pub fn new(config: Config, disks: &[DiskInfo]) -> Self {
        let Config { exports, buffers, connections, requests, handshake_timeout_ns } = config;
        // 65535 is nobody's: a user of a disk beside us can have tokens of its own.
        let connections = connections.clamp(1, u16::MAX - 1);
        let volume = |info| {
            let budget = Budget::new(&buffers, connections.into());
            Volume { geometry: Geometry::new(info, budget.largest()), budget }
        };
        let volumes: Vec<Volume> = disks.iter().map(volume).collect();
        let offer = |mut export: Export| {
            shorten(&mut export.name);
            shorten(&mut export.description);
            let geometry = volumes.get(export.disk)?.geometry.clone();
            Some(Offer { export, geometry })
        };
        let offers = exports.into_iter().filter_map(offer).collect();
        let sink = vec![0; SINK_BYTES].into();
        Self {
            shared: Shared { offers, counters: Counters::default(), sink },
            volumes,
            slots: (0..connections).map(|_| None).collect(),
            requests: requests.max(1),
            handshake_timeout_ns,
            done: Vec::with_capacity(disks.iter().map(|info| info.queue_depth).max().unwrap_or(0)),
            first: 0,
            is_draining: false,
        }
    }

    /// The place that the next client gets, if there is one.
    pub fn vacancy(&self) -> Option<usize> {
        self.slots.iter().position(Option::is_none).filter(|_| !self.is_draining)
    }

    /// A client has come; `peer` is for the log. Its place, by which it is woken.
    ///
    /// # Errors
    /// There are too many, or the server is to end: the stream is given back.
    pub fn connect(&mut self, now_ns: u64, stream: S, peer: String) -> Result<usize, S> {
        let Some(place) = self.vacancy() else {
            self.shared.counters.refused += 1;
            return Err(stream);
        };
        self.shared.counters.connections += 1;
        let until_ns = now_ns.saturating_add(self.handshake_timeout_ns);
        self.slots[place] = Some(Connection::new(stream, peer, until_ns, self.requests));
        Ok(place)
    }

    /// The stream at this place may have bytes, or room. `hung_up`: or its end, which is told once.
    #[inline]
    pub fn wake(&mut self, place: usize, hung_up: bool) {
        if let Some(connection) = self.slots.get_mut(place).and_then(Option::as_mut) {
            connection.wake(hung_up);
        }
    }

    /// Goes on with everything that can go on. True if something was done.
    pub fn poll<D: Disks + ?Sized>(&mut self, now_ns: u64, disks: &mut D) -> bool {
        let Self { shared, volumes, slots, done: all, .. } = self;
        let mut progress = false;
        for (number, volume) in volumes.iter_mut().enumerate() {
            let disk = disks.disk(number);
            progress |= disk.poll(&mut |done| all.push(done)) != 0;
            for done in all.drain(..) {
                let slot = slot_of(done.token);
                let Some(Some(connection)) = slots.get_mut(usize::from(slot)) else { continue };
                let turn = &mut Turn { disk: &mut *disk, volume: &mut *volume, shared: &mut *shared, slot };
                if let Err(ending) = connection.done(turn, done) {
                    end(connection, turn, ending);
                }
            }
        }
        let count = slots.len();
        // Not always the same one takes the last buffer.
        self.first = if self.first + 1 < count { self.first + 1 } else { 0 };
        for place in (self.first..count).chain(0..self.first) {
            let Some(connection) = &mut slots[place] else { continue };
            let number = connection.disk();
            let Some(volume) = volumes.get_mut(number) else { continue };
            let (disk, slot) = (disks.disk(number), place as u16);
            let turn = &mut Turn { disk, volume, shared: &mut *shared, slot };
            match connection.poll(now_ns, turn) {
                Ok(went_on) => progress |= went_on,
                Err(ending) => {
                    end(connection, turn, ending);
                    progress = true;
                }
            }
            if connection.is_over() {
                slots[place] = None;
            }
        }
        progress
    }

    /// When [`Server::poll`] should be called even if nothing happens.
    pub fn deadline_ns(&self) -> Option<u64> {
        self.slots.iter().flatten().filter_map(Connection::until_ns).min()
    }

    /// Takes no further clients and requests; connections end when what is under way is done and answered.
    pub fn drain(&mut self) {
        self.is_draining = true;
        self.slots.iter_mut().flatten().for_each(Connection::leave);
    }

    /// Whether there is no client, and nothing under way of those that were.
    pub fn is_idle(&self) -> bool {
        self.slots.iter().all(Option::is_none)
    }

    /// What was counted.
    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }
}

fn end<S: Read + Write>(connection: &mut Connection<S>, turn: &mut Turn<'_>, ending: Ending) {
    let peer = &connection.peer;
    match ending {
        Ending::Orderly | Ending::Gone => tracing::info!(peer, "client gone"),
        Ending::Broken(what) => {
            turn.shared.counters.broken += 1;
            tracing::warn!(peer, what, "client sent away: it breaks the protocol");
        }
        Ending::Slow => {
            turn.shared.counters.slow += 1;
            tracing::warn!(peer, "client sent away: it chose no export in time");
        }
        Ending::Failed => {
            turn.shared.counters.errors += 1;
            tracing::warn!(peer, "connection ended: a read failed after its reply had begun");
        }
    }
    connection.close(turn);
}

/// To the longest string of the protocol.
fn shorten(text: &mut String) {
    let mut end = text.len().min(MAX_STRING_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
}
