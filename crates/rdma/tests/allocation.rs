//! On the steady path no operation costs an allocation.

mod pair;

use etherslot_rdma::{Memory, PeerId, SendOpcode, SendWork, Service, Wire};
use pair::{PEER, Pair, work};

/// Hands segments over in a buffer that is there.
struct Still {
    bytes: Vec<u8>,
    lengths: Vec<usize>,
}

impl Wire for Still {
    fn room(&mut self, _peer: PeerId, _stream: u16, _want: usize) -> usize {
        if self.lengths.len() < self.lengths.capacity() { 1396 } else { 0 }
    }

    fn send(
        &mut self,
        _peer: PeerId,
        _stream: u16,
        head: &[u8],
        data_len: usize,
        fill: &mut dyn FnMut(&mut [u8]) -> bool,
    ) -> bool {
        let start = self.lengths.len() * 1400;
        let out = &mut self.bytes[start..start + head.len() + data_len];
        out[..head.len()].copy_from_slice(head);
        let filled = fill(&mut out[head.len()..]);
        if filled {
            self.lengths.push(head.len() + data_len);
        }
        filled
    }
}

fn pass(pair: &mut Pair, wire: &mut Still, from: usize) -> bool {
    let now_ns = pair.now_ns;
    let [one, other] = &mut pair.nodes;
    let (from, to) = if from == 0 { (one, other) } else { (other, one) };
    from.engine.transmit(now_ns, &mut from.ram, wire);
    for (at, &length) in wire.lengths.iter().enumerate() {
        let segment = &wire.bytes[at * 1400..][..length];
        to.engine.receive(now_ns, PEER, segment, &mut to.ram);
    }
    let any = !wire.lengths.is_empty();
    wire.lengths.clear();
    any
}

#[test]
fn no_operation_allocates_once_queues_are_made() {
    let mut pair = Pair::connected(Service::Rc);
    let mut wire = Still { bytes: vec![0; 16 * 1400], lengths: Vec::with_capacity(16) };
    let (there, sge) = (pair.nodes[1].all, pair.nodes[0].sge(0x1000, 4000));
    let (result, into) = (pair.nodes[0].sge(0x8000, 8), pair.nodes[1].sge(0x90000, 4096));
    let kinds = [
        SendOpcode::Write,
        SendOpcode::WriteImmediate,
        SendOpcode::Send,
        SendOpcode::Read,
        SendOpcode::FetchAdd,
    ];
    let mut round = |pair: &mut Pair| {
        for opcode in kinds {
            pair.nodes[1].post_receive(1, &[into]);
            let sges = if opcode == SendOpcode::FetchAdd { [result] } else { [sge] };
            pair.nodes[0].post(&SendWork {
                remote_to: 0x40000,
                remote_stag: there,
                sges: &sges,
                ..work(opcode, 1)
            });
        }
        while pass(pair, &mut wire, 0) | pass(pair, &mut wire, 1) {}
        for node in &mut pair.nodes {
            while node.engine.take(node.send_cq).is_some() || node.engine.take(node.receive_cq).is_some() {}
        }
    };
    round(&mut pair);
    let counted = allocation_counter::measure(|| {
        for _ in 0..10 {
            round(&mut pair);
        }
    });
    assert_eq!(counted.count_total, 0);
    assert!(pair.nodes[0].engine.counters().segments_sent > 11 * 12);
    let _ = pair.nodes[0].ram.read(0, &mut []);
}
