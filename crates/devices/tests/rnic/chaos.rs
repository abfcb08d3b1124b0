//! A driver, a user and a peer that do anything: one step of it.

use etherslot_devices::rnic::Link;
use etherslot_pci::function::{Function, ResetKind};
use etherslot_rdma::{SendOpcode, SendWork, Sge, flag};

use crate::pair::{ALL, FREE, Host, World, access};

/// A number below a bound.
pub(crate) type Choose<'a> = &'a mut dyn FnMut(u32) -> u32;

const OPCODES: [SendOpcode; 11] = [
    SendOpcode::Write,
    SendOpcode::WriteImmediate,
    SendOpcode::Send,
    SendOpcode::SendImmediate,
    SendOpcode::SendInvalidate,
    SendOpcode::Read,
    SendOpcode::FetchAdd,
    SendOpcode::CompareSwap,
    SendOpcode::Bind,
    SendOpcode::Invalidate,
    SendOpcode::Nop,
];

/// Any number, most often a small one, or one of those where things end.
fn number(choose: Choose<'_>) -> u64 {
    let any = u64::from(choose(u32::MAX)) << 32 | u64::from(choose(u32::MAX));
    match choose(8) {
        0 => any,
        1 => u64::MAX - any % 64,
        2 => any % (1 << 32),
        3 => FREE + any % (1 << 16),
        4 => (any % 64) << (any % 59),
        _ => any % 16,
    }
}

fn stag(choose: Choose<'_>) -> u32 {
    match choose(4) {
        0 => number(choose) as u32,
        1 => choose(64) << 8,
        _ => ALL,
    }
}

fn send(host: &mut Host, choose: Choose<'_>) {
    let qp = 2 + choose(4);
    let piece = |choose: Choose<'_>| Sge {
        to: if choose(4) == 0 { number(choose) } else { FREE + u64::from(choose(1 << 16)) },
        stag: stag(choose),
        length: if choose(8) == 0 { number(choose) as u32 } else { choose(6000) },
    };
    let sges: Vec<Sge> = (0..choose(4)).map(|_| piece(choose)).collect();
    let opcode = OPCODES[choose(OPCODES.len() as u32) as usize];
    let is_local = matches!(opcode, SendOpcode::Bind | SendOpcode::Invalidate | SendOpcode::Nop);
    let work = SendWork {
        opcode,
        flags: choose(8) as u8 & (flag::SIGNALED | flag::FENCE | flag::SOLICITED),
        id: 1,
        remote_to: if choose(4) == 0 { number(choose) } else { FREE + u64::from(choose(1 << 16)) },
        remote_stag: stag(choose),
        immediate: stag(choose),
        sges: if is_local { &[] } else { &sges },
        operands: [u64::from(stag(choose)), number(choose)],
        ..SendWork::default()
    };
    let mut wqe = [0; SendWork::MAX_BYTES];
    let Some(bytes) = work.emit(&mut wqe) else { return };
    for _ in 0..choose(3) {
        wqe[choose(bytes as u32) as usize] = choose(256) as u8;
    }
    if choose(3) == 0 {
        host.rnic.bar_write(2, u64::from(qp) * 4096 + 0x400, &wqe[..bytes]);
        host.write32(2, u64::from(qp) * 4096 + 0x20, (bytes / 64) as u32);
    } else {
        host.put_raw(qp, &wqe[..bytes]);
        host.ring_send(qp);
    }
}

fn table(host: &mut Host, choose: Choose<'_>) {
    let (table, index) = (choose(6), choose(8));
    match choose(6) {
        0 => {
            host.region(index << 8 | choose(4), access::EVERYTHING, FREE, 1 << 16);
        }
        1 => {
            let pages = [Some(FREE), None, Some(FREE + 4096), Some(number(choose) & !4095)];
            host.paged(index << 8, access::EVERYTHING, index * 4, &pages);
        }
        2 => {
            host.cq(index, choose(8), choose(10));
        }
        3 => {
            host.context(index, choose(4), choose(4) << 6);
        }
        _ => {
            let at = host.entry_at(table, index) + u64::from(choose(64)) * 4;
            let value = number(choose) as u32 ^ choose(2) << 31;
            host.write32(4, at, value);
        }
    }
}

/// One step.
pub(crate) fn act(world: &mut World, choose: Choose<'_>) {
    let at = choose(2) as usize;
    let host = &mut world.hosts[at];
    match choose(20) {
        0 | 1 => table(host, choose),
        2..=5 => send(host, choose),
        6 => host.receive(2 + choose(3), 9, FREE + u64::from(choose(1 << 16)), choose(8000)),
        7 => {
            let offset = u64::from(choose(7)) * 4;
            let value = number(choose);
            host.write64(2, u64::from(choose(9)) * 4096 + (offset & !7), value);
            host.write32(2, u64::from(choose(9)) * 4096 + offset, value as u32);
        }
        8 => host.write32(0, 0x64, number(choose) as u32 & 7 << 16 | choose(8)),
        9 => {
            let place = u64::from(choose(16));
            let page = u64::from(2 + choose(3)) * 4096;
            let mut wqe = [0; 64];
            let inline = Some(&[0; 8][..]);
            let work = SendWork {
                opcode: OPCODES[choose(5) as usize],
                remote_to: FREE,
                remote_stag: ALL,
                inline,
                ..SendWork::default()
            };
            if work.emit(&mut wqe).is_some() && choose(2) == 0 {
                wqe[choose(64) as usize] ^= choose(2) as u8;
                for (part, bytes) in (0..).zip(wqe.chunks(8)) {
                    host.rnic.bar_write(2, page + 0xC00 + place * 64 + part * 8, bytes);
                }
            }
            host.write64(2, page + 0x800 + place * 8, number(choose));
        }
        10 => {
            let rooms = [usize::MAX, usize::MAX, 0, 64, 1000];
            host.bus.write_room = rooms[choose(5) as usize];
            host.bus.read_room = rooms[choose(5) as usize];
            host.bus.interrupt_room = rooms[choose(3) as usize];
        }
        11 => {
            host.bus.hold_reads = choose(3) == 0;
            host.bus.master = choose(4) != 0;
            host.shuffle = choose(2) == 0;
            host.bus.piece = [64, 512, 7][choose(3) as usize];
        }
        12 => {
            let mut data = vec![choose(256) as u8; 1 + choose(72) as usize];
            let (bar, offset) = ([0, 2, 4][choose(3) as usize], number(choose) % (1 << 16));
            if choose(2) == 0 {
                host.rnic.bar_read(bar, offset, &mut data);
            } else if !(bar == 0 && offset < 0x10) {
                host.rnic.bar_write(bar, offset, &data);
            }
        }
        13 => {
            for host in &mut world.hosts {
                host.bus.now_ns += u64::from(choose(1 << 24));
            }
        }
        14 => {
            let bytes = (0..choose(80)).map(|_| choose(256) as u8).collect();
            world.lanes[at].borrow_mut().segments.push_back(bytes);
        }
        15 if choose(8) == 0 => {
            let links = [Link::Coming, Link::Up(1), Link::Up(2), Link::Down];
            world.lanes[at].borrow_mut().link = Some(links[choose(4) as usize]);
        }
        16 if choose(16) == 0 => {
            host.bus.pending.clear();
            host.rnic.reset(ResetKind::FunctionLevel);
        }
        16 if choose(8) == 0 => host.write32(0, 0x8, choose(4)),
        17 => world.lanes[at].borrow_mut().longest = 40 + choose(1400) as usize,
        18 => {
            host.consume(2, choose(8), u64::from(choose(4)) << 16);
            host.write32(0, 0x70, 1);
            host.read64(0, 0x78);
            let miss = host.read64(0, 0x80);
            host.write64(0, 0x80, miss);
            host.write32(0, 0x60, choose(64));
        }
        _ => {}
    }
    for _ in 0..choose(4) {
        world.step();
    }
}

/// Two RNICs with QPs of all kinds.
pub(crate) fn begin() -> World {
    World::new(&[(2, 0, 0), (3, 0, 1 << 6), (4, 3, 0), (5, 1, 0)])
}

/// After whatever happened, a reset makes all good.
pub(crate) fn serves(world: &mut World) {
    for (host, lane) in world.hosts.iter_mut().zip(&world.lanes) {
        let now_ns = host.bus.now_ns;
        host.bus = crate::bus::TestBus::new();
        host.bus.now_ns = now_ns;
        host.reset(ResetKind::Conventional);
        *lane.borrow_mut() = crate::pair::Lane { longest: 1396, most: 64, ..crate::pair::Lane::default() };
    }
    // What is on its way yet is for nobody.
    for _ in 0..8 {
        world.step();
    }
    for host in &mut world.hosts {
        host.bring_up(&[(2, 0, 0)]);
    }
    world.hosts[0].fill(FREE, 9000, 1);
    let sges = [Sge { to: FREE, stag: ALL, length: 9000 }];
    let work = SendWork {
        opcode: SendOpcode::Write,
        flags: flag::SIGNALED,
        id: 7,
        remote_to: FREE,
        remote_stag: ALL,
        sges: &sges,
        ..SendWork::default()
    };
    world.hosts[0].send(2, &work);
    world.run(50);
    assert_eq!(world.hosts[0].completions(0), [(7, 0)]);
    let sent = world.hosts[0].memory(FREE, 9000).to_vec();
    assert_eq!(world.hosts[1].memory(FREE, 9000), sent);
}
