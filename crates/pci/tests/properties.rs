//! What holds for any sequence of TLPs, whoever sends them.

#[path = "support/mod.rs"]
mod support;

use std::collections::BTreeMap;

use etherslot_pci::function::ResetKind;
use etherslot_wire::FunctionId;
use etherslot_wire::tlp::{
    AtomicKind, CfgRequest, CfgType, Completion, CplStatus, Header, MemRequest, Op, Routing,
};
use proptest::prelude::*;
use support::{Act, BAR0, BAR2, Bench, ROOT, UPSTREAM, bar0, bar2, function, port, spec, stream};

/// Something that the host, the guest behind it or a Function does.
#[derive(Clone, Debug)]
enum Step {
    Tlp(u8, Header, Vec<u8>),
    Bytes(u16, Vec<u8>),
    Act(u8, Act),
    Poll { room: usize, budget: usize },
    Wait(u64),
    HotReset(u8),
    FunctionReset(u8),
    Replug(u8),
}

fn id() -> impl Strategy<Value = FunctionId> {
    prop_oneof![
        4 => Just(ROOT),
        2 => (0..2_u8).prop_map(function),
        1 => (0..3_u8).prop_map(port),
        1 => Just(UPSTREAM),
        1 => any::<u16>().prop_map(FunctionId),
    ]
}

fn address() -> impl Strategy<Value = u64> {
    let base = prop_oneof![
        Just(bar0(0)),
        Just(bar0(1)),
        Just(bar2(0)),
        Just(bar2(1)),
        Just(BAR0 - 0x1000),
        Just(BAR2 + 0x40_0000),
        Just(u64::MAX - 0xFFFF),
        any::<u64>(),
    ];
    (base, 0..0x1_0000_u64).prop_map(|(base, offset)| base.wrapping_add(offset) & !3)
}

fn memory() -> impl Strategy<Value = MemRequest> {
    (id(), 0..1024_u16, address(), 1..=1024_u16, 0..16_u8, 0..16_u8).prop_map(
        |(requester, tag, address, length_dw, first_be, last_be)| {
            let most = (0x1000 - (address & 0xFFF)) as u16 / 4;
            MemRequest { requester, tag, address, length_dw: length_dw.min(most), first_be, last_be }
        },
    )
}

fn configuration() -> impl Strategy<Value = CfgRequest> {
    let register = prop_oneof![0..0x160_u16, 0..0x1000_u16];
    let kind = prop_oneof![Just(CfgType::Type0), Just(CfgType::Type1)];
    (kind, id(), 0..1024_u16, id(), register, 0..16_u8).prop_map(
        |(kind, requester, tag, target, register, first_be)| CfgRequest {
            kind,
            requester,
            tag,
            target,
            register: register & 0xFFC,
            first_be,
        },
    )
}

fn op() -> impl Strategy<Value = Op> {
    let status = prop_oneof![
        3 => Just(CplStatus::Success),
        1 => Just(CplStatus::UnsupportedRequest),
        1 => Just(CplStatus::CompleterAbort),
        1 => Just(CplStatus::RetryStatus),
    ];
    let completion = (id(), status, 1..=4096_u16, id(), 0..20_u16, 0..128_u8, 0..=1024_u16).prop_map(
        |(completer, status, byte_count, requester, tag, lower_address, length_dw)| {
            Op::Completion(Completion {
                completer,
                status,
                byte_count,
                requester,
                tag,
                lower_address,
                length_dw,
            })
        },
    );
    let routing = prop_oneof![
        Just(Routing::ToRoot),
        Just(Routing::ByAddress),
        Just(Routing::ById),
        Just(Routing::FromRoot),
        Just(Routing::Local),
        Just(Routing::Gathered),
    ];
    let message = (routing, id(), any::<u8>(), any::<[u8; 8]>(), 0..4_u16).prop_map(
        |(routing, requester, code, fields, length_dw)| Op::Message {
            routing,
            requester,
            tag: 0,
            code,
            fields,
            length_dw,
        },
    );
    let atomic = (id(), 0..1024_u16, address()).prop_map(|(requester, tag, address)| Op::Atomic {
        kind: AtomicKind::FetchAdd,
        requester,
        tag,
        address,
        length_dw: 1,
    });
    prop_oneof![
        4 => memory().prop_map(Op::MemRead),
        4 => memory().prop_map(Op::MemWrite),
        3 => configuration().prop_map(Op::CfgRead),
        4 => configuration().prop_map(Op::CfgWrite),
        4 => completion,
        1 => message,
        1 => atomic,
    ]
}

fn tlp() -> impl Strategy<Value = (Header, Vec<u8>)> {
    (op(), 0..8_u8, 0..8_u8, prop::bool::weighted(0.1), any::<u64>()).prop_map(
        |(op, traffic_class, attributes, poisoned, seed)| {
            let header = Header { traffic_class, attributes, poisoned, op };
            let data = (0..header.data_bytes()).map(|at| (seed >> (at % 8 * 8)) as u8);
            (header, data.collect())
        },
    )
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        3 => (address(), 0..4_u64, 1..9000_usize)
            .prop_map(|(address, lead, bytes)| Act::Write(address.wrapping_add(lead), vec![0xDA; bytes])),
        3 => (address(), 0..4_u64, 1..9000_usize, any::<u64>())
            .prop_map(|(address, lead, bytes, token)| Act::Read(address.wrapping_add(lead), bytes, token)),
        1 => any::<u16>().prop_map(Act::Interrupt),
        1 => any::<bool>().prop_map(Act::IntX),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0..2_u8, tlp()).prop_map(|(slot, (header, data))| Step::Tlp(slot, header, data)),
        2 => (0..4_u16, prop::collection::vec(any::<u8>(), 0..64)).prop_map(|(stream, bytes)| Step::Bytes(stream, bytes)),
        4 => (0..2_u8, act()).prop_map(|(slot, act)| Step::Act(slot, act)),
        6 => (0..5000_usize, 0..40_usize).prop_map(|(room, budget)| Step::Poll { room, budget }),
        2 => (0..30_000_000_u64).prop_map(Step::Wait),
        1 => (0..3_u8).prop_map(Step::HotReset),
        1 => (0..2_u8).prop_map(Step::FunctionReset),
        1 => (0..2_u8).prop_map(Step::Replug),
    ]
}

fn two() -> Bench {
    let mut other = spec();
    other.msix = None;
    other.bars[0].bytes = 128;
    Bench::with(&[spec(), other])
}

fn take(bench: &mut Bench, step: Step) {
    match step {
        Step::Tlp(slot, header, data) => bench.send(slot, &header, &data),
        Step::Bytes(stream, bytes) => bench.hierarchy.receive(bench.now_ns, stream, &bytes),
        Step::Act(slot, act) => bench.scratch[slot as usize].act(act),
        Step::Poll { room, budget } => {
            (bench.host.room, bench.host.budget) = (room, budget);
            bench.settle();
            bench.host.take();
        }
        Step::Wait(ns) => bench.now_ns += ns,
        Step::HotReset(slot) => bench.hierarchy.hot_reset(slot),
        Step::FunctionReset(slot) => {
            if let Some(endpoint) = bench.hierarchy.endpoint_mut(slot) {
                endpoint.reset(ResetKind::FunctionLevel);
            }
        }
        Step::Replug(slot) => {
            let mut endpoint = bench.hierarchy.unplug(slot).expect("it was there");
            endpoint.attach(u16::from(slot) * 4096, 1000);
            bench.hierarchy.plug(slot, stream(slot), endpoint);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// No sequence of TLPs brings a panic, or a TLP that breaks a rule: the host refuses those. And after it
    /// the switch and its Functions work as ever.
    #[test]
    fn any_tlps_are_survived(steps in prop::collection::vec(step(), 0..120)) {
        let mut bench = two();
        for step in steps {
            take(&mut bench, step);
        }
        (bench.host.room, bench.host.budget) = (4112, usize::MAX);
        bench.now_ns += 10_000_000_000;
        bench.settle();
        bench.host.take();
        for slot in 0..2 {
            let mut endpoint = bench.hierarchy.unplug(slot).unwrap();
            endpoint.attach(512, 512);
            bench.hierarchy.plug(slot, stream(slot), endpoint);
        }
        // Whatever was done to the ports is undone by a reset of what is below and new values above.
        bench.cfg_write(0, UPSTREAM, 0x3C, 0x0040_0000);
        bench.cfg_write(0, UPSTREAM, 0x3C, 0);
        bench.cfg_write(0, UPSTREAM, 0x44, 0);
        bench.enumerate();
        for slot in 0..2 {
            bench.mem_write(slot, bar0(slot) + 8, &[slot; 4]);
            prop_assert_eq!(bench.mem_read(slot, bar0(slot) + 8, 4), Ok(vec![slot; 4]));
            bench.act(slot, Act::Read(0x1000, 4, 1));
            prop_assert_eq!(bench.host.take_reads().len(), 1);
        }
    }

    /// Each Non-Posted Request of the host ends once and wholly, whatever it does to the Function meanwhile.
    #[test]
    fn every_non_posted_request_of_the_host_ends_once(
        requests in prop::collection::vec((tlp(), 0..3000_usize, 0..3_usize), 1..100),
    ) {
        let mut bench = two();
        let mut open = BTreeMap::new();
        for (tag, ((mut header, data), room, budget)) in requests.into_iter().enumerate() {
            let tag = tag as u16;
            let bytes = match &mut header.op {
                Op::MemRead(request) => {
                    (request.requester, request.tag) = (ROOT, tag);
                    Some(request.span().1)
                }
                Op::CfgRead(request) | Op::CfgWrite(request) => {
                    (request.requester, request.tag) = (ROOT, tag);
                    // Resets of Links end what waits below them unanswered.
                    if request.register == 0x3C || request.register == 0x90 {
                        request.first_be = 0;
                    }
                    Some(4)
                }
                Op::Atomic { requester, tag: place, .. } => {
                    (*requester, *place) = (ROOT, tag);
                    Some(4)
                }
                _ => None,
            };
            let mut copy = [0; 16];
            let length = header.emit(&mut copy).unwrap();
            let whole = [&copy[..length], &data].concat();
            if let (Some(bytes), Ok(_)) = (bytes, Header::parse(&whole)) {
                open.insert(tag, bytes);
            }
            bench.send(0, &header, &data);
            (bench.host.room, bench.host.budget) = (room, budget);
            bench.settle();
        }
        (bench.host.room, bench.host.budget) = (4112, usize::MAX);
        bench.settle();
        for sent in bench.host.take() {
            let Op::Completion(completion) = sent.header.op else { continue };
            let left = open.remove(&completion.tag);
            prop_assert_eq!(left, Some(completion.byte_count as usize), "{:?}", completion);
            let lead = completion.lower_address as usize & 3;
            let left = completion.byte_count as usize;
            let brought = (completion.length_dw as usize * 4).saturating_sub(lead).min(left);
            if completion.status == CplStatus::Success && completion.length_dw != 0 && brought < left {
                open.insert(completion.tag, left - brought);
            }
        }
        prop_assert!(open.is_empty(), "unanswered: {open:?}");
    }

    /// What a Function writes arrives once, in order and as it was, however the room comes and goes.
    #[test]
    fn writes_arrive_as_they_were_made(
        writes in prop::collection::vec((0x1000..0x10_0000_u64, 1..6000_usize), 1..12),
        rooms in prop::collection::vec((0..4200_usize, 0..4_usize), 1..20),
        grant in prop::sample::select(vec![128_u16, 256, 1024, 4096]),
    ) {
        let mut bench = Bench::new();
        let mut endpoint = bench.hierarchy.unplug(0).unwrap();
        endpoint.attach(grant, grant);
        bench.hierarchy.plug(0, stream(0), endpoint);
        bench.program_function(0);
        let mut expected = Vec::new();
        for (index, &(address, bytes)) in writes.iter().enumerate() {
            let data: Vec<u8> = (0..bytes).map(|at| (at + 31 * index) as u8).collect();
            expected.extend(data.iter().enumerate().map(|(at, &byte)| (address + at as u64, byte)));
            bench.scratch[0].act(Act::Write(address, data));
        }
        for (room, budget) in rooms {
            (bench.host.room, bench.host.budget) = (room, budget);
            bench.settle();
        }
        (bench.host.room, bench.host.budget) = (1400, usize::MAX);
        bench.settle();
        let seen = bench.host.take_writes().into_iter();
        let seen: Vec<_> =
            seen.flat_map(|(start, data)| (start..).zip(data)).collect();
        prop_assert_eq!(seen, expected);
    }
}
