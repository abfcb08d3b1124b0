//! Finding out what the device is and has, and switching it on.

use super::device::Device;
use super::driver::Driver;
use super::orders::{REGISTERS, register};

/// "RNIC", and the version of the contract.
const IDENTITY: u64 = 1 << 32 | 0x4349_4E52;
/// RESET, and ENABLE.
const RESET: u32 = 2;
const ENABLE: u32 = 1;
/// What is read, 8 bytes each.
const READS: [u32; 10] = [0x000, 0x008, 0x010, 0x020, 0x028, 0x030, 0x038, 0x040, 0x048, 0x058];
const LAST_TABLES: u32 = 0x050;
/// FEATURES: there is a session table.
const SESSIONS: u32 = 1 << 11;

/// What a device has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// FEATURES.
    pub features: u32,
    /// QPs.
    pub qps: u32,
    /// CQs.
    pub cqs: u32,
    /// SRQs.
    pub srqs: u32,
    /// Peers.
    pub peers: u32,
    /// STags; index 0 is not used.
    pub stags: u32,
    /// Entries of the PBLMT.
    pub pages: u32,
    /// SGEs of a WQE.
    pub sges: u8,
    /// Blocks of a WQE.
    pub blocks: u8,
    /// Reads and Atomics under way, of the peer and of ours.
    pub ird: u8,
    /// See `ird`.
    pub ord: u8,
    /// Inline bytes of a WQE.
    pub inline_bytes: u16,
    /// Bytes of a datagram.
    pub datagram_bytes: u16,
    /// Sessions that the session table tells of; 0 if there is none.
    pub sessions: u32,
    /// Where the tables are.
    pub(super) tables: [u32; 6],
    pub(super) sessions_at: u32,
}

/// Why a device cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// It is none.
    #[error("the device is no RNIC of version 1 (it says {0:#x})")]
    Identity(u64),
    /// It has numbers that no RNIC has.
    #[error("the device says that it has {0}")]
    Numbers(&'static str),
    /// It is not the Function that was expected.
    #[error("the device lacks the BARs of an RNIC")]
    Bars,
}

/// Where the driver is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// There is no device.
    Away,
    /// CONTROL.RESET is to be written.
    Reset,
    /// The register of this number is read.
    Read(usize, bool),
    /// CONTROL.ENABLE is to be written.
    Enable,
    Ready,
    Unusable,
}

impl Driver {
    /// A device is there, and does nothing yet: it is reset and asked what it has.
    pub fn attach(&mut self) {
        self.forget();
        self.failure = None;
        self.limits = Limits::default();
        self.step = Step::Reset;
    }

    /// The device is gone, with all that was made; outcomes of orders under way never come.
    pub fn detach(&mut self) {
        self.forget();
        self.limits = Limits::default();
        self.step = Step::Away;
    }

    /// Whether things can be made, and work be posted.
    pub fn is_ready(&self) -> bool {
        self.step == Step::Ready
    }

    /// Why the device cannot be used, if so.
    pub fn failure(&self) -> Option<Failure> {
        self.failure
    }

    pub(super) fn fail(&mut self, failure: Failure) {
        self.failure = Some(failure);
        self.step = Step::Unusable;
    }

    /// Goes on with everything that can go on. True if something was done.
    pub fn drive<D: Device>(&mut self, device: &mut D) -> bool {
        match self.step {
            Step::Ready => self.orders.make_writes(device) | self.carry_out(device),
            Step::Away | Step::Unusable => false,
            Step::Reset => {
                let written = device.write(REGISTERS, register::CONTROL, &RESET.to_le_bytes());
                if written {
                    self.step = Step::Read(0, false);
                }
                written
            }
            Step::Read(at, has_asked) => self.read(device, at, has_asked),
            Step::Enable => {
                let written = device.write(REGISTERS, register::CONTROL, &ENABLE.to_le_bytes());
                if written {
                    self.step = Step::Ready;
                    let limits = self.limits;
                    self.begin(limits);
                }
                written
            }
        }
    }

    fn read<D: Device>(&mut self, device: &mut D, at: usize, has_asked: bool) -> bool {
        let offset = READS.get(at).copied().unwrap_or(LAST_TABLES);
        if !has_asked {
            let asked = device.ask(REGISTERS, offset, 8);
            self.step = Step::Read(at, asked);
            return asked;
        }
        let Some(value) = device.answer() else { return false };
        let (low, high) = (value as u32, (value >> 32) as u32);
        let limits = &mut self.limits;
        match offset {
            0x000 if value != IDENTITY => {
                self.fail(Failure::Identity(value));
                return true;
            }
            // RESET is not done yet.
            0x008 if low & RESET != 0 => {
                self.step = Step::Read(at, false);
                return true;
            }
            0x010 => limits.features = low,
            0x020 => (limits.qps, limits.cqs) = (low, high),
            0x028 => (limits.srqs, limits.peers) = (low, high),
            0x030 => (limits.stags, limits.pages) = (low, high),
            0x038 => {
                [limits.sges, limits.blocks, limits.ird, limits.ord] = low.to_le_bytes();
                limits.inline_bytes = high as u16;
                limits.datagram_bytes = (high >> 16) as u16;
            }
            0x040 => limits.tables[..2].copy_from_slice(&[low, high]),
            0x048 => limits.tables[2..4].copy_from_slice(&[low, high]),
            0x058 if limits.features & SESSIONS != 0 => {
                (limits.sessions, limits.sessions_at) = (low, high);
            }
            LAST_TABLES => {
                limits.tables[4..].copy_from_slice(&[low, high]);
                match self.wrong_number() {
                    Some(what) => self.fail(Failure::Numbers(what)),
                    None => self.step = Step::Enable,
                }
                return true;
            }
            _ => {}
        }
        self.step = Step::Read(at + 1, false);
        true
    }

    /// A number that would make the driver take memory without bound, or divide by nothing.
    fn wrong_number(&self) -> Option<&'static str> {
        let Limits { qps, cqs, srqs, peers, stags, pages, sessions, .. } = self.limits;
        let is =
            |count: u32, least: u32, most: u32| count.is_power_of_two() && (least..=most).contains(&count);
        match () {
            () if !is(qps, 2, 1 << 15) => Some("a number of QPs that is out of range"),
            () if !is(cqs, 1, 1 << 16) => Some("a number of CQs that is out of range"),
            () if srqs > 1 << 16 || peers > 1 << 16 => Some("too many SRQs or peers"),
            () if !(2..=1 << 24).contains(&stags) => Some("a number of STags that is out of range"),
            () if pages > 1 << 28 => Some("too many pages"),
            () if sessions > 1 << 16 => Some("too many sessions"),
            () => None,
        }
    }
}
