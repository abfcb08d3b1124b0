//! Transaction ordering (2.4.1). Rows and columns are those of the ordering rules summary: A posted, B read, C
//! other Non-Posted, D Completion; columns 2 posted, 3 and 4 Non-Posted, 5 Completion.

use etherslot_wire::tlp::{Class, Op};

use crate::Rule;
use crate::support::{Act, BAR0, Bench, Event, MSI, bar0, function, spec};

/// The rows of this part of the table.
pub(crate) const RULES: &[Rule] = &[
    Rule(
        "2.4.1 A2a",
        "A Posted Request does not pass another: writes of a Function leave in order",
        posted_requests_leave_in_the_order_in_which_they_were_made,
    ),
    Rule(
        "2.4.1 A2a",
        "An MSI is a Posted Request and does not pass the data it tells of, however little room there is",
        a_message_signalled_interrupt_stays_behind_its_data,
    ),
    Rule(
        "2.4.1 A2a",
        "Messages are Posted: Assert_INTA does not pass a write",
        an_intx_message_stays_behind_the_data_before_it,
    ),
    Rule(
        "2.4.1 A3 A4",
        "A Posted Request passes Non-Posted ones: writes leave while every Tag waits",
        a_posted_request_passes_reads_that_wait,
    ),
    Rule(
        "2.4.1 A3 A4 A5",
        "A Posted Request is never held up by Completions or Non-Posted Requests that can't leave",
        posted_requests_are_taken_while_nothing_can_be_sent,
    ),
    Rule(
        "2.4.1 D3 D4 D5",
        "A Completion is never held up by Requests or other Completions that can't leave",
        completions_are_taken_while_nothing_can_be_sent,
    ),
    Rule(
        "2.4.1 B2a",
        "A Read Request does not pass a Posted Request: it leaves behind the Function's writes",
        a_read_does_not_pass_a_write_before_it,
    ),
    Rule(
        "2.4.1 D2a",
        "A Completion does not pass a Posted Request: reading a register flushes the Function's writes",
        a_completion_does_not_pass_a_write_before_it,
    ),
    Rule(
        "2.4.1 A5",
        "A Function that waits with a write does not hold up a Completion, nor the other way round",
        a_completion_made_before_a_write_may_be_passed_by_it,
    ),
    Rule(
        "2.3.1.1",
        "Completions with the same Transaction ID are returned in ascending address order",
        completions_of_one_request_leave_in_address_order,
    ),
    Rule(
        "2.4.1 B2a",
        "Inwards, a Read Request does not pass a Posted Request",
        a_read_from_the_host_sees_the_writes_before_it,
    ),
    Rule(
        "2.4.1 C2a",
        "Inwards, Non-Posted Requests with data do not pass a Posted Request",
        a_configuration_write_does_not_pass_a_memory_write,
    ),
    Rule(
        "2.4.1 D2a",
        "Inwards, a Completion does not pass a Posted Request",
        a_completion_from_the_host_does_not_pass_its_writes,
    ),
    Rule(
        "2.4.1 B2a",
        "Between peers, a Read Request does not pass a Posted Request",
        peers_see_writes_before_the_read_behind_them,
    ),
    Rule(
        "2.4.1 D2a",
        "Between peers, a Completion does not pass a Posted Request",
        a_peer_sees_writes_before_the_completion_behind_them,
    ),
    Rule(
        "2.6.1",
        "A TLP is sent only if the receiver has room for it, and then once",
        nothing_is_lost_or_doubled_however_often_room_runs_out,
    ),
];

fn enable_msi(bench: &mut Bench) {
    bench.set_reg(MSI + 4, 0xFEE0_0000);
    bench.set_reg(MSI, 1 << 16);
    bench.host.take();
}

fn classes(bench: &mut Bench) -> Vec<Class> {
    bench.host.take().iter().map(|sent| sent.header.class()).collect()
}

#[test]
fn posted_requests_leave_in_the_order_in_which_they_were_made() {
    let mut bench = Bench::new();
    for index in 0..20_u8 {
        bench.scratch[0].act(Act::Write(0x1000 + 8 * u64::from(index), vec![index; 8]));
    }
    bench.settle();
    let writes = bench.host.take_writes();
    assert_eq!(writes.len(), 20);
    assert!(writes.iter().enumerate().all(|(index, (_, data))| data[0] == index as u8));
}

#[test]
fn a_message_signalled_interrupt_stays_behind_its_data() {
    let mut bench = Bench::new();
    enable_msi(&mut bench);
    bench.host.budget = 1;
    bench.scratch[0].act(Act::Write(0x1000, vec![7; 1500]));
    bench.scratch[0].act(Act::Interrupt(0));
    for _ in 0..10 {
        bench.settle();
        bench.host.budget = 1;
    }
    let writes = bench.host.take_writes();
    let (interrupt, data) = writes.split_last().unwrap();
    assert_eq!(data.iter().map(|(_, data)| data.len()).sum::<usize>(), 1500);
    assert_eq!(interrupt.0, 0xFEE0_0000);
}

#[test]
fn an_intx_message_stays_behind_the_data_before_it() {
    let mut bench = Bench::new();
    bench.scratch[0].act(Act::Write(0x1000, vec![1; 600]));
    bench.scratch[0].act(Act::IntX(true));
    bench.scratch[0].act(Act::Write(0x2000, vec![2; 4]));
    bench.settle();
    let sent = bench.host.take();
    let at = sent.iter().position(|sent| matches!(sent.header.op, Op::Message { code: 0x20, .. })).unwrap();
    assert_eq!((at, sent.len()), (2, 4));
}

#[test]
fn a_posted_request_passes_reads_that_wait() {
    let mut bench = Bench::with_tags(&[spec()], 2);
    bench.act(0, Act::Read(0x4000, 1024, 1));
    assert_eq!(bench.host.take_reads().len(), 2);
    bench.act(0, Act::Write(0x5000, vec![1; 4]));
    assert_eq!(bench.host.take_writes().len(), 1);
}

#[test]
fn posted_requests_are_taken_while_nothing_can_be_sent() {
    let mut bench = Bench::new();
    bench.host.budget = 0;
    for _ in 0..100 {
        bench.mem_read_begin(0, BAR0, 4);
    }
    bench.scratch[0].take_events();
    bench.mem_write(0, BAR0 + 8, &[9; 4]);
    assert_eq!(bench.scratch[0].take_events(), [Event::BarWrite(0, 8, vec![9; 4])]);
}

#[test]
fn completions_are_taken_while_nothing_can_be_sent() {
    let mut bench = Bench::new();
    bench.act(0, Act::Read(0x4000, 8, 5));
    let read = bench.host.take_reads()[0];
    bench.host.budget = 0;
    bench.mem_read_begin(0, BAR0, 4);
    bench.scratch[0].take_events();
    bench.complete(&read, &[3; 8]);
    assert_eq!(bench.scratch[0].take_events(), [Event::Completed(5, 0x4000, vec![3; 8])]);
}

#[test]
fn a_read_does_not_pass_a_write_before_it() {
    let mut bench = Bench::new();
    bench.scratch[0].act(Act::Write(0x1000, vec![1; 1000]));
    bench.scratch[0].act(Act::Read(0x1000, 4, 0));
    bench.settle();
    assert_eq!(classes(&mut bench), [Class::Posted, Class::Posted, Class::NonPosted]);
}

#[test]
fn a_completion_does_not_pass_a_write_before_it() {
    let mut bench = Bench::new();
    bench.host.budget = 1;
    bench.act(0, Act::Write(0x1000, vec![1; 4]));
    bench.mem_read_begin(0, BAR0, 4);
    bench.settle();
    bench.host.budget = 10;
    bench.settle();
    assert_eq!(classes(&mut bench), [Class::Posted, Class::Completion]);
}

#[test]
fn a_completion_made_before_a_write_may_be_passed_by_it() {
    let mut bench = Bench::new();
    bench.host.budget = 0;
    bench.scratch[0].act(Act::Write(0x1000, vec![1; 4]));
    bench.mem_read_begin(0, BAR0, 4);
    bench.settle();
    bench.host.budget = 10;
    bench.settle();
    assert_eq!(bench.host.sent.len(), 2);
}

#[test]
fn completions_of_one_request_leave_in_address_order() {
    let mut bench = Bench::new();
    bench.scratch[0].fill(0, |at| at as u8);
    let data = bench.mem_read(0, BAR0 + 3, 4001).unwrap();
    assert!(data.iter().enumerate().all(|(at, &byte)| byte == (at + 3) as u8));
}

#[test]
fn a_read_from_the_host_sees_the_writes_before_it() {
    let mut bench = Bench::new();
    for value in 0..10_u8 {
        bench.mem_write(0, BAR0 + 0x40, &[value; 8]);
        let tag = bench.mem_read_begin(0, BAR0 + 0x40, 8);
        bench.mem_write(0, BAR0 + 0x40, &[0xEE; 8]);
        bench.settle();
        assert_eq!(bench.host.take_completion(1, tag).unwrap().1, [value; 8]);
    }
}

#[test]
fn a_configuration_write_does_not_pass_a_memory_write() {
    let mut bench = Bench::new();
    bench.mem_write(0, BAR0, &[5; 4]);
    bench.set_reg(0x04, 0);
    bench.mem_write(0, BAR0, &[6; 4]);
    assert_eq!(bench.scratch[0].bar(0, 0, 4), [5; 4]);
}

#[test]
fn a_completion_from_the_host_does_not_pass_its_writes() {
    let mut bench = Bench::new();
    bench.act(0, Act::Read(0x4000, 4, 5));
    let read = bench.host.take_reads()[0];
    bench.scratch[0].take_events();
    bench.mem_write(0, BAR0, &[1; 4]);
    bench.complete(&read, &[2; 4]);
    let events = bench.scratch[0].take_events();
    assert_eq!(events, [Event::BarWrite(0, 0, vec![1; 4]), Event::Completed(5, 0x4000, vec![2; 4])]);
}

#[test]
fn peers_see_writes_before_the_read_behind_them() {
    let mut bench = Bench::with(&[spec(), spec()]);
    bench.scratch[0].act(Act::Write(bar0(1) + 0x100, vec![0x5A; 64]));
    bench.scratch[0].act(Act::Read(bar0(1) + 0x100, 64, 1));
    bench.settle();
    assert_eq!(bench.scratch[0].take_events(), [Event::Completed(1, bar0(1) + 0x100, vec![0x5A; 64])]);
}

#[test]
fn a_peer_sees_writes_before_the_completion_behind_them() {
    let mut bench = Bench::with(&[spec(), spec()]);
    // The peer writes into the Function, then answers its read.
    bench.scratch[1].act(Act::Write(bar0(0), vec![1; 4]));
    bench.scratch[0].act(Act::Read(bar0(1), 4, 1));
    bench.settle();
    bench.scratch[0].act(Act::Read(bar0(1), 4, 2));
    bench.settle();
    let events = bench.scratch[0].take_events();
    let write = events.iter().position(|event| matches!(event, Event::BarWrite(..))).unwrap();
    let second = events.iter().position(|event| matches!(event, Event::Completed(2, ..))).unwrap();
    assert!(write < second);
}

#[test]
fn nothing_is_lost_or_doubled_however_often_room_runs_out() {
    let mut bench = Bench::new();
    let data: Vec<u8> = (0..20_000_u32).map(|at| (at / 7) as u8).collect();
    bench.host.budget = 0;
    bench.scratch[0].act(Act::Write(0x10_0003, data.clone()));
    for round in 0..1000 {
        bench.host.room = [300, 40, 4112, 700, 0][round % 5];
        bench.host.budget = round % 3;
        bench.settle();
    }
    let mut next = 0x10_0003;
    let mut seen = Vec::new();
    for (address, part) in bench.host.take_writes() {
        assert_eq!(address, next);
        next += part.len() as u64;
        seen.extend(part);
    }
    assert_eq!(seen, data);
    assert_eq!(bench.hierarchy.endpoint(0).unwrap().id(), function(0));
}
