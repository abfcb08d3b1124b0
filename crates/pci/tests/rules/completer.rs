//! What a Function answers (2.2.5 to 2.2.9, 2.3.1).

use etherslot_wire::FunctionId;
use etherslot_wire::tlp::{
    AtomicKind, CfgRequest, CfgType, CplStatus, Header, MemRequest, Op, Routing, attr,
};

use crate::Rule;
use crate::support::{AER, Act, BAR0, Bench, COMMAND, EXPRESS, Event, ROOT, bar2, function, spec, stream};

/// The rows of this part of the table.
pub(crate) const RULES: &[Rule] = &[
    Rule(
        "7.5.1.2.1",
        "Address bits of a BAR below its size are 0; its type bits are fixed",
        bars_tell_their_size_when_all_ones_are_written,
    ),
    Rule(
        "7.5.1.2.1",
        "A Memory Request is for the BAR that its address is in",
        bars_are_decoded_where_they_were_put,
    ),
    Rule(
        "2.3.1",
        "A Request that no BAR takes ends with UR; a Posted one is dropped",
        requests_outside_all_bars_are_unsupported,
    ),
    Rule(
        "2.3.1",
        "A Request that is only partly inside a BAR has no effect",
        requests_that_leave_a_bar_are_unsupported,
    ),
    Rule(
        "7.5.1.1.3",
        "Without Memory Space Enable, Memory Requests are unsupported",
        memory_space_enable_is_honoured,
    ),
    Rule("2.2.5", "Bytes that are not enabled are not written", only_enabled_bytes_are_written),
    Rule(
        "2.2.5",
        "Bytes that are not enabled are not read where that could have an effect",
        only_enabled_bytes_are_read,
    ),
    Rule(
        "2.2.5",
        "A read of one DW with no byte enabled ends with one DW of any data and has no effect",
        a_zero_length_read_flushes_and_touches_nothing,
    ),
    Rule("2.2.5", "A write of one DW with no byte enabled has no effect", a_zero_length_write_has_no_effect),
    Rule(
        "2.3.1.1",
        "All but the last Completion end at a multiple of RCB, 128 bytes for an Endpoint",
        completions_are_cut_at_the_read_completion_boundary,
    ),
    Rule(
        "2.2.2",
        "A TLP carries no more data than Max_Payload_Size, or what the way upstream was granted for",
        completions_carry_at_most_the_maximum_payload,
    ),
    Rule(
        "2.3.1.1",
        "However Completions are cut, they cover the Request once and in order",
        a_completion_is_cut_to_the_room_of_a_frame_at_a_boundary,
    ),
    Rule(
        "2.2.9",
        "Traffic Class and attributes of a Completion are those of its Request",
        a_completion_has_the_class_and_attributes_of_its_request,
    ),
    Rule(
        "2.2.6.2",
        "A Function has the bus and device number of the last Configuration Write it took",
        the_completer_id_is_captured_from_configuration_writes,
    ),
    Rule(
        "2.2.6.2",
        "The Completer ID is the Function's own, renumbered or not",
        a_completion_that_waited_tells_the_id_that_is_valid_when_it_leaves,
    ),
    Rule("7.2", "A Configuration Write changes enabled bytes only", only_the_bytes_enabled_are_configured),
    Rule(
        "7.5.1.1",
        "Reserved and unimplemented registers read 0",
        registers_that_are_not_there_read_zero_and_ignore_writes,
    ),
    Rule(
        "7.3.1",
        "A Configuration Request for an unimplemented Function ends with UR",
        a_function_number_that_is_not_there_is_unsupported,
    ),
    Rule(
        "7.3.3",
        "An Endpoint answers a Type 1 Configuration Request with UR",
        an_endpoint_takes_no_type_1_configuration,
    ),
    Rule("6.15.3.1", "A Completer without AtomicOp support answers UR", atomic_operations_are_unsupported),
    Rule(
        "2.2.9",
        "Byte Count of a Completion that ends a read with UR is what has not been returned",
        a_refused_read_tells_all_its_bytes,
    ),
    Rule(
        "2.7.2.1",
        "Poisoned data is not written into a Function, and the error is recorded",
        a_poisoned_write_has_no_effect,
    ),
    Rule(
        "2.7.2.1",
        "A poisoned Configuration Write has no effect and ends with UR",
        a_poisoned_configuration_write_is_refused,
    ),
    Rule(
        "2.3",
        "A TLP that breaks a rule of its format is dropped and counted",
        malformed_tlps_have_no_effect,
    ),
    Rule(
        "2.2.8.7",
        "Ignored Messages, Set_Slot_Power_Limit and Vendor_Defined Type 1 have no effect and are no error",
        messages_that_mean_nothing_are_ignored,
    ),
    Rule(
        "2.2.8.6",
        "Vendor_Defined Type 0 and unknown Messages are Unsupported Requests",
        unknown_messages_are_unsupported,
    ),
    Rule(
        "2.6.1.1",
        "A Request that exceeds the credits is a Receiver Overflow",
        requests_beyond_what_can_be_held_are_dropped_and_recorded,
    ),
];

const UR: CplStatus = CplStatus::UnsupportedRequest;

fn cfg(target: FunctionId, kind: CfgType) -> Header {
    Header::new(Op::CfgRead(CfgRequest {
        kind,
        requester: ROOT,
        tag: 77,
        target,
        register: 0,
        first_be: 0xF,
    }))
}

/// The status of the answer to a Request that is handed to the Endpoint itself.
fn direct(bench: &mut Bench, header: &Header, data: &[u8]) -> Option<CplStatus> {
    bench.hierarchy.endpoint_mut(0).unwrap().receive(0, header, data);
    bench.settle();
    bench.host.take_completion(stream(0), header.tag()).map(|(completion, _)| completion.status)
}

fn read(address: u64, length_dw: u16, first_be: u8, last_be: u8) -> MemRequest {
    MemRequest { requester: ROOT, tag: 77, address, length_dw, first_be, last_be }
}

fn message(code: u8) -> Header {
    let fields = [0; 8];
    Header::new(Op::Message { routing: Routing::Local, requester: ROOT, tag: 0, code, fields, length_dw: 0 })
}

#[test]
fn bars_tell_their_size_when_all_ones_are_written() {
    let mut bench = Bench::new();
    for register in (0x10..0x28).step_by(4) {
        bench.set_reg(register, u32::MAX);
    }
    let sizes = [0x10, 0x14, 0x18, 0x1C, 0x20, 0x24].map(|register| bench.reg(register));
    assert_eq!(sizes, [0xFFFF_C000, 0, 0xFFFF_000C, 0xFFFF_FFFF, 0, 0]);
}

#[test]
fn bars_are_decoded_where_they_were_put() {
    let mut bench = Bench::new();
    bench.mem_write(0, BAR0 + 0x3FFC, &[1; 4]);
    bench.mem_write(0, bar2(0) + 0xFFF8, &[2; 8]);
    let events = bench.scratch[0].take_events();
    assert_eq!(events, [Event::BarWrite(0, 0x3FFC, vec![1; 4]), Event::BarWrite(2, 0xFFF8, vec![2; 8])]);
}

#[test]
fn requests_outside_all_bars_are_unsupported() {
    let mut bench = Bench::new();
    assert_eq!(bench.mem_read(0, BAR0 + 0x4000, 4), Err(UR));
    bench.mem_write(0, BAR0 + 0x4000, &[1; 4]);
    assert_eq!(bench.scratch[0].take_events(), []);
    assert_eq!(bench.hierarchy.endpoint(0).unwrap().counters().dropped_posted, 1);
}

#[test]
fn requests_that_leave_a_bar_are_unsupported() {
    let mut small = spec();
    small.bars[0].bytes = 256;
    let mut bench = Bench::with(&[small]);
    assert_eq!(bench.mem_read(0, BAR0 + 0xF8, 16), Err(UR));
    bench.mem_write(0, BAR0 + 0xF8, &[1; 16]);
    assert_eq!(bench.scratch[0].take_events(), []);
    assert_eq!(bench.mem_read(0, BAR0 + 0xF8, 8), Ok(vec![0; 8]));
}

#[test]
fn memory_space_enable_is_honoured() {
    let mut bench = Bench::new();
    bench.set_reg(COMMAND, 4);
    assert_eq!(bench.mem_read(0, BAR0, 4), Err(UR));
    bench.mem_write(0, BAR0, &[1; 4]);
    assert_eq!(bench.scratch[0].take_events(), []);
}

#[test]
fn only_enabled_bytes_are_written() {
    let mut bench = Bench::new();
    bench.mem_write(0, BAR0 + 0x101, &[1, 2, 3, 4, 5, 6]);
    assert_eq!(bench.scratch[0].take_events(), [Event::BarWrite(0, 0x101, vec![1, 2, 3, 4, 5, 6])]);
    let holes = MemRequest { first_be: 0b1001, last_be: 0b0110, ..read(BAR0 + 8, 2, 0, 0) };
    bench.send(0, &Header::new(Op::MemWrite(holes)), &[1, 2, 3, 4, 5, 6, 7, 8]);
    let expected =
        [Event::BarWrite(0, 8, vec![1]), Event::BarWrite(0, 11, vec![4]), Event::BarWrite(0, 13, vec![6, 7])];
    assert_eq!(bench.scratch[0].take_events(), expected);
}

#[test]
fn only_enabled_bytes_are_read() {
    let mut bench = Bench::new();
    bench.scratch[0].fill(0, |at| at as u8);
    bench.send(0, &Header::new(Op::MemRead(read(BAR0 + 8, 2, 0b1001, 0b0110))), &[]);
    bench.settle();
    let events = bench.scratch[0].take_events();
    assert_eq!(events, [Event::BarRead(0, 8, 1), Event::BarRead(0, 11, 1), Event::BarRead(0, 13, 2)]);
    let (completion, data) = bench.host.take_completion(1, 77).unwrap();
    assert_eq!((completion.byte_count, completion.lower_address), (7, 8));
    assert_eq!(data, [8, 0, 0, 11, 0, 13, 14, 0]);
}

#[test]
fn a_zero_length_read_flushes_and_touches_nothing() {
    let mut bench = Bench::new();
    bench.act(0, Act::Write(0x1000, vec![1; 4]));
    bench.send(0, &Header::new(Op::MemRead(read(BAR0 + 0x10, 1, 0, 0))), &[]);
    bench.settle();
    assert_eq!(bench.scratch[0].take_events(), []);
    assert_eq!(bench.host.sent.len(), 2, "the write is in front");
    let (completion, _) = bench.host.take_completion(1, 77).unwrap();
    assert_eq!((completion.byte_count, completion.lower_address, completion.length_dw), (1, 0x10, 1));
}

#[test]
fn a_zero_length_write_has_no_effect() {
    let mut bench = Bench::new();
    bench.send(0, &Header::new(Op::MemWrite(read(BAR0, 1, 0, 0))), &[1; 4]);
    assert_eq!(bench.scratch[0].take_events(), []);
}

#[test]
fn completions_are_cut_at_the_read_completion_boundary() {
    let mut bench = Bench::new();
    let tag = bench.mem_read_begin(0, BAR0 + 0x33, 2000);
    bench.settle();
    let mut at = BAR0 + 0x33;
    let mut count = 0;
    while let Some((completion, _)) = bench.host.take_completion(1, tag) {
        assert_eq!(u64::from(completion.byte_count), BAR0 + 0x33 + 2000 - at);
        let bytes = u64::from(completion.length_dw) * 4 - (at & 3);
        at = (at + bytes).min(BAR0 + 0x33 + 2000);
        assert!(at.is_multiple_of(128) || at == BAR0 + 0x33 + 2000);
        count += 1;
    }
    assert_eq!((at, count), (BAR0 + 0x33 + 2000, 5));
}

#[test]
fn completions_carry_at_most_the_maximum_payload() {
    let mut bench = Bench::new();
    bench.mem_read_begin(0, BAR0, 4096);
    bench.settle();
    let sent = bench.host.take();
    assert_eq!(sent.len(), 8);
    assert!(sent.iter().all(|sent| sent.data.len() <= 512));
}

#[test]
fn a_completion_is_cut_to_the_room_of_a_frame_at_a_boundary() {
    let mut bench = Bench::new();
    bench.scratch[0].fill(0, |at| (at / 3) as u8);
    bench.host.room = 300;
    let data = bench.mem_read(0, BAR0 + 1, 3000).unwrap();
    assert!(data.iter().enumerate().all(|(at, &byte)| byte == ((at + 1) / 3) as u8));
}

#[test]
fn a_completion_has_the_class_and_attributes_of_its_request() {
    let mut bench = Bench::new();
    let header = Header {
        traffic_class: 3,
        attributes: attr::NO_SNOOP | attr::RELAXED,
        ..Header::new(Op::MemRead(read(BAR0, 1, 0xF, 0)))
    };
    bench.send(0, &header, &[]);
    bench.settle();
    let completion = bench.host.take().remove(0).header;
    assert_eq!((completion.traffic_class, completion.attributes), (3, attr::NO_SNOOP | attr::RELAXED));
}

#[test]
fn the_completer_id_is_captured_from_configuration_writes() {
    let mut bench = Bench::new();
    assert_eq!(bench.hierarchy.endpoint(0).unwrap().id(), function(0));
    bench.cfg_write(0, crate::support::port(0), 0x18, 0x0009_0902);
    bench.cfg_write(0, FunctionId::new(9, 0, 0), 0x3C, 0);
    assert_eq!(bench.scratch[0].take_events(), [Event::Identified(FunctionId::new(9, 0, 0))]);
    bench.mem_read_begin(0, BAR0, 4);
    bench.settle();
    match bench.host.take().last().unwrap().header.op {
        Op::Completion(completion) => assert_eq!(completion.completer, FunctionId::new(9, 0, 0)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_completion_that_waited_tells_the_id_that_is_valid_when_it_leaves() {
    let mut bench = Bench::new();
    bench.host.budget = 0;
    let tag = bench.mem_read_begin(0, BAR0, 4);
    let header = Header::new(Op::CfgWrite(CfgRequest {
        kind: CfgType::Type0,
        requester: ROOT,
        tag: 200,
        target: FunctionId::new(9, 0, 0),
        register: 0x3C,
        first_be: 1,
    }));
    bench.hierarchy.endpoint_mut(0).unwrap().receive(0, &header, &[0; 4]);
    bench.host.budget = 10;
    bench.settle();
    assert_eq!(bench.host.take_completion(1, tag).unwrap().0.completer, FunctionId::new(9, 0, 0));
    assert_eq!(bench.hierarchy.counters().spoofed, 0);
}

#[test]
fn only_the_bytes_enabled_are_configured() {
    let mut bench = Bench::new();
    bench.set_reg(0x0C, 0);
    bench.cfg(0, function(0), 0x3C, Some((0x1234_56AB, 0b1110)));
    assert_eq!(bench.reg(0x3C) & 0xFF, 0);
    bench.cfg(0, function(0), 0x3C, Some((0x1234_56AB, 0b0001)));
    assert_eq!(bench.reg(0x3C), 0x0000_01AB);
}

#[test]
fn registers_that_are_not_there_read_zero_and_ignore_writes() {
    let mut bench = Bench::new();
    for register in [0x28, 0x30, 0xF0, 0x200, 0xFFC] {
        bench.set_reg(register, u32::MAX);
        assert_eq!(bench.reg(register), 0);
    }
}

#[test]
fn a_function_number_that_is_not_there_is_unsupported() {
    let mut bench = Bench::new();
    assert_eq!(direct(&mut bench, &cfg(FunctionId::new(3, 0, 1), CfgType::Type0), &[]), Some(UR));
}

#[test]
fn an_endpoint_takes_no_type_1_configuration() {
    let mut bench = Bench::new();
    assert_eq!(direct(&mut bench, &cfg(function(0), CfgType::Type1), &[]), Some(UR));
}

#[test]
fn atomic_operations_are_unsupported() {
    let mut bench = Bench::new();
    let op = Op::Atomic { kind: AtomicKind::Swap, requester: ROOT, tag: 5, address: BAR0, length_dw: 1 };
    bench.send(0, &Header::new(op), &[0; 4]);
    bench.settle();
    let (completion, _) = bench.host.take_completion(1, 5).unwrap();
    assert_eq!((completion.status, completion.byte_count, completion.lower_address), (UR, 4, 0));
}

#[test]
fn a_refused_read_tells_all_its_bytes() {
    let mut bench = Bench::new();
    let tag = bench.mem_read_begin(0, BAR0 + 0x5001, 100);
    bench.settle();
    let (completion, data) = bench.host.take_completion(1, tag).unwrap();
    assert_eq!((completion.status, completion.byte_count, completion.lower_address), (UR, 100, 1));
    assert!(data.is_empty());
}

#[test]
fn a_poisoned_write_has_no_effect() {
    let mut bench = Bench::new();
    let header = Header { poisoned: true, ..Header::new(Op::MemWrite(read(BAR0, 1, 0xF, 0))) };
    bench.send(0, &header, &[1; 4]);
    assert_eq!(bench.scratch[0].take_events(), []);
    assert_eq!(bench.reg(AER + 4), 1 << 12);
    assert_eq!(bench.reg(COMMAND) >> 31, 1, "Detected Parity Error");
}

#[test]
fn a_poisoned_configuration_write_is_refused() {
    let mut bench = Bench::new();
    let request = CfgRequest {
        kind: CfgType::Type1,
        requester: ROOT,
        tag: 9,
        target: function(0),
        register: 0x3C,
        first_be: 1,
    };
    bench.send(0, &Header { poisoned: true, ..Header::new(Op::CfgWrite(request)) }, &[0xAA; 4]);
    bench.settle();
    assert_eq!(bench.host.take_completion(1, 9).unwrap().0.status, UR);
    assert_eq!(bench.reg(0x3C) & 0xFF, 0);
}

#[test]
fn malformed_tlps_have_no_effect() {
    let mut bench = Bench::new();
    for bytes in [&[0x40, 0, 0, 1][..], &[], &[0x40, 0, 0, 2, 0, 0, 0, 0xF, 0x80, 0, 0, 0, 1, 2, 3, 4]] {
        bench.hierarchy.receive(0, 1, bytes);
    }
    assert_eq!(bench.hierarchy.counters().malformed, 3);
    assert_eq!(bench.scratch[0].take_events(), []);
    bench.settle();
    assert!(bench.host.take().is_empty());
}

#[test]
fn messages_that_mean_nothing_are_ignored() {
    let mut bench = Bench::new();
    for code in [0x19, 0x40, 0x41, 0x43, 0x44, 0x45, 0x47, 0x48, 0x50, 0x7F] {
        bench.hierarchy.endpoint_mut(0).unwrap().receive(0, &message(code), &[]);
    }
    assert_eq!(bench.reg(EXPRESS + 8) >> 16, 0);
}

#[test]
fn unknown_messages_are_unsupported() {
    let mut bench = Bench::new();
    bench.hierarchy.endpoint_mut(0).unwrap().receive(0, &message(0x7E), &[]);
    assert_eq!(bench.reg(EXPRESS + 8) >> 16, 0b1010, "Non-Fatal Error and Unsupported Request Detected");
}

#[test]
fn requests_beyond_what_can_be_held_are_dropped_and_recorded() {
    let mut bench = Bench::new();
    bench.host.budget = 0;
    for _ in 0..600 {
        bench.mem_read_begin(0, BAR0, 4);
    }
    bench.host.budget = usize::MAX;
    bench.settle();
    assert_eq!(bench.host.take().len(), 512);
    assert_eq!(bench.reg(AER + 4), 1 << 17);
    assert_eq!(bench.hierarchy.endpoint(0).unwrap().counters().overflows, 88);
}
