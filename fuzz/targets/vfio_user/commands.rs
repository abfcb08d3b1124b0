//! Commands as a client may send them.

use etherslot_fuzz::Input;
use etherslot_vfio_user::message::{
    Capabilities, HEADER_BYTES, Header, IrqAction, IrqData, Request, SetIrqs, Version, WriteMulti, WriteOne,
};

/// A message, how it is sent, and with which files.
#[derive(Clone, Debug)]
pub struct Command {
    /// The message.
    pub bytes: Vec<u8>,
    /// What is sent first.
    pub cut: usize,
    /// The kinds of the files that come with it.
    pub files: Vec<u8>,
}

/// VERSION as a client should send it.
pub fn version() -> Request<'static> {
    Request::Version(Version { major: 0, minor: 1, capabilities: Capabilities::default() })
}

/// `SET_IRQS`.
pub fn set_irqs(action: IrqAction, data: IrqData<'_>, (index, start, count): (u32, u32, u32)) -> Request<'_> {
    Request::SetIrqs(SetIrqs { action, data, index, start, count })
}

/// A message.
pub fn encode(request: &Request<'_>, id: u16, no_reply: bool) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_BYTES];
    request.encode(&mut bytes);
    let length = bytes.len() as u32;
    let header =
        Header { id, command: request.command(), bytes: length, reply: false, no_reply, error: None };
    bytes[..HEADER_BYTES].copy_from_slice(&header.encode());
    bytes
}

/// A command, most often a right one.
pub fn command(input: &mut Input<'_>) -> Command {
    let id = u16::from(input.u8());
    let form = input.u8();
    let mut bytes = request(input, id, form & 1 != 0);
    let mut command = if form & 2 != 0 {
        let count = if form & 4 != 0 { input.below(18) } else { 1 };
        let files = if form & 8 != 0 { vec![input.u8(); count] } else { input.bytes(count).to_vec() };
        Command { cut: bytes.len(), bytes, files }
    } else {
        if form & 0xF0 == 0xF0 {
            for _ in 0..=input.below(4) {
                let at = input.below(bytes.len());
                bytes[at] ^= 1 << (input.u8() % 8);
            }
        }
        Command { cut: bytes.len(), bytes, files: Vec::new() }
    };
    if form & 0x30 == 0x30 {
        command.cut = input.below(command.bytes.len() + 1);
        if input.once_in(16) {
            // Without its end; what follows takes its place.
            command.bytes.truncate(command.cut.max(1));
            command.cut = command.bytes.len();
        }
    }
    command
}

fn request(input: &mut Input<'_>, id: u16, no_reply: bool) -> Vec<u8> {
    let number = |input: &mut Input<'_>| input.number() as u32;
    let data = [0xC3; 4200];
    let mut writes = Vec::new();
    let request = match input.u8() % 20 {
        0 => version(),
        1..=3 => Request::DmaMap {
            readable: !input.once_in(4),
            writable: !input.once_in(4),
            offset: input.number(),
            address: input.number(),
            bytes: input.number(),
        },
        4 | 5 => Request::DmaUnmap {
            argsz: 24,
            all: input.once_in(4),
            address: input.number(),
            bytes: input.number(),
        },
        6 => Request::GetInfo,
        7 => Request::GetRegionInfo { index: number(input) },
        8 => Request::GetIrqInfo { index: number(input) },
        9 => Request::GetRegionIoFds { index: number(input) },
        10..=12 => {
            let action = input.one_of(&[IrqAction::Mask, IrqAction::Unmask, IrqAction::Trigger]);
            let index = input.below(6) as u32;
            let (start, count) = (number(input), number(input));
            let data = match input.u8() % 4 {
                0 => IrqData::None,
                1 => IrqData::Bool(input.bytes(count.min(64) as usize)),
                _ => IrqData::Eventfd,
            };
            let count = if let IrqData::Bool(flags) = data { flags.len() as u32 } else { count };
            set_irqs(action, data, (index, start, count))
        }
        13 | 14 => Request::RegionRead {
            offset: input.number(),
            region: input.below(10) as u32,
            count: number(input),
        },
        15 | 16 => Request::RegionWrite {
            offset: input.number(),
            region: input.below(10) as u32,
            data: &data[..input.number() as usize % data.len()],
        },
        17 => {
            for _ in 0..input.number() % 202 {
                let place = (input.below(10) as u32, u64::from(input.u16()));
                let one = WriteOne::new(place.0, place.1, &data[..=place.1 as usize % 8]);
                writes.extend(one.map_or([0xFF; 24], |one| one.encode()));
            }
            match WriteMulti::new(&writes) {
                Some(writes) => Request::RegionWriteMulti(writes),
                None => Request::Unknown,
            }
        }
        18 => Request::DeviceReset,
        _ => {
            // Any command, with any body.
            let length = input.u8() as usize;
            let command = input.u16();
            let body = input.bytes(length);
            let bytes = (HEADER_BYTES + body.len()) as u32;
            let header = Header { id, command, bytes, reply: false, no_reply, error: None };
            return [&header.encode(), body].concat();
        }
    };
    encode(&request, id, no_reply)
}
