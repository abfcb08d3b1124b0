//! Orders: what a box is asked to do with a device, and how far it is. Both are single frames that may be lost: who asks asks
//! again, and an order is known by who asked, in which life, and its number.

use super::{Group, some_node};
use crate::bytes::{array, put, u32_at, u64_at};
use crate::control::Name;
use crate::id::NodeId;

/// What is to become of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is this host's.
    Host(NodeId),
    /// It is in this group, for the host of it.
    Group(Group),
    /// It is nobody's.
    Nobody,
    /// It is anybody's: in no group and no certain host's.
    Anybody,
}

/// Body of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// The asker's number for it.
    pub number: u64,
    /// The box that has the device.
    pub to: NodeId,
    /// Its life, as its heartbeats tell it: an order is for that one alone.
    pub life: u64,
    /// The device.
    pub device: Name,
    /// What is to become of it.
    pub change: Change,
    /// Only say what would be done.
    pub dry_run: bool,
    /// Take the device away from a host that does not give it back.
    pub force: bool,
}

/// How far an order is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Progress {
    /// On its way: [`Outcome::step`].
    Working = 1,
    /// Done; or it could be done, if that was all that was asked.
    Done = 2,
    /// Not begun.
    Refused = 3,
    /// Begun, and all is as it was.
    RolledBack = 4,
}

/// What an order waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Step {
    /// Nothing.
    None = 0,
    /// The old host is to stop using the device and give it back.
    Recall = 1,
    /// The device was reset; the new host is to take it.
    Offer = 2,
}

/// Why an order was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Reason {
    /// It was, or may yet be.
    None = 0,
    /// The box has no such device.
    UnknownDevice = 1,
    /// The box has not heard of that host.
    UnknownHost = 2,
    /// The host has not been heard lately.
    SilentHost = 3,
    /// The device is changing hands by another order.
    Busy = 4,
    /// The old host did not give it back in time.
    NotReleased = 5,
    /// The new host did not take it in time.
    NotTaken = 6,
    /// The box has too many orders.
    TooMany = 7,
    /// The box takes orders from its own machine only, or not from this node.
    NotPermitted = 8,
    /// The host is not among the nodes that may own the device.
    NotAnOwner = 9,
}

/// Body of an outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Who asked.
    pub asker: NodeId,
    /// In which life.
    pub asker_life: u64,
    /// The order's number.
    pub number: u64,
    /// How far it is.
    pub progress: Progress,
    /// What it waits for; of a question, what it would begin with.
    pub step: Step,
    /// Why it was not done.
    pub reason: Reason,
    /// Time since the order came, ms.
    pub elapsed_ms: u32,
    /// The device's lease epoch.
    pub epoch: u64,
    /// Whose the device was.
    pub from: Option<NodeId>,
    /// Whose it is to be, if it is to be a certain host's.
    pub to: Option<NodeId>,
}

const DRY_RUN: u8 = 1 << 0;
const FORCE: u8 = 1 << 1;

impl Order {
    /// Bytes of the body.
    pub const BYTES: usize = 88;

    /// Decodes a body; `None` if it is short or has a value that is not listed.
    pub fn parse(body: &[u8]) -> Option<Self> {
        let body = body.get(..Self::BYTES)?;
        let flags = body[1];
        let order = Self {
            number: u64_at(body, 8)?,
            to: NodeId(array(body, 16)?),
            life: u64_at(body, 80)?,
            device: Name::parse(body, 48)?,
            change: match body[0] {
                1 => Change::Host(some_node(body, 32)??),
                2 => Change::Group(Group::parse(body, 2)??),
                3 => Change::Nobody,
                4 => Change::Anybody,
                _ => return None,
            },
            dry_run: flags & DRY_RUN != 0,
            force: flags & FORCE != 0,
        };
        (flags & !(DRY_RUN | FORCE) == 0).then_some(order)
    }

    /// Writes the body; returns its bytes, or `None` if `out` is short.
    pub fn emit(&self, out: &mut [u8]) -> Option<usize> {
        let out = out.get_mut(..Self::BYTES)?;
        out.fill(0);
        let flags = if self.dry_run { DRY_RUN } else { 0 } | if self.force { FORCE } else { 0 };
        put(out, 8, &self.number.to_be_bytes())?;
        put(out, 16, &self.to.0)?;
        self.device.emit(out, 48)?;
        put(out, 80, &self.life.to_be_bytes())?;
        let change = match self.change {
            Change::Host(host) => {
                put(out, 32, &host.0)?;
                1
            }
            Change::Group(group) => {
                put(out, 2, &Group::emit(Some(group)))?;
                2
            }
            Change::Nobody => 3,
            Change::Anybody => 4,
        };
        put(out, 0, &[change, flags])?;
        Some(Self::BYTES)
    }
}

impl Outcome {
    /// Bytes of the body.
    pub const BYTES: usize = 80;

    /// Decodes a body; `None` if it is short or has a value that is not listed.
    pub fn parse(body: &[u8]) -> Option<Self> {
        let body = body.get(..Self::BYTES)?;
        Some(Self {
            progress: match body[0] {
                1 => Progress::Working,
                2 => Progress::Done,
                3 => Progress::Refused,
                4 => Progress::RolledBack,
                _ => return None,
            },
            reason: match body[1] {
                0 => Reason::None,
                1 => Reason::UnknownDevice,
                2 => Reason::UnknownHost,
                3 => Reason::SilentHost,
                4 => Reason::Busy,
                5 => Reason::NotReleased,
                6 => Reason::NotTaken,
                7 => Reason::TooMany,
                8 => Reason::NotPermitted,
                9 => Reason::NotAnOwner,
                _ => return None,
            },
            step: match body[2] {
                0 => Step::None,
                1 => Step::Recall,
                2 => Step::Offer,
                _ => return None,
            },
            elapsed_ms: u32_at(body, 4)?,
            number: u64_at(body, 8)?,
            asker_life: u64_at(body, 16)?,
            epoch: u64_at(body, 24)?,
            asker: NodeId(array(body, 32)?),
            from: some_node(body, 48)?,
            to: some_node(body, 64)?,
        })
    }

    /// Writes the body; returns its bytes, or `None` if `out` is short.
    pub fn emit(&self, out: &mut [u8]) -> Option<usize> {
        let out = out.get_mut(..Self::BYTES)?;
        out.fill(0);
        put(out, 0, &[self.progress as u8, self.reason as u8, self.step as u8])?;
        put(out, 4, &self.elapsed_ms.to_be_bytes())?;
        put(out, 8, &self.number.to_be_bytes())?;
        put(out, 16, &self.asker_life.to_be_bytes())?;
        put(out, 24, &self.epoch.to_be_bytes())?;
        put(out, 32, &self.asker.0)?;
        put(out, 48, &self.from.unwrap_or_default().0)?;
        put(out, 64, &self.to.unwrap_or_default().0)?;
        Some(Self::BYTES)
    }
}
