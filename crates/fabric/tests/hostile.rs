//! Any frame may come from anybody: a member neither panics nor grows, and keeps what it knows of others.

use crc32c::crc32c;
use etherslot_fabric::{
    DeviceConfig, DirectoryConfig, Identity, Known, LeaseConfig, Leases, Member, MemberConfig, Place, To,
};
use etherslot_wire::NodeId;
use etherslot_wire::control::Name;
use etherslot_wire::discovery::{
    Change, HEADER_BYTES, Header, Heartbeat, Message, Order, Outcome, Port, Progress, Reason, Role, Step,
};
use proptest::prelude::*;

/// Addresses are numbers, all on one link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct At(u32);

impl Place for At {
    fn link(&self) -> usize {
        0
    }
    fn port(&self) -> Option<Port> {
        Some(Port::Ring(self.0))
    }
    fn at(_link: usize, port: Port) -> Option<Self> {
        match port {
            Port::Ring(number) => Some(Self(number)),
            _ => None,
        }
    }
}

const BOX: NodeId = NodeId([1; 16]);
const BOX_LIFE: u64 = 1;

fn member(number: u8, role: Role) -> Member<At> {
    living(number, role, BOX_LIFE)
}

fn living(number: u8, role: Role, life: u64) -> Member<At> {
    Member::new(MemberConfig {
        identity: Identity {
            node: NodeId([number; 16]),
            life,
            name: Name::new("node").unwrap(),
            role,
            group: None,
            ports: vec![Port::Ring(u32::from(number))],
        },
        interval_ns: 100_000_000,
        frame_bytes: 1500,
        directory: DirectoryConfig { nodes: 8, ..DirectoryConfig::default() },
        to: vec![To::List(Vec::new())],
        is_rendezvous: true,
        takes_orders: true,
    })
}

fn good_body(message: Message) -> Vec<u8> {
    let mut body = vec![0; 256];
    let name = Name::new("disk0").unwrap();
    let heartbeat = Heartbeat {
        role: Role::Host,
        link: 0,
        group: None,
        interval_ms: 100,
        sent: 0,
        generation: 0,
        devices: 0,
        first: 0,
        name,
    };
    let bytes = match message {
        Message::Heartbeat => heartbeat.emit(&[Port::Ring(1)], [].iter(), &mut body),
        Message::Order => {
            let change = Change::Host(NodeId([3; 16]));
            Order { number: 1, to: BOX, life: BOX_LIFE, device: name, change, dry_run: false, force: false }
                .emit(&mut body)
        }
        Message::Outcome => Outcome {
            asker: BOX,
            asker_life: 1,
            number: 1,
            progress: Progress::Done,
            step: Step::None,
            reason: Reason::None,
            elapsed_ms: 0,
            epoch: 0,
            from: None,
            to: None,
        }
        .emit(&mut body),
        Message::Relayed => {
            let inner = framed(Message::Heartbeat, 7, 7, &good_body(Message::Heartbeat));
            Port::Ring(9).emit(&mut body).unwrap();
            body[Port::BYTES..][..inner.len()].copy_from_slice(&inner);
            Some(Port::BYTES + inner.len())
        }
    };
    body.truncate(bytes.unwrap());
    body
}

fn framed(message: Message, node: u8, sequence: u64, body: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; HEADER_BYTES + body.len() + 4];
    frame[HEADER_BYTES..][..body.len()].copy_from_slice(body);
    let header = Header { message, life: 1, sequence, node: NodeId([node; 16]) };
    header.emit(&mut frame, body.len(), crc32c).unwrap();
    frame
}

fn frames() -> impl Strategy<Value = Vec<u8>> {
    let messages = [Message::Heartbeat, Message::Order, Message::Outcome, Message::Relayed];
    let changes = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3);
    let near = (prop::sample::select(messages.to_vec()), 0..20_u8, 0..100_u64, changes).prop_map(
        |(message, node, sequence, changes)| {
            let mut body = good_body(message);
            for (at, byte) in changes {
                let at = at.index(body.len());
                body[at] = byte;
            }
            framed(message, node, sequence, &body)
        },
    );
    prop_oneof![near, prop::collection::vec(any::<u8>(), 0..200)]
}

proptest! {
    #[test]
    fn whatever_comes_a_member_goes_on(came in prop::collection::vec((frames(), 0..30_u32, 0..50_u64), 0..100)) {
        let mut member = member(1, Role::Box);
        let device = DeviceConfig { name: Name::new("disk0").unwrap(), group: None };
        let mut leases = Leases::new(LeaseConfig::default(), [device]);
        let mut now_ns = 1;
        let mut sent = 0;
        for (frame, from, later_ms) in came {
            now_ns += later_ms * 1_000_000;
            member.receive(now_ns, &At(from), &frame, Some(&mut leases));
            member.poll(now_ns, &[], Some(&mut leases));
            leases.poll(now_ns);
            prop_assert!(member.directory().nodes().count() <= 8);
            if later_ms % 2 == 0 {
                member.transmit(&mut |_, frame| {
                    sent += 1;
                    assert!(frame.len() <= 1500);
                    true
                });
            }
        }
        prop_assert!(member.counters().dropped == 0 || sent > 0);
    }
}

#[test]
fn two_who_know_one_address_between_them_hear_each_other_and_one_orders_the_other() {
    let (mut io_box, mut host) = (member(1, Role::Box), member(2, Role::Host));
    let device = DeviceConfig { name: Name::new("disk0").unwrap(), group: None };
    let mut leases = Leases::new(LeaseConfig::default(), [device]);
    // Only the host knows where the box is.
    let config = |to| MemberConfig {
        identity: host.identity().clone(),
        interval_ns: 100_000_000,
        frame_bytes: 1500,
        directory: DirectoryConfig::default(),
        to: vec![to],
        is_rendezvous: false,
        takes_orders: false,
    };
    host = Member::new(config(To::List(vec![At(1)])));
    let mut asked = None;
    for now_ns in (0..1_000_000_000).step_by(10_000_000) {
        let mut letters = Vec::new();
        host.poll(now_ns, &[], None);
        io_box.poll(now_ns, &[], Some(&mut leases));
        host.transmit(&mut |to, frame| {
            letters.push((At(2), *to, frame.to_vec()));
            true
        });
        io_box.transmit(&mut |to, frame| {
            letters.push((At(1), *to, frame.to_vec()));
            true
        });
        for (from, to, frame) in letters {
            match to {
                At(1) => io_box.receive(now_ns, &from, &frame, Some(&mut leases)),
                _ => host.receive(now_ns, &from, &frame, None),
            }
        }
        if now_ns == 300_000_000 {
            let change = Change::Host(NodeId([2; 16]));
            let device = Name::new("disk0").unwrap();
            let order = Order { number: 0, to: BOX, life: 0, device, change, dry_run: false, force: false };
            asked = Some(host.order(now_ns, 1_000_000_000, order, None));
        }
    }
    assert_eq!(host.directory().get(&BOX).and_then(Known::address), Some(At(1)));
    assert_eq!(io_box.directory().get(&NodeId([2; 16])).and_then(Known::address), Some(At(2)));
    let outcome = host.asked(asked.unwrap()).unwrap().outcome.unwrap();
    assert_eq!((outcome.progress, outcome.step), (Progress::Working, Step::Offer));
}

/// Two of one ID, of which only one knows the other's address, and a box that only they know, in the same way.
#[test]
fn two_that_share_an_id_are_told_so_by_themselves_and_by_others_until_one_is_gone() {
    const SECOND: u64 = 1_000_000_000;
    let twin = |life, to| {
        let identity = Identity { life, ..member(2, Role::Host).identity().clone() };
        Member::new(MemberConfig {
            identity,
            interval_ns: SECOND / 10,
            frame_bytes: 1500,
            directory: DirectoryConfig::default(),
            to: vec![To::List(to)],
            is_rendezvous: false,
            takes_orders: false,
        })
    };
    // By their addresses: the box, the older one, which the other one and the box get to know by hearing, and the newer one.
    let mut nodes = [member(1, Role::Box), twin(5, vec![At(0)]), twin(9, vec![At(0), At(1)])];
    let mut run = |from_ns: u64, to_ns: u64, there: usize| {
        for now_ns in (from_ns..to_ns).step_by(10_000_000) {
            let mut letters = Vec::new();
            for (number, node) in (0..).zip(nodes.iter_mut().take(there)) {
                node.poll(now_ns, &[], None);
                node.transmit(&mut |to, frame| {
                    letters.push((At(number), *to, frame.to_vec()));
                    true
                });
            }
            for (from, At(to), frame) in letters {
                if let Some(node) = nodes[..there].get_mut(to as usize) {
                    node.receive(now_ns, &from, &frame, None);
                }
            }
        }
        let io_box = nodes[0].directory().get(&NodeId([2; 16])).is_some_and(|known| known.is_double(to_ns));
        [io_box, nodes[1].is_double(to_ns), nodes[2].is_double(to_ns)]
    };
    assert_eq!(run(SECOND, 3 * SECOND, 3), [false; 3]);
    assert_eq!(run(3 * SECOND, 8 * SECOND, 3), [true; 3]);
    assert_eq!(run(8 * SECOND, 15 * SECOND, 2)[..2], [false; 2], "the newer one was stopped");
}

/// Whether a box of this life begins to do what `order` says.
fn is_begun(life: u64, order: &[u8]) -> bool {
    let mut io_box = living(1, Role::Box, life);
    let device = DeviceConfig { name: Name::new("disk0").unwrap(), group: None };
    let mut leases = Leases::new(LeaseConfig::default(), [device]);
    io_box.receive(1, &At(3), &framed(Message::Heartbeat, 3, 1, &good_body(Message::Heartbeat)), None);
    io_box.receive(2, &At(2), order, Some(&mut leases));
    assert_eq!(io_box.counters().orders_stale, u64::from(life != BOX_LIFE));
    let mut answers = 0;
    io_box.transmit(&mut |_, frame| {
        answers += u64::from(frame[1] == Message::Outcome as u8);
        true
    });
    assert_eq!(answers, u64::from(life == BOX_LIFE));
    leases.revision() != 0
}

#[test]
fn an_order_to_an_earlier_life_of_the_box_moves_nothing() {
    let order = framed(Message::Order, 2, 9, &good_body(Message::Order));
    assert!(is_begun(BOX_LIFE, &order));
    assert!(!is_begun(BOX_LIFE + 1, &order), "it was recorded before the box started again");
    assert!(!is_begun(BOX_LIFE - 1, &order), "its clock was set back");
}
