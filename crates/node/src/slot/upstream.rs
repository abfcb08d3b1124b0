//! What comes from the Function: its DMA, its interrupts, its answers.

use etherslot_pci::requester::Outcome;
use etherslot_wire::ahead::Rule;
use etherslot_wire::control::Message;
use etherslot_wire::tlp::{Completion, Header, MemRequest, Op, code};

use super::{
    ACCESSES, AccessKind, MESSAGE_ADDRESS, Outgoing, Purpose, ROOT, Slot, State, WAITING_READS, WaitingRead,
};
use crate::guest_config::GuestConfig;
use crate::host_api::{Guest, Interrupt};

impl Slot {
    /// A control message on the Function's stream.
    pub(crate) fn control(&mut self, message: Message, guest: &mut dyn Guest) {
        match message {
            Message::ReadAhead(rule) => return self.declared(&rule),
            Message::Withdraw { rule } => return self.ahead.withdraw(rule),
            Message::Recall { window_ms } => return self.recall(u64::from(window_ms) * 1_000_000, guest),
            Message::Keep => return self.keep(guest),
            Message::Reached { all } => return self.reached(all),
            Message::Detached if matches!(self.state, State::Detaching { told: true }) => {
                self.state = State::Attaching { retry_at_ns: 0 };
                return;
            }
            _ => {}
        }
        if message == Message::HotResetDone && std::mem::take(&mut self.resetting) {
            // Another one may have been asked for meanwhile.
            self.silenced = self.outgoing.iter().any(|outgoing| matches!(outgoing, Outgoing::HotReset));
            if std::mem::take(&mut self.intx) {
                guest.interrupt(self.index, Interrupt::IntX(false));
            }
            for index in 0..ACCESSES {
                if self.accesses[index].kind == AccessKind::Reset {
                    self.finish(index, guest);
                }
            }
        } else {
            self.counters.malformed += 1;
        }
    }

    /// The Function wants memory to be sent along with a doorbell. What it wanted before a reset counts no more.
    fn declared(&mut self, rule: &Rule) {
        let layout = self.config.as_ref().map(GuestConfig::layout);
        let layout = layout.filter(|_| matches!(self.state, State::Ready) && !self.silenced);
        if !layout.is_some_and(|layout| self.ahead.declare(rule, layout)) {
            self.counters.ahead_refused += 1;
        }
    }

    /// A TLP on the Function's stream.
    pub(crate) fn receive(&mut self, now_ns: u64, tlp: &[u8], guest: &mut dyn Guest) {
        let Ok((header, data)) = Header::parse(tlp) else {
            self.counters.malformed += 1;
            return;
        };
        if !matches!(self.state, State::BringUp(_) | State::Ready) {
            self.counters.foreign += 1;
            return;
        }
        if let Op::Completion(completion) = header.op {
            self.completion(now_ns, &header, completion, data, guest);
            return;
        }
        if header.requester() != self.function {
            self.counters.foreign += 1;
            return;
        }
        if self.silenced {
            self.counters.silenced += 1;
            return;
        }
        match header.op {
            Op::MemWrite(request) => self.memory_write(&header, request, data, guest),
            Op::MemRead(_) => self.wait_for_answer(WaitingRead { header, sent: 0, supported: true }),
            Op::Message { code, .. } => self.message(code, guest),
            Op::Atomic { .. } | Op::CfgRead(_) | Op::CfgWrite(_) => {
                self.counters.unsupported += 1;
                self.wait_for_answer(WaitingRead { header, sent: 0, supported: false });
            }
            Op::Completion(_) => {}
        }
    }

    fn wait_for_answer(&mut self, read: WaitingRead) {
        if self.reads.len() < WAITING_READS {
            self.reads.push_back(read);
        } else {
            self.counters.malformed += 1;
        }
    }

    fn memory_write(&mut self, header: &Header, request: MemRequest, data: &[u8], guest: &mut dyn Guest) {
        if header.poisoned {
            self.counters.poisoned += 1;
            return;
        }
        if request.address == MESSAGE_ADDRESS {
            self.counters.interrupts += 1;
            let vector = u16::from_le_bytes([data[0], data[1]]);
            guest.interrupt(self.index, Interrupt::Message(vector));
            return;
        }
        let (lead, bytes) = request.span();
        let mut written = true;
        if request.is_contiguous() {
            let address = request.address + lead as u64;
            written = guest.write(self.index, address, &data[lead..lead + bytes]);
        } else {
            for (at, byte) in data.iter().enumerate().filter(|&(at, _)| request.enabled(at)) {
                written &= guest.write(self.index, request.address + at as u64, std::slice::from_ref(byte));
            }
        }
        if written {
            self.counters.dma_writes += 1;
            self.counters.dma_write_bytes += bytes as u64;
        } else {
            self.counters.dma_faults += 1;
        }
    }

    fn message(&mut self, message: u8, guest: &mut dyn Guest) {
        match message {
            code::ASSERT_INTA | code::DEASSERT_INTA => {
                self.intx = message == code::ASSERT_INTA;
                guest.interrupt(self.index, Interrupt::IntX(self.intx));
            }
            code::ERR_COR | code::ERR_NONFATAL | code::ERR_FATAL => self.counters.error_messages += 1,
            _ => self.counters.unsupported += 1,
        }
    }

    fn completion(
        &mut self,
        now_ns: u64,
        header: &Header,
        completion: Completion,
        data: &[u8],
        guest: &mut dyn Guest,
    ) {
        if completion.requester != ROOT {
            self.counters.foreign += 1;
            return;
        }
        match self.requester.complete(now_ns, &completion, header.poisoned, data) {
            Outcome::Data { context, address, data, .. } => {
                self.answered(context, address, Some(data), data.len(), guest);
            }
            Outcome::Failed { context, address, bytes, .. } => {
                self.answered(context, address, None, bytes, guest);
            }
            Outcome::Unexpected => self.counters.unexpected_completions += 1,
        }
    }

    /// The Request that was sent for `purpose` has an answer for `bytes` bytes from `address` on.
    pub(super) fn answered(
        &mut self,
        purpose: Purpose,
        address: u64,
        data: Option<&[u8]>,
        bytes: usize,
        guest: &mut dyn Guest,
    ) {
        match purpose {
            Purpose::Own => {}
            Purpose::BringUp { number } => {
                if let State::BringUp(script) = &mut self.state {
                    // A write's has no data.
                    let value = |data: &[u8]| data.first_chunk().copied().map_or(0, u32::from_le_bytes);
                    script.answered(number, data.map(value));
                }
            }
            Purpose::Access { index, generation } => {
                let access = &mut self.accesses[index as usize];
                if access.generation != generation {
                    return;
                }
                match access.kind {
                    AccessKind::Free | AccessKind::Reset => return,
                    AccessKind::ConfigWrite => access.done += 1,
                    AccessKind::ConfigRead { offset } => {
                        let offset = offset as usize;
                        for lane in 0..4 {
                            let at = address as usize + lane;
                            if (offset..offset + access.bytes as usize).contains(&at) {
                                access.data[at - offset] = data.map_or(0xFF, |data| data[lane]);
                                access.done += 1;
                            }
                        }
                    }
                    AccessKind::BarRead { address: base } => {
                        if let Some(data) = data {
                            let at = (address - base) as usize;
                            access.data[at..at + bytes].copy_from_slice(data);
                        }
                        access.done += bytes as u16;
                    }
                }
                if access.done == access.bytes {
                    self.finish(index as usize, guest);
                }
            }
        }
    }
}
