//! What a device model is to the rest of Etherslot, and what the rest is to a device model.
//!
//! A [`Function`] sees register accesses in its BARs and the Completions of its own reads; it acts through a
//! [`Bus`]. It never sees guest memory, sockets, sessions, Tags or TLPs.

use etherslot_wire::FunctionId;
use etherslot_wire::ahead::Rule;

/// Why a Request of a Function came to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Completed with UR (PCIe Base 6.0, 2.3.2), or no route.
    UnsupportedRequest,
    /// Completed with CA.
    CompleterAbort,
    /// No Completion within the Completion Timeout (2.8).
    Timeout,
    /// The data came poisoned (2.7.2).
    Poisoned,
    /// A Completion that does not fit the Request (2.3.2).
    Malformed,
}

/// How a Function is reset (6.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResetKind {
    /// Power-on, Hot Reset, or the loss of the host: everything but the medium goes.
    Conventional,
    /// Function Level Reset.
    FunctionLevel,
}

/// How the driver has chosen to be interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InterruptMode {
    /// INTx disabled and neither MSI nor MSI-X enabled.
    Disabled,
    /// A level, told by [`Bus::set_intx`].
    IntX,
    /// MSI, with this many vectors enabled (a power of two).
    Msi(u16),
    /// MSI-X, with this many vectors in the table.
    MsiX(u16),
}

/// An entry of a ring that a rule of read-ahead is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The rule's number.
    pub rule: u8,
    /// Place in the ring, 0 first.
    pub index: u32,
}

/// A change of what a Function wants to have sent along with its doorbells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "it is handed over, never kept")]
pub enum ReadAhead {
    /// This rule, in place of the one with its number if there is one. Its generation is not the Function's matter. Nothing that was sent
    /// under the earlier one can be had any more.
    Declare(Rule),
    /// No rule of this number any more.
    Withdraw(u8),
}

/// The hierarchy above a Function: where its Requests go.
///
/// Requests leave in the order of the calls; posted ones (writes and interrupts) never pass each other, so an
/// interrupt stays behind its data. None of the calls blocks or allocates.
pub trait Bus {
    /// The time, ns.
    fn now_ns(&self) -> u64;

    /// Whether the Function may issue Requests now (Bus Master Enable, power state).
    fn is_master(&self) -> bool;

    /// Writes `data` to memory from `address` on, as Memory Write TLPs of any size the path allows. Returns how many
    /// bytes, from the start of `data`, are on their way: fewer than all, down to 0, when there is no room. Data that
    /// crosses no 4 KiB boundary and is at most 64 bytes goes whole or not at all.
    fn write(&mut self, address: u64, data: &[u8]) -> usize;

    /// Asks for `bytes` bytes of memory from `address` on, as Memory Read TLPs of any size the path allows. Returns
    /// how many bytes, from the start, have been asked for: fewer than all, down to 0, when Tags or room are short.
    /// Each byte asked for comes back by exactly one call of [`Function::read_completed`] with `token`, in any order.
    fn read(&mut self, address: u64, bytes: usize, token: u64) -> usize;

    /// Takes entries of a ring, whole ones, that have come along with their doorbell ([`Function::read_ahead`]): those from `first` on,
    /// as many as are there and fit `data`. Returns how many bytes; 0 if [`Bus::read`] is needed. They can be had once.
    fn take_entries(&mut self, _first: Entry, _data: &mut [u8]) -> usize {
        0
    }

    /// Takes what has come along with `entry`, which came by [`Bus::take_entries`], of what it points to: bytes from `address` on, at
    /// most `most`, which `take` is shown where they lie. Returns how many; [`Bus::read`] is for the rest. They can be had once.
    fn take_for(
        &mut self,
        _entry: Entry,
        _address: u64,
        _most: usize,
        _take: &mut dyn FnMut(&[u8]),
    ) -> usize {
        0
    }

    /// The interrupt mode now.
    fn interrupt_mode(&self) -> InterruptMode;

    /// Sends the message of `vector` (MSI, where it is taken modulo the enabled vectors, or MSI-X); a masked one becomes pending. True if done; false
    /// if there is no room now and it has to be asked for again. Done with no effect in the other modes.
    fn interrupt(&mut self, vector: u16) -> bool;

    /// Asserts or deasserts INTA. True if done or already so; false if there is no room now: then it is told as soon as there is, unless the
    /// other level is asked for before. Done with no effect in the other modes.
    fn set_intx(&mut self, asserted: bool) -> bool;
}

/// What kind of BAR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BarKind {
    /// 32-bit, not prefetchable.
    Memory32,
    /// 64-bit, not prefetchable; takes two register places.
    Memory64,
    /// 64-bit, prefetchable; takes two register places.
    Prefetchable64,
}

/// One BAR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BarSpec {
    /// Which register, 0..=5.
    pub index: u8,
    /// Kind.
    pub kind: BarKind,
    /// Size in bytes, a power of two, at least 128 (7.5.1.2.1).
    pub bytes: u64,
}

/// Where the MSI-X table and PBA are. They are kept by the [`crate::endpoint::Endpoint`], not by the Function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MsixSpec {
    /// Vectors, 1..=2048.
    pub vectors: u16,
    /// BAR index of table and PBA.
    pub bar: u8,
    /// Offset of the table, a multiple of 8; 16 bytes a vector.
    pub table_offset: u32,
    /// Offset of the PBA, a multiple of 8.
    pub pba_offset: u32,
}

/// What stands in a Function's configuration space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionSpec {
    /// Vendor ID.
    pub vendor: u16,
    /// Device ID.
    pub device: u16,
    /// Subsystem Vendor ID.
    pub subsystem_vendor: u16,
    /// Subsystem ID.
    pub subsystem: u16,
    /// Revision ID.
    pub revision: u8,
    /// Class code: base class, sub-class, programming interface.
    pub class: [u8; 3],
    /// BARs, in ascending order of their index.
    pub bars: Vec<BarSpec>,
    /// MSI-X, if any.
    pub msix: Option<MsixSpec>,
    /// MSI vectors: 0 (no capability), or a power of two up to 32.
    pub msi_vectors: u8,
    /// Whether INTA can be used.
    pub intx: bool,
    /// Device Serial Number capability (7.9.3), if any.
    pub serial: Option<u64>,
}

/// A device model. All calls come from one thread; none may block.
pub trait Function {
    /// What stands in its configuration space; the same for its whole life.
    fn spec(&self) -> FunctionSpec;

    /// A read of `data.len()` bytes (1..=4096) at `offset` in BAR `bar`; fills all of `data`. Never within the MSI-X
    /// table or PBA, never beyond the BAR.
    fn bar_read(&mut self, bar: u8, offset: u64, data: &mut [u8]);

    /// A write of `data` (1..=4096 bytes) at `offset` in BAR `bar`. What it starts happens in [`Function::poll`].
    fn bar_write(&mut self, bar: u8, offset: u64, data: &[u8]);

    /// A part of a read ([`Bus::read`]) has ended: `bytes` bytes from `address` on, with their data if it went well.
    fn read_completed(&mut self, token: u64, address: u64, bytes: usize, result: Result<&[u8], Fault>);

    /// Goes on with its work as far as `bus` has room. True if something was done (call again soon).
    fn poll(&mut self, bus: &mut dyn Bus) -> bool;

    /// A change of its rules of read-ahead, each told once: which entries of its rings, and what they point to, the host
    /// is to send along with a doorbell, to be had by [`Bus::take_entries`] and [`Bus::take_for`]. Asked for before each `poll`. A reset ends
    /// all rules by itself. It is a hint: what does not come has to be read.
    ///
    /// A Function that declares a rule reads no entry before its doorbell, reads an entry but once, and declares the rule anew when it
    /// refuses what is written to the doorbell.
    fn read_ahead(&mut self) -> Option<ReadAhead> {
        None
    }

    /// The time (ns) at which `poll` should be called even if nothing else happens.
    fn deadline_ns(&self) -> Option<u64> {
        None
    }

    /// Whether nothing is under way, and all changes of rules are told: `poll` would do nothing until the next access to a BAR, Completion, change of the
    /// configuration, or reset. It has no deadline either. `false` is always right, and costs a call of `poll` each time the
    /// box looks for work.
    fn is_idle(&self) -> bool {
        false
    }

    /// Forgets all work under way. No [`Function::read_completed`] follows for reads asked for before.
    fn reset(&mut self, kind: ResetKind);

    /// What it has counted of its work, for people and programs that watch it: each name, which ends with its unit, with its value,
    /// which only grows.
    fn count(&self, _each: &mut dyn FnMut(&'static str, u64)) {}

    /// Told when the Function's ID changes (it is captured from Configuration Writes, 2.2.6.2).
    fn identified(&mut self, _id: FunctionId) {}
}
