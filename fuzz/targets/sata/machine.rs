//! What stands around a SATA controller: memory, a bus with little room, a disk with faults.

use std::ops::{Deref, DerefMut};

use etherslot_devices::sata::{Config, Drive};
use etherslot_fuzz::{Input, Stand};
use etherslot_pci::function::Function;
use etherslot_storage::MediumError;
use etherslot_storage::memory::{Disk, FaultOn, Latency, Options};

pub(crate) const DATA: u64 = 0x2_0000;
const DISK_BYTES: u64 = 128 << 10;

/// A controller, and what is around it.
pub(crate) struct Machine<F> {
    pub(crate) stand: Stand<F>,
    pub(crate) disk: Disk,
}

impl<F> Deref for Machine<F> {
    type Target = Stand<F>;

    fn deref(&self) -> &Stand<F> {
        &self.stand
    }
}

impl<F> DerefMut for Machine<F> {
    fn deref_mut(&mut self) -> &mut Stand<F> {
        &mut self.stand
    }
}

impl<F: Function> Machine<F> {
    pub(crate) fn new(input: &mut Input<'_>, make: impl FnOnce(Config) -> F) -> Self {
        let latency = Latency { read_ns: u64::from(input.u8()), write_ns: 50, ..Latency::default() };
        let disk = Disk::new(Options { bytes: DISK_BYTES, latency, depth: 8, ..Options::default() });
        let config = Config { ports: vec![Some(drive(&disk))], ..Config::default() };
        Self { stand: Stand::new(make(config)), disk }
    }

    /// What happens to any controller. `step` is below 100.
    pub(crate) fn happen(&mut self, step: u8, input: &mut Input<'_>) {
        match step {
            88..=91 => {
                let on = input.one_of(&[FaultOn::Read, FaultOn::Write, FaultOn::Flush]);
                let errors = [MediumError::Failed, MediumError::NoSpace, MediumError::ReadOnly];
                let at = u64::from(input.u8()) << 9;
                self.disk.fail(on, at..at + 4096, input.one_of(&errors), 1 + u32::from(input.u8() & 3));
            }
            97.. => self.disk.heal(),
            _ => self.stand.happen(step, input),
        }
    }

    /// What a disk has to say of itself is at [`DATA`].
    pub(crate) fn assert_identified(&self) {
        let page = &self.memory.bytes[DATA as usize..][..512];
        assert_eq!(page.iter().fold(0, |sum: u8, byte| sum.wrapping_add(*byte)), 0, "a checksum");
        assert_eq!(page[510], 0xa5, "the disk says what it is");
    }
}

pub(crate) fn drive(disk: &Disk) -> Drive {
    Drive { serial: "FUZZ".into(), medium: Box::new(disk.medium()), block_bytes: 512 }
}

/// A Register FIS, most of them near to a good one.
pub(crate) fn fis(input: &mut Input<'_>) -> [u8; 20] {
    let mut fis = [0; 20];
    (fis[0], fis[1], fis[7]) = (0x27, 0x80, 0x40);
    fis[2] = input.one_of(&[
        0x60, 0x61, 0x25, 0x35, 0xc8, 0xca, 0x20, 0x30, 0xec, 0x06, 0x2f, 0x47, 0xe7, 0xea, 0xb0, 0xef, 0xe0,
        0xe1, 0xe5, 0xe6, 0x42, 0x90, 0xc6, 0x3d, 0xf1, 0xff,
    ]);
    fis[3] = input.one_of(&[1, 2, 8, 0x82, 0xd0, 0xda, 0xd9, 0xd8, 0x55, 3, 0]);
    (fis[4], fis[12]) = (input.u8(), input.one_of(&[1, 8, 0, 0x45, 0x80, 64]));
    if fis[2] == 0xb0 {
        (fis[5], fis[6]) = (0x4f, 0xc2);
    }
    if input.once_in(8) {
        let count = input.below(20);
        fis[..count].copy_from_slice(
            &{
                let mut any = [0; 20];
                let given = input.bytes(count);
                any[..given.len()].copy_from_slice(given);
                any
            }[..count],
        );
    }
    fis
}

/// A place for data and how much of it, most of them in memory.
pub(crate) fn region(input: &mut Input<'_>) -> (u64, u32) {
    let address = if input.once_in(12) { input.number() } else { DATA + (u64::from(input.u8()) << 8) };
    let bytes = if input.once_in(6) { input.number() as u32 } else { 512 << (input.u8() % 8) };
    (address, bytes)
}
