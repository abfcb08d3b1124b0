//! A device that answers by where it is asked, and sees that the server keeps to what it promises a handler.

use etherslot_fuzz::Input;
use etherslot_mem::GuestMemory;
use etherslot_vfio_user::message::region;
use etherslot_vfio_user::{Answer, DeviceInfo, Errno, Handler, MessageId, RegionInfo, Server};

/// Commands that may wait for their answers.
const MAX_LATER: usize = 256;
/// The most that [`info`] lets through at once, bytes.
pub const MAX_TRANSFER_BYTES: usize = 16 << 10;

/// Regions that can be read, written, both, neither; of small and enormous sizes.
pub fn info(input: &mut Input<'_>) -> DeviceInfo {
    let mut info = DeviceInfo::default();
    info.regions[region::BAR0 as usize] = RegionInfo::read_write(0x1_0000);
    info.regions[1] = RegionInfo { bytes: 4096, readable: true, writable: false };
    info.regions[2] = RegionInfo { bytes: 4096, readable: false, writable: true };
    info.regions[4] = RegionInfo::read_write(u64::MAX);
    info.irqs = [1, 32, 2048, 0, 0];
    info.reset = !input.once_in(4);
    info.max_transfer_bytes = input.one_of(&[4096, MAX_TRANSFER_BYTES as u32]);
    info
}

/// The handler.
#[derive(Debug)]
pub struct Device {
    /// It takes accesses.
    pub room: bool,
    /// There is a client that has agreed on the protocol.
    pub connected: bool,
    /// What it has not answered, with the bytes that a read asks for.
    later: Vec<(MessageId, usize)>,
    /// What clients that are gone were not answered.
    gone: Vec<(MessageId, usize)>,
}

impl Default for Device {
    fn default() -> Self {
        Self { room: true, connected: false, later: Vec::with_capacity(MAX_LATER), gone: Vec::new() }
    }
}

/// Answers what was to be answered later; false if nobody waits for it.
fn answer(server: &mut Server, id: MessageId, bytes: usize) -> bool {
    if bytes == 0 {
        server.reply_done(id)
    } else {
        server.reply_read(id, &[0x5A; MAX_TRANSFER_BYTES][..bytes])
    }
}

impl Device {
    /// Answers all that waits.
    pub fn answer_all(&mut self, server: &mut Server) {
        for (id, bytes) in self.later.drain(..) {
            assert!(answer(server, id, bytes), "a command was forgotten");
        }
    }

    /// Answers what is not to be answered any more.
    pub fn answer_gone(&mut self, server: &mut Server) {
        for (id, bytes) in self.gone.drain(..) {
            assert!(!answer(server, id, bytes), "an answer for a client that is gone");
        }
    }

    /// Answers one of those that wait, well or badly.
    pub fn answer_one(&mut self, input: &mut Input<'_>, server: &mut Server) {
        if self.later.is_empty() {
            return;
        }
        let (id, bytes) = self.later.swap_remove(input.below(self.later.len()));
        let answered = match input.u8() % 4 {
            0 => server.reply_error(id, Errno::TIMEDOUT),
            1 => server.reply_read(id, &[0; 8]),
            _ => answer(server, id, bytes),
        };
        assert!(answered, "a command was forgotten");
        assert!(!server.reply_done(id), "a command was answered twice");
    }

    fn answer_to(&mut self, id: Option<MessageId>, place: u64, bytes: usize) -> Answer {
        match (place >> 10 & 3, id) {
            (1, Some(id)) => {
                self.later.push((id, bytes));
                assert!(self.later.len() <= MAX_LATER, "commands without bound");
                Answer::Later
            }
            (2, _) => Answer::Error(Errno::IO),
            _ => Answer::Done,
        }
    }

    fn check(&self, index: u32, offset: u64, bytes: usize) {
        assert!(self.connected && self.room, "an access that the device does not take");
        assert!((1..=MAX_TRANSFER_BYTES).contains(&bytes));
        let size = match index {
            region::BAR0 => 0x1_0000,
            4 => u64::MAX,
            1 | 2 | region::CONFIG => 4096,
            other => panic!("an access to region {other}"),
        };
        assert!(offset.checked_add(bytes as u64).is_some_and(|end| end <= size), "beyond the region");
    }
}

impl Handler for Device {
    fn connected(&mut self) {
        assert!(!std::mem::replace(&mut self.connected, true));
    }

    fn disconnected(&mut self) {
        assert!(std::mem::take(&mut self.connected));
        self.gone.append(&mut self.later);
    }

    fn read(&mut self, id: MessageId, region: u32, offset: u64, data: &mut [u8]) -> Answer {
        self.check(region, offset, data.len());
        assert_ne!(region, 2, "a region that can't be read");
        self.answer_to(Some(id), offset, data.len())
    }

    fn write(
        &mut self,
        id: Option<MessageId>,
        region: u32,
        offset: u64,
        data: &[u8],
        _memory: &GuestMemory,
    ) -> Answer {
        self.check(region, offset, data.len());
        assert_ne!(region, 1, "a region that can't be written");
        self.answer_to(id, offset, 0)
    }

    fn reset(&mut self, id: Option<MessageId>) -> Answer {
        assert!(self.connected && self.room);
        let place = if self.later.len().is_multiple_of(2) { 0 } else { 1 << 10 };
        self.answer_to(id, place, 0)
    }

    fn irqs_changed(&mut self, index: u32) {
        assert!(self.connected && index < 5);
    }

    fn memory_changed(&mut self) {
        assert!(self.connected);
    }

    fn room(&self) -> bool {
        self.room
    }
}
