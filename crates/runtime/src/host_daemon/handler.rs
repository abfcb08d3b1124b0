//! A guest's messages, as accesses of the node.

use etherslot_mem::GuestMemory;
use etherslot_node::{Accepted, HostNode, Refused};
use etherslot_vfio_user::message::region;
use etherslot_vfio_user::{Answer, Errno, Handler, MessageId};

use super::doors::Waiting;
use crate::options::Via;

/// One slot's socket and the node, for the time of a poll.
pub(super) struct SlotHandler<'a> {
    pub(super) node: &'a mut HostNode<Via>,
    pub(super) waiting: &'a mut Waiting,
    pub(super) slot: usize,
    pub(super) now_ns: u64,
    pub(super) irqs_changed: bool,
    pub(super) released: bool,
    pub(super) connected: bool,
}

impl SlotHandler<'_> {
    /// What `outcome` means to the client; `number` is the message's, if it has one.
    fn answer(&mut self, number: Option<u64>, outcome: Result<Accepted, Refused>) -> Answer {
        if outcome == Ok(Accepted::Later) {
            return if number.is_some() { Answer::Later } else { Answer::Done };
        }
        if let Some(number) = number {
            self.waiting.take(number);
        }
        match outcome {
            Ok(_) => Answer::Done,
            Err(Refused::Range) => Answer::Error(Errno::INVAL),
            Err(Refused::Busy) => Answer::Error(Errno::NOSPC),
        }
    }

    /// The number under which the node is to know a message. A posted one gets a number nobody waits for.
    fn number(&mut self, id: Option<MessageId>) -> Option<u64> {
        id.map(|id| self.waiting.add(id))
    }
}

impl Handler for SlotHandler<'_> {
    fn connected(&mut self) {
        tracing::info!(slot = self.slot, "guest connected");
        self.connected = true;
    }

    fn disconnected(&mut self) {
        tracing::info!(slot = self.slot, "guest gone");
        self.waiting.clear();
        self.released = true;
    }

    fn read(&mut self, id: MessageId, region: u32, offset: u64, data: &mut [u8]) -> Answer {
        let number = self.waiting.add(id);
        let (now_ns, slot) = (self.now_ns, self.slot);
        data.fill(0xFF);
        let outcome = match region {
            region::CONFIG => self.node.config_read(now_ns, slot, number, offset, data.len()),
            bar if bar < region::ROM => {
                self.node.bar_read(now_ns, slot, number, bar as usize, offset, data.len())
            }
            _ => Err(Refused::Range),
        };
        self.answer(Some(number), outcome)
    }

    fn write(
        &mut self,
        id: Option<MessageId>,
        region: u32,
        offset: u64,
        data: &[u8],
        memory: &GuestMemory,
    ) -> Answer {
        let (now_ns, slot) = (self.now_ns, self.slot);
        if region < region::ROM {
            // Posted on the wire whatever the client wants.
            let read = &mut |address, data: &mut [u8]| memory.read(address, data).is_ok();
            let outcome = self.node.bar_write(slot, region as usize, offset, data, read);
            return self.answer(None, outcome.map(|()| Accepted::AllOnes));
        }
        if region != region::CONFIG {
            return self.answer(None, Err(Refused::Range));
        }
        let number = self.number(id);
        let outcome = self.node.config_write(now_ns, slot, number.unwrap_or(0), offset, data);
        self.answer(number, outcome)
    }

    fn reset(&mut self, id: Option<MessageId>) -> Answer {
        let number = self.number(id);
        let outcome = self.node.reset(self.now_ns, self.slot, number);
        self.answer(number, outcome)
    }

    fn irqs_changed(&mut self, _index: u32) {
        self.irqs_changed = true;
    }

    fn memory_changed(&mut self) {}

    fn room(&self) -> bool {
        self.node.has_room(self.slot)
    }
}
