//! What holds for every value and for any bytes.

use crc32c::crc32c;
use etherslot_wire::ahead::{
    CONDITIONS, Condition, FOLLOWS, Follow, MAX_BYTES, MAX_ENTRIES, MAX_FOLLOW_BYTES, Piece, PieceKind,
    RULES, Rule,
};
use etherslot_wire::boxes::{Admit, Behind, Join, PORTS, Reach, WINDOWS};
use etherslot_wire::control::{AttachStatus, CloseReason, Hello, Message, NAME_BYTES, Name};
use etherslot_wire::discovery::{Group, Port};
use etherslot_wire::frame::{self, Ack, Echo, Sack};
use etherslot_wire::record::{self, Record};
use etherslot_wire::tlp::{
    self, AtomicKind, CfgRequest, CfgType, Completion, CplStatus, Header, MemRequest, Op, Routing,
};
use etherslot_wire::{FunctionId, NodeId, Tag};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::FileFailurePersistence;

// --- Strategies: every valid value ---

fn frame_header() -> impl Strategy<Value = frame::Header> {
    let kinds =
        [frame::Kind::Hello, frame::Kind::HelloAck, frame::Kind::Data, frame::Kind::Ack, frame::Kind::Close];
    let ack = any::<(u32, u32, u32)>().prop_map(|(next, credit, receiver_cap_bytes)| Ack {
        next,
        credit,
        receiver_cap_bytes,
    });
    let echo = any::<(u32, u32)>().prop_map(|(ts_ns, hold_ns)| Echo { ts_ns, hold_ns });
    let sack = any::<(u32, [u8; 28])>().prop_map(|(base, bitmap)| Sack { base, bitmap });
    let numbers = any::<(u32, u32, u32, u64, u32)>();
    (
        select(kinds.to_vec()),
        any::<(bool, bool, bool, bool)>(),
        0..2000_u16,
        numbers,
        option::of(ack),
        option::of(echo),
        option::of(sack),
    )
        .prop_map(
            |(kind, (ack_now, again, congested, header_check), body_len, numbers, ack, echo, sack)| {
                let (dst_epoch, src_epoch, sequence, packet_number, tx_ts_ns) = numbers;
                let flags = if ack_now { frame::flag::ACK_NOW } else { 0 }
                    | if again { frame::flag::RETRANSMISSION } else { 0 }
                    | if congested { frame::flag::CONGESTED } else { 0 }
                    | if header_check && kind == frame::Kind::Data { frame::flag::HEADER_CHECK } else { 0 };
                frame::Header {
                    kind,
                    flags,
                    body_len,
                    dst_epoch,
                    src_epoch,
                    sequence,
                    packet_number,
                    tx_ts_ns,
                    ack,
                    echo,
                    sack,
                }
            },
        )
}

fn function_id() -> impl Strategy<Value = FunctionId> {
    any::<u16>().prop_map(FunctionId)
}

fn tag() -> impl Strategy<Value = Tag> {
    0..1024_u16
}

/// Addresses on both sides of 4 GiB.
fn address() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u32>().prop_map(u64::from),
        any::<u64>(),
        (u64::from(u32::MAX) - 64)..=(u64::from(u32::MAX) + 64)
    ]
}

/// Byte enables that 2.2.5 allows for a Request of this length and alignment.
fn byte_enables(length_dw: u16, address: u64) -> BoxedStrategy<(u8, u8)> {
    match length_dw {
        1 => (0..16_u8, Just(0)).boxed(),
        2 if address.is_multiple_of(8) => (1..16_u8, 1..16_u8).boxed(),
        _ => (select(&[0xF, 0xE, 0xC, 0x8][..]), select(&[0xF, 0x7, 0x3, 0x1][..])).boxed(),
    }
}

fn mem_request() -> impl Strategy<Value = MemRequest> {
    let lengths = prop_oneof![3 => 1..5_u16, 1 => 1..=1024_u16, 1 => Just(1024)];
    (address(), lengths, function_id(), tag()).prop_flat_map(|(address, length_dw, requester, tag)| {
        let in_page = (address & 0xFFC).min(4096 - 4 * u64::from(length_dw));
        let address = address & !0xFFF | in_page;
        byte_enables(length_dw, address).prop_map(move |(first_be, last_be)| MemRequest {
            requester,
            tag,
            address,
            length_dw,
            first_be,
            last_be,
        })
    })
}

fn atomic() -> impl Strategy<Value = Op> {
    let shapes = [
        (AtomicKind::FetchAdd, 1, 4),
        (AtomicKind::FetchAdd, 2, 8),
        (AtomicKind::Swap, 1, 4),
        (AtomicKind::Swap, 2, 8),
        (AtomicKind::CompareSwap, 2, 4),
        (AtomicKind::CompareSwap, 4, 8),
        (AtomicKind::CompareSwap, 8, 16),
    ];
    (select(shapes.to_vec()), function_id(), tag(), address()).prop_map(
        |((kind, length_dw, operand_bytes), requester, tag, address)| Op::Atomic {
            kind,
            requester,
            tag,
            address: address / operand_bytes * operand_bytes,
            length_dw,
        },
    )
}

fn cfg_request() -> impl Strategy<Value = CfgRequest> {
    let kinds = select(&[CfgType::Type0, CfgType::Type1][..]);
    (kinds, function_id(), tag(), function_id(), 0..1024_u16, 0..16_u8).prop_map(
        |(kind, requester, tag, target, register_dw, first_be)| CfgRequest {
            kind,
            requester,
            tag,
            target,
            register: register_dw * 4,
            first_be,
        },
    )
}

fn data_dw() -> impl Strategy<Value = u16> {
    prop_oneof![Just(0_u16), 1..5_u16, 1..=1024_u16]
}

fn completion() -> impl Strategy<Value = Completion> {
    let statuses = select(
        &[
            CplStatus::Success,
            CplStatus::UnsupportedRequest,
            CplStatus::RetryStatus,
            CplStatus::CompleterAbort,
        ][..],
    );
    (function_id(), statuses, 1..=4096_u16, function_id(), tag(), 0..128_u8, data_dw()).prop_map(
        |(completer, status, byte_count, requester, tag, lower_address, length_dw)| Completion {
            completer,
            status,
            byte_count,
            requester,
            tag,
            lower_address,
            length_dw,
        },
    )
}

fn message() -> impl Strategy<Value = Op> {
    let routings = [
        Routing::ToRoot,
        Routing::ByAddress,
        Routing::ById,
        Routing::FromRoot,
        Routing::Local,
        Routing::Gathered,
    ];
    (select(routings.to_vec()), function_id(), any::<(u8, u8, [u8; 8])>(), data_dw()).prop_map(
        |(routing, requester, (tag, code, fields), length_dw)| Op::Message {
            routing,
            requester,
            tag,
            code,
            fields,
            length_dw,
        },
    )
}

fn tlp_header() -> impl Strategy<Value = Header> {
    let op = prop_oneof![
        mem_request().prop_map(Op::MemRead),
        mem_request().prop_map(Op::MemWrite),
        atomic(),
        cfg_request().prop_map(Op::CfgRead),
        cfg_request().prop_map(Op::CfgWrite),
        completion().prop_map(Op::Completion),
        message(),
    ];
    (op, 0..8_u8, 0..8_u8, any::<bool>()).prop_map(|(op, traffic_class, attributes, poisoned)| {
        let plain = matches!(op, Op::CfgRead(_) | Op::CfgWrite(_));
        Header {
            traffic_class: if plain { 0 } else { traffic_class },
            attributes: if plain { 0 } else { attributes },
            poisoned: poisoned && Header::new(op).data_bytes() != 0,
            op,
        }
    })
}

fn name() -> impl Strategy<Value = Name> {
    "[a-zA-Z0-9 /äπ]{1,32}".prop_filter_map("longer than a name", |text| Name::new(&text))
}

fn control_message() -> impl Strategy<Value = Message> {
    let statuses = [
        AttachStatus::Attached,
        AttachStatus::Unknown,
        AttachStatus::Busy,
        AttachStatus::NoRoom,
        AttachStatus::NotAssigned,
    ];
    prop_oneof![
        (name(), 1..=u16::MAX, any::<(u16, u16)>()).prop_map(|(name, stream, (payload, read))| {
            Message::Attach { name, stream, max_payload_bytes: payload, max_read_request_bytes: read }
        }),
        (any::<u16>(), select(statuses.to_vec()), function_id())
            .prop_map(|(stream, status, port)| Message::Attached { stream, status, port }),
        Just(Message::Detach),
        Just(Message::Detached),
        Just(Message::HotReset),
        Just(Message::HotResetDone),
        ahead_rule().prop_map(Message::ReadAhead),
        (0..RULES as u8).prop_map(|rule| Message::Withdraw { rule }),
        (0..=Group::MAX).prop_map(|number| Message::Member { group: Group::new(number) }),
        any::<u16>().prop_map(|window_ms| Message::Recall { window_ms }),
        Just(Message::Keep),
        any::<u16>().prop_map(|domain| Message::Domain { domain }),
        (0..WINDOWS as u8, option::of(behind()))
            .prop_map(|(window, behind)| Message::Reach(Reach { window, behind })),
        any::<bool>().prop_map(|all| Message::Reached { all }),
        (any::<u16>(), other_node(), 1..=u32::MAX, 1..=u16::MAX, function_id()).prop_map(
            |(domain, node, epoch, stream, function)| Message::Admit(Admit {
                domain,
                node,
                epoch,
                stream,
                function
            })
        ),
        (1..=u16::MAX, other_node(), 1..=u32::MAX, 1..=u16::MAX).prop_map(
            |(stream, host, epoch, of_stream)| Message::Join(Join { stream, host, epoch, of_stream })
        ),
    ]
}

fn other_node() -> impl Strategy<Value = NodeId> {
    any::<[u8; 16]>().prop_map(NodeId).prop_filter("zeros are nobody", |node| *node != NodeId::default())
}

fn behind() -> impl Strategy<Value = Behind> {
    let port = prop_oneof![
        any::<[u8; 6]>().prop_map(Port::Mac),
        any::<([u8; 4], u16)>().prop_map(|(address, port)| Port::Udp4(address, port)),
        any::<([u8; 16], u16)>().prop_map(|(address, port)| Port::Udp6(address, port)),
        any::<u32>().prop_map(Port::Ring),
    ];
    let range = (0..u64::MAX).prop_flat_map(|address| (Just(address), 1..=u64::MAX - address));
    (range, other_node(), vec(port, 1..=PORTS)).prop_map(|((address, bytes), node, known)| {
        let mut ports = [None; PORTS];
        known.into_iter().zip(&mut ports).for_each(|(port, place)| *place = Some(port));
        Behind { address, bytes, node, ports }
    })
}

fn ahead_follow(entry_bytes: u16) -> impl Strategy<Value = Follow> {
    let last = |bytes: u16| 0..=entry_bytes - bytes;
    let condition =
        (last(4), any::<(u32, u32)>()).prop_map(|(offset, (mask, value))| Condition { offset, mask, value });
    let when = vec(condition, 0..=CONDITIONS);
    let flags = select(vec![0, Follow::DATA, Follow::PAGES, Follow::PAGES | Follow::LIST, 7]);
    let length = (last(4), any::<(u32, u16)>(), 0..=16_u8);
    (flags, when, (last(8), last(8)), length, 0..=MAX_FOLLOW_BYTES).prop_map(
        |(flags, when, (first, second), (length, (mask, bias), shift), max_bytes)| {
            let mut conditions = [Condition::default(); CONDITIONS];
            conditions[..when.len()].copy_from_slice(&when);
            let count = when.len() as u8;
            Follow {
                flags,
                when: conditions,
                conditions: count,
                first,
                second,
                length,
                mask,
                bias,
                shift,
                max_bytes,
            }
        },
    )
}

fn ahead_rule() -> impl Strategy<Value = Rule> {
    let place = (0..RULES as u8, any::<u16>(), 0..=5_u8, any::<u32>(), any::<u32>());
    (place, 0..1_u64 << 63, 8..=4096_u16, 2..=MAX_ENTRIES)
        .prop_flat_map(|(place, ring, entry_bytes, entries)| {
            let follows = vec(ahead_follow(entry_bytes), 0..=FOLLOWS);
            (Just((place, ring, entry_bytes, entries)), follows)
        })
        .prop_map(|(((rule, generation, bar, doorbell, mask), ring, entry_bytes, entries), follows)| {
            let mut rule = Rule::new(rule, bar, doorbell & !3, ring, entry_bytes, entries);
            (rule.generation, rule.mask) = (generation, mask);
            assert!(follows.into_iter().all(|follow| rule.follow(follow)) && rule.is_valid());
            rule
        })
}

fn ahead_piece() -> impl Strategy<Value = Piece> {
    let kind = select(vec![PieceKind::Entries, PieceKind::Data, PieceKind::List]);
    (0..RULES as u8, any::<(u16, u16)>(), kind, 0..1_u64 << 63).prop_map(
        |(rule, (generation, index), kind, address)| Piece { rule, generation, kind, index, address },
    )
}

fn hello() -> impl Strategy<Value = Hello> {
    (
        any::<[u8; 16]>(),
        frame::MIN_FRAME_BYTES as u16..=frame::MAX_FRAME_BYTES as u16,
        1..=u16::MAX,
        any::<u32>(),
    )
        .prop_map(|(node, max_frame_bytes, receive_window_frames, features)| Hello {
            node: NodeId(node),
            max_frame_bytes,
            receive_window_frames,
            features,
        })
}

/// Any bytes, or good bytes with a few of them changed, which get further.
fn bytes_near(good: impl Strategy<Value = Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let changes = vec((any::<Index>(), any::<u8>()), 0..4);
    let near = (good, changes).prop_map(|(mut bytes, changes)| {
        for (at, value) in changes {
            if !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] = value;
            }
        }
        bytes
    });
    prop_oneof![1 => vec(any::<u8>(), 0..128), 4 => near]
}

fn emit_tlp(header: &Header) -> Vec<u8> {
    let mut bytes = vec![0xEE; header.len() + header.data_bytes()];
    assert_eq!(header.emit(&mut bytes), Some(header.len()));
    for (at, byte) in bytes[header.len()..].iter_mut().enumerate() {
        *byte = at as u8;
    }
    bytes
}

fn emit_frame(header: &frame::Header) -> Vec<u8> {
    let mut bytes = vec![0xEE; header.len() + header.body_len as usize];
    assert_eq!(header.emit(&mut bytes), Some(header.len()));
    bytes
}

fn emit_record(record: &Record<'_>) -> Vec<u8> {
    let mut bytes = vec![0; record::size(record.payload.len())];
    let Record { kind, flags, stream, stream_sequence, payload } = *record;
    Record::emit_header(kind, flags, stream, stream_sequence, payload.len() as u16, &mut bytes).unwrap();
    bytes[record::HEADER_BYTES..][..payload.len()].copy_from_slice(payload);
    bytes
}

fn emit_message(message: &Message) -> Vec<u8> {
    let mut bytes = vec![0xEE; Message::MAX_BYTES];
    let length = message.emit(&mut bytes).unwrap();
    bytes.truncate(length);
    bytes
}

/// Calls everything that a header offers.
fn exercise(header: &Header) {
    let _ = (header.class(), header.requester(), header.tag(), header.data_bytes(), header.len());
    if let Op::MemRead(request) | Op::MemWrite(request) = header.op {
        exercise_request(&request);
    }
}

fn exercise_request(request: &MemRequest) {
    let (lead, bytes) = request.span();
    assert!(lead < 4 && bytes >= 1);
    let _ = request.is_contiguous();
    for index in [0, lead, lead + bytes - 1, 4095, 4096, usize::MAX] {
        let _ = request.enabled(index);
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2000,
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_frame_that_is_emitted_parses_to_itself(header in frame_header(), behind in 0..64_usize) {
        let mut bytes = emit_frame(&header);
        let body_bytes = header.body_len as usize;
        prop_assert_eq!(frame::Header::parse(&bytes), Ok((header, &bytes[bytes.len() - body_bytes..])));
        let length = bytes.len();
        bytes.resize(length + behind, 0xAA);
        prop_assert_eq!(frame::Header::parse(&bytes), Ok((header, &bytes[length - body_bytes..length])));
    }

    #[test]
    fn a_frame_cut_anywhere_is_truncated(header in frame_header(), cut in any::<Index>()) {
        let bytes = emit_frame(&header);
        let cut = cut.index(bytes.len());
        prop_assert_eq!(frame::Header::parse(&bytes[..cut]), Err(frame::Error::Truncated));
        prop_assert_eq!(header.emit(&mut vec![0; cut.min(header.len() - 1)]), None);
    }

    #[test]
    fn a_frame_with_any_bit_turned_is_refused(header in frame_header(), bit in any::<Index>(), behind in 0..20_usize) {
        let mut bytes = emit_frame(&header);
        let (length, body) = (bytes.len() + frame::CHECK_BYTES, bytes.len() - header.body_len as usize);
        bytes.resize(length, 0);
        prop_assert_eq!(frame::put_check(&mut bytes, crc32c), Some(()));
        bytes.resize(length + behind, 0xAA);
        let good = bytes.clone();
        let expected = Ok((header, &good[body..length - frame::CHECK_BYTES]));
        prop_assert_eq!(frame::Header::parse_checked(&good, crc32c), expected);
        let covered = if header.flags & frame::flag::HEADER_CHECK == 0 { length } else { body + frame::CHECK_BYTES };
        let mut at = bit.index(8 * covered);
        if at >= 8 * body && covered < length {
            at += 8 * (length - covered);
        }
        bytes[at / 8] ^= 1 << (at % 8);
        prop_assert!(frame::Header::parse_checked(&bytes, crc32c).is_err());
        prop_assert_eq!(frame::put_check(&mut [0; frame::CHECK_BYTES - 1], crc32c), None);
    }

    #[test]
    fn any_bytes_are_a_frame_or_an_error(bytes in bytes_near(frame_header().prop_map(|header| emit_frame(&header)))) {
        if let Ok((header, body)) = frame::Header::parse(&bytes) {
            let mut again = vec![0; header.len()];
            prop_assert_eq!(header.emit(&mut again), Some(header.len()));
            again.extend(body);
            prop_assert_eq!(frame::Header::parse(&again), Ok((header, body)));
            prop_assert_eq!(header.body_len as usize, body.len());
        }
    }

    #[test]
    fn a_sack_block_says_what_was_marked(base: u32, marked in vec(any::<u32>().prop_map(|index| index % 300), 0..40)) {
        let mut sack = Sack::new(base);
        for &index in &marked {
            sack.mark(index);
        }
        for index in 0..300 {
            prop_assert_eq!(sack.is_marked(index), index < frame::SACK_BITS && marked.contains(&index));
        }
    }

    #[test]
    fn a_row_of_records_parses_to_itself(
        rows in vec((0..4_usize, 0..4_u8, any::<(u16, u16)>(), vec(any::<u8>(), 0..40)), 0..6),
    ) {
        let kinds = [record::Kind::Tlp, record::Kind::Control, record::Kind::Ddp, record::Kind::Ahead];
        let records: Vec<_> = rows.iter().map(|(kind, flags, (stream, stream_sequence), payload)| Record {
            kind: kinds[*kind],
            flags: *flags,
            stream: *stream,
            stream_sequence: *stream_sequence,
            payload,
        }).collect();
        let body: Vec<u8> = records.iter().flat_map(emit_record).collect();
        let mut rest = &body[..];
        for record in &records {
            let (parsed, behind) = Record::parse(rest).unwrap();
            prop_assert_eq!(parsed, *record);
            rest = behind;
        }
        prop_assert!(rest.is_empty());
    }

    #[test]
    fn any_bytes_are_records_or_an_error(body in bytes_near(vec(any::<u8>(), 0..40).prop_map(|payload| {
        let (kind, flags) = (record::Kind::Tlp, record::FIRST | record::LAST);
        emit_record(&Record { kind, flags, stream: 1, stream_sequence: 2, payload: &payload })
    }))) {
        let mut rest = &body[..];
        while let Ok((record, behind)) = Record::parse(rest) {
            prop_assert_eq!(rest.len(), behind.len() + record::size(record.payload.len()));
            rest = behind;
        }
    }

    #[test]
    fn a_tlp_that_is_emitted_parses_to_itself(header in tlp_header()) {
        let bytes = emit_tlp(&header);
        prop_assert_eq!(Header::parse(&bytes), Ok((header, &bytes[header.len()..])));
        exercise(&header);
    }

    #[test]
    fn a_tlp_of_any_other_length_is_refused(header in tlp_header(), cut in any::<Index>(), more in 1..20_usize) {
        let mut bytes = emit_tlp(&header);
        prop_assert_eq!(Header::parse(&bytes[..cut.index(bytes.len())]), Err(tlp::Error::Length));
        prop_assert_eq!(header.emit(&mut vec![0; cut.index(header.len())]), None);
        bytes.resize(bytes.len() + more, 0);
        prop_assert_eq!(Header::parse(&bytes), Err(tlp::Error::Length));
    }

    #[test]
    fn any_bytes_are_a_tlp_or_an_error(bytes in bytes_near(tlp_header().prop_map(|header| emit_tlp(&header)))) {
        if let Ok((header, data)) = Header::parse(&bytes) {
            exercise(&header);
            prop_assert_eq!(header.len() + header.data_bytes(), bytes.len());
            let mut again = vec![0; header.len()];
            prop_assert_eq!(header.emit(&mut again), Some(header.len()));
            again.extend(data);
            prop_assert_eq!(Header::parse(&again), Ok((header, data)));
        }
    }

    #[test]
    fn the_accessors_of_a_memory_request_hold_for_any_fields(
        fields in any::<(u16, u64, u16, u8, u8)>(), small in 0..4_u16, is_small: bool, bytes: usize,
    ) {
        let (tag, address, length_dw, first_be, last_be) = fields;
        let length_dw = if is_small { small } else { length_dw };
        let request = MemRequest { requester: FunctionId(0), tag, address, length_dw, first_be, last_be };
        exercise_request(&request);
        for op in [Op::MemRead(request), Op::MemWrite(request)] {
            let header = Header { traffic_class: first_be, attributes: last_be, poisoned: true, op };
            prop_assert!(header.emit(&mut [0; tlp::MAX_HEADER_BYTES]).is_some());
        }
        let _ = MemRequest::covering(FunctionId(0), tag, address, bytes);
    }

    #[test]
    fn the_span_runs_from_the_first_to_the_last_enabled_byte(request in mem_request()) {
        let enabled: Vec<usize> = (0..request.data_bytes() + 8).filter(|&index| request.enabled(index)).collect();
        if let (Some(&first), Some(&last)) = (enabled.first(), enabled.last()) {
            prop_assert_eq!(request.span(), (first, last + 1 - first));
            prop_assert_eq!(request.is_contiguous(), enabled.len() == last + 1 - first);
            prop_assert!(!request.is_zero_length());
        } else {
            prop_assert!(request.is_zero_length() && !request.is_contiguous());
            prop_assert_eq!(request.span(), (0, 1));
        }
    }

    #[test]
    fn a_covering_request_covers_just_its_bytes(address in address(), bytes in 0..=4200_usize) {
        let covering = MemRequest::covering(FunctionId(0x300), 5, address, bytes);
        let fits = bytes != 0 && (address & 0xFFF) as usize + bytes <= 4096;
        prop_assert_eq!(covering.is_some(), fits);
        if let Some(request) = covering {
            prop_assert_eq!(request.span(), ((address & 3) as usize, bytes));
            prop_assert!(request.is_contiguous());
            prop_assert_eq!(request.address, address & !3);
            let header = Header::new(Op::MemRead(request));
            let bytes = emit_tlp(&header);
            prop_assert_eq!(Header::parse(&bytes), Ok((header, &[][..])));
        }
    }

    #[test]
    fn a_control_message_that_is_emitted_parses_to_itself(message in control_message(), behind in 0..9_usize) {
        let mut bytes = emit_message(&message);
        prop_assert_eq!(bytes.len(), message.len());
        prop_assert_eq!(Message::parse(&bytes[..bytes.len() - 1]), None);
        prop_assert_eq!(message.emit(&mut vec![0; message.len() - 1]), None);
        bytes.resize(bytes.len() + behind, 0xAA);
        prop_assert_eq!(Message::parse(&bytes), Some(message));
    }

    #[test]
    fn any_bytes_are_a_control_message_or_none(
        bytes in bytes_near(control_message().prop_map(|message| emit_message(&message))),
    ) {
        if let Some(message) = Message::parse(&bytes) {
            prop_assert_eq!(Message::parse(&emit_message(&message)), Some(message));
        }
        if let Some(reason) = CloseReason::parse(&bytes) {
            prop_assert_eq!(reason as u8, bytes[0]);
        }
    }

    #[test]
    fn a_piece_that_is_emitted_parses_to_itself(piece in ahead_piece(), data in vec(any::<u8>(), 1..200)) {
        let mut bytes = piece.emit().to_vec();
        prop_assert_eq!(Piece::parse(&bytes), None);
        bytes.extend(&data);
        prop_assert_eq!(Piece::parse(&bytes), Some((piece, &data[..])));
    }

    #[test]
    fn any_bytes_are_a_piece_or_none(
        bytes in bytes_near((ahead_piece(), any::<[u8; 8]>()).prop_map(|(piece, data)| [&piece.emit()[..], &data].concat())),
    ) {
        if let Some((piece, data)) = Piece::parse(&bytes) {
            prop_assert!((1..=MAX_BYTES).contains(&data.len()));
            prop_assert!(piece.address.checked_add(data.len() as u64).is_some());
        }
    }

    #[test]
    fn a_hello_that_is_emitted_parses_to_itself(hello in hello(), cut in 0..Hello::BYTES) {
        let mut bytes = [0xEE; Hello::BYTES];
        prop_assert_eq!(hello.emit(&mut bytes), Some(Hello::BYTES));
        prop_assert_eq!(Hello::parse(&bytes), Some(hello));
        prop_assert_eq!(Hello::parse(&bytes[..cut]), None);
        prop_assert_eq!(hello.emit(&mut bytes[..cut]), None);
    }

    #[test]
    fn any_bytes_are_a_hello_or_none(bytes in vec(any::<u8>(), 0..40)) {
        if let Some(hello) = Hello::parse(&bytes) {
            let mut again = [0; Hello::BYTES];
            hello.emit(&mut again);
            prop_assert_eq!(&again[..], &bytes[..Hello::BYTES]);
        }
    }

    #[test]
    fn a_name_is_a_short_text_without_control_characters(text in "\\PC{0,40}|[\\x00-\\x7F]{0,40}") {
        let is_name = (1..=NAME_BYTES).contains(&text.len()) && !text.bytes().any(|byte| byte < 0x20 || byte == 0x7F);
        prop_assert_eq!(Name::new(&text).map(|name| name.as_str().to_owned()), is_name.then_some(text));
    }
}
