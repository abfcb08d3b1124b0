//! What the guest of a host node may expect of a device in a box.

mod support;

use etherslot_node::{Accepted, BoxLimits, BoxNode, Interrupt, Interrupts, Refused};
use etherslot_pci::endpoint::{Endpoint, EndpointConfig};
use etherslot_pci::function::{Bus, Fault, Function, FunctionSpec, ResetKind};
use etherslot_session::Config;
use etherslot_wire::NodeId;
use etherslot_wire::control::Name;
use support::{BAR_ADDRESS, BAR0, BOX, COMMAND, Engine, MS, World, new_host};

#[test]
fn a_device_is_attached_and_described() {
    let world = World::new();
    let [device] = world.machine.attached[..] else {
        panic!("attached {} times", world.machine.attached.len())
    };
    assert_eq!(device.id, (0x1234, 0x5678));
    assert_eq!(device.bar_bytes, [0x4000, 0, 0, 0, 0, 0]);
    assert_eq!((device.msi_vectors, device.msix_vectors, device.intx), (4, 4, true));
}

#[test]
fn a_device_is_brought_up_in_a_few_round_trips() {
    let mut world = World::new();
    world.kill_box();
    while world.machine.lost == 0 {
        world.step();
    }
    world.restart_box();
    while world.host.counters().sessions_up == 1 {
        world.step();
    }
    let before_ns = world.now_ns;
    while world.machine.attached.len() == 1 {
        world.step();
    }
    // To ask for it; all of the first 256 bytes and the BARs; what the extended capability leads to.
    let steps = (world.now_ns - before_ns) / 20_000;
    assert!(steps <= 5, "{steps} round trips");
}

#[test]
fn a_box_that_dies_while_a_device_is_brought_up_leaves_nothing_wrong_behind() {
    for steps in 1..6 {
        let mut world = World::new();
        world.kill_box();
        while world.machine.lost == 0 {
            world.step();
        }
        world.restart_box();
        while world.host.counters().sessions_up == 1 {
            world.step();
        }
        (0..steps).for_each(|_| world.step());
        world.kill_box();
        // Requests time out sooner than the session does.
        world.run(1_500 * MS);
        world.restart_box();
        let until_ns = world.now_ns + 60_000 * MS;
        while world.machine.attached.len() == world.machine.lost {
            assert!(world.now_ns < until_ns, "after {steps} steps");
            world.step();
        }
        assert!(world.machine.attached.iter().all(|device| device.id == (0x1234, 0x5678)));
        assert_eq!(world.config_read(0, 4), [0x34, 0x12, 0x78, 0x56]);
    }
}

#[test]
fn configuration_space_reads_in_one_piece_and_in_bytes() {
    let mut world = World::new();
    let whole = world.config_read(0, 4096);
    assert_eq!(&whole[..4], &[0x34, 0x12, 0x78, 0x56]);
    for offset in [0, 1, 2, 3, 0x2C, 0x2D] {
        assert_eq!(world.config_read(offset, 1), whole[offset as usize..][..1]);
    }
    assert_eq!(world.config_read(1, 2), whole[1..3]);
    assert_eq!(world.host.config_read(0, 0, 9, 4095, 2), Err(Refused::Range));
}

#[test]
fn a_hidden_msix_capability_is_not_in_the_list() {
    for hide in [false, true] {
        let mut world = World::with(hide);
        let space = world.config_read(0, 4096);
        let mut at = space[0x34] as usize;
        let mut seen = Vec::new();
        while at != 0 {
            seen.push(space[at]);
            at = space[at + 1] as usize;
        }
        assert_eq!(seen.contains(&0x11), !hide, "{seen:x?}");
        assert!(seen.contains(&0x05) && seen.contains(&0x10));
        assert_eq!(world.machine.attached[0].msix_vectors == 0, hide);
    }
}

#[test]
fn bars_can_be_used_once_memory_is_enabled() {
    let mut world = World::new();
    assert_eq!(world.bar_read(0, 4), [0xFF; 4]);
    world.set_up();
    world.bar_write(0, &[1, 2, 3, 4]);
    assert_eq!(world.bar_read(0, 8), [1, 2, 3, 4, 0, 0, 0, 0]);
    assert_eq!(world.host.bar_read(0, 0, 9, 0, 0x4000, 4), Err(Refused::Range));
    assert_eq!(world.host.bar_read(0, 0, 9, 1, 0, 4), Err(Refused::Range));
}

#[test]
fn dma_of_any_alignment_and_length_is_exact_and_before_its_interrupt() {
    let mut world = World::new();
    world.set_up();
    for (address, bytes) in
        [(0x1000, 4096), (0x2001, 1), (0x3003, 5), (0x4FFE, 8), (0x8000, 40_000), (0x2_0007, 30_001)]
    {
        world.machine.interrupts.clear();
        world.copy(address, bytes);
        let memory = &world.machine.memory;
        assert_eq!(
            memory[address + bytes..address + 2 * bytes],
            memory[address..address + bytes],
            "{address:#x}"
        );
        assert_eq!(world.machine.interrupts, [Interrupt::Message(1)]);
        assert_eq!(
            world.machine.seen_at_interrupt,
            memory[address..address + bytes],
            "interrupt before data"
        );
    }
}

#[test]
fn dma_outside_of_memory_faults_and_the_device_goes_on() {
    let mut world = World::new();
    world.set_up();
    world.bar_write(8, &(1u64 << 40).to_le_bytes());
    world.bar_write(16, &4096u64.to_le_bytes());
    world.run(20 * MS);
    assert!(world.host.slot_counters().next().unwrap().dma_faults >= 2);
    world.copy(0x1000, 512);
    assert_eq!(world.machine.memory[0x1200..0x1400], world.machine.memory[0x1000..0x1200]);
}

#[test]
fn msi_takes_the_place_of_msix() {
    let mut world = World::with(true);
    world.set_up();
    world.host.set_interrupts(0, Interrupts::Msi(4));
    world.run(MS);
    world.copy(0x1000, 64);
    assert_eq!(world.machine.interrupts, [Interrupt::Message(1)]);
}

#[test]
fn the_guests_message_settings_do_not_reach_the_device() {
    let mut world = World::new();
    world.set_up();
    let space = world.config_read(0, 256);
    let msi = (0..256).find(|&at| at == space[0x34] as usize && space[at] == 5);
    let mut at = space[0x34] as usize;
    let mut found = msi;
    while at != 0 && found.is_none() {
        found = (space[at] == 5).then_some(at);
        at = space[at + 1] as usize;
    }
    let capability = found.unwrap() as u64;
    world.config_write(capability + 4, &0xDEAD_BEE0u32.to_le_bytes());
    assert_eq!(
        world.config_read(capability + 4, 4),
        0xDEAD_BEE0u32.to_le_bytes(),
        "the guest sees what it wrote"
    );
    world.host.set_interrupts(0, Interrupts::Msi(4));
    world.run(MS);
    world.copy(0x1000, 64);
    assert_eq!(world.machine.interrupts, [Interrupt::Message(1)]);
}

#[test]
fn a_dead_box_reads_all_ones_in_bounded_time() {
    let mut world = World::new();
    world.set_up();
    world.kill_box();
    assert_eq!(world.bar_read(0, 4), [0xFF; 4]);
    world.run(2_000 * MS);
    assert_eq!(world.machine.lost, 1);
    assert_eq!(world.config_read(0, 4), [0xFF; 4]);
    world.bar_write(0, &[1; 4]);
}

#[test]
fn a_box_that_comes_back_is_set_up_as_the_guest_had_it() {
    let mut world = World::new();
    world.set_up();
    world.bar_write(0, &[9; 8]);
    world.kill_box();
    world.run(2_000 * MS);
    world.restart_box();
    world.run(1_000 * MS);
    assert_eq!(world.machine.attached.len(), 2);
    assert_eq!(world.config_read(BAR0, 4)[1..], (BAR_ADDRESS as u32).to_le_bytes()[1..]);
    assert_eq!(world.bar_read(0, 8), [0; 8], "a device that comes back is a device after reset");
    world.copy(0x1000, 4096);
    assert_eq!(world.machine.memory[0x2000..0x3000], world.machine.memory[0x1000..0x2000]);
    assert_eq!(world.machine.interrupts, [Interrupt::Message(1)]);
}

#[test]
fn a_device_of_another_kind_is_not_shown_to_a_guest_before_the_one_it_knows_is_gone() {
    struct Other(Engine);

    impl Function for Other {
        fn spec(&self) -> FunctionSpec {
            FunctionSpec { device: 0x9ABC, ..self.0.spec() }
        }
        fn bar_read(&mut self, bar: u8, offset: u64, data: &mut [u8]) {
            self.0.bar_read(bar, offset, data);
        }
        fn bar_write(&mut self, bar: u8, offset: u64, data: &[u8]) {
            self.0.bar_write(bar, offset, data);
        }
        fn read_completed(&mut self, token: u64, address: u64, bytes: usize, result: Result<&[u8], Fault>) {
            self.0.read_completed(token, address, bytes, result);
        }
        fn poll(&mut self, bus: &mut dyn Bus) -> bool {
            self.0.poll(bus)
        }
        fn reset(&mut self, kind: ResetKind) {
            self.0.reset(kind);
        }
    }

    let mut world = World::new();
    world.set_up();
    assert!(!world.host.is_strange(0));
    world.kill_box();
    world.run(2_000 * MS);
    let endpoint = Endpoint::new(Box::new(Other(Engine::default())), EndpointConfig::default());
    let functions = vec![(Name::new("engine").unwrap(), Box::new(endpoint))];
    let config = Config { node: NodeId([BOX; 16]), ..Config::default() };
    world.box_node = Some(BoxNode::new(&config, BoxLimits::default(), 9, functions));
    world.run(1_000 * MS);
    assert!(world.host.is_strange(0));
    assert_eq!(world.config_read(0, 4), [0xFF; 4], "neither the old one nor this one answers");
    assert_eq!(world.machine.attached.len(), 1);

    world.host.vacate(0, world.now_ns);
    world.run(100 * MS);
    assert_eq!(world.machine.attached.len(), 2);
    assert_eq!(world.config_read(0, 4), [0x34, 0x12, 0xBC, 0x9A]);
    world.set_up();
    world.copy(0x1000, 512);
    assert_eq!(world.machine.memory[0x1200..0x1400], world.machine.memory[0x1000..0x1200]);
}

#[test]
fn a_host_that_comes_back_finds_the_device_reset() {
    let mut world = World::new();
    world.set_up();
    world.bar_write(0, &[9; 8]);
    world.run(MS);
    world.host = new_host(77, false);
    world.run(300 * MS);
    world.set_up();
    assert_eq!(world.bar_read(0, 8), [0; 8]);
}

#[test]
fn a_reset_by_the_guest_forgets_its_settings() {
    let mut world = World::new();
    world.set_up();
    world.bar_write(0, &[9; 8]);
    world.next_access += 1;
    let outcome = world.host.reset(world.now_ns, 0, Some(world.next_access));
    world.answer(outcome, 0);
    assert_eq!(world.config_read(COMMAND, 2)[0] & 6, 0);
    assert_eq!(world.bar_read(0, 8), [0xFF; 8], "memory decoding is off");
    world.set_up();
    assert_eq!(world.bar_read(0, 8), [0; 8]);
}

#[test]
fn a_function_level_reset_keeps_the_interrupts_that_the_guest_set_up() {
    let mut world = World::new();
    world.set_up();
    let space = world.config_read(0, 256);
    let mut at = space[0x34] as usize;
    while space[at] != 0x10 {
        at = space[at + 1] as usize;
    }
    let control = at as u64 + 8;
    world.config_write(control, &[space[at + 8], space[at + 9] | 0x80]);
    world.run(100 * MS);
    world.config_write(BAR0, &(BAR_ADDRESS as u32).to_le_bytes());
    world.config_write(COMMAND, &6u16.to_le_bytes());
    world.copy(0x1000, 64);
    assert_eq!(world.machine.interrupts, [Interrupt::Message(1)]);
}

#[test]
fn a_function_level_reset_keeps_the_bars_that_the_guest_will_not_write_again() {
    let mut world = World::new();
    world.set_up();
    let space = world.config_read(0, 256);
    let mut capability = space[0x34] as usize;
    while space[capability] != 0x10 {
        capability = space[capability + 1] as usize;
    }
    world.bar_write(0, &[1, 2, 3, 4]);
    world.config_write(capability as u64 + 8, &[0x10, 0x80]);
    assert_eq!(world.bar_read(0, 4), [0xFF; 4], "memory is off after the reset");
    // As Linux and QEMU do it: the BARs seem unchanged to the guest, so only the Command register is written.
    world.config_write(COMMAND, &[6, 4]);
    assert_eq!(world.bar_read(0, 8), [0; 8], "the device is there, and after reset");
    world.copy(0x1000, 64);
    assert_eq!(world.machine.memory[0x1040..0x1080], world.machine.memory[0x1000..0x1040]);
}

#[test]
fn a_closed_session_gives_the_device_back_at_once() {
    let mut world = World::new();
    world.set_up();
    world.host.close();
    world.run(50 * MS);
    assert_eq!(world.box_node.as_ref().unwrap().hosts().count(), 0);
}

#[test]
fn nothing_that_was_under_way_reaches_the_guest_after_a_reset_for_the_next_one() {
    for steps in 0..12 {
        let mut world = World::new();
        world.set_up();
        world.bar_write(8, &0x1000u64.to_le_bytes());
        world.bar_write(16, &30_000u64.to_le_bytes());
        (0..steps).for_each(|_| world.step());
        // The next guest has its memory before it has reset anything.
        let before = world.machine.memory.clone();
        world.machine.interrupts.clear();
        world.step_and(|host, now_ns| {
            host.reset(now_ns, 0, None).unwrap();
        });
        world.run(50 * MS);
        assert!(world.machine.memory == before, "DMA of an earlier life, {steps} steps on");
        assert_eq!(world.machine.interrupts, []);
        world.set_up();
        world.copy(0x1000, 512);
        assert_eq!(world.machine.memory[0x1200..0x1400], world.machine.memory[0x1000..0x1200]);
    }
}

#[test]
fn however_often_the_guest_changes_its_interrupts_what_waits_stays_bounded() {
    let received = |world: &World| {
        let (_, _, hierarchy) = world.box_node.as_ref().unwrap().hosts().next().unwrap();
        hierarchy.counters().received
    };
    let mut world = World::new();
    world.set_up();
    let before = received(&world);
    for interrupts in [Interrupts::Legacy, Interrupts::Msi(4), Interrupts::MsiX].repeat(1000) {
        world.host.set_interrupts(0, interrupts);
    }
    world.run(50 * MS);
    assert!(received(&world) - before < 32, "{}", received(&world) - before);
    world.copy(0x1000, 64);
    assert_eq!(world.machine.interrupts, [Interrupt::Message(1)], "the last change holds");
}

#[test]
fn posted_accesses_under_one_number_do_not_take_each_others_answers() {
    let mut world = World::new();
    world.set_up();
    for line in 0..8 {
        let outcome = world.host.config_write(world.now_ns, 0, 0, 0x3C, &[line]);
        assert_eq!(outcome, Ok(Accepted::Later));
    }
    world.run(5 * MS);
    assert_eq!(world.machine.forget_answers(), 8);
    assert_eq!(world.config_read(0x3C, 1), [7]);
}

#[test]
fn two_slots_of_a_host_have_address_spaces_of_their_own() {
    let mut world = World::with_two_slots();
    world.set_up();
    world.slot = 1;
    // The guests put their BARs where they like: at the same address, or where the other has memory.
    world.set_up();
    for bar in [BAR_ADDRESS as u32, 0x8_0000] {
        world.slot = 1;
        world.config_write(BAR0, &bar.to_le_bytes());
        world.run(MS);
        for slot in 0..2 {
            world.slot = slot;
            world.bar_write(0, &[slot as u8 + 1; 8]);
        }
        for slot in 0..2 {
            world.slot = slot;
            assert_eq!(world.bar_read(0, 8), [slot as u8 + 1; 8]);
        }
        world.slot = 0;
        world.copy(0x7_F000, 0x2000);
        let memory = &world.machine.memory;
        assert!(memory[0x8_1000..0x8_3000] == memory[0x7_F000..0x8_1000]);
    }
}
