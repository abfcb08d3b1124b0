//! What a Function sent against what its host node applied, and the way back.
//!
//! Towards the guest: the bytes of all posted writes, in order; each interrupt behind the writes before it; each read
//! behind the writes before it. Towards the device: the guest's register writes, in order. The two ends are tapped at the
//! `Bus` of the device model and at the `Guest` of the host node, so everything between is under test.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use crate::checkers::verdict::{Rule, Verdict};

/// Reads and writes that may wait for their other end before something is wrong: far more than Tags and windows allow.
const MOST_PENDING: usize = 1 << 20;

#[derive(Debug)]
enum Sent {
    Write { address: u64, data: Vec<u8>, applied: usize },
    Read { address: u64, bytes: usize, answered: usize },
}

#[derive(Debug)]
struct Register {
    bar: u8,
    offset: u64,
    data: Vec<u8>,
}

/// The check of one Function.
#[derive(Debug)]
pub(crate) struct Order {
    verdict: Rc<Verdict>,
    name: String,
    /// Posted writes that were sent and not applied yet, and reads, in order. A read that was answered stays until what
    /// was sent before it is gone.
    sent: VecDeque<Sent>,
    /// How many of `sent` were taken off, so that positions stay valid.
    taken: u64,
    /// For each vector, the positions behind which its messages must stay.
    messages: BTreeMap<u16, VecDeque<u64>>,
    /// Where the last life of the Function begins.
    life_begins: u64,
    registers: VecDeque<Register>,
    /// The device is being reset by its host, since this many resets: what it still sends may be dropped.
    resetting: Option<u64>,
    /// How often the device was reset.
    resets: u64,
    last_answer: (u64, usize),
    /// Bytes asked for by token.
    asked: BTreeMap<u64, u64>,
}

impl Order {
    /// A check that reports to `verdict`.
    pub(crate) fn new(name: String, verdict: Rc<Verdict>) -> Self {
        Self {
            verdict,
            name,
            sent: VecDeque::new(),
            taken: 0,
            messages: BTreeMap::new(),
            life_begins: 0,
            registers: VecDeque::new(),
            resetting: None,
            resets: 0,
            last_answer: (0, 0),
            asked: BTreeMap::new(),
        }
    }

    fn broken(&self, rule: Rule, detail: &str) {
        self.verdict.broken(rule, || format!("{}: {detail}", self.name));
    }

    fn position(&self) -> u64 {
        self.taken + self.sent.len() as u64
    }

    fn push(&mut self, sent: Sent) {
        // Where frames are forged nothing is in order, and nothing is kept.
        if self.verdict.is_only_safety() {
            return;
        }
        self.sent.push_back(sent);
        if self.sent.len() > MOST_PENDING {
            self.broken(Rule::Memory, "requests pile up between device and host");
        }
    }

    // ----- the device's end -----

    /// The device has written `data`.
    pub(crate) fn device_wrote(&mut self, address: u64, data: &[u8]) {
        self.push(Sent::Write { address, data: data.to_vec(), applied: 0 });
    }

    /// The device has asked for data.
    pub(crate) fn device_asked(&mut self, address: u64, bytes: usize, token: u64) {
        *self.asked.entry(token).or_default() += bytes as u64;
        self.push(Sent::Read { address, bytes, answered: 0 });
    }

    /// The device was given data, or told that there is none.
    pub(crate) fn device_was_given(&mut self, token: u64, bytes: usize) {
        match self.asked.get_mut(&token) {
            Some(left) if *left >= bytes as u64 => {
                *left -= bytes as u64;
                if *left == 0 {
                    self.asked.remove(&token);
                }
            }
            _ => self.broken(
                Rule::Order,
                &format!("{bytes} bytes came for token {token:#x} that nobody asked for"),
            ),
        }
    }

    /// The device has sent the message of `vector`.
    pub(crate) fn device_interrupted(&mut self, vector: u16) {
        if self.verdict.is_only_safety() {
            return;
        }
        let position = self.position();
        self.messages.entry(vector).or_default().push_back(position);
    }

    /// The device was reset: it is given nothing more for what it asked. What it sent before may still arrive.
    pub(crate) fn device_reset(&mut self) {
        self.asked.clear();
        self.resets += 1;
        self.life_begins = self.position();
    }

    /// The device took a register write.
    pub(crate) fn device_took(&mut self, bar: u8, offset: u64, data: &[u8]) {
        match self.registers.pop_front() {
            Some(register) if (register.bar, register.offset, &register.data[..]) == (bar, offset, data) => {}
            Some(Register { bar: due_bar, offset: due, .. }) => {
                let detail = format!("BAR{bar}+{offset:#x} was written where BAR{due_bar}+{due:#x} was due");
                self.broken(Rule::Registers, &detail);
            }
            None => self.broken(Rule::Registers, &format!("BAR{bar}+{offset:#x} was written by nobody")),
        }
    }

    // ----- the host's end -----

    /// The guest has written a register. The device may take it even after its host believes it lost.
    pub(crate) fn guest_wrote(&mut self, bar: u8, offset: u64, data: &[u8]) {
        if self.verdict.is_only_safety() {
            return;
        }
        self.registers.push_back(Register { bar, offset, data: data.to_vec() });
    }

    /// The host resets the device: until that is done, what the device sent may arrive or be dropped.
    pub(crate) fn resetting(&mut self) {
        self.resetting = Some(self.resets);
    }

    /// The guest was told that the reset is done. If the device was not reachable, that is not so yet.
    pub(crate) fn reset_done(&mut self) {
        if self.resetting.is_some_and(|before| self.resets > before) {
            self.begin_life();
        }
    }

    /// The device is the guest's again, over another session.
    pub(crate) fn attached(&mut self) {
        self.registers.clear();
        self.begin_life();
    }

    /// Nothing from before the device's last reset may arrive any more.
    fn begin_life(&mut self) {
        self.resetting = None;
        while self.taken < self.life_begins && self.sent.pop_front().is_some() {
            self.taken += 1;
        }
        let begins = self.taken;
        for positions in self.messages.values_mut() {
            positions.retain(|&position| position >= begins);
        }
    }

    /// The first write that was not applied in full.
    fn next_write(&mut self) -> Option<usize> {
        while let Some(Sent::Read { .. }) = self.sent.front() {
            let Some(Sent::Read { bytes, answered, .. }) = self.sent.front() else { break };
            if answered < bytes {
                break;
            }
            self.sent.pop_front();
            self.taken += 1;
        }
        self.sent.iter().position(|sent| matches!(sent, Sent::Write { .. }))
    }

    /// A Memory Write reached the guest.
    pub(crate) fn applied(&mut self, address: u64, data: &[u8]) {
        if self.resetting.is_some() {
            return;
        }
        let mut done = 0;
        while done < data.len() {
            let Some(index) = self.next_write() else {
                self.broken(
                    Rule::Order,
                    &format!("a write to {address:#x} that the device did not send, or sent once"),
                );
                return;
            };
            let Sent::Write { address: due, data: due_data, applied } = &mut self.sent[index] else { return };
            let bytes = (due_data.len() - *applied).min(data.len() - done);
            let at = address + done as u64;
            if *due + *applied as u64 != at {
                let due = *due + *applied as u64;
                self.broken(
                    Rule::Order,
                    &format!("a write to {at:#x} was applied where one to {due:#x} was due"),
                );
                return;
            }
            if due_data[*applied..*applied + bytes] != data[done..done + bytes] {
                self.broken(
                    Rule::Order,
                    &format!("a write to {at:#x} was applied with other data than was sent"),
                );
                return;
            }
            *applied += bytes;
            done += bytes;
            if *applied == due_data.len() {
                // Reads before it stay for their answers; the hole is closed.
                self.sent.remove(index);
                self.shift(index);
            }
        }
    }

    /// The entry at `index` was removed: positions behind it move up.
    fn shift(&mut self, index: usize) {
        let removed = self.taken + index as u64;
        let moved = |position: &mut u64| {
            if *position > removed {
                *position -= 1;
            }
        };
        self.messages.values_mut().flatten().for_each(moved);
        moved(&mut self.life_begins);
    }

    /// An interrupt message reached the guest.
    pub(crate) fn interrupted(&mut self, vector: u16) {
        if self.resetting.is_some() {
            return;
        }
        let Some(position) = self.messages.get_mut(&vector).and_then(VecDeque::pop_front) else {
            self.broken(
                Rule::Order,
                &format!("an interrupt of vector {vector} that the device did not send"),
            );
            return;
        };
        let before = position.saturating_sub(self.taken) as usize;
        if let Some(Sent::Write { address, .. }) =
            self.sent.iter().take(before).find(|sent| matches!(sent, Sent::Write { .. }))
        {
            let detail = format!("the interrupt of vector {vector} passed a write to {address:#x}");
            self.broken(Rule::Order, &detail);
        }
    }

    /// A Memory Read of the device is being answered from guest memory.
    pub(crate) fn answered(&mut self, address: u64, bytes: usize) {
        if self.resetting.is_some() {
            return;
        }
        let due = self.sent.iter_mut().find(|sent| match sent {
            Sent::Read { bytes, answered, .. } => answered < bytes,
            Sent::Write { .. } => true,
        });
        let detail = match due {
            Some(Sent::Read { address: due, bytes: due_bytes, answered }) => {
                if *due + *answered as u64 == address && *answered + bytes <= *due_bytes {
                    *answered += bytes;
                    self.last_answer = (address, bytes);
                    return;
                }
                format!("a read of {address:#x} was answered where one of {due:#x} was due")
            }
            Some(Sent::Write { address: due, .. }) => {
                format!("a read of {address:#x} passed the write to {due:#x} before it")
            }
            None => format!("a read of {address:#x} that the device did not send"),
        };
        // A Request whose Completions did not all fit is read again for the rest of them.
        if self.last_answer != (address, bytes) {
            self.broken(Rule::Order, &detail);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order() -> (Rc<Verdict>, Order) {
        let verdict = Rc::new(Verdict::new(false, false));
        (Rc::clone(&verdict), Order::new("nvme0".to_owned(), verdict))
    }

    #[test]
    fn writes_in_pieces_and_interrupts_behind_them_are_in_order() {
        let (verdict, mut order) = order();
        order.device_wrote(0x1000, &[1, 2, 3, 4]);
        order.device_asked(0x5000, 64, 9);
        order.device_wrote(0x2000, &[5]);
        order.device_interrupted(3);
        order.applied(0x1000, &[1, 2]);
        order.applied(0x1002, &[3, 4]);
        order.answered(0x5000, 64);
        order.answered(0x5000, 64);
        order.device_was_given(9, 64);
        order.applied(0x2000, &[5]);
        order.interrupted(3);
        assert!(!verdict.is_broken(), "{:?}", verdict.violation());
    }

    #[test]
    fn an_interrupt_or_a_read_that_passes_a_write_is_found() {
        let (verdict, mut first) = order();
        first.device_wrote(0x1000, &[1]);
        first.device_interrupted(0);
        first.interrupted(0);
        assert_eq!(verdict.violation().unwrap().rule, Rule::Order);
        let (verdict, mut second) = order();
        second.device_wrote(0x1000, &[1]);
        second.device_asked(0x5000, 64, 9);
        second.answered(0x5000, 64);
        assert_eq!(verdict.violation().unwrap().rule, Rule::Order);
    }

    #[test]
    fn writes_that_swap_come_twice_or_change_are_found() {
        let bad: [&[(u64, u8)]; 3] = [&[(0x2000, 2)], &[(0x1000, 1), (0x1000, 1)], &[(0x1000, 9)]];
        for applied in bad {
            let (verdict, mut order) = order();
            order.device_wrote(0x1000, &[1]);
            order.device_wrote(0x2000, &[2]);
            for &(address, byte) in applied {
                order.applied(address, &[byte]);
            }
            assert!(verdict.is_broken(), "{applied:?}");
        }
    }

    #[test]
    fn nothing_of_an_earlier_life_arrives_after_the_device_came_back() {
        let (verdict, mut order) = order();
        order.device_wrote(0x1000, &[1]);
        order.device_reset();
        order.device_wrote(0x2000, &[2]);
        order.attached();
        order.applied(0x2000, &[2]);
        assert!(!verdict.is_broken());
        order.applied(0x1000, &[1]);
        assert!(verdict.is_broken());
    }

    #[test]
    fn register_writes_arrive_as_they_were_made() {
        let (verdict, mut order) = order();
        order.guest_wrote(0, 0x14, &[1]);
        order.guest_wrote(0, 0x1000, &[2]);
        order.device_took(0, 0x14, &[1]);
        assert!(!verdict.is_broken());
        order.device_took(0, 0x1004, &[2]);
        assert_eq!(verdict.violation().unwrap().rule, Rule::Registers);
    }
}
