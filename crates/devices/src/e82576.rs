//! An Intel 82576 Gigabit Ethernet controller (82576EB datasheet), as the stock drivers for it want it.
//!
//! The way of a frame out: the driver writes a ring's tail; its descriptors are taken in (`ring`), their data are read or came along with the
//! doorbell (`transmit`), frames are made of them with checksums, tags and segmentation (`transmit::framer`), and leave by the
//! cable. The way in: a frame waits in the cable, passes the filters (`filter`), is given to a ring by its hash (`packet`, `receive`), and
//! is written to the buffers and behind them the descriptors. Both end in a cause, which `interrupts` tells with its moderation.
//!
//! Everything is bounded and made at the start; there is no allocation per frame. What a driver does wrong stops its ring (ICR.FER) or loses its
//! frame, which is counted.
//!
//! Not there: header split, RSC-like coalescing, the security and manageability engines, wake-up, time stamps of frames, and the virtual
//! Functions. The registers of those are laid out for them: rings are numbered through, and pools choose among them in `receive::admit` only.

mod bits;
mod checksum;
mod clock;
mod filter;
mod function;
mod interrupts;
mod nvm;
mod packet;
mod phy;
mod receive;
mod registers;
mod ring;
mod statistics;
mod transmit;

use crate::cable::End;
use clock::Clock;
use interrupts::{Interrupts, QUEUES};
use nvm::Nvm;
use phy::Phy;
use receive::Receiver;
use registers::Registers;
use ring::Ring;
use statistics::Statistics;
use transmit::TransmitQueue;

/// What a controller is to be.
#[derive(Debug)]
pub struct Config {
    /// Its Ethernet address, of one station. The serial number follows from it.
    pub mac: [u8; 6],
    /// What it is plugged into.
    pub cable: End,
}

/// Why there can be no such controller.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// An address of several stations, or of none.
    #[error("mac must be the address of one station: its first octet even, and not all of it 0")]
    Mac,
}

/// The controller.
pub struct E82576 {
    mac: [u8; 6],
    registers: Registers,
    interrupts: Interrupts,
    statistics: Statistics,
    nvm: Nvm,
    phy: Phy,
    clock: Clock,
    transmit: [TransmitQueue; QUEUES],
    rings: [Ring; QUEUES],
    receiver: Receiver,
    cable: End,
    /// SWSM: the semaphore between software and firmware.
    semaphore: u32,
    has_link: bool,
    /// The ring that has the first turn.
    turn: usize,
    /// Bytes asked for from memory that have not come.
    outstanding: usize,
    now_ns: u64,
}

impl E82576 {
    /// A controller, as it is after power-on.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        if config.mac[0] & 1 != 0 || config.mac == [0; 6] {
            return Err(ConfigError::Mac);
        }
        let frames = config.cable.room();
        let mut controller = Self {
            mac: config.mac,
            registers: Registers::new(),
            interrupts: Interrupts::new(),
            statistics: Statistics::new(),
            nvm: Nvm::new(config.mac),
            phy: Phy::new(),
            clock: Clock::default(),
            transmit: std::array::from_fn(|_| TransmitQueue::new()),
            // The first receive ring is enabled from the start (8.10.8).
            rings: std::array::from_fn(|queue| Ring::new(queue == 0)),
            receiver: Receiver::new(frames),
            cable: config.cable,
            semaphore: 0,
            has_link: false,
            turn: 0,
            outstanding: 0,
            now_ns: 0,
        };
        controller.restart();
        Ok(controller)
    }
}

impl std::fmt::Debug for E82576 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("E82576")
            .field("mac", &self.mac)
            .field("has_link", &self.has_link)
            .field("outstanding", &self.outstanding)
            .finish_non_exhaustive()
    }
}
