//! A capture of what passes a Port, as a pcapng file that Wireshark opens.
//!
//! Every frame gets an Ethernet header with EtherType 0x88B5, whatever its link was, so that one dissector reads them
//! all. On raw Ethernet the addresses are the real ones; others are made up, locally administered and stable:
//!
//! | address | MAC in the capture |
//! |---|---|
//! | UDP over IPv4, `a.b.c.d:port` | `02:bb:cc:dd:pp:pp` |
//! | UDP over IPv6 | `06:` and 40 bits of a hash of address and port |
//! | memory port N | `0a:4d:nn:nn:nn:nn` |
//!
//! Frames that the Port took are captured as sent, be they lost later. The file is written in blocks of 256 KiB and at least once a
//! second if the owner ticks. An error in writing ends the capture, never the traffic.

use std::fs::File;
use std::io::Write;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::pcapng::{self, Direction};
use crate::{Address, Counters, ETHERTYPE, MAX_FRAME_BYTES, OpenError, Port};

const BUFFER_BYTES: usize = 256 << 10;
const FLUSH_NS: u64 = 1_000_000_000;
const HEADER_BYTES: usize = 14;

/// Where the times in a capture come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TapClock {
    /// The system's wall clock.
    System,
    /// The time of the last [`Port::tick`]: a simulator's virtual time.
    Ticks,
}

/// A Port whose frames are captured.
pub struct Tap<P> {
    port: P,
    capture: Capture,
}

struct Capture {
    /// None once writing failed.
    out: Option<Box<dyn Write>>,
    buffer: Vec<u8>,
    clock: TapClock,
    now_ns: u64,
    flush_ns: u64,
    frames: u64,
}

impl<P: Port> Tap<P> {
    /// Captures into a new file; one of that name is replaced.
    pub fn create(port: P, path: &Path) -> Result<Self, OpenError> {
        let file = File::create(path).map_err(|error| {
            OpenError::system(format!("cannot create the capture {}", path.display()), error)
        })?;
        Ok(Self::new(port, Box::new(file), TapClock::System))
    }

    /// Captures into a writer, which need not be buffered.
    pub fn new(port: P, out: Box<dyn Write>, clock: TapClock) -> Self {
        let mut buffer = Vec::with_capacity(BUFFER_BYTES);
        pcapng::start(&mut buffer, &port.address().to_string());
        Self { port, capture: Capture { out: Some(out), buffer, clock, now_ns: 0, flush_ns: 0, frames: 0 } }
    }

    /// Frames captured so far.
    pub fn captured(&self) -> u64 {
        self.capture.frames
    }

    /// Whether frames are still being captured.
    pub fn is_capturing(&self) -> bool {
        self.capture.out.is_some()
    }

    /// Writes what is buffered.
    pub fn flush(&mut self) {
        self.capture.flush();
    }

    /// The Port inside.
    pub fn port_mut(&mut self) -> &mut P {
        &mut self.port
    }
}

impl Capture {
    fn time_ns(&self) -> u64 {
        match self.clock {
            TapClock::Ticks => self.now_ns,
            TapClock::System => SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)),
        }
    }

    fn frame(&mut self, time_ns: u64, direction: Direction, from: &Address, to: &Address, frame: &[u8]) {
        if self.out.is_none() || frame.len() > MAX_FRAME_BYTES {
            return;
        }
        if self.buffer.len() + pcapng::packet_block_bytes(HEADER_BYTES + frame.len()) > BUFFER_BYTES {
            self.flush();
        }
        let mut header = [0; HEADER_BYTES];
        header[..6].copy_from_slice(&mac(to));
        header[6..12].copy_from_slice(&mac(from));
        header[12..].copy_from_slice(&ETHERTYPE.to_be_bytes());
        pcapng::packet(&mut self.buffer, time_ns, direction, &header, frame);
        self.frames += 1;
    }

    fn flush(&mut self) {
        if let Some(out) = &mut self.out
            && let Err(error) = out.write_all(&self.buffer).and_then(|()| out.flush())
        {
            tracing::warn!(%error, frames = self.frames, "capture ended: it cannot be written");
            self.out = None;
        }
        self.buffer.clear();
        self.flush_ns = self.now_ns.saturating_add(FLUSH_NS);
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.flush();
    }
}

impl<P: Port> Port for Tap<P> {
    fn max_frame_bytes(&self) -> usize {
        self.port.max_frame_bytes()
    }

    fn address(&self) -> Address {
        self.port.address()
    }

    fn send(&mut self, to: &Address, frames: &[&[u8]]) -> usize {
        let taken = self.port.send(to, frames);
        if taken > 0 && self.is_capturing() {
            let (time_ns, from) = (self.capture.time_ns(), self.port.address());
            for frame in &frames[..taken] {
                self.capture.frame(time_ns, Direction::Outbound, &from, to, frame);
            }
        }
        taken
    }

    fn receive(&mut self, handle: &mut dyn FnMut(&Address, &[u8])) -> usize {
        if !self.is_capturing() {
            return self.port.receive(handle);
        }
        let to = self.port.address();
        let capture = &mut self.capture;
        let mut time_ns = None;
        self.port.receive(&mut |from, frame| {
            let time_ns = *time_ns.get_or_insert_with(|| capture.time_ns());
            capture.frame(time_ns, Direction::Inbound, from, &to, frame);
            handle(from, frame);
        })
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.port.fd()
    }

    fn before_sleep(&mut self) -> bool {
        self.port.before_sleep()
    }

    fn poll_at(&self) -> Option<u64> {
        let flush = (!self.capture.buffer.is_empty() && self.is_capturing()).then_some(self.capture.flush_ns);
        [self.port.poll_at(), flush].into_iter().flatten().min()
    }

    fn tick(&mut self, now_ns: u64) {
        self.capture.now_ns = now_ns;
        self.port.tick(now_ns);
        if !self.capture.buffer.is_empty() && now_ns >= self.capture.flush_ns {
            self.capture.flush();
        }
    }

    fn counters(&self) -> &Counters {
        self.port.counters()
    }
}

/// The MAC that stands for an address in a capture.
fn mac(address: &Address) -> [u8; 6] {
    match address {
        Address::Mac(mac) => *mac,
        Address::Memory(port) | Address::Ring(port) => {
            let [a, b, c, d] = port.to_be_bytes();
            [0x0A, 0x4D, a, b, c, d]
        }
        Address::Udp(SocketAddr::V4(address)) => {
            let [_, b, c, d] = address.ip().octets();
            let [high, low] = address.port().to_be_bytes();
            [0x02, b, c, d, high, low]
        }
        Address::Udp(SocketAddr::V6(address)) => {
            // FNV-1a, 64 bits.
            let octets = address.ip().octets().into_iter().chain(address.port().to_be_bytes());
            let hash = octets.fold(0xCBF2_9CE4_8422_2325_u64, |hash, octet| {
                (hash ^ u64::from(octet)).wrapping_mul(0x0000_0100_0000_01B3)
            });
            let mut mac = [0x06; 6];
            mac[1..].copy_from_slice(&hash.to_be_bytes()[3..]);
            mac
        }
    }
}
