//! What holds for every DDP segment, and for any bytes.

use etherslot_wire::ddp::{Header, Opcode, Place};
use etherslot_wire::rdmap::{AtomicCode, AtomicRequest, Cause, Terminate};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

fn header(control: [u8; 2], numbers: (u16, u32, u32, u32, u64)) -> Vec<u8> {
    let (qp, stag, msn, mo, to) = numbers;
    let mut bytes = qp.to_be_bytes().to_vec();
    // Good versions most often; half of the rest is left to chance.
    bytes.extend([control[0] & 0xFC | 1, control[1] & 0x3F | 0x40]);
    bytes.extend(stag.to_be_bytes());
    if control[0] & 0x80 == 0 {
        bytes.extend((msn % 6).to_be_bytes());
        bytes.extend(msn.to_be_bytes());
        bytes.extend(mo.to_be_bytes());
    } else {
        bytes.extend(to.to_be_bytes());
    }
    bytes
}

proptest! {
    #[test]
    fn any_bytes_are_a_segment_or_an_error(
        control: [u8; 2], numbers: (u16, u32, u32, u32, u64), data in vec(any::<u8>(), 0..60),
        damage in proptest::option::of((any::<Index>(), any::<u8>())), cut in proptest::option::of(any::<Index>()),
    ) {
        let mut bytes = header(control, numbers);
        bytes.extend(data);
        if let Some((at, value)) = damage {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Ok((header, data)) = Header::parse(&bytes) {
            let mut again = vec![0; header.len()];
            prop_assert_eq!(header.emit(&mut again), Some(header.len()));
            again.extend(data);
            prop_assert_eq!(Header::parse(&again), Ok((header, data)));
            let queue = match header.place {
                Place::Tagged { .. } => None,
                Place::Untagged { qn, .. } => Some(qn),
            };
            prop_assert_eq!(header.opcode.queue(), queue);
            prop_assert_eq!(header.opcode == Opcode::Write || header.opcode == Opcode::ReadResponse, queue.is_none());
        }
        if let Some(terminate) = Terminate::parse(&bytes) {
            let mut out = [0; Terminate::MAX_BYTES];
            let length = terminate.emit(&mut out).expect("there is room");
            prop_assert_eq!(Terminate::parse(&out[..length]), Some(terminate));
        }
    }

    #[test]
    fn a_masked_fetch_add_adds_each_field_by_itself(before: u64, operand: u64, mask: u64) {
        let request = AtomicRequest {
            code: AtomicCode::FetchAdd, identifier: 0, stag: 0, to: 0, operand, mask, compare: 0, compare_mask: 0,
        };
        // Bit by bit, as RFC 7306, 5.1 tells it: the carry out of a bit that the mask has is lost.
        let (mut expected, mut carry) = (0_u64, 0);
        for bit in 0..64 {
            let sum = (before >> bit & 1) + (operand >> bit & 1) + carry;
            expected |= (sum & 1) << bit;
            carry = if mask >> bit & 1 == 1 { 0 } else { sum >> 1 };
        }
        prop_assert_eq!(request.apply(before), expected);
    }

    #[test]
    fn a_masked_swap_touches_the_bits_of_its_mask_alone(before: u64, operand: u64, mask: u64, compare: u64) {
        for compare_mask in [0, mask, u64::MAX] {
            let request = AtomicRequest {
                code: AtomicCode::CompareSwap, identifier: 0, stag: 0, to: 0, operand, mask, compare, compare_mask,
            };
            let is_equal = before & compare_mask == compare & compare_mask;
            let expected = if is_equal { before & !mask | operand & mask } else { before };
            prop_assert_eq!(request.apply(before), expected);
        }
    }
}

#[test]
fn a_terminate_with_a_header_of_another_length_is_not_written() {
    let cause = Cause::TAGGED_STAG;
    let make = |ddp_header, rdmap_header| Terminate { cause, segment_bytes: None, ddp_header, rdmap_header };
    let mut out = [0; Terminate::MAX_BYTES];
    for (ddp, rdmap) in [(&[0x80; 18][..], &[][..]), (&[0; 14], &[]), (&[0x80; 1], &[]), (&[], &[0; 27])] {
        assert_eq!(make(ddp, rdmap).emit(&mut out), None);
    }
    assert_eq!(make(&[0x80; 14], &[0; 28]).emit(&mut out), Some(46));
}
