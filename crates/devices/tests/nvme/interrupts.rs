//! MSI-X, MSI and INTx; masks and coalescing.

use crate::harness::*;
use etherslot_pci::function::{Function, InterruptMode};

#[test]
fn there_is_one_message_for_all_entries_of_a_round_with_the_queues_vector() {
    let (mut host, _disk) = Host::ready();
    host.create_pair(2, 16);
    host.bus.sent.clear();
    for _ in 0..10 {
        host.put(2, Entry::new(FLUSH).nsid(1));
    }
    host.ring(2);
    host.run();
    assert_eq!(host.bus.sent, [2]);
    assert_eq!(host.reap(2).len(), 10);
    host.admin(Entry::new(0x0a).dword(10, 6));
    assert_eq!(host.bus.sent, [2, 0]);
}

#[test]
fn a_message_without_room_is_sent_later() {
    let (mut host, _disk) = Host::ready();
    host.bus.sent.clear();
    host.bus.interrupt_room = 0;
    host.submit(1, Entry::new(FLUSH).nsid(1));
    host.run();
    assert!(host.bus.sent.is_empty());
    host.bus.interrupt_room = 1;
    host.run();
    assert_eq!(host.bus.sent, [1]);
}

#[test]
fn msi_is_masked_by_intms_and_sent_on_unmasking_if_entries_still_wait() {
    let (mut host, _disk) = Host::ready();
    host.bus.mode = InterruptMode::Msi(32);
    host.bus.sent.clear();
    host.write32(0x0c, 1 << 1);
    host.submit(1, Entry::new(FLUSH).nsid(1));
    host.run();
    assert!(host.bus.sent.is_empty());
    host.write32(0x10, 1 << 1);
    host.run();
    assert_eq!(host.bus.sent, [1]);
    host.reap(1);
    host.write32(0x0c, 1 << 1);
    host.command(1, Entry::new(FLUSH).nsid(1));
    host.write32(0x10, 1 << 1);
    host.run();
    assert_eq!(host.bus.sent, [1], "the host has found it by itself");
}

#[test]
fn intx_is_asserted_as_long_as_entries_wait() {
    let (mut host, _disk) = Host::ready();
    host.bus.mode = InterruptMode::IntX;
    host.run();
    assert!(!host.bus.intx);
    host.submit(1, Entry::new(FLUSH).nsid(1));
    host.submit(1, Entry::new(FLUSH).nsid(1));
    host.run();
    assert!(host.bus.intx);
    host.peek(1).unwrap();
    host.acknowledge(1);
    host.run();
    assert!(host.bus.intx, "one is left");
    host.write32(0x0c, 1);
    host.run();
    assert!(!host.bus.intx, "masked");
    host.write32(0x10, 1);
    host.run();
    assert!(host.bus.intx);
    host.reap(1);
    host.run();
    assert!(!host.bus.intx);
    host.submit(1, Entry::new(FLUSH).nsid(1));
    host.run();
    host.disable();
    assert!(!host.bus.intx, "no queue, no interrupt");
}

#[test]
fn a_queue_without_interrupts_has_none() {
    let (mut host, _disk) = Host::ready();
    let cq = host.alloc(4096);
    let create = Entry::new(5).prps(cq, 0).dword(10, 15 << 16 | 2).dword(11, 1);
    assert_eq!(host.admin(create).status, status::SUCCESS);
    let (created, sq) = host.create_sq(2, 16, 2);
    assert_eq!(created.status, status::SUCCESS);
    host.adopt(2, sq, cq, 16);
    host.bus.sent.clear();
    assert_eq!(host.command(2, Entry::new(FLUSH).nsid(1)).status, status::SUCCESS);
    assert!(host.bus.sent.is_empty());
}

#[test]
fn coalescing_waits_for_entries_or_time_but_not_for_admin_completions() {
    let (mut host, _disk) = Host::ready();
    // More than 3 entries, or 200 us.
    let set = Entry::new(9).dword(10, 8).dword(11, 2 << 8 | 3);
    assert_eq!(host.admin(set).status, status::SUCCESS);
    host.bus.sent.clear();
    let settle = |host: &mut Host| host.steps(10);
    host.submit(1, Entry::new(FLUSH).nsid(1));
    settle(&mut host);
    assert!(host.bus.sent.is_empty());
    assert_eq!(host.nvme.deadline_ns(), Some(host.bus.now_ns + 200_000));
    host.bus.now_ns += 200_000;
    settle(&mut host);
    assert_eq!(host.bus.sent, [1]);
    for _ in 0..4 {
        host.submit(1, Entry::new(FLUSH).nsid(1));
    }
    settle(&mut host);
    assert_eq!(host.bus.sent, [1, 1]);
    host.submit(0, Entry::new(0x0a).dword(10, 6));
    settle(&mut host);
    assert_eq!(host.bus.sent, [1, 1, 0]);
    host.reap(0);
    // The vector is exempt.
    host.submit(0, Entry::new(9).dword(10, 9).dword(11, 1 << 16 | 1));
    host.submit(1, Entry::new(FLUSH).nsid(1));
    settle(&mut host);
    assert!(host.bus.sent.ends_with(&[0, 1]) || host.bus.sent.ends_with(&[1, 0]), "{:?}", host.bus.sent);
}
