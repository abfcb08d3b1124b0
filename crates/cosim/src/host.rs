//! Memory of the host, behind the AXI ports of the hardware.

use std::collections::VecDeque;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// A burst that was asked for.
#[derive(Clone, Copy, Debug)]
struct Burst {
    address: u64,
    /// Beats, and whether they go round in their block (WRAP).
    beats: u64,
    wraps: bool,
    /// The clock in which its first beat may come.
    from: u64,
    /// Beats that are done.
    done: u64,
}

impl Burst {
    /// Where the next beat lies.
    fn at(&self) -> u64 {
        let place = self.address + 8 * self.done;
        if !self.wraps {
            return place;
        }
        let bytes = 8 * self.beats;
        let start = self.address & !(bytes - 1);
        start + (place & (bytes - 1))
    }
}

/// A read port: bursts in the order in which they were asked for.
#[derive(Debug, Default)]
struct ReadPort {
    bursts: VecDeque<Burst>,
    shown: bool,
    takes: bool,
}

/// Memory, addresses from 0, with the pins of the ports before a clock and after it.
///
/// Reads come after a latency, and every port pauses now and then, as the seed says. What lies beyond the memory is not there: an access ends the test.
#[derive(Debug)]
pub struct HostMemory {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Clocks from the address of a read to its first data, and from the last data of a write to its response.
    pub latency: u64,
    /// In how many of 100 clocks a port pauses.
    pub pause: u32,
    rng: SmallRng,
    now: u64,
    reads: [ReadPort; 2],
    writes: VecDeque<Burst>,
    data: VecDeque<(u64, u8, bool)>,
    answers: VecDeque<u64>,
    takes_address: bool,
    takes_data: bool,
}

/// A read port before a clock.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReadIn {
    pub(crate) address_ready: u8,
    pub(crate) data: u64,
    pub(crate) last: u8,
    pub(crate) valid: u8,
}

/// A read port after a clock.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReadOut {
    pub(crate) address: u64,
    pub(crate) length: u8,
    pub(crate) address_valid: u8,
    pub(crate) ready: u8,
}

/// The write port before a clock.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WriteIn {
    pub(crate) address_ready: u8,
    pub(crate) data_ready: u8,
    pub(crate) answer_valid: u8,
}

/// The write port after a clock.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WriteOut {
    pub(crate) address: u64,
    pub(crate) length: u8,
    pub(crate) burst: u8,
    pub(crate) address_valid: u8,
    pub(crate) data: u64,
    pub(crate) strobe: u8,
    pub(crate) last: u8,
    pub(crate) data_valid: u8,
}

impl HostMemory {
    /// So many bytes of zeros, with a latency of one clock and without pauses.
    pub fn new(bytes: usize, seed: u64) -> Self {
        Self {
            bytes: vec![0; bytes],
            latency: 1,
            pause: 0,
            rng: SmallRng::seed_from_u64(seed),
            now: 0,
            reads: Default::default(),
            writes: VecDeque::new(),
            data: VecDeque::new(),
            answers: VecDeque::new(),
            takes_address: false,
            takes_data: false,
        }
    }

    fn goes(&mut self) -> bool {
        self.pause == 0 || self.rng.random_range(0..100) >= self.pause
    }

    fn word(&self, address: u64) -> u64 {
        let at = (address & !7) as usize;
        let word = self
            .bytes
            .get(at..at + 8)
            .unwrap_or_else(|| panic!("a read of {address:#x}, where no memory is"));
        word.try_into().map(u64::from_le_bytes).unwrap_or_default()
    }

    pub(crate) fn before_read(&mut self, port: usize) -> ReadIn {
        let takes = self.goes();
        let goes = self.goes();
        let first = self.reads[port].bursts.front().copied();
        // What was offered stays until it is taken.
        let shown = first.filter(|burst| self.reads[port].shown || burst.from <= self.now && goes);
        self.reads[port].shown = shown.is_some();
        self.reads[port].takes = takes;
        ReadIn {
            address_ready: u8::from(takes),
            data: shown.map_or(0, |burst| self.word(burst.at())),
            last: shown.map_or(0, |burst| u8::from(burst.done + 1 == burst.beats)),
            valid: u8::from(shown.is_some()),
        }
    }

    pub(crate) fn after_read(&mut self, port: usize, out: ReadOut) {
        let from = self.now + self.latency;
        let port = &mut self.reads[port];
        if port.shown && out.ready != 0 {
            port.shown = false;
            if let Some(burst) = port.bursts.front_mut() {
                burst.done += 1;
                if burst.done == burst.beats {
                    port.bursts.pop_front();
                }
            }
        }
        if port.takes && out.address_valid != 0 {
            let beats = u64::from(out.length) + 1;
            assert!((out.address & 4095) + 8 * beats <= 4096, "a burst over a border of 4 KiB");
            port.bursts.push_back(Burst { address: out.address, beats, wraps: false, from, done: 0 });
        }
    }

    pub(crate) fn before_write(&mut self) -> WriteIn {
        (self.takes_address, self.takes_data) = (self.goes(), self.goes());
        let answer = self.answers.front().is_some_and(|&from| from <= self.now);
        WriteIn {
            address_ready: u8::from(self.takes_address),
            data_ready: u8::from(self.takes_data),
            answer_valid: u8::from(answer),
        }
    }

    pub(crate) fn after_write(&mut self, out: WriteOut) {
        if self.answers.front().is_some_and(|&from| from <= self.now) {
            self.answers.pop_front();
        }
        if self.takes_address && out.address_valid != 0 {
            let beats = u64::from(out.length) + 1;
            assert!(
                (out.address & 4095) + 8 * beats <= 4096 || out.burst == 2,
                "a burst over a border of 4 KiB"
            );
            self.writes.push_back(Burst {
                address: out.address,
                beats,
                wraps: out.burst == 2,
                from: self.now,
                done: 0,
            });
        }
        if self.takes_data && out.data_valid != 0 {
            self.data.push_back((out.data, out.strobe, out.last != 0));
        }
        while let (Some(burst), Some(&(data, strobe, last))) = (self.writes.front_mut(), self.data.front()) {
            let at = burst.at() as usize & !7;
            burst.done += 1;
            assert_eq!(last, burst.done == burst.beats, "the last beat of a burst is marked");
            let place = self
                .bytes
                .get_mut(at..at + 8)
                .unwrap_or_else(|| panic!("a write to {at:#x}, where no memory is"));
            for (lane, byte) in place.iter_mut().enumerate().filter(|(lane, _)| strobe >> lane & 1 != 0) {
                *byte = data.to_le_bytes()[lane];
            }
            self.data.pop_front();
            if last {
                self.writes.pop_front();
                self.answers.push_back(self.now + self.latency);
            }
        }
    }

    pub(crate) fn end_clock(&mut self) {
        self.now += 1;
    }
}
