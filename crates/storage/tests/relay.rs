//! Data between files, through memory of this process. That of a device needs a guest: `etherslot-lab`, part guest.

use std::fs::{self, File, OpenOptions};

use etherslot_storage::relay::{Relay, Stage, Step, Way};
use rustix::event::{PollFd, PollFlags, poll};

const CHUNK: u32 = 8192;

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|at| (at.wrapping_mul(0x9E37_79B9) >> 13) as u8).collect()
}

fn files(content: &[u8]) -> (tempfile::TempDir, Vec<File>) {
    let folder = tempfile::tempdir().unwrap();
    let [source, target] = ["source", "target"].map(|name| folder.path().join(name));
    fs::write(&source, content).unwrap();
    let target = OpenOptions::new().read(true).write(true).create_new(true).open(target).unwrap();
    (folder, vec![File::open(source).unwrap(), target])
}

/// Waits for one step to end.
fn end(relay: &mut Relay) -> (u64, Result<(), i32>) {
    let mut ended = None;
    loop {
        relay.poll(&mut |token, result| ended = Some((token, result)));
        if let Some(ended) = ended {
            return ended;
        }
        poll(&mut [PollFd::new(&relay.fd(), PollFlags::IN)], None).unwrap();
    }
}

fn step(way: Way, offset: u64, least: u32) -> Step {
    let file = usize::from(way != Way::Read);
    Step { token: offset, way, file, offset, bytes: CHUNK, least, at: CHUNK as usize }
}

#[test]
fn what_is_read_from_one_file_is_written_to_the_other_up_to_the_end_of_the_shorter() {
    let content = pattern(3 * CHUNK as usize - 100);
    let (folder, files) = files(&content);
    let mut relay = Relay::new(files, Stage::here(2 * CHUNK as usize).unwrap(), 4).unwrap();
    for offset in (0..3).map(|chunk| chunk * u64::from(CHUNK)) {
        let least = CHUNK.min((content.len() as u64 - offset) as u32);
        for way in [Way::Read, Way::Write] {
            assert!(relay.submit(step(way, offset, least)));
            assert_eq!(end(&mut relay), (offset, Ok(())), "{way:?}");
        }
    }
    assert!(relay.submit(Step { bytes: 0, at: 0, ..step(Way::Flush, 7, 0) }));
    assert_eq!(end(&mut relay), (7, Ok(())));
    relay.file(1).set_len(content.len() as u64).unwrap();
    assert!(fs::read(folder.path().join("target")).unwrap() == content);
    // It is shorter than it is said to be.
    assert!(relay.submit(step(Way::Read, 2 * u64::from(CHUNK), CHUNK)));
    assert_eq!(end(&mut relay).1, Err(5), "EIO");
    assert!(relay.submit(Step { file: 0, ..step(Way::Write, 0, 0) }));
    assert_eq!(end(&mut relay).1, Err(9), "EBADF: it was opened to be read");
}

#[test]
fn parts_of_the_memory_are_compared_and_the_seal_stays_until_it_is_lost() {
    let (_folder, files) = files(&pattern(2 * CHUNK as usize));
    let mut relay = Relay::new(files, Stage::here(3 * CHUNK as usize).unwrap(), 1).unwrap();
    let read = |offset, at| Step { at, ..step(Way::Read, offset, CHUNK) };
    for (offset, at) in [(0, 0), (u64::from(CHUNK), CHUNK as usize), (0, 2 * CHUNK as usize)] {
        assert!(relay.submit(read(offset, at)));
        assert!(!relay.submit(read(offset, at)), "one at a time was asked for");
        assert_eq!(end(&mut relay).1, Ok(()));
    }
    let chunk = CHUNK as usize;
    assert!(relay.is_same(0, 2 * chunk, chunk) && !relay.is_same(0, chunk, chunk));
    assert!(!relay.stage().is_sealed(77) && !relay.stage().is_of_device());
    relay.stage_mut().seal(77);
    assert!(relay.stage().is_sealed(77) && !relay.stage().is_sealed(78));
    relay.stage_mut().seal(u32::MAX);
    assert!(relay.stage().is_sealed(u32::MAX) && !relay.stage().is_sealed(77));
    assert!(Stage::of_device("/nonexistent/p2pmem/allocate".as_ref(), 4096).is_err());
}

#[test]
fn a_relay_that_is_dropped_waits_for_what_is_under_way() {
    let (_folder, files) = files(&pattern(CHUNK as usize));
    let mut relay = Relay::new(files, Stage::here(2 * CHUNK as usize).unwrap(), 8).unwrap();
    for _ in 0..8 {
        assert!(relay.submit(step(Way::Read, 0, CHUNK)));
    }
    drop(relay);
}
