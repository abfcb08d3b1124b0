//! Ways of a small message through an RNIC in a box: the ring and its doorbell, BOTF, AOTF. What each costs the cables and the
//! memory, and how long it takes, in virtual time and one thread; instructions of all of it by callgrind.
//!
//!     small                      a table of all ways
//!     small WAY BYTES BURST N    N bursts of one way, for callgrind

#[path = "../tests/rnic/world.rs"]
#[expect(dead_code, reason = "the tests use all of it")]
mod world;

use etherslot_rdma::{Qpn, SendOpcode, SendWork, Sge};
use world::World;

const WAYS: [&str; 4] = ["ring", "ring-sge", "botf", "aotf"];

/// What a burst of messages took.
#[derive(Clone, Copy, Debug, Default)]
struct Taken {
    dma_reads: u64,
    records: u64,
    record_bytes: u64,
    rounds: u64,
}

/// Records (TLPs) that the program's machine and the box have sent each other, and reads of the program's memory.
fn counted(world: &World) -> Taken {
    let node = world.sides[0].rnic.node();
    let dma_reads = node.slot_counters().map(|slot| slot.dma_reads).sum();
    let mut sum = Taken { rounds: world.now_ns / world::ROUND_NS, dma_reads, ..Taken::default() };
    for (_, session) in node.sessions() {
        let counters = session.counters();
        sum.records += counters.records_sent + counters.records_received;
        sum.record_bytes += counters.record_bytes_sent + counters.record_bytes_received;
    }
    sum
}

fn post(world: &mut World, way: &str, qp: Qpn, bytes: usize, value: u64) {
    let data = [value as u8; 480];
    let (remote_to, remote_stag) = (world.sides[1].to(0), world.sides[1].stag);
    let write = SendWork { opcode: SendOpcode::Write, remote_to, remote_stag, ..SendWork::default() };
    let inline = SendWork { inline: Some(&data[..bytes]), ..write };
    let side = &mut world.sides[0];
    let sges = [Sge { to: side.to(0), stag: side.stag, length: bytes as u32 }];
    let posted = match way {
        "ring" => side.rnic.post_send(qp, &inline),
        "ring-sge" => side.rnic.post_send(qp, &SendWork { sges: &sges, ..write }),
        "botf" => side.rnic.kick(qp, &inline),
        _ => side.rnic.store(qp, 0, u64::from_le_bytes([value as u8; 8])),
    };
    posted.expect("there is room");
}

/// A burst, until the last of it has completed.
fn burst(world: &mut World, way: &str, bytes: usize, messages: usize) {
    let qp = world.sides[0].qps[0];
    for at in 0..messages {
        post(world, way, qp, bytes, at as u64);
    }
    let cq = world.sides[0].send_cq;
    let done = world.completions(0, cq, messages);
    assert!(done.iter().all(|cqe| cqe.status == etherslot_rdma::Status::Success));
}

fn ready() -> World {
    let mut world = World::ready();
    let qp = world.sides[0].qps[0];
    let (remote_to, remote_stag) = (world.sides[1].to(0), world.sides[1].stag);
    let inline = Some(&[0; 8][..]);
    let header =
        SendWork { opcode: SendOpcode::Write, remote_to, remote_stag, inline, ..SendWork::default() };
    world.sides[0].rnic.prepare(qp, 0, &header).expect("a header");
    // The first message makes the connection.
    burst(&mut world, "ring", 8, 1);
    world
}

#[expect(clippy::cast_precision_loss, reason = "a few digits are shown")]
fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [way, bytes, messages, count] = &words[..] {
        let number = |text: &str| text.parse::<usize>().expect("a number");
        let mut world = ready();
        for _ in 0..number(count) {
            burst(&mut world, way, number(bytes), number(messages));
        }
        return;
    }
    println!(
        "way       bytes  burst  records  record bytes  DMA reads  virtual us of a burst; the others of a message"
    );
    for bytes in [8, 64, 480] {
        for messages in [1, 4, 16] {
            for way in WAYS {
                // What does not fit the SQ is no burst.
                if way == "aotf" && bytes != 8 || bytes == 480 && messages == 16 {
                    continue;
                }
                let mut world = ready();
                let before = counted(&world);
                let rounds = 50;
                for _ in 0..rounds {
                    burst(&mut world, way, bytes, messages);
                }
                let after = counted(&world);
                let each = |before: u64, after: u64, by: usize| (after - before) as f64 / by as f64;
                let all = rounds * messages;
                println!(
                    "{way:<9} {bytes:>5} {messages:>6} {:>8.2} {:>13.1} {:>10.2} {:>6.0}",
                    each(before.records, after.records, all),
                    each(before.record_bytes, after.record_bytes, all),
                    each(before.dma_reads, after.dma_reads, all),
                    each(before.rounds, after.rounds, rounds) * world::ROUND_NS as f64 / 1000.0,
                );
            }
        }
    }
}
