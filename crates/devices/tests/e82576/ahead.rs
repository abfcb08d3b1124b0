//! Read-ahead: what comes along with a doorbell is not read, and what does not come is.

use crate::driver::*;
use etherslot_pci::function::{Bus, Entry, Function, InterruptMode, ReadAhead};

/// A bus on which so many of the entries, and so many bytes of what they point to, have come along.
struct Along<'a> {
    bus: &'a mut TestBus,
    rule: u8,
    base: u64,
    entries: u32,
    data_bytes: usize,
    given: usize,
}

impl Bus for Along<'_> {
    fn now_ns(&self) -> u64 {
        self.bus.now_ns()
    }

    fn is_master(&self) -> bool {
        true
    }

    fn write(&mut self, address: u64, data: &[u8]) -> usize {
        self.bus.write(address, data)
    }

    fn read(&mut self, address: u64, bytes: usize, token: u64) -> usize {
        self.bus.read(address, bytes, token)
    }

    fn take_entries(&mut self, first: Entry, data: &mut [u8]) -> usize {
        if first.rule != self.rule || first.index >= self.entries {
            return 0;
        }
        let bytes = data.len().min((self.entries - first.index) as usize * 16);
        let start = self.base as usize + first.index as usize * 16;
        data[..bytes].copy_from_slice(&self.bus.memory[start..start + bytes]);
        bytes
    }

    fn take_for(&mut self, entry: Entry, address: u64, most: usize, take: &mut dyn FnMut(&[u8])) -> usize {
        assert!(entry.rule == self.rule && entry.index < self.entries, "an entry that came along");
        let bytes = most.min(self.data_bytes - self.given).min(100);
        take(&self.bus.memory[address as usize..address as usize + bytes]);
        self.given += bytes;
        bytes
    }

    fn interrupt_mode(&self) -> InterruptMode {
        self.bus.interrupt_mode()
    }

    fn interrupt(&mut self, vector: u16) -> bool {
        self.bus.interrupt(vector)
    }

    fn set_intx(&mut self, asserted: bool) -> bool {
        self.bus.set_intx(asserted)
    }
}

#[test]
fn packets_that_come_along_with_the_tail_leave_without_a_read() {
    // Entries that came, bytes of the 1000 that came, reads that are left.
    for (entries, data_bytes, reads) in [(4, 4000, 0), (4, 2500, 2), (4, 0, 4), (2, 4000, 3), (0, 0, 5)] {
        let mut driver = Driver::ready();
        driver.store_packet(0, &pattern(4000, 1));
        for at in 0..4 {
            driver.data(0, 1000 * at, 1000, cmd::WHOLE, 0);
        }
        driver.ring(0);
        driver.bus.reads = 0;
        let base = Driver::transmit_base(0);
        driver.nic.poll(&mut Along { bus: &mut driver.bus, rule: 0, base, entries, data_bytes, given: 0 });
        driver.run();
        assert_eq!(driver.bus.reads, reads, "{entries} entries, {data_bytes} bytes");
        let sent = driver.sent();
        assert!(
            sent.concat() == pattern(4000, 1) && sent.len() == 4,
            "{entries} entries, {data_bytes} bytes"
        );
    }
}

#[test]
fn receive_descriptors_that_come_along_are_not_read() {
    let mut driver = Driver::new();
    driver.start();
    driver.receive_ring_of(1, 1 << 25 | 2, 20);
    driver.bus.reads = 0;
    let base = Driver::receive_base(1);
    let mut bus = Along { bus: &mut driver.bus, rule: 17, base, entries: 20, data_bytes: 0, given: 0 };
    driver.nic.poll(&mut bus);
    driver.run();
    assert_eq!(driver.bus.reads, 0);
    driver.set(reg::MRQC, 1 << 3);
    driver.deliver(&frame(MAC, 0x88b5, &[1; 64]));
    assert!(driver.received(1).is_some());
}

/// All changes that are told.
fn told(driver: &mut Driver) -> Vec<ReadAhead> {
    std::iter::from_fn(|| driver.nic.read_ahead()).collect()
}

#[test]
fn a_ring_has_a_rule_at_the_tail_that_its_driver_writes_while_it_is_enabled() {
    let mut driver = Driver::new();
    told(&mut driver);
    for (first, number, tail) in
        [(0x3900, 1, 0x3918), (0xe140, 5, 0xe158), (0x2a00, 18, 0x2a18), (0xc3c0, 31, 0xc3d8)]
    {
        driver.set(first, 0x1_0000);
        driver.set(first + 8, 64 * 16);
        driver.set(first + 0x28, ENABLE);
        let rules = told(&mut driver);
        let [ReadAhead::Declare(rule)] = &rules[..] else { panic!("{rules:?}") };
        assert_eq!((rule.rule, rule.doorbell, rule.ring, rule.entries), (number, tail, 0x1_0000, 64));
        assert!(rule.is_valid());
        assert_eq!(
            rule.follows().len(),
            if number < 16 { 2 } else { 0 },
            "data are sent, room for it is not"
        );
        driver.set(first + 0x18, 64);
        assert!(matches!(told(&mut driver)[..], [ReadAhead::Declare(_)]), "a tail that is refused");
        driver.set(first + 0x28, 0);
        assert_eq!(told(&mut driver), [ReadAhead::Withdraw(number)]);
    }
}
