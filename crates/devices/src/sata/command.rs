//! From the registers of a command to what is meant (ACS-3, 7; SATA 3.x, 13.6 for queued ones).

use super::fis::Taskfile;

/// Consecutive logical sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) lba: u64,
    pub(crate) sectors: u32,
}

/// How a command's data travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    NonData,
    /// By PIO, to the host.
    PioIn,
    /// By PIO from the host, or by DMA. To the controllers it is all the same.
    Dma,
    /// First-party DMA of a queued command, with its tag.
    Queued(u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Read(Extent),
    Write {
        extent: Extent,
        fua: bool,
    },
    Verify(Extent),
    Flush,
    /// Data Set Management with TRIM: so many pages of 512 bytes with ranges.
    Trim {
        pages: u16,
    },
    Identify,
    ReadLog {
        log: u8,
        page: u16,
        pages: u16,
    },
    Smart(Smart),
    SetFeatures(Features),
    /// Sectors of a block of READ and WRITE MULTIPLE; 0 switches them off.
    SetMultiple(u8),
    Power(Power),
    /// EXECUTE DEVICE DIAGNOSTIC.
    Diagnose,
    /// Needs nothing to be done.
    Nothing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Smart {
    Data,
    Thresholds,
    Status,
    Enable(bool),
    Autosave,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Features {
    WriteCache(bool),
    LookAhead(bool),
    TransferMode(u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Power {
    Standby,
    Idle,
    Check,
    Sleep,
}

/// LBA addressing; there are no cylinders.
const LBA: u8 = 1 << 6;
/// What stands in LBA 23:8 of SMART.
const SMART_SIGNATURE: u64 = 0xc2_4f;

/// What `taskfile` means. None: the device does not know it, and aborts it.
pub(crate) fn parse(taskfile: &Taskfile) -> Option<(Command, Protocol)> {
    use Protocol::{Dma, NonData, PioIn};
    let Taskfile { command, features, lba, device, count, .. } = *taskfile;
    let sectors = |count: u16, most: u32| if count == 0 { most } else { u32::from(count) };
    let short = || Extent { lba: taskfile.lba28(), sectors: sectors(count & 0xff, 256) };
    let long = || Extent { lba, sectors: sectors(count, 65536) };
    let queued = Extent { lba, sectors: sectors(features, 65536) };
    let tag = Protocol::Queued((count >> 3) as u8 & 31);
    let write = |extent, fua| Command::Write { extent, fua };
    let parsed = match command {
        0x20 | 0x21 | 0xc4 => (Command::Read(short()), PioIn),
        0x24 | 0x29 => (Command::Read(long()), PioIn),
        0xc8 | 0xc9 => (Command::Read(short()), Dma),
        0x25 => (Command::Read(long()), Dma),
        0x60 => (Command::Read(queued), tag),
        0x30 | 0x31 | 0xc5 | 0xca | 0xcb => (write(short(), false), Dma),
        0x34 | 0x35 | 0x39 => (write(long(), false), Dma),
        0x3d | 0xce => (write(long(), true), Dma),
        0x61 => (write(queued, device & 0x80 != 0), tag),
        0x40 | 0x41 => (Command::Verify(short()), NonData),
        0x42 => (Command::Verify(long()), NonData),
        0x06 if features & 1 != 0 => (Command::Trim { pages: count }, Dma),
        0x2f | 0x47 => {
            let page = (lba >> 8) as u8 as u16 | ((lba >> 32) as u8 as u16) << 8;
            let protocol = if command == 0x2f { PioIn } else { Dma };
            (Command::ReadLog { log: lba as u8, page, pages: count }, protocol)
        }
        0xec => (Command::Identify, PioIn),
        0xb0 if lba >> 8 & 0xffff == SMART_SIGNATURE => match features as u8 {
            0xd0 => (Command::Smart(Smart::Data), PioIn),
            0xd1 => (Command::Smart(Smart::Thresholds), PioIn),
            0xd2 => (Command::Smart(Smart::Autosave), NonData),
            0xd8 => (Command::Smart(Smart::Enable(true)), NonData),
            0xd9 => (Command::Smart(Smart::Enable(false)), NonData),
            0xda => (Command::Smart(Smart::Status), NonData),
            _ => return None,
        },
        0xef => {
            let feature = match features as u8 {
                0x02 => Features::WriteCache(true),
                0x82 => Features::WriteCache(false),
                0xaa => Features::LookAhead(true),
                0x55 => Features::LookAhead(false),
                0x03 => Features::TransferMode(count as u8),
                _ => return None,
            };
            (Command::SetFeatures(feature), NonData)
        }
        0xc6 => (Command::SetMultiple(count as u8), NonData),
        0xe7 | 0xea => (Command::Flush, NonData),
        0xe0 | 0xe2 => (Command::Power(Power::Standby), NonData),
        0xe1 | 0xe3 => (Command::Power(Power::Idle), NonData),
        0xe5 => (Command::Power(Power::Check), NonData),
        0xe6 => (Command::Power(Power::Sleep), NonData),
        0x90 => (Command::Diagnose, NonData),
        // RECALIBRATE and INITIALIZE DEVICE PARAMETERS, of the time of cylinders.
        0x10 | 0x91 => (Command::Nothing, NonData),
        _ => return None,
    };
    let needs_lba = matches!(parsed.0, Command::Read(_) | Command::Write { .. } | Command::Verify(_));
    (!needs_lba || device & LBA != 0).then_some(parsed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taskfile(command: u8, features: u16, lba: u64, count: u16) -> Taskfile {
        Taskfile { is_command: true, command, features, lba, device: LBA, count, control: 0 }
    }

    #[test]
    fn all_forms_of_reading_and_writing_name_their_sectors() {
        let extent = |lba, sectors| Extent { lba, sectors };
        for (command, expected) in [
            (0xc8, extent(0x12_3456, 7)),
            (0x20, extent(0x12_3456, 7)),
            (0x25, extent(0xab00_0012_3456, 7)),
            (0x24, extent(0xab00_0012_3456, 7)),
        ] {
            let (parsed, _) = parse(&taskfile(command, 0, 0xab00_0012_3456, 7)).unwrap();
            assert_eq!(parsed, Command::Read(expected), "{command:x}");
        }
        let (parsed, protocol) = parse(&taskfile(0x60, 9, 5, 17 << 3)).unwrap();
        assert_eq!((parsed, protocol), (Command::Read(extent(5, 9)), Protocol::Queued(17)));
        let fua = Taskfile { device: LBA | 0x80, ..taskfile(0x61, 9, 5, 0) };
        let write = Command::Write { extent: extent(5, 9), fua: true };
        assert_eq!(parse(&fua).unwrap(), (write, Protocol::Queued(0)));
    }

    #[test]
    fn a_count_of_zero_is_the_most_there_is() {
        for (command, sectors) in [(0xc8, 256), (0x25, 65536), (0x60, 65536)] {
            let (parsed, _) = parse(&taskfile(command, 0, 0, 0)).unwrap();
            assert_eq!(parsed, Command::Read(Extent { lba: 0, sectors }), "{command:x}");
        }
    }

    #[test]
    fn what_the_disk_does_not_have_is_unknown() {
        // SECURITY, packets, NOP, download of microcode, host protected area, queued forms that Identify does not offer.
        for command in [0xf1, 0xf2, 0xf3, 0xf4, 0xf5, 0xf6, 0xa0, 0xa1, 0x00, 0x92, 0xf8, 0x27, 0x63, 0x64] {
            assert_eq!(parse(&taskfile(command, 0, 0, 1)), None, "{command:x}");
        }
        assert_eq!(parse(&taskfile(0x06, 0, 0, 1)), None, "Data Set Management without TRIM");
        assert_eq!(parse(&taskfile(0xb0, 0xd0, 0, 1)), None, "SMART without its signature");
        assert_eq!(parse(&Taskfile { device: 0, ..taskfile(0xc8, 0, 0, 1) }), None, "cylinders");
    }

    #[test]
    fn a_log_is_named_by_its_address_and_page() {
        let log = Command::ReadLog { log: 0x10, page: 0x0102, pages: 1 };
        assert_eq!(parse(&taskfile(0x2f, 0, 0x0001_0000_0210, 1)), Some((log, Protocol::PioIn)));
        assert_eq!(parse(&taskfile(0x47, 0, 0x0001_0000_0210, 1)), Some((log, Protocol::Dma)));
    }
}
