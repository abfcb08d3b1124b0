//! Messages that let Functions of one host reach each other in different boxes (docs/wire.md 8, Box to box).

use crate::bytes::{array, put, u16_at, u32_at, u64_at};
use crate::control::CONTROL_STREAM;
use crate::discovery::Port;
use crate::id::{FunctionId, NodeId};

/// Windows that one Function has in other boxes.
pub const WINDOWS: usize = 64;
/// Ports by which a box is told of.
pub const PORTS: usize = 4;

/// Reach: where addresses lie that a Function reaches in another box. Host to box, on the Function's stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    /// The window's number, below [`WINDOWS`].
    pub window: u8,
    /// What is there; nothing: there is no such window any more.
    pub behind: Option<Behind>,
}

/// A window, and the box behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Behind {
    /// The first address.
    pub address: u64,
    /// Bytes, not 0; the window ends before 2^64.
    pub bytes: u64,
    /// The box, not all zeros.
    pub node: NodeId,
    /// Where it is reached, one at least; those that are there come first.
    pub ports: [Option<Port>; PORTS],
}

/// Admit: a Function of another box may come in. Host to box, on [`CONTROL_STREAM`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admit {
    /// The domain whose Functions it reaches; 0: it does so no more.
    pub domain: u16,
    /// The Function's box, not all zeros.
    pub node: NodeId,
    /// By which session the host has it: the host's epoch, not 0.
    pub epoch: u32,
    /// By which stream of that session, not 0.
    pub stream: u16,
    /// Its ID in that box.
    pub function: FunctionId,
}

/// Join: a Function of ours comes in. Box to box, on [`CONTROL_STREAM`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Join {
    /// The stream of this session that it is to have, not 0.
    pub stream: u16,
    /// Whose it is, not all zeros.
    pub host: NodeId,
    /// By which session: the host's epoch, not 0.
    pub epoch: u32,
    /// By which stream of that session, not 0.
    pub of_stream: u16,
}

fn node_at(bytes: &[u8], at: usize) -> Option<NodeId> {
    array(bytes, at).map(NodeId).filter(|node| *node != NodeId::default())
}

fn stream_at(bytes: &[u8], at: usize) -> Option<u16> {
    u16_at(bytes, at).filter(|&stream| stream != CONTROL_STREAM)
}

fn epoch_at(bytes: &[u8], at: usize) -> Option<u32> {
    u32_at(bytes, at).filter(|&epoch| epoch != 0)
}

impl Reach {
    const HEAD_BYTES: usize = 40;
    /// The longest.
    pub const MAX_REACH_BYTES: usize = Self::HEAD_BYTES + PORTS * Port::BYTES;

    pub(crate) const fn len(&self) -> usize {
        let mut ports = 0;
        if let Some(behind) = &self.behind {
            while ports < PORTS && behind.ports[ports].is_some() {
                ports += 1;
            }
        }
        Self::HEAD_BYTES + ports * Port::BYTES
    }

    /// Decodes the message whose code has been looked at.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let window = bytes.get(1).copied().filter(|&window| usize::from(window) < WINDOWS)?;
        let (count, address) = (usize::from(*bytes.get(2)?), u64_at(bytes, 8)?);
        let length = u64_at(bytes, 16)?;
        if length == 0 {
            return Some(Self { window, behind: None });
        }
        address.checked_add(length)?;
        if !(1..=PORTS).contains(&count) {
            return None;
        }
        let mut ports = [None; PORTS];
        for (at, port) in ports.iter_mut().enumerate().take(count) {
            *port = Some(Port::parse(bytes.get(Self::HEAD_BYTES + at * Port::BYTES..)?)?);
        }
        let node = node_at(bytes, 24)?;
        Some(Self { window, behind: Some(Behind { address, bytes: length, node, ports }) })
    }

    /// Writes what follows the code into `out`, which is zero and long enough.
    pub(crate) fn emit(&self, out: &mut [u8]) -> Option<()> {
        put(out, 1, &[self.window])?;
        let Some(behind) = &self.behind else { return Some(()) };
        let mut count = 0;
        for (at, port) in behind.ports.iter().map_while(|port| *port).enumerate() {
            port.emit(out.get_mut(Self::HEAD_BYTES + at * Port::BYTES..)?)?;
            count += 1;
        }
        put(out, 2, &[count])?;
        put(out, 8, &behind.address.to_be_bytes())?;
        put(out, 16, &behind.bytes.to_be_bytes())?;
        put(out, 24, &behind.node.0)
    }
}

impl Admit {
    pub(crate) const BYTES: usize = 32;

    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        Some(Self {
            domain: u16_at(bytes, 2)?,
            epoch: epoch_at(bytes, 4)?,
            stream: stream_at(bytes, 8)?,
            function: FunctionId(u16_at(bytes, 10)?),
            node: node_at(bytes, 16)?,
        })
    }

    pub(crate) fn emit(&self, out: &mut [u8]) -> Option<()> {
        put(out, 2, &self.domain.to_be_bytes())?;
        put(out, 4, &self.epoch.to_be_bytes())?;
        put(out, 8, &self.stream.to_be_bytes())?;
        put(out, 10, &self.function.0.to_be_bytes())?;
        put(out, 16, &self.node.0)
    }
}

impl Join {
    pub(crate) const BYTES: usize = 32;

    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        Some(Self {
            stream: stream_at(bytes, 2)?,
            epoch: epoch_at(bytes, 4)?,
            of_stream: stream_at(bytes, 8)?,
            host: node_at(bytes, 16)?,
        })
    }

    pub(crate) fn emit(&self, out: &mut [u8]) -> Option<()> {
        put(out, 2, &self.stream.to_be_bytes())?;
        put(out, 4, &self.epoch.to_be_bytes())?;
        put(out, 8, &self.of_stream.to_be_bytes())?;
        put(out, 16, &self.host.0)
    }
}
