//! Heartbeats: who a node is, where it is reached, and a part of its list of devices.
//!
//! A long list goes round: each heartbeat carries the next part, so its length never depends on the number of devices.

use super::{Group, MAX_DEVICES, MAX_LINKS, some_node};
use crate::bytes::{array, put, u16_at, u32_at, u64_at};
use crate::control::Name;
use crate::id::NodeId;

/// What a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Role {
    /// Where drivers run.
    Host = 1,
    /// Where devices are.
    Box = 2,
}

/// What a heartbeat begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// What the sender is.
    pub role: Role,
    /// On which of its links this one left: below [`MAX_LINKS`].
    pub link: u8,
    /// Its assignment group.
    pub group: Option<Group>,
    /// The next one on this link leaves within this time; 0: the node stops.
    pub interval_ms: u16,
    /// Heartbeats that left on this link before, modulo 2^32.
    pub sent: u32,
    /// Another one whenever something in the list of devices has changed.
    pub generation: u32,
    /// Devices in the whole list: at most [`MAX_DEVICES`].
    pub devices: u16,
    /// The place in the list of the first one told here.
    pub first: u16,
    /// What people call it.
    pub name: Name,
}

/// An address at which a node is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    /// Ethernet.
    Mac([u8; 6]),
    /// UDP over IPv4: address and port.
    Udp4([u8; 4], u16),
    /// UDP over IPv6: address and port.
    Udp6([u8; 16], u16),
    /// A port of a hub in shared memory.
    Ring(u32),
}

/// What has become of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum DeviceState {
    /// Nobody has it.
    Free = 0,
    /// Its owner has it.
    Used = 1,
    /// Its owner is out of reach; it is kept for it a while.
    Kept = 2,
    /// It is changing hands.
    Moving = 3,
}

/// Whose a device may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assigned {
    /// Any host's of the device's group; without a group, any host's.
    Group,
    /// This host's alone.
    Host(NodeId),
    /// Nobody's, until it is assigned again.
    Nobody,
}

/// A serial number: 0 to [`Serial::BYTES`] bytes of UTF-8, no ASCII control character.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Serial([u8; Serial::BYTES]);

impl Serial {
    /// The longest.
    pub const BYTES: usize = 24;

    /// A serial number from text, or `None` if it is too long or has an ASCII control character.
    pub fn new(text: &str) -> Option<Self> {
        let mut bytes = [0; Self::BYTES];
        put(&mut bytes, 0, text.as_bytes())?;
        text.bytes().all(|byte| !byte.is_ascii_control()).then_some(Self(bytes))
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        let end = self.0.iter().position(|&byte| byte == 0).unwrap_or(Self::BYTES);
        core::str::from_utf8(&self.0[..end]).unwrap_or("")
    }

    fn parse(bytes: &[u8], at: usize) -> Option<Self> {
        let raw: [u8; Self::BYTES] = array(bytes, at)?;
        let end = raw.iter().position(|&byte| byte == 0).unwrap_or(Self::BYTES);
        let serial = Self::new(core::str::from_utf8(&raw[..end]).ok()?)?;
        (serial.0 == raw).then_some(serial)
    }
}

impl core::fmt::Debug for Serial {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        core::fmt::Debug::fmt(self.as_str(), f)
    }
}

/// A device of a box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its name in the box.
    pub name: Name,
    /// Its serial number.
    pub serial: Serial,
    /// Vendor and device ID (PCIe 7.5.1.1).
    pub id: (u16, u16),
    /// Class code: base class, sub-class, programming interface.
    pub class: [u8; 3],
    /// What has become of it.
    pub state: DeviceState,
    /// Size in bytes, of what stores; 0 of others.
    pub bytes: u64,
    /// How often it has been given to a host: the epoch of the present or latest lease.
    pub epoch: u64,
    /// Whose the lease is.
    pub owner: Option<NodeId>,
    /// Whose it may be.
    pub assigned: Assigned,
    /// Whether only certain nodes may own it, by their keys.
    pub has_owners: bool,
    /// Its assignment group.
    pub group: Option<Group>,
}

const OWNERS: u8 = 1 << 0;

/// A heartbeat that was heard: its fields, and its lists.
#[derive(Clone, Copy, Debug)]
pub struct Heard<'a> {
    /// The fields.
    pub heartbeat: Heartbeat,
    ports: &'a [u8],
    devices: &'a [u8],
}

impl Port {
    /// Bytes of one.
    pub const BYTES: usize = 20;

    /// Decodes one; `None` if it is short or of no kind that is known.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..Self::BYTES)?;
        let port = u16_at(bytes, 2)?;
        Some(match bytes[0] {
            1 => Self::Mac(array(bytes, 4)?),
            2 => Self::Udp4(array(bytes, 4)?, port),
            3 => Self::Udp6(array(bytes, 4)?, port),
            4 => Self::Ring(u32_at(bytes, 4)?),
            _ => return None,
        })
    }

    /// Writes it; `None` if `out` is short.
    pub fn emit(&self, out: &mut [u8]) -> Option<()> {
        let out = out.get_mut(..Self::BYTES)?;
        out.fill(0);
        let (kind, port) = match *self {
            Self::Mac(octets) => {
                put(out, 4, &octets)?;
                (1, 0)
            }
            Self::Udp4(address, port) => {
                put(out, 4, &address)?;
                (2, port)
            }
            Self::Udp6(address, port) => {
                put(out, 4, &address)?;
                (3, port)
            }
            Self::Ring(number) => {
                put(out, 4, &number.to_be_bytes())?;
                (4, 0)
            }
        };
        put(out, 0, &[kind])?;
        put(out, 2, &port.to_be_bytes())
    }
}

impl Device {
    /// Bytes of one.
    pub const BYTES: usize = 120;

    /// Decodes one; `None` if it is short or has a value that is not listed.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..Self::BYTES)?;
        Some(Self {
            name: Name::parse(bytes, 0)?,
            serial: Serial::parse(bytes, 32)?,
            id: (u16_at(bytes, 56)?, u16_at(bytes, 58)?),
            class: array(bytes, 60)?,
            state: match bytes[63] {
                0 => DeviceState::Free,
                1 => DeviceState::Used,
                2 => DeviceState::Kept,
                3 => DeviceState::Moving,
                _ => return None,
            },
            bytes: u64_at(bytes, 64)?,
            epoch: u64_at(bytes, 72)?,
            owner: some_node(bytes, 80)?,
            assigned: match bytes[96] {
                0 => Assigned::Group,
                1 => Assigned::Host(some_node(bytes, 104)??),
                2 => Assigned::Nobody,
                _ => return None,
            },
            has_owners: bytes[97] & OWNERS != 0,
            group: Group::parse(bytes, 98)?,
        })
    }

    /// Writes it; `None` if `out` is short.
    pub fn emit(&self, out: &mut [u8]) -> Option<()> {
        let out = out.get_mut(..Self::BYTES)?;
        out.fill(0);
        self.name.emit(out, 0)?;
        put(out, 32, &self.serial.0)?;
        put(out, 56, &self.id.0.to_be_bytes())?;
        put(out, 58, &self.id.1.to_be_bytes())?;
        put(out, 60, &self.class)?;
        put(out, 63, &[self.state as u8])?;
        put(out, 64, &self.bytes.to_be_bytes())?;
        put(out, 72, &self.epoch.to_be_bytes())?;
        put(out, 80, &self.owner.unwrap_or_default().0)?;
        put(out, 97, &[if self.has_owners { OWNERS } else { 0 }])?;
        put(out, 98, &Group::emit(self.group))?;
        match self.assigned {
            Assigned::Group => put(out, 96, &[0]),
            Assigned::Host(host) => put(out, 96, &[1]).and_then(|()| put(out, 104, &host.0)),
            Assigned::Nobody => put(out, 96, &[2]),
        }
    }
}

impl Heartbeat {
    /// Bytes in front of the lists.
    pub const BYTES: usize = 56;

    /// Bytes of a body with so many ports and devices.
    pub const fn len(ports: usize, devices: usize) -> usize {
        Self::BYTES + ports * Port::BYTES + devices * Device::BYTES
    }

    /// Decodes the body of a heartbeat; `None` if it is short or anything in it is not possible.
    pub fn parse(body: &[u8]) -> Option<Heard<'_>> {
        let fixed = body.get(..Self::BYTES)?;
        let heartbeat = Self {
            role: match fixed[0] {
                1 => Role::Host,
                2 => Role::Box,
                _ => return None,
            },
            link: Some(fixed[1]).filter(|&link| (link as usize) < MAX_LINKS)?,
            group: Group::parse(fixed, 2)?,
            interval_ms: u16_at(fixed, 4)?,
            first: u16_at(fixed, 6)?,
            devices: u16_at(fixed, 8)?,
            generation: u32_at(fixed, 12)?,
            sent: u32_at(fixed, 16)?,
            name: Name::parse(fixed, 24)?,
        };
        let (here, ports) = (fixed[10] as usize, fixed[11] as usize);
        let fits = heartbeat.devices as usize <= MAX_DEVICES
            && heartbeat.first as usize + here <= heartbeat.devices as usize
            && ports <= MAX_LINKS;
        let lists = body.get(Self::BYTES..Self::len(ports, here)).filter(|_| fits)?;
        let (ports, devices) = lists.split_at(ports * Port::BYTES);
        let heard = Heard { heartbeat, ports, devices };
        let is_good = heard.ports.chunks_exact(Port::BYTES).all(|port| Port::parse(port).is_some())
            && heard.devices.chunks_exact(Device::BYTES).all(|device| Device::parse(device).is_some());
        is_good.then_some(heard)
    }

    /// Writes a body with these ports and with these devices, which stand in the list from [`Heartbeat::first`] on; returns its
    /// bytes, or `None` if `out` is short or a list is too long.
    pub fn emit<'a>(
        &self,
        ports: &[Port],
        devices: impl ExactSizeIterator<Item = &'a Device>,
        out: &mut [u8],
    ) -> Option<usize> {
        let here = devices.len();
        let is_possible = ports.len() <= MAX_LINKS && self.first as usize + here <= self.devices as usize;
        let out = out.get_mut(..Self::len(ports.len(), here)).filter(|_| is_possible)?;
        let (fixed, lists) = out.split_at_mut(Self::BYTES);
        fixed.fill(0);
        put(fixed, 0, &[self.role as u8, self.link])?;
        put(fixed, 2, &Group::emit(self.group))?;
        put(fixed, 4, &self.interval_ms.to_be_bytes())?;
        put(fixed, 6, &self.first.to_be_bytes())?;
        put(fixed, 8, &self.devices.to_be_bytes())?;
        put(fixed, 10, &[u8::try_from(here).ok()?, ports.len() as u8])?;
        put(fixed, 12, &self.generation.to_be_bytes())?;
        put(fixed, 16, &self.sent.to_be_bytes())?;
        self.name.emit(fixed, 24)?;
        let (to_ports, to_devices) = lists.split_at_mut(ports.len() * Port::BYTES);
        for (port, place) in ports.iter().zip(to_ports.chunks_exact_mut(Port::BYTES)) {
            port.emit(place)?;
        }
        for (device, place) in devices.zip(to_devices.chunks_exact_mut(Device::BYTES)) {
            device.emit(place)?;
        }
        Some(out.len())
    }
}

impl<'a> Heard<'a> {
    /// Where the sender says it is reached, one for each of its links.
    pub fn ports(&self) -> impl Iterator<Item = Port> + use<'a> {
        self.ports.chunks_exact(Port::BYTES).filter_map(Port::parse)
    }

    /// The devices told here, with their places in the whole list.
    pub fn devices(&self) -> impl Iterator<Item = (u16, Device)> + use<'a> {
        let devices = self.devices.chunks_exact(Device::BYTES).filter_map(Device::parse);
        (self.heartbeat.first..).zip(devices)
    }
}
