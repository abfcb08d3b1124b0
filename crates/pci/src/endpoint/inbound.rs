//! What an Endpoint receives: Requests for its Function and Completions of its own Requests (2.3).

use etherslot_wire::FunctionId;
use etherslot_wire::tlp::{CfgRequest, CfgType, Completion, CplStatus, Header, MemRequest, Op};

use super::answers::KEPT_BYTES;
use super::{Core, Endpoint};
use crate::completer;
use crate::config::capability::{self, PCI_EXPRESS};
use crate::config::register::express;
use crate::errors::{self, Error, Handling};
use crate::function::{Fault, Function, ResetKind};
use crate::msi::{MsixTable, Region};
use crate::requester::Outcome;

/// Codes of Messages that an Endpoint takes without effect: `PM_Active_State_Nak`, `PME_Turn_Off` (2.2.8.2),
/// the ignored ones (2.2.8.7), `Set_Slot_Power_Limit` (2.2.8.5), `Vendor_Defined` Type 1 (2.2.8.6). All others
/// are unsupported.
const IGNORED_MESSAGES: [u8; 11] = [0x14, 0x19, 0x40, 0x41, 0x43, 0x44, 0x45, 0x47, 0x48, 0x50, 0x7F];

impl Endpoint {
    /// Takes a TLP that was routed to this Endpoint; `data` is all the data of the TLP, disabled bytes
    /// included.
    pub fn receive(&mut self, now_ns: u64, header: &Header, data: &[u8]) {
        if data.len() != header.data_bytes() {
            self.core.report(Error::Malformed, Handling::Final, Some(header));
            return;
        }
        match header.op {
            Op::MemWrite(request) => self.memory_write(header, &request, data),
            Op::Completion(completion) => self.completion(now_ns, header, &completion, data),
            Op::Message { code, .. } => {
                if !IGNORED_MESSAGES.contains(&code) {
                    self.core.drop_posted(header);
                }
            }
            // Everything else ends with a Completion, for which there has to be room.
            _ if !self.core.answers.has_room() => {
                self.core.counters.overflows += 1;
                self.core.report(Error::ReceiverOverflow, Handling::Final, Some(header));
            }
            Op::MemRead(request) => self.memory_read(header, &request),
            Op::CfgRead(request) => self.config_read(header, &request),
            Op::CfgWrite(request) => self.config_write(header, &request, data),
            Op::Atomic { .. } => self.core.refuse(header, Error::UnsupportedRequest),
        }
    }

    fn memory_write(&mut self, header: &Header, request: &MemRequest, data: &[u8]) {
        if header.poisoned {
            // What the data would do can't be known, so it does nothing (2.7.2.1).
            self.core.counters.poisoned += 1;
            self.core.report(Error::Poisoned, Handling::Final, Some(header));
            return;
        }
        let Some((bar, offset)) = self.core.decode(request) else {
            self.core.drop_posted(header);
            return;
        };
        self.core.counters.requests += 1;
        let (lead, _) = request.span();
        for (start, end) in runs(request) {
            let at = offset + (start - lead) as u64;
            let written = &data[start..end];
            if write(&mut *self.function, self.core.msix.as_mut(), bar, at, written) {
                self.core.vectors_unmasked = true;
            }
        }
    }

    fn memory_read(&mut self, header: &Header, request: &MemRequest) {
        let Some((bar, offset)) = self.core.decode(request) else {
            self.core.refuse(header, Error::UnsupportedRequest);
            return;
        };
        self.core.counters.requests += 1;
        let (lead, bytes) = request.span();
        if bytes > KEPT_BYTES {
            self.core.answers.push_read(*header, *request, bar, offset);
            return;
        }
        let mut data = [0; KEPT_BYTES];
        let data = &mut data[..bytes];
        // Bytes that are not enabled must not be read, as reading may have an effect (2.2.5).
        for (start, end) in runs(request) {
            let at = offset + (start - lead) as u64;
            read(&mut *self.function, self.core.msix.as_ref(), bar, at, &mut data[start - lead..end - lead]);
        }
        let mut completion = completer::status(request, self.core.id, CplStatus::Success, 0);
        completion.length_dw = request.length_dw;
        self.core.answers.push(Header { op: Op::Completion(completion), ..*header }, data);
    }

    fn config_read(&mut self, header: &Header, request: &CfgRequest) {
        if !is_for_function(request) {
            self.core.refuse(header, Error::UnsupportedRequest);
            return;
        }
        self.core.counters.requests += 1;
        if request.register == PCI_EXPRESS + express::DEVICE_CONTROL {
            let at = PCI_EXPRESS + express::DEVICE_STATUS;
            let others = self.core.config.u16(at) & !express::DEVICE_STATUS_PENDING;
            let pending =
                if self.core.requester.outstanding() != 0 { express::DEVICE_STATUS_PENDING } else { 0 };
            self.core.config.set_u16(at, others | pending);
        }
        let data = self.core.config.read(request.register);
        self.core.answers.push(self.core.config_completion(header, 1), &data);
    }

    fn config_write(&mut self, header: &Header, request: &CfgRequest, data: &[u8]) {
        let &[b0, b1, b2, b3] = data else { return };
        if header.poisoned {
            // Nothing is written, and the Requester hears of it (2.7.2.1).
            self.core.counters.poisoned += 1;
            self.core.refuse(header, Error::Poisoned);
            return;
        }
        if !is_for_function(request) {
            self.core.refuse(header, Error::UnsupportedRequest);
            return;
        }
        self.core.counters.requests += 1;
        if self.core.id != request.target {
            self.core.id = request.target;
            self.function.identified(request.target);
        }
        capability::write(&mut self.core.config, request.register, request.first_be, [b0, b1, b2, b3]);
        self.core.refresh();
        // The Completion comes before the reset that it starts (6.6.2).
        self.core.answers.push(self.core.config_completion(header, 0), &[]);
        let flr = (express::DEVICE_CONTROL_FLR >> 8) as u8;
        if request.register == PCI_EXPRESS + express::DEVICE_CONTROL
            && request.first_be & 2 != 0
            && b1 & flr != 0
        {
            self.reset(ResetKind::FunctionLevel);
        }
    }

    fn completion(&mut self, now_ns: u64, header: &Header, completion: &Completion, data: &[u8]) {
        let Self { function, core } = self;
        // One that comes late, for a Request given up, is no error of the other side (6.6.2).
        let late = core.requester.is_quarantined(completion.tag);
        if completion.requester != core.id {
            core.report(Error::UnexpectedCompletion, Handling::Advisory, Some(header));
            return;
        }
        match core.requester.complete(now_ns, completion, header.poisoned, data) {
            Outcome::Data { context, address, data, .. } => {
                function.read_completed(context, address, data.len(), Ok(data));
            }
            Outcome::Failed { context, address, bytes, fault, .. } => {
                errors::note_completion(&mut core.config, fault);
                match fault {
                    Fault::Poisoned => {
                        core.counters.poisoned += 1;
                        core.report(Error::Poisoned, Handling::Final, Some(header));
                    }
                    Fault::Malformed => core.report(Error::Malformed, Handling::Final, Some(header)),
                    Fault::UnsupportedRequest | Fault::CompleterAbort | Fault::Timeout => {}
                }
                function.read_completed(context, address, bytes, Err(fault));
            }
            Outcome::Unexpected if late => {}
            Outcome::Unexpected => core.report(Error::UnexpectedCompletion, Handling::Advisory, Some(header)),
        }
    }
}

impl Core {
    /// The BAR that a Request is for, and the offset of its first byte that counts. A Request that leaves the
    /// BAR is for none.
    fn decode(&self, request: &MemRequest) -> Option<(u8, u64)> {
        if !self.memory {
            return None;
        }
        let (lead, bytes) = request.span();
        let address = request.address + lead as u64;
        self.bars.iter().flatten().find_map(|bar| {
            let offset = address.checked_sub(bar.base).filter(|&offset| offset < bar.bytes)?;
            (bytes as u64 <= bar.bytes - offset).then_some((bar.index, offset))
        })
    }

    fn config_completion(&self, header: &Header, length_dw: u16) -> Header {
        Header {
            op: Op::Completion(plain_completion(header, self.id, CplStatus::Success, length_dw)),
            ..*header
        }
    }

    /// Answers a Non-Posted Request with UR because of `error`. The caller has asked
    /// [`super::Answers::has_room`].
    fn refuse(&mut self, header: &Header, error: Error) {
        self.counters.unsupported += 1;
        self.report(error, Handling::Advisory, Some(header));
        let completion = unsupported_completion(header, self.id);
        self.answers.push(Header { op: Op::Completion(completion), poisoned: false, ..*header }, &[]);
    }

    fn drop_posted(&mut self, header: &Header) {
        self.counters.dropped_posted += 1;
        self.report(Error::UnsupportedRequest, Handling::Final, Some(header));
    }
}

/// A Completion of a Request other than a Memory Read: Byte Count 4, Lower Address 0 (2.2.9).
pub(crate) fn plain_completion(
    header: &Header,
    completer: FunctionId,
    status: CplStatus,
    length_dw: u16,
) -> Completion {
    Completion {
        completer,
        status,
        byte_count: 4,
        requester: header.requester(),
        tag: header.tag(),
        lower_address: 0,
        length_dw,
    }
}

/// The Completion with UR of any Non-Posted Request.
pub(crate) fn unsupported_completion(header: &Header, completer: FunctionId) -> Completion {
    match &header.op {
        Op::MemRead(request) => completer::status(request, completer, CplStatus::UnsupportedRequest, 0),
        _ => plain_completion(header, completer, CplStatus::UnsupportedRequest, 0),
    }
}

/// Whether a Configuration Request that came over the Link is for its only Function (7.3.1, 7.3.3).
fn is_for_function(request: &CfgRequest) -> bool {
    request.kind == CfgType::Type0 && request.target.function() == 0
}

/// The runs of enabled bytes of a Request, as ranges of its data.
fn runs(request: &MemRequest) -> impl Iterator<Item = (usize, usize)> + use<> {
    let request = *request;
    let (lead, bytes) = request.span();
    let mut at = if request.is_zero_length() { usize::MAX } else { lead };
    let end = lead + bytes;
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let run_end = if request.is_contiguous() {
            end
        } else {
            (at..end).find(|&byte| !request.enabled(byte)).unwrap_or(end)
        };
        let run = (at, run_end);
        at = (run_end..end).find(|&byte| request.enabled(byte)).unwrap_or(end);
        Some(run)
    })
}

/// Reads a BAR: the MSI-X table and PBA where they are, the Function elsewhere.
pub(super) fn read(
    function: &mut dyn Function,
    msix: Option<&MsixTable>,
    bar: u8,
    offset: u64,
    data: &mut [u8],
) {
    let Some(msix) = msix else {
        function.bar_read(bar, offset, data);
        return;
    };
    let mut done = 0;
    while done < data.len() {
        let at = offset + done as u64;
        let (region, bytes) = msix.locate(bar, at, data.len() - done);
        let part = &mut data[done..done + bytes];
        match region {
            Region::Function => function.bar_read(bar, at, part),
            Region::Table(_) | Region::Pending(_) => msix.read(region, part),
        }
        done += bytes;
    }
}

/// Writes a BAR in the same way; true if a vector was unmasked that is pending.
fn write(
    function: &mut dyn Function,
    msix: Option<&mut MsixTable>,
    bar: u8,
    offset: u64,
    data: &[u8],
) -> bool {
    let Some(msix) = msix else {
        function.bar_write(bar, offset, data);
        return false;
    };
    let (mut done, mut fires) = (0, false);
    while done < data.len() {
        let at = offset + done as u64;
        let (region, bytes) = msix.locate(bar, at, data.len() - done);
        let part = &data[done..done + bytes];
        match region {
            Region::Function => function.bar_write(bar, at, part),
            Region::Table(_) | Region::Pending(_) => fires |= msix.write(region, part),
        }
        done += bytes;
    }
    fires
}
