//! On the steady path, no access and no TLP costs an allocation in either node.

mod support;

use support::World;

#[test]
fn dma_interrupts_and_posted_writes_allocate_nothing() {
    allocates_nothing(World::new());
}

#[test]
fn sealing_and_opening_allocate_nothing() {
    allocates_nothing(World::guarded());
}

fn allocates_nothing(mut world: World) {
    world.set_up();
    for _ in 0..4 {
        world.copy(0x1000, 40_000);
    }
    let before = *world.host.slot_counters().next().unwrap();
    let allocated = allocation_counter::measure(|| {
        for _ in 0..100 {
            world.machine.interrupts.clear();
            world.copy(0x1000, 40_000);
        }
    });
    let after = *world.host.slot_counters().next().unwrap();
    assert!(after.dma_writes - before.dma_writes > 1000, "{after:?}");
    assert_eq!(after.interrupts - before.interrupts, 100);
    assert_eq!(allocated.count_total, 0);
}

#[test]
fn reads_by_the_guest_allocate_nothing() {
    let mut world = World::new();
    world.set_up();
    let mut answers = 0;
    for round in 0..2 {
        let allocated = allocation_counter::measure(|| {
            for _ in 0..1000 {
                world.next_access += 1;
                world.host.bar_read(world.now_ns, 0, world.next_access, 0, 0, 4).unwrap();
                world.step();
                world.step();
                answers += world.machine.forget_answers();
            }
        });
        // The first round warms the test's own buffers.
        assert!(round == 0 || allocated.count_total == 0, "{}", allocated.count_total);
    }
    assert_eq!(answers, 2000);
}
