//! Frame Information Structures (Serial ATA 3.x, 10.5): what host and device tell each other, and the registers within.

/// Bytes of a Register FIS, either way.
pub(crate) const REGISTER_BYTES: usize = 20;

/// Bits of the Status field (ACS-3, 6.2).
pub(crate) mod status {
    pub(crate) const ERR: u8 = 1 << 0;
    pub(crate) const DRQ: u8 = 1 << 3;
    /// Device Fault.
    pub(crate) const DF: u8 = 1 << 5;
    pub(crate) const DRDY: u8 = 1 << 6;
    pub(crate) const BSY: u8 = 1 << 7;
    /// A device that waits for commands; bit 4 was Seek Complete, and is 1 in all disks.
    pub(crate) const READY: u8 = DRDY | 1 << 4;
    /// What Set Device Bits may change.
    pub(crate) const SET_DEVICE_BITS: u8 = 0x77;
}

/// Bits of the Error field (ACS-3, 6.3).
pub(crate) mod error {
    /// Command aborted.
    pub(crate) const ABRT: u8 = 1 << 2;
    /// An address beyond the end.
    pub(crate) const IDNF: u8 = 1 << 4;
    /// Uncorrectable data.
    pub(crate) const UNC: u8 = 1 << 6;
}

/// What a command is made of: the Register FIS from host to device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Taskfile {
    /// A command, not an update of Device Control.
    pub(crate) is_command: bool,
    pub(crate) command: u8,
    pub(crate) features: u16,
    pub(crate) lba: u64,
    pub(crate) device: u8,
    pub(crate) count: u16,
    pub(crate) control: u8,
}

impl Taskfile {
    /// Soft reset, in Device Control.
    pub(crate) const SRST: u8 = 1 << 2;

    /// None: it is another FIS.
    pub(crate) fn parse(fis: &[u8; REGISTER_BYTES]) -> Option<Self> {
        let lba = [fis[4], fis[5], fis[6], fis[8], fis[9], fis[10], 0, 0];
        (fis[0] == 0x27).then_some(Self {
            is_command: fis[1] & 0x80 != 0,
            command: fis[2],
            features: u16::from_le_bytes([fis[3], fis[11]]),
            lba: u64::from_le_bytes(lba),
            device: fis[7],
            count: u16::from_le_bytes([fis[12], fis[13]]),
            control: fis[15],
        })
    }

    /// LBA of a command of 28 bits: its upper four are in Device.
    pub(crate) fn lba28(&self) -> u64 {
        self.lba & 0xff_ffff | u64::from(self.device & 15) << 24
    }
}

/// The registers of a device as a command leaves them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Registers {
    pub(crate) status: u8,
    pub(crate) error: u8,
    pub(crate) lba: u64,
    pub(crate) device: u8,
    pub(crate) count: u16,
}

impl Registers {
    /// What a disk shows after a reset (ACS-3, 9.12).
    pub(crate) const SIGNATURE: Self = Self { status: status::READY, error: 1, lba: 1, device: 0, count: 1 };

    /// A command that went well.
    pub(crate) fn good(taskfile: &Taskfile) -> Self {
        let Taskfile { lba, device, count, .. } = *taskfile;
        Self { status: status::READY, error: 0, lba, device, count }
    }

    /// One that did not.
    pub(crate) fn failed(taskfile: &Taskfile, error: u8) -> Self {
        Self { status: status::READY | status::ERR, error, ..Self::good(taskfile) }
    }

    /// The Signature register of the host.
    pub(crate) fn signature(&self) -> u32 {
        u32::from(self.count as u8) | (self.lba as u32 & 0xff_ffff) << 8
    }

    fn fill(&self, fis: &mut [u8; REGISTER_BYTES]) {
        let lba = self.lba.to_le_bytes();
        (fis[2], fis[3], fis[7]) = (self.status, self.error, self.device);
        fis[4..7].copy_from_slice(&lba[..3]);
        fis[8..11].copy_from_slice(&lba[3..6]);
        fis[12..14].copy_from_slice(&self.count.to_le_bytes());
    }

    /// The Register FIS from device to host, with its Interrupt bit.
    pub(crate) fn to_fis(self) -> [u8; REGISTER_BYTES] {
        let mut fis = [0; REGISTER_BYTES];
        (fis[0], fis[1]) = (0x34, 0x40);
        self.fill(&mut fis);
        fis
    }

    /// The PIO Setup FIS of the last `bytes` bytes to the host: the status is that of the end.
    pub(crate) fn to_pio_setup(self, bytes: u16) -> [u8; REGISTER_BYTES] {
        let mut fis = [0; REGISTER_BYTES];
        self.fill(&mut fis);
        // To the host, with an interrupt.
        (fis[0], fis[1], fis[2], fis[15]) = (0x5f, 0x60, status::READY | status::DRQ, self.status);
        fis[16..18].copy_from_slice(&bytes.to_le_bytes());
        fis
    }

    /// The Set Device Bits FIS that ends the queued commands of `ended`, with an interrupt.
    pub(crate) fn to_set_device_bits(self, ended: u32) -> [u8; 8] {
        let mut fis = [0; 8];
        (fis[0], fis[1], fis[2], fis[3]) = (0xa1, 0x40, self.status & status::SET_DEVICE_BITS, self.error);
        fis[4..].copy_from_slice(&ended.to_le_bytes());
        fis
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_register_fis_of_the_host_has_its_fields_where_sata_puts_them() {
        let mut fis = [0; 20];
        for (byte, place) in (0..).zip(&mut fis) {
            *place = byte;
        }
        (fis[0], fis[1]) = (0x27, 0x80);
        let taskfile = Taskfile::parse(&fis).unwrap();
        assert!(taskfile.is_command);
        assert_eq!((taskfile.command, taskfile.features), (2, 0x0b03));
        assert_eq!(taskfile.lba, 0x0a09_0806_0504);
        assert_eq!((taskfile.device, taskfile.count, taskfile.control), (7, 0x0d0c, 15));
        assert_eq!(taskfile.lba28(), 0x0706_0504);
        fis[1] = 0x0f;
        assert!(!Taskfile::parse(&fis).unwrap().is_command);
        fis[0] = 0x34;
        assert_eq!(Taskfile::parse(&fis), None);
    }

    #[test]
    fn the_fises_of_a_device_have_their_fields_where_sata_puts_them() {
        let registers =
            Registers { status: 0x51, error: 0x40, lba: 0x0605_0403_0201, device: 0xe0, count: 0x0807 };
        let fis = registers.to_fis();
        assert_eq!(fis[..8], [0x34, 0x40, 0x51, 0x40, 1, 2, 3, 0xe0]);
        assert_eq!(fis[8..], [4, 5, 6, 0, 7, 8, 0, 0, 0, 0, 0, 0]);
        let fis = registers.to_pio_setup(0x200);
        assert_eq!(fis[..4], [0x5f, 0x60, 0x58, 0x40]);
        assert_eq!(fis[12..], [7, 8, 0, 0x51, 0, 2, 0, 0]);
        assert_eq!(registers.to_set_device_bits(0x8000_0001), [0xa1, 0x40, 0x51, 0x40, 1, 0, 0, 0x80]);
        assert_eq!(Registers::SIGNATURE.signature(), 0x0000_0101, "a disk");
    }
}
