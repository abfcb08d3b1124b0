//! Causes, masks, vectors and moderation (82576 datasheet, 7.3).

use crate::driver::*;
use etherslot_pci::function::InterruptMode;

/// Causes that software can set; each has to come as an interrupt when it is unmasked, and not when it is masked (the driver's self-test).
const CAUSES: u32 = 0x77d4_fbfd;

#[test]
fn each_cause_interrupts_if_it_is_unmasked_and_only_then() {
    for (mode, gpie) in [(InterruptMode::MsiX(25), 0x4000_0011), (InterruptMode::Msi(1), 0)] {
        let mut driver = Driver::new();
        driver.bus.mode = mode;
        driver.set(reg::GPIE, gpie);
        driver.set(reg::IVAR_MISC, 0x80 << 8);
        driver.set(reg::EIMS, 1);
        for mask in (0..31).map(|bit| 1 << bit).filter(|bit| CAUSES & bit != 0) {
            driver.set(reg::ICR, u32::MAX);
            driver.set(reg::EICR, u32::MAX);
            driver.set(reg::IMC, u32::MAX);
            driver.set(reg::ICS, mask);
            driver.run();
            assert_eq!(driver.bus.sent, [], "masked {mask:#x}");
            driver.set(reg::IMS, mask);
            driver.run();
            assert_eq!(std::mem::take(&mut driver.bus.sent), [0], "unmasked {mask:#x}");
            assert_eq!(driver.get(reg::ICR) & mask, mask);
            assert_eq!(driver.get(reg::ICR), 0, "read clears");
        }
    }
}

#[test]
fn a_ring_interrupts_by_the_vector_that_ivar_gives_it() {
    let mut driver = Driver::ready();
    for queue in 0..16 {
        driver.transmit_ring(queue);
        driver.bus.sent.clear();
        driver.send(queue, &frame(PEER, 0x88b5, &[1; 64]), 0, 0);
        assert_eq!(driver.bus.sent, [queue as u16], "IVAR");
    }
    driver.set(reg::IVAR, 0);
    driver.bus.sent.clear();
    driver.send(0, &frame(PEER, 0x88b5, &[1; 64]), 0, 0);
    assert_eq!(driver.bus.sent, [], "an entry that is not valid");
}

#[test]
fn a_vector_clears_and_masks_itself_as_eiac_and_eiam_say() {
    for (eiac, eiam, gpie, left) in
        [(1, 0, 0x4000_0010, (0, 1)), (0, 1, 0x4000_0010, (1, 0)), (1, 1, 0x10, (0, 1)), (0, 0, 0x10, (1, 1))]
    {
        let mut driver = Driver::new();
        driver.set(reg::GPIE, gpie);
        driver.set(reg::EIAC, eiac);
        driver.set(reg::EIAM, eiam);
        driver.set(reg::EIMS, 1);
        driver.set(reg::EICS, 1);
        driver.run();
        assert_eq!(driver.bus.sent, [0]);
        let eims = driver.get(reg::EIMS);
        assert_eq!((driver.get(reg::EICR), eims), left);
    }
}

#[test]
fn what_happens_while_a_vector_is_masked_is_told_when_it_no_longer_is() {
    let mut driver = Driver::ready();
    driver.set(reg::EIMC, 1);
    driver.send(0, &frame(PEER, 0x88b5, &[1; 64]), 0, 0);
    assert_eq!(driver.bus.sent.iter().filter(|&&vector| vector == 0).count(), 0);
    driver.set(reg::EIMS, 1);
    driver.run();
    assert_eq!(driver.bus.sent.last(), Some(&0));
}

#[test]
fn moderation_keeps_a_vector_quiet_for_its_interval_and_no_longer() {
    let mut driver = Driver::ready();
    driver.set(reg::EITR, 100 << 2 | 1 << 31);
    driver.bus.sent.clear();
    let start_ns = driver.bus.now_ns;
    for _ in 0..5 {
        driver.store_packet(0, &frame(PEER, 0x88b5, &[1; 64]));
        driver.data(0, 0, 78, cmd::WHOLE, 0);
        driver.ring(0);
        driver.steps(10);
        driver.bus.now_ns += 10_000;
    }
    assert_eq!(driver.bus.sent, [0], "the first at once");
    assert_eq!(driver.nic_deadline_ns(), Some(start_ns + 100_000));
    driver.bus.now_ns = start_ns + 100_000 - 1;
    driver.steps(2);
    assert_eq!(driver.bus.sent, [0]);
    driver.bus.now_ns += 1;
    driver.steps(2);
    assert_eq!(driver.bus.sent, [0, 0], "all others by one");
    assert_eq!(driver.nic_deadline_ns(), None);
}

#[test]
fn an_interrupt_is_behind_the_descriptor_it_tells_of() {
    let mut driver = Driver::ready();
    driver.bus.trace.clear();
    driver.deliver(&frame(MAC, 0x88b5, &[1; 64]));
    let descriptor = Driver::receive_base(0);
    let writes: Vec<Traced> = driver.bus.trace.clone();
    assert_eq!(
        writes,
        [
            Traced::Write { address: Driver::receive_buffer(0, 0), bytes: 78 },
            Traced::Write { address: descriptor, bytes: 16 },
            Traced::Interrupt(0)
        ]
    );
}

#[test]
fn intx_is_a_level_that_ends_when_icr_is_read() {
    let mut driver = Driver::new();
    driver.bus.mode = InterruptMode::IntX;
    driver.set(reg::IAM, 4);
    driver.set(reg::IMS, 4);
    driver.set(reg::ICS, 4);
    driver.run();
    assert!(driver.bus.intx);
    assert_eq!(driver.get(reg::ICR), 1 << 31 | 4, "INTA");
    driver.run();
    assert!(!driver.bus.intx);
    assert_eq!(driver.get(reg::IMS), 0, "IAM masks");
}

/// 8.8.9.
#[test]
fn a_read_of_icr_clears_only_what_was_told_or_can_not_be() {
    for (gpie, ims, clears) in [(0, 0, true), (0, 1, false), (1, 1, true), (0, 4, true)] {
        let mut driver = Driver::new();
        driver.set(reg::GPIE, gpie);
        driver.set(reg::IMS, ims);
        driver.set(reg::ICS, 4);
        driver.get(reg::ICR);
        assert_eq!(driver.get(reg::ICR) == 0, clears, "GPIE {gpie}, IMS {ims}");
    }
}

#[test]
fn without_room_an_interrupt_waits_and_is_not_lost() {
    let mut driver = Driver::ready();
    driver.bus.sent.clear();
    driver.bus.interrupt_room = 0;
    driver.deliver(&frame(MAC, 0x88b5, &[1; 64]));
    assert_eq!(driver.bus.sent, []);
    driver.bus.interrupt_room = usize::MAX;
    driver.run();
    assert_eq!(driver.bus.sent, [0]);
}

#[test]
fn of_levels_that_wait_for_room_the_last_one_holds() {
    let mut driver = Driver::new();
    driver.bus.mode = InterruptMode::IntX;
    driver.set(reg::IMS, 4);
    driver.set(reg::ICS, 4);
    driver.run();
    assert!(driver.bus.intx);
    driver.bus.interrupt_room = 0;
    driver.get(reg::ICR);
    driver.step();
    driver.set(reg::ICS, 4);
    driver.step();
    driver.bus.interrupt_room = usize::MAX;
    driver.run();
    assert!(driver.bus.intx);
    driver.get(reg::ICR);
    driver.run();
    assert!(!driver.bus.intx && driver.nic_deadline_ns().is_none());
}
