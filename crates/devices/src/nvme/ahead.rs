//! What the host is to send along with a Submission Queue's doorbell: the entries, the data of small writes, the lists of larger
//! transfers (docs/wire.md, Read-ahead).
//!
//! Data that lie in one row, as an SGL of one Data Block says, come up to twice the length: with PRPs there would be a list between, which
//! is sent, but not followed.
//!
//! A rule is declared for each queue that lies in the memory of the host, under the queue's number, and anew whenever the queue, the
//! lengths of the namespaces' blocks, or what the host may think of the doorbell changes: then nothing sent before counts.

use super::Nvme;
use super::bits::{SQE_BYTES, nvm, register};
use super::cmb::Place;
use super::engine::{Set, members};
use super::queue::Sq;
use etherslot_pci::function::ReadAhead;
use etherslot_wire::ahead::{Condition, Follow, Rule};

/// Data of commands up to this length come with the doorbell: of those with PRPs, and of those with one Data Block.
const DATA_BYTES: u32 = 8192;
const BLOCK_BYTES: u32 = 16_384;
/// Opcode, fused operation, and PRP or SGL, in dword 0.
const KIND_MASK: u32 = 0xC3FF;
/// PSDT in it: an SGL. The type of its first descriptor is the last byte of the data pointer; 0 is a Data Block with an address.
const SGL: u32 = 0x4000;
const SGL_TYPE: u16 = 36;
const SGL_TYPE_MASK: u32 = 0xFF00_0000;
/// Where in an entry are the NSID, the PRPs, and dwords 10 and 12, bytes.
const NSID: u16 = 4;
const PRP1: u16 = 24;
const PRP2: u16 = 32;
const DWORD10: u16 = 40;
const DWORD12: u16 = 48;

/// The entry's opcode is this, its data pointer is a PRP, and it is for `nsid`, if that matters.
fn when(opcode: u8, nsid: Option<u32>) -> ([Condition; 2], u8) {
    let kind = Condition { offset: 0, mask: KIND_MASK, value: u32::from(opcode) };
    let namespace = Condition { offset: NSID, mask: u32::MAX, value: nsid.unwrap_or(0) };
    ([kind, namespace], if nsid.is_some() { 2 } else { 1 })
}

/// Of a command that names its blocks in dword 12. Only of commands from the host can the data be sent.
fn of_blocks(opcode: u8, nsid: Option<u32>, block_shift: u8, from_host: bool) -> Follow {
    let (when, conditions) = when(opcode, nsid);
    let flags = Follow::PAGES | Follow::LIST | if from_host { Follow::DATA } else { 0 };
    Follow {
        flags,
        when,
        conditions,
        first: PRP1,
        second: PRP2,
        length: DWORD12,
        mask: 0xFFFF,
        bias: 1,
        shift: block_shift,
        max_bytes: DATA_BYTES,
    }
}

/// Of a Write of a block of memory.
fn of_data_block(block_shift: u8) -> Follow {
    let kind = Condition { offset: 0, mask: KIND_MASK, value: u32::from(nvm::WRITE) | SGL };
    let descriptor = Condition { offset: SGL_TYPE, mask: SGL_TYPE_MASK, value: 0 };
    let (when, conditions) = ([kind, descriptor], 2);
    let flags = Follow::DATA;
    Follow {
        flags,
        when,
        conditions,
        max_bytes: BLOCK_BYTES,
        ..of_blocks(nvm::WRITE, None, block_shift, true)
    }
}

/// Of Dataset Management: its ranges.
fn of_ranges() -> Follow {
    let (when, conditions) = when(nvm::DATASET_MANAGEMENT, None);
    let flags = Follow::PAGES | Follow::DATA;
    Follow {
        flags,
        when,
        conditions,
        first: PRP1,
        second: PRP2,
        length: DWORD10,
        mask: 0xFF,
        bias: 1,
        shift: 4,
        max_bytes: DATA_BYTES,
    }
}

impl Nvme {
    /// The rule of queue `qid` has to be declared anew, or withdrawn.
    pub(super) fn rule_changed(&mut self, qid: u16) {
        self.rules_changed |= 1 << qid;
    }

    /// Those of all queues that there are.
    pub(super) fn rules_changed(&mut self) {
        let there = self.queues.sqs.iter().enumerate().filter(|(_, sq)| sq.is_some());
        self.rules_changed |= there.fold(0, |set: Set, (qid, _)| set | 1 << qid);
    }

    /// The next change of rules, if there is one.
    pub(super) fn next_rule(&mut self) -> Option<ReadAhead> {
        let qid = members(self.rules_changed).next()?;
        self.rules_changed &= !(1 << qid);
        let sq = self.queues.sqs[qid].as_ref();
        let rule = sq.and_then(|sq| self.rule(qid as u8, sq));
        Some(rule.map_or(ReadAhead::Withdraw(qid as u8), ReadAhead::Declare))
    }

    fn rule(&self, qid: u8, sq: &Sq) -> Option<Rule> {
        let bytes = sq.entries() as usize * SQE_BYTES;
        if matches!(self.cmb.place(sq.base, bytes), Place::Inside(_)) {
            return None;
        }
        let doorbell = register::DOORBELLS + 8 * u32::from(qid);
        let mut rule = Rule::new(qid, 0, doorbell, sq.base, SQE_BYTES as u16, sq.entries());
        if qid == 0 || self.namespaces.iter().any(|namespace| namespace.formatting) {
            return Some(rule);
        }
        let mut shifts =
            (1..).zip(self.namespaces.iter().map(|namespace| namespace.block_bytes().ilog2() as u8));
        let (_, first) = shifts.clone().next()?;
        if shifts.clone().all(|(_, shift)| shift == first) {
            rule.follow(of_blocks(nvm::WRITE, None, first, true));
            rule.follow(of_blocks(nvm::READ, None, first, false));
            rule.follow(of_data_block(first));
            rule.follow(of_ranges());
            return Some(rule);
        }
        // As many namespaces as there is room for: the others' data are read.
        shifts.all(|(nsid, shift)| {
            rule.follow(of_blocks(nvm::WRITE, Some(nsid), shift, true))
                && rule.follow(of_blocks(nvm::READ, Some(nsid), shift, false))
        });
        Some(rule)
    }
}
