//! For the host: what a configuration space tells, and what to write into the ports above a Function.
//!
//! The space is another node's word: nothing in it is trusted.

use crate::config::BYTES;
use crate::config::register::{self as reg, id, msi, msix};

/// Capabilities fit 48 times between 0x40 and 0x100, extended ones 960 times behind: a longer list is a loop.
const MAX_CAPABILITIES: usize = 48;
const MAX_EXTENDED_CAPABILITIES: usize = 960;
const FIRST_CAPABILITY: u8 = 0x40;
/// Where the list of extended capabilities starts.
pub const FIRST_EXTENDED_CAPABILITY: u16 = 0x100;
/// Bytes of the Advanced Error Reporting capability of an Endpoint (7.8.4): one that would end outside of the space is none.
const AER_BYTES: usize = 0x2C;
/// The low windows of a bridge end here.
const FOUR_GIB: u64 = 1 << 32;
/// What a bridge's window is rounded to.
const WINDOW_UNIT: u64 = 1 << 20;

/// A BAR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BarLayout {
    /// Bytes, a power of two.
    pub bytes: u64,
    /// Takes the next register, too.
    pub is_64bit: bool,
    /// Reading has no effect.
    pub is_prefetchable: bool,
}

/// An MSI capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MsiLayout {
    /// Where it starts.
    pub capability: u16,
    /// Vectors that it can have, up to 32.
    pub vectors: u16,
    /// Whether the address has 64 bits.
    pub is_64bit: bool,
    /// Whether vectors can be masked.
    pub is_maskable: bool,
}

/// An MSI-X capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MsixLayout {
    /// Where it starts.
    pub capability: u16,
    /// Vectors in the table, 1..=2048.
    pub vectors: u16,
    /// BAR of the table.
    pub bar: u8,
    /// Offset of the table.
    pub table_offset: u32,
    /// BAR of the PBA.
    pub pba_bar: u8,
    /// Offset of the PBA.
    pub pba_offset: u32,
}

/// What a Type 0 configuration space tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Vendor ID.
    pub vendor: u16,
    /// Device ID.
    pub device: u16,
    /// Base class, sub-class, programming interface.
    pub class: [u8; 3],
    /// 0, or 1..=4 for INTA to INTD.
    pub interrupt_pin: u8,
    /// BARs by their first register.
    pub bars: [Option<BarLayout>; reg::BARS],
    /// Start of the Power Management capability.
    pub power_management: Option<u16>,
    /// Start of the PCI Express capability.
    pub pcie: Option<u16>,
    /// MSI.
    pub msi: Option<MsiLayout>,
    /// MSI-X.
    pub msix: Option<MsixLayout>,
    /// Start of the Advanced Error Reporting capability.
    pub aer: Option<u16>,
    /// Start of the Device Serial Number capability.
    pub serial_number: Option<u16>,
}

impl Layout {
    /// Reads a space, and what its six BAR registers read after all ones were written to them.
    pub fn parse(image: &[u8; BYTES], bar_sizes: &[u32; reg::BARS]) -> Self {
        let mut layout = Self {
            vendor: u16_at(image, 0),
            device: u16_at(image, 2),
            class: [image[0xB], image[0xA], image[9]],
            interrupt_pin: if image[reg::INTERRUPT_PIN as usize] <= 4 {
                image[reg::INTERRUPT_PIN as usize]
            } else {
                0
            },
            bars: bars(bar_sizes),
            power_management: None,
            pcie: None,
            msi: None,
            msix: None,
            aer: None,
            serial_number: None,
        };
        for (at, kind) in capabilities(image) {
            match kind {
                id::POWER_MANAGEMENT => layout.power_management = layout.power_management.or(Some(at)),
                id::PCI_EXPRESS => layout.pcie = layout.pcie.or(Some(at)),
                id::MSI => layout.msi = layout.msi.or_else(|| parse_msi(image, at)),
                id::MSIX => layout.msix = layout.msix.or_else(|| parse_msix(image, at, &layout.bars)),
                _ => {}
            }
        }
        for (at, kind) in extended_capabilities(image) {
            match kind {
                id::AER if at as usize + AER_BYTES <= BYTES => layout.aer = layout.aer.or(Some(at)),
                id::SERIAL_NUMBER => layout.serial_number = layout.serial_number.or(Some(at)),
                _ => {}
            }
        }
        layout
    }

    /// The windows of a port above the Function alone, when its BARs have these addresses; 0 is none.
    pub fn windows(&self, addresses: &[u64; reg::BARS]) -> [(u16, u32); 4] {
        let mut windows = Windows::default();
        self.cover(addresses, &mut windows);
        windows.registers()
    }

    /// Widens `windows` to the Function's BARs at these addresses; 0 is none.
    pub fn cover(&self, addresses: &[u64; reg::BARS], windows: &mut Windows) {
        for (bar, &address) in self.bars.iter().zip(addresses) {
            if let Some(bar) = bar
                && address != 0
            {
                windows.cover(address, bar.bytes);
            }
        }
    }

    /// Where in `image` the pointer to the capability at `capability` is.
    pub fn pointer_to(&self, image: &[u8; BYTES], capability: u16) -> Option<usize> {
        let mut link = reg::CAPABILITIES_POINTER as usize;
        for (at, _) in capabilities(image) {
            if at == capability {
                return Some(link);
            }
            link = at as usize + 1;
        }
        None
    }
}

/// The memory windows of a bridge: one below 4 GiB, one above.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Windows {
    low: Option<(u64, u64)>,
    high: Option<(u64, u64)>,
}

impl Windows {
    /// Widens a window to `bytes` bytes from `address` on. A bridge's non-prefetchable window has 32 bits, so
    /// what is above goes into the prefetchable one, whatever its kind: both pass the same TLPs.
    pub fn cover(&mut self, address: u64, bytes: u64) {
        let Some(limit) = bytes.checked_sub(1).and_then(|most| address.checked_add(most)) else { return };
        let window = if limit < FOUR_GIB { &mut self.low } else { &mut self.high };
        let (first, last) = window.unwrap_or((address, limit));
        *window = Some((first.min(address), last.max(limit)));
    }

    /// Which registers of a bridge are to be written, with what (7.5.1.3.6 to 7.5.1.3.8).
    pub fn registers(&self) -> [(u16, u32); 4] {
        // Base above Limit closes a window.
        let (low_base, low_limit) = self.low.unwrap_or((FOUR_GIB - WINDOW_UNIT, 0));
        let (high_base, high_limit) = self.high.unwrap_or((u64::MAX, 0));
        let pair =
            |base: u64, limit: u64| ((limit >> 16 & 0xFFF0) as u32) << 16 | (base >> 16 & 0xFFF0) as u32;
        [
            (reg::BRIDGE_MEMORY, pair(low_base, low_limit)),
            (reg::BRIDGE_PREFETCHABLE, pair(high_base, high_limit)),
            (reg::BRIDGE_PREFETCHABLE_BASE_UPPER, (high_base >> 32) as u32),
            (reg::BRIDGE_PREFETCHABLE_LIMIT_UPPER, (high_limit >> 32) as u32),
        ]
    }
}

/// The DW to write to a bridge's bus number register.
pub const fn bus_numbers(primary: u8, secondary: u8, subordinate: u8) -> u32 {
    u32::from_le_bytes([primary, secondary, subordinate, 0])
}

/// The capabilities of a space, in the order of its list: where they start, and their ID.
pub fn capabilities(image: &[u8; BYTES]) -> impl Iterator<Item = (u16, u8)> {
    let present = u16_at(image, reg::STATUS as usize) & reg::STATUS_CAPABILITIES != 0;
    let mut next = if present { image[reg::CAPABILITIES_POINTER as usize] & !3 } else { 0 };
    std::iter::from_fn(move || {
        let at = next;
        if at < FIRST_CAPABILITY {
            return None;
        }
        next = image[at as usize + 1] & !3;
        Some((u16::from(at), image[at as usize]))
    })
    .take(MAX_CAPABILITIES)
}

/// The extended capabilities of a space, in the order of their list: where they start, and their ID.
pub fn extended_capabilities(image: &[u8; BYTES]) -> impl Iterator<Item = (u16, u16)> {
    let mut next = FIRST_EXTENDED_CAPABILITY;
    std::iter::from_fn(move || {
        let at = next;
        if at < FIRST_EXTENDED_CAPABILITY {
            return None;
        }
        let header = extended_header(u32_at(image, at as usize))?;
        next = header.next;
        Some((at, header.id))
    })
    .take(MAX_EXTENDED_CAPABILITIES)
}

/// The first DW of an extended capability (7.6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtendedHeader {
    /// Its ID.
    pub id: u16,
    /// Where the next one starts; there is none below [`FIRST_EXTENDED_CAPABILITY`].
    pub next: u16,
    /// Bytes of it, this DW included, whose content matters to a host; the DW alone for most.
    pub body_bytes: u16,
}

/// Reads an extended capability's first DW; `None` where there is no such capability at all, or no such space (7.6.1).
pub const fn extended_header(header: u32) -> Option<ExtendedHeader> {
    if header == 0 || header == u32::MAX {
        return None;
    }
    let id = header as u16;
    let body_bytes = if id == id::AER { AER_BYTES as u16 } else { 4 };
    Some(ExtendedHeader { id, next: (header >> 20) as u16 & !3, body_bytes })
}

fn u16_at(image: &[u8; BYTES], at: usize) -> u16 {
    u16::from_le_bytes([image[at % BYTES], image[(at + 1) % BYTES]])
}

fn u32_at(image: &[u8; BYTES], at: usize) -> u32 {
    u32::from(u16_at(image, at)) | u32::from(u16_at(image, at + 2)) << 16
}

fn bars(sizes: &[u32; reg::BARS]) -> [Option<BarLayout>; reg::BARS] {
    let mut bars = [None; reg::BARS];
    let mut index = 0;
    while index < reg::BARS {
        let low = sizes[index];
        // I/O BARs have no part here.
        let is_io = low & 1 != 0;
        let is_64bit = !is_io && low & 0b110 == 0b100;
        let upper = if is_64bit { sizes.get(index + 1).copied() } else { Some(u32::MAX) };
        if let (Some(upper), false) = (upper, is_io || low & !0xF == 0 && !is_64bit) {
            let ones = u64::from(upper) << 32 | u64::from(low & !0xF);
            let bytes = ones.wrapping_neg();
            // Ones from the top down to the size and none below: anything else is no BAR.
            if bytes.is_power_of_two() {
                bars[index] = Some(BarLayout { bytes, is_64bit, is_prefetchable: low & 8 != 0 });
            }
        }
        index += if is_64bit { 2 } else { 1 };
    }
    bars
}

fn parse_msi(image: &[u8; BYTES], at: u16) -> Option<MsiLayout> {
    let control = u16_at(image, (at + msi::CONTROL) as usize);
    let count_log2 = control >> 1 & 7;
    (count_log2 <= 5).then_some(MsiLayout {
        capability: at,
        vectors: 1 << count_log2,
        is_64bit: control >> 7 & 1 != 0,
        is_maskable: control >> 8 & 1 != 0,
    })
}

/// An MSI-X capability whose table and PBA are inside BARs.
fn parse_msix(image: &[u8; BYTES], at: u16, bars: &[Option<BarLayout>; reg::BARS]) -> Option<MsixLayout> {
    let vectors = (u16_at(image, (at + msix::CONTROL) as usize) & 0x7FF) + 1;
    let place = |register: u16, bytes: u64| {
        let value = u32_at(image, (at + register) as usize);
        let (bar, offset) = (value as u8 & 7, value & !7);
        let inside = bars.get(bar as usize)?.is_some_and(|bar| u64::from(offset) + bytes <= bar.bytes);
        inside.then_some((bar, offset))
    };
    let (bar, table_offset) = place(msix::TABLE, 16 * u64::from(vectors))?;
    let (pba_bar, pba_offset) = place(msix::PBA, 8 * u64::from(vectors.div_ceil(64)))?;
    Some(MsixLayout { capability: at, vectors, bar, table_offset, pba_bar, pba_offset })
}

#[cfg(test)]
mod tests;
