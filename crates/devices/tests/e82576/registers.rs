//! Registers as the driver's probe and its self-test look at them.

use crate::driver::*;
use etherslot_devices::cable::cable;
use etherslot_devices::e82576::{Config, ConfigError, E82576};
use etherslot_pci::function::Function;

/// What `ethtool --test` writes and expects of an 82576: the register, how many and how far apart, the bits that are compared, and those that are
/// written.
#[test]
fn registers_pass_the_patterns_of_the_drivers_self_test() {
    let mut driver = Driver::new();
    for (first, step, count, mask, write) in [
        (0x28, 0x100, 1, 0xffff_ffff, 0xffff_ffff),
        (0x2c, 0x100, 1, 0x0000_ffff, 0xffff_ffff),
        (0x30, 0x100, 1, 0x0000_ffff, 0xffff_ffff),
        (0x38, 0x100, 1, 0xffff_ffff, 0xffff_ffff),
        (0x2800, 0x100, 4, 0xffff_ff80, 0xffff_ffff),
        (0x2804, 0x100, 4, 0xffff_ffff, 0xffff_ffff),
        (0x2808, 0x100, 4, 0x000f_fff0, 0x000f_ffff),
        (0xc100, 0x40, 12, 0xffff_ff80, 0xffff_ffff),
        (0xc104, 0x40, 12, 0xffff_ffff, 0xffff_ffff),
        (0xc108, 0x40, 12, 0x000f_fff0, 0x000f_ffff),
        (0x2818, 0x100, 4, 0x0000_ffff, 0x0000_ffff),
        (0xc118, 0x40, 12, 0x0000_ffff, 0x0000_ffff),
        (0x2168, 0x100, 1, 0x0000_fff0, 0x0000_fff0),
        (0x0170, 0x100, 1, 0x0000_ffff, 0x0000_ffff),
        (0x0410, 0x100, 1, 0x3fff_ffff, 0x3fff_ffff),
        (0x3800, 0x100, 4, 0xffff_ff80, 0xffff_ffff),
        (0x3804, 0x100, 4, 0xffff_ffff, 0xffff_ffff),
        (0x3808, 0x100, 4, 0x000f_fff0, 0x000f_ffff),
        (0xe100, 0x40, 12, 0xffff_ff80, 0xffff_ffff),
        (0xe104, 0x40, 12, 0xffff_ffff, 0xffff_ffff),
        (0xe108, 0x40, 12, 0x000f_fff0, 0x000f_ffff),
        (0x5400, 8, 16, 0xffff_ffff, 0xffff_ffff),
        (0x5404, 8, 16, 0x83ff_ffff, 0xffff_ffff),
        (0x54e0, 8, 8, 0xffff_ffff, 0xffff_ffff),
        (0x54e4, 8, 8, 0x83ff_ffff, 0xffff_ffff),
        (0x5200, 4, 128, 0xffff_ffff, 0xffff_ffff),
    ] {
        for offset in (0..count).map(|at| first + at * step) {
            for pattern in [0x5a5a_5a5a, 0xa5a5_a5a5, 0, u32::MAX] {
                driver.set(offset, pattern & write);
                assert_eq!(driver.get(offset) & mask, pattern & write & mask, "{offset:#x}");
            }
        }
    }
    for (offset, mask, write) in [
        (0x100, 0xffff_ffff, 0),
        (0x100, 0x04cf_b0fe, 0x003f_fffb),
        (0x100, 0x04cf_b0fe, u32::MAX),
        (0x400, u32::MAX, 0),
    ] {
        driver.set(offset, write & mask);
        assert_eq!(driver.get(offset) & mask, write & mask, "{offset:#x}");
    }
}

#[test]
fn status_is_not_written() {
    let mut driver = Driver::ready();
    let before = driver.get(reg::STATUS);
    for value in [0, u32::MAX, 0x7fff_f3ff] {
        driver.set(reg::STATUS, value);
        assert_eq!(driver.get(reg::STATUS), before);
    }
    assert_eq!(before & 0x0008_00c3, 0x0008_0083, "full duplex, link, 1000 Mbit/s, master");
}

#[test]
fn the_first_four_rings_are_at_two_places() {
    let mut driver = Driver::new();
    for queue in 0..4 {
        driver.set(0x2800 + 0x100 * queue, 0x1000 * (queue + 1));
        driver.set(reg::transmit(queue, at::BASE), 0x8000 * (queue + 1));
        assert_eq!(driver.get(reg::receive(queue, at::BASE)), 0x1000 * (queue + 1));
        assert_eq!(driver.get(0x3800 + 0x100 * queue), 0x8000 * (queue + 1));
    }
}

#[test]
fn the_address_comes_from_the_eeprom_with_each_reset() {
    let mut driver = Driver::new();
    for _ in 0..2 {
        assert_eq!([driver.get(reg::RAL), driver.get(reg::RAL + 4)], [0xab00_0002, 0x8000_efcd]);
        driver.set(reg::RAL, 0);
        driver.set(reg::RAL + 4, 0);
        driver.set(reg::CTRL, 1 << 26);
    }
    driver.set(reg::EERD, 1 << 2 | 1);
    assert_eq!(driver.get(reg::EERD), 0xab00_0000 | 1 << 2 | 2);
}

#[test]
fn the_semaphore_is_taken_by_who_reads_it_free() {
    let mut driver = Driver::new();
    assert_eq!([0, 1].map(|_| driver.get(reg::SWSM)), [0, 1]);
    driver.set(reg::SWSM, 2);
    assert_eq!(driver.get(reg::SWSM) & 2, 2);
    driver.set(reg::SWSM, 0);
    assert_eq!(driver.get(reg::SWSM), 0);
}

#[test]
fn link_goes_with_the_carrier_and_tells_of_it() {
    let mut driver = Driver::ready();
    driver.get(reg::ICR);
    driver.bus.sent.clear();
    for (is_up, status) in [(false, 0), (true, 2)] {
        driver.peer.set_carrier(is_up);
        driver.run();
        assert_eq!(driver.get(reg::STATUS) & 2, status);
        assert_eq!(driver.get(reg::ICR) & 4, 4, "LSC");
        assert_eq!(std::mem::take(&mut driver.bus.sent), [24], "the vector of IVAR_MISC");
    }
    assert!(driver.peer.has_carrier());
    driver.set(reg::CTRL, 0x201);
    driver.run();
    assert!(!driver.peer.has_carrier(), "without CTRL.SLU nobody hears us");
}

/// The PHY of the other end does what it asks for.
#[test]
fn flow_control_is_asked_of_the_cable_as_ctrl_says() {
    let mut driver = Driver::ready();
    assert!(!driver.peer.is_flow_controlled());
    driver.set(reg::CTRL, 0x241 | 1 << 28);
    driver.run();
    assert!(driver.peer.is_flow_controlled());
}

#[test]
fn accesses_of_other_widths_read_the_right_bytes_and_write_none() {
    let mut driver = Driver::new();
    driver.set(0x28, 0x4433_2211);
    driver.set(0x2c, 0x6655);
    let mut bytes = [0xee; 5];
    driver.nic.bar_read(0, 0x29, &mut bytes);
    assert_eq!(bytes, [0x22, 0x33, 0x44, 0x55, 0x66]);
    driver.nic.bar_write(0, 0x28, &[9]);
    driver.nic.bar_write(0, 0x29, &[9, 9]);
    assert_eq!(driver.get(0x28), 0x4433_2211);
    driver.nic.bar_write(0, 0x28, &[1, 0, 0, 0, 2, 0, 0, 0]);
    assert_eq!([driver.get(0x28), driver.get(0x2c)], [1, 2]);
}

#[test]
fn an_address_that_is_no_stations_is_refused() {
    for mac in [[0; 6], [1, 0, 0, 0, 0, 0], [0xff; 6]] {
        let config = Config { mac, cable: cable(1).0 };
        assert_eq!(E82576::new(config).err(), Some(ConfigError::Mac));
    }
}
