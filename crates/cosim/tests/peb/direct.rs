//! The DC buffer of the hardware: a disk behind the bridge reads into it and writes from it, as the host's driver tells it to, and no data comes to the host.

use etherslot_cosim::DC_NAME;
use etherslot_initiator::{Between, Direct, Op, Pieces, Request};
use etherslot_node::SlotConfig;
use etherslot_session::Mode;
use etherslot_wire::control::Name;

use crate::content;
use crate::world::{BOX, Plan, World, config, session};

const PIECE_BYTES: usize = 32 << 10;
const PIECES: usize = 4;
const BLOCKS: u32 = (PIECE_BYTES / 512) as u32;
/// Pieces of the disk that are copied, and how far.
const COPIED: u64 = 24;
const DISTANCE: u64 = 64;
/// A word a clock, and some.
const WIPE_CLOCKS: usize = (256 << 10) / 8 + 1000;

fn slot(name: &str) -> SlotConfig<u8> {
    SlotConfig { name: Name::new(name).expect("a name"), address: BOX, hide_msix: false }
}

/// Copies the first pieces of the disk to other places of it, by way of the buffer.
fn copy(plan: Plan) -> World<Direct<u8>> {
    let pieces = Pieces { bytes: PIECE_BYTES, count: PIECES };
    let seed = u64::from(plan.seed);
    let host =
        Direct::new(session(plan.mode), seed, vec![(slot("disk"), config())], Some(slot(DC_NAME)), pieces);
    let mut world = World::with(plan, host);
    // The box has been on for a while: its memory is zero, so the buffer is not busy any more.
    for _ in 0..WIPE_CLOCKS {
        world.peb.clock();
    }
    world.wait("ready", |world| world.initiator.is_ready());
    assert_eq!((world.initiator.between(), world.initiator.pieces()), (Between::Buffer, PIECES));
    for chunk in 0..COPIED {
        world.medium.poke(chunk * PIECE_BYTES as u64, &content(chunk, 7, PIECE_BYTES));
    }
    // What each piece of the buffer is being used for: a chunk, and whether it is being written.
    let mut used: [Option<(u64, bool)>; PIECES] = [None; PIECES];
    let (mut next, mut copied) = (0, 0);
    while copied < COPIED {
        for (piece, used) in used.iter_mut().enumerate() {
            if used.is_none() && next < COPIED {
                submit(&mut world, piece, next, false);
                *used = Some((next, false));
                next += 1;
            }
        }
        world.go_on();
        let mut ended = Vec::new();
        world.wait("done", |world| {
            world.initiator.done(0, &mut |done| ended.push(done));
            !ended.is_empty()
        });
        for done in ended {
            assert_eq!(done.result, Ok(()));
            let piece = done.token as usize;
            let (chunk, is_written) = used[piece].take().expect("under way");
            if is_written {
                copied += 1;
            } else {
                submit(&mut world, piece, chunk, true);
                used[piece] = Some((chunk, true));
            }
        }
    }
    let mut data = vec![0; PIECE_BYTES];
    for chunk in 0..COPIED {
        world.medium.peek((DISTANCE + chunk) * PIECE_BYTES as u64, &mut data);
        assert!(data == content(chunk, 7, PIECE_BYTES), "chunk {chunk}");
    }
    world
}

/// A chunk from the disk into a piece of the buffer, or from there to its new place.
fn submit(world: &mut World<Direct<u8>>, piece: usize, chunk: u64, write: bool) {
    let buffer = world.initiator.piece(0, piece).expect("a piece");
    let (op, place) =
        if write { (Op::Write { durable: false }, DISTANCE + chunk) } else { (Op::Read, chunk) };
    let first_block = place * u64::from(BLOCKS);
    let request = Request { token: piece as u64, op, first_block, blocks: BLOCKS, buffer: Some(buffer) };
    world.initiator.submit(0, request).expect("taken");
}

#[test]
#[ignore = "needs a Verilator model: ./run rtl cosim"]
fn a_copy_by_way_of_the_buffer_does_not_come_to_the_host() {
    let world = copy(Plan { seed: 21, ..Plan::default() });
    let stats = world.peb.stats();
    // TLPs of 4 KiB at most, each way.
    assert!(u64::from(stats.dc_device) >= 2 * COPIED * (PIECE_BYTES as u64 / 4096), "{stats:?}");
    assert_eq!(
        (stats.dc_refused, stats.up_refused, stats.stray, stats.violations),
        (0, 0, 0, 0),
        "{stats:?}"
    );
    let bytes: u64 =
        world.initiator.node().slot_counters().map(|slot| slot.dma_read_bytes + slot.dma_write_bytes).sum();
    assert!(bytes < PIECE_BYTES as u64, "{bytes} bytes of the host's memory");
}

#[test]
#[ignore = "needs a Verilator model: ./run rtl cosim"]
fn a_copy_is_whole_though_frames_are_lost_and_the_disk_takes_little() {
    for (seed, mode) in [(22, Mode::Selective), (23, Mode::Classic)] {
        let world = copy(Plan { seed, mode, loss_per_million: 10_000, pressure: 30 });
        assert!(world.peb.stats().dc_device > 0);
    }
}
