//! The IDs our Functions show in configuration space.
//!
//! The project has no Vendor ID of the PCI-SIG. This one stands in no public list (pci.ids), and lies far from where the
//! PCI-SIG assigns them in ascending order; drivers match our Functions by class. Whoever ships a product puts his own here.
//! A model of a controller that drivers know by its IDs shows those.

/// Vendor and Subsystem Vendor ID.
pub const VENDOR: u16 = 0xe510;

/// Device ID of the NVMe controller.
pub const NVME: u16 = 0x0001;

/// Device ID of the RNIC.
pub const RNIC: u16 = 0x0002;

/// Vendor ID of Intel, for the models of its controllers.
pub const INTEL: u16 = 0x8086;

/// Device ID of the 82576 with copper ports.
pub const E82576: u16 = 0x10c9;

/// Subsystem ID of a dual port adapter with it.
pub const E82576_SUBSYSTEM: u16 = 0xa03c;

/// Device ID of the AHCI controller.
pub const AHCI: u16 = 0x0003;

/// Device ID of the DC buffer.
pub const DC_BUFFER: u16 = 0x0005;

/// Vendor and Device ID of the Silicon Image 3132, which its drivers look for.
pub const SIL3132: (u16, u16) = (0x1095, 0x3132);

/// Organisation part of IEEE identifiers; the second lowest bit of its first octet says that it is locally administered:
/// the project has none of its own.
pub(crate) const OUI: [u8; 3] = [0x02, 0xe5, 0x10];

/// Printable ASCII, cut or padded with spaces to the field.
pub(crate) fn padded<const N: usize>(text: &str) -> [u8; N] {
    let mut field = [b' '; N];
    for (place, character) in field.iter_mut().zip(text.chars()) {
        *place = if character.is_ascii_graphic() || character == ' ' { character as u8 } else { b'?' };
    }
    field
}

/// FNV-1a of 128 bits (Fowler, Noll, Vo), with its halves mixed once more, since it changes high bits less than low ones.
pub(crate) fn hash(parts: &[&[u8]]) -> [u8; 16] {
    let mut value: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    for byte in parts.iter().flat_map(|part| part.iter().chain(&[0])) {
        value = (value ^ u128::from(*byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
    }
    value = (value ^ value >> 61).wrapping_mul(0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645);
    (value ^ value >> 67).to_be_bytes()
}
