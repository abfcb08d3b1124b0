//! Interrupts: what a client may set, and what comes of it.

mod rig;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use etherslot_vfio_user::client::ClientError;
use etherslot_vfio_user::message::{Errno, IrqAction, IrqData, Request, SetIrqs, command};
use rig::{Event, INTX, MSI, MSIX, Rig, assign, count, event};

const NONE: IrqData<'static> = IrqData::None;

fn refused(result: Result<(), ClientError>) -> Errno {
    match result {
        Err(ClientError::Refused(error)) => error,
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn msix_vectors_signal_their_eventfds() {
    let rig = Rig::new();
    let mut client = rig.client();
    let fds = [event(), event(), event()];
    assign(&mut client, MSIX, &fds);
    rig.with(|server, _| {
        assert_eq!(server.irqs_assigned(MSIX), 3);
        assert!(server.is_irq_assigned(MSIX, 2) && !server.is_irq_assigned(MSIX, 3));
        assert!(server.trigger(MSIX, 1));
        assert!(server.trigger(MSIX, 1));
        assert!(server.trigger(MSIX, 2));
        for (index, vector) in [(MSIX, 3), (MSIX, 2048), (MSI, 0), (3, 0), (5, 0), (u32::MAX, u32::MAX)] {
            assert!(!server.trigger(index, vector));
        }
        assert_eq!(server.counters().interrupts, 3);
    });
    assert_eq!(fds.each_ref().map(count), [0, 2, 1]);
    assert_eq!(rig.events(), [Event::Connected, Event::Irqs(MSIX)]);
}

#[test]
fn vectors_are_assigned_and_taken_away_one_by_one() {
    let rig = Rig::new();
    let mut client = rig.client();
    let fds = [event(), event()];
    // What QEMU starts MSI-X with: nothing for vector 0.
    client.set_irqs(IrqAction::Trigger, IrqData::Eventfd, (MSIX, 0, 1), &[]).unwrap();
    client.set_irqs(IrqAction::Trigger, IrqData::Eventfd, (MSIX, 2047, 1), &[fds[0].as_fd()]).unwrap();
    client.set_irqs(IrqAction::Trigger, IrqData::Eventfd, (MSIX, 5, 1), &[fds[1].as_fd()]).unwrap();
    rig.with(|server, _| assert!(server.trigger(MSIX, 2047) && server.trigger(MSIX, 5)));
    client.set_irqs(IrqAction::Trigger, IrqData::Eventfd, (MSIX, 0, 2048), &[]).unwrap();
    rig.with(|server, _| assert!(!server.trigger(MSIX, 2047) && !server.trigger(MSIX, 5)));
    assert_eq!(fds.each_ref().map(count), [1, 1]);
}

#[test]
fn a_type_is_disabled_by_a_count_of_0() {
    let rig = Rig::new();
    let mut client = rig.client();
    let fd = [event()];
    assign(&mut client, MSI, &fd);
    client.set_irqs(IrqAction::Trigger, NONE, (MSI, 0, 0), &[]).unwrap();
    rig.with(|server, _| assert!(!server.trigger(MSI, 0)));
    assert_eq!(count(&fd[0]), 0);
    client.set_irqs(IrqAction::Trigger, NONE, (3, 0, 0), &[]).unwrap();
}

#[test]
fn ranges_descriptors_and_flags_that_do_not_fit_are_refused() {
    let rig = Rig::new();
    let mut client = rig.client();
    let fd = event();
    let fds = [fd.as_fd(), fd.as_fd()];
    let trigger = IrqAction::Trigger;
    for range in [
        (INTX, 0, 2),
        (INTX, 1, 1),
        (MSI, 31, 2),
        (MSIX, u32::MAX, 2),
        (3, 0, 1),
        (5, 0, 1),
        (u32::MAX, 0, 0),
    ] {
        assert_eq!(refused(client.set_irqs(trigger, NONE, range, &[])), Errno::INVAL, "{range:?}");
    }
    assert_eq!(refused(client.set_irqs(trigger, IrqData::Eventfd, (MSI, 0, 1), &fds)), Errno::INVAL);
    assert_eq!(refused(client.set_irqs(trigger, IrqData::Eventfd, (MSI, 0, 3), &fds)), Errno::INVAL);
    assert_eq!(refused(client.set_irqs(trigger, IrqData::Eventfd, (MSI, 0, 0), &[])), Errno::INVAL);
    assert_eq!(refused(client.set_irqs(IrqAction::Mask, NONE, (MSI, 0, 0), &[])), Errno::INVAL);
    assert_eq!(
        refused(client.set_irqs(IrqAction::Unmask, IrqData::Eventfd, (MSI, 0, 1), &fds[..1])),
        Errno::NOTSUP
    );
    // No data type, two of them, no action, two of them, an unknown flag.
    for flags in [0x20u32, 0x23, 0x01, 0x31, 0x61] {
        let body = [20, flags, MSI, 0, 1].map(u32::to_ne_bytes).concat();
        let header = etherslot_vfio_user::message::Header {
            id: 0,
            command: command::DEVICE_SET_IRQS,
            bytes: 36,
            reply: false,
            no_reply: false,
            error: None,
        };
        client.send_bytes(&[&header.encode()[..], &body].concat(), &[]).unwrap();
        assert_eq!(client.receive().unwrap().header.error, Some(Errno::INVAL), "{flags:#x}");
    }
    rig.with(|server, _| assert_eq!(server.irqs_assigned(MSI), 0));
}

#[test]
fn only_eventfds_are_taken_and_they_are_made_not_to_block() {
    let rig = Rig::new();
    let mut client = rig.client();
    let (_reader, pipe) = rustix::pipe::pipe().unwrap();
    let memory = rig::memfd(4096);
    for fd in [pipe.as_fd(), memory.as_fd()] {
        let result = client.set_irqs(IrqAction::Trigger, IrqData::Eventfd, (MSI, 0, 1), &[fd]);
        assert_eq!(refused(result), Errno::INVAL);
    }
    let blocking = [rustix::event::eventfd(0, rustix::event::EventfdFlags::empty()).unwrap()];
    assign(&mut client, MSI, &blocking);
    // Full: a write to it would block, if it could; it is signalled as it is.
    rustix::io::write(&blocking[0], &(u64::MAX - 1).to_ne_bytes()).unwrap();
    rig.with(|server, _| assert!(server.trigger(MSI, 0)));
    rustix::fs::fcntl_setfl(&blocking[0], rustix::fs::OFlags::empty()).unwrap();
    rig.with(|server, _| assert!(server.trigger(MSI, 0)));
}

#[test]
fn the_client_can_trigger_all_or_those_it_chooses() {
    let rig = Rig::new();
    let mut client = rig.client();
    let fds = [event(), event(), event(), event()];
    assign(&mut client, MSI, &fds);
    client.set_irqs(IrqAction::Trigger, NONE, (MSI, 1, 3), &[]).unwrap();
    client.set_irqs(IrqAction::Trigger, IrqData::Bool(&[1, 0, 0, 255]), (MSI, 0, 4), &[]).unwrap();
    assert_eq!(fds.each_ref().map(count), [1, 1, 1, 2]);
    // Fewer booleans than the range is long.
    let short = Request::SetIrqs(SetIrqs {
        action: IrqAction::Trigger,
        data: IrqData::Bool(&[1, 1]),
        index: MSI,
        start: 0,
        count: 3,
    });
    assert!(matches!(client.call(&short, &[]), Err(ClientError::Refused(Errno::INVAL))));
    assert_eq!(fds.each_ref().map(count), [0; 4]);
}

#[test]
fn a_masked_vector_stays_pending_and_signals_once_when_unmasked() {
    let rig = Rig::new();
    let mut client = rig.client();
    let fds = [event(), event()];
    assign(&mut client, MSIX, &fds);
    client.set_irqs(IrqAction::Mask, NONE, (MSIX, 0, 2), &[]).unwrap();
    rig.with(|server, _| {
        assert!(server.is_irq_masked(MSIX, 0));
        assert!(!server.trigger(MSIX, 0));
        assert!(!server.trigger(MSIX, 0));
    });
    assert_eq!(fds.each_ref().map(count), [0, 0]);
    client.set_irqs(IrqAction::Unmask, IrqData::Bool(&[1, 1]), (MSIX, 0, 2), &[]).unwrap();
    assert_eq!(fds.each_ref().map(count), [1, 0]);
    client.set_irqs(IrqAction::Unmask, NONE, (MSIX, 0, 2), &[]).unwrap();
    assert_eq!(fds.each_ref().map(count), [0, 0]);
    assert_eq!(rig.events(), [Event::Connected, Event::Irqs(MSIX)], "masks change no assignment");
}

fn set_level(rig: &Rig, high: bool) -> bool {
    rig.with(move |server, _| server.set_intx_level(high))
}

#[test]
fn intx_triggers_once_when_it_rises_and_masks_itself() {
    let rig = Rig::new();
    let mut client = rig.client();
    let fd = [event()];
    assign(&mut client, INTX, &fd);
    assert!(set_level(&rig, true));
    assert!(!set_level(&rig, true));
    assert!(rig.with(|server, _| server.is_irq_masked(INTX, 0)));
    assert!(!set_level(&rig, false));
    // The level pulses while it is masked: nothing is told until the end of the interrupt.
    assert!(!set_level(&rig, true));
    assert_eq!(count(&fd[0]), 1);
}

#[test]
fn intx_triggers_again_when_unmasked_while_it_is_high() {
    let rig = Rig::new();
    let mut client = rig.client();
    let fd = [event()];
    assign(&mut client, INTX, &fd);
    set_level(&rig, true);
    assert_eq!(count(&fd[0]), 1);
    for _ in 0..3 {
        client.set_irqs(IrqAction::Unmask, NONE, (INTX, 0, 1), &[]).unwrap();
        assert_eq!(count(&fd[0]), 1);
    }
    set_level(&rig, false);
    client.set_irqs(IrqAction::Unmask, NONE, (INTX, 0, 1), &[]).unwrap();
    assert_eq!(count(&fd[0]), 0, "no interrupt without a cause");
    assert!(set_level(&rig, true));
    assert_eq!(count(&fd[0]), 1);
}

#[test]
fn a_level_that_was_high_before_intx_is_assigned_triggers_then() {
    let rig = Rig::new();
    assert!(!set_level(&rig, true));
    let mut client = rig.client();
    let fd = [event()];
    assign(&mut client, INTX, &fd);
    assert_eq!(count(&fd[0]), 1);
    // As QEMU does when the guest goes to MSI-X and back.
    client.set_irqs(IrqAction::Trigger, NONE, (INTX, 0, 0), &[]).unwrap();
    assign(&mut client, INTX, &fd);
    assert_eq!(count(&fd[0]), 1);
    assert!(rig.with(|server, _| server.intx_level()));
}

#[test]
fn a_masked_intx_triggers_when_unmasked() {
    let rig = Rig::new();
    let mut client = rig.client();
    let fd = [event()];
    assign(&mut client, INTX, &fd);
    client.set_irqs(IrqAction::Mask, NONE, (INTX, 0, 1), &[]).unwrap();
    assert!(!set_level(&rig, true));
    assert_eq!(count(&fd[0]), 0);
    client.set_irqs(IrqAction::Unmask, NONE, (INTX, 0, 1), &[]).unwrap();
    assert_eq!(count(&fd[0]), 1);
}

#[test]
fn intx_is_masked_and_unmasked_by_eventfds() {
    let rig = Rig::new();
    let mut client = rig.client();
    let (fd, mask, unmask) = ([event()], event(), event());
    assign(&mut client, INTX, &fd);
    let mut watch = |action, fds: &[BorrowedFd<'_>]| {
        client.set_irqs(action, IrqData::Eventfd, (INTX, 0, 1), fds).unwrap();
    };
    watch(IrqAction::Mask, &[mask.as_fd()]);
    watch(IrqAction::Unmask, &[unmask.as_fd()]);
    let ring = |fd: &OwnedFd| {
        rustix::io::write(fd, &1u64.to_ne_bytes()).unwrap();
    };
    set_level(&rig, true);
    ring(&unmask);
    rig.wait(|server, _| server.counters().interrupts == 2);
    set_level(&rig, false);
    ring(&unmask);
    rig.wait(|server, _| !server.is_irq_masked(INTX, 0));
    ring(&mask);
    rig.wait(|server, _| server.is_irq_masked(INTX, 0));
    assert!(!set_level(&rig, true));
    watch(IrqAction::Unmask, &[]);
    ring(&unmask);
    watch(IrqAction::Mask, &[]);
    assert_eq!(count(&fd[0]), 2);
    assert_eq!(count(&unmask), 1, "it is not looked at any more");
}

#[test]
fn a_client_that_goes_takes_its_interrupts_with_it() {
    let rig = Rig::new();
    let mut client = rig.client();
    let fd = [event()];
    assign(&mut client, MSI, &fd);
    drop(client);
    rig.wait(|server, _| !server.is_connected());
    rig.with(|server, _| assert!(!server.trigger(MSI, 0)));
    assert_eq!(count(&fd[0]), 0);
}
