//! Headers and capabilities, each at its fixed place, so that the layout of a space follows from what it has.

use super::ConfigSpace;
use super::builder::{Builder, Register};
use super::register::{self as reg, aer, express, id, msi, msix, pm};
use crate::function::{BarKind, FunctionSpec, MsixSpec};

/// Power Management.
pub const POWER_MANAGEMENT: u16 = 0x40;
/// MSI.
pub const MSI: u16 = 0x50;
/// MSI-X.
pub const MSIX: u16 = 0x70;
/// PCI Express.
pub const PCI_EXPRESS: u16 = 0x80;
/// Advanced Error Reporting.
pub const AER: u16 = 0x100;
/// Device Serial Number.
pub const SERIAL_NUMBER: u16 = 0x150;

/// What stands at the ends of a Link, as far as its capability differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PortType {
    Endpoint,
    Upstream,
    /// With the number of its slot and Link.
    Downstream(u8),
}

const STATUS_ERRORS: u32 = (reg::STATUS_MASTER_PARITY
    | reg::STATUS_SIGNALED_TARGET_ABORT
    | reg::STATUS_RECEIVED_TARGET_ABORT
    | reg::STATUS_RECEIVED_MASTER_ABORT
    | reg::STATUS_SIGNALED_SYSTEM_ERROR
    | reg::STATUS_DETECTED_PARITY) as u32;
const COMMAND_WRITABLE: u32 = (reg::COMMAND_MEMORY
    | reg::COMMAND_MASTER
    | reg::COMMAND_PARITY
    | reg::COMMAND_SERR
    | reg::COMMAND_INTX_DISABLE) as u32;

impl Builder {
    /// What Type 0 and Type 1 headers share (7.5.1.1).
    fn header(&mut self, ids: (u16, u16), revision: u8, class: [u8; 3], header_type: u8) {
        let [base, sub, interface] = class;
        self.put(Register::fixed(0, 4, u32::from(ids.1) << 16 | u32::from(ids.0)));
        self.put(Register::writable(reg::COMMAND, 2, 0, COMMAND_WRITABLE));
        self.put(Register { clearable: STATUS_ERRORS, ..Register::fixed(reg::STATUS, 2, 0) });
        self.put(Register::fixed(reg::REVISION, 4, u32::from_le_bytes([revision, interface, sub, base])));
        self.put(Register::writable(reg::CACHE_LINE_SIZE, 1, 0, 0xFF));
        self.put(Register::fixed(reg::HEADER_TYPE, 1, u32::from(header_type)));
        self.put(Register::writable(reg::INTERRUPT_LINE, 1, 0, 0xFF));
    }

    /// The header of an endpoint (7.5.1.2).
    pub(crate) fn type0(&mut self, spec: &FunctionSpec) {
        self.header((spec.vendor, spec.device), spec.revision, spec.class, 0);
        let subsystem = u32::from(spec.subsystem) << 16 | u32::from(spec.subsystem_vendor);
        self.put(Register::fixed(reg::SUBSYSTEM, 4, subsystem));
        self.put(Register::fixed(reg::INTERRUPT_PIN, 1, u32::from(spec.intx)));
        for bar in &spec.bars {
            let at = reg::BAR0 + 4 * u16::from(bar.index);
            let (kind, is_64bit) = match bar.kind {
                BarKind::Memory32 => (0, false),
                BarKind::Memory64 => (0b0100, true),
                BarKind::Prefetchable64 => (0b1100, true),
            };
            // Bits below the size are fixed, so that all ones written read back as the size (7.5.1.2.1).
            let writable = !(bar.bytes - 1);
            self.put(Register::writable(at, 4, kind, writable as u32 & !0xF));
            if is_64bit {
                self.put(Register::writable(at + 4, 4, 0, (writable >> 32) as u32));
            }
        }
    }

    /// The header of a switch port, with both memory windows closed and no I/O window (7.5.1.3).
    pub(crate) fn type1(&mut self, ids: (u16, u16), revision: u8) {
        self.header(ids, revision, [0x06, 0x04, 0x00], 1);
        self.put(Register::writable(reg::BRIDGE_BUS_NUMBERS, 4, 0, 0x00FF_FFFF));
        // Secondary Status.
        self.put(Register {
            clearable: STATUS_ERRORS & !u32::from(reg::STATUS_INTX),
            ..Register::fixed(0x1E, 2, 0)
        });
        self.put(Register::writable(reg::BRIDGE_MEMORY, 4, 0x0000_FFF0, 0xFFF0_FFF0));
        self.put(Register::writable(reg::BRIDGE_PREFETCHABLE, 4, 0x0001_FFF1, 0xFFF0_FFF0));
        self.put(Register::writable(reg::BRIDGE_PREFETCHABLE_BASE_UPPER, 4, 0, u32::MAX));
        self.put(Register::writable(reg::BRIDGE_PREFETCHABLE_LIMIT_UPPER, 4, 0, u32::MAX));
        // Parity Error Response, SERR# Enable, Secondary Bus Reset.
        self.put(Register::writable(reg::BRIDGE_CONTROL, 2, 0, 0x0043));
    }

    /// Power Management: D0 and D3Hot, no PME, state kept over D3Hot (7.5.2).
    pub(crate) fn power_management(&mut self) {
        let at = POWER_MANAGEMENT;
        self.capability(id::POWER_MANAGEMENT, at);
        self.put(Register::fixed(at + 2, 2, 0x0003));
        let state = u32::from(pm::CONTROL_NO_SOFT_RESET);
        self.put(Register::writable(at + pm::CONTROL, 2, state, u32::from(pm::CONTROL_STATE)));
    }

    /// MSI with a 64-bit address and per-vector masking, for `vectors` (a power of two up to 32) vectors
    /// (7.7.1).
    pub(crate) fn msi(&mut self, vectors: u8) {
        self.capability(id::MSI, MSI);
        let count_log2 = u32::from(vectors).trailing_zeros();
        // Per-Vector Masking Capable, 64 bit Address Capable, Multiple Message Capable.
        self.put(Register::writable(MSI + msi::CONTROL, 2, 1 << 8 | 1 << 7 | count_log2 << 1, 0x71));
        self.put(Register::writable(MSI + msi::ADDRESS, 4, 0, !3));
        self.put(Register::writable(MSI + msi::ADDRESS + 4, 4, 0, u32::MAX));
        self.put(Register::writable(MSI + msi::DATA, 2, 0, 0xFFFF));
        let mask = u32::MAX >> (32 - u32::from(vectors));
        self.put(Register::writable(MSI + msi::MASK, 4, 0, mask));
    }

    /// MSI-X (7.7.2).
    pub(crate) fn msix(&mut self, spec: &MsixSpec) {
        self.capability(id::MSIX, MSIX);
        let control = u32::from(msix::CONTROL_MASK | msix::CONTROL_ENABLE);
        self.put(Register::writable(MSIX + msix::CONTROL, 2, u32::from(spec.vectors) - 1, control));
        let bar = u32::from(spec.bar);
        self.put(Register::fixed(MSIX + msix::TABLE, 4, spec.table_offset | bar));
        self.put(Register::fixed(MSIX + msix::PBA, 4, spec.pba_offset | bar));
    }

    /// PCI Express, version 2 (7.5.3). The Link tells 8 GT/s and four lanes, which nothing here depends on.
    pub(crate) fn express(&mut self, port: PortType) {
        let at = PCI_EXPRESS;
        self.capability(id::PCI_EXPRESS, at);
        let (kind, number) = match port {
            PortType::Endpoint => (0x0000, 0),
            PortType::Upstream => (0x0050, 0),
            // With Slot Implemented.
            PortType::Downstream(number) => (0x0160, number),
        };
        self.put(Register::fixed(at + 2, 2, 2 | kind));
        let endpoint = port == PortType::Endpoint;
        // 512 bytes of payload, 8-bit Tags, Role-Based Error Reporting; no limit on the exit latencies of an
        // Endpoint.
        let latencies = if endpoint { 7 << 6 | 7 << 9 | express::DEVICE_CAPABILITIES_FLR } else { 0 };
        self.put(Register::fixed(at + express::DEVICE_CAPABILITIES, 4, 2 | 1 << 5 | 1 << 15 | latencies));
        // Max_Payload_Size, among others, outlives FLR (6.6.2). A port has no read requests, snoop or order of
        // its own.
        let (control, writable) = if endpoint { (0x2910, 0x79FF) } else { (0x0100, 0x01EF) };
        let mps = 7 << express::DEVICE_CONTROL_MPS_SHIFT;
        self.put(Register {
            kept_by_flr: mps,
            ..Register::writable(at + express::DEVICE_CONTROL, 2, control, writable)
        });
        self.put(Register { clearable: 0xF, ..Register::fixed(at + express::DEVICE_STATUS, 2, 0) });
        // x4, 8 GT/s, ASPM Optionality Compliance; a downstream port can tell that its Link is up.
        let downstream = matches!(port, PortType::Downstream(_));
        let link = 3 | 4 << 4 | 1 << 22 | u32::from(number) << 24 | if downstream { 1 << 20 } else { 0 };
        self.put(Register::fixed(at + express::LINK_CAPABILITIES, 4, link));
        // RCB is writable in an Endpoint, Link Disable in a Downstream Port. Common Clock, Extended Synch and
        // ASPM Control belong to the Link and outlive FLR, as RCB does.
        let link_control = if endpoint { 0x00CB } else { 0x00C3 } | if downstream { 0x0010 } else { 0 };
        self.put(Register {
            kept_by_flr: link_control,
            ..Register::writable(at + express::LINK_CONTROL, 2, 0, link_control)
        });
        // x4 at 8 GT/s, Slot Clock; the Link of a slot comes up with its Function.
        let link_status = if downstream { 1 << 12 } else { 1 << 12 | 4 << 4 | 3 };
        self.put(Register::fixed(at + express::LINK_STATUS, 2, link_status));
        if downstream {
            // Hot-Plug Surprise and Capable, No Command Completed Support, the slot's number.
            let slot = 1 << 5 | 1 << 6 | 1 << 18 | u32::from(number) << 19;
            self.put(Register::fixed(at + express::SLOT_CAPABILITIES, 4, slot));
            self.put(Register::writable(at + express::SLOT_CONTROL, 2, 0, 0x1028));
            let changed = express::SLOT_STATUS_PRESENCE_CHANGED | express::SLOT_STATUS_LINK_CHANGED;
            self.put(Register {
                clearable: u32::from(changed),
                ..Register::fixed(at + express::SLOT_STATUS, 2, 0)
            });
        }
        // Completion Timeout Ranges B and C, Completion Timeout Disable; 10-bit Tags as Completer only.
        let timeouts = if endpoint { 0b0110 | 1 << 4 } else { 0 };
        self.put(Register::fixed(at + express::DEVICE_CAPABILITIES_2, 4, timeouts | 1 << 16));
        self.put(Register::writable(at + express::DEVICE_CONTROL_2, 2, 0, if endpoint { 0x001F } else { 0 }));
        // 2.5, 5 and 8 GT/s; Target Link Speed 8 GT/s.
        self.put(Register::fixed(at + express::LINK_CAPABILITIES_2, 4, 0b111 << 1));
        self.put(Register {
            sticky: 0xF,
            ..Register::writable(at + express::LINK_CONTROL_2, 2, 3, if endpoint { 0xF } else { 0x1F })
        });
    }

    /// Advanced Error Reporting, one header in the log (7.8.4).
    pub(crate) fn aer(&mut self) {
        // Data Link Protocol (which every port has to have), and those of `crate::errors`.
        const UNCORRECTABLE: u32 =
            1 << 4 | 1 << 12 | 1 << 14 | 1 << 15 | 1 << 16 | 1 << 17 | 1 << 18 | 1 << 20;
        const FATAL: u32 = 1 << 4 | 1 << 17 | 1 << 18;
        // Receiver Error, Bad TLP, Bad DLLP, REPLAY_NUM Rollover, Replay Timer Timeout, Advisory Non-Fatal.
        const CORRECTABLE: u32 = 1 | 1 << 6 | 1 << 7 | 1 << 8 | 1 << 12 | aer::ADVISORY_NON_FATAL;
        self.extended_capability(id::AER, 2, AER);
        let sticky_status =
            |at, bits| Register { clearable: bits, sticky: bits, ..Register::fixed(AER + at, 4, 0) };
        let sticky =
            |at, value, bits| Register { sticky: bits, ..Register::writable(AER + at, 4, value, bits) };
        self.put(sticky_status(aer::UNCORRECTABLE_STATUS, UNCORRECTABLE));
        self.put(sticky(aer::UNCORRECTABLE_MASK, 0, UNCORRECTABLE));
        self.put(sticky(aer::UNCORRECTABLE_SEVERITY, FATAL, UNCORRECTABLE));
        self.put(sticky_status(aer::CORRECTABLE_STATUS, CORRECTABLE));
        self.put(sticky(aer::CORRECTABLE_MASK, aer::ADVISORY_NON_FATAL, CORRECTABLE));
        self.put(Register { sticky: aer::CONTROL_FIRST, ..Register::fixed(AER + aer::CONTROL, 4, 0) });
        for dw in 0..4 {
            self.put(Register { sticky: u32::MAX, ..Register::fixed(AER + aer::HEADER_LOG + 4 * dw, 4, 0) });
        }
    }

    /// Device Serial Number, an EUI-64 (7.9.3).
    pub(crate) fn serial_number(&mut self, serial: u64) {
        self.extended_capability(id::SERIAL_NUMBER, 1, SERIAL_NUMBER);
        self.put(Register::fixed(SERIAL_NUMBER + 4, 4, serial as u32));
        self.put(Register::fixed(SERIAL_NUMBER + 8, 4, (serial >> 32) as u32));
    }
}

/// A Configuration Write to a space with a Power Management capability: a power state that the Function does
/// not have is not taken (7.5.2.2).
pub(crate) fn write(config: &mut ConfigSpace, register: u16, enables: u8, data: [u8; 4]) {
    let at = POWER_MANAGEMENT + pm::CONTROL;
    let before = config.u16(at) & pm::CONTROL_STATE;
    config.write(register, enables, data);
    let control = config.u16(at);
    if matches!(control & pm::CONTROL_STATE, 1 | 2) {
        config.set_u16(at, control & !pm::CONTROL_STATE | before);
    }
}
