//! Memory as a medium: what was written is read, and zeros come in pieces.

use etherslot_storage::ram::{RamError, RamMedium};
use etherslot_storage::{Buf, Done, Medium, MediumError, Op, Request};

fn request(token: u64, op: Op, offset: u64, bytes: u64, buf: Option<Buf>) -> Request {
    Request { token, op, offset, bytes, buf, buf_offset: 0 }
}

fn one(medium: &mut RamMedium, request: Request) -> Done {
    medium.submit(0, request).unwrap();
    let mut done = None;
    while medium.poll(0, &mut |one| done = Some(one)) {}
    done.unwrap()
}

#[test]
fn what_was_written_is_read_and_the_rest_is_zero() {
    let mut medium = RamMedium::new(1 << 20, false).unwrap();
    let data = Buf::from(&[7; 1024][..]);
    let write = Op::Write { durable: true };
    assert_eq!(one(&mut medium, request(1, write, 512, 1024, Some(data))).result, Ok(()));
    assert_eq!(one(&mut medium, request(2, Op::Flush, 0, 0, None)).result, Ok(()));
    let done = one(&mut medium, request(3, Op::Read, 0, 2048, Some(Buf::new(2048))));
    let buf = done.buf.unwrap();
    assert_eq!((done.token, done.result), (3, Ok(())));
    assert!(buf[..512] == [0; 512] && buf[512..1536] == [7; 1024] && buf[1536..2048] == [0; 512]);
}

#[test]
fn zeros_of_a_large_range_take_more_than_one_poll_and_leave_the_rest_alone() {
    let (bytes, blocks) = (8 << 20, [0, (8 << 20) - 4096]);
    let mut medium = RamMedium::new(bytes, false).unwrap();
    for offset in blocks {
        let data = Buf::from(&[9; 4096][..]);
        one(&mut medium, request(0, Op::Write { durable: false }, offset, 4096, Some(data)));
    }
    for op in [Op::WriteZeroes { unmap: true }, Op::Discard] {
        medium.submit(0, request(1, op, 4096, bytes - 8192, None)).unwrap();
        let (mut polls, mut ended) = (0, 0);
        while medium.deadline_ns().is_some() {
            assert!(medium.poll(0, &mut |done| ended += u32::from(done.result.is_ok())));
            polls += 1;
        }
        assert_eq!((polls, ended), (8, 1));
    }
    for offset in blocks {
        let done = one(&mut medium, request(2, Op::Read, offset, 4096, Some(Buf::new(4096))));
        assert!(done.buf.unwrap().iter().all(|byte| *byte == 9));
    }
    assert_eq!(one(&mut medium, request(3, Op::Discard, 0, 0, None)).result, Ok(()));
}

#[test]
fn what_does_not_fit_is_refused_and_changes_nothing() {
    let mut medium = RamMedium::new(8192, true).unwrap();
    let write = Op::Write { durable: false };
    let result = one(&mut medium, request(0, write, 0, 512, Some(Buf::new(512)))).result;
    assert_eq!(result, Err(MediumError::ReadOnly));
    for (offset, bytes, buf) in
        [(8192, 512, Some(Buf::new(512))), (1, 512, Some(Buf::new(512))), (0, 512, None)]
    {
        let result = one(&mut medium, request(0, Op::Read, offset, bytes, buf)).result;
        assert_eq!(result, Err(MediumError::Invalid), "{offset}");
    }
}

#[test]
fn a_size_that_memory_cannot_have_is_refused() {
    assert!(matches!(RamMedium::new(0, false), Err(RamError::Size(0))));
    assert!(matches!(RamMedium::new(4097, false), Err(RamError::Size(4097))));
    assert!(matches!(RamMedium::new(1 << 60, false), Err(RamError::Memory { .. })));
}

#[test]
fn no_more_is_taken_than_it_has_room_for() {
    let mut medium = RamMedium::new(8192, false).unwrap();
    let taken =
        (0..1000).take_while(|token| medium.submit(0, request(*token, Op::Flush, 0, 0, None)).is_ok());
    let taken = taken.count();
    let mut done = 0;
    assert!(medium.poll(0, &mut |_| done += 1));
    assert_eq!((taken, done), (256, 256));
    assert!(!medium.poll(0, &mut |_| ()) && medium.submit(0, request(0, Op::Flush, 0, 0, None)).is_ok());
}

#[test]
fn what_is_poked_is_seen_at_once_and_what_does_not_fit_changes_nothing() {
    let mut medium = RamMedium::new(8192, false).unwrap();
    assert!(medium.poke(512, &[5; 1024]) && medium.poke(8192 - 512, &[6; 512]) && medium.poke(8192, &[]));
    let before = medium.peek(0, 8192).unwrap().to_vec();
    assert!(before[..512] == [0; 512] && before[512..1536] == [5; 1024] && before[7680..] == [6; 512]);
    for (offset, bytes) in
        [(1, 512), (0, 511), (7680, 1024), (8192, 512), (u64::MAX - 511, 512), (1 << 40, 512)]
    {
        assert!(!medium.poke(offset, &vec![9; bytes]), "{bytes} bytes at {offset}");
    }
    assert_eq!(medium.peek(0, 8192).unwrap(), before);
    assert!(!RamMedium::new(8192, true).unwrap().poke(0, &[9; 512]), "read-only");
}
