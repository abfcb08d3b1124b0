//! What one side has under way, and whether what came of it is right.

use std::collections::VecDeque;

use etherslot_rdma::{Cqe, Done, SendOpcode, SendWork, Sge, Status, flag};

use super::node::{CONNECTED, Node, PEER, Q_KEY, SHARING};
use crate::random::{Random, mix};

/// Operations of a QP under way at a time.
const SLOTS: usize = 8;
/// Receive buffers of a QP.
const BUFFERS: usize = 16;
const SLOT_BYTES: u64 = 0x1_0000;
/// Bytes before and behind a Write that nobody may touch.
const GUARD_BYTES: u64 = 64;
const GUARD: u8 = 0xA5;
const BUFFER_BYTES: u64 = 0x2000;

// Places in a region.
const TARGETS: u64 = 0x10_0000;
const SOURCES: u64 = 0x30_0000;
const SINKS: u64 = 0x58_0000;
const SINK_BYTES: u64 = 0x8000;
pub(crate) const STATIC: u64 = 0x68_0000;
pub(crate) const STATIC_BYTES: u64 = 0x8_0000;
const BUFFERS_AT: u64 = 0x70_0000;
const COUNTER: u64 = 0x7C_0000;
const RESULTS: u64 = 0x7D_0000;

/// What is under way in a slot.
#[derive(Clone, Copy, Debug)]
struct Op {
    number: u64,
    opcode: SendOpcode,
    length: u64,
    /// Read: from where.
    from: u64,
    posted_ns: u64,
    /// Write: its last byte has been seen.
    landed: bool,
}

/// A message that the peer is to receive.
#[derive(Clone, Copy, Debug)]
struct Message {
    number: u64,
    length: u64,
    immediate: Option<u32>,
    is_write: bool,
    slot: usize,
}

/// One side's work, towards the other.
pub(crate) struct Traffic {
    random: Random,
    ops: Vec<[Option<Op>; SLOTS]>,
    /// Messages of each QP that the peer has not received yet.
    messages: Vec<VecDeque<Message>>,
    /// Buffers of ours that are not posted.
    free: Vec<Vec<usize>>,
    pub(crate) left: u64,
    next: u64,
    /// What FetchAdd gave back, each time.
    pub(crate) fetched: Vec<u64>,
    pub(crate) completed: u64,
    pub(crate) flushed: u64,
    pub(crate) checked_bytes: u64,
    is_dead: bool,
}

/// Byte `at` of the data of an operation.
fn pattern(number: u64, at: u64) -> u8 {
    (mix(number ^ (at >> 3)) >> (8 * (at & 7))) as u8
}

fn data(number: u64, length: u64) -> Vec<u8> {
    (0..length).map(|at| pattern(number, at)).collect()
}

/// What lies in [`STATIC`].
pub(crate) fn still(at: u64) -> u8 {
    pattern(u64::MAX, at)
}

/// Whose buffers a QP receives into.
fn pool(qp: usize) -> usize {
    if (SHARING..CONNECTED).contains(&qp) { SHARING } else { qp }
}

fn place(area: u64, bytes: u64, qp: usize, slot: usize) -> u64 {
    area + (qp * SLOTS + slot) as u64 * bytes
}

impl Traffic {
    pub(crate) fn new(random: Random, side: u64) -> Self {
        Self {
            random,
            ops: Vec::new(),
            messages: Vec::new(),
            free: Vec::new(),
            left: 0,
            next: side << 32,
            fetched: Vec::new(),
            completed: 0,
            flushed: 0,
            checked_bytes: 0,
            is_dead: false,
        }
    }

    /// New QPs, so many operations.
    pub(crate) fn begin(&mut self, operations: u64) {
        self.ops = vec![[None; SLOTS]; CONNECTED + 1];
        self.messages = vec![VecDeque::new(); CONNECTED + 1];
        self.free = vec![(0..BUFFERS).collect(); CONNECTED + 1];
        self.left = operations;
        self.is_dead = false;
    }

    /// From now on work requests may fail.
    pub(crate) fn die(&mut self) {
        self.is_dead = true;
    }

    pub(crate) fn is_done(&self) -> bool {
        let under_way = self.ops.iter().flatten().any(Option::is_some);
        self.left == 0 && !under_way && (0..CONNECTED).all(|qp| self.messages[qp].is_empty())
    }

    /// Posts what there is to be posted now.
    pub(crate) fn act(&mut self, now_ns: u64, me: &mut Node, peer: &mut Node) {
        for qp in 0..=CONNECTED {
            // Late buffers now and then: receivers that are not ready.
            if pool(qp) == qp && self.random.percent(20) {
                self.post_receives(me, qp);
            }
            let Some(slot) = self.ops[qp].iter().position(Option::is_none) else { continue };
            if self.left > 0 && self.random.percent(60) && me.engine.sq_room(me.qps[qp]) >= 16 {
                self.left -= 1;
                self.post(now_ns, me, peer, qp, slot);
            }
        }
    }

    fn post_receives(&mut self, me: &mut Node, qp: usize) {
        let count = self.random.range(0, 4) as usize;
        for _ in 0..count {
            let Some(buffer) = self.free[qp].pop() else { return };
            let at = BUFFERS_AT + (qp * BUFFERS + buffer) as u64 * BUFFER_BYTES;
            let half = BUFFER_BYTES as u32 / 2;
            let sges =
                [0, 1].map(|part| Sge { to: at + part * u64::from(half), stag: me.stag, length: half });
            let mut wqe = [0; etherslot_rdma::ReceiveWork::MAX_BYTES];
            let work = etherslot_rdma::ReceiveWork { id: buffer as u64, sges: &sges };
            let bytes = work.emit(&mut wqe).expect("a WQE");
            let posted = match me.srq {
                Some(srq) if qp == SHARING => me.engine.post_srq(srq, &wqe[..bytes]),
                _ => me.engine.post_receive(me.qps[qp], &wqe[..bytes]),
            };
            posted.expect("room for a receive");
        }
    }

    fn post(&mut self, now_ns: u64, me: &mut Node, peer: &mut Node, qp: usize, slot: usize) {
        let number = self.next;
        self.next += 1;
        let kinds = [
            SendOpcode::Write,
            SendOpcode::Write,
            SendOpcode::WriteImmediate,
            SendOpcode::Read,
            SendOpcode::Read,
            SendOpcode::Send,
            SendOpcode::SendImmediate,
            SendOpcode::FetchAdd,
        ];
        let opcode = if qp == CONNECTED { SendOpcode::Send } else { self.random.pick(&kinds) };
        let longest = match opcode {
            SendOpcode::FetchAdd => 8,
            _ if qp == CONNECTED => 1200,
            SendOpcode::Send | SendOpcode::SendImmediate => BUFFER_BYTES,
            SendOpcode::Read => SINK_BYTES,
            _ => SLOT_BYTES - 2 * GUARD_BYTES,
        };
        let length = if opcode == SendOpcode::FetchAdd { 8 } else { self.random.magnitude(8, longest) };
        let source = place(SOURCES, SLOT_BYTES, qp, slot);
        let target = place(TARGETS, SLOT_BYTES, qp, slot) + GUARD_BYTES;
        let content = data(number, length);
        let mut from = 0;
        let is_inline = opcode != SendOpcode::Read && opcode != SendOpcode::FetchAdd && length <= 256;
        let fence = if self.random.percent(10) { flag::FENCE } else { 0 };
        let mut list = vec![Sge { to: source, stag: me.stag, length: length as u32 }];
        let mut work = SendWork {
            opcode,
            flags: flag::SIGNALED | fence,
            id: number << 16 | (qp as u64) << 8 | slot as u64,
            remote_stag: peer.stag,
            immediate: number as u32,
            ..SendWork::default()
        };
        match opcode {
            SendOpcode::Write | SendOpcode::WriteImmediate => {
                work.remote_to = target;
                // Every byte is another than it will be; around it are guards.
                let other: Vec<u8> = content.iter().map(|byte| !byte).collect();
                peer.fill(target, &other);
                for at in [target - GUARD_BYTES, target + length] {
                    peer.fill(at, &[GUARD; GUARD_BYTES as usize]);
                }
            }
            SendOpcode::Read => {
                from = self.random.below(STATIC_BYTES - length);
                work.remote_to = STATIC + from;
                list[0].to = place(SINKS, SINK_BYTES, qp, slot);
            }
            SendOpcode::FetchAdd => {
                (work.remote_to, work.operands) = (COUNTER, [1, 0]);
                list[0].to = RESULTS + (qp * SLOTS + slot) as u64 * 8;
            }
            _ if qp == CONNECTED => {
                work.remote_to = u64::from(PEER.0) | u64::from(peer.qps[qp].0) << 32;
                work.remote_stag = Q_KEY;
            }
            _ => {}
        }
        if !matches!(opcode, SendOpcode::Read | SendOpcode::FetchAdd) && !is_inline {
            me.fill(source, &content);
        }
        // In up to 20 pieces.
        if opcode != SendOpcode::FetchAdd && self.random.percent(30) {
            list = pieces(list[0], self.random.range(2, 20) as u32);
        }
        let mut wqe = [0; SendWork::MAX_BYTES];
        if is_inline {
            work.inline = Some(&content);
        } else {
            work.sges = &list;
        }
        let bytes = work.emit(&mut wqe).expect("a WQE");
        me.engine.post_send(me.qps[qp], &wqe[..bytes]).expect("room for a send");
        let is_write = opcode == SendOpcode::WriteImmediate;
        if is_write || matches!(opcode, SendOpcode::Send | SendOpcode::SendImmediate) {
            let has_immediate = opcode != SendOpcode::Send;
            let immediate = has_immediate.then_some(number as u32);
            self.messages[qp].push_back(Message { number, length, immediate, is_write, slot });
        }
        self.ops[qp][slot] = Some(Op { number, opcode, length, from, posted_ns: now_ns, landed: false });
    }

    /// A Write whose last byte is there is there whole.
    pub(crate) fn watch(&mut self, peer: &Node) -> Result<(), String> {
        for (qp, ops) in self.ops.iter_mut().enumerate() {
            for (slot, op) in ops.iter_mut().enumerate() {
                let Some(op) = op.as_mut().filter(|op| !op.landed) else { continue };
                if !matches!(op.opcode, SendOpcode::Write | SendOpcode::WriteImmediate) {
                    continue;
                }
                let target = place(TARGETS, SLOT_BYTES, qp, slot) + GUARD_BYTES;
                let last = Node::address(target + op.length - 1);
                if peer.ram.0[last] == pattern(op.number, op.length - 1) {
                    op.landed = true;
                    if peer.bytes(target, op.length as usize) != data(op.number, op.length) {
                        return Err(format!("the last byte of {op:?} came before others"));
                    }
                }
            }
        }
        Ok(())
    }

    /// A work request of ours is complete.
    pub(crate) fn completed(&mut self, cqe: &Cqe, me: &Node, peer: &Node) -> Result<(), String> {
        let (qp, slot) = ((cqe.id >> 8 & 0xFF) as usize, (cqe.id & 0xFF) as usize);
        let op = self.ops.get_mut(qp).and_then(|ops| ops.get_mut(slot)?.take());
        let Some(op) = op.filter(|op| op.number == cqe.id >> 16) else {
            return Err(format!("{cqe:?} is of nothing that is under way"));
        };
        if cqe.status != Status::Success {
            self.flushed += 1;
            let may_fail = matches!(cqe.status, Status::RetriesExceeded | Status::Flushed);
            return if self.is_dead && may_fail { Ok(()) } else { Err(format!("{op:?} failed: {cqe:?}")) };
        }
        self.completed += 1;
        self.checked_bytes += op.length;
        let (found, expected) = match op.opcode {
            SendOpcode::Write | SendOpcode::WriteImmediate => {
                let start = place(TARGETS, SLOT_BYTES, qp, slot);
                let guard = vec![GUARD; GUARD_BYTES as usize];
                let expected = [&guard[..], &data(op.number, op.length), &guard].concat();
                (peer.bytes(start, expected.len()), expected)
            }
            SendOpcode::Read => {
                let sink = place(SINKS, SINK_BYTES, qp, slot);
                let expected = (op.from..op.from + op.length).map(still).collect();
                (me.bytes(sink, op.length as usize), expected)
            }
            SendOpcode::FetchAdd => {
                let result = me.bytes(RESULTS + (qp * SLOTS + slot) as u64 * 8, 8);
                self.fetched.push(u64::from_le_bytes(result.try_into().expect("8 bytes")));
                return Ok(());
            }
            _ => return Ok(()),
        };
        if found == expected { Ok(()) } else { Err(format!("{op:?} is complete and was not done")) }
    }

    /// The peer received a message of ours; `buffer` gives the bytes of its buffer.
    fn check_message(&mut self, qp: usize, cqe: &Cqe, peer: &Node, buffer: u64) -> Result<(), String> {
        let is_datagram = qp == CONNECTED;
        let skip = if is_datagram { 40 } else { 0 };
        let bytes = |length: u64| peer.bytes(buffer + skip, length as usize);
        let message = loop {
            let Some(message) = self.messages[qp].pop_front() else {
                return Err(format!("{cqe:?} is a message that was not sent"));
            };
            // A datagram may have found no buffer.
            if !is_datagram || bytes(message.length) == data(message.number, message.length) {
                break message;
            }
        };
        if u64::from(cqe.bytes) != message.length + skip || cqe.immediate != message.immediate {
            return Err(format!("{cqe:?} is not {message:?}"));
        }
        self.checked_bytes += message.length;
        let found = if message.is_write {
            let target = place(TARGETS, SLOT_BYTES, qp, message.slot) + GUARD_BYTES;
            peer.bytes(target, message.length as usize)
        } else {
            bytes(message.length)
        };
        let is_kind = (cqe.done == Done::ReceivedWrite) == message.is_write;
        if is_kind && found == data(message.number, message.length) {
            Ok(())
        } else {
            Err(format!("{message:?} was received and is not there"))
        }
    }

    /// One of our receives is complete: `from` is the side that sent it.
    pub(crate) fn received(&mut self, cqe: &Cqe, me: &Node, from: &mut Self) -> Result<(), String> {
        let Some(qp) = me.qps.iter().position(|&qp| qp == cqe.qp) else {
            return Err(format!("{cqe:?} is of no QP"));
        };
        if cqe.status != Status::Success {
            return if self.is_dead { Ok(()) } else { Err(format!("a receive failed: {cqe:?}")) };
        }
        let buffer = cqe.id as usize;
        let pool = pool(qp);
        if self.free[pool].contains(&buffer) {
            return Err(format!("{cqe:?} is of a buffer that is not posted"));
        }
        let at = BUFFERS_AT + (pool * BUFFERS + buffer) as u64 * BUFFER_BYTES;
        from.check_message(qp, cqe, me, at)?;
        self.free[pool].push(buffer);
        Ok(())
    }

    /// What has waited for long, if the peer lives.
    pub(crate) fn oldest_ns(&self) -> Option<u64> {
        self.ops.iter().flatten().flatten().map(|op| op.posted_ns).min()
    }

    /// What FetchAdd gave back is different each time, and below what is there now.
    pub(crate) fn check_counter(&self, peer: &Node) -> Result<(), String> {
        let now = u64::from_le_bytes(peer.bytes(COUNTER, 8).try_into().expect("8 bytes"));
        let mut fetched = self.fetched.clone();
        fetched.sort_unstable();
        fetched.dedup();
        let is_all = self.flushed > 0 || now == fetched.len() as u64;
        if fetched.len() == self.fetched.len() && fetched.last().is_none_or(|&last| last < now) && is_all {
            Ok(())
        } else {
            Err(format!("{now} atomics were done, {} answered", self.fetched.len()))
        }
    }
}

/// Cuts an SGE into pieces.
fn pieces(whole: Sge, count: u32) -> Vec<Sge> {
    let mut list = Vec::new();
    let mut done = 0;
    for piece in 0..count {
        let length =
            if piece + 1 == count { whole.length - done } else { (whole.length - done) / (count - piece) };
        list.push(Sge { to: whole.to + u64::from(done), length, ..whole });
        done += length;
    }
    list
}
