//! Random programs between two engines: what was posted in both directions is done byte for byte, in order, however
//! the cable is cut into segments, filled, and late buffers come.

mod pair;

use etherslot_rdma::{Attributes, Flag, SendOpcode, SendWork, Service, Sge, State, Status, flag};
use pair::{Node, Pair};
use proptest::collection::vec;
use proptest::prelude::*;

/// One work request, by what decides it.
type Op = (u8, u16, u8, u8);

/// What a side sends from, is written to, is read at, receives into, and counts at.
const SOURCE: u64 = 0x10000;
const SINK: u64 = 0x20000;
const TARGET: u64 = 0x40000;
const STATIC: u64 = 0x60000;
const BUFFERS: u64 = 0x80000;
const COUNTER: u64 = 0xF0000;
const FLAGS: u64 = 0xF1000;
const BUFFER_BYTES: u32 = 4096;

/// What has to have happened in the end.
#[derive(Default)]
struct Model {
    /// (address here, bytes)
    sunk: Vec<(u64, Vec<u8>)>,
    /// (address there, bytes), in order.
    written: Vec<(u64, Vec<u8>)>,
    received: Vec<(Vec<u8>, Option<u32>)>,
    added: u64,
    expected: Vec<(u64, u32)>,
    flags: (u64, u64),
}

fn bytes(node: &Node, at: u64, length: u64) -> Vec<u8> {
    node.ram.bytes[at as usize..(at + length) as usize].to_vec()
}

/// Cuts a range into pieces.
fn pieces(node: &Node, at: u64, length: u32, count: u8) -> Vec<Sge> {
    let count = u32::from(count % 5) + 1;
    let mut list = Vec::new();
    let mut done = 0;
    for piece in 0..count {
        let bytes = if piece + 1 == count { length - done } else { (length - done) / (count - piece) };
        list.push(node.sge(at + u64::from(done), bytes));
        done += bytes;
    }
    list
}

fn post(pair: &mut Pair, at: usize, op: Op, id: u64, model: &mut Model) {
    let (kind, size, place, flags) = op;
    let there = pair.nodes[1 - at].all;
    let node = &mut pair.nodes[at];
    let length = u32::from(size) % 5000;
    let from = SOURCE + u64::from(place) * 16;
    let data = bytes(node, from, length.into());
    let list = pieces(node, from, length, flags);
    let fence = if flags & 0x40 != 0 { flag::FENCE } else { 0 };
    let base = SendWork {
        id,
        flags: flag::SIGNALED | fence,
        remote_stag: there,
        sges: &list,
        ..SendWork::default()
    };
    let to = TARGET + u64::from(place) * 32;
    let inline = length.min(300) as usize;
    let mut done = length;
    match kind % 8 {
        0 => {
            node.post(&SendWork { opcode: SendOpcode::Write, remote_to: to, ..base });
            model.written.push((to, data));
        }
        1 => {
            let small = SendWork { sges: &[], inline: Some(&data[..inline]), ..base };
            node.post(&SendWork { opcode: SendOpcode::Write, remote_to: to, ..small });
            model.written.push((to, data[..inline].to_vec()));
            done = inline as u32;
        }
        2 => {
            let length = length.min(BUFFER_BYTES);
            let list = pieces(node, from, length, flags);
            node.post(&SendWork { opcode: SendOpcode::Send, sges: &list, ..base });
            model.received.push((data[..length as usize].to_vec(), None));
            done = length;
        }
        3 => {
            let small = SendWork { sges: &[], inline: Some(&data[..inline]), immediate: id as u32, ..base };
            node.post(&SendWork { opcode: SendOpcode::SendImmediate, ..small });
            model.received.push((data[..inline].to_vec(), Some(id as u32)));
            done = inline as u32;
        }
        4 => {
            let work =
                SendWork { opcode: SendOpcode::WriteImmediate, remote_to: to, immediate: id as u32, ..base };
            node.post(&work);
            model.written.push((to, data));
            model.received.push((Vec::new(), Some(id as u32)));
        }
        5 => {
            let into = SINK + (id % 16) * 0x2000;
            let list = pieces(node, into, length, flags);
            let remote_to = STATIC + u64::from(place) * 8;
            node.post(&SendWork { opcode: SendOpcode::Read, remote_to, sges: &list, ..base });
            let read = bytes(&pair.nodes[1 - at], remote_to, length.into());
            model.sunk.retain(|&(to, _)| to != into);
            model.sunk.push((into, read));
        }
        6 => {
            let into = [node.sge(COUNTER + 8 + id * 8 % 64, 8)];
            let work = SendWork { opcode: SendOpcode::FetchAdd, remote_to: COUNTER, sges: &into, ..base };
            node.post(&SendWork { operands: [u64::from(size), 0], ..work });
            model.added = model.added.wrapping_add(u64::from(size));
            done = 8;
        }
        _ => {
            let local = Flag { stag: node.all, to: FLAGS, value: id };
            let remote = Flag { stag: there, to: FLAGS + 8, value: id };
            let work = SendWork { local_flag: Some(local), remote_flag: Some(remote), ..base };
            node.post(&SendWork { opcode: SendOpcode::Write, remote_to: to, ..work });
            model.written.push((to, data));
            model.flags = (id, id);
        }
    }
    model.expected.push((id, done));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn what_was_posted_is_done_byte_for_byte_and_in_order(
        programs in [vec(any::<Op>(), 0..30), vec(any::<Op>(), 0..30)],
        steps in vec(any::<u8>(), 0..200),
        (longest, most, ord) in (80..1500_usize, 1..20_usize, 1..5_u8),
    ) {
        let mut pair = Pair::with(Service::Rc, |_, attributes| Attributes { ord, rnr_wait_us: 20, ..attributes });
        for node in &mut pair.nodes {
            node.cable.longest = longest;
            node.cable.most = most;
        }
        let start = [0, 1].map(|at: usize| pair.nodes[at].ram.bytes.clone());
        let mut models = [Model::default(), Model::default()];
        let mut next = [0, 0];
        let mut buffers = [0, 0];
        let mut seen: [Vec<_>; 2] = Default::default();
        let mut got: [Vec<_>; 2] = Default::default();
        let mut steps = steps.into_iter();
        loop {
            // While there are steps they decide what comes next; then everything that is left.
            let step = steps.next();
            for at in 0..2 {
                let goes = step.is_none_or(|step| step >> at & 1 == 1);
                if goes && next[at] < programs[at].len() && pair.nodes[at].engine.sq_room(pair.nodes[at].qp) >= 9 {
                    post(&mut pair, at, programs[at][next[at]], next[at] as u64, &mut models[at]);
                    next[at] += 1;
                }
                if step.is_none_or(|step| step >> (2 + at) & 1 == 1) && buffers[at] < 30 {
                    let place = BUFFERS + buffers[at] * u64::from(BUFFER_BYTES);
                    let sge = pair.nodes[at].sge(place, BUFFER_BYTES);
                    pair.nodes[at].post_receive(buffers[at], &[sge]);
                    buffers[at] += 1;
                }
                match step {
                    None => {
                        pair.run(1_000_000);
                    }
                    Some(step) if step >> (4 + at) & 1 == 1 => pair.transmit(at),
                    Some(step) => {
                        for _ in 0..step >> 6 {
                            pair.carry(at);
                        }
                    }
                }
                seen[at].extend(pair.nodes[at].sent().iter().map(|cqe| {
                    assert_eq!(cqe.status, Status::Success);
                    (cqe.id, cqe.bytes)
                }));
                got[at].extend(pair.nodes[at].received());
            }
            let all_posted = next[0] == programs[0].len() && next[1] == programs[1].len();
            if step.is_none() && all_posted && buffers == [30, 30] {
                break;
            }
        }
        pair.run(1_000_000_000);
        for at in 0..2 {
            seen[at].extend(pair.nodes[at].sent().iter().map(|cqe| (cqe.id, cqe.bytes)));
            got[at].extend(pair.nodes[at].received());
            let (model, other) = (&models[at], &models[1 - at]);
            prop_assert_eq!(&seen[at], &model.expected);
            // What was received, in order.
            prop_assert_eq!(got[at].len(), other.received.len());
            for (cqe, (data, immediate)) in got[at].iter().zip(&other.received) {
                prop_assert_eq!(cqe.status, Status::Success);
                prop_assert_eq!(cqe.immediate, *immediate);
                let place = BUFFERS + cqe.id * u64::from(BUFFER_BYTES);
                prop_assert_eq!(&bytes(&pair.nodes[at], place, data.len() as u64), data);
            }
            // What was written, as if nothing had ever been sent twice.
            let mut expected = start[at].clone();
            for (to, data) in &other.written {
                expected[*to as usize..][..data.len()].copy_from_slice(data);
            }
            let range = TARGET as usize..STATIC as usize;
            prop_assert!(pair.nodes[at].ram.bytes[range.clone()] == expected[range]);
            for (into, data) in &model.sunk {
                prop_assert_eq!(&bytes(&pair.nodes[at], *into, data.len() as u64), data);
            }
            let before = u64::from_le_bytes(start[at][COUNTER as usize..][..8].try_into().unwrap());
            let now = bytes(&pair.nodes[at], COUNTER, 8);
            prop_assert_eq!(now, before.wrapping_add(other.added).to_le_bytes());
            if model.flags.0 > 0 {
                prop_assert_eq!(bytes(&pair.nodes[at], FLAGS, 8), model.flags.0.to_le_bytes());
            }
            if other.flags.1 > 0 {
                prop_assert_eq!(bytes(&pair.nodes[at], FLAGS + 8, 8), other.flags.1.to_le_bytes());
            }
            prop_assert_eq!(pair.nodes[at].state(), State::Rts);
        }
    }
}
