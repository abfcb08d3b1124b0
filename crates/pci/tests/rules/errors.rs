//! Error detection, logging and signalling (6.2, 7.8.4).

use etherslot_wire::tlp::{CplStatus, Header, MemRequest, Op, Routing, code};

use crate::Rule;
use crate::support::{AER, BAR0, Bench, COMMAND, EXPRESS, ROOT, Sent, function};

/// The rows of this part of the table.
pub(crate) const RULES: &[Rule] = &[
    Rule(
        "6.2.3.2.4.1",
        "A Completer that answers UR records an Advisory Non-Fatal Error",
        a_refused_request_is_an_advisory_error,
    ),
    Rule(
        "6.2.3.2.3",
        "An unsupported Posted Request is a Non-Fatal Error",
        a_dropped_posted_request_is_a_non_fatal_error,
    ),
    Rule(
        "7.8.4.4",
        "An error whose severity bit is set is Fatal, advisory or not",
        the_severity_register_makes_an_error_fatal,
    ),
    Rule(
        "7.4",
        "RW1C bits are cleared by a 1, kept by a 0, and set by nothing written",
        status_bits_are_cleared_by_writing_one,
    ),
    Rule(
        "6.2.4.2",
        "Header Log and First Error Pointer belong to the first error until its status is cleared",
        the_header_log_holds_the_first_error,
    ),
    Rule(
        "6.2.4.1",
        "A masked error sets its status bit and nothing else",
        masked_errors_are_neither_logged_nor_told,
    ),
    Rule(
        "7.8.4.6",
        "Advisory Non-Fatal Errors are masked by default; unmasked, they send ERR_COR",
        advisory_errors_are_masked_at_first,
    ),
    Rule(
        "6.2.6",
        "ERR_NONFATAL is sent if Device Control enables it, for UR only with its own enable, or if SERR# is enabled",
        error_messages_need_their_enable,
    ),
    Rule(
        "6.2.6",
        "Errors while a Message waits add no second one of its kind",
        error_messages_of_a_kind_may_be_merged,
    ),
    Rule("7.5.3.3", "A Function that reports errors by role says so", role_based_error_reporting_is_told),
];

const UR: CplStatus = CplStatus::UnsupportedRequest;
const CORRECTABLE: u32 = 1;
const NON_FATAL: u32 = 2;
const FATAL: u32 = 4;
const UNSUPPORTED: u32 = 8;
const ADVISORY: u32 = 1 << 13;
const UR_BIT: u32 = 1 << 20;
const POISONED_BIT: u32 = 1 << 12;

fn device_status(bench: &mut Bench) -> u32 {
    bench.reg(EXPRESS + 8) >> 16 & 0xF
}

fn non_posted_ur(bench: &mut Bench) {
    assert_eq!(bench.mem_read(0, BAR0 + 0x8000, 4), Err(UR));
}

fn posted_ur(bench: &mut Bench) {
    bench.mem_write(0, BAR0 + 0x9000, &[1; 4]);
}

fn poisoned(bench: &mut Bench) {
    let request = MemRequest::covering(ROOT, 0, BAR0, 4).unwrap();
    bench.send(0, &Header { poisoned: true, ..Header::new(Op::MemWrite(request)) }, &[0; 4]);
}

/// Device Control with these enables.
fn enable(bench: &mut Bench, bits: u32) {
    bench.set_reg(EXPRESS + 8, 0x2910 | bits);
}

fn log(bench: &mut Bench) -> Vec<u32> {
    (0..4).map(|dw| bench.reg(AER + 0x1C + 4 * dw)).collect()
}

#[test]
fn a_refused_request_is_an_advisory_error() {
    let mut bench = Bench::new();
    non_posted_ur(&mut bench);
    assert_eq!(device_status(&mut bench), CORRECTABLE | UNSUPPORTED);
    assert_eq!((bench.reg(AER + 4), bench.reg(AER + 16)), (UR_BIT, ADVISORY));
}

#[test]
fn a_dropped_posted_request_is_a_non_fatal_error() {
    let mut bench = Bench::new();
    posted_ur(&mut bench);
    assert_eq!(device_status(&mut bench), NON_FATAL | UNSUPPORTED);
    assert_eq!((bench.reg(AER + 4), bench.reg(AER + 16)), (UR_BIT, 0));
}

#[test]
fn the_severity_register_makes_an_error_fatal() {
    let mut bench = Bench::new();
    bench.set_reg(AER + 12, UR_BIT);
    enable(&mut bench, 0xF);
    non_posted_ur(&mut bench);
    assert_eq!(device_status(&mut bench), FATAL | UNSUPPORTED);
    assert_eq!(bench.host.take_messages(), [code::ERR_FATAL]);
}

#[test]
fn status_bits_are_cleared_by_writing_one() {
    let mut bench = Bench::new();
    poisoned(&mut bench);
    posted_ur(&mut bench);
    bench.set_reg(AER + 4, POISONED_BIT);
    assert_eq!(bench.reg(AER + 4), UR_BIT);
    bench.set_reg(AER + 4, !UR_BIT);
    assert_eq!(bench.reg(AER + 4), UR_BIT);
    bench.set_reg(EXPRESS + 8, 0x2910 | NON_FATAL << 16);
    assert_eq!(device_status(&mut bench), UNSUPPORTED);
    bench.set_reg(COMMAND, 6 | 1 << 31);
    assert_eq!(bench.reg(COMMAND) >> 31, 0);
}

#[test]
fn the_header_log_holds_the_first_error() {
    let mut bench = Bench::new();
    enable(&mut bench, 0);
    bench.set_reg(AER + 0x14, 0);
    posted_ur(&mut bench);
    let first = log(&mut bench);
    assert_eq!(first, [0x4000_0001, 0x0000_000F, BAR0 as u32 + 0x9000, 0]);
    assert_eq!(bench.reg(AER + 0x18) & 0x1F, 20);
    poisoned(&mut bench);
    assert_eq!((log(&mut bench), bench.reg(AER + 0x18) & 0x1F), (first, 20));
    bench.set_reg(AER + 4, u32::MAX);
    poisoned(&mut bench);
    assert_eq!(log(&mut bench)[0], 0x4000_4001, "EP");
    assert_eq!(bench.reg(AER + 0x18) & 0x1F, 12);
}

#[test]
fn masked_errors_are_neither_logged_nor_told() {
    let mut bench = Bench::new();
    bench.set_reg(AER + 8, UR_BIT);
    enable(&mut bench, 0xF);
    posted_ur(&mut bench);
    bench.settle();
    assert_eq!((bench.reg(AER + 4), log(&mut bench)), (UR_BIT, vec![0; 4]));
    assert!(bench.host.take_messages().is_empty());
}

#[test]
fn advisory_errors_are_masked_at_first() {
    let mut bench = Bench::new();
    enable(&mut bench, 0xF);
    non_posted_ur(&mut bench);
    assert!(bench.host.take_messages().is_empty());
    bench.set_reg(AER + 0x14, 0);
    non_posted_ur(&mut bench);
    let sent = bench.host.take();
    let told = |sent: &&Sent| {
        let Op::Message { routing, requester, code, .. } = sent.header.op else { return false };
        (routing, requester, code) == (Routing::ToRoot, function(0), code::ERR_COR)
    };
    assert_eq!(sent.iter().filter(told).count(), 1);
}

#[test]
fn error_messages_need_their_enable() {
    for (enables, serr, told) in [(0, 0, 0), (2, 0, 0), (8, 0, 0), (10, 0, 1), (0, 1 << 8, 1)] {
        let mut bench = Bench::new();
        enable(&mut bench, enables);
        bench.set_reg(COMMAND, 6 | serr);
        bench.host.take();
        posted_ur(&mut bench);
        bench.settle();
        assert_eq!(bench.host.take_messages(), vec![code::ERR_NONFATAL; told], "{enables:#x} {serr:#x}");
        assert_eq!(bench.reg(COMMAND) >> 30 & 1, u32::from(serr != 0), "Signaled System Error");
    }
}

#[test]
fn error_messages_of_a_kind_may_be_merged() {
    let mut bench = Bench::new();
    enable(&mut bench, 0xF);
    bench.host.budget = 0;
    for _ in 0..5 {
        posted_ur(&mut bench);
        poisoned(&mut bench);
    }
    bench.host.budget = usize::MAX;
    bench.settle();
    assert_eq!(bench.host.take_messages(), [code::ERR_NONFATAL]);
}

#[test]
fn role_based_error_reporting_is_told() {
    let mut bench = Bench::new();
    assert_eq!(bench.reg(EXPRESS + 4) >> 15 & 1, 1);
}
