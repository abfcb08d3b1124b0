//! Resets of every kind, at any moment: nothing of the former life reaches the next.

use crate::driver::*;
use etherslot_pci::function::{Function, ResetKind};

#[derive(Clone, Copy, Debug)]
enum Reset {
    Controller,
    FunctionLevel,
    Conventional,
    Ring,
}

fn reset(driver: &mut Driver, how: Reset) {
    match how {
        Reset::Controller => driver.set(reg::CTRL, 1 << 26),
        Reset::FunctionLevel => driver.function_reset(ResetKind::FunctionLevel),
        Reset::Conventional => driver.function_reset(ResetKind::Conventional),
        Reset::Ring => {
            driver.set(reg::transmit(0, at::CONTROL), 0);
            driver.set(reg::receive(0, at::CONTROL), 0);
        }
    }
}

/// Frames go both ways in small steps; after so many of them comes the reset, and everything is set up anew at other places.
#[test]
fn a_reset_at_any_moment_leaves_a_controller_that_works() {
    for how in [Reset::Controller, Reset::FunctionLevel, Reset::Conventional, Reset::Ring] {
        for moment in 0..60 {
            let mut driver = Driver::ready();
            driver.shuffle = true;
            driver.bus.piece = 100;
            driver.store_packet(0, &pattern(4000, 1));
            for _ in 0..6 {
                driver.data(0, 0, 1000, cmd::DATA | cmd::IFCS, 0);
                driver.data(0, 1000, 500, cmd::WHOLE, 0);
                driver.peer.send_copy(&frame(MAC, 0x88b5, &pattern(1200, 2)));
            }
            driver.ring(0);
            for _ in 0..moment {
                (driver.bus.read_room, driver.bus.write_room) = (150, 150);
                driver.step();
            }
            (driver.bus.read_room, driver.bus.write_room) = (usize::MAX, usize::MAX);
            reset(&mut driver, how);
            driver.sent();
            driver.bus.memory.fill(0);
            driver.steps(30);
            let of_before = driver.sent();
            assert!(of_before.is_empty(), "{how:?} {moment}: {} frames", of_before.len());
            assert!(driver.bus.memory.iter().all(|&byte| byte == 0), "{how:?} {moment}: memory was written");
            driver.start();
            while driver.received(0).is_some() {}
            driver.deliver(&frame(MAC, 0x88b5, &pattern(300, 3)));
            let mut last = None;
            while let Some(got) = driver.received(0) {
                last = Some(got.bytes);
            }
            assert!(last == Some(frame(MAC, 0x88b5, &pattern(300, 3))), "{how:?} {moment}");
            driver.send(0, &pattern(700, 5), 0, 0);
            assert!(driver.sent() == [pattern(700, 5)], "{how:?} {moment}");
            assert_eq!(driver.peer.room(), CABLE_FRAMES, "{how:?} {moment}: a buffer of the cable is lost");
        }
    }
}

#[test]
fn a_reset_puts_every_register_back() {
    let mut fresh = Driver::new();
    let mut used = Driver::ready();
    used.send(0, &pattern(100, 1), 0, 0);
    for offset in (0..0x2_0000).step_by(4).filter(|&offset| offset != 0) {
        used.set(offset, 0x5a5a_5a5a);
    }
    used.set(reg::CTRL, 1 << 26);
    // The PHY's and the EEPROM's last answers, the time.
    for offset in (0..0x2_0000).step_by(4).filter(|offset| ![0x20, 0x1048, 0xb600, 0xb604].contains(offset)) {
        assert_eq!(used.get(offset), fresh.get(offset), "{offset:#x}");
    }
}

#[test]
fn a_driver_that_waits_for_the_master_to_stop_sees_it_when_the_last_read_is_over() {
    let mut driver = Driver::ready();
    driver.bus.hold_reads = true;
    driver.store_packet(0, &pattern(100, 1));
    driver.data(0, 0, 100, cmd::WHOLE, 0);
    driver.ring(0);
    driver.steps(3);
    driver.set(reg::CTRL, 0x245);
    driver.steps(3);
    assert_eq!(driver.get(reg::STATUS) >> 19 & 1, 1, "a read is under way");
    driver.bus.hold_reads = false;
    driver.step();
    assert_eq!(driver.get(reg::STATUS) >> 19 & 1, 0);
    driver.run();
    assert_eq!(driver.sent().len(), 0, "nothing more is asked for");
    driver.set(reg::CTRL, 0x241);
    driver.run();
    assert_eq!(driver.sent().len(), 1);
}

#[test]
fn a_controller_in_reset_is_idle() {
    let mut driver = Driver::ready();
    assert!(!driver.nic.is_idle(), "a frame may come");
    driver.set(reg::CTRL, 1 << 26);
    driver.run();
    assert!(driver.nic.is_idle());
}
