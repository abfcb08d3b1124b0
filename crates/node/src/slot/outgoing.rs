//! What goes to the Function: requests in their order, and the answers to its reads.

use etherslot_pci::completer;
use etherslot_pci::enumerate::Layout;
use etherslot_pci::requester::Expect;
use etherslot_session::Session;
use etherslot_wire::FunctionId;
use etherslot_wire::control::{Message, feature};
use etherslot_wire::tlp::{
    CfgRequest, CfgType, Completion, CplStatus, Header, MAX_HEADER_BYTES, MemRequest, Op,
};

use super::{
    ACCESSES, ATTACH_RETRY_NS, AccessKind, MAX_PAYLOAD_BYTES, Outgoing, Purpose, ROOT, Slot, State,
    WaitingRead,
};
use crate::bring_up::{BringUp, UPSTREAM};
use crate::guest_config::{GuestConfig, RegisterWrite};
use crate::host_api::{Device, Guest, Interrupts};
use crate::out::{send_control, send_read_tlp, send_tlp};

/// Bytes of the Function's reads that are answered in one poll: they leave while the next are copied.
const POLL_BYTES: usize = 128 << 10;

impl Slot {
    /// Goes on with everything that can go on. True if something was done.
    pub(crate) fn poll(&mut self, now_ns: u64, session: &mut Session, guest: &mut dyn Guest) -> bool {
        self.polled_ns = now_ns;
        let mut progress = self.expire(now_ns, guest);
        progress |= match &self.state {
            State::Detached | State::Strange => false,
            State::Attaching { retry_at_ns } => *retry_at_ns <= now_ns && self.ask(session),
            State::BringUp(_) => self.bring_up(now_ns, session, guest),
            State::Ready => self.tell_reaches(session) | self.send_outgoing(now_ns, session, guest),
            State::Detaching { told } => !told && self.detach(session),
        };
        progress |= self.answer_reads(session, guest);
        self.watch_room(now_ns, session);
        progress
    }

    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        let accesses = self.accesses.iter().filter(|access| access.kind != AccessKind::Free);
        let accesses = accesses.map(|access| access.deadline_ns).min();
        let attach = match self.state {
            State::Attaching { retry_at_ns } => Some(retry_at_ns),
            State::BringUp(ref script) => Some(script.start_ns()),
            _ => None,
        };
        let attach = attach.filter(|&at_ns| at_ns > self.polled_ns);
        [accesses, attach, self.requester.deadline_ns()].into_iter().flatten().min()
    }

    fn expire(&mut self, now_ns: u64, guest: &mut dyn Guest) -> bool {
        let mut progress = false;
        while let Some((purpose, address, bytes)) = self.requester.expire(now_ns) {
            self.counters.access_timeouts += 1;
            self.answered(purpose, address, None, bytes, guest);
            progress = true;
        }
        for index in 0..ACCESSES {
            if self.accesses[index].kind != AccessKind::Free && self.accesses[index].deadline_ns <= now_ns {
                self.counters.access_timeouts += 1;
                self.finish(index, guest);
                progress = true;
            }
        }
        progress
    }

    fn detach(&mut self, session: &mut Session) -> bool {
        let told = send_control(session, self.stream, Message::Detach);
        self.state = State::Detaching { told };
        told
    }

    fn ask(&mut self, session: &mut Session) -> bool {
        let attach = Message::Attach {
            name: self.name,
            stream: self.stream,
            max_payload_bytes: self.max_payload_bytes,
            max_read_request_bytes: MAX_PAYLOAD_BYTES,
        };
        let sent = send_control(session, etherslot_wire::control::CONTROL_STREAM, attach);
        if sent {
            self.state = State::Attaching { retry_at_ns: u64::MAX };
        }
        sent
    }

    fn bring_up(&mut self, now_ns: u64, session: &mut Session, guest: &mut dyn Guest) -> bool {
        let mut progress = false;
        // A box that does not know of domains hands all to us, and we refuse what is no memory.
        if self.is_domain_due && session.has(feature::PEERS) {
            if !send_control(session, self.stream, Message::Domain { domain: self.domain }) {
                return false;
            }
            self.is_domain_due = false;
            progress = true;
        }
        while let State::BringUp(script) = &self.state {
            if script.has_failed() {
                tracing::warn!(device = self.name.as_str(), "the device does not answer; trying again");
                self.state = State::BringUp(BringUp::new(self.port, now_ns + ATTACH_RETRY_NS));
                return true;
            }
            if now_ns < script.start_ns() {
                break;
            }
            if script.is_done() {
                self.brought_up(guest);
                return true;
            }
            let Some((number, target, register, value)) = script.next() else { break };
            let (value, purpose) = (value.map(u32::to_le_bytes), Purpose::BringUp { number });
            if !self.send_cfg(now_ns, session, target, register, 0xF, value, purpose) {
                break;
            }
            if let State::BringUp(script) = &mut self.state {
                script.sent();
            }
            progress = true;
        }
        progress
    }

    fn brought_up(&mut self, guest: &mut dyn Guest) {
        let State::BringUp(script) = std::mem::replace(&mut self.state, State::Ready) else { return };
        self.moved();
        let layout = Layout::parse(&script.image, &script.bar_sizes);
        match &self.config {
            Some(config) if config.is_same_function(&script.image) => {
                config.restore(&mut |write| {
                    self.outgoing.push_back(Outgoing::CfgWrite {
                        target: self.function,
                        write,
                        purpose: Purpose::Own,
                    });
                });
                if config.memory_enabled() {
                    self.queue_routes();
                }
                self.interrupts_told = Interrupts::Legacy;
            }
            Some(_) => {
                // The guest knows another device here; it goes on reading all ones until it has none.
                tracing::error!(
                    device = self.name.as_str(),
                    "another kind of device came back; it waits until the guest's device is unplugged (hot_plug does that) or the guest ends"
                );
                self.state = State::Strange;
                return;
            }
            None => self.config = Some(GuestConfig::new(&script.image, layout, self.hide_msix)),
        }
        if let Some(device) = self.device() {
            tracing::info!(device = self.name.as_str(), function = %self.function, "device attached");
            guest.attached(self.index, &device);
        }
    }

    pub(crate) fn layout(&self) -> Option<&Layout> {
        self.config.as_ref().map(GuestConfig::layout)
    }

    fn device(&self) -> Option<Device> {
        let layout = self.layout()?;
        Some(Device {
            id: (layout.vendor, layout.device),
            bar_bytes: layout.bars.map(|bar| bar.map_or(0, |bar| bar.bytes)),
            msi_vectors: layout.msi.map_or(0, |msi| msi.vectors),
            msix_vectors: layout.msix.filter(|_| !self.hide_msix).map_or(0, |msix| msix.vectors),
            intx: layout.interrupt_pin != 0,
        })
    }

    #[expect(clippy::too_many_arguments, reason = "they are the fields of one Request")]
    fn send_cfg(
        &mut self,
        now_ns: u64,
        session: &mut Session,
        target: FunctionId,
        register: u16,
        first_be: u8,
        write: Option<[u8; 4]>,
        purpose: Purpose,
    ) -> bool {
        if session.room_for(self.stream) == 0 {
            return false;
        }
        let expect = if write.is_some() { Expect::Status } else { Expect::Config };
        let Some(tag) = self.requester.begin(now_ns, u64::from(register), 4, expect, purpose) else {
            return false;
        };
        let kind = if target == UPSTREAM { CfgType::Type0 } else { CfgType::Type1 };
        let request = CfgRequest { kind, requester: ROOT, tag, target, register, first_be };
        let (op, data) = match &write {
            Some(data) => (Op::CfgWrite(request), &data[..]),
            None => (Op::CfgRead(request), &[][..]),
        };
        send_tlp(session, self.stream, &Header::new(op), data)
    }

    fn send_outgoing(&mut self, now_ns: u64, session: &mut Session, guest: &mut dyn Guest) -> bool {
        let mut progress = false;
        while !self.resetting {
            let Some(outgoing) = self.outgoing.front().copied() else {
                if self.queue_interrupts() {
                    continue;
                }
                break;
            };
            let sent = match outgoing {
                Outgoing::CfgWrite { target, write, purpose } => {
                    let RegisterWrite { register, enables, data } = write;
                    self.send_cfg(now_ns, session, target, register, enables, Some(data), purpose)
                }
                Outgoing::MemWrite { address, data } => {
                    session.room_for(self.stream) != 0
                        && MemRequest::covering(ROOT, 0, address, data.len()).is_none_or(|request| {
                            send_tlp(session, self.stream, &Header::new(Op::MemWrite(request)), &data)
                        })
                }
                Outgoing::Doorbell { address, data } => {
                    session.room_for(self.stream) != 0
                        && MemRequest::covering(ROOT, 0, address, data.len()).is_none_or(|request| {
                            send_tlp(session, self.stream, &Header::new(Op::MemWrite(request)), &data)
                        })
                }
                Outgoing::Read { index, generation } => {
                    self.send_read(now_ns, session, index as usize, generation)
                }
                Outgoing::HotReset => send_control(session, self.stream, Message::HotReset),
            };
            if !sent {
                break;
            }
            if matches!(outgoing, Outgoing::HotReset) {
                self.resetting = true;
                // What is under way in the Function will not be answered any more.
                self.requester.abandon();
                for index in 0..ACCESSES {
                    if self.accesses[index].kind != AccessKind::Reset && self.accesses[index].issued != 0 {
                        self.finish(index, guest);
                    }
                }
            }
            self.outgoing.pop_front();
            progress = true;
        }
        progress
    }

    /// Sends what is left of a guest's read; true when all of it is on its way.
    fn send_read(&mut self, now_ns: u64, session: &mut Session, index: usize, generation: u32) -> bool {
        let purpose = Purpose::Access { index: index as u8, generation };
        loop {
            let access = &self.accesses[index];
            if access.generation != generation || access.issued == access.bytes {
                return true;
            }
            let sent = match access.kind {
                AccessKind::ConfigRead { offset } => {
                    let start = offset + access.issued;
                    let end = (offset + access.bytes).min((start & !3) + 4);
                    let enables = (0xF_u8 << (start & 3)) & (0xF_u8 >> (3 - (end - 1) % 4));
                    let bytes = end - start;
                    let function = self.function;
                    self.send_cfg(now_ns, session, function, start & !3, enables, None, purpose)
                        .then_some(bytes)
                }
                AccessKind::BarRead { address } => {
                    let at = address + u64::from(access.issued);
                    let left = (access.bytes - access.issued) as usize;
                    let bytes = left.min(4096 - (at & 0xFFF) as usize);
                    self.send_memory_read(now_ns, session, at, bytes, purpose).then_some(bytes as u16)
                }
                AccessKind::Free | AccessKind::ConfigWrite | AccessKind::Reset => return true,
            };
            match sent {
                Some(bytes) => self.accesses[index].issued += bytes,
                None => return false,
            }
        }
    }

    fn send_memory_read(
        &mut self,
        now_ns: u64,
        session: &mut Session,
        address: u64,
        bytes: usize,
        purpose: Purpose,
    ) -> bool {
        if session.room_for(self.stream) == 0 {
            return false;
        }
        let Some(tag) = self.requester.begin(now_ns, address, bytes, Expect::Memory, purpose) else {
            return false;
        };
        MemRequest::covering(ROOT, tag, address, bytes)
            .is_some_and(|request| send_tlp(session, self.stream, &Header::new(Op::MemRead(request)), &[]))
    }

    /// Answers the Function's reads from guest memory, as far as the session has room.
    fn answer_reads(&mut self, session: &mut Session, guest: &mut dyn Guest) -> bool {
        let mut progress = false;
        let mut answered = 0;
        while let Some(read) = self.reads.front_mut() {
            if session.room_for(self.stream) == 0 || answered >= POLL_BYTES {
                break;
            }
            progress = true;
            let (true, Op::MemRead(request)) = (read.supported, read.header.op) else {
                refuse(session, self.stream, read);
                self.reads.pop_front();
                continue;
            };
            let (lead, bytes) = request.span();
            let address = request.address + lead as u64;
            // A zero-length read (2.2.5) asks for nothing and is answered whatever the memory.
            let asks = request.first_be != 0;
            let parts =
                completer::completions(&request, ROOT, completer::ROOT_RCB_BYTES, self.max_payload_bytes);
            let mut parts = parts.starting_at(read.sent as usize);
            let mut faulted = false;
            while session.room_for(self.stream) != 0
                && let Some(part) =
                    parts.next_within(session.room_for(self.stream).saturating_sub(MAX_HEADER_BYTES))
            {
                let header = Header { op: Op::Completion(part.completion), poisoned: false, ..read.header };
                let from = address + part.offset as u64;
                let sent = send_read_tlp(session, self.stream, &header, part.bytes, &mut |data| {
                    !asks || guest.read(self.index, from, data)
                });
                if !sent {
                    faulted = true;
                    break;
                }
                read.sent = (part.offset + part.bytes) as u16;
            }
            if faulted {
                self.counters.dma_faults += 1;
                refuse(session, self.stream, read);
            } else if parts.remaining() != 0 {
                break;
            } else {
                self.counters.dma_reads += 1;
                self.counters.dma_read_bytes += bytes as u64;
                answered += bytes;
            }
            self.reads.pop_front();
        }
        progress
    }
}

/// Ends a read with UR.
fn refuse(session: &mut Session, stream: u16, read: &WaitingRead) {
    let op = match read.header.op {
        Op::MemRead(request) => {
            completer::status(&request, ROOT, CplStatus::UnsupportedRequest, read.sent as usize)
        }
        _ => Completion {
            completer: ROOT,
            status: CplStatus::UnsupportedRequest,
            byte_count: 4,
            requester: read.header.requester(),
            tag: read.header.tag(),
            lower_address: 0,
            length_dw: 0,
        },
    };
    send_tlp(session, stream, &Header { op: Op::Completion(op), poisoned: false, ..read.header }, &[]);
}
