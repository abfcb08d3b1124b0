//! Requests to the media, and what comes back.

use super::Nvme;
use super::command::Command;
use super::events::Event;
use super::logs::warning;
use super::slot::Phase;
use super::status::Status;
use etherslot_storage::{Done, MediumError, Op, Request};

/// The token of Requests that are of no command: the Flushes of a shutdown.
pub(crate) const NO_COMMAND: u64 = u64::MAX;

/// Which Buf goes with a Request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum With {
    Nothing,
    /// The one that data from or to the host are in.
    Buf,
    /// The second one.
    Other,
}

impl Nvme {
    /// Has the medium of namespace `nsid` do something for command `index`, which waits for it.
    pub(super) fn request(&mut self, index: u16, nsid: u32, op: Op, place: (u64, u64), with: With) {
        let slot = &mut self.slots[usize::from(index)];
        slot.phase = Phase::Media;
        slot.media += 1;
        let buf = match with {
            With::Nothing => None,
            With::Buf => slot.buf.take(),
            With::Other => slot.other.take(),
        };
        let (offset, bytes) = place;
        let request = Request { token: u64::from(index), op, offset, bytes, buf, buf_offset: 0 };
        self.hand_over(nsid as usize - 1, request);
    }

    /// Whether command `index` has to wait for the medium of namespace `nsid`, to which, or from which, its data go directly.
    pub(super) fn pass(&mut self, index: u16, nsid: u32, bytes: u32) -> bool {
        let medium = &mut self.namespaces[nsid as usize - 1].medium;
        let waits = medium.pass(self.now_ns, u64::from(index), u64::from(bytes));
        if waits {
            let slot = &mut self.slots[usize::from(index)];
            slot.phase = Phase::Media;
            slot.media += 1;
            self.media_outstanding += 1;
        }
        waits
    }

    /// Flushes all media for no command. The number of them.
    pub(super) fn flush_all(&mut self) -> u32 {
        for at in 0..self.namespaces.len() {
            let request =
                Request { token: NO_COMMAND, op: Op::Flush, offset: 0, bytes: 0, buf: None, buf_offset: 0 };
            self.hand_over(at, request);
        }
        self.namespaces.len() as u32
    }

    fn hand_over(&mut self, at: usize, request: Request) {
        self.media_outstanding += 1;
        let namespace = &mut self.namespaces[at];
        // None overtakes those that wait.
        let refused = if namespace.backlog.is_empty() {
            namespace.medium.submit(self.now_ns, request)
        } else {
            Err(request)
        };
        if let Err(request) = refused {
            namespace.backlog.push_back(request);
        }
    }

    /// Takes Requests back that no medium has yet.
    pub(super) fn drop_backlogs(&mut self) {
        for namespace in &mut self.namespaces {
            for request in namespace.backlog.drain(..) {
                self.media_outstanding -= 1;
                if let Some(buf) = request.buf {
                    self.pool.give(buf);
                }
            }
        }
    }

    /// Lets the media work, and goes on with commands whose Requests are done.
    pub(super) fn poll_media(&mut self) -> bool {
        if self.media_outstanding == 0 {
            return false;
        }
        let mut any = false;
        for at in 0..self.namespaces.len() {
            let namespace = &mut self.namespaces[at];
            while let Some(request) = namespace.backlog.pop_front() {
                if let Err(request) = namespace.medium.submit(self.now_ns, request) {
                    namespace.backlog.push_front(request);
                    break;
                }
            }
            let done = &mut self.done;
            any |= namespace.medium.poll(self.now_ns, &mut |one| done.push(one));
            // Taken out and put back: what follows may use all of self.
            let mut done = std::mem::take(&mut self.done);
            for one in done.drain(..) {
                self.request_done(one);
            }
            self.done = done;
        }
        any
    }

    fn request_done(&mut self, done: Done) {
        self.media_outstanding = self.media_outstanding.saturating_sub(1);
        if done.token == NO_COMMAND {
            return self.shutdown_flushed(done.result);
        }
        // What comes back after a reset belongs to no command: slots are given out only when all is back.
        if !self.is_running() {
            if let Some(buf) = done.buf {
                self.pool.give(buf);
            }
            return;
        }
        let index = done.token as u16;
        let slot = &mut self.slots[usize::from(index)];
        if let Some(buf) = done.buf {
            slot.put_back(buf);
        }
        slot.media -= 1;
        if let Err(error) = done.result {
            slot.medium_error.get_or_insert(error);
        }
        if slot.media == 0 {
            self.requests_done(index);
        }
    }

    /// All Requests of command `index` are done.
    fn requests_done(&mut self, index: u16) {
        let slot = &mut self.slots[usize::from(index)];
        let (command, phase) = (slot.command, slot.phase);
        if let Some(error) = slot.medium_error.take() {
            let writes = command.as_ref().is_some_and(Command::writes);
            slot.fail(status_of(error, writes));
            self.take_note(error, writes);
        }
        let slot = &self.slots[usize::from(index)];
        if phase == Phase::Ending || !slot.status.is_success() {
            let status = slot.status;
            return self.end(index, status);
        }
        match command {
            Some(Command::Io(nsid, io)) => self.medium_done_io(index, nsid, io),
            Some(Command::Admin(admin)) => self.medium_done_admin(index, admin),
            None => self.end(index, Status::INTERNAL_ERROR),
        }
    }

    /// A medium in trouble is a critical warning.
    fn take_note(&mut self, error: MediumError, writes: bool) {
        let warning = match error {
            MediumError::Gone => warning::RELIABILITY,
            MediumError::ReadOnly if writes => warning::READ_ONLY,
            _ => return,
        };
        if self.logs.warnings & warning == 0 {
            self.logs.warnings |= warning;
            if self.features.async_events() & u32::from(warning) != 0 {
                self.events.raise(Event::Reliability);
            }
        }
    }
}

/// What the host is told of an error of the medium.
fn status_of(error: MediumError, writes: bool) -> Status {
    match error {
        MediumError::NoSpace => Status::CAPACITY_EXCEEDED,
        MediumError::ReadOnly => Status::NAMESPACE_WRITE_PROTECTED,
        MediumError::Failed | MediumError::Gone if writes => Status::WRITE_FAULT,
        MediumError::Failed | MediumError::Gone => Status::UNRECOVERED_READ_ERROR,
        MediumError::Unsupported | MediumError::Invalid => Status::INTERNAL_ERROR,
    }
}
