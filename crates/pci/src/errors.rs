//! Error detection and signalling: Status, Device Status, AER, error Messages (PCIe Base 6.0, 6.2).

use etherslot_wire::tlp::{Header, MAX_HEADER_BYTES, code};

use crate::config::ConfigSpace;
use crate::config::capability::{AER, PCI_EXPRESS};
use crate::config::register::{self as reg, aer, express};

/// An error that the Transaction Layer detects; the value is its bit in the uncorrectable registers of AER
/// (7.8.4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Error {
    /// Poisoned TLP Received.
    Poisoned = 12,
    /// Completion Timeout.
    CompletionTimeout = 14,
    /// Completer Abort.
    CompleterAbort = 15,
    /// Unexpected Completion.
    UnexpectedCompletion = 16,
    /// Receiver Overflow.
    ReceiverOverflow = 17,
    /// Malformed TLP.
    Malformed = 18,
    /// Unsupported Request Error.
    UnsupportedRequest = 20,
}

/// Whether somebody else is told of the error and can deal with it: then it is only an *advisory* one here
/// (6.2.3.2.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handling {
    /// Nobody else knows.
    Final,
    /// By a Completion, or the TLP's own sender will time out.
    Advisory,
}

/// Error Messages that wait to be sent; one of each kind says all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Messages(u8);

const MESSAGES: [u8; 3] = [code::ERR_COR, code::ERR_NONFATAL, code::ERR_FATAL];

impl Messages {
    /// The code of a Message that waits.
    pub(crate) fn first(self) -> Option<u8> {
        MESSAGES.get(self.0.trailing_zeros() as usize).copied()
    }

    pub(crate) fn remove_first(&mut self) {
        self.0 &= self.0.wrapping_sub(1);
    }

    fn add(&mut self, index: usize) {
        self.0 |= 1 << index;
    }
}

/// Records an error in the registers of `config`, which has the PCI Express and AER capabilities, and adds the
/// Message that it asks for (6.2.5).
pub(crate) fn report(
    config: &mut ConfigSpace,
    messages: &mut Messages,
    error: Error,
    handling: Handling,
    header: Option<&Header>,
) {
    let bit = 1 << error as u32;
    if error == Error::Poisoned {
        config.raise_u16(reg::STATUS, reg::STATUS_DETECTED_PARITY);
    }
    let fatal = config.u32(AER + aer::UNCORRECTABLE_SEVERITY) & bit != 0;
    let advisory = handling == Handling::Advisory && !fatal;
    let unsupported = error == Error::UnsupportedRequest;
    let (detected, enable, message) = if advisory {
        (express::DEVICE_STATUS_CORRECTABLE, express::DEVICE_CONTROL_CORRECTABLE, 0)
    } else if fatal {
        (express::DEVICE_STATUS_FATAL, express::DEVICE_CONTROL_FATAL, 2)
    } else {
        (express::DEVICE_STATUS_NON_FATAL, express::DEVICE_CONTROL_NON_FATAL, 1)
    };
    let status = detected | if unsupported { express::DEVICE_STATUS_UNSUPPORTED } else { 0 };
    config.raise_u16(PCI_EXPRESS + express::DEVICE_STATUS, status);

    let advisory_masked = config.u32(AER + aer::CORRECTABLE_MASK) & aer::ADVISORY_NON_FATAL != 0;
    if advisory {
        config.raise_u32(AER + aer::CORRECTABLE_STATUS, aer::ADVISORY_NON_FATAL);
        if advisory_masked {
            // Only the status bit of the error itself follows a masked advisory one.
            config.raise_u32(AER + aer::UNCORRECTABLE_STATUS, bit);
            return;
        }
    }
    let masked = config.u32(AER + aer::UNCORRECTABLE_MASK) & bit != 0;
    if !masked {
        log_first(config, bit, header);
    }
    config.raise_u32(AER + aer::UNCORRECTABLE_STATUS, bit);
    if masked {
        return;
    }
    let control = config.u16(PCI_EXPRESS + express::DEVICE_CONTROL);
    let by_device =
        control & enable != 0 && (!unsupported || control & express::DEVICE_CONTROL_UNSUPPORTED != 0);
    let by_serr = !advisory && config.u16(reg::COMMAND) & reg::COMMAND_SERR != 0;
    if by_serr {
        config.raise_u16(reg::STATUS, reg::STATUS_SIGNALED_SYSTEM_ERROR);
    }
    if by_device || by_serr {
        messages.add(message);
    }
}

/// Header Log and First Error Pointer hold the first error until its status bit is cleared (6.2.4.2).
fn log_first(config: &mut ConfigSpace, bit: u32, header: Option<&Header>) {
    let first = config.u32(AER + aer::CONTROL) & aer::CONTROL_FIRST;
    if config.u32(AER + aer::UNCORRECTABLE_STATUS) & (1 << first) != 0 {
        return;
    }
    config.set_u32(AER + aer::CONTROL, bit.trailing_zeros());
    let mut bytes = [0; MAX_HEADER_BYTES];
    if let Some(header) = header {
        // Never short, and a shorter header leaves zeros behind it.
        let _ = header.emit(&mut bytes);
    }
    for (dw, value) in bytes.chunks_exact(4).enumerate() {
        // Byte 0 of the header is in bits 31:24 of the first register (7.8.4.8).
        let value = u32::from_be_bytes([value[0], value[1], value[2], value[3]]);
        config.set_u32(AER + aer::HEADER_LOG + 4 * dw as u16, value);
    }
}

/// Names the errors that a completed Request of one's own stands for (7.5.1.1.4).
pub(crate) fn note_completion(config: &mut ConfigSpace, fault: crate::function::Fault) {
    use crate::function::Fault;
    match fault {
        Fault::UnsupportedRequest => config.raise_u16(reg::STATUS, reg::STATUS_RECEIVED_MASTER_ABORT),
        Fault::CompleterAbort => config.raise_u16(reg::STATUS, reg::STATUS_RECEIVED_TARGET_ABORT),
        Fault::Poisoned if config.u16(reg::COMMAND) & reg::COMMAND_PARITY != 0 => {
            config.raise_u16(reg::STATUS, reg::STATUS_MASTER_PARITY);
        }
        Fault::Poisoned | Fault::Timeout | Fault::Malformed => {}
    }
}
