//! What a device does to a guest, judged at the moment at which it happens.

use std::rc::Rc;

use etherslot_node::Interrupt;

use crate::checkers::history::{Ended, History};
use crate::checkers::verdict::Rule;
use crate::guest::machine::{Command, Machine, Purpose};
use crate::guest::memory::{Grant, POISON};
use crate::guest::nvme::{Completion, status};

impl Machine {
    /// The device reads memory.
    pub(crate) fn dma_read(&mut self, address: u64, data: &mut [u8]) -> bool {
        let Some(touched) = self.memory.touched(address, data.len()) else {
            self.broken(Rule::Dma, || {
                format!("the device read {} bytes at {address:#x}, outside of memory", data.len())
            });
            return false;
        };
        for (grant, from, to) in touched {
            let allowed = match grant {
                Grant::Fetch | Grant::Share => true,
                Grant::Read(first, end) => first <= from && to <= end,
                _ => false,
            };
            if !allowed {
                self.broken(Rule::Dma, || {
                    format!("the device read {} bytes at {address:#x}: {grant:?}", data.len())
                });
            }
        }
        if let Some(bytes) = self.memory.get(address, data.len()) {
            data.copy_from_slice(bytes);
        }
        true
    }

    /// The device writes memory.
    pub(crate) fn dma_write(&mut self, address: u64, data: &[u8]) -> bool {
        let Some(touched) = self.memory.touched(address, data.len()) else {
            self.broken(Rule::Dma, || {
                format!("the device wrote {} bytes at {address:#x}, outside of memory", data.len())
            });
            return false;
        };
        let mut posted = None;
        for (grant, from, to) in touched {
            let allowed = match grant {
                Grant::Post(queue) => {
                    posted = Some(queue);
                    true
                }
                Grant::Share => true,
                Grant::Write(first, end) => first <= from && to <= end,
                _ => false,
            };
            if !allowed {
                self.broken(Rule::Dma, || {
                    format!("the device wrote {} bytes at {address:#x}: {grant:?}", data.len())
                });
            }
        }
        if let Some(place) = self.memory.get_mut(address, data.len()) {
            place.copy_from_slice(data);
        }
        if let Some(queue) = posted {
            self.posted(queue, address, data.len());
        }
        true
    }

    /// The device has written into a completion queue: looks at the entries that are whole now.
    fn posted(&mut self, id: u16, address: u64, bytes: usize) {
        const LAST_WORD: u64 = 12;
        let end = address + bytes as u64;
        for round in 0.. {
            let Some(queue) = self.completion_queues.get_mut(&id) else { return };
            let entry = queue.address + u64::from(queue.tail) * Completion::BYTES as u64;
            // The Phase Tag is in the last word: the entry counts once that was written.
            if !(address..end).contains(&(entry + LAST_WORD)) {
                let misplaced =
                    end > entry + Completion::BYTES as u64 || address + (Completion::BYTES as u64) < entry;
                if misplaced && round == 0 {
                    self.broken(Rule::Completion, || {
                        format!("an entry of CQ {id} at {address:#x}, not at its tail")
                    });
                }
                return;
            }
            let Some(completion) = self.memory.get(entry, Completion::BYTES).and_then(Completion::parse)
            else {
                return;
            };
            let (phase, full) = (queue.phase, queue.waiting + 1 >= queue.entries);
            queue.tail += 1;
            if queue.tail == queue.entries {
                queue.tail = 0;
                queue.phase = !queue.phase;
            }
            queue.waiting += 1;
            if completion.phase != phase {
                self.broken(Rule::Completion, || format!("{completion:?} in CQ {id} has the wrong phase"));
            }
            if full {
                self.broken(Rule::Completion, || format!("{completion:?} overflows CQ {id}"));
            }
            self.command_completed(id, completion);
        }
    }

    fn command_completed(&mut self, queue: u16, completion: Completion) {
        let Completion { sq_id, sq_head, cid, status: how, .. } = completion;
        match self.submission_queues.get_mut(&sq_id) {
            Some(submissions) if submissions.completion_queue == queue => {
                let entries = submissions.entries;
                let distance = |to: u16| (to + entries - submissions.head) % entries;
                if sq_head >= entries || distance(sq_head) > distance(submissions.tail) {
                    self.broken(Rule::Nvme, || {
                        format!("{completion:?}: SQ head is not between head and tail")
                    });
                } else {
                    submissions.head = sq_head;
                }
            }
            _ => self.broken(Rule::Completion, || format!("{completion:?} in CQ {queue} of another SQ")),
        }
        self.event(u64::from(how), || format!("SQ {sq_id} command {cid:#x} ended with {how:#x}"));
        let Some(mut command) = self.commands.remove(&(sq_id, cid)) else {
            self.broken(Rule::Completion, || format!("{completion:?} without a command"));
            return;
        };
        if command.done.is_some() {
            self.broken(Rule::Completion, || format!("{completion:?} for a command that is done"));
        }
        self.judge(&command, completion);
        command.done = Some((completion, self.now_ns()));
        for &page in &command.pages {
            self.memory.grant(page, Grant::None);
        }
        self.commands.insert((sq_id, cid), command);
    }

    /// A command that no completion entry tells of has ended, as its driver saw in registers. Its pages are given back.
    pub(crate) fn ended(&mut self, key: (u16, u16), status: u16) {
        let Some(command) = self.commands.remove(&key) else {
            self.broken(Rule::Completion, || format!("the end of {key:?}, which was not under way"));
            return;
        };
        self.event(u64::from(status), || format!("port {} command {} ended with {status:#x}", key.0, key.1));
        self.judge(&command, Completion { sq_id: key.0, cid: key.1, status, ..Completion::default() });
        for &page in &command.pages {
            self.memory.release(page);
        }
    }

    /// Checks a completion against what was asked, with the data that is in memory at this moment.
    fn judge(&mut self, command: &Command, completion: Completion) {
        let how = completion.status;
        let good = how == status::SUCCESS;
        let aborted = command.aborting && matches!(how, status::ABORT_REQUESTED | status::SQ_DELETED);
        let failed = self.media_faults && matches!(how, status::WRITE_FAULT | status::UNRECOVERED_READ);
        let expected = match command.purpose {
            Purpose::Compare { status } => how == status,
            Purpose::Admin | Purpose::Event => true,
            _ => good,
        };
        if !expected && self.transparent && !aborted && !failed {
            self.broken(Rule::Transparent, || format!("{:?} ended with {completion:?}", command.purpose));
        }
        let history = Rc::clone(&self.history);
        let mut history = history.borrow_mut();
        match command.purpose {
            Purpose::Read { namespace, block, begun } => {
                history.end_read(begun);
                if good {
                    self.check_data(&mut history, command, namespace, block, begun);
                }
            }
            Purpose::Write { write, durable, hint } => {
                let ended = match (good && !hint, durable) {
                    (true, true) => Ended::Durable,
                    (true, false) => Ended::Cached,
                    (false, _) => Ended::Unknown,
                };
                history.end_write(write, ended);
            }
            Purpose::Flush { namespace, begun } => {
                history.end_read(begun);
                if good {
                    history.flushed(namespace, begun);
                }
            }
            Purpose::Compare { status } => {
                if how != status && (good || how == status::COMPARE_FAILURE) {
                    self.broken(Rule::Data, || format!("Compare ended with {how:#x} instead of {status:#x}"));
                }
            }
            Purpose::Admin | Purpose::Other | Purpose::Event => {}
        }
    }

    fn check_data(
        &mut self,
        history: &mut History,
        command: &Command,
        namespace: usize,
        block: u64,
        begun: u64,
    ) {
        let Some((block_bytes, _)) = history.namespaces().nth(namespace) else { return };
        let mut data = std::mem::take(&mut self.scratch);
        self.memory.gather(&command.pieces, &mut data);
        for (index, data) in data.chunks_exact(block_bytes).enumerate() {
            if let Err(detail) = history.check_read(begun, namespace, block + index as u64, data) {
                let poisoned = data.windows(16).any(|window| window.iter().all(|&byte| byte == POISON));
                let rule = match (poisoned, history.has_lost_cache()) {
                    (true, _) => Rule::DataBeforeCompletion,
                    (false, true) => Rule::Durability,
                    (false, false) => Rule::Data,
                };
                self.broken(rule, || detail);
                break;
            }
        }
        self.scratch = data;
    }

    /// The device interrupts.
    pub(crate) fn interrupt(&mut self, interrupt: Interrupt) {
        match interrupt {
            Interrupt::Message(vector) => {
                self.fired.insert(vector);
            }
            Interrupt::IntX(level) => {
                self.event(u64::from(level), || format!("INTA is {level}"));
                self.intx = level;
            }
        }
        self.changed = true;
    }
}
