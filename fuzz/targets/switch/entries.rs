//! What a driver lays into memory for the controller, right or wrong.

use etherslot_fuzz::Input;

use crate::machine::{BAR0, CMB, CMB_BYTES, DATA, LISTS, MEMORY_BYTES, QUEUES};

/// A memory address: most often of a page that is there.
pub fn address(input: &mut Input<'_>) -> u64 {
    let place = u64::from(input.u8());
    match input.u8() % 16 {
        0..=6 => DATA + (place << 12) % (MEMORY_BYTES as u64 - DATA),
        7 => DATA + (place << 4),
        8..=10 => LISTS + (place & 7) * 0x1000 + (place >> 3 & 3) * 0x7F8,
        11 => QUEUES + (place << 6),
        12 => CMB + (place << 6) % CMB_BYTES as u64,
        13 => BAR0 + (place << 4),
        _ => input.number(),
    }
}

/// An SGL descriptor.
pub fn descriptor(input: &mut Input<'_>) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&address(input).to_le_bytes());
    let length = match input.u8() % 4 {
        0 => 512 * u32::from(input.u8() & 15),
        1 => 16 * u32::from(input.u8()),
        2 => 4096 * u32::from(input.u8() & 31),
        _ => input.number() as u32,
    };
    bytes[8..12].copy_from_slice(&length.to_le_bytes());
    bytes[15] = input.one_of(&[0, 0, 0, 0x10, 0x20, 0x20, 0x30, 0x30, 0x40, 0x01, 0x2A]);
    bytes
}

/// A list of PRPs or SGL descriptors.
pub fn list(input: &mut Input<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let are_prps = input.flag();
    for _ in 0..=input.below(24) {
        if are_prps {
            let aligned = if input.once_in(16) { !0 } else { !0xFFF };
            bytes.extend((address(input) & aligned).to_le_bytes());
        } else {
            bytes.extend(descriptor(input));
        }
    }
    bytes
}

const ADMIN: [u8; 16] = [0, 1, 1, 2, 4, 5, 5, 6, 6, 8, 9, 9, 0xA, 0xC, 0x80, 0x7F];
const IO: [u8; 12] = [0, 1, 1, 2, 2, 2, 5, 8, 9, 9, 0xC, 0x7F];

/// A Submission Queue Entry.
pub fn entry(input: &mut Input<'_>, is_admin: bool, cid: u16) -> [u8; 64] {
    let mut dwords = [0_u32; 16];
    let opcode = if is_admin { input.one_of(&ADMIN) } else { input.one_of(&IO) };
    let form = input.u8();
    let opcode = if form & 0x0F == 0x0F { input.u8() } else { opcode };
    let flags = match form >> 4 {
        0..=8 => 0,
        9..=13 => 0x40,
        14 => 0x80,
        _ => input.u8(),
    };
    dwords[0] = u32::from(opcode) | u32::from(flags) << 8 | u32::from(cid) << 16;
    dwords[1] = input.one_of(&[1, 1, 1, 1, 1, 0, u32::MAX, 2]);
    if flags & 0xC0 == 0x40 {
        for (dword, bytes) in dwords[6..10].iter_mut().zip(descriptor(input).chunks_exact(4)) {
            *dword = bytes.iter().rev().fold(0, |value, &byte| value << 8 | u32::from(byte));
        }
    } else {
        for at in [6, 8] {
            let address = address(input);
            (dwords[at], dwords[at + 1]) = (address as u32, (address >> 32) as u32);
        }
    }
    let small = |input: &mut Input<'_>| u32::from(input.u8());
    match (is_admin, opcode) {
        (true, 0 | 4 | 8) => dwords[10] = u32::from(input.u8() % 6) | small(input) << 16,
        (true, 1 | 5) => {
            let qid = u32::from(input.u8() % 6);
            let size = input.one_of(&[1, 3, 15, 15, 63, 255, 4095, 0, 0xFFFF]);
            dwords[10] = qid | size << 16;
            dwords[11] = u32::from(input.one_of(&[3_u8, 3, 3, 1, 0])) | u32::from(input.u8() % 6) << 16;
            if !input.once_in(8) {
                (dwords[6], dwords[7]) = ((QUEUES + u64::from(input.u8() % 16) * 0x800) as u32 & !0xFFF, 0);
            }
        }
        (true, 2) => {
            dwords[10] = u32::from(input.one_of(&[0_u8, 1, 2, 3, 4, 5, 0x80])) | small(input) << 16;
            dwords[10] |= u32::from(input.flag()) << 15;
            dwords[12] = if input.once_in(4) { input.number() as u32 } else { 0 };
        }
        (true, 6) => dwords[10] = u32::from(input.u8() % 24) | small(input) << 16,
        (true, 9 | 0xA) => {
            dwords[10] = u32::from(input.u8() % 18) | u32::from(input.u8() & 0x87) << 8;
            dwords[10] |= u32::from(input.once_in(4)) << 31;
            dwords[11] = input.number() as u32;
        }
        (true, 0x80) => dwords[10] = u32::from(input.u8() & 1) | u32::from(input.u8() & 7) << 9,
        (false, 9) => {
            dwords[10] = small(input) % 20;
            dwords[11] = u32::from(input.one_of(&[4_u8, 4, 0, 3]));
        }
        _ => {
            let start = if input.once_in(8) { input.number() } else { u64::from(input.u8()) };
            (dwords[10], dwords[11]) = (start as u32, (start >> 32) as u32);
            let blocks = if input.once_in(8) { u32::from(input.u16()) } else { small(input) % 48 };
            dwords[12] = blocks | u32::from(input.u8() & 0x40) << 24;
        }
    }
    if form & 0x0E == 0x0E {
        dwords[input.below(16)] = input.number() as u32;
    }
    let mut bytes = [0; 64];
    for (place, dword) in bytes.chunks_exact_mut(4).zip(dwords) {
        place.copy_from_slice(&dword.to_le_bytes());
    }
    bytes
}
