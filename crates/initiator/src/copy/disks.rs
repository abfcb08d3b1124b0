//! What a copy works on: disks, and memory that all of them reach.

use std::fmt;

use crate::direct::Direct;
use crate::disk::{DiskInfo, Done, Refused, Request};
use crate::pool::Buffer;

/// Several disks that hand each other data in pieces of memory. Remote ones on a host node of their own are a [`Direct`]; a program may bring
/// others, such as files.
pub trait Disks {
    /// How many disks there are.
    fn disks(&self) -> usize;

    /// What a disk is.
    fn info(&self, disk: usize) -> &DiskInfo;

    /// How often a disk was lost: each time, what it had not made durable may have gone with it.
    fn losses(&self, disk: usize) -> u64;

    /// Whether requests go to all disks now, and the pieces can be reached.
    fn is_ready(&self) -> bool;

    /// Whether the pieces can be reached now, by all disks.
    fn reaches_pieces(&self) -> bool;

    /// Which life of the pieces this is: what was put there in an earlier one is lost. It stays the same while done requests are handed over.
    fn life(&self) -> u64;

    /// Pieces that there are now.
    fn pieces(&self) -> usize;

    /// Bytes of a piece.
    fn piece_bytes(&self) -> usize;

    /// A piece as the buffer of a request to `disk`.
    fn piece(&self, disk: usize, piece: usize) -> Option<Buffer>;

    /// Takes a request to a disk ([`crate::Disk::submit`]).
    ///
    /// # Errors
    /// It is given back with the reason.
    fn submit(&mut self, disk: usize, request: Request) -> Result<(), Refused>;

    /// Hands over what a disk has done ([`crate::Disk::poll`]).
    fn done(&mut self, disk: usize, done: &mut dyn FnMut(Done)) -> usize;
}

impl<A: Copy + Eq + fmt::Display> Disks for Direct<A> {
    fn disks(&self) -> usize {
        self.disks()
    }

    fn info(&self, disk: usize) -> &DiskInfo {
        self.info(disk)
    }

    fn losses(&self, disk: usize) -> u64 {
        self.counters(disk).losses
    }

    fn is_ready(&self) -> bool {
        self.is_ready()
    }

    fn reaches_pieces(&self) -> bool {
        self.reaches_pieces()
    }

    fn life(&self) -> u64 {
        self.life()
    }

    fn pieces(&self) -> usize {
        self.pieces()
    }

    fn piece_bytes(&self) -> usize {
        self.piece_bytes()
    }

    fn piece(&self, disk: usize, piece: usize) -> Option<Buffer> {
        self.piece(disk, piece)
    }

    fn submit(&mut self, disk: usize, request: Request) -> Result<(), Refused> {
        self.submit(disk, request)
    }

    fn done(&mut self, disk: usize, done: &mut dyn FnMut(Done)) -> usize {
        self.done(disk, done)
    }
}
