//! What both sides do to each other, and what has to come of it.

use etherslot_rdma::{Cqe, Done, ReceiveWork, SendOpcode, SendWork, Sge, Status, flag};
use rand::Rng;
use rand::rngs::SmallRng;

use crate::world::{BLANK, MS, SINK_BYTES, SOURCE, SOURCE_BYTES, SOURCE_TO, Side, World};

/// Bytes between two places in a sink that nobody may touch, at least.
const GUARD_BYTES: usize = 24;
/// Send WQEs of a QP under way, at most; receive WQEs handed over.
const UNDER_WAY: usize = 6;
const HANDED_OVER: usize = 16;

/// A send WQE.
struct Op {
    opcode: SendOpcode,
    flags: u8,
    is_inline: bool,
    /// Of the source, or of a Read: of the sink.
    pieces: Vec<(usize, usize)>,
    /// Place at the peer: of a Write in its sink, of a Read in its source.
    remote: usize,
    /// Where its data are to be found afterwards, in whose sink.
    lands: Vec<(usize, usize)>,
    lands_at: Side,
}

/// A receive WQE, and how much of it is used.
struct Buffer {
    pieces: Vec<(usize, usize)>,
    used: usize,
}

/// One direction of one QP.
struct Flow {
    from: Side,
    qp: usize,
    ops: Vec<Op>,
    posted: usize,
    completed: usize,
    /// Of the peer.
    buffers: Vec<Buffer>,
    handed_over: usize,
    received: usize,
}

/// All flows, and what the sinks are to hold in the end.
pub(crate) struct Traffic {
    flows: Vec<Flow>,
    wanted: [Vec<u8>; 2],
    used: [usize; 2],
    /// Receive WQEs of the hardware come late.
    pub(crate) is_late: bool,
    pub(crate) bytes: usize,
}

fn length(rng: &mut SmallRng) -> usize {
    match rng.random_range(0..10) {
        0 => 0,
        1..4 => rng.random_range(1..64),
        4..8 => rng.random_range(64..2_000),
        _ => rng.random_range(2_000..12_000),
    }
}

/// Cuts into so many pieces, one behind the other with a gap between.
fn pieces(rng: &mut SmallRng, at: usize, length: usize, count: usize, gap: usize) -> Vec<(usize, usize)> {
    let mut list = Vec::new();
    let (mut at, mut left) = (at, length);
    for piece in 1..=count {
        let bytes = if piece == count { left } else { rng.random_range(0..=left) };
        list.push((at, bytes));
        at += bytes + gap;
        left -= bytes;
    }
    list
}

impl Traffic {
    /// So many WQEs in each direction of each QP.
    pub(crate) fn new(world: &World, rng: &mut SmallRng, ops: usize) -> Self {
        let mut traffic = Self {
            flows: Vec::new(),
            wanted: [vec![BLANK; SINK_BYTES], vec![BLANK; SINK_BYTES]],
            used: [GUARD_BYTES; 2],
            is_late: false,
            bytes: 0,
        };
        for qp in 0..world.qps.len() {
            for from in Side::BOTH {
                let mut flow = Flow {
                    from,
                    qp,
                    ops: Vec::new(),
                    posted: 0,
                    completed: 0,
                    buffers: Vec::new(),
                    handed_over: 0,
                    received: 0,
                };
                for _ in 0..ops {
                    traffic.plan(world, rng, &mut flow);
                }
                traffic.flows.push(flow);
            }
        }
        traffic
    }

    /// A place in a sink.
    fn place(&mut self, side: Side, length: usize, rng: &mut SmallRng) -> usize {
        let used = &mut self.used[side as usize];
        let at = *used + rng.random_range(0..16);
        *used = at + length + GUARD_BYTES;
        assert!(*used <= SINK_BYTES, "the sink is too small for what is planned");
        at
    }

    fn plan(&mut self, world: &World, rng: &mut SmallRng, flow: &mut Flow) {
        let (from, to) = (flow.from, flow.from.other());
        let is_inline = rng.random_ratio(1, 5);
        let length = if is_inline { rng.random_range(1..=480) } else { length(rng) };
        let opcode = match rng.random_range(0..if is_inline { 2 } else { 3 }) {
            0 => SendOpcode::Write,
            1 => SendOpcode::Send,
            _ => SendOpcode::Read,
        };
        let count = if is_inline { 1 } else { rng.random_range(1..=2) };
        let source = rng.random_range(0..SOURCE_BYTES - length - 4096);
        let mut flags = 0;
        // Now and then one tells, so that others can begin.
        flags |= if flow.ops.len() % 4 == 3 || rng.random_ratio(1, 2) { flag::SIGNALED } else { 0 };
        flags |= if rng.random_ratio(1, 6) { flag::FENCE } else { 0 };
        flags |= if opcode == SendOpcode::Send && rng.random_ratio(1, 3) { flag::SOLICITED } else { 0 };
        let gap = rng.random_range(0..64);
        let (near, lands_at) = match opcode {
            SendOpcode::Read => (self.place(from, length + count * gap, rng), from),
            _ => (source, to),
        };
        let near = pieces(rng, near, length, count, gap);
        let (remote, lands) = match opcode {
            SendOpcode::Write => {
                let at = self.place(to, length, rng);
                (at, vec![(at, length)])
            }
            SendOpcode::Read => (source, near.clone()),
            _ => {
                let room = length + rng.random_range(0..200);
                let count = rng.random_range(1..=3);
                let at = self.place(to, room + 40 * count, rng);
                let list = pieces(rng, at, room, count, 40);
                let mut left = length;
                let lands = list
                    .iter()
                    .map(|&(at, bytes)| {
                        let used = bytes.min(left);
                        left -= used;
                        (at, used)
                    })
                    .collect();
                flow.buffers.push(Buffer { pieces: list, used: length });
                (0, lands)
            }
        };
        // What is to be there afterwards.
        let data: Vec<u8> = if opcode == SendOpcode::Read {
            world.memory(to)[SOURCE + remote..SOURCE + remote + length].to_vec()
        } else {
            let memory = world.memory(from);
            near.iter().flat_map(|&(at, bytes)| memory[SOURCE + at..SOURCE + at + bytes].to_vec()).collect()
        };
        let mut rest = &data[..];
        for &(at, bytes) in &lands {
            let (head, tail) = rest.split_at(bytes);
            self.wanted[lands_at as usize][at..at + bytes].copy_from_slice(head);
            rest = tail;
        }
        self.bytes += length;
        flow.ops.push(Op { opcode, flags, is_inline, pieces: near, remote, lands, lands_at });
    }

    /// Whether what an operation brought is where it has to be.
    fn check(&self, world: &World, side: Side, lands: &[(usize, usize)]) {
        for &(at, bytes) in lands {
            let wanted = &self.wanted[side as usize][at..at + bytes];
            assert!(world.sink(side, at, bytes) == wanted, "{bytes} bytes at {at:#x} of the {side:?}'s sink");
        }
    }

    fn post(world: &mut World, flow: &Flow) {
        let Flow { from, qp, posted, .. } = *flow;
        let op = &flow.ops[posted];
        let (ours, theirs) = (*world.stags(from), *world.stags(from.other()));
        let is_read = op.opcode == SendOpcode::Read;
        let (stag, base) = if is_read { (ours.sink, 0) } else { (ours.source, SOURCE_TO) };
        let sges: Vec<Sge> = op
            .pieces
            .iter()
            .map(|&(at, bytes)| Sge { to: base + at as u64, stag, length: bytes as u32 })
            .collect();
        let (at, bytes) = op.pieces[0];
        let inline = world.memory(from)[SOURCE + at..SOURCE + at + bytes.min(480)].to_vec();
        let last = posted + 1 == flow.ops.len();
        let work = SendWork {
            opcode: op.opcode,
            flags: op.flags | if last { flag::SIGNALED } else { 0 },
            id: posted as u64,
            remote_to: op.remote as u64 + if is_read { SOURCE_TO } else { 0 },
            remote_stag: if is_read { theirs.source } else { theirs.sink },
            sges: if op.is_inline { &[] } else { &sges },
            inline: op.is_inline.then_some(&inline),
            ..SendWork::default()
        };
        let mut wqe = [0; SendWork::MAX_BYTES];
        let bytes = work.emit(&mut wqe).expect("a WQE");
        world.post_send(from, qp, &wqe[..bytes]);
    }

    fn hand_over(world: &mut World, flow: &Flow) {
        let to = flow.from.other();
        let stag = world.stags(to).sink;
        let buffer = &flow.buffers[flow.handed_over];
        let sges: Vec<Sge> = buffer
            .pieces
            .iter()
            .map(|&(at, bytes)| Sge { to: at as u64, stag, length: bytes as u32 })
            .collect();
        let mut wqe = [0; ReceiveWork::MAX_BYTES];
        let work = ReceiveWork { id: 1 << 32 | flow.handed_over as u64, sges: &sges };
        let bytes = work.emit(&mut wqe).expect("a WQE");
        world.post_receive(to, flow.qp, &wqe[..bytes]);
    }

    /// Does all of it, and checks what comes.
    pub(crate) fn run(&mut self, world: &mut World, rng: &mut SmallRng) {
        let end_ns = world.now_ns() + 4_000 * MS;
        loop {
            let mut is_done = true;
            for at in 0..self.flows.len() {
                self.tend(world, rng, at);
                let flow = &self.flows[at];
                is_done &= flow.completed == flow.ops.len() && flow.received == flow.buffers.len();
            }
            if is_done {
                break;
            }
            for _ in 0..32 {
                world.step();
            }
            assert!(
                world.now_ns() < end_ns,
                "not all was done: {:?} {:?} {:?}",
                self.flows
                    .iter()
                    .map(|flow| (flow.from, flow.posted, flow.completed, flow.received))
                    .collect::<Vec<_>>(),
                world.efe.stats(),
                world.soft.engine.counters()
            );
        }
        for side in Side::BOTH {
            assert!(
                world.sink(side, 0, SINK_BYTES) == self.wanted[side as usize],
                "something else was written at the {side:?}"
            );
        }
    }

    /// Posts what there is to post, and looks at what has come.
    fn tend(&mut self, world: &mut World, rng: &mut SmallRng, at: usize) {
        let flow = &self.flows[at];
        let (from, to, qp) = (flow.from, flow.from.other(), flow.qp);
        let may_hand_over = !(self.is_late && to == Side::Hardware) || rng.random_ratio(1, 500);
        if flow.handed_over < flow.buffers.len()
            && flow.handed_over - flow.received < HANDED_OVER
            && may_hand_over
        {
            Self::hand_over(world, flow);
            self.flows[at].handed_over += 1;
        }
        let flow = &self.flows[at];
        // The hardware fails a Send that finds no buffer.
        let sends = flow.ops[..(flow.posted + 1).min(flow.ops.len())]
            .iter()
            .filter(|op| op.opcode == SendOpcode::Send)
            .count();
        let has_buffer = from == Side::Software || sends <= flow.handed_over;
        if flow.posted < flow.ops.len() && flow.posted - flow.completed < UNDER_WAY && has_buffer {
            Self::post(world, flow);
            self.flows[at].posted += 1;
        }
        while let Some(cqe) = world.poll(from, qp) {
            self.took(world, from, qp, &cqe);
        }
    }

    fn took(&mut self, world: &World, side: Side, qp: usize, cqe: &Cqe) {
        assert_eq!(cqe.status, Status::Success, "the {side:?}'s QP {qp}: {cqe:?}");
        let Done::Sent(opcode) = cqe.done else { return self.took_message(world, side, qp, cqe) };
        let at = self.flows.iter().position(|flow| (flow.from, flow.qp) == (side, qp)).expect("a flow");
        let flow = &mut self.flows[at];
        let from = flow.completed;
        // Those without a CQE are complete when a later one is.
        let number = cqe.id as usize;
        let silent = flow.ops[from..number].iter().all(|op| op.flags & flag::SIGNALED == 0);
        assert!(number >= from && number < flow.posted && silent, "{cqe:?} is not the next, {from}");
        assert_eq!(flow.ops[number].opcode, opcode);
        flow.completed = number + 1;
        let flow = &self.flows[at];
        for op in &flow.ops[from..=number] {
            self.check(world, op.lands_at, &op.lands);
        }
        if opcode == SendOpcode::Read {
            assert_eq!(
                cqe.bytes as usize,
                flow.ops[number].lands.iter().map(|(_, bytes)| bytes).sum::<usize>()
            );
        }
    }

    fn took_message(&mut self, world: &World, side: Side, qp: usize, cqe: &Cqe) {
        assert_eq!(cqe.done, Done::Received);
        let at =
            self.flows.iter().position(|flow| (flow.from, flow.qp) == (side.other(), qp)).expect("a flow");
        let flow = &mut self.flows[at];
        let number = flow.received;
        assert_eq!(cqe.id, 1 << 32 | number as u64, "messages come in order");
        assert_eq!(cqe.bytes as usize, flow.buffers[number].used);
        flow.received += 1;
        let sent = self.flows[at]
            .ops
            .iter()
            .filter(|op| op.opcode == SendOpcode::Send)
            .nth(number)
            .expect("it was sent");
        self.check(world, side, &sent.lands);
    }
}
