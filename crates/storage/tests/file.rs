//! A medium on a real file keeps what it is given.

use etherslot_storage::file::{Direct, FileMedium, OpenError, Options};
use etherslot_storage::{Buf, Done, Medium, MediumError, Op, Request};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

struct Fixture {
    _folder: tempfile::TempDir,
    path: PathBuf,
}

impl Fixture {
    fn new(bytes: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        std::fs::File::create(&path).unwrap().set_len(bytes).unwrap();
        Self { _folder: folder, path }
    }

    fn open(&self, options: &Options) -> FileMedium {
        FileMedium::open(&self.path, options).unwrap()
    }
}

/// Every combination worth telling apart.
fn options() -> impl Iterator<Item = Options> {
    [512, 4096].into_iter().flat_map(|block_bytes| {
        [Direct::Auto, Direct::Never].into_iter().map(move |direct| Options {
            block_bytes,
            direct,
            ..Options::default()
        })
    })
}

fn request(token: u64, op: Op, offset: u64, bytes: u64, buf: Option<Buf>) -> Request {
    Request { token, op, offset, bytes, buf, buf_offset: 0 }
}

/// Waits as an owner does, on the descriptor.
fn wait(medium: &mut FileMedium, count: usize) -> Vec<Done> {
    let mut done = Vec::new();
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        medium.poll(0, &mut |one| done.push(one));
        if done.len() >= count {
            return done;
        }
        assert!(Instant::now() < end, "{} of {count} are done", done.len());
        if medium.deadline_ns().is_none() {
            let fd = medium.fd().unwrap();
            let mut fds = [rustix::event::PollFd::new(&fd, rustix::event::PollFlags::IN)];
            let timeout = rustix::event::Timespec { tv_sec: 5, tv_nsec: 0 };
            let _ = rustix::event::poll(&mut fds, Some(&timeout));
        }
    }
}

fn one(medium: &mut FileMedium, request: Request) -> Done {
    medium.submit(0, request).unwrap();
    wait(medium, 1).pop().unwrap()
}

fn pattern(bytes: usize, seed: u8) -> Buf {
    let data: Vec<u8> = (0..bytes).map(|at| (at as u8).wrapping_mul(31).wrapping_add(seed) | 1).collect();
    Buf::from(&data[..])
}

#[test]
fn what_is_written_is_read_back_from_medium_and_file() {
    for options in options() {
        let fixture = Fixture::new(1 << 20);
        let mut medium = fixture.open(&options);
        let data = pattern(64 << 10, 3);
        let expected = data.to_vec();
        let offset = u64::from(options.block_bytes) * 5;
        let write = one(&mut medium, request(1, Op::Write { durable: false }, offset, 64 << 10, Some(data)));
        assert_eq!((write.token, write.result), (1, Ok(())));
        let read = one(&mut medium, request(2, Op::Read, offset, 64 << 10, Some(Buf::new(64 << 10))));
        assert_eq!((read.token, read.result), (2, Ok(())));
        assert_eq!(&read.buf.unwrap()[..], &expected[..]);
        assert_eq!(one(&mut medium, request(3, Op::Flush, 0, 0, None)).result, Ok(()));
        let mut in_file = vec![0; 64 << 10];
        std::fs::File::open(&fixture.path).unwrap().read_exact_at(&mut in_file, offset).unwrap();
        assert_eq!(in_file, expected);
    }
}

#[test]
fn a_durable_write_and_an_offset_in_the_buf_work() {
    for options in options() {
        let fixture = Fixture::new(1 << 20);
        let mut medium = fixture.open(&options);
        let block = options.block_bytes as usize;
        let data = pattern(block * 3, 9);
        let expected = data[block..block * 3].to_vec();
        let write = Request {
            buf_offset: block,
            ..request(0, Op::Write { durable: true }, 0, block as u64 * 2, Some(data))
        };
        assert_eq!(one(&mut medium, write).result, Ok(()));
        let read = one(&mut medium, request(0, Op::Read, 0, block as u64 * 2, Some(Buf::new(block * 2))));
        assert_eq!(&read.buf.unwrap()[..block * 2], &expected[..]);
    }
}

#[test]
fn zeroes_and_discards_clear_exactly_their_range() {
    for options in options() {
        for op in [Op::WriteZeroes { unmap: false }, Op::WriteZeroes { unmap: true }, Op::Discard] {
            let fixture = Fixture::new(1 << 20);
            let mut medium = fixture.open(&options);
            assert!(medium.info().discard_zeroes);
            let block = u64::from(options.block_bytes);
            let bytes = block * 40;
            let write = request(0, Op::Write { durable: false }, 0, bytes, Some(pattern(bytes as usize, 1)));
            one(&mut medium, write);
            assert_eq!(one(&mut medium, request(0, op, block * 3, block * 30, None)).result, Ok(()));
            let read = one(&mut medium, request(0, Op::Read, 0, bytes, Some(Buf::new(bytes as usize))));
            let buf = read.buf.unwrap();
            let (start, end) = (block as usize * 3, block as usize * 33);
            assert!(buf[start..end].iter().all(|byte| *byte == 0), "{op:?}");
            assert!(buf[..start].iter().chain(&buf[end..bytes as usize]).all(|byte| *byte != 0), "{op:?}");
        }
    }
}

#[test]
fn as_many_as_the_depth_are_in_flight_and_one_more_is_given_back() {
    let fixture = Fixture::new(1 << 20);
    let mut medium = fixture.open(&Options { depth: 8, ..Options::default() });
    for token in 0..8 {
        let write = request(token, Op::Write { durable: false }, token * 4096, 4096, Some(pattern(4096, 0)));
        medium.submit(0, write).unwrap();
    }
    let refused = medium.submit(0, request(8, Op::Read, 0, 4096, Some(Buf::new(4096)))).unwrap_err();
    let mut tokens: Vec<u64> = wait(&mut medium, 8).iter().map(|done| done.token).collect();
    tokens.sort_unstable();
    assert_eq!(tokens, (0..8).collect::<Vec<_>>());
    assert_eq!(one(&mut medium, refused).result, Ok(()));
}

#[test]
fn what_does_not_fit_is_refused_without_touching_the_file() {
    let fixture = Fixture::new(1 << 20);
    let mut medium = fixture.open(&Options::default());
    let write = Op::Write { durable: false };
    let cases = [
        request(0, write, 1, 512, Some(Buf::new(512))),
        request(0, write, 0, 100, Some(Buf::new(512))),
        request(0, write, 1 << 20, 512, Some(Buf::new(512))),
        request(0, write, u64::MAX - 511, 512, Some(Buf::new(512))),
        request(0, Op::Read, 0, 8192, Some(Buf::new(4096))),
        request(0, Op::Read, 0, 4096, None),
        Request { buf_offset: 4096, ..request(0, Op::Read, 0, 512, Some(Buf::new(4096))) },
        request(0, Op::Discard, 1 << 20, 512, None),
    ];
    for case in cases {
        assert_eq!(one(&mut medium, case).result, Err(MediumError::Invalid));
    }
}

#[test]
fn a_read_only_medium_takes_reads_and_flushes_only() {
    let fixture = Fixture::new(1 << 20);
    let mut medium = fixture.open(&Options { read_only: true, ..Options::default() });
    let mut run = |op| one(&mut medium, request(0, op, 0, 512, Some(Buf::new(512)))).result;
    assert_eq!(run(Op::Read), Ok(()));
    assert_eq!(run(Op::Flush), Ok(()));
    assert_eq!(run(Op::Write { durable: true }), Err(MediumError::ReadOnly));
    assert_eq!(run(Op::WriteZeroes { unmap: true }), Err(MediumError::ReadOnly));
    assert_eq!(run(Op::Discard), Err(MediumError::ReadOnly));
}

#[test]
fn a_second_user_is_kept_out_until_the_first_is_gone() {
    let fixture = Fixture::new(1 << 20);
    let first = fixture.open(&Options::default());
    assert!(matches!(FileMedium::open(&fixture.path, &Options::default()), Err(OpenError::Busy(_))));
    drop(first);
    fixture.open(&Options::default());
}

#[test]
fn dropping_it_waits_for_what_is_in_flight() {
    let fixture = Fixture::new(8 << 20);
    for _ in 0..20 {
        let mut medium = fixture.open(&Options::default());
        for token in 0..8 {
            let write =
                request(token, Op::Write { durable: false }, token << 20, 1 << 20, Some(pattern(1 << 20, 5)));
            medium.submit(0, write).unwrap();
        }
        medium.poll(0, &mut |_| ());
    }
    let mut medium = fixture.open(&Options::default());
    let read = one(&mut medium, request(0, Op::Read, 7 << 20, 1 << 20, Some(Buf::new(1 << 20))));
    assert_eq!(&read.buf.unwrap()[..], &pattern(1 << 20, 5)[..]);
}

#[test]
fn a_file_cut_short_below_us_is_an_error_and_not_a_hang() {
    let fixture = Fixture::new(1 << 20);
    let mut medium = fixture.open(&Options::default());
    std::fs::OpenOptions::new().write(true).open(&fixture.path).unwrap().set_len(512 << 10).unwrap();
    let whole = request(0, Op::Read, 0, 1 << 20, Some(Buf::new(1 << 20)));
    assert_eq!(one(&mut medium, whole).result, Err(MediumError::Failed));
}

#[test]
fn a_missing_file_is_made_if_asked_for_and_bad_options_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new");
    assert!(matches!(FileMedium::open(&path, &Options::default()), Err(OpenError::File { .. })));
    let made =
        FileMedium::open(&path, &Options { create_bytes: Some(10_000), ..Options::default() }).unwrap();
    assert_eq!(made.info().bytes, 9728);
    for options in [
        Options { block_bytes: 256, ..Options::default() },
        Options { block_bytes: 1000, ..Options::default() },
        Options { depth: 0, ..Options::default() },
    ] {
        assert!(matches!(FileMedium::open(&path, &options), Err(OpenError::Options)));
    }
    assert!(matches!(FileMedium::open(folder.path(), &Options::default()), Err(OpenError::Kind(_))));
}
