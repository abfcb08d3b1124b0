//! Whose turn it is when sessions are full: nobody starves, and no peer holds up another.

mod pair;

use std::collections::BTreeMap;

use etherslot_rdma::{Attributes, PeerId, Qpn, SendOpcode, SendWork, Service, State, Wire};
use etherslot_wire::ddp::Header;
use pair::{Node, work};

/// Sessions that take so many segments in a call.
struct Narrow {
    room: BTreeMap<PeerId, usize>,
    sent: BTreeMap<u16, usize>,
    asked: usize,
}

impl Wire for Narrow {
    fn room(&mut self, peer: PeerId, _stream: u16, _want: usize) -> usize {
        self.asked += 1;
        if self.room.get(&peer).is_some_and(|&room| room > 0) { 1396 } else { 0 }
    }

    fn send(
        &mut self,
        peer: PeerId,
        _stream: u16,
        head: &[u8],
        data_len: usize,
        fill: &mut dyn FnMut(&mut [u8]) -> bool,
    ) -> bool {
        assert!(fill(&mut vec![0; data_len]));
        *self.room.get_mut(&peer).unwrap() -= 1;
        let qp = u16::from_be_bytes([head[0], head[1]]);
        *self.sent.entry(qp).or_default() += 1;
        assert!(Header::parse(head).is_ok());
        true
    }
}

/// A node with so many QPs to each of two peers, each with a long Write; the remote QPs are numbered from 100 on.
fn busy(count: u16) -> Node {
    let mut node = Node::new(Service::Rc);
    let first = node.qp;
    node.engine.destroy_qp(first).unwrap();
    let init = Node::init(Service::Rc, node.send_cq, node.receive_cq);
    for at in 0..2 * count {
        node.qp = node.engine.create_qp(&init).unwrap();
        let (peer, remote_qp) = (PeerId(1 + at % 2), Qpn(100 + at));
        node.connect(&Attributes { peer, remote_qp, ..Attributes::default() });
        let sge = node.sge(0, 1 << 20);
        node.post(&SendWork { sges: &[sge], ..work(SendOpcode::Write, 1) });
    }
    node
}

fn call(node: &mut Node, wire: &mut Narrow, rooms: [usize; 2]) {
    wire.room = BTreeMap::from([(PeerId(1), rooms[0]), (PeerId(2), rooms[1])]);
    node.engine.transmit(1, &mut node.ram, wire);
}

#[test]
fn qps_of_a_full_session_take_turns() {
    for (count, room) in [(2, 1), (2, 3), (3, 5), (7, 2), (7, 40)] {
        let mut node = busy(count);
        let mut wire = Narrow { room: BTreeMap::new(), sent: BTreeMap::new(), asked: 0 };
        for _ in 0..60 * count {
            call(&mut node, &mut wire, [room, room]);
        }
        let (least, most) = (wire.sent.values().min().unwrap(), wire.sent.values().max().unwrap());
        assert_eq!(wire.sent.len(), 2 * count as usize, "{count} QPs, room {room}: somebody starves");
        assert!(most - least <= 2 * 16 + room, "{count} QPs, room {room}: {:?}", wire.sent);
    }
}

#[test]
fn a_peer_whose_session_is_full_holds_up_nobody_else() {
    let mut node = busy(4);
    let mut wire = Narrow { room: BTreeMap::new(), sent: BTreeMap::new(), asked: 0 };
    for _ in 0..50 {
        call(&mut node, &mut wire, [0, 8]);
    }
    assert!(wire.sent.keys().all(|qp| qp % 2 == 1), "{:?}", wire.sent);
    assert_eq!(wire.sent.values().sum::<usize>(), 400);
    // A full session costs a look, not one for each of its QPs.
    wire.asked = 0;
    call(&mut node, &mut wire, [0, 0]);
    assert!(wire.asked <= 2, "{} looks", wire.asked);
    call(&mut node, &mut wire, [8, 0]);
    assert!(wire.sent.keys().any(|qp| qp % 2 == 0));
}

#[test]
fn a_qp_that_is_removed_while_it_waits_is_not_waited_for() {
    let mut node = busy(2);
    let mut wire = Narrow { room: BTreeMap::new(), sent: BTreeMap::new(), asked: 0 };
    call(&mut node, &mut wire, [0, 0]);
    let last = node.qp;
    node.engine.destroy_qp(last).unwrap();
    assert_eq!(node.engine.state(last), None);
    call(&mut node, &mut wire, [100, 100]);
    assert_eq!(wire.sent.len(), 3);
    assert!(node.engine.modify_qp(last, State::Error, None).is_err());
}
