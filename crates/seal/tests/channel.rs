//! What is sealed opens once, at one place, and nowhere else; no packet number passes twice.

use etherslot_seal::{Opener, Outbox, PHASE_FRAMES, Sealer, Suite, TrafficSecret, Unopened, Unsealed};
use etherslot_wire::frame::{Ack, Header, Kind, MAX_FRAME_BYTES, Sack};
use proptest::prelude::*;

const SUITES: [Suite; 2] = [Suite::Aes256Gcm, Suite::ChaCha20Poly1305];

fn frame(packet_number: u64, body: &[u8], sack: bool) -> Vec<u8> {
    let header = Header {
        kind: Kind::Data,
        flags: 0,
        body_len: body.len() as u16,
        dst_epoch: 1,
        src_epoch: 2,
        sequence: 3,
        packet_number,
        tx_ts_ns: 4,
        ack: Some(Ack { next: 1, credit: 2, receiver_cap_bytes: 3 }),
        echo: None,
        sack: sack.then(|| Sack::new(9)),
    };
    let mut frame = vec![0; header.len()];
    header.emit(&mut frame).unwrap();
    [&frame[..], body, &[0; 4]].concat()
}

fn ends(suite: Suite) -> (Sealer, Opener) {
    (Sealer::new(suite, TrafficSecret::new([5; 32])), Opener::new(suite, &TrafficSecret::new([5; 32])))
}

fn seal(sealer: &mut Sealer, frame: &[u8]) -> Vec<u8> {
    let mut out = vec![0; frame.len() + 12];
    assert_eq!(sealer.seal(frame, &mut out), Ok(out.len()));
    out
}

proptest! {
    #[test]
    fn what_is_sealed_opens_to_the_same(body: Vec<u8>, number in 0..PHASE_FRAMES, sack: bool, suite in 0..2usize) {
        let (mut sealer, mut opener) = ends(SUITES[suite]);
        let plain = frame(number, &body, sack);
        let sealed = seal(&mut sealer, &plain);
        if body.len() > 8 {
            prop_assert!(!sealed.windows(body.len()).any(|part| part == body));
        }
        let mut room = [0; MAX_FRAME_BYTES];
        prop_assert_eq!(opener.open(&sealed, &mut room), Ok(Header::parse(&plain).unwrap()));
    }

    #[test]
    fn nothing_of_a_sealed_frame_can_be_changed_or_taken_over(at in any::<prop::sample::Index>(), bit in 0..8u8, sack: bool) {
        for suite in SUITES {
            let (mut sealer, mut opener) = ends(suite);
            let mut sealed = seal(&mut sealer, &frame(7, &[1; 100], sack));
            let other = seal(&mut sealer, &frame(8, &[1; 100], sack));
            let mut room = [0; MAX_FRAME_BYTES];
            let at = at.index(sealed.len());
            // Header of one and body of another, and the other way round.
            let mixed = [&sealed[..at], &other[at..]].concat();
            if mixed != sealed && mixed != other {
                prop_assert!(opener.open(&mixed, &mut room).is_err());
            }
            sealed[at] ^= 1 << bit;
            prop_assert!(opener.open(&sealed, &mut room).is_err());
            prop_assert!(opener.open(&other, &mut room).is_ok());
        }
    }

    #[test]
    fn no_bytes_make_opening_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300), flags: u8) {
        let (_, mut opener) = ends(Suite::Aes256Gcm);
        let mut room = [0; MAX_FRAME_BYTES];
        let mut bytes = bytes;
        for (byte, value) in bytes.iter_mut().zip([0x13, flags | 0x20]) {
            *byte = value;
        }
        prop_assert!(opener.open(&bytes, &mut room).is_err());
    }
}

#[test]
fn no_packet_number_is_sealed_twice() {
    let (mut sealer, _) = ends(Suite::Aes256Gcm);
    let mut out = [0; 200];
    seal(&mut sealer, &frame(10, b"first", false));
    for number in [10, 9, 0, u64::MAX] {
        assert_eq!(sealer.seal(&frame(number, b"other", false), &mut out), Err(Unsealed::Number));
    }
    seal(&mut sealer, &frame(11, b"next", false));
    // What failed used no number up.
    assert_eq!(sealer.seal(&frame(12, b"no room", false), &mut out[..70]), Err(Unsealed::Malformed));
    assert_eq!(sealer.seal(&frame(12, b"", false)[..47], &mut out), Err(Unsealed::Malformed));
    seal(&mut sealer, &frame(12, b"room", false));
}

#[test]
fn keys_change_without_a_loss_and_old_ones_are_forgotten() {
    for suite in SUITES {
        let (mut sealer, mut opener) = ends(suite);
        let mut room = [0; MAX_FRAME_BYTES];
        let mut late = Vec::new();
        let mut open = |opener: &mut Opener, frame: &[u8]| opener.open(frame, &mut room).map(|_| ());
        for phase in 0..4u64 {
            let first = phase * PHASE_FRAMES;
            assert_eq!(open(&mut opener, &seal(&mut sealer, &frame(first, b"a", false))), Ok(()));
            assert_eq!((sealer.phase(), opener.phase()), (phase, phase));
            late.push(seal(&mut sealer, &frame(first + 1, b"late", false)));
            // Overtaken by the first frames of the new keys.
            if let Some(before) = phase.checked_sub(1) {
                assert_eq!(open(&mut opener, &late[before as usize]), Ok(()));
            }
            if let Some(before) = phase.checked_sub(2) {
                assert_eq!(open(&mut opener, &late[before as usize]), Err(Unopened::Phase));
            }
        }
        // A forged number of the next phase does not turn the keys.
        let mut forged = seal(&mut sealer, &frame(4 * PHASE_FRAMES, b"b", false));
        *forged.last_mut().unwrap() ^= 1;
        assert_eq!(open(&mut opener, &forged), Err(Unopened::Forged));
        assert_eq!(opener.phase(), 3);
    }
}

#[test]
fn what_a_port_does_not_take_waits_and_is_not_sealed_again() {
    let (mut sealer, mut opener) = ends(Suite::Aes256Gcm);
    let mut outbox = Outbox::new();
    let frames: Vec<Vec<u8>> = (0..200).map(|number| frame(number, &[number as u8; 1000], false)).collect();
    let frames: Vec<&[u8]> = frames.iter().map(|frame| &frame[..]).collect();
    let mut sent: Vec<Vec<u8>> = Vec::new();
    let mut room = 0;
    let mut next = 0;
    for step in 0.. {
        let mut port = |burst: &[&[u8]]| {
            let taken = burst.len().min(room);
            sent.extend(burst[..taken].iter().map(|frame| frame.to_vec()));
            room -= taken;
            taken
        };
        outbox.flush(&mut port);
        next += outbox.send(&mut sealer, &frames[next..], &mut port);
        if next == frames.len() && outbox.is_empty() {
            break;
        }
        assert!(step < 1000);
        room += [0, 1, 7, 90][step % 4];
    }
    let mut plain = [0; MAX_FRAME_BYTES];
    assert_eq!(sent.len(), frames.len());
    for (number, frame) in sent.iter().enumerate() {
        assert_eq!(opener.open(frame, &mut plain).unwrap().0.packet_number, number as u64);
    }
}

#[test]
fn sealing_and_opening_allocate_nothing() {
    let (mut sealer, mut opener) = ends(Suite::Aes256Gcm);
    let plain: Vec<Vec<u8>> =
        (0..64).map(|at| frame(PHASE_FRAMES - 32 + at, &[7; 1404], at % 7 == 0)).collect();
    let frames: Vec<&[u8]> = plain.iter().map(|frame| &frame[..]).collect();
    let (mut outbox, mut room) = (Outbox::new(), [0; MAX_FRAME_BYTES]);
    // The window is at the end of a phase; the opener has to be there.
    let mut before = Sealer::new(Suite::Aes256Gcm, TrafficSecret::new([5; 32]));
    opener.open(&seal(&mut before, &frame(1, b"", false)), &mut room).unwrap();
    let mut opened = 0;
    let info = allocation_counter::measure(|| {
        let mut port = |burst: &[&[u8]]| {
            opened += burst.iter().filter(|frame| opener.open(frame, &mut room).is_ok()).count();
            burst.len()
        };
        assert_eq!(outbox.send(&mut sealer, &frames, &mut port), 64);
    });
    assert_eq!((opened, info.count_total), (64, 0));
}
