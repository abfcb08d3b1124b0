//! FLR, Hot Reset, power-on, power states (5.3, 6.6).

use etherslot_pci::function::{Fault, ResetKind};
use etherslot_wire::tlp::{CplStatus, Header, Op, code};

use crate::Rule;
use crate::support::{
    AER, Act, BAR0, Bench, COMMAND, EXPRESS, Event, MSI, MSIX, PM, QUARANTINE_NS, TIMEOUT_NS, bar2,
    completion, function, port, stream,
};

/// The rows of this part of the table.
pub(crate) const RULES: &[Rule] = &[
    Rule(
        "6.6.2",
        "A Function that tells Function Level Reset Capability is reset by Initiate FLR, which reads 0",
        flr_is_told_and_started_by_its_bit,
    ),
    Rule(
        "6.6.2",
        "FLR starts only if the byte of its bit is written",
        a_write_that_does_not_enable_the_bit_starts_no_flr,
    ),
    Rule(
        "6.6.2",
        "FLR resets BARs, Command and interrupt set-up; memory is not decoded behind it",
        flr_sets_registers_to_their_defaults,
    ),
    Rule(
        "6.6.2",
        "Max_Payload_Size, Link Control and the captured ID outlive FLR; Max_Read_Request_Size does not",
        flr_leaves_what_belongs_to_the_link,
    ),
    Rule(
        "6.6.1",
        "Error logs are sticky: neither FLR nor Hot Reset clears them",
        sticky_bits_outlive_flr_and_hot_reset,
    ),
    Rule(
        "6.6.1",
        "A Fundamental Reset clears sticky bits, too, and forgets Tags and the ID",
        a_new_host_finds_nothing_of_the_last_one,
    ),
    Rule(
        "6.6.2",
        "After FLR no Completion reaches the Function for what it asked before, and none is an error",
        flr_ends_reads_unheard_and_late_completions_are_no_error,
    ),
    Rule(
        "6.6.2",
        "Requests received before FLR are completed: short ones with their data, unread ones with UR",
        requests_that_wait_over_flr_are_answered,
    ),
    Rule("6.6.2", "INTA that was asserted is deasserted by FLR", flr_deasserts_inta),
    Rule(
        "6.6.1",
        "After Hot Reset nothing from before it is sent, and late Completions are dropped",
        nothing_follows_a_hot_reset,
    ),
    Rule(
        "7.5.1.3.13",
        "Secondary Bus Reset of a downstream port resets what is below, which can't be reached meanwhile",
        secondary_bus_reset_resets_the_slot,
    ),
    Rule(
        "7.5.3.7",
        "Link Disable takes the Link down: that resets what is below",
        link_disable_resets_the_slot,
    ),
    Rule(
        "7.5.1.3.13",
        "Secondary Bus Reset of the upstream port resets downstream ports and all that is below",
        secondary_bus_reset_of_the_upstream_port_resets_all,
    ),
    Rule(
        "5.3.1.4",
        "In D3Hot, Memory Requests are unsupported and none are issued; configuration works",
        a_function_in_d3hot_takes_configuration_only,
    ),
    Rule(
        "7.5.2.2",
        "With No_Soft_Reset, a Function keeps its state over D3Hot",
        a_function_comes_back_from_d3hot_as_it_was,
    ),
    Rule(
        "7.5.2.2",
        "A write of an unsupported power state does not change the state",
        power_states_that_are_not_there_are_not_entered,
    ),
    Rule("5.3.1.4", "Completions of Requests under way are taken in D3Hot", reads_end_in_any_power_state),
    Rule("6.6.2", "Pending vectors do not outlive a reset", a_reset_forgets_interrupts_that_wait),
    Rule(
        "6.6.2",
        "A Function hears nothing of reads from before its reset",
        timeouts_of_before_a_reset_do_not_come_after_it,
    ),
];

const UR: CplStatus = CplStatus::UnsupportedRequest;
const FLR: u32 = 1 << 15;

fn function_level_reset(bench: &mut Bench) {
    let control = bench.reg(EXPRESS + 8);
    bench.scratch[0].take_events();
    bench.set_reg(EXPRESS + 8, control | FLR);
    assert_eq!(bench.scratch[0].take_events(), [Event::Reset(ResetKind::FunctionLevel)]);
}

/// Makes the Function detect an error.
fn unsupported_request(bench: &mut Bench) {
    assert_eq!(bench.mem_read(0, BAR0 + 0x8000, 4), Err(UR));
}

#[test]
fn flr_is_told_and_started_by_its_bit() {
    let mut bench = Bench::new();
    assert_eq!(bench.reg(EXPRESS + 4) >> 28 & 1, 1);
    function_level_reset(&mut bench);
    assert_eq!(bench.reg(EXPRESS + 8) & FLR, 0);
    assert_eq!(bench.hierarchy.endpoint(0).unwrap().counters().function_resets, 1);
}

#[test]
fn a_write_that_does_not_enable_the_bit_starts_no_flr() {
    let mut bench = Bench::new();
    bench.cfg(0, function(0), EXPRESS + 8, Some((!0xF_0000, 0b0001)));
    assert_eq!(bench.scratch[0].take_events(), []);
}

#[test]
fn flr_sets_registers_to_their_defaults() {
    let mut bench = Bench::new();
    bench.set_reg(MSI, 1 << 16);
    bench.mem_write(0, bar2(0) + 0x1100, &[0xFF; 16]);
    function_level_reset(&mut bench);
    for register in [0x10, 0x1C, MSI + 4] {
        assert_eq!(bench.reg(register), 0, "{register:#x}");
    }
    assert_eq!((bench.reg(COMMAND) & 0xFFFF, bench.reg(MSI) >> 16 & 1), (0, 0));
    assert_eq!(bench.mem_read(0, BAR0, 4), Err(UR));
    bench.program_function(0);
    let entry = bench.mem_read(0, bar2(0) + 0x1100, 16).unwrap();
    assert_eq!(entry, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]);
}

#[test]
fn flr_leaves_what_belongs_to_the_link() {
    let mut bench = Bench::new();
    bench.set_reg(EXPRESS + 8, 0x5040);
    bench.set_reg(EXPRESS + 16, 0x0048);
    function_level_reset(&mut bench);
    assert_eq!(bench.reg(EXPRESS + 8) & 0x70E0, 0x2040);
    assert_eq!(bench.reg(EXPRESS + 16) & 0xFFFF, 0x0048);
    assert_eq!(bench.hierarchy.endpoint(0).unwrap().id(), function(0));
}

#[test]
fn sticky_bits_outlive_flr_and_hot_reset() {
    let mut bench = Bench::new();
    bench.set_reg(AER + 8, 1 << 14);
    unsupported_request(&mut bench);
    let log: Vec<u32> = (0..7).map(|dw| bench.reg(AER + 4 + 4 * dw)).collect();
    assert_eq!(log[0], 1 << 20);
    function_level_reset(&mut bench);
    assert_eq!((0..7).map(|dw| bench.reg(AER + 4 + 4 * dw)).collect::<Vec<_>>(), log);
    bench.hierarchy.hot_reset(0);
    assert_eq!((0..7).map(|dw| bench.reg(AER + 4 + 4 * dw)).collect::<Vec<_>>(), log);
    assert_eq!(bench.reg(EXPRESS + 8) >> 16, 0, "Device Status is not sticky");
}

#[test]
fn a_new_host_finds_nothing_of_the_last_one() {
    let mut bench = Bench::new();
    unsupported_request(&mut bench);
    bench.act(0, Act::Read(0x1000, 4096, 1));
    let mut endpoint = bench.hierarchy.unplug(0).unwrap();
    endpoint.attach(512, 512);
    assert_eq!(endpoint.config().u32(AER + 4), 0);
    assert_eq!(endpoint.id().0, 0);
    bench.hierarchy.plug(0, stream(0), endpoint);
    bench.program_function(0);
    bench.host.take();
    bench.act(0, Act::Read(0x1000, 4096, 2));
    assert_eq!(bench.host.take_reads().len(), 8);
}

#[test]
fn flr_ends_reads_unheard_and_late_completions_are_no_error() {
    let mut bench = Bench::new();
    bench.act(0, Act::Read(0x1000, 1024, 1));
    let reads = bench.host.take_reads();
    function_level_reset(&mut bench);
    bench.program_function(0);
    bench.act(0, Act::Read(0x9000, 512, 2));
    let again = bench.host.take_reads();
    assert!(reads.iter().all(|read| read.tag != again[0].tag));
    bench.scratch[0].take_events();
    bench.complete(&reads[0], &[1; 512]);
    bench.complete(&again[0], &[2; 512]);
    assert_eq!(bench.scratch[0].take_events(), [Event::Completed(2, 0x9000, vec![2; 512])]);
    assert_eq!(bench.reg(AER + 4), 0);
    bench.now_ns += TIMEOUT_NS + QUARANTINE_NS;
    bench.settle();
    assert_eq!(bench.scratch[0].take_events(), [], "no timeout either");
}

#[test]
fn requests_that_wait_over_flr_are_answered() {
    let mut bench = Bench::new();
    bench.scratch[0].fill(0, |_| 0x77);
    bench.host.budget = 0;
    let short = bench.mem_read_begin(0, BAR0, 8);
    let long = bench.mem_read_begin(0, BAR0, 1000);
    let header = Header::new(Op::CfgWrite(etherslot_wire::tlp::CfgRequest {
        kind: etherslot_wire::tlp::CfgType::Type1,
        requester: crate::support::ROOT,
        tag: 250,
        target: function(0),
        register: EXPRESS + 8,
        first_be: 2,
    }));
    bench.send(0, &header, &FLR.to_le_bytes());
    bench.host.budget = usize::MAX;
    bench.settle();
    assert_eq!(bench.host.take_completion(1, short).unwrap().1, [0x77; 8]);
    let (refused, _) = bench.host.take_completion(1, long).unwrap();
    assert_eq!((refused.status, refused.byte_count), (UR, 1000));
    assert_eq!(bench.host.take_completion(1, 250).unwrap().0.status, CplStatus::Success);
}

#[test]
fn flr_deasserts_inta() {
    let mut bench = Bench::new();
    bench.act(0, Act::IntX(true));
    function_level_reset(&mut bench);
    assert_eq!(bench.host.take_messages(), [code::ASSERT_INTA, code::DEASSERT_INTA]);
    assert_eq!(bench.reg(COMMAND) >> 19 & 1, 0);
}

#[test]
fn nothing_follows_a_hot_reset() {
    let mut bench = Bench::new();
    bench.act(0, Act::Read(0x1000, 64, 1));
    bench.act(0, Act::IntX(true));
    let read = match bench.host.take().remove(0).header.op {
        Op::MemRead(read) => read,
        other => panic!("{other:?}"),
    };
    bench.host.budget = 0;
    bench.mem_read_begin(0, BAR0, 8);
    bench.mem_read_begin(0, BAR0, 1000);
    bench.scratch[0].act(Act::Write(0x1000, vec![1; 4]));
    bench.hierarchy.hot_reset(0);
    bench.host.budget = usize::MAX;
    bench.settle();
    assert!(bench.host.take().is_empty());
    bench.scratch[0].take_events();
    bench.complete(&read, &[1; 64]);
    assert_eq!(bench.scratch[0].take_events(), []);
    assert_eq!(bench.reg(COMMAND) & 0xFFFF, 0);
}

#[test]
fn secondary_bus_reset_resets_the_slot() {
    let mut bench = Bench::new();
    bench.cfg_write(0, port(0), 0x3C, 0x0040_0000);
    assert_eq!(bench.scratch[0].take_events(), [Event::Reset(ResetKind::Conventional)]);
    assert_eq!(bench.cfg(0, function(0), 0, None).0, UR);
    assert_eq!(bench.cfg_read(0, port(0), EXPRESS + 16) >> 29 & 1, 0, "the Link is down");
    bench.cfg_write(0, port(0), 0x3C, 0);
    assert_eq!(bench.reg(0), 0x5678_1234);
    assert_eq!(bench.cfg_read(0, port(0), EXPRESS + 16) >> 29 & 1, 1);
    assert_eq!(bench.scratch[0].take_events(), []);
}

#[test]
fn link_disable_resets_the_slot() {
    let mut bench = Bench::new();
    bench.cfg_write(0, port(0), EXPRESS + 16, 0x10);
    assert_eq!(bench.scratch[0].take_events(), [Event::Reset(ResetKind::Conventional)]);
    assert_eq!(bench.mem_read(0, BAR0, 4), Err(UR));
}

#[test]
fn secondary_bus_reset_of_the_upstream_port_resets_all() {
    let mut bench = Bench::with(&[crate::support::spec(), crate::support::spec()]);
    bench.cfg_write(0, crate::support::UPSTREAM, 0x3C, 0x0040_0000);
    for slot in 0..2 {
        assert_eq!(bench.scratch[slot].take_events(), [Event::Reset(ResetKind::Conventional)]);
    }
    assert_eq!(bench.cfg(0, port(0), 0x18, None).0, UR);
    bench.cfg_write(0, crate::support::UPSTREAM, 0x3C, 0);
    assert_eq!(bench.cfg_read(0, port(0), 0x18), 0);
}

#[test]
fn a_function_in_d3hot_takes_configuration_only() {
    let mut bench = Bench::new();
    bench.set_reg(PM + 4, 3);
    assert_eq!(bench.mem_read(0, BAR0, 4), Err(UR));
    bench.act(0, Act::Write(0x1000, vec![1; 4]));
    assert!(bench.host.take_writes().is_empty());
    assert!(!bench.scratch[0].is_master());
    assert_eq!(bench.reg(PM + 4) & 3, 3);
}

#[test]
fn a_function_comes_back_from_d3hot_as_it_was() {
    let mut bench = Bench::new();
    assert_eq!(bench.reg(PM + 4) & 8, 8);
    bench.set_reg(PM + 4, 3);
    bench.set_reg(PM + 4, 0);
    assert_eq!(bench.scratch[0].take_events(), []);
    assert_eq!(bench.mem_read(0, BAR0, 4), Ok(vec![0; 4]));
}

#[test]
fn power_states_that_are_not_there_are_not_entered() {
    let mut bench = Bench::new();
    for state in [1, 2] {
        bench.set_reg(PM + 4, state);
        assert_eq!(bench.reg(PM + 4) & 3, 0);
    }
    bench.set_reg(PM + 4, 3);
    bench.set_reg(PM + 4, 1);
    assert_eq!(bench.reg(PM + 4) & 3, 3);
}

#[test]
fn reads_end_in_any_power_state() {
    let mut bench = Bench::new();
    bench.act(0, Act::Read(0x1000, 4, 1));
    let read = bench.host.take_reads()[0];
    bench.set_reg(PM + 4, 3);
    bench.complete(&read, &[1; 4]);
    assert_eq!(bench.scratch[0].take_events(), [Event::Completed(1, 0x1000, vec![1; 4])]);
}

#[test]
fn a_reset_forgets_interrupts_that_wait() {
    let mut bench = Bench::new();
    bench.set_reg(MSIX, 1 << 31);
    bench.act(0, Act::Interrupt(3));
    assert_eq!(bench.mem_read(0, bar2(0) + 0x2000, 8).unwrap()[0], 8);
    function_level_reset(&mut bench);
    bench.program_function(0);
    assert_eq!(bench.mem_read(0, bar2(0) + 0x2000, 8).unwrap(), [0; 8]);
}

#[test]
fn timeouts_of_before_a_reset_do_not_come_after_it() {
    let mut bench = Bench::new();
    bench.act(0, Act::Read(0x1000, 4, 1));
    let read = bench.host.take_reads()[0];
    bench.now_ns += TIMEOUT_NS;
    bench.settle();
    assert_eq!(bench.scratch[0].take_events(), [Event::Failed(1, 0x1000, 4, Fault::Timeout)]);
    bench.hierarchy.hot_reset(0);
    bench.scratch[0].take_events();
    bench.send(0, &Header::new(Op::Completion(completion(&read, 0, 4))), &[0; 4]);
    bench.now_ns += TIMEOUT_NS;
    bench.settle();
    assert_eq!(bench.scratch[0].take_events(), []);
}
