//! Pages that are not there when the hardware wants them: told by MISS and an interrupt, served by the driver, and all goes on (docs/rnic.md, 6).

use etherslot_cosim::{Driver, Region};
use etherslot_rdma::{Access, SendOpcode, SendWork, Sge, Status};

use crate::world::{MS, PD, SINK_BYTES, SOURCE, SOURCE_TO, Setting, Side, World};
use crate::{emit, emit_receive, work};

const PAGES: usize = 8;
const INDEX: u32 = 5;
const FIRST: u32 = 3100;
/// Where its pages are once they are there, in the hardware's memory.
const PLACE: usize = SOURCE + 0x2_0000;
const LENGTH: usize = 10_000;
/// Where data begin: pages 0 to 3 are needed.
const AT: usize = 4000;

/// A region of the hardware all of whose pages are absent; its STag.
fn register(world: &mut World) -> u32 {
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
    let region = Region {
        index: INDEX,
        key: 0x15,
        pd: PD,
        access,
        base: 0,
        length: (PAGES * 4096) as u64,
        layout: Err(vec![None; PAGES]),
        first: FIRST,
    };
    world.driver.register(&mut world.rnic, &region)
}

fn place(page: usize) -> usize {
    PLACE + (page ^ 3) * 4096
}

fn bytes(world: &World, at: usize, length: usize) -> Vec<u8> {
    (at..at + length).map(|at| world.memory(Side::Hardware)[place(at / 4096) + at % 4096]).collect()
}

/// The driver: looks at MISS when an interrupt of vector 0 has come, and brings the page, if `brings`. How many it served.
fn serve(world: &mut World, stag: u32, brings: bool) -> u64 {
    let is_told = world.rnic.interrupts.contains(&0);
    world.rnic.interrupts.clear();
    let mut served = 0;
    if !is_told {
        return served;
    }
    loop {
        world.rnic.load_later(Driver::MISS_AT);
        let miss = world.loaded();
        if miss == 0 {
            return served;
        }
        let page = miss as u32;
        assert_eq!((miss >> 32) as u32, stag, "the STag of the page that was missed");
        assert!((page as usize) < PAGES);
        // A while passes until software has it.
        world.pass(20_000);
        if brings {
            let address = place(page as usize) as u64;
            world.driver.set_page(&mut world.rnic, FIRST + page, Some(address));
        }
        world.driver.serve_miss(&mut world.rnic, miss);
        served += 1;
    }
}

/// The next completion of a side, the driver at work; and how many misses it served.
fn done(world: &mut World, side: Side, stag: u32, brings: bool) -> (Status, u64) {
    let mut status = None;
    let mut served = 0;
    world.until(400 * MS, "no completion", |world| {
        served += serve(world, stag, brings);
        status = world.poll(side, 0).map(|cqe| cqe.status);
        status.is_some()
    });
    (status.expect("it was found"), served)
}

#[test]
#[ignore = "needs Verilator models: ./run rtl cosim"]
fn pages_that_are_missed_are_brought_and_everything_goes_on() {
    let mut world = World::new(&Setting::default());
    let (ours, theirs) = (*world.stags(Side::Hardware), *world.stags(Side::Software));
    let near = |stag| [Sge { to: AT as u64, stag, length: LENGTH as u32 }];
    let far = [Sge { to: SOURCE_TO, stag: theirs.source, length: LENGTH as u32 }];
    let data = world.memory(Side::Software)[SOURCE..SOURCE + LENGTH].to_vec();

    // The hardware sends what is not there, and reads into what is not there.
    let stag = register(&mut world);
    let out = emit(&SendWork {
        sges: &near(stag),
        remote_stag: theirs.sink,
        remote_to: 64,
        ..work(SendOpcode::Write, 1)
    });
    world.post_send(Side::Hardware, 0, &out);
    assert_eq!(done(&mut world, Side::Hardware, stag, true), (Status::Success, 4));
    assert!(world.sink(Side::Software, 64, LENGTH) == bytes(&world, AT, LENGTH));
    let stag = register(&mut world);
    let read = emit(&SendWork {
        sges: &near(stag),
        remote_stag: theirs.source,
        remote_to: SOURCE_TO,
        ..work(SendOpcode::Read, 2)
    });
    world.post_send(Side::Hardware, 0, &read);
    assert_eq!(done(&mut world, Side::Hardware, stag, true), (Status::Success, 4));
    assert!(bytes(&world, AT, LENGTH) == data);

    // The peer reads it, writes to it, and sends to a buffer of it.
    let stag = register(&mut world);
    let into = [Sge { to: 0x2_0000, stag: theirs.sink, length: LENGTH as u32 }];
    let read =
        emit(&SendWork { sges: &into, remote_stag: stag, remote_to: AT as u64, ..work(SendOpcode::Read, 3) });
    world.post_send(Side::Software, 0, &read);
    assert_eq!(done(&mut world, Side::Software, stag, true), (Status::Success, 4));
    assert!(world.sink(Side::Software, 0x2_0000, LENGTH) == data);
    for opcode in [SendOpcode::Write, SendOpcode::Send] {
        let stag = register(&mut world);
        for page in 0..PAGES {
            world.rnic.memory.bytes[place(page)..place(page) + 4096].fill(0);
        }
        if opcode == SendOpcode::Send {
            world.post_receive(Side::Hardware, 0, &emit_receive(70, &near(stag)));
        }
        let before = world.counter(Side::Software, "not_ready_received");
        let out = emit(&SendWork { sges: &far, remote_stag: stag, remote_to: AT as u64, ..work(opcode, 4) });
        world.post_send(Side::Software, 0, &out);
        let (status, served) = done(&mut world, Side::Software, stag, true);
        assert_eq!(status, Status::Success);
        assert!(
            served >= 4 && world.counter(Side::Software, "not_ready_received") - before >= 4,
            "{opcode:?}"
        );
        assert!(bytes(&world, AT, LENGTH) == data, "{opcode:?}");
        if opcode == SendOpcode::Send {
            assert_eq!(world.completion(Side::Hardware, 0).bytes as usize, LENGTH);
        }
    }

    // A flag.
    let stag = register(&mut world);
    let push = SendWork {
        inline: Some(b"data"),
        remote_stag: theirs.sink,
        remote_to: 0x3_0000,
        ..work(SendOpcode::Write, 5)
    };
    world.post_send(Side::Hardware, 0, &emit(&push.local(stag, 8, 0x77)));
    assert_eq!(done(&mut world, Side::Hardware, stag, true), (Status::Success, 1));
    assert_eq!(bytes(&world, 8, 8), 0x77_u64.to_le_bytes());
    assert!(world.counter(Side::Hardware, "misses") >= 21);

    // What the driver cannot bring fails, and others go on.
    let stag = register(&mut world);
    let out = emit(&SendWork {
        sges: &near(stag),
        remote_stag: theirs.sink,
        remote_to: 64,
        ..work(SendOpcode::Write, 6)
    });
    world.post_send(Side::Hardware, 0, &out);
    assert_eq!(done(&mut world, Side::Hardware, stag, false), (Status::LocalProtection, 1));
    assert!(world.sink(Side::Hardware, 0, SINK_BYTES).iter().all(|&byte| byte == crate::world::BLANK));
    assert_ne!(ours.sink, 0);
}
