//! Files that a client passes: of use, of none, and such as change after they were passed.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use etherslot_fuzz::Input;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{
    MemfdFlags, Mode, OFlags, SealFlags, fcntl_add_seals, fcntl_setfl, ftruncate, memfd_create, open,
};
use rustix::pipe::{PipeFlags, pipe_with};

/// Kinds of files.
const KINDS: usize = 12;
/// Memory of 32 KiB.
pub const MEMORY: u8 = 2;
/// An eventfd.
pub const EVENT: u8 = 4;
const SOCKET: usize = 11;

/// One of each kind, made when it is first asked for.
#[derive(Debug, Default)]
pub struct Files([Option<OwnedFd>; KINDS]);

fn memfd(bytes: u64) -> OwnedFd {
    let fd = memfd_create("guest", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("a memfd");
    ftruncate(&fd, bytes).expect("a memfd has any size");
    fd
}

fn sealed(seals: SealFlags) -> OwnedFd {
    let fd = memfd(0x8000);
    fcntl_add_seals(&fd, seals).expect("a memfd can be sealed");
    fd
}

fn make(kind: usize) -> OwnedFd {
    match kind as u8 {
        0 => memfd(0),
        1 => memfd(0x1001),
        MEMORY => memfd(0x8000),
        3 => memfd(1 << 40),
        EVENT => eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).expect("an eventfd"),
        // A write to it would wait.
        5 => {
            let fd = eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd");
            rustix::io::write(&fd, &(u64::MAX - 1).to_ne_bytes()).expect("an eventfd counts so far");
            fd
        }
        6 => open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).expect("the null device"),
        7 => pipe_with(PipeFlags::CLOEXEC).expect("a pipe").1,
        8 => sealed(SealFlags::WRITE),
        9 => sealed(SealFlags::SHRINK | SealFlags::GROW),
        _ => open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).expect("the root directory"),
    }
}

impl Files {
    /// Of a client with this socket, which is a file as well.
    pub fn new(socket: BorrowedFd<'_>) -> Self {
        let mut files = Self::default();
        files.0[SOCKET] = socket.try_clone_to_owned().ok();
        files
    }

    /// Makes those of these kinds that are not there.
    pub fn prepare(&mut self, kinds: &[u8]) {
        for kind in kinds.iter().map(|&kind| kind as usize % KINDS) {
            self.0[kind].get_or_insert_with(|| make(kind));
        }
    }

    /// Files of these kinds, which are there.
    pub fn get(&self, kinds: &[u8]) -> Vec<BorrowedFd<'_>> {
        let one = |&kind: &u8| self.0[kind as usize % KINDS].as_ref().map(AsFd::as_fd);
        kinds.iter().filter_map(one).collect()
    }

    /// Changes a file that may have been passed.
    pub fn change(&mut self, input: &mut Input<'_>) {
        let kind = input.below(KINDS) as u8;
        let Some(file) = &self.0[kind as usize] else { return };
        match kind {
            0..=3 | 8 | 9 => {
                let _ = ftruncate(file, input.number() & ((1 << 41) - 1));
            }
            EVENT | 5 => {
                let _ = match input.u8() % 3 {
                    0 => fcntl_setfl(file, OFlags::empty()),
                    1 => fcntl_setfl(file, OFlags::NONBLOCK),
                    // Any count, as long as it can't make this side wait.
                    _ => fcntl_setfl(file, OFlags::NONBLOCK)
                        .and_then(|()| rustix::io::write(file, &input.number().to_ne_bytes()).map(drop)),
                };
            }
            _ => {}
        }
    }

    /// How often the eventfd was signalled.
    pub fn events(&self) -> u64 {
        let mut count = [0; 8];
        let read = self.0[EVENT as usize].as_ref().map(|event| rustix::io::read(event, &mut count));
        if read == Some(Ok(8)) { u64::from_ne_bytes(count) } else { 0 }
    }
}
