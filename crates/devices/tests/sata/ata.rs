//! The disk's commands, by the rules of ACS-3 and SATA.

use crate::host::{Command, DATA, Host, disk, drive, pattern};
use etherslot_devices::sata::Drive;
use etherslot_storage::memory::{Disk, Options};

#[test]
fn identify_tells_what_drivers_look_for() {
    let (mut host, _) = Host::ready();
    let words = host.identify();
    let text = |from: usize, to: usize| -> String {
        words[from..to].iter().flat_map(|word| word.to_be_bytes()).map(char::from).collect()
    };
    assert_eq!(words[0] & 0x8000, 0, "an ATA device");
    assert_eq!(text(10, 20).trim(), "DISK1");
    assert_eq!(text(27, 47).trim(), "Etherslot SATA");
    assert_eq!(words[49] & 0x0300, 0x0300, "LBA and DMA");
    assert_eq!(u32::from(words[60]) | u32::from(words[61]) << 16, 8192, "sectors of 28 bits");
    assert_eq!(words[100], 8192, "sectors of 48 bits");
    assert_eq!(words[75], 31, "32 queued commands");
    assert_ne!(words[76] & 1 << 8, 0, "NCQ");
    assert_eq!(words[83] & 0xc000, 0x4000, "words 82 and 83 are valid");
    assert_eq!(words[83] & 0x3400, 0x3400, "48 bits, FLUSH CACHE, FLUSH CACHE EXT");
    assert_ne!(words[84] & 1 << 6, 0, "FUA");
    assert_eq!(words[108] >> 12, 5, "NAA of the World Wide Name");
    assert_eq!(words[128], 0, "no SECURITY");
    assert_eq!(words[169] & 1, 1, "TRIM");
    assert_eq!(words[217], 1, "does not rotate");
    let bytes = words.iter().flat_map(|word| word.to_le_bytes());
    assert_eq!(bytes.fold(0, u8::wrapping_add), 0, "checksum");
    assert_eq!(words[255] & 0xff, 0xa5);
}

#[test]
fn every_form_of_write_is_read_by_every_form_of_read() {
    let (mut host, disk) = Host::ready();
    let mut lba = 0;
    for write in [0x30, 0x31, 0xca, 0xcb, 0xc5, 0x34, 0x35, 0x39, 0x3d, 0xce] {
        for read in [0x20, 0x21, 0xc4, 0xc8, 0xc9, 0x24, 0x25, 0x29] {
            let data = pattern(write ^ read, 3 * 512);
            host.store(DATA, &data);
            host.good(&Command::new(write).lba(lba).count(3).data(DATA, 1536));
            host.memory(DATA, 1536).fill(0);
            host.good(&Command::new(read).lba(lba).count(3).data(DATA, 1536));
            assert_eq!(host.memory(DATA, 1536), data, "{write:x} {read:x}");
            let mut kept = vec![0; 1536];
            disk.peek(lba * 512, &mut kept);
            assert_eq!(kept, data);
            lba += 3;
        }
    }
}

#[test]
fn a_transfer_larger_than_a_buf_is_moved_in_parts() {
    let disk = disk(64 << 20);
    let mut host = Host::new(vec![Some(drive(&disk))]);
    host.start();
    let bytes = 8 << 20;
    let data = pattern(1, bytes);
    host.store(DATA, &data);
    host.good(&Command::dma(true, 7, 16384).data(DATA, 4 << 20).data(DATA + (4 << 20), 4 << 20));
    host.memory(DATA, bytes).fill(0);
    host.good(
        &Command::dma(false, 7, 16384)
            .data(DATA, 2 << 20)
            .data(DATA + (2 << 20), 4 << 20)
            .data(DATA + (6 << 20), 2 << 20),
    );
    assert!(host.memory(DATA, bytes) == data);
}

#[test]
fn scattered_data_come_together_over_any_number_of_regions() {
    let (mut host, _) = Host::ready();
    host.shuffle = true;
    // More regions than a window holds: 600 of two words and more.
    let sizes: Vec<u32> = (0..600).map(|at| 2 + 2 * (at % 255)).collect();
    let sum: u32 = sizes.iter().sum();
    let sectors = sum / 512;
    let mut command = Command::dma(true, 0, sectors as u16);
    let mut expected = Vec::new();
    let mut address = DATA;
    for size in sizes {
        let piece = pattern(size as u8, size as usize);
        host.store(address, &piece);
        expected.extend(piece);
        command = command.data(address, size);
        address += 0x400;
    }
    host.good(&command);
    command.fis[2] = 0x25;
    host.memory(DATA, 600 * 0x400).fill(0);
    host.good(&command);
    let mut back = Vec::new();
    for (address, size) in command.regions {
        back.extend_from_slice(host.memory(address, size as usize));
    }
    let bytes = sectors as usize * 512;
    assert!(back[..bytes] == expected[..bytes]);
    assert!(back[bytes..].iter().all(|byte| *byte == 0), "nothing behind the last sector");
}

#[test]
fn queued_commands_run_together_and_end_in_any_order() {
    let (mut host, _) = Host::ready();
    for slot in 0..32u8 {
        let at = DATA + u64::from(slot) * 4096;
        host.store(at, &pattern(slot, 4096));
        host.issue(slot, &Command::queued(true, slot, u64::from(slot) * 8, 8).data(at, 4096));
    }
    host.run();
    assert_eq!((host.port(0x34), host.port(0x38)), (0, 0));
    host.memory(DATA, 32 * 4096).fill(0);
    for slot in (0..32u8).rev() {
        let at = DATA + u64::from(slot) * 4096;
        host.issue(slot, &Command::queued(false, slot, u64::from(slot) * 8, 8).data(at, 4096));
    }
    host.run();
    assert_eq!((host.port(0x34), host.port(0x38)), (0, 0));
    for slot in 0..32u8 {
        assert_eq!(host.memory(DATA + u64::from(slot) * 4096, 4096), pattern(slot, 4096));
    }
    assert_eq!(host.port(0x10) & 1 << 3, 1 << 3, "told by Set Device Bits");
}

#[test]
fn what_is_behind_the_end_is_not_found() {
    let (mut host, _) = Host::ready();
    for command in [0x25, 0x35, 0x42] {
        assert_eq!(host.failed(&Command::new(command).lba(8190).count(3).data(DATA, 1536)), 0x10);
    }
    host.good(&Command::dma(false, 8189, 3).data(DATA, 1536));
    assert_eq!(host.failed(&Command::dma(false, 0xffff_ffff_ffff, 0).data(DATA, 1536)), 0x10);
}

#[test]
fn what_the_disk_does_not_have_is_aborted() {
    let (mut host, _) = Host::ready();
    // NOP, packets, SECURITY, host protected area, microcode; a log, a feature and a mode that do not exist.
    for command in [0x00, 0xa0, 0xa1, 0xf1, 0xf2, 0xf3, 0xf4, 0xf5, 0xf6, 0xf8, 0x27, 0x92, 0xff] {
        assert_eq!(host.failed(&Command::new(command)), 0x04, "{command:x}");
    }
    assert_eq!(host.failed(&Command::new(0x2f).lba(0x99).count(1).data(DATA, 512)), 0x04);
    assert_eq!(host.failed(&Command::new(0xef).features(0x05)), 0x04);
    assert_eq!(host.failed(&Command::new(0xef).features(0x03).count(0x47)), 0x04);
    assert_eq!(host.failed(&Command::dma(false, 0, 1).device(0).data(DATA, 512)), 0x04, "cylinders");
    host.good(&Command::new(0xef).features(0x03).count(0x45));
    assert_eq!(host.identify()[88] >> 8, 0x20, "UDMA 5 is chosen");
}

#[test]
fn without_write_cache_every_write_is_durable() {
    let (mut host, disk) = Host::ready();
    host.good(&Command::dma(true, 0, 8).data(DATA, 4096));
    assert_eq!(disk.unflushed_blocks(), 8);
    host.good(&Command::new(0x3d).lba(8).count(8).data(DATA, 4096));
    assert_eq!(disk.unflushed_blocks(), 8, "FUA");
    host.good(&Command::new(0xef).features(0x82));
    assert_eq!(disk.unflushed_blocks(), 0, "what was in the cache is written");
    assert_eq!(host.identify()[85] & 1 << 5, 0);
    host.good(&Command::dma(true, 0, 8).data(DATA, 4096));
    assert_eq!(disk.unflushed_blocks(), 0);
    host.good(&Command::new(0xef).features(0x02));
    host.good(&Command::dma(true, 0, 8).data(DATA, 4096));
    for flush in [0xe7, 0xea] {
        host.good(&Command::dma(true, 0, 8).data(DATA, 4096));
        assert_eq!(disk.unflushed_blocks(), 8);
        host.good(&Command::new(flush));
        assert_eq!(disk.unflushed_blocks(), 0);
    }
}

#[test]
fn a_queued_write_with_fua_is_durable() {
    let (mut host, disk) = Host::ready();
    host.issue(0, &Command::queued(true, 0, 0, 8).device(0xc0).data(DATA, 4096));
    host.run();
    assert_eq!((host.port(0x34), disk.unflushed_blocks()), (0, 0));
}

#[test]
fn trim_discards_its_ranges_and_nothing_if_one_is_wrong() {
    let (mut host, disk) = Host::ready();
    disk.poke(0, &vec![7; 64 * 512]);
    let range = |lba: u64, sectors: u64| (lba | sectors << 48).to_le_bytes();
    let mut page = [0; 512];
    page[..8].copy_from_slice(&range(2, 3));
    page[16..24].copy_from_slice(&range(10, 1));
    host.store(DATA, &page);
    host.good(&Command::new(0x06).features(1).count(1).data(DATA, 512));
    let mut kept = vec![0; 64 * 512];
    disk.peek(0, &mut kept);
    for (lba, sector) in kept.chunks(512).enumerate() {
        let expected = if matches!(lba, 2..=4 | 10) { 0 } else { 7 };
        assert!(sector.iter().all(|byte| *byte == expected), "LBA {lba}");
    }
    page[..8].copy_from_slice(&range(20, 1));
    page[16..24].copy_from_slice(&range(8190, 3));
    host.store(DATA, &page);
    assert_eq!(host.failed(&Command::new(0x06).features(1).count(1).data(DATA, 512)), 0x10);
    disk.peek(20 * 512, &mut kept[..512]);
    assert_eq!(kept[0], 7);
    assert_eq!(host.failed(&Command::new(0x06).features(1).count(9).data(DATA, 9 * 512)), 0x04, "word 105");
}

#[test]
fn power_modes_are_told_and_standby_writes_the_cache() {
    let (mut host, disk) = Host::ready();
    host.good(&Command::dma(true, 0, 8).data(DATA, 4096));
    assert_eq!(host.good(&Command::new(0xe5)).count, 0xff);
    host.good(&Command::new(0xe1));
    assert_eq!(host.good(&Command::new(0xe5)).count, 0x80);
    host.good(&Command::new(0xe0));
    assert_eq!(disk.unflushed_blocks(), 0);
    assert_eq!(host.good(&Command::new(0xe5)).count, 0x00);
    host.good(&Command::dma(false, 0, 8).data(DATA, 4096));
    assert_eq!(host.good(&Command::new(0xe5)).count, 0xff, "an access wakes it");
    host.good(&Command::new(0xe6));
    assert_eq!(host.failed(&Command::new(0xe5)), 0x04, "only a reset wakes it");
}

#[test]
fn smart_says_that_the_disk_is_well_and_counts() {
    let (mut host, _) = Host::ready();
    let smart = |sub: u16| Command::new(0xb0).features(sub).lba(0xc2_4f00);
    host.good(&Command::dma(true, 0, 5).data(DATA, 5 * 512));
    let status = host.good(&smart(0xda));
    assert_eq!(status.lba >> 8 & 0xffff, 0xc24f, "no threshold is exceeded");
    host.good(&smart(0xd0).data(DATA, 512));
    let page = host.memory(DATA, 512).to_vec();
    assert_eq!(page.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte)), 0);
    let written = page[2..362].chunks(12).find(|attribute| attribute[0] == 241).unwrap();
    assert_eq!(written[5], 5);
    host.good(&smart(0xd9));
    assert_eq!(host.failed(&smart(0xda)), 0x04, "switched off");
    host.good(&smart(0xd8));
    host.good(&smart(0xda));
}

#[test]
fn sectors_may_have_4096_bytes() {
    let disk = Disk::new(Options { bytes: 1 << 20, block_bytes: 4096, ..Options::default() });
    let drive = Drive { serial: "D".into(), medium: Box::new(disk.medium()), block_bytes: 4096 };
    let mut host = Host::new(vec![Some(drive)]);
    host.start();
    let words = host.identify();
    assert_eq!((words[106] & 0xd000, words[117], words[100]), (0x5000, 2048, 256));
    host.store(DATA, &pattern(3, 8192));
    host.good(&Command::dma(true, 254, 2).data(DATA, 8192));
    let mut kept = vec![0; 8192];
    disk.peek(254 * 4096, &mut kept);
    assert_eq!(kept, pattern(3, 8192));
}
