//! A server with a scratch device, in a thread of its own, and its clients.
// Each test program uses a part of it.
#![allow(dead_code, unreachable_pub)]

use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use etherslot_mem::GuestMemory;
use etherslot_vfio_user::message::{IrqAction, IrqData, irq, region};
use etherslot_vfio_user::{Answer, Client, DeviceInfo, Errno, Handler, MessageId, RegionInfo, Server};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

pub const BAR0: u32 = region::BAR0;
pub const CONFIG: u32 = region::CONFIG;
/// Writes of accesses from here on in BAR 0 are answered later.
pub const LATER: u64 = 0x8000;
/// An access there fails.
pub const FAILS: u64 = 0x7000;

/// What a device was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Connected,
    Disconnected,
    Read { region: u32, offset: u64, bytes: usize },
    Write { region: u32, offset: u64, data: Vec<u8>, posted: bool },
    Reset,
    Irqs(u32),
    Memory,
}

/// A device of bytes that stay as written.
pub struct Scratch {
    pub events: Vec<Event>,
    pub later: Vec<MessageId>,
    pub room: usize,
    pub bar0: Vec<u8>,
    pub config: Vec<u8>,
    /// Posted writes, of which a flood is not to be remembered one by one.
    pub posted: u64,
    pub log: bool,
}

impl Scratch {
    pub fn new() -> Self {
        Self {
            events: Vec::new(),
            later: Vec::new(),
            room: usize::MAX,
            bar0: vec![0; 0x1_0000],
            config: vec![0; 4096],
            posted: 0,
            log: true,
        }
    }

    fn note(&mut self, event: Event) {
        if self.log {
            self.events.push(event);
        }
    }
}

impl Handler for Scratch {
    fn connected(&mut self) {
        self.note(Event::Connected);
    }

    fn disconnected(&mut self) {
        self.note(Event::Disconnected);
    }

    fn read(&mut self, id: MessageId, region: u32, offset: u64, data: &mut [u8]) -> Answer {
        self.note(Event::Read { region, offset, bytes: data.len() });
        match (region, offset) {
            (BAR0, FAILS) => return Answer::Error(Errno::IO),
            (BAR0, LATER..) => {
                self.later.push(id);
                return Answer::Later;
            }
            _ => {}
        }
        let memory = if region == CONFIG { &self.config } else { &self.bar0 };
        data.copy_from_slice(&memory[offset as usize..][..data.len()]);
        Answer::Done
    }

    fn write(
        &mut self,
        id: Option<MessageId>,
        region: u32,
        offset: u64,
        data: &[u8],
        _memory: &GuestMemory,
    ) -> Answer {
        self.room = self.room.saturating_sub(1);
        self.posted += u64::from(id.is_none());
        self.note(Event::Write { region, offset, data: data.to_vec(), posted: id.is_none() });
        match (region, offset, id) {
            (BAR0, FAILS, _) => return Answer::Error(Errno::IO),
            (BAR0, LATER.., Some(id)) => {
                self.later.push(id);
                return Answer::Later;
            }
            _ => {}
        }
        let memory = if region == CONFIG { &mut self.config } else { &mut self.bar0 };
        memory[offset as usize..][..data.len()].copy_from_slice(data);
        Answer::Done
    }

    fn reset(&mut self, _id: Option<MessageId>) -> Answer {
        self.note(Event::Reset);
        Answer::Done
    }

    fn irqs_changed(&mut self, index: u32) {
        self.note(Event::Irqs(index));
    }

    fn memory_changed(&mut self) {
        self.note(Event::Memory);
    }

    fn room(&self) -> bool {
        self.room > 0
    }
}

type Job = Box<dyn FnOnce(&mut Server, &mut Scratch) + Send>;

/// A served scratch device.
pub struct Rig {
    jobs: Option<mpsc::Sender<Job>>,
    wake: OwnedFd,
    thread: Option<JoinHandle<()>>,
    directory: tempfile::TempDir,
}

pub fn info() -> DeviceInfo {
    let mut info = DeviceInfo::default();
    info.regions[BAR0 as usize] = RegionInfo::read_write(0x1_0000);
    info.regions[1] = RegionInfo { bytes: 4096, readable: true, writable: false };
    info.regions[2] = RegionInfo { bytes: 4096, readable: false, writable: true };
    info.irqs = [1, 32, 2048, 0, 0];
    info
}

impl Rig {
    pub fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let wake = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).unwrap();
        let woken = wake.try_clone().unwrap();
        let (jobs, todo) = mpsc::channel::<Job>();
        let mut server = Server::bind(path, info()).unwrap();
        let thread = std::thread::spawn(move || {
            let mut scratch = Scratch::new();
            loop {
                let mut fds = [
                    PollFd::from_borrowed_fd(server.fd(), PollFlags::IN),
                    PollFd::from_borrowed_fd(woken.as_fd(), PollFlags::IN),
                ];
                let _ = poll(&mut fds, None);
                let _ = rustix::io::read(&woken, &mut [0; 8]);
                loop {
                    match todo.try_recv() {
                        Ok(job) => job(&mut server, &mut scratch),
                        Err(mpsc::TryRecvError::Empty) => break,
                        Err(mpsc::TryRecvError::Disconnected) => return,
                    }
                }
                while server.poll(&mut scratch) {}
            }
        });
        Self { jobs: Some(jobs), wake, thread: Some(thread), directory }
    }

    pub fn path(&self) -> std::path::PathBuf {
        self.directory.path().join("socket")
    }

    /// Runs `job` in the server's thread, between polls.
    pub fn with<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Server, &mut Scratch) -> T + Send + 'static,
    ) -> T {
        let (answer, result) = mpsc::channel();
        let job = Box::new(move |server: &mut Server, scratch: &mut Scratch| {
            let _ = answer.send(job(server, scratch));
        });
        self.jobs.as_ref().unwrap().send(job).unwrap();
        rustix::io::write(&self.wake, &1u64.to_ne_bytes()).unwrap();
        result.recv_timeout(Duration::from_secs(10)).expect("the server hangs")
    }

    /// Waits until `condition` holds in the server's thread.
    pub fn wait(&self, condition: impl Fn(&mut Server, &mut Scratch) -> bool + Send + Clone + 'static) {
        for _ in 0..2000 {
            if self.with(condition.clone()) {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("the condition never held");
    }

    /// A client that has not agreed on the version yet.
    pub fn stranger(&self) -> Client {
        Client::connect(self.path(), Duration::from_secs(10)).unwrap()
    }

    pub fn client(&self) -> Client {
        let mut client = self.stranger();
        client.negotiate().unwrap();
        client
    }

    pub fn events(&self) -> Vec<Event> {
        self.with(|_, scratch| std::mem::take(&mut scratch.events))
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        drop(self.jobs.take());
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        let ended = self.thread.take().map(JoinHandle::join);
        if !std::thread::panicking() {
            assert!(ended.is_some_and(|ended| ended.is_ok()), "the server panicked");
        }
    }
}

pub fn memfd(bytes: u64) -> OwnedFd {
    let fd = memfd_create("guest", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&fd, bytes).unwrap();
    fd
}

pub fn event() -> OwnedFd {
    eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).unwrap()
}

/// How often an eventfd was signalled since the last call.
pub fn count(fd: &OwnedFd) -> u64 {
    let mut bytes = [0; 8];
    rustix::io::read(fd, &mut bytes).map_or(0, |_| u64::from_ne_bytes(bytes))
}

/// Assigns eventfds to vectors from 0 on.
pub fn assign(client: &mut Client, index: u32, fds: &[OwnedFd]) {
    let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
    let range = (index, 0, fds.len() as u32);
    client.set_irqs(IrqAction::Trigger, IrqData::Eventfd, range, &fds).unwrap();
}

pub const INTX: u32 = irq::INTX;
pub const MSI: u32 = irq::MSI;
pub const MSIX: u32 = irq::MSIX;
