//! A hostile guest against an NVMe controller in the box's switch.
//!
//! The guest's steps are TLPs (configuration, registers, doorbells, any other, also such as are none), whatever it
//! lays into its memory as queues, lists and data, answers to the controller's reads that are right, late, wrong or missing,
//! resets in the middle, a way upstream that has little room, and a disk that fails. Whatever it does, nothing panics, works
//! without end or grows, and every TLP upstream follows the rules, with a Tag of its own. After a conventional reset the
//! controller starts and serves.

#![no_main]

#[path = "switch/entries.rs"]
mod entries;
#[path = "switch/machine.rs"]
mod machine;
#[path = "switch/root.rs"]
mod root;

use etherslot_fuzz::Input;
use etherslot_storage::MediumError;
use etherslot_storage::memory::FaultOn;
use etherslot_wire::FunctionId;
use etherslot_wire::tlp::{Completion, CplStatus, Header, MAX_BYTES, MemRequest, Op};
use libfuzzer_sys::fuzz_target;
use machine::{
    ADMIN_CQ, ADMIN_SQ, BAR0, CMB, CMB_BYTES, DATA, ENTRIES, FUNCTION, LISTS, MEMORY_BYTES, MESSAGES,
    Machine, PORT, QUEUES, ROOT, SLOT, STREAM, UPSTREAM,
};
use root::Manner;

/// I/O queues that the guest is given to begin with.
const QUEUE_PAIRS: u64 = 3;

/// Where the guest has got to in a queue of its own.
#[derive(Clone, Copy, Default)]
struct Place {
    tail: u16,
    head: u16,
}

struct Guest {
    machine: Machine,
    places: [Place; 6],
    next_id: u16,
}

fuzz_target!(|input: &[u8]| {
    let mut input = Input::new(input);
    let form = input.u8();
    let mut guest = Guest { machine: Machine::new(form & 1 == 0), places: Default::default(), next_id: 0 };
    guest.machine.bring_up();
    if form & 2 == 0 {
        guest.start();
    }
    while !input.is_empty() {
        guest.act(&mut input);
    }
    guest.machine.serves();
});

impl Guest {
    /// As a driver: interrupts, the admin queues, a few I/O queues.
    fn start(&mut self) {
        let machine = &mut self.machine;
        if let Some(msix) = machine.layout.msix {
            for vector in 0..5 {
                let entry = BAR0 + u64::from(msix.table_offset) + 16 * vector;
                machine.write(entry, &(MESSAGES + 4 * vector).to_le_bytes());
                machine.write(entry + 8, &[0; 8]);
            }
            machine.config_write(FUNCTION, msix.capability, 0xC, [0, 0, 0, 0x80]);
        } else if let Some(msi) = machine.layout.msi {
            machine.config_write(FUNCTION, msi.capability + 4, 0xF, (MESSAGES as u32).to_le_bytes());
            machine.config_write(FUNCTION, msi.capability, 0xC, [0, 0, 0x21, 0]);
        }
        machine.enable();
        self.places = Default::default();
        for qid in 1..=QUEUE_PAIRS {
            for (opcode, base, dword11) in
                [(5, cq(qid), 3 | (qid as u32) << 16), (1, sq(qid), 1 | (qid as u32) << 16)]
            {
                let mut entry = [0; 64];
                entry[0] = opcode;
                entry[24..32].copy_from_slice(&base.to_le_bytes());
                let dword10 = u32::from(ENTRIES - 1) << 16 | qid as u32;
                entry[40..44].copy_from_slice(&dword10.to_le_bytes());
                entry[44..48].copy_from_slice(&dword11.to_le_bytes());
                self.submit(0, &entry);
            }
        }
        self.machine.settle();
        self.consume(0, 6);
    }

    /// Lays an entry behind the last one of a queue, and rings.
    fn submit(&mut self, qid: u64, entry: &[u8; 64]) {
        let place = &mut self.places[qid as usize];
        let at = (sq(qid) + u64::from(place.tail) * 64) as usize;
        self.machine.root.memory[at..at + 64].copy_from_slice(entry);
        place.tail = (place.tail + 1) % ENTRIES;
        let (index, tail) = (if place.tail == 0 { ENTRIES - 1 } else { place.tail - 1 }, place.tail);
        if self.next_id & 3 != 0 {
            self.machine.send_along(qid as u8, index, self.next_id & 4 != 0);
        }
        self.machine.write32(0x1000 + 8 * qid, tail.into());
    }

    /// Tells the controller that completions were consumed.
    fn consume(&mut self, qid: u64, count: u16) {
        let place = &mut self.places[qid as usize];
        place.head = (place.head + count) % ENTRIES;
        let head = place.head;
        self.machine.write32(0x1004 + 8 * qid, head.into());
    }

    fn act(&mut self, input: &mut Input<'_>) {
        let machine = &mut self.machine;
        match input.u8() {
            0..=79 => {
                let qid = input.one_of(&[0, 0, 1, 1, 2, 3]);
                self.next_id = if input.once_in(8) { self.next_id } else { self.next_id.wrapping_add(1) };
                let entry = entries::entry(input, qid == 0, self.next_id);
                self.submit(qid, &entry);
            }
            80..=99 => {
                let qid = input.one_of(&[0, 1, 2, 3]);
                let count = u16::from(input.u8() % ENTRIES as u8);
                self.consume(qid, count);
            }
            100..=119 => {
                let list = entries::list(input);
                let at = (LISTS + u64::from(input.u8() & 31) * 0x3F8) as usize;
                machine.root.memory[at..at + list.len()].copy_from_slice(&list);
            }
            120..=125 => {
                let at = (entries::address(input) as usize).min(MEMORY_BYTES - 256);
                let count = input.u8() as usize;
                let data = input.bytes(count);
                machine.root.memory[at..at + data.len()].copy_from_slice(data);
            }
            126..=159 => {
                machine.now_ns += 1 << (input.u8() % 24);
                machine.poll();
            }
            160..=187 => answer(input, machine),
            188..=195 => machine.settle(),
            196..=205 => register(input, machine),
            206..=213 => access(input, machine),
            214..=221 => configure(input, machine),
            222..=226 => tlp(input, machine),
            227 => {
                let count = input.below(200);
                let payload = input.bytes(count);
                machine.hierarchy.receive_ahead(STREAM, payload, None);
            }
            228..=232 => {
                machine.root.budget = if input.flag() { usize::MAX } else { input.below(20) };
                machine.root.room = input.one_of(&[MAX_BYTES, MAX_BYTES, 128, 300, 700, 1400, 16]);
            }
            233..=235 => {
                let on = input.one_of(&[FaultOn::Read, FaultOn::Write, FaultOn::Flush]);
                let start = u64::from(input.u8()) << 9;
                let times = 1 + u32::from(input.u8() & 3);
                let error = input.one_of(&[MediumError::Failed, MediumError::NoSpace, MediumError::ReadOnly]);
                machine.disk.fail(on, start..start + 4096, error, times);
            }
            236..=238 => machine.disk.heal(),
            239 => machine.hierarchy.hot_reset(SLOT),
            240 | 241 => {
                // FLR.
                if let Some(pcie) = machine.layout.pcie {
                    machine.config_write(FUNCTION, pcie + 8, 2, [0, 0x80, 0, 0]);
                }
            }
            // CC: off, on, with either shutdown.
            242..=245 => {
                let value =
                    input.one_of(&[0, 0x0046_0001, 0x0046_4001, 0x0046_8001, 0x0046_0000, 0x0046_0001]);
                machine.write32(0x14, value);
            }
            246..=249 => {
                machine.bring_up();
                machine.root.budget = usize::MAX;
                machine.root.room = MAX_BYTES;
                self.start();
            }
            _ => {
                // Time enough for the controller's own timers.
                machine.now_ns += u64::from(input.u8()) << 24;
                machine.poll();
            }
        }
    }
}

fn sq(qid: u64) -> u64 {
    if qid == 0 { ADMIN_SQ } else { QUEUES + (qid - 1) * 0x2000 }
}

fn cq(qid: u64) -> u64 {
    if qid == 0 { ADMIN_CQ } else { QUEUES + (qid - 1) * 0x2000 + 0x1000 }
}

fn answer(input: &mut Input<'_>, machine: &mut Machine) {
    let manner = match input.u8() {
        0..=159 => Manner::Right,
        160..=189 => Manner::Begin,
        190..=199 => Manner::Unsupported,
        200..=207 => Manner::Aborted,
        208..=215 => Manner::Poisoned,
        216..=223 => Manner::OtherCount,
        224..=231 => Manner::OtherTag,
        232..=239 => Manner::Short,
        240..=247 => Manner::Never,
        _ => Manner::Retry,
    };
    let max_payload = input.one_of(&[128, 256, 64, 4096]);
    let count = if manner == Manner::Right { machine.root.reads() } else { 1 };
    for _ in 0..count {
        let waiting = machine.root.reads();
        if waiting != 0 {
            machine.answer(input.below(waiting), manner, max_payload);
        }
    }
}

/// Writes a register of the controller, or rings.
fn register(input: &mut Input<'_>, machine: &mut Machine) {
    let offset = match input.u8() % 4 {
        0 | 1 => 4 * u64::from(input.u8() % 24),
        2 => 0x1000 + 4 * u64::from(input.u8() % 14),
        _ => u64::from(input.u16()),
    };
    let magic = 0x4E56_4D65;
    let value = match input.u8() % 4 {
        0 => u64::from(input.u8() % 20),
        1 => input.one_of(&[ADMIN_SQ, ADMIN_CQ, QUEUES, DATA, CMB, CMB | 3, 0x000F_000F, magic]),
        _ => input.number(),
    };
    let bytes = if input.flag() { 4 } else { 8 };
    machine.write(BAR0 + offset, &value.to_le_bytes()[..bytes]);
}

/// Reads or writes a BAR, in its range and beyond.
fn access(input: &mut Input<'_>, machine: &mut Machine) {
    let base = input.one_of(&[BAR0, BAR0, CMB]);
    let offset = match input.u8() % 4 {
        0 => u64::from(input.u8()),
        1 => u64::from(input.u16()),
        2 => (u64::from(input.u16()) << 4) % (CMB_BYTES as u64 + 64),
        _ => input.number(),
    };
    let bytes = if input.flag() { 1 + input.below(16) } else { 1 + input.number() as usize % 4096 };
    let address = base.wrapping_add(offset);
    if input.flag() {
        machine.read(address, bytes);
    } else {
        let mut data = vec![0; bytes];
        let given = input.bytes(bytes.min(64));
        data[..given.len()].copy_from_slice(given);
        machine.write(address, &data);
    }
}

fn configure(input: &mut Input<'_>, machine: &mut Machine) {
    let target = match input.u8() % 8 {
        0..=4 => FUNCTION,
        5 => PORT,
        6 => UPSTREAM,
        _ => FunctionId(input.u16()),
    };
    let register = if input.flag() { u16::from(input.u8()) & !3 } else { input.u16() & 0xFFC };
    let first_be = if input.flag() { 0xF } else { input.u8() & 15 };
    if input.once_in(4) {
        machine.config_read(target, register, first_be);
    } else {
        machine.config_write(target, register, first_be, (input.number() as u32).to_le_bytes());
    }
}

/// Something that is no TLP, or none that anybody asked for.
fn tlp(input: &mut Input<'_>, machine: &mut Machine) {
    let tag = input.u16() & 1023;
    let header = match input.u8() % 4 {
        0 => {
            let count = input.u8() as usize;
            machine.deliver(input.bytes(count));
            return;
        }
        1 => {
            let statuses = [CplStatus::Success, CplStatus::UnsupportedRequest, CplStatus::RetryStatus];
            Header::new(Op::Completion(Completion {
                completer: ROOT,
                status: input.one_of(&statuses),
                byte_count: 1 + input.number() as u16 % 4096,
                requester: if input.once_in(8) { FunctionId(input.u16()) } else { FUNCTION },
                tag: tag & 63,
                lower_address: input.u8() & 0x7F,
                length_dw: input.number() as u16 % 1025,
            }))
        }
        2 => {
            let address = entries::address(input) & !3;
            let enables = input.u8();
            let (first_be, last_be) = (enables & 15, enables >> 4);
            let length_dw = 1 + input.number() as u16 % 1024;
            let requester = if input.once_in(8) { FunctionId(input.u16()) } else { ROOT };
            let request = MemRequest { requester, tag, address, length_dw, first_be, last_be };
            Header::new(if input.flag() { Op::MemRead(request) } else { Op::MemWrite(request) })
        }
        _ => {
            let kind = input.one_of(&[
                etherslot_wire::tlp::AtomicKind::FetchAdd,
                etherslot_wire::tlp::AtomicKind::Swap,
                etherslot_wire::tlp::AtomicKind::CompareSwap,
            ]);
            let address = entries::address(input) & !15;
            Header::new(Op::Atomic { kind, requester: ROOT, tag, address, length_dw: 1 << (input.u8() % 4) })
        }
    };
    let header = Header { poisoned: input.once_in(8), ..header };
    machine.receive(&header, &vec![0x77; header.data_bytes()]);
}
