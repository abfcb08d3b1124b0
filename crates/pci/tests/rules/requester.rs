//! What a Function asks for (2.2.6, 2.2.7, 2.3.2, 2.8).

use etherslot_pci::function::Fault;
use etherslot_wire::FunctionId;
use etherslot_wire::tlp::{Completion, CplStatus, Header, MemRequest, Op};

use crate::Rule;
use crate::support::{
    AER, Act, Bench, COMMAND, EXPRESS, Event, Host, QUARANTINE_NS, TIMEOUT_NS, completion, function, spec,
};

/// The rows of this part of the table.
pub(crate) const RULES: &[Rule] = &[
    Rule(
        "2.2.7",
        "A Memory Request crosses no 4 KiB boundary and carries at most Max_Payload_Size",
        writes_cross_no_4_kib_boundary_and_keep_to_the_payload,
    ),
    Rule(
        "2.2.7",
        "A Memory Read crosses no 4 KiB boundary and asks for at most Max_Read_Request_Size",
        reads_cross_no_4_kib_boundary_and_keep_to_the_read_size,
    ),
    Rule(
        "7.5.3.4",
        "Max_Payload_Size and Max_Read_Request_Size bound Requests, unless the way upstream was granted for more",
        the_way_upstream_may_take_more_than_device_control_says,
    ),
    Rule(
        "2.2.4.1",
        "A Request below 4 GiB has a 3-DW header, one above a 4-DW header",
        addresses_below_4_gib_take_the_short_header,
    ),
    Rule(
        "2.2.5",
        "First and last byte enables leave out what was not to be written",
        byte_enables_tell_which_bytes_are_written,
    ),
    Rule(
        "2.2.7",
        "However writes are cut, small ones go whole and all follow the rules",
        writes_are_cut_to_the_room_of_a_frame_at_cache_lines,
    ),
    Rule(
        "7.5.1.1.3",
        "Without Bus Master Enable a Function issues no Memory Request",
        a_function_that_is_no_bus_master_is_silent,
    ),
    Rule(
        "7.5.1.1.3",
        "Bus Master Enable does not keep Completions away",
        reads_under_way_end_after_bus_mastering_was_switched_off,
    ),
    Rule("2.2.6.2", "The Requester ID is the Function's own", requests_carry_the_id_of_their_function),
    Rule(
        "2.2.6.2",
        "No Tag is used twice at a time; without a free one, reads wait",
        a_tag_is_unique_among_requests_under_way,
    ),
    Rule(
        "2.3.1.1",
        "Completions of one read, cut at the boundary, add up to it",
        a_read_may_be_answered_by_several_completions,
    ),
    Rule(
        "2.3.2",
        "A Completion whose Byte Count or Lower Address does not go on where the last one ended ends its read",
        completions_out_of_order_are_malformed,
    ),
    Rule(
        "2.3.1.1",
        "A Completion that is not the last ends at a multiple of 64 bytes",
        completions_not_cut_at_the_boundary_are_malformed,
    ),
    Rule("2.2.9", "A successful Completion of a read has data", a_read_answered_without_data_is_malformed),
    Rule(
        "2.3.2",
        "A read that is completed with UR fails, and Received Master Abort is set",
        unsupported_request_ends_a_read,
    ),
    Rule(
        "2.3.2",
        "A read that is completed with CA fails, and Received Target Abort is set",
        completer_abort_ends_a_read,
    ),
    Rule(
        "2.3.2",
        "Request Retry Status for anything but a Configuration Request is malformed",
        retry_status_is_no_answer_to_a_memory_read,
    ),
    Rule(
        "2.3.1.1",
        "A Completion with UR or CA ends a read of which some data has come",
        a_read_may_fail_after_its_first_part,
    ),
    Rule(
        "2.7.2.1",
        "Poisoned read data fails those bytes, and the rest of the read goes on",
        poisoned_data_is_not_given_to_the_function,
    ),
    Rule(
        "2.8",
        "A read that is not completed within the Completion Timeout fails, as to what is missing",
        a_read_without_completion_times_out,
    ),
    Rule(
        "2.8",
        "A Tag is not used again while a Completion of its first Request may come",
        a_late_completion_does_not_reach_another_request,
    ),
    Rule(
        "2.8",
        "A Tag is used again once no Completion of its first Request can come any more",
        a_quarantined_tag_comes_free_in_time,
    ),
    Rule(
        "7.5.3.16",
        "Device Control 2 sets the Completion Timeout, or switches it off",
        the_completion_timeout_can_be_chosen,
    ),
    Rule(
        "2.3.2",
        "A Completion that answers no Request has no effect but an Unexpected Completion error",
        an_unexpected_completion_is_dropped_and_recorded,
    ),
    Rule(
        "2.3.2",
        "A Completion whose Requester ID is not the Function's answers none of its Requests",
        a_completion_for_another_function_is_unexpected,
    ),
    Rule(
        "7.5.3.5",
        "Transactions Pending is set while a Non-Posted Request has not been completed",
        transactions_pending_tells_of_reads_under_way,
    ),
];

/// Starts a read of one TLP and returns its Request.
fn begin_read(bench: &mut Bench, address: u64, bytes: usize, token: u64) -> MemRequest {
    bench.act(0, Act::Read(address, bytes, token));
    let reads = bench.host.take_reads();
    assert_eq!(reads.len(), 1);
    bench.scratch[0].take_events();
    reads[0]
}

fn send_completion(bench: &mut Bench, completion: Completion, data: &[u8]) -> Vec<Event> {
    bench.send(0, &Header::new(Op::Completion(completion)), data);
    bench.settle();
    bench.scratch[0].take_events()
}

/// Ends a read without data.
fn refuse(bench: &mut Bench, request: &MemRequest, status: CplStatus) -> Vec<Event> {
    send_completion(bench, Completion { status, length_dw: 0, ..completion(request, 0, 4) }, &[])
}

fn uncorrectable(bench: &mut Bench) -> u32 {
    bench.reg(AER + 4)
}

fn writes_of(host: &mut Host, limit: usize) -> Vec<(u64, usize)> {
    let writes: Vec<_> =
        host.take_writes().into_iter().map(|(address, data)| (address, data.len())).collect();
    for &(address, bytes) in &writes {
        assert!((address & 3) as usize + bytes <= limit, "{address:#x} {bytes}");
        assert_eq!(address >> 12, (address + bytes as u64 - 1) >> 12);
    }
    writes
}

#[test]
fn writes_cross_no_4_kib_boundary_and_keep_to_the_payload() {
    let mut bench = Bench::new();
    bench.act(0, Act::Write(0xFFD, vec![1; 10_000]));
    let writes = writes_of(&mut bench.host, 512);
    assert_eq!(writes[0], (0xFFD, 3));
    assert_eq!(writes.iter().map(|&(_, bytes)| bytes).sum::<usize>(), 10_000);
}

#[test]
fn reads_cross_no_4_kib_boundary_and_keep_to_the_read_size() {
    let mut bench = Bench::with_tags(&[spec()], 256);
    bench.act(0, Act::Read(0x1_0000_0FFD, 10_000, 1));
    let mut at = 0x1_0000_0FFD;
    for request in bench.host.take_reads() {
        let (lead, bytes) = request.span();
        assert_eq!(request.address + lead as u64, at);
        assert!(request.data_bytes() <= 512 && at >> 12 == (at + bytes as u64 - 1) >> 12);
        at += bytes as u64;
    }
    assert_eq!(at, 0x1_0000_0FFD + 10_000);
}

#[test]
fn the_way_upstream_may_take_more_than_device_control_says() {
    let mut bench = Bench::new();
    for (control, payload, read) in
        [(0x0000, 512, 512), (0x5060, 1024, 4096), (0x20A0, 4096, 512), (0x70E0, 4096, 4096)]
    {
        bench.set_reg(EXPRESS + 8, control);
        bench.act(0, Act::Write(0x10_0000, vec![1; 4096]));
        assert_eq!(writes_of(&mut bench.host, 4096)[0].1, payload);
        bench.act(0, Act::Read(0x10_0000, 4096, 0));
        let request = bench.host.take_reads()[0];
        assert_eq!(request.data_bytes(), read);
        bench.hierarchy.hot_reset(0);
        bench.now_ns += QUARANTINE_NS + 1;
        bench.program_function(0);
    }
}

#[test]
fn addresses_below_4_gib_take_the_short_header() {
    let mut bench = Bench::new();
    bench.act(0, Act::Write(0xFFFF_FFFC, vec![1; 8]));
    let lengths: Vec<_> = bench.host.take().iter().map(|sent| sent.header.len()).collect();
    assert_eq!(lengths, [12, 16]);
}

#[test]
fn byte_enables_tell_which_bytes_are_written() {
    let mut bench = Bench::new();
    bench.act(0, Act::Write(0x1003, vec![0xAA; 6]));
    let sent = bench.host.take().remove(0);
    match sent.header.op {
        Op::MemWrite(request) => {
            assert_eq!(
                (request.address, request.length_dw, request.first_be, request.last_be),
                (0x1000, 3, 8, 1)
            );
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(sent.data, [0, 0, 0, 0xAA, 0xAA, 0xAA, 0xAA, 0xAA, 0xAA, 0, 0, 0]);
}

#[test]
fn writes_are_cut_to_the_room_of_a_frame_at_cache_lines() {
    let mut bench = Bench::new();
    bench.host.room = 12 + 400;
    bench.act(0, Act::Write(0x2010, vec![1; 512]));
    assert_eq!(writes_of(&mut bench.host, 512), [(0x2010, 0x170), (0x2180, 144)]);
    bench.host.room = 20;
    bench.act(0, Act::Write(0x2001, vec![1; 64]));
    assert_eq!(writes_of(&mut bench.host, 512), [(0x2001, 64)]);
}

#[test]
fn a_function_that_is_no_bus_master_is_silent() {
    let mut bench = Bench::new();
    bench.set_reg(COMMAND, 2);
    bench.act(0, Act::Write(0x1000, vec![1; 4]));
    assert!(!bench.scratch[0].is_master());
    assert!(bench.host.take().is_empty());
    bench.set_reg(COMMAND, 6);
    bench.settle();
    assert_eq!(bench.host.take_writes().len(), 1);
}

#[test]
fn reads_under_way_end_after_bus_mastering_was_switched_off() {
    let mut bench = Bench::new();
    let request = begin_read(&mut bench, 0x1000, 4, 3);
    bench.set_reg(COMMAND, 2);
    bench.complete(&request, &[1; 4]);
    assert_eq!(bench.scratch[0].take_events(), [Event::Completed(3, 0x1000, vec![1; 4])]);
}

#[test]
fn requests_carry_the_id_of_their_function() {
    let mut bench = Bench::new();
    let request = begin_read(&mut bench, 0x1000, 4, 3);
    assert_eq!(request.requester, function(0));
}

#[test]
fn a_tag_is_unique_among_requests_under_way() {
    let mut bench = Bench::new();
    bench.act(0, Act::Read(0x1_0000, 8192, 0));
    let reads = bench.host.take_reads();
    let mut tags: Vec<_> = reads.iter().map(|request| request.tag).collect();
    tags.sort_unstable();
    assert_eq!(tags, [0, 1, 2, 3, 4, 5, 6, 7]);
    bench.complete(&reads[3], &[0; 512]);
    bench.settle();
    let next = bench.host.take_reads();
    assert_eq!((next.len(), next[0].tag), (1, reads[3].tag));
}

#[test]
fn a_read_may_be_answered_by_several_completions() {
    let mut bench = Bench::new();
    let request = begin_read(&mut bench, 0x1021, 300, 9);
    for (offset, bytes) in [(0, 31), (31, 64), (95, 192), (287, 13)] {
        let part = completion(&request, offset, bytes);
        let data = vec![offset as u8; part.length_dw as usize * 4];
        let events = send_completion(&mut bench, part, &data);
        assert_eq!(events, [Event::Completed(9, 0x1021 + offset as u64, vec![offset as u8; bytes])]);
    }
    assert_eq!(bench.reg(EXPRESS + 8) >> 16 & 0x20, 0, "nothing is pending");
}

#[test]
fn completions_out_of_order_are_malformed() {
    for (offset, bytes) in [(64, 64), (0, 200)] {
        let mut bench = Bench::new();
        let request = begin_read(&mut bench, 0x1000, 128, 9);
        let wrong = completion(&request, offset, bytes);
        let data = vec![0; wrong.length_dw as usize * 4];
        let events = send_completion(&mut bench, wrong, &data);
        assert_eq!(events, [Event::Failed(9, 0x1000, 128, Fault::Malformed)]);
        assert_eq!(uncorrectable(&mut bench), 1 << 18);
    }
}

#[test]
fn completions_not_cut_at_the_boundary_are_malformed() {
    let mut bench = Bench::new();
    let request = begin_read(&mut bench, 0x1000, 128, 9);
    let events = send_completion(&mut bench, completion(&request, 0, 32), &[0; 32]);
    assert_eq!(events, [Event::Failed(9, 0x1000, 128, Fault::Malformed)]);
}

#[test]
fn a_read_answered_without_data_is_malformed() {
    let mut bench = Bench::new();
    let request = begin_read(&mut bench, 0x1000, 4, 9);
    let events = send_completion(&mut bench, Completion { length_dw: 0, ..completion(&request, 0, 4) }, &[]);
    assert_eq!(events, [Event::Failed(9, 0x1000, 4, Fault::Malformed)]);
}

#[test]
fn unsupported_request_ends_a_read() {
    let mut bench = Bench::new();
    let request = begin_read(&mut bench, 0x1000, 100, 9);
    let events = refuse(&mut bench, &request, CplStatus::UnsupportedRequest);
    assert_eq!(events, [Event::Failed(9, 0x1000, 100, Fault::UnsupportedRequest)]);
    assert_eq!(bench.reg(COMMAND) >> 29 & 1, 1);
}

#[test]
fn completer_abort_ends_a_read() {
    let mut bench = Bench::new();
    let request = begin_read(&mut bench, 0x1000, 100, 9);
    let events = refuse(&mut bench, &request, CplStatus::CompleterAbort);
    assert_eq!(events, [Event::Failed(9, 0x1000, 100, Fault::CompleterAbort)]);
    assert_eq!(bench.reg(COMMAND) >> 28 & 1, 1);
}

#[test]
fn retry_status_is_no_answer_to_a_memory_read() {
    let mut bench = Bench::new();
    let request = begin_read(&mut bench, 0x1000, 100, 9);
    let events = refuse(&mut bench, &request, CplStatus::RetryStatus);
    assert_eq!(events, [Event::Failed(9, 0x1000, 100, Fault::Malformed)]);
}

#[test]
fn a_read_may_fail_after_its_first_part() {
    let mut bench = Bench::new();
    let request = begin_read(&mut bench, 0x1000, 128, 9);
    send_completion(&mut bench, completion(&request, 0, 64), &[0; 64]);
    let abort =
        Completion { status: CplStatus::CompleterAbort, length_dw: 0, ..completion(&request, 64, 64) };
    let events = send_completion(&mut bench, abort, &[]);
    assert_eq!(events, [Event::Failed(9, 0x1040, 64, Fault::CompleterAbort)]);
}

#[test]
fn poisoned_data_is_not_given_to_the_function() {
    let mut bench = Bench::new();
    let request = begin_read(&mut bench, 0x1000, 128, 9);
    let header = Header { poisoned: true, ..Header::new(Op::Completion(completion(&request, 0, 64))) };
    bench.send(0, &header, &[0; 64]);
    let rest = send_completion(&mut bench, completion(&request, 64, 64), &[1; 64]);
    let expected = [Event::Failed(9, 0x1000, 64, Fault::Poisoned), Event::Completed(9, 0x1040, vec![1; 64])];
    assert_eq!(rest, expected);
    assert_eq!(uncorrectable(&mut bench), 1 << 12);
}

#[test]
fn a_read_without_completion_times_out() {
    let mut bench = Bench::new();
    let request = begin_read(&mut bench, 0x1000, 128, 9);
    send_completion(&mut bench, completion(&request, 0, 64), &[0; 64]);
    assert_eq!(bench.hierarchy.deadline_ns(), Some(1 + TIMEOUT_NS));
    bench.now_ns += TIMEOUT_NS;
    bench.settle();
    assert_eq!(bench.scratch[0].take_events(), [Event::Failed(9, 0x1040, 64, Fault::Timeout)]);
    assert_eq!(uncorrectable(&mut bench), 1 << 14);
    assert_eq!(bench.hierarchy.deadline_ns(), None);
}

#[test]
fn a_late_completion_does_not_reach_another_request() {
    let mut bench = Bench::with_tags(&[spec()], 2);
    let request = begin_read(&mut bench, 0x1000, 64, 9);
    bench.now_ns += TIMEOUT_NS;
    bench.act(0, Act::Read(0x2000, 1024, 10));
    let others = bench.host.take_reads();
    assert!(others.iter().all(|other| other.tag != request.tag));
    bench.scratch[0].take_events();
    assert_eq!(send_completion(&mut bench, completion(&request, 0, 64), &[7; 64]), []);
    assert_eq!(bench.hierarchy.endpoint(0).unwrap().requester_counters().late_completions, 1);
    let after = bench.host.take_reads();
    assert_eq!(after[0].tag, request.tag, "its last Completion has come, so it is free");
}

#[test]
fn a_quarantined_tag_comes_free_in_time() {
    let mut bench = Bench::with_tags(&[spec()], 1);
    begin_read(&mut bench, 0x1000, 64, 9);
    bench.now_ns += TIMEOUT_NS;
    bench.act(0, Act::Read(0x2000, 64, 10));
    assert!(bench.host.take_reads().is_empty());
    assert_eq!(bench.hierarchy.deadline_ns(), Some(bench.now_ns + QUARANTINE_NS));
    bench.now_ns += QUARANTINE_NS;
    bench.settle();
    assert_eq!(bench.host.take_reads().len(), 1);
}

#[test]
fn the_completion_timeout_can_be_chosen() {
    let mut bench = Bench::new();
    for (value, timeout_ns) in [(0b0101, Some(55_000_000)), (0b1010, Some(3_500_000_000)), (0b1_0000, None)] {
        bench.set_reg(EXPRESS + 0x28, value);
        let request = begin_read(&mut bench, 0x1000, 4, 0);
        assert_eq!(bench.hierarchy.deadline_ns(), timeout_ns.map(|timeout_ns| bench.now_ns + timeout_ns));
        bench.complete(&request, &[0; 4]);
    }
}

#[test]
fn an_unexpected_completion_is_dropped_and_recorded() {
    let mut bench = Bench::new();
    let request = begin_read(&mut bench, 0x1000, 4, 9);
    let stray = Completion { tag: request.tag + 1, ..completion(&request, 0, 4) };
    assert_eq!(send_completion(&mut bench, stray, &[0; 4]), []);
    assert_eq!(uncorrectable(&mut bench), 1 << 16);
    bench.complete(&request, &[1; 4]);
    assert_eq!(bench.scratch[0].take_events().len(), 1);
    assert_eq!(send_completion(&mut bench, completion(&request, 0, 4), &[0; 4]), [], "a second time");
    assert_eq!(bench.hierarchy.endpoint(0).unwrap().requester_counters().unexpected_completions, 2);
}

#[test]
fn a_completion_for_another_function_is_unexpected() {
    let mut bench = Bench::new();
    let request = begin_read(&mut bench, 0x1000, 4, 9);
    // Function 1 of the same bus and device: the switch leads it here.
    let other = Completion { requester: FunctionId::new(3, 0, 1), ..completion(&request, 0, 4) };
    assert_eq!(send_completion(&mut bench, other, &[0; 4]), []);
    assert_eq!(uncorrectable(&mut bench), 1 << 16);
}

#[test]
fn transactions_pending_tells_of_reads_under_way() {
    let mut bench = Bench::new();
    let request = begin_read(&mut bench, 0x1000, 4, 9);
    assert_eq!(bench.reg(EXPRESS + 8) >> 21 & 1, 1);
    bench.complete(&request, &[0; 4]);
    assert_eq!(bench.reg(EXPRESS + 8) >> 21 & 1, 0);
}
