//! The switch: configuration, routing by ID and by address, isolation (2.2.4, 7.3, 7.5.1.3).

use etherslot_pci::endpoint::{Endpoint, EndpointConfig};
use etherslot_pci::function::Fault;
use etherslot_wire::FunctionId;
use etherslot_wire::tlp::{CfgRequest, CfgType, CplStatus, Header, MemRequest, Op, Routing};

use crate::Rule;
use crate::support::{
    Act, BAR0, Bench, COMMAND, EXPRESS, Event, ROOT, ScratchFunction, UPSTREAM, bar0, bar2, completion,
    function, port, spec, stream,
};

/// The rows of this part of the table.
pub(crate) const RULES: &[Rule] = &[
    Rule(
        "7.3.3",
        "A Type 0 Configuration Request on the upstream Link is for the upstream port, device 0, Function 0",
        type_0_configures_the_upstream_port,
    ),
    Rule(
        "7.3.1",
        "A Type 1 Configuration Request for the secondary bus of the upstream port is for a downstream port",
        the_internal_bus_has_a_port_for_each_slot,
    ),
    Rule(
        "7.3.3",
        "A downstream port turns a Type 1 Request for its secondary bus into a Type 0 one, for device 0 only",
        type_1_becomes_type_0_on_its_bus,
    ),
    Rule(
        "7.5.1.3.1",
        "Buses outside a bridge's secondary to subordinate range are not below it",
        unnumbered_buses_lead_nowhere,
    ),
    Rule(
        "7.5.1.3.1",
        "A switch out of reset passes no Configuration Request on",
        nothing_passes_before_buses_are_numbered,
    ),
    Rule("2.3.1", "Requests for what is not there end with UR", an_empty_slot_answers_ur),
    Rule(
        "7.5.3.11",
        "Presence and Link changes show in Slot Status and Link Status, and are cleared by writing 1",
        slot_status_tells_what_comes_and_goes,
    ),
    Rule(
        "7.5.1.3.6",
        "A bridge passes Memory Requests downwards that are inside its windows",
        windows_lead_down,
    ),
    Rule(
        "7.5.1.1.3",
        "A bridge without Memory Space Enable passes nothing downwards",
        memory_space_enable_of_each_bridge_counts,
    ),
    Rule(
        "7.5.1.1.3",
        "A bridge without Bus Master Enable answers Memory Requests from below with UR, and passes Completions",
        bus_master_enable_of_each_bridge_counts,
    ),
    Rule(
        "7.5.1.1.3",
        "Bus Master Enable of a bridge does not keep Messages back",
        messages_pass_without_bus_master_enable,
    ),
    Rule(
        "7.5.1.3.6",
        "A bridge passes Memory Requests upwards that are outside its windows",
        what_is_in_no_window_goes_upstream,
    ),
    Rule(
        "7.5.1.3.6",
        "A bridge does not pass upwards what is inside its own windows",
        a_request_into_its_own_window_goes_nowhere,
    ),
    Rule(
        "7.5.1.3.6",
        "What is inside the upstream port's window but in no downstream one's is not passed upwards",
        a_hole_in_the_upstream_window_goes_nowhere,
    ),
    Rule(
        "1.3.3",
        "A Memory Request from a downstream port into another's window goes there, and its Completion back",
        peers_reach_each_other_by_address,
    ),
    Rule(
        "6.12.3",
        "With peer-to-peer redirected, Memory Requests go to the host wherever they lead",
        peer_requests_can_be_sent_upstream_instead,
    ),
    Rule(
        "6.12.3",
        "Redirected Requests reach the Functions of their own address space, and no others",
        a_domain_is_an_address_space,
    ),
    Rule(
        "6.12.3",
        "Completions reach Functions of the same address space only",
        completions_reach_peers_only,
    ),
    Rule(
        "2.3.2",
        "A Requester that is gone gets no Completions, nor does the next one with its ID",
        what_was_asked_of_peers_ends_with_the_asker,
    ),
    Rule(
        "7.5.1.2.1",
        "Requests are for the Function whose BAR has their address, whoever else is in the same window",
        neighbours_in_a_window_are_told_apart_by_what_they_decode,
    ),
    Rule(
        "2.3.1",
        "A peer that does not take a Request answers it with UR",
        a_peer_that_answers_ur_fails_the_read,
    ),
    Rule(
        "2.6.1",
        "A peer's Non-Posted Requests wait until they can be answered; those of the host still find room",
        peers_are_held_back_before_answers_overflow,
    ),
    Rule("2.2.9", "A Completion goes to the bus of its Requester ID", completions_are_routed_by_requester_id),
    Rule(
        "2.3.2",
        "A Completion for a bus that is not there is dropped and recorded",
        completions_to_nowhere_are_dropped,
    ),
    Rule(
        "6.12",
        "What comes on the stream of one slot reaches no other slot's Function",
        a_stream_reaches_its_own_slot_only,
    ),
    Rule(
        "6.12.1.1",
        "A Request on a stream whose Requester is not on bus 0 is refused",
        requests_from_above_come_from_the_root_complex,
    ),
    Rule(
        "2.2.8",
        "Broadcast Messages go to the Function, local ones end at the switch, others are unsupported",
        messages_from_the_root_reach_the_function_or_end,
    ),
    Rule(
        "2.7.2.1",
        "A poisoned Configuration Write to a port has no effect and ends with UR",
        poisoned_configuration_of_a_port_is_refused,
    ),
    Rule(
        "2.6.1.1",
        "More Configuration Requests to ports than can be answered are dropped and counted",
        what_waits_at_a_port_is_bounded,
    ),
    Rule(
        "5.3.1.4",
        "A bridge in D3Hot takes configuration only and passes no Memory Request",
        a_port_in_d3hot_passes_nothing,
    ),
];

const UR: CplStatus = CplStatus::UnsupportedRequest;

fn two() -> Bench {
    Bench::with(&[spec(), spec()])
}

fn read_status(bench: &mut Bench, slot: u8, target: FunctionId) -> CplStatus {
    bench.cfg(slot, target, 0, None).0
}

#[test]
fn type_0_configures_the_upstream_port() {
    let mut bench = Bench::new();
    assert_eq!(bench.cfg_read(0, UPSTREAM, 8) >> 8, 0x0006_0400);
    assert_eq!(bench.cfg_read(0, UPSTREAM, 0x0C) >> 16 & 0xFF, 1);
    assert_eq!(bench.cfg_read(0, UPSTREAM, EXPRESS) >> 20 & 0xF, 5, "Upstream Port of a Switch");
    assert_eq!(read_status(&mut bench, 0, FunctionId::new(1, 1, 0)), UR);
    assert_eq!(read_status(&mut bench, 0, FunctionId::new(1, 0, 1)), UR);
}

#[test]
fn the_internal_bus_has_a_port_for_each_slot() {
    let mut bench = two();
    for slot in [0, 1, 31] {
        assert_eq!(bench.cfg_read(0, port(slot), EXPRESS) >> 20 & 0xF, 6, "Downstream Port of a Switch");
        let slot_capabilities = bench.cfg_read(0, port(slot), EXPRESS + 0x14);
        assert_eq!(slot_capabilities >> 19, u32::from(slot));
        assert_eq!(bench.cfg_read(0, port(slot), EXPRESS + 0x0C) >> 24, u32::from(slot));
    }
    assert_eq!(read_status(&mut bench, 0, FunctionId::new(2, 0, 1)), UR);
}

#[test]
fn type_1_becomes_type_0_on_its_bus() {
    let mut bench = two();
    assert_eq!(bench.cfg_read(1, function(1), 0), 0x5678_1234);
    assert_eq!(read_status(&mut bench, 1, FunctionId::new(4, 1, 0)), UR);
    assert_eq!(read_status(&mut bench, 1, FunctionId::new(4, 0, 1)), UR);
}

#[test]
fn unnumbered_buses_lead_nowhere() {
    let mut bench = two();
    assert_eq!(read_status(&mut bench, 0, FunctionId::new(5, 0, 0)), UR);
    bench.cfg_write(0, port(0), 0x18, 0x0006_0602);
    assert_eq!(read_status(&mut bench, 0, function(0)), UR);
    assert_eq!(read_status(&mut bench, 0, FunctionId::new(6, 0, 0)), CplStatus::Success);
    bench.cfg_write(0, port(0), 0x18, 0x0007_0602);
    assert_eq!(read_status(&mut bench, 0, FunctionId::new(7, 0, 0)), UR, "there is no bridge below");
    bench.cfg_write(0, UPSTREAM, 0x18, 0x0003_0201);
    assert_eq!(read_status(&mut bench, 0, FunctionId::new(6, 0, 0)), UR);
}

#[test]
fn nothing_passes_before_buses_are_numbered() {
    let mut bench = Bench::new();
    bench.cfg_write(0, UPSTREAM, 0x18, 0);
    assert_eq!(read_status(&mut bench, 0, port(0)), UR);
    assert_eq!(read_status(&mut bench, 0, FunctionId::new(0, 0, 0)), UR);
}

#[test]
fn an_empty_slot_answers_ur() {
    let mut bench = Bench::new();
    bench.cfg_write(0, port(5), 0x18, 0x0008_0802);
    assert_eq!(read_status(&mut bench, 0, function(5)), UR);
    assert_eq!(bench.cfg_read(0, port(5), EXPRESS + 0x18) >> 22 & 1, 0, "Presence Detect State");
}

#[test]
fn slot_status_tells_what_comes_and_goes() {
    let mut bench = Bench::new();
    let status = bench.cfg_read(0, port(0), EXPRESS + 0x18);
    assert_eq!(status >> 16 & 0x148, 0x148);
    bench.cfg_write(0, port(0), EXPRESS + 0x18, 0x108 << 16);
    assert_eq!(bench.cfg_read(0, port(0), EXPRESS + 0x18) >> 16, 0x40);
    bench.hierarchy.unplug(0).unwrap();
    assert!(bench.hierarchy.unplug(0).is_none());
    let (function, scratch) = crate::support::ScratchFunction::new(spec());
    let mut endpoint = Box::new(Endpoint::new(Box::new(function), EndpointConfig::default()));
    endpoint.attach(128, 128);
    bench.scratch.push(scratch);
    bench.hierarchy.plug(1, stream(1), endpoint);
    assert_eq!(bench.cfg_read(1, port(0), EXPRESS + 0x18) >> 16 & 0x148, 0x108);
    assert_eq!(bench.cfg_read(1, port(0), EXPRESS + 16) >> 29 & 1, 0);
    assert_eq!(bench.cfg_read(1, port(1), EXPRESS + 16) >> 29 & 1, 1);
}

#[test]
fn windows_lead_down() {
    let mut bench = two();
    bench.mem_write(1, bar0(1), &[1; 4]);
    bench.mem_write(1, bar2(1), &[2; 4]);
    let events = bench.scratch[1].take_events();
    assert_eq!(events, [Event::BarWrite(0, 0, vec![1; 4]), Event::BarWrite(2, 0, vec![2; 4])]);
    bench.cfg_write(1, port(1), 0x20, 0x0000_FFF0);
    assert_eq!(bench.mem_read(1, bar0(1), 4), Err(UR));
    assert_eq!(bench.mem_read(1, bar2(1), 4), Ok(vec![2; 4]));
}

#[test]
fn memory_space_enable_of_each_bridge_counts() {
    for bridge in [UPSTREAM, port(0)] {
        let mut bench = Bench::new();
        bench.cfg_write(0, bridge, COMMAND, 4);
        assert_eq!(bench.mem_read(0, BAR0, 4), Err(UR));
        bench.mem_write(0, BAR0, &[1; 4]);
        assert_eq!(bench.scratch[0].take_events(), []);
        assert_eq!(bench.hierarchy.counters().unrouted, 2);
    }
}

#[test]
fn bus_master_enable_of_each_bridge_counts() {
    for bridge in [UPSTREAM, port(0)] {
        let mut bench = Bench::new();
        bench.cfg_write(0, bridge, COMMAND, 2);
        bench.act(0, Act::Read(0x1000, 64, 1));
        bench.act(0, Act::Write(0x1000, vec![1; 4]));
        let expected = [Event::Failed(1, 0x1000, 64, Fault::UnsupportedRequest)];
        assert_eq!(bench.scratch[0].take_events(), expected);
        assert!(bench.host.take().is_empty());
        assert!(bench.mem_read(0, BAR0, 4).is_ok());
    }
}

#[test]
fn messages_pass_without_bus_master_enable() {
    let mut bench = Bench::new();
    bench.cfg_write(0, UPSTREAM, COMMAND, 2);
    bench.act(0, Act::IntX(true));
    assert_eq!(bench.host.take_messages(), [0x20]);
}

#[test]
fn what_is_in_no_window_goes_upstream() {
    let mut bench = Bench::new();
    bench.act(0, Act::Write(0x1000, vec![1; 4]));
    bench.act(0, Act::Write(u64::MAX - 3, vec![2; 4]));
    let sent = bench.host.take();
    assert_eq!(sent.iter().map(|sent| sent.stream).collect::<Vec<_>>(), [1, 1]);
}

#[test]
fn a_request_into_its_own_window_goes_nowhere() {
    let mut bench = Bench::new();
    bench.act(0, Act::Write(BAR0, vec![1; 4]));
    bench.act(0, Act::Read(BAR0, 4, 1));
    assert!(bench.host.take().is_empty());
    assert_eq!(bench.scratch[0].take_events(), [Event::Failed(1, BAR0, 4, Fault::UnsupportedRequest)]);
}

#[test]
fn a_hole_in_the_upstream_window_goes_nowhere() {
    let mut bench = two();
    bench.cfg_write(0, port(1), COMMAND, 0);
    bench.act(0, Act::Read(bar0(1), 4, 1));
    assert!(bench.host.take().is_empty());
    assert_eq!(bench.scratch[0].take_events(), [Event::Failed(1, bar0(1), 4, Fault::UnsupportedRequest)]);
}

#[test]
fn peers_reach_each_other_by_address() {
    let mut bench = two();
    bench.scratch[1].fill(2, |at| at as u8);
    bench.act(0, Act::Write(bar0(1) + 3, vec![7; 600]));
    bench.act(0, Act::Read(bar2(1) + 1, 300, 5));
    let written: usize = bench.scratch[1]
        .take_events()
        .iter()
        .map(|event| match event {
            Event::BarWrite(0, _, data) => data.len(),
            _ => 0,
        })
        .sum();
    assert_eq!(written, 600);
    assert_eq!(bench.scratch[1].bar(0, 2, 602), [vec![0], vec![7; 600], vec![0]].concat());
    let read: Vec<u8> = bench.scratch[0]
        .take_events()
        .into_iter()
        .flat_map(|event| match event {
            Event::Completed(5, _, data) => data,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(read, (1..301_u16).map(|at| at as u8).collect::<Vec<_>>());
    assert!(bench.host.take().is_empty());
}

#[test]
fn peer_requests_can_be_sent_upstream_instead() {
    let mut bench = two();
    bench.hierarchy.set_peer_to_peer(false);
    bench.act(0, Act::Write(bar0(1), vec![7; 4]));
    assert_eq!(bench.host.take_writes(), [(bar0(1), vec![7; 4])]);
    assert_eq!(bench.scratch[1].take_events(), []);
}

/// Three Functions, the first two of one domain, and windows of the upstream port that are those of several address spaces.
fn domains() -> Bench {
    let mut bench = Bench::with(&[spec(), spec(), spec()]);
    bench.hierarchy.set_peer_to_peer(false);
    bench.hierarchy.set_domain(0, 7);
    bench.hierarchy.set_domain(1, 7);
    bench.hierarchy.set_domain(2, 8);
    bench
}

#[test]
fn a_domain_is_an_address_space() {
    let mut bench = domains();
    bench.act(0, Act::Write(bar0(1), vec![7; 4]));
    bench.act(0, Act::Read(bar0(1), 4, 5));
    assert!(bench.host.take().is_empty());
    assert_eq!(bench.scratch[0].take_events(), [Event::Completed(5, bar0(1), vec![7; 4])]);
    for (from, to) in [(0, 2), (2, 0), (2, 1)] {
        bench.act(from, Act::Write(bar0(to), vec![9; 4]));
        assert_eq!(bench.host.take_writes(), [(bar0(to), vec![9; 4])], "{from} to {to}");
    }
    // What no BAR of the domain decodes is the host's.
    bench.act(0, Act::Write(bar0(1) + 0x8_0000, vec![9; 4]));
    assert_eq!(bench.host.take_writes().len(), 1);
    bench.hierarchy.set_domain(1, 0);
    bench.act(0, Act::Write(bar0(1), vec![9; 4]));
    assert_eq!(bench.host.take_writes().len(), 1);
}

#[test]
fn completions_reach_peers_only() {
    let mut bench = domains();
    bench.scratch[0].act(Act::Read(bar0(1), 256, 5));
    // The Request is there; its answer is made when it leaves.
    bench.hierarchy.set_domain(0, 0);
    bench.settle();
    let events = bench.scratch[0].take_events();
    assert!(!events.iter().any(|event| matches!(event, Event::Completed(..))), "{events:?}");
}

#[test]
fn what_was_asked_of_peers_ends_with_the_asker() {
    let mut bench = domains();
    bench.host.budget = 0;
    // The peer's answer waits behind one to the host.
    bench.mem_read_begin(1, bar0(1), 4);
    bench.host.budget = 1;
    bench.scratch[0].act(Act::Read(bar0(1), 256, 5));
    bench.mem_read_begin(1, bar0(1), 4);
    bench.mem_read_begin(1, bar0(1), 4);
    bench.settle();
    bench.hierarchy.unplug(0);
    bench.host.budget = usize::MAX;
    let (made, scratch) = ScratchFunction::new(spec());
    let config = EndpointConfig { tags: 8, ..EndpointConfig::default() };
    bench.hierarchy.plug(0, stream(0), Box::new(Endpoint::new(Box::new(made), config)));
    bench.scratch[0] = scratch;
    bench.hierarchy.set_domain(0, 7);
    bench.program_function(0);
    bench.settle();
    let endpoint = bench.hierarchy.endpoint(0).unwrap();
    assert_eq!(endpoint.requester_counters().unexpected_completions, 0);
    assert_eq!(bench.hierarchy.counters().unrouted_completions, 0);
    assert_eq!(bench.scratch[0].take_events(), [Event::Identified(function(0))]);
    bench.act(0, Act::Write(bar0(1), vec![7; 4]));
    assert_eq!(bench.scratch[1].bar(0, 0, 4), [7; 4]);
}

#[test]
fn neighbours_in_a_window_are_told_apart_by_what_they_decode() {
    let mut bench = domains();
    // Next to the other's BAR, in the same unit of windows.
    let address = bar0(0) + 0x8_0000;
    bench.cfg_write(1, function(1), 0x10, address as u32);
    bench.cfg_write(1, port(1), 0x20, (address >> 16 & 0xFFF0) as u32 * 0x1_0001);
    bench.act(0, Act::Write(address, vec![7; 4]));
    assert_eq!(bench.scratch[1].bar(0, 0, 4), [7; 4]);
    assert!(bench.host.take().is_empty());
}

#[test]
fn a_peer_that_answers_ur_fails_the_read() {
    let mut bench = two();
    bench.act(0, Act::Read(bar0(1) + 0x8000, 16, 5));
    assert_eq!(
        bench.scratch[0].take_events(),
        [Event::Failed(5, bar0(1) + 0x8000, 16, Fault::UnsupportedRequest)]
    );
}

#[test]
fn peers_are_held_back_before_answers_overflow() {
    let mut bench = Bench::with_tags(&[spec(), spec()], 1024);
    bench.host.budget = 0;
    for _ in 0..256 {
        bench.mem_read_begin(1, bar0(1), 4);
    }
    bench.host.budget = 1;
    bench.scratch[0].act(Act::Read(bar0(1), 64, 5));
    bench.settle();
    assert_eq!((bench.host.sent.len(), bench.scratch[0].waiting()), (1, 1));
    bench.host.budget = usize::MAX;
    bench.settle();
    assert_eq!(bench.scratch[0].take_events(), [Event::Completed(5, bar0(1), vec![0; 64])]);
    assert_eq!(bench.hierarchy.endpoint(1).unwrap().counters().overflows, 0);
}

#[test]
fn completions_are_routed_by_requester_id() {
    let mut bench = two();
    bench.act(1, Act::Read(0x1000, 4, 3));
    let read = bench.host.take_reads()[0];
    assert_eq!(read.requester, function(1));
    bench.send(1, &Header::new(Op::Completion(completion(&read, 0, 4))), &[5; 4]);
    assert_eq!(bench.scratch[1].take_events(), [Event::Completed(3, 0x1000, vec![5; 4])]);
}

#[test]
fn completions_to_nowhere_are_dropped() {
    let mut bench = Bench::new();
    let request = MemRequest::covering(FunctionId::new(9, 0, 0), 0, 0x1000, 4).unwrap();
    bench.complete(&request, &[0; 4]);
    assert_eq!(bench.hierarchy.counters().unrouted_completions, 1);
    assert_eq!(bench.cfg_read(0, UPSTREAM, 0x104), 1 << 16);
}

#[test]
fn a_stream_reaches_its_own_slot_only() {
    let mut bench = two();
    assert_eq!(read_status(&mut bench, 0, function(1)), UR);
    assert_eq!(bench.mem_read(0, bar0(1), 4), Err(UR));
    bench.mem_write(0, bar0(1), &[1; 4]);
    bench.act(1, Act::Read(0x1000, 4, 3));
    let read = bench.host.take_reads()[0];
    bench.complete(&read, &[0; 4]);
    assert_eq!(bench.scratch[1].take_events(), []);
    assert_eq!(bench.hierarchy.counters().trespassing, 4);
    bench.hierarchy.receive(0, 9, &[0; 16]);
    assert_eq!(bench.hierarchy.counters().stray, 1);
}

#[test]
fn requests_from_above_come_from_the_root_complex() {
    let mut bench = Bench::new();
    let forged = MemRequest { requester: function(0), ..MemRequest::covering(ROOT, 6, BAR0, 4).unwrap() };
    bench.send(0, &Header::new(Op::MemWrite(forged)), &[1; 4]);
    bench.send(0, &Header::new(Op::MemRead(forged)), &[]);
    bench.settle();
    assert_eq!(bench.scratch[0].take_events(), []);
    assert_eq!(bench.host.take_completion(1, 6).unwrap().0.status, UR);
    assert_eq!(bench.hierarchy.counters().spoofed, 2);
}

#[test]
fn messages_from_the_root_reach_the_function_or_end() {
    let mut bench = Bench::new();
    let message = |routing, code| {
        Header::new(Op::Message {
            routing,
            requester: ROOT,
            tag: 0,
            code,
            fields: [3, 0, 0, 0, 0, 0, 0, 0],
            length_dw: 0,
        })
    };
    for routing in [Routing::FromRoot, Routing::ById, Routing::Local] {
        bench.send(0, &message(routing, 0x19), &[]);
    }
    assert_eq!(bench.hierarchy.counters().unrouted, 0);
    for routing in [Routing::ToRoot, Routing::ByAddress, Routing::Gathered] {
        bench.send(0, &message(routing, 0x19), &[]);
    }
    assert_eq!(bench.hierarchy.counters().unrouted, 3);
    bench.send(0, &message(Routing::ById, 0x7E), &[]);
    assert_eq!(bench.hierarchy.endpoint(0).unwrap().counters().dropped_posted, 1);
}

#[test]
fn poisoned_configuration_of_a_port_is_refused() {
    let mut bench = Bench::new();
    for (target, kind) in [(UPSTREAM, CfgType::Type0), (port(0), CfgType::Type1)] {
        let request = CfgRequest { kind, requester: ROOT, tag: 8, target, register: 0x18, first_be: 15 };
        bench.send(0, &Header { poisoned: true, ..Header::new(Op::CfgWrite(request)) }, &[0; 4]);
        bench.settle();
        assert_eq!(bench.host.take_completion(1, 8).unwrap().0.status, UR);
        assert_ne!(bench.cfg_read(0, target, 0x18), 0);
    }
}

#[test]
fn what_waits_at_a_port_is_bounded() {
    let mut bench = Bench::new();
    bench.host.budget = 0;
    let request = CfgRequest {
        kind: CfgType::Type0,
        requester: ROOT,
        tag: 8,
        target: UPSTREAM,
        register: 0,
        first_be: 15,
    };
    for _ in 0..300 {
        bench.send(0, &Header::new(Op::CfgRead(request)), &[]);
    }
    assert_eq!(bench.hierarchy.counters().overflows, 44);
    bench.host.budget = usize::MAX;
    bench.settle();
    assert_eq!(bench.host.take().len(), 256);
}

#[test]
fn a_port_in_d3hot_passes_nothing() {
    let mut bench = Bench::new();
    bench.cfg_write(0, port(0), 0x44, 3);
    assert_eq!(bench.mem_read(0, BAR0, 4), Err(UR));
    bench.act(0, Act::Write(0x1000, vec![1; 4]));
    assert!(bench.host.take_writes().is_empty());
    bench.cfg_write(0, port(0), 0x44, 0);
    assert!(bench.mem_read(0, BAR0, 4).is_ok());
}
