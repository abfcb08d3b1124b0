//! Windows, permissions, ranges, and what is seen through them.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use etherslot_mem::{Access, FaultReason, GuestMemory, Limits, MapError, MemFault, UnmapError};
use proptest::prelude::*;
use rustix::fs::{MemfdFlags, Mode, OFlags, ftruncate, memfd_create};
use rustix::io::{pread, pwrite};

const PAGE: u64 = 4096;
const ALL: Access = Access::READ_WRITE;
const WRITE: Access = Access { read: false, write: true };

fn memfd(bytes: u64) -> OwnedFd {
    let fd = memfd_create("windows", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&fd, bytes).unwrap();
    fd
}

fn fault(address: u64, reason: FaultReason) -> Result<(), MemFault> {
    Err(MemFault { address, reason })
}

#[test]
fn what_is_written_is_in_the_file_and_the_other_way_round() {
    let (mut memory, fd) = (GuestMemory::default(), memfd(16 * PAGE));
    memory.map(Some(fd.as_fd()), 2 * PAGE, 0x10_0000, 4 * PAGE, ALL).unwrap();
    memory.write(0x10_0ffd, b"across a page").unwrap();
    let mut data = [0; 13];
    pread(&fd, &mut data, 3 * PAGE - 3).unwrap();
    assert_eq!(&data, b"across a page");
    pwrite(&fd, b"from outside", 2 * PAGE).unwrap();
    memory.read(0x10_0000, &mut data[..12]).unwrap();
    assert_eq!(&data[..12], b"from outside");
}

#[test]
fn permissions_are_kept_and_a_refused_access_does_nothing() {
    let (mut memory, fd) = (GuestMemory::default(), memfd(4 * PAGE));
    let fd = Some(fd.as_fd());
    memory.map(fd, 0, 0, PAGE, ALL).unwrap();
    memory.map(fd, PAGE, PAGE, PAGE, Access::READ).unwrap();
    memory.map(fd, 2 * PAGE, 2 * PAGE, PAGE, WRITE).unwrap();
    memory.map(None, 0, 3 * PAGE, PAGE, ALL).unwrap();
    assert_eq!(memory.write(PAGE, &[1]), fault(PAGE, FaultReason::Denied));
    assert_eq!(memory.read(2 * PAGE, &mut [0]), fault(2 * PAGE, FaultReason::Denied));
    assert_eq!(memory.read(3 * PAGE, &mut [0]), fault(3 * PAGE, FaultReason::Unmapped));
    assert_eq!(memory.write(3 * PAGE, &[0]), fault(3 * PAGE, FaultReason::Unmapped));
    memory.write(2 * PAGE, &[1]).unwrap();
    // The first part would have been permitted.
    assert_eq!(memory.write(PAGE - 4, &[7; 8]), fault(PAGE, FaultReason::Denied));
    let mut data = [9; 8];
    memory.read(PAGE - 4, &mut data).unwrap();
    assert_eq!(data, [0; 8]);
    assert_eq!(memory.check(0, 2 * PAGE as usize, Access::READ), Ok(()));
    assert_eq!(memory.check(0, 2 * PAGE as usize + 1, Access::READ), fault(2 * PAGE, FaultReason::Denied));
}

#[test]
fn ranges_may_span_adjacent_windows_but_no_gap() {
    let (mut memory, first, second) = (GuestMemory::default(), memfd(4 * PAGE), memfd(4 * PAGE));
    // Neighbours in memory are not neighbours in the file, nor in one file.
    memory.map(Some(first.as_fd()), 3 * PAGE, 0x1000, PAGE, ALL).unwrap();
    memory.map(Some(second.as_fd()), 0, 0x2000, PAGE, ALL).unwrap();
    memory.map(Some(first.as_fd()), 0, 0x3000, PAGE, ALL).unwrap();
    memory.map(Some(first.as_fd()), PAGE, 0x5000, PAGE, ALL).unwrap();
    let data: Vec<u8> = (0..0x2800u32).map(|n| (n * 7) as u8).collect();
    memory.write(0x1400, &data).unwrap();
    let mut back = vec![0; data.len()];
    memory.read(0x1400, &mut back).unwrap();
    assert_eq!(back, data);
    assert_eq!(memory.write(0x3ff8, &[1; 16]), fault(0x4000, FaultReason::Unmapped));
    assert_eq!(memory.read(0xfff, &mut [0; 2]), fault(0xfff, FaultReason::Unmapped));
}

#[test]
fn the_ends_of_the_address_space_are_addresses_too() {
    let (mut memory, fd) = (GuestMemory::default(), memfd(2 * PAGE));
    let top = u64::MAX - PAGE + 1;
    memory.map(Some(fd.as_fd()), 0, top, PAGE, ALL).unwrap();
    memory.map(Some(fd.as_fd()), PAGE, 0, PAGE, ALL).unwrap();
    memory.write(u64::MAX, &[5]).unwrap();
    assert_eq!(memory.write(u64::MAX, &[5; 2]), fault(0, FaultReason::Unmapped));
    assert!(matches!(memory.map(None, 0, top - PAGE, 3 * PAGE, ALL), Err(MapError::Wraps)));
    assert_eq!(memory.unmap(top, PAGE), Ok(1));
    assert_eq!(memory.unmap(u64::MAX, 2), Err(UnmapError::Wraps));
}

#[test]
fn nothing_is_something_that_can_be_copied_anywhere() {
    let memory = GuestMemory::default();
    memory.write(0x1234, &[]).unwrap();
    memory.read(u64::MAX, &mut []).unwrap();
}

#[test]
fn maps_that_are_not_whole_pages_overlap_or_leave_the_file_are_refused() {
    let (mut memory, fd) = (GuestMemory::default(), memfd(4 * PAGE + 100));
    let fd = Some(fd.as_fd());
    memory.map(fd, 0, 2 * PAGE, 2 * PAGE, ALL).unwrap();
    for (offset, address, bytes) in [(1, 0, PAGE), (0, 1, PAGE), (0, 0, PAGE - 1), (0, 0, 0)] {
        assert!(matches!(memory.map(fd, offset, address, bytes, ALL), Err(MapError::Unaligned)));
    }
    for (address, pages) in [(0, 3), (2, 2), (3, 1), (3, 9), (0, 9), (2, 1)] {
        assert!(matches!(memory.map(fd, 0, address * PAGE, pages * PAGE, ALL), Err(MapError::Overlap)));
    }
    for (offset, bytes) in [(0, 5 * PAGE), (4 * PAGE, PAGE), (u64::MAX - PAGE + 1, PAGE), (0, 1 << 60)] {
        let result = memory.map(fd, offset, 1 << 32, bytes, ALL);
        assert!(matches!(result, Err(MapError::BeyondFile)), "{result:?}");
    }
    assert_eq!((memory.windows(), memory.files()), (1, 1));
}

#[test]
fn only_memory_is_mapped() {
    let mut memory = GuestMemory::default();
    let open = |path: &str| rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).unwrap();
    for fd in [open("/proc/self/status"), open("/dev/zero"), open("/"), rustix::pipe::pipe().unwrap().0] {
        let result = memory.map(Some(fd.as_fd()), 0, 0, PAGE, Access::READ);
        assert!(matches!(result, Err(MapError::NotMemory)), "{result:?}");
    }
}

#[test]
fn a_descriptor_that_can_only_be_read_gives_no_writable_window() {
    let (mut memory, fd) = (GuestMemory::default(), memfd(PAGE));
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let fd = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).unwrap();
    assert!(matches!(memory.map(Some(fd.as_fd()), 0, 0, PAGE, ALL), Err(MapError::Os(_))));
    memory.map(Some(fd.as_fd()), 0, 0, PAGE, Access::READ).unwrap();
    memory.read(0, &mut [0; 8]).unwrap();
}

#[test]
fn a_file_is_mapped_once_however_many_windows_there_are() {
    let (mut memory, fd) = (GuestMemory::default(), memfd(4096 * PAGE));
    for page in 0..4096 {
        memory.map(Some(fd.as_fd()), page * PAGE, (4096 - page) * 2 * PAGE, PAGE, ALL).unwrap();
    }
    assert_eq!((memory.windows(), memory.files()), (4096, 1));
    for page in 0..4096u64 {
        memory.write((4096 - page) * 2 * PAGE + 8, &page.to_ne_bytes()).unwrap();
    }
    let mut data = [0; 8];
    pread(&fd, &mut data, 1234 * PAGE + 8).unwrap();
    assert_eq!(u64::from_ne_bytes(data), 1234);
}

#[test]
fn a_file_that_has_grown_is_mapped_again() {
    let (mut memory, fd) = (GuestMemory::default(), memfd(PAGE));
    memory.map(Some(fd.as_fd()), 0, 0, PAGE, ALL).unwrap();
    ftruncate(&fd, 4 * PAGE).unwrap();
    memory.map(Some(fd.as_fd()), PAGE, PAGE, 3 * PAGE, ALL).unwrap();
    memory.write(PAGE - 1, &[1, 2]).unwrap();
    let mut data = [0; 2];
    pread(&fd, &mut data, PAGE - 1).unwrap();
    assert_eq!(data, [1, 2]);
}

#[test]
fn unmapping_takes_whole_windows_and_cuts_none() {
    let (mut memory, fd) = (GuestMemory::default(), memfd(8 * PAGE));
    let map = |memory: &mut GuestMemory| {
        for page in [0, 2, 4] {
            memory.map(Some(fd.as_fd()), page * PAGE, page * PAGE, 2 * PAGE, ALL).unwrap();
        }
    };
    map(&mut memory);
    assert_eq!(memory.unmap(PAGE, 5 * PAGE), Err(UnmapError::Bisects));
    assert_eq!(memory.unmap(0, 5 * PAGE), Err(UnmapError::Bisects));
    assert_eq!(memory.unmap(0, 0), Err(UnmapError::Wraps));
    assert_eq!(memory.unmap(16 * PAGE, PAGE), Ok(0));
    assert_eq!(memory.unmap(2 * PAGE, 2 * PAGE), Ok(1));
    assert_eq!(memory.read(2 * PAGE, &mut [0]), fault(2 * PAGE, FaultReason::Unmapped));
    assert_eq!(memory.unmap(0, 1 << 63), Ok(2));
    assert_eq!(memory.windows(), 0);
    map(&mut memory);
    memory.unmap_all();
    assert_eq!((memory.windows(), memory.files()), (0, 1));
    map(&mut memory);
    memory.write(0, &[1]).unwrap();
    memory.clear();
    assert_eq!((memory.windows(), memory.files()), (0, 0));
}

#[test]
fn few_files_without_a_window_stay_mapped() {
    let mut memory = GuestMemory::default();
    let files: Vec<_> = (0..10).map(|_| memfd(PAGE)).collect();
    for (page, file) in files.iter().enumerate() {
        memory.map(Some(file.as_fd()), 0, page as u64 * PAGE, PAGE, ALL).unwrap();
    }
    assert_eq!(memory.files(), 10);
    for page in 0..10 {
        memory.unmap(page * PAGE, PAGE).unwrap();
    }
    assert_eq!(memory.files(), 4);
}

#[test]
fn every_limit_holds() {
    let limits = Limits { windows: 3, files: 2, bytes: 6 * PAGE };
    let mut memory = GuestMemory::new(limits);
    let files = [memfd(2 * PAGE), memfd(2 * PAGE), memfd(2 * PAGE), memfd(5 * PAGE)];
    let mut map = |file: usize, page: u64| memory.map(Some(files[file].as_fd()), 0, page * PAGE, PAGE, ALL);
    map(0, 0).unwrap();
    assert!(matches!(map(3, 1), Err(MapError::TooManyFiles)), "too many bytes");
    map(1, 1).unwrap();
    assert!(matches!(map(2, 2), Err(MapError::TooManyFiles)), "too many files");
    map(1, 2).unwrap();
    assert!(matches!(map(1, 3), Err(MapError::TooManyWindows)));
    memory.unmap(0, PAGE).unwrap();
    // The first file stays mapped, but not at the expense of another.
    memory.map(Some(files[2].as_fd()), 0, 0, PAGE, ALL).unwrap();
}

#[test]
fn aligned_words_are_never_torn() {
    let (mut memory, fd) = (GuestMemory::default(), memfd(PAGE));
    memory.map(Some(fd.as_fd()), 0, 0, PAGE, ALL).unwrap();
    let mut other = GuestMemory::default();
    other.map(Some(fd.as_fd()), 0, 0, PAGE, ALL).unwrap();
    let done = AtomicBool::new(false);
    let done = &done;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for n in 0..200_000u64 {
                other.write(64, &[n as u8; 8]).unwrap();
                other.write(80, &[n as u8; 16]).unwrap();
            }
            done.store(true, Ordering::Release);
        });
        while !done.load(Ordering::Acquire) {
            let mut data = [0; 8];
            for address in [64, 80, 88] {
                memory.read(address, &mut data).unwrap();
                assert!(data.iter().all(|byte| *byte == data[0]), "{data:?}");
            }
        }
    });
}

#[test]
fn writes_are_seen_in_address_order_and_in_the_order_they_were_made() {
    let (mut memory, fd) = (GuestMemory::default(), memfd(PAGE));
    memory.map(Some(fd.as_fd()), 0, 0, PAGE, ALL).unwrap();
    let mut other = GuestMemory::default();
    other.map(Some(fd.as_fd()), 0, 0, PAGE, ALL).unwrap();
    let done = AtomicBool::new(false);
    let done = &done;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for n in 1..100_000u64 {
                let entries = [n; 64].map(u64::to_ne_bytes).concat();
                other.write(0, &entries).unwrap();
                other.write(1024, &n.to_ne_bytes()).unwrap();
            }
            done.store(true, Ordering::Release);
        });
        let word = |address: u64| {
            let mut data = [0; 8];
            memory.read(address, &mut data).unwrap();
            u64::from_ne_bytes(data)
        };
        while !done.load(Ordering::Acquire) {
            // Later places first: what was written before them is there.
            let (doorbell, last, first) = (word(1024), word(504), word(0));
            assert!(last >= doorbell && first >= last, "{doorbell} {last} {first}");
        }
    });
}

/// A window, in pages: where, how many, from where in the file, and with what permissions.
type Model = Vec<(u64, u64, u64, Access)>;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn it_does_what_a_simple_model_does(
        steps in prop::collection::vec((0u8..6, 0u64..32, 1u64..8, 0u64..32, any::<(bool, bool)>(), 0u64..4096, 0usize..9000), 1..60),
    ) {
        let (mut memory, fd) = (GuestMemory::default(), memfd(32 * PAGE));
        let (mut windows, mut file) = (Model::new(), vec![0u8; 32 * 4096]);
        // The place in the file of the byte at `address`.
        let place = |windows: &Model, address: u64, access: Access| {
            let page = address / PAGE;
            let window = windows.iter().find(|(first, pages, ..)| (*first..first + pages).contains(&page))?;
            let permitted = (!access.read || window.3.read) && (!access.write || window.3.write);
            permitted.then(|| ((window.2 + page - window.0) * PAGE + address % PAGE) as usize)
        };
        for (step, (what, first, pages, from, (read, write), at, bytes)) in steps.into_iter().enumerate() {
            let address = first * PAGE + at;
            match what {
                0 | 1 => {
                    let access = Access { read, write };
                    let result = memory.map(Some(fd.as_fd()), from * PAGE, first * PAGE, pages * PAGE, access);
                    let free = !windows.iter().any(|window| first < window.0 + window.1 && window.0 < first + pages);
                    prop_assert_eq!(result.is_ok(), free && from + pages <= 32);
                    if result.is_ok() {
                        windows.push((first, pages, from, access));
                    }
                }
                2 => {
                    let inside = |window: &(u64, u64, u64, Access)| first <= window.0 && window.0 + window.1 <= first + pages;
                    let touches = |window: &(u64, u64, u64, Access)| first < window.0 + window.1 && window.0 < first + pages;
                    let cut = windows.iter().any(|window| touches(window) && !inside(window));
                    let gone = windows.iter().filter(|window| inside(window)).count();
                    let expected = if cut { Err(UnmapError::Bisects) } else { Ok(gone) };
                    prop_assert_eq!(memory.unmap(first * PAGE, pages * PAGE), expected);
                    if !cut {
                        windows.retain(|window| !inside(window));
                    }
                }
                3 | 4 => {
                    let data: Vec<u8> = (0..bytes).map(|n| (n + step) as u8).collect();
                    let places: Option<Vec<_>> =
                        (0..bytes as u64).map(|n| place(&windows, address + n, WRITE)).collect();
                    prop_assert_eq!(memory.write(address, &data).is_ok(), places.is_some());
                    for (place, byte) in places.into_iter().flatten().zip(data) {
                        file[place] = byte;
                    }
                }
                _ => {
                    let mut data = vec![0; bytes];
                    let expected: Option<Vec<u8>> =
                        (0..bytes as u64).map(|n| place(&windows, address + n, Access::READ).map(|at| file[at])).collect();
                    let result = memory.read(address, &mut data);
                    prop_assert_eq!(result.is_ok(), expected.is_some());
                    if let Some(expected) = expected {
                        prop_assert_eq!(data, expected);
                    }
                }
            }
        }
        let mut content = vec![0; file.len()];
        pread(&fd, &mut content, 0).unwrap();
        prop_assert!(content == file, "the file is as the model's");
    }
}
