use super::*;
use etherslot_wire::FunctionId;
use etherslot_wire::tlp::MemRequest;
use proptest::prelude::*;

const ID: FunctionId = FunctionId(0x300);

fn requester(tags: u16) -> Requester<u32> {
    Requester::new(RequesterConfig { tags, completion_timeout_ns: 100, quarantine_ns: 1000 })
}

fn answer(tag: Tag, address: u64, byte_count: u16, bytes: usize) -> Completion {
    Completion {
        completer: FunctionId(0),
        status: CplStatus::Success,
        byte_count,
        requester: ID,
        tag,
        lower_address: (address & 0x7F) as u8,
        length_dw: ((address & 3) as usize + bytes).div_ceil(4) as u16,
    }
}

#[test]
fn configuration_reads_and_writes_end_with_one_completion() {
    let mut requester = requester(4);
    let read = requester.begin(0, 0x40, 4, Expect::Config, 1).unwrap();
    let write = requester.begin(0, 0x44, 4, Expect::Status, 2).unwrap();
    let plain = Completion { length_dw: 0, ..answer(write, 0, 4, 0) };
    let data = Outcome::Data { context: 2, address: 0x44, data: &[][..], last: true };
    assert_eq!(requester.complete(0, &plain, false, &[]), data);
    let data = Outcome::Data { context: 1, address: 0x40, data: &[1, 2, 3, 4][..], last: true };
    assert_eq!(requester.complete(0, &answer(read, 0, 4, 4), false, &[1, 2, 3, 4]), data);
    assert_eq!(requester.outstanding(), 0);
}

#[test]
fn a_configuration_request_may_be_refused_with_any_status() {
    for (status, fault) in [
        (CplStatus::UnsupportedRequest, Fault::UnsupportedRequest),
        (CplStatus::RetryStatus, Fault::UnsupportedRequest),
        (CplStatus::CompleterAbort, Fault::CompleterAbort),
    ] {
        let mut requester = requester(4);
        let tag = requester.begin(0, 0x40, 4, Expect::Config, 1).unwrap();
        let refused = Completion { status, length_dw: 0, ..answer(tag, 0, 4, 0) };
        let failed = Outcome::Failed { context: 1, address: 0x40, bytes: 4, fault, last: true };
        assert_eq!(requester.complete(0, &refused, false, &[]), failed);
    }
}

#[test]
fn answers_of_the_wrong_kind_are_malformed() {
    for expect in [Expect::Config, Expect::Status] {
        let mut requester = requester(4);
        let tag = requester.begin(0, 0, 4, expect, 1).unwrap();
        let wrong = answer(tag, 0, 8, 8);
        let outcome = requester.complete(0, &wrong, false, &[0; 8]);
        assert!(
            matches!(outcome, Outcome::Failed { fault: Fault::Malformed, last: true, .. }),
            "{outcome:?}"
        );
        assert_eq!((requester.outstanding(), requester.quarantined()), (0, 1));
    }
}

#[test]
fn requests_of_no_or_too_many_bytes_are_not_begun() {
    let mut requester = requester(4);
    assert_eq!(requester.begin(0, 0, 0, Expect::Memory, 1), None);
    assert_eq!(requester.begin(0, 0, 4097, Expect::Memory, 1), None);
    assert_eq!(requester.begin(0, 0, usize::MAX, Expect::Memory, 1), None);
    assert_eq!(requester.counters().requests, 0);
}

#[test]
fn requests_expire_in_the_order_in_which_they_were_begun() {
    let mut requester = requester(8);
    for index in 0..5 {
        requester.begin(u64::from(index), 0x1000, 64, Expect::Memory, index).unwrap();
    }
    assert_eq!(requester.deadline_ns(), Some(100));
    assert_eq!(requester.expire(99), None);
    assert_eq!(requester.expire(102), Some((0, 0x1000, 64)));
    assert_eq!(requester.expire(102).unwrap().0, 1);
    assert_eq!(requester.expire(102).unwrap().0, 2);
    assert_eq!(requester.expire(102), None);
    assert_eq!((requester.outstanding(), requester.quarantined()), (2, 3));
}

#[test]
fn time_does_not_go_back() {
    let mut requester = requester(2);
    requester.begin(500, 0, 4, Expect::Memory, 1).unwrap();
    requester.begin(0, 0, 4, Expect::Memory, 2).unwrap();
    assert_eq!(requester.expire(599), None);
    assert_eq!(requester.expire(600).unwrap().0, 1);
    assert_eq!(requester.expire(600).unwrap().0, 2);
}

#[test]
fn a_late_completion_frees_its_tag_only_if_it_is_the_last() {
    let mut requester = requester(1);
    let tag = requester.begin(0, 0x1000, 128, Expect::Memory, 1).unwrap();
    requester.expire(100).unwrap();
    assert!(requester.is_quarantined(tag));
    assert_eq!(requester.complete(101, &answer(tag, 0x1000, 128, 64), false, &[0; 64]), Outcome::Unexpected);
    assert_eq!(requester.begin(102, 0, 4, Expect::Memory, 2), None);
    assert_eq!(requester.complete(103, &answer(tag, 0x1040, 64, 64), false, &[0; 64]), Outcome::Unexpected);
    assert_eq!(requester.begin(104, 0, 4, Expect::Memory, 2), Some(tag));
    assert_eq!(requester.counters().late_completions, 2);
}

#[test]
fn abandoned_requests_do_not_expire_and_keep_their_tags() {
    let mut requester = requester(4);
    for index in 0..4 {
        requester.begin(10, 0, 4, Expect::Memory, index).unwrap();
    }
    requester.abandon();
    assert_eq!(requester.begin(11, 0, 4, Expect::Memory, 9), None);
    assert_eq!((requester.expire(900), requester.deadline_ns()), (None, Some(1010)));
    assert_eq!(requester.begin(1010, 0, 4, Expect::Memory, 9), Some(0));
}

#[test]
fn clearing_frees_all_tags_at_once() {
    let mut requester = requester(4);
    for index in 0..4 {
        requester.begin(10, 0, 4, Expect::Memory, index).unwrap();
    }
    requester.expire(110);
    requester.clear();
    assert_eq!((requester.outstanding(), requester.quarantined()), (0, 0));
    assert!((0..4).all(|index| requester.begin(111, 0, 4, Expect::Memory, index).is_some()));
}

#[test]
fn a_cancelled_request_gives_its_tag_back() {
    let mut requester = requester(1);
    let tag = requester.begin(0, 0, 4, Expect::Memory, 1).unwrap();
    requester.cancel(tag);
    requester.cancel(tag);
    requester.cancel(999);
    assert_eq!((requester.outstanding(), requester.counters().requests), (0, 0));
    assert!(requester.begin(0, 0, 4, Expect::Memory, 1).is_some());
}

#[test]
fn a_freed_tag_rests_as_long_as_others_are_free() {
    let mut requester = requester(3);
    let first = requester.begin(0, 0, 4, Expect::Memory, 1).unwrap();
    requester.complete(0, &answer(first, 0, 4, 4), false, &[0; 4]);
    let next = requester.begin(0, 0, 4, Expect::Memory, 1).unwrap();
    assert_ne!(first, next);
}

#[derive(Clone, Debug)]
enum Step {
    Begin(u64, usize),
    Complete(usize),
    Wait(u64),
    Abandon,
    Noise(u16, u16, u8, u16, u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..1_u64 << 20, 1..600_usize).prop_map(|(address, bytes)| Step::Begin(address, bytes)),
        6 => any::<usize>().prop_map(Step::Complete),
        2 => (0..400_u64).prop_map(Step::Wait),
        1 => Just(Step::Abandon),
        1 => any::<(u16, u16, u8, u16, u8)>().prop_map(|(a, b, c, d, e)| Step::Noise(a, b, c, d, e)),
    ]
}

proptest! {
    /// Whatever comes: each byte asked for ends once, and a Completion never ends up in another Request than
    /// its own.
    #[test]
    fn every_byte_asked_for_ends_exactly_once(steps in prop::collection::vec(step(), 1..300)) {
        let mut requester = requester(6);
        let mut now_ns = 0;
        // What the other side has not answered yet: Tag, who asked, where, how much.
        let mut wire: Vec<(Tag, u32, u64, usize)> = Vec::new();
        let mut missing = std::collections::BTreeMap::new();
        let mut given_up = std::collections::BTreeMap::new();
        let mut asked = 0;
        for step in steps {
            match step {
                Step::Begin(address, bytes) => {
                    if let Some(tag) = requester.begin(now_ns, address, bytes, Expect::Memory, asked) {
                        prop_assert!(wire.iter().all(|&(other, ..)| other != tag), "Tag {tag} is still on the wire");
                        wire.push((tag, asked, address, bytes));
                        missing.insert(asked, (address, bytes));
                        asked += 1;
                    }
                }
                Step::Complete(choice) if !wire.is_empty() => {
                    let index = choice % wire.len();
                    let (tag, who, address, bytes) = wire[index];
                    let to_boundary = 64 - (address & 63) as usize;
                    let part = if choice & 0x100 == 0 { bytes.min(to_boundary) } else { bytes };
                    let completion = answer(tag, address, bytes as u16, part);
                    let data = vec![who as u8; completion.length_dw as usize * 4];
                    match requester.complete(now_ns, &completion, false, &data) {
                        Outcome::Data { context, address: at, data, last } => {
                            prop_assert_eq!((context, at, data.len()), (who, address, part));
                            let left = missing.get_mut(&who).unwrap();
                            prop_assert_eq!(*left, (address, bytes));
                            *left = (address + part as u64, bytes - part);
                            prop_assert_eq!(last, part == bytes);
                            if last {
                                missing.remove(&who);
                            }
                        }
                        Outcome::Unexpected => prop_assert!(!missing.contains_key(&who)),
                        Outcome::Failed { .. } => prop_assert!(false, "nothing wrong was sent"),
                    }
                    if part == bytes {
                        wire.swap_remove(index);
                    } else {
                        wire[index] = (tag, who, address + part as u64, bytes - part);
                    }
                }
                Step::Complete(_) => {}
                Step::Wait(ns) => {
                    now_ns += ns;
                    while let Some((who, address, bytes)) = requester.expire(now_ns) {
                        prop_assert_eq!(missing.remove(&who), Some((address, bytes)));
                        given_up.insert(who, now_ns);
                    }
                    // A Completion is never later than the quarantine.
                    wire.retain(|(_, who, ..)| given_up.get(who).is_none_or(|at_ns| now_ns < at_ns + 1000));
                }
                Step::Abandon => {
                    requester.abandon();
                    given_up.extend(missing.keys().map(|&who| (who, now_ns)));
                    missing.clear();
                }
                Step::Noise(tag, byte_count, lower_address, length, status) => {
                    let tag = tag % 1024 + 6;
                    let status = [CplStatus::Success, CplStatus::CompleterAbort][usize::from(status & 1)];
                    let (lower_address, length_dw) = (lower_address & 0x7F, length % 8);
                    let noise = Completion { status, lower_address, length_dw, ..answer(tag, 0, byte_count, 4) };
                    let data = vec![0; length_dw as usize * 4];
                    prop_assert_eq!(requester.complete(now_ns, &noise, false, &data), Outcome::Unexpected);
                }
            }
            prop_assert_eq!(requester.outstanding(), missing.len());
            prop_assert!(requester.outstanding() + requester.quarantined() <= 6);
        }
    }

    /// A peer that sends anything at all brings no panic, and no more bytes than were asked for.
    #[test]
    fn any_completion_is_survived(
        bytes in 1..=4096_usize,
        address in 0..4096_u64,
        completions in prop::collection::vec(any::<(u16, u8, u16, u8, bool)>(), 1..20),
    ) {
        let mut requester = requester(1);
        let expect = [Expect::Memory, Expect::Config, Expect::Status][bytes % 3];
        let tag = requester.begin(0, address, bytes, expect, 1).unwrap();
        let mut left = match expect { Expect::Memory => bytes, Expect::Config => 4, Expect::Status => 0 };
        for (byte_count, lower_address, length_dw, status, poisoned) in completions {
            let status = [CplStatus::Success, CplStatus::CompleterAbort, CplStatus::RetryStatus][usize::from(status % 3)];
            let length_dw = length_dw % 1025;
            let lower_address = if byte_count & 1 == 0 { (address & 0x7F) as u8 } else { lower_address & 0x7F };
            let byte_count = if byte_count & 2 == 0 { bytes as u16 } else { byte_count };
            let completion = Completion { status, lower_address, length_dw, byte_count, ..answer(tag, 0, 0, 0) };
            let data = vec![0; length_dw as usize * 4];
            match requester.complete(0, &completion, poisoned, &data) {
                Outcome::Data { data, .. } => left = left.checked_sub(data.len()).unwrap(),
                Outcome::Failed { bytes, .. } => left = left.checked_sub(bytes).unwrap(),
                Outcome::Unexpected => {}
            }
        }
    }

    /// What a Completer cuts, a Requester puts together again.
    #[test]
    fn completions_add_up_to_their_request(
        offset in 0..4096_u64,
        length in 1..=4096_usize,
        rcb in prop::sample::select(vec![64_u16, 128]),
        payload in prop::sample::select(vec![64_u16, 128, 256, 512, 1024, 4096]),
        limits in prop::collection::vec(0..5000_usize, 1..8),
    ) {
        let length = length.min(4096 - offset as usize);
        let request = MemRequest::covering(ID, 0, 0x7_0000_0000 + offset, length).unwrap();
        let mut requester = requester(1);
        requester.begin(0, 0x7_0000_0000 + offset, length, Expect::Memory, 7).unwrap();
        let source: Vec<u8> = (0..length).map(|at| (at * 7 / 5) as u8).collect();
        let mut completions = crate::completer::completions(&request, FunctionId(8), rcb, payload);
        let mut seen = Vec::new();
        let mut limit = limits.iter().cycle();
        while let Some(part) = completions.next_within(*limit.next().unwrap()) {
            let lead = usize::from(part.completion.lower_address & 3);
            prop_assert!(part.completion.length_dw as usize * 4 <= payload.max(rcb) as usize);
            let mut data = vec![0xEE; part.completion.length_dw as usize * 4];
            data[lead..lead + part.bytes].copy_from_slice(&source[part.offset..part.offset + part.bytes]);
            match requester.complete(0, &part.completion, false, &data) {
                Outcome::Data { context: 7, address, data, last } => {
                    prop_assert_eq!(address, 0x7_0000_0000 + offset + seen.len() as u64);
                    seen.extend_from_slice(data);
                    prop_assert_eq!(last, seen.len() == length);
                }
                other => prop_assert!(false, "{:?}", other),
            }
        }
        prop_assert_eq!(seen, source);
    }
}
