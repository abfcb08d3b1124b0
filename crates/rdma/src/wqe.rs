//! Work requests as they lie in queues: blocks of 64 bytes (docs/rnic.md, section 4).
//!
//! [`SendWork`] and [`ReceiveWork`] write them. The engine reads the fields of a block where it lies: [`Head`].

use etherslot_wire::bytes::put;

/// Bytes of a block.
pub const BLOCK_BYTES: usize = 64;
/// SGEs of a WQE at most.
pub const MAX_SGES: usize = 30;
/// Inline bytes of a WQE at most.
pub const MAX_INLINE_BYTES: usize = 32 + 7 * BLOCK_BYTES;
/// Blocks of a send WQE at most.
pub(crate) const MAX_BLOCKS: usize = 9;
/// Blocks of a receive WQE at most.
pub(crate) const MAX_RECEIVE_BLOCKS: usize = 8;
/// Bytes of all SGEs together at most.
pub(crate) const MAX_MESSAGE_BYTES: u64 = 1 << 31;
/// Bytes of an SGE.
const SGE_BYTES: usize = 16;

/// A block.
pub(crate) type Block = [u8; BLOCK_BYTES];

/// Bits of [`SendWork::flags`].
pub mod flag {
    /// Makes a CQE when it succeeds.
    pub const SIGNALED: u8 = 1 << 0;
    /// Waits for the Reads and Atomics before it.
    pub const FENCE: u8 = 1 << 1;
    /// Asks for the receiver's solicited event.
    pub const SOLICITED: u8 = 1 << 2;
    /// The data are in the WQE. Set by [`SendWork::emit`](super::SendWork::emit).
    pub const INLINE: u8 = 1 << 3;
    /// The last block is a flag block. Set by [`SendWork::emit`](super::SendWork::emit).
    pub const FLAGS: u8 = 1 << 4;
}

/// What a send WQE does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SendOpcode {
    /// RDMA Write.
    Write = 0,
    /// RDMA Write with Immediate.
    WriteImmediate = 1,
    /// Send.
    Send = 2,
    /// Send with Immediate.
    SendImmediate = 3,
    /// Send with Invalidate.
    SendInvalidate = 4,
    /// RDMA Read.
    Read = 5,
    /// Fetch and add.
    FetchAdd = 6,
    /// Compare and swap.
    CompareSwap = 7,
    /// Bind a window.
    Bind = 8,
    /// Invalidate a window.
    Invalidate = 9,
    /// Nothing.
    Nop = 10,
}

impl SendOpcode {
    pub(crate) const fn new(code: u8) -> Option<Self> {
        Some(match code {
            0 => Self::Write,
            1 => Self::WriteImmediate,
            2 => Self::Send,
            3 => Self::SendImmediate,
            4 => Self::SendInvalidate,
            5 => Self::Read,
            6 => Self::FetchAdd,
            7 => Self::CompareSwap,
            8 => Self::Bind,
            9 => Self::Invalidate,
            10 => Self::Nop,
            _ => return None,
        })
    }

    /// Whether it is a Send of some kind.
    pub const fn is_send(self) -> bool {
        matches!(self, Self::Send | Self::SendImmediate | Self::SendInvalidate)
    }

    /// Whether it is a Write, with or without immediate data.
    pub const fn is_write(self) -> bool {
        matches!(self, Self::Write | Self::WriteImmediate)
    }

    pub(crate) const fn is_atomic(self) -> bool {
        matches!(self, Self::FetchAdd | Self::CompareSwap)
    }

    /// Whether it waits for an answer: it takes a place in the ORRQ.
    pub(crate) const fn is_answered(self) -> bool {
        matches!(self, Self::Read) || self.is_atomic()
    }

    /// Whether it is done here, without a message.
    pub(crate) const fn is_local(self) -> bool {
        matches!(self, Self::Bind | Self::Invalidate | Self::Nop)
    }
}

/// A piece of a buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sge {
    /// Where in the region.
    pub to: u64,
    /// The region.
    pub stag: u32,
    /// Bytes.
    pub length: u32,
}

impl Sge {
    fn parse(bytes: &[u8; SGE_BYTES]) -> Self {
        Self { to: u64_le(bytes, 0), stag: u32_le(bytes, 8), length: u32_le(bytes, 12) }
    }

    fn emit(&self) -> [u8; SGE_BYTES] {
        let mut out = [0; SGE_BYTES];
        out[..8].copy_from_slice(&self.to.to_le_bytes());
        out[8..12].copy_from_slice(&self.stag.to_le_bytes());
        out[12..].copy_from_slice(&self.length.to_le_bytes());
        out
    }
}

#[inline]
pub(crate) fn u32_le(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).copied().map_or(0, u32::from_le_bytes)
}

#[inline]
pub(crate) fn u64_le(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).copied().map_or(0, u64::from_le_bytes)
}

/// SGE `index` of a WQE whose first is at byte `first` of its first block.
#[inline]
pub(crate) fn sge(blocks: impl Fn(usize) -> Block, first: usize, index: usize) -> Sge {
    let at = first + index * SGE_BYTES;
    let block = blocks(at / BLOCK_BYTES);
    let at = at % BLOCK_BYTES;
    block.get(at..).and_then(<[u8]>::first_chunk).map_or(Sge::default(), Sge::parse)
}

/// Where a flag of PUSH or PULL is stored, and what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flag {
    /// The region or window.
    pub stag: u32,
    /// Where in it; a multiple of 8.
    pub to: u64,
    /// What is stored, little-endian.
    pub value: u64,
}

/// A send work request.
#[derive(Clone, Copy, Debug)]
pub struct SendWork<'a> {
    /// What it does.
    pub opcode: SendOpcode,
    /// Of [`flag`].
    pub flags: u8,
    /// Repeated by its CQE.
    pub id: u64,
    /// Remote TO; of a datagram: the peer (low 32 bits) and the destination QP (high 32 bits); of a Bind: TO in the region.
    pub remote_to: u64,
    /// Remote STag; of a datagram: `Q_Key`; of a Bind: the window with its new key.
    pub remote_stag: u32,
    /// Immediate data, or the STag to be invalidated; of a Bind: access.
    pub immediate: u32,
    /// What is sent, or where an answer goes.
    pub sges: &'a [Sge],
    /// What is sent, in place of SGEs.
    pub inline: Option<&'a [u8]>,
    /// Of an atomic: what is added or put there, and what it is compared with. Of a Bind: the region's STag, and the length.
    pub operands: [u64; 2],
    /// Flag in our memory.
    pub local_flag: Option<Flag>,
    /// Flag in the peer's memory.
    pub remote_flag: Option<Flag>,
}

impl Default for SendWork<'_> {
    fn default() -> Self {
        Self {
            opcode: SendOpcode::Nop,
            flags: 0,
            id: 0,
            remote_to: 0,
            remote_stag: 0,
            immediate: 0,
            sges: &[],
            inline: None,
            operands: [0; 2],
            local_flag: None,
            remote_flag: None,
        }
    }
}

/// Blocks that `bytes` take, beginning at byte `first` of the first one.
const fn blocks(first: usize, bytes: usize) -> usize {
    let blocks = (first + bytes).div_ceil(BLOCK_BYTES);
    if blocks == 0 { 1 } else { blocks }
}

impl<'a> SendWork<'a> {
    /// PUSH (docs/rnic.md, section 12): a Write of `from`, told by flags.
    pub fn push(id: u64, from: &'a [Sge], remote_stag: u32, remote_to: u64) -> Self {
        Self { opcode: SendOpcode::Write, id, sges: from, remote_stag, remote_to, ..Self::default() }
    }

    /// PULL: a Read into `to`, told by flags.
    pub fn pull(id: u64, to: &'a [Sge], remote_stag: u32, remote_to: u64) -> Self {
        Self { opcode: SendOpcode::Read, id, sges: to, remote_stag, remote_to, ..Self::default() }
    }

    /// The flag that is stored in our memory when it is complete.
    pub const fn local(mut self, stag: u32, to: u64, value: u64) -> Self {
        self.local_flag = Some(Flag { stag, to, value });
        self
    }

    /// The flag that is stored in the peer's memory, behind the data of a PUSH, after those of a PULL have arrived.
    pub const fn remote(mut self, stag: u32, to: u64, value: u64) -> Self {
        self.remote_flag = Some(Flag { stag, to, value });
        self
    }
}

impl SendWork<'_> {
    /// Bytes of the longest.
    pub const MAX_BYTES: usize = MAX_BLOCKS * BLOCK_BYTES;

    /// Writes it and returns its bytes, a multiple of 64; `None` if it has too much of anything.
    pub fn emit(&self, out: &mut [u8]) -> Option<usize> {
        let has_flags = self.local_flag.is_some() || self.remote_flag.is_some();
        let first = self.opcode.first_sge();
        let body = self.inline.map_or(self.sges.len() * SGE_BYTES, <[u8]>::len);
        let body_blocks = blocks(first, body);
        let count = body_blocks + usize::from(has_flags);
        let is_long = self.inline.is_some_and(|data| data.len() > MAX_INLINE_BYTES);
        if is_long
            || self.sges.len() > MAX_SGES
            || count > MAX_BLOCKS
            || self.inline.is_some() && !self.sges.is_empty()
        {
            return None;
        }
        let out = out.get_mut(..count * BLOCK_BYTES)?;
        out.fill(0);
        let flags = self.flags & !(flag::INLINE | flag::FLAGS)
            | if self.inline.is_some() { flag::INLINE } else { 0 }
            | if has_flags { flag::FLAGS } else { 0 };
        put(out, 0, &[self.opcode as u8, flags, count as u8, self.sges.len() as u8])?;
        put(out, 8, &self.id.to_le_bytes())?;
        put(out, 16, &self.remote_to.to_le_bytes())?;
        put(out, 24, &self.remote_stag.to_le_bytes())?;
        put(out, 28, &self.immediate.to_le_bytes())?;
        if self.opcode.is_atomic() || self.opcode == SendOpcode::Bind {
            put(out, 32, &self.operands[0].to_le_bytes())?;
            put(out, 40, &self.operands[1].to_le_bytes())?;
        }
        if let Some(data) = self.inline {
            put(out, 4, &(data.len() as u32).to_le_bytes())?;
            put(out, first, data)?;
        }
        for (index, sge) in self.sges.iter().enumerate() {
            put(out, first + index * SGE_BYTES, &sge.emit())?;
        }
        if has_flags {
            let at = body_blocks * BLOCK_BYTES;
            let which = u32::from(self.local_flag.is_some()) | u32::from(self.remote_flag.is_some()) << 1;
            put(out, at, &which.to_le_bytes())?;
            let local = self.local_flag.unwrap_or_default();
            put(out, at + 4, &local.stag.to_le_bytes())?;
            put(out, at + 8, &local.to.to_le_bytes())?;
            put(out, at + 16, &local.value.to_le_bytes())?;
            let remote = self.remote_flag.unwrap_or_default();
            put(out, at + 24, &remote.stag.to_le_bytes())?;
            put(out, at + 32, &remote.to.to_le_bytes())?;
            put(out, at + 40, &remote.value.to_le_bytes())?;
        }
        Some(count * BLOCK_BYTES)
    }
}

impl SendOpcode {
    /// Byte of the first block where SGEs or inline data begin.
    pub(crate) const fn first_sge(self) -> usize {
        if self.is_atomic() { 48 } else { 32 }
    }
}

/// The fixed part of a send WQE, valid as to its form.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub(crate) opcode: SendOpcode,
    pub(crate) flags: u8,
    pub(crate) blocks: u8,
    pub(crate) remote_to: u64,
    pub(crate) remote_stag: u32,
    pub(crate) immediate: u32,
    /// Bytes sent, or asked for.
    pub(crate) length: u32,
    pub(crate) operands: [u64; 2],
    /// Which flags of PUSH and PULL there are.
    pub(crate) which: u8,
}

/// A send WQE is not as section 4 wants it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Malformed {
    /// Its form.
    Form,
    /// Its length.
    Length,
}

impl Head {
    #[inline]
    pub(crate) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    #[inline]
    pub(crate) fn has_remote_flag(&self) -> bool {
        self.which & 2 != 0
    }

    /// How many request messages it makes.
    #[inline]
    pub(crate) fn messages(&self) -> u8 {
        if self.opcode.is_local() {
            return 0;
        }
        1 + u8::from(self.opcode == SendOpcode::WriteImmediate) + u8::from(self.has_remote_flag())
    }

    /// ID and flags of a WQE that is not looked at closer.
    pub(crate) fn id_of(first: &Block) -> (u64, u8) {
        (u64_le(first, 8), first[0])
    }

    /// Decodes a WQE, block by block; `count` is how many it was posted with.
    #[inline]
    pub(crate) fn parse(block: impl Fn(usize) -> Block, count: usize) -> Result<Self, Malformed> {
        let first = block(0);
        let opcode = SendOpcode::new(first[0]).ok_or(Malformed::Form)?;
        let (flags, sges) = (first[1], first[3]);
        let is_inline = flags & flag::INLINE != 0;
        let start = opcode.first_sge();
        let inline_bytes = if is_inline { u32_le(&first, 4) } else { 0 };
        let body = if is_inline { inline_bytes as usize } else { sges as usize * SGE_BYTES };
        let has_flags = flags & flag::FLAGS != 0;
        let is_formed = flags >> 5 == 0
            && first[2] as usize == count
            && sges as usize <= MAX_SGES
            && body <= MAX_INLINE_BYTES.max(MAX_SGES * SGE_BYTES)
            && blocks(start, body) + usize::from(has_flags) == count
            && (!is_inline || sges == 0 && (opcode.is_write() || opcode.is_send()))
            && (!has_flags || !opcode.is_local());
        if !is_formed {
            return Err(Malformed::Form);
        }
        let which = if has_flags { block(count - 1)[0] & 3 } else { 0 };
        let mut head = Self {
            opcode,
            flags,
            blocks: count as u8,
            remote_to: u64_le(&first, 16),
            remote_stag: u32_le(&first, 24),
            immediate: u32_le(&first, 28),
            length: inline_bytes,
            operands: [u64_le(&first, 32), u64_le(&first, 40)],
            which,
        };
        if !is_inline {
            let total: u64 =
                (0..sges as usize).map(|index| u64::from(sge(&block, start, index).length)).sum();
            if total > MAX_MESSAGE_BYTES {
                return Err(Malformed::Length);
            }
            head.length = total as u32;
        }
        if opcode.is_local() && sges != 0 {
            return Err(Malformed::Form);
        }
        if opcode.is_atomic() && (sges != 1 || head.length != 8 || !head.remote_to.is_multiple_of(8)) {
            return Err(Malformed::Form);
        }
        for (bit, at) in [(1, 8), (2, 32)] {
            if which & bit != 0 && !u64_le(&block(count - 1), at).is_multiple_of(8) {
                return Err(Malformed::Form);
            }
        }
        Ok(head)
    }

    /// The flag in our memory, of the flag block.
    pub(crate) fn local_flag(block: &Block) -> Flag {
        Flag { stag: u32_le(block, 4), to: u64_le(block, 8), value: u64_le(block, 16) }
    }

    /// The flag in the peer's.
    pub(crate) fn remote_flag(block: &Block) -> Flag {
        Flag { stag: u32_le(block, 24), to: u64_le(block, 32), value: u64_le(block, 40) }
    }
}

/// A receive work request.
#[derive(Clone, Copy, Debug)]
pub struct ReceiveWork<'a> {
    /// Repeated by its CQE.
    pub id: u64,
    /// Where a message goes.
    pub sges: &'a [Sge],
}

/// Byte of the first block of a receive WQE where SGEs begin.
pub(crate) const RECEIVE_FIRST: usize = 16;

impl ReceiveWork<'_> {
    /// Bytes of the longest.
    pub const MAX_BYTES: usize = MAX_RECEIVE_BLOCKS * BLOCK_BYTES;

    /// Writes it and returns its bytes, a multiple of 64; `None` if it has too many SGEs.
    pub fn emit(&self, out: &mut [u8]) -> Option<usize> {
        let count = blocks(RECEIVE_FIRST, self.sges.len() * SGE_BYTES);
        if self.sges.len() > MAX_SGES {
            return None;
        }
        let out = out.get_mut(..count * BLOCK_BYTES)?;
        out.fill(0);
        put(out, 2, &[count as u8, self.sges.len() as u8])?;
        put(out, 8, &self.id.to_le_bytes())?;
        for (index, sge) in self.sges.iter().enumerate() {
            put(out, RECEIVE_FIRST + index * SGE_BYTES, &sge.emit())?;
        }
        Some(count * BLOCK_BYTES)
    }

    /// SGEs and bytes of a receive WQE of so many blocks, if it is one.
    pub(crate) fn check(block: impl Fn(usize) -> Block, count: usize) -> Option<(u8, u64)> {
        let first = block(0);
        let sges = first[3];
        let is_formed = first[2] as usize == count
            && sges as usize <= MAX_SGES
            && blocks(RECEIVE_FIRST, sges as usize * SGE_BYTES) == count;
        if !is_formed {
            return None;
        }
        let bytes = (0..sges as usize).map(|index| u64::from(sge(&block, RECEIVE_FIRST, index).length)).sum();
        Some((sges, bytes))
    }
}
