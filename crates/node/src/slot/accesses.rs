//! The guest's accesses: what is taken, what waits for an answer, and how it ends.

use etherslot_session::Session;
use etherslot_wire::tlp::{Header, MemRequest, Op};

use super::ahead::Rung;
use super::{
    ACCESS_BYTES, ACCESS_TIMEOUT_NS, AccessKind, BLOCKED_NS, OUTGOING, Outgoing, Purpose, ROOT, Slot, State,
};
use crate::guest_config::{BARS_END, BYTES, GuestConfig, WRITES};
use crate::host_api::{Accepted, Guest, Interrupts, Refused};
use crate::out::send_tlp;

impl Slot {
    /// Whether posted writes can be taken now. A slot that is stuck takes and drops them.
    pub(crate) fn has_room(&self, session: Option<&Session>) -> bool {
        match session {
            Some(session) if matches!(self.state, State::Ready) => self.gave_up || self.is_open(session),
            _ => true,
        }
    }

    /// Whether what the guest writes now leaves at once, behind all it did before.
    fn is_open(&self, session: &Session) -> bool {
        self.outgoing.is_empty() && !self.resetting && session.room_for(self.stream) != 0
    }

    /// Keeps account of how long posted writes have had to wait.
    pub(super) fn watch_room(&mut self, now_ns: u64, session: &Session) {
        if self.is_open(session) {
            self.blocked_since_ns = None;
            self.gave_up = false;
        } else {
            let since_ns = *self.blocked_since_ns.get_or_insert(now_ns);
            self.gave_up = now_ns.saturating_sub(since_ns) > BLOCKED_NS;
        }
    }

    pub(crate) fn config_read(
        &mut self,
        now_ns: u64,
        id: u64,
        offset: u64,
        bytes: usize,
    ) -> Result<Accepted, Refused> {
        if bytes == 0 || offset >= BYTES as u64 || bytes > BYTES - offset as usize {
            return Err(Refused::Range);
        }
        self.begin(now_ns, id, AccessKind::ConfigRead { offset: offset as u16 }, bytes).map(accepted)
    }

    pub(crate) fn config_write(
        &mut self,
        now_ns: u64,
        id: u64,
        offset: u64,
        data: &[u8],
    ) -> Result<Accepted, Refused> {
        if data.is_empty()
            || data.len() > 8
            || offset as usize >= BYTES
            || offset as usize + data.len() > BYTES
        {
            return Err(Refused::Range);
        }
        if self.outgoing.len() >= OUTGOING {
            return Err(Refused::Busy);
        }
        let mut writes = [None; WRITES];
        let mut count = 0;
        let Some(config) = &mut self.config else { return Ok(Accepted::AllOnes) };
        let effects = config.write(offset as usize, data, &mut |write| {
            writes[count] = Some(write);
            count += 1;
        });
        let Some(index) = self.begin(now_ns, id, AccessKind::ConfigWrite, count)? else {
            return Ok(Accepted::AllOnes);
        };
        let purpose = Purpose::Access { index: index as u8, generation: self.accesses[index].generation };
        for write in writes.into_iter().flatten() {
            self.outgoing.push_back(Outgoing::CfgWrite { target: self.function, write, purpose });
        }
        if offset < BARS_END as u64 {
            self.moved();
        }
        if effects.function_reset {
            self.interrupts_told = Interrupts::Legacy;
            self.ahead.clear();
        }
        if effects.routes {
            self.queue_routes();
        }
        Ok(Accepted::Later)
    }

    pub(crate) fn bar_read(
        &mut self,
        now_ns: u64,
        id: u64,
        bar: usize,
        offset: u64,
        bytes: usize,
    ) -> Result<Accepted, Refused> {
        if bytes > ACCESS_BYTES {
            return Err(Refused::Range);
        }
        match self.bar_address(bar, offset, bytes)? {
            Some(address) => self.begin(now_ns, id, AccessKind::BarRead { address }, bytes).map(accepted),
            None => Ok(Accepted::AllOnes),
        }
    }

    /// A posted write. The caller has asked [`Slot::has_room`]. `read` reads the guest's memory.
    pub(crate) fn bar_write(
        &mut self,
        session: Option<&mut Session>,
        bar: usize,
        offset: u64,
        data: &[u8],
        read: &mut dyn FnMut(u64, &mut [u8]) -> bool,
    ) -> Result<(), Refused> {
        let address = self.bar_address(bar, offset, data.len())?;
        self.counters.accesses += 1;
        let session = session.filter(|session| matches!(self.state, State::Ready) && self.is_open(session));
        let (Some(address), Some(session)) = (address, session) else {
            self.counters.lost_writes += 1;
            return Ok(());
        };
        if let Some(rung) = self.ahead.rung(bar, offset, data) {
            self.ring(rung, session, address, data, read);
            return Ok(());
        }
        let mut done = 0;
        while done < data.len() {
            let at = address + done as u64;
            let bytes =
                (data.len() - done).min(4096 - (at & 0xFFF) as usize).min(self.max_payload_bytes as usize);
            let sent = MemRequest::covering(ROOT, 0, at, bytes).is_some_and(|request| {
                send_tlp(session, self.stream, &Header::new(Op::MemWrite(request)), &data[done..done + bytes])
            });
            if !sent {
                self.counters.lost_writes += 1;
            }
            done += bytes;
        }
        Ok(())
    }

    /// A doorbell, behind what the Function wants to have sent along with it.
    fn ring(
        &mut self,
        rung: Rung,
        session: &mut Session,
        address: u64,
        data: &[u8],
        read: &mut dyn FnMut(u64, &mut [u8]) -> bool,
    ) {
        if self.config.as_ref().is_some_and(GuestConfig::is_master) {
            let sent = self.ahead.send(rung, session, self.stream, read);
            self.counters.ahead_pieces += sent.pieces;
            self.counters.ahead_bytes += sent.bytes;
        }
        self.ahead.told(rung);
        let sent = MemRequest::covering(ROOT, 0, address, data.len())
            .is_some_and(|request| send_tlp(session, self.stream, &Header::new(Op::MemWrite(request)), data));
        // The pieces have taken the room that there was. They are of no use without their doorbell.
        if let (false, Ok(data)) = (sent, data.try_into()) {
            self.outgoing.push_back(Outgoing::Doorbell { address, data });
        }
    }

    /// Hot Reset of the Function; the guest forgets what it wrote, too. Without `id` nobody is told of the end.
    pub(crate) fn reset(&mut self, now_ns: u64, id: Option<u64>) -> Result<Accepted, Refused> {
        if let Some(config) = &mut self.config {
            config.reset();
        }
        self.moved();
        self.interrupts = Interrupts::Legacy;
        if !matches!(self.state, State::Ready) {
            return Ok(Accepted::AllOnes);
        }
        let outcome = match id {
            Some(id) => accepted(self.begin(now_ns, id, AccessKind::Reset, 1)?),
            None => Accepted::AllOnes,
        };
        self.interrupts_told = Interrupts::Legacy;
        if !matches!(self.outgoing.back(), Some(Outgoing::HotReset)) {
            self.outgoing.push_back(Outgoing::HotReset);
        }
        self.silenced = true;
        self.reads.clear();
        self.ahead.clear();
        Ok(outcome)
    }

    /// The guest set up its interrupts in another way.
    pub(crate) fn set_interrupts(&mut self, interrupts: Interrupts) {
        self.interrupts = interrupts;
        if matches!(self.state, State::Ready) {
            self.queue_interrupts();
        }
    }

    fn bar_address(&self, bar: usize, offset: u64, bytes: usize) -> Result<Option<u64>, Refused> {
        let Some(config) = &self.config else { return Ok(None) };
        let size = config.layout().bars.get(bar).copied().flatten().map_or(0, |bar| bar.bytes);
        if bytes == 0 || offset.checked_add(bytes as u64).is_none_or(|end| end > size) {
            return Err(Refused::Range);
        }
        let base = config.bar_address(bar);
        Ok((base != 0 && config.memory_enabled()).then_some(base + offset))
    }

    /// Starts an access; `None` if it is done already.
    fn begin(
        &mut self,
        now_ns: u64,
        id: u64,
        kind: AccessKind,
        bytes: usize,
    ) -> Result<Option<usize>, Refused> {
        self.counters.accesses += 1;
        if !matches!(self.state, State::Ready) || bytes == 0 {
            return Ok(None);
        }
        let free = self.accesses.iter().position(|access| access.kind == AccessKind::Free);
        let index = free.filter(|_| self.outgoing.len() < OUTGOING).ok_or(Refused::Busy)?;
        let access = &mut self.accesses[index];
        access.id = id;
        access.kind = kind;
        access.generation = access.generation.wrapping_add(1);
        access.bytes = bytes as u16;
        access.issued = 0;
        access.done = 0;
        access.deadline_ns = now_ns + ACCESS_TIMEOUT_NS;
        access.data[..bytes].fill(0xFF);
        let generation = access.generation;
        if matches!(kind, AccessKind::ConfigRead { .. } | AccessKind::BarRead { .. }) {
            self.outgoing.push_back(Outgoing::Read { index: index as u8, generation });
        }
        Ok(Some(index))
    }

    /// Ends access `index`, if there is one, with what it has.
    pub(super) fn finish(&mut self, index: usize, guest: &mut dyn Guest) {
        let access = &mut self.accesses[index];
        let bytes = access.bytes as usize;
        let data = match std::mem::replace(&mut access.kind, AccessKind::Free) {
            AccessKind::Free => return,
            AccessKind::ConfigRead { offset } => {
                if let Some(config) = &self.config
                    && access.done == access.bytes
                {
                    config.overlay(offset as usize, &mut access.data[..bytes]);
                }
                &access.data[..bytes]
            }
            AccessKind::BarRead { .. } => &access.data[..bytes],
            AccessKind::ConfigWrite | AccessKind::Reset => &[],
        };
        guest.completed(self.index, access.id, data);
    }
}

/// What becomes of an access that was begun, or was done at once.
fn accepted(begun: Option<usize>) -> Accepted {
    if begun.is_some() { Accepted::Later } else { Accepted::AllOnes }
}
