//! The guest behind the host node: what it is told, held against what it asked.

use etherslot_node::{Accepted, Device, Guest, Interrupt, Refused};

/// An access is answered by then, ns: the host node gives the device one second.
const ANSWER_NS: u64 = 1_100_000_000;
const MEMORY_BYTES: usize = 64 << 10;

#[derive(Clone, Copy, Debug)]
struct Waiting {
    id: u64,
    bytes: usize,
    until_ns: u64,
}

/// A guest.
#[derive(Debug)]
pub struct Machine {
    memory: Box<[u8]>,
    waiting: Vec<Waiting>,
    last_answer: Option<(u64, Vec<u8>)>,
    next_id: u64,
    /// Whether it has a device that works.
    pub attached: bool,
    device: Option<Device>,
}

impl Machine {
    /// The number of a posted access, of whose end nobody wants to hear.
    pub const NOBODY: u64 = 0;

    /// A guest with 64 KiB of memory.
    pub fn new() -> Self {
        Self {
            memory: vec![0; MEMORY_BYTES].into_boxed_slice(),
            waiting: Vec::with_capacity(16),
            last_answer: None,
            next_id: 1,
            attached: false,
            device: None,
        }
    }

    /// The number of the next access.
    pub fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// What the host node said to an access of `bytes` bytes. True if an answer is to come.
    pub fn note(&mut self, now_ns: u64, outcome: Result<Accepted, Refused>, bytes: usize) -> bool {
        let waits = outcome == Ok(Accepted::Later);
        if waits {
            self.waiting.push(Waiting { id: self.next_id, bytes, until_ns: now_ns + ANSWER_NS });
        }
        waits
    }

    /// No access waits for longer than a guest can stand.
    pub fn check(&self, now_ns: u64) {
        let late = self.waiting.iter().find(|waiting| waiting.until_ns < now_ns);
        assert!(late.is_none(), "an access is not answered in time: {late:?}");
    }

    /// The answer to the last access, if it is there.
    pub fn answer(&mut self) -> Option<Vec<u8>> {
        self.last_answer.take().filter(|(id, _)| *id == self.next_id).map(|(_, data)| data)
    }

    /// The host node was restarted: nobody will answer.
    pub fn forget(&mut self) {
        self.waiting.clear();
        self.attached = false;
        self.device = None;
    }
}

impl Guest for Machine {
    fn read(&mut self, slot: usize, address: u64, data: &mut [u8]) -> bool {
        assert!(slot == 0 && (1..=4096).contains(&data.len()));
        let Ok(at) = usize::try_from(address) else { return false };
        let range = at..at.saturating_add(data.len());
        self.memory.get(range).map(|memory| data.copy_from_slice(memory)).is_some()
    }

    fn write(&mut self, slot: usize, address: u64, data: &[u8]) -> bool {
        assert!(slot == 0 && (1..=4096).contains(&data.len()));
        let Ok(at) = usize::try_from(address) else { return false };
        let range = at..at.saturating_add(data.len());
        self.memory.get_mut(range).map(|memory| memory.copy_from_slice(data)).is_some()
    }

    fn interrupt(&mut self, slot: usize, _interrupt: Interrupt) {
        assert_eq!(slot, 0);
    }

    fn completed(&mut self, slot: usize, access: u64, data: &[u8]) {
        assert_eq!(slot, 0);
        if access == Self::NOBODY {
            return;
        }
        let index = self.waiting.iter().position(|waiting| waiting.id == access);
        let waiting = self.waiting.swap_remove(index.expect("an answer that nobody waits for"));
        assert_eq!(waiting.bytes, data.len(), "an answer of another length");
        self.last_answer = Some((access, data.to_vec()));
    }

    fn attached(&mut self, slot: usize, device: &Device) {
        assert!(slot == 0 && !self.attached);
        self.attached = true;
        assert!(self.device.is_none_or(|earlier| earlier.id == device.id), "another device in its place");
        self.device = Some(*device);
    }

    fn lost(&mut self, slot: usize) {
        assert!(slot == 0 && self.attached);
        self.attached = false;
    }
}
