//! PRPs and SGLs, right and wrong.

use crate::harness::*;
use etherslot_devices::nvme::{Config, Namespace};
use etherslot_storage::ram::RamMedium;

const DATA: u32 = 0;
const BUCKET: u32 = 1;
const SEGMENT: u32 = 2;
const LAST: u32 = 3;

fn descriptor(kind: u32, address: u64, length: u32) -> [u64; 2] {
    [address, u64::from(length) | u64::from(kind) << 60]
}

fn sgl(opcode: u8, blocks: u32, [low, high]: [u64; 2]) -> Entry {
    let entry = Entry::blocks(opcode, 0, blocks);
    entry.dword(0, u32::from(opcode) | 1 << 14).qword(6, low).qword(8, high)
}

fn store(host: &mut Host, address: u64, descriptors: &[[u64; 2]]) {
    host.store64(address, descriptors.as_flattened());
}

#[test]
fn prps_with_offsets_and_lists_anywhere_in_a_page() {
    let (mut host, disk) = Host::ready();
    let data = pattern(6 * 4096, 1);
    disk.poke(0, &data);
    let at = host.alloc(8 * 4096);
    for (offset, list_offset) in [(0u64, 0u64), (4, 8), (512, 2048), (4092, 4056), (2048, 4048), (0, 4088)] {
        host.memory(at, 8 * 4096).fill(0);
        let lists = host.alloc(8192);
        let pages: Vec<u64> = (1..=6).map(|page| at + page * 4096).collect();
        // Fills what is left of the page, but for the last entry, which goes on elsewhere.
        let room = ((4096 - list_offset) / 8) as usize;
        let needed = (6 * 4096 - (4096 - offset as usize)).div_ceil(4096);
        if needed > room {
            host.store64(lists + list_offset, &pages[..room - 1]);
            host.store64(lists + 4088, &[lists + 4096]);
            host.store64(lists + 4096, &pages[room - 1..]);
        } else {
            host.store64(lists + list_offset, &pages[..needed]);
        }
        let entry = Entry::blocks(READ, 0, 48).prps(at + offset, lists + list_offset);
        assert_eq!(host.io(entry), status::SUCCESS, "{offset} {list_offset}");
        assert_eq!(host.memory(at + offset, data.len()), data, "{offset} {list_offset}");
    }
}

/// Controllers whose commands transfer up to 4 MiB: one on a medium apart, one on memory.
fn hosts_of_4_mib() -> [Host; 2] {
    let on_disk = config(&disk(8 << 20), 512);
    let ram = RamMedium::new(8 << 20, false).unwrap();
    let namespaces = vec![Namespace::new(Box::new(ram), 512)];
    let on_memory = Config { namespaces, ..config(&disk(4096), 512) };
    [on_disk, on_memory].map(|config| {
        let mut host = Host::new(config.with_max_transfer(4 << 20));
        host.enable();
        host.create_pair(1, 16);
        host
    })
}

#[test]
fn a_list_of_more_than_a_page_goes_on_in_the_next() {
    for mut host in hosts_of_4_mib() {
        // The end of a page of the list is the next one's address, or that of the last page of data.
        let mark = host.free_all();
        for (pages, offset) in [(512, 0), (513, 0), (514, 0), (1023, 4), (1024, 0), (1024, 512)] {
            host.free_to(mark);
            let data = pattern(pages * 4096, pages as u64);
            let at = host.alloc(data.len() + 4096) + offset;
            host.store(at, &data);
            let (first, second) = host.prps(at, data.len());
            let entry = |opcode| Entry::blocks(opcode, 5, pages as u32 * 8).prps(first, second);
            assert_eq!(host.io(entry(WRITE)), status::SUCCESS, "{pages} {offset}");
            host.memory(at, data.len()).fill(0);
            assert_eq!(host.io(entry(READ)), status::SUCCESS, "{pages} {offset}");
            assert!(host.memory(at, data.len()) == data, "{pages} {offset}");
        }
    }
}

#[test]
fn a_transfer_of_4_mib_is_announced_and_moves_by_sgls_and_no_longer_one() {
    for mut host in hosts_of_4_mib() {
        assert_eq!(host.identify(1, 0).unwrap()[77], 10, "MDTS: 2^10 pages");
        let data = pattern(4 << 20, 8);
        let at = host.alloc(4 << 20);
        let back = host.alloc(4 << 20);
        host.store(at, &data);
        let lists = host.alloc(64 << 10);
        let pieces: Vec<[u64; 2]> =
            (0..2048).map(|piece| descriptor(DATA, back + piece * 2048, 2048)).collect();
        store(&mut host, lists, &pieces);
        assert_eq!(host.io(sgl(WRITE, 8192, descriptor(DATA, at, 4 << 20))), status::SUCCESS);
        assert_eq!(host.io(sgl(READ, 8192, descriptor(LAST, lists, 32 << 10))), status::SUCCESS);
        assert!(host.memory(back, 4 << 20) == data);
        for opcode in [READ, WRITE] {
            let longer = sgl(opcode, 8193, descriptor(DATA, at, 5 << 20));
            assert_eq!(host.io(longer), status::INVALID_FIELD, "{opcode}");
        }
    }
}

#[test]
fn a_page_named_twice_is_written_twice() {
    let (mut host, _disk) = Host::ready();
    let page = host.alloc(4096);
    let list = host.alloc(4096);
    let data = pattern(4096, 3);
    host.store(page, &data);
    host.store64(list, &[page, page, page]);
    host.shuffle = true;
    assert_eq!(host.io(Entry::blocks(WRITE, 0, 32).prps(page, list)), status::SUCCESS);
    assert_eq!(host.read_blocks(0, 4 * 4096, 512).unwrap(), data.repeat(4));
}

#[test]
fn wrong_prps_are_told_and_nothing_is_written() {
    let (mut host, disk) = Host::ready();
    let at = host.alloc(16384);
    host.memory(at, 16384).fill(0x77);
    let list = host.alloc(4096);
    host.store64(list, &[at + 4096, at + 8192 + 4, at]);
    let chain = host.alloc(4096);
    host.store64(chain + 4088, &[list + 8]);
    for (row, first, second, blocks, expected) in [
        ("PRP1 not of dwords", at + 1, 0, 1, status::PRP_OFFSET),
        ("PRP2 with an offset", at, at + 8, 16, status::PRP_OFFSET),
        ("a list not of qwords", at, list + 4, 32, status::PRP_OFFSET),
        ("an entry with an offset", at, list, 32, status::PRP_OFFSET),
        ("a chain with an offset", at, chain + 4088, 32, status::PRP_OFFSET),
        ("data that can't be read", 1 << 40, 0, 1, status::DATA_TRANSFER_ERROR),
        ("a list that can't be read", at, 1 << 40, 32, status::DATA_TRANSFER_ERROR),
    ] {
        let completion = host.command(1, Entry::blocks(WRITE, 0, blocks).prps(first, second));
        assert_eq!(completion.status, expected, "{row}");
        assert_eq!(completion.dnr, expected != status::DATA_TRANSFER_ERROR, "{row}");
    }
    let mut on_disk = [1; 16384];
    disk.peek(0, &mut on_disk);
    assert_eq!(on_disk, [0; 16384]);
    let read = Entry::blocks(READ, 0, 32).prps(at, 1 << 40);
    assert_eq!(host.io(read), status::DATA_TRANSFER_ERROR);
}

#[test]
fn sgls_of_every_shape_carry_data() {
    let (mut host, _disk) = Host::ready();
    let data = pattern(8192, 6);
    let at = host.alloc(16384);
    host.store(at, &data);
    assert_eq!(host.io(sgl(WRITE, 16, descriptor(DATA, at, 8192))), status::SUCCESS, "inline");
    assert_eq!(host.read_blocks(0, 8192, 512).unwrap(), data);

    let back = host.alloc(16384);
    let lists = host.alloc(8192);
    // Odd pieces, in two segments, with an empty one between.
    store(
        &mut host,
        lists,
        &[
            descriptor(DATA, back + 100, 3),
            descriptor(DATA, back + 8000, 0),
            descriptor(SEGMENT, lists + 4096 + 8, 32),
        ],
    );
    store(
        &mut host,
        lists + 4096 + 8,
        &[descriptor(DATA, back + 103, 5000), descriptor(LAST, lists + 1024, 32)],
    );
    store(&mut host, lists + 1024, &[descriptor(DATA, back + 5103, 3189), descriptor(DATA, 1 << 50, 4096)]);
    let read = sgl(READ, 16, descriptor(SEGMENT, lists, 48));
    assert_eq!(host.io(read), status::SUCCESS, "longer than the data is allowed");
    assert_eq!(host.memory(back + 100, 8192), data);

    // A Bit Bucket takes the middle of a Read.
    host.memory(back, 16384).fill(0xee);
    store(
        &mut host,
        lists,
        &[descriptor(DATA, back, 512), descriptor(BUCKET, 0, 4096), descriptor(DATA, back + 512, 3584)],
    );
    assert_eq!(host.io(sgl(READ, 16, descriptor(LAST, lists, 48))), status::SUCCESS);
    assert_eq!(host.memory(back, 512), &data[..512]);
    assert_eq!(host.memory(back + 512, 3584), &data[4608..]);
    assert_eq!(host.memory(back + 4096, 1), [0xee]);

    // From the host it has no length.
    store(&mut host, lists, &[descriptor(BUCKET, 0, 4096), descriptor(DATA, at, 8192)]);
    assert_eq!(host.io(sgl(WRITE, 16, descriptor(LAST, lists, 32))), status::SUCCESS);
    assert_eq!(host.read_blocks(0, 8192, 512).unwrap(), data);
}

#[test]
fn a_long_sgl_comes_in_windows() {
    let (mut host, _disk) = Host::ready();
    let data = pattern(64 << 10, 6);
    let at = host.alloc(64 << 10);
    host.store(at, &data);
    let lists = host.alloc(64 << 10);
    let pieces: Vec<[u64; 2]> = (0..1024).map(|piece| descriptor(DATA, at + piece * 64, 64)).collect();
    store(&mut host, lists, &pieces);
    assert_eq!(host.io(sgl(WRITE, 128, descriptor(LAST, lists, 16384))), status::SUCCESS);
    assert_eq!(host.read_blocks(0, 64 << 10, 512).unwrap(), data);
    host.memory(at, 64 << 10).fill(0);
    assert_eq!(host.io(sgl(READ, 128, descriptor(LAST, lists, 16384))), status::SUCCESS);
    assert_eq!(host.memory(at, 64 << 10), data);
}

/// What it is, the descriptor in the command, those of the list, and the status.
type Row<'a> = (&'a str, [u64; 2], &'a [[u64; 2]], u16);

#[test]
fn wrong_sgls_are_told() {
    let (mut host, _disk) = Host::ready();
    let at = host.alloc(8192);
    let list = host.alloc(8192);
    let rows: [Row<'_>; 12] = [
        ("too short", descriptor(DATA, at, 4095), &[], status::SGL_LENGTH),
        ("keyed", descriptor(4, at, 4096), &[], status::SGL_TYPE),
        ("transport", descriptor(5, at, 4096), &[], status::SGL_TYPE),
        ("offset", descriptor(DATA, at, 4096).map(|half| half | 1 << 56), &[], status::SGL_TYPE),
        ("segment of nothing", descriptor(LAST, list, 0), &[], status::SGL_SEGMENT),
        ("segment of 17 bytes", descriptor(LAST, list, 17), &[], status::SGL_SEGMENT),
        (
            "a chain in the last segment",
            descriptor(LAST, list, 16),
            &[descriptor(LAST, list, 16)],
            status::SGL_SEGMENT,
        ),
        (
            "a chain that is not last",
            descriptor(SEGMENT, list, 32),
            &[descriptor(LAST, list, 16), descriptor(DATA, at, 4096)],
            status::SGL_SEGMENT,
        ),
        (
            "data at the end of a segment",
            descriptor(SEGMENT, list, 16),
            &[descriptor(DATA, at, 4096)],
            status::SGL_SEGMENT,
        ),
        (
            "a list too short",
            descriptor(LAST, list, 32),
            &[descriptor(DATA, at, 512), descriptor(DATA, at, 512)],
            status::SGL_LENGTH,
        ),
        ("a loop", descriptor(SEGMENT, list, 16), &[descriptor(SEGMENT, list, 16)], status::SGL_COUNT),
        ("out of memory", descriptor(LAST, 1 << 45, 16), &[], status::DATA_TRANSFER_ERROR),
    ];
    for (row, inline, descriptors, expected) in rows {
        store(&mut host, list, descriptors);
        for opcode in [READ, WRITE] {
            assert_eq!(host.io(sgl(opcode, 8, inline)), expected, "{row}, opcode {opcode}");
        }
    }
    assert_eq!(host.io(Entry::blocks(READ, 0, 8).prps(at, 0)), status::SUCCESS, "and it goes on");
}
