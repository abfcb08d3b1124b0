//! Transmit descriptors: legacy, advanced context, advanced data (82576 datasheet, 7.2.2).

use crate::e82576::ring::Descriptor;

/// What a descriptor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Context {
        slot: usize,
        context: Context,
        reports: bool,
    },
    Data(Data),
    /// Of a type that there is not: it is passed over.
    Unknown {
        reports: bool,
    },
}

/// How the frames of the data descriptors that name it are to be worked on (7.2.2.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Context {
    pub(crate) vlan: u16,
    pub(crate) mac_bytes: usize,
    pub(crate) ip_bytes: usize,
    pub(crate) is_ipv4: bool,
    pub(crate) l4: L4,
    pub(crate) l4_bytes: usize,
    pub(crate) mss: usize,
}

/// TUCMD.L4T.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum L4 {
    #[default]
    Udp,
    Tcp,
    Sctp,
    Reserved,
}

/// A descriptor with data. What is said of the whole packet counts in its first descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Data {
    pub(crate) is_end: bool,
    pub(crate) reports: bool,
    /// The FCS is to be added; otherwise it is there.
    pub(crate) adds_fcs: bool,
    pub(crate) inserts_vlan: bool,
    pub(crate) offload: Offload,
}

/// What is to be done with a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Offload {
    #[default]
    None,
    /// Legacy (7.2.2.1): the checksum from one offset to the end is stored at another; a tag.
    Legacy {
        checksum: Option<(usize, usize)>,
        vlan: u16,
    },
    Advanced {
        slot: usize,
        ip: bool,
        l4: bool,
        segment: Option<usize>,
    },
}

impl Kind {
    /// RS: its end is to be told.
    pub(crate) fn reports(&self) -> bool {
        match self {
            Self::Context { reports, .. } | Self::Unknown { reports } => *reports,
            Self::Data(data) => data.reports,
        }
    }
}

mod command {
    pub(super) const EOP: u32 = 1 << 24;
    pub(super) const IFCS: u32 = 1 << 25;
    /// Legacy: a checksum is to be inserted.
    pub(super) const IC: u32 = 1 << 26;
    pub(super) const RS: u32 = 1 << 27;
    pub(super) const DEXT: u32 = 1 << 29;
    pub(super) const VLE: u32 = 1 << 30;
    pub(super) const TSE: u32 = 1 << 31;
}

/// Its kind, and how many bytes of data it points to.
pub(super) fn parse(descriptor: &Descriptor) -> (Kind, usize) {
    let [low, high, command, options] = [0, 1, 2, 3].map(|at| descriptor.dword(at));
    let has = |bit: u32| command & bit != 0;
    let reports = has(command::RS);
    let bytes = (command & 0xffff) as usize;
    let mut data = Data {
        is_end: has(command::EOP),
        reports,
        adds_fcs: has(command::IFCS),
        inserts_vlan: has(command::VLE),
        offload: Offload::None,
    };
    if !has(command::DEXT) {
        let (start, offset) = (options >> 8 & 0xff, command >> 16 & 0xff);
        data.offload = Offload::Legacy {
            checksum: has(command::IC).then_some((start as usize, offset as usize)),
            vlan: (options >> 16) as u16,
        };
        return (Kind::Data(data), bytes);
    }
    // IDX: each ring has two contexts.
    let slot = (options >> 4 & 1) as usize;
    match command >> 20 & 15 {
        2 => {
            let context = Context {
                vlan: (low >> 16) as u16,
                mac_bytes: (low >> 9 & 0x7f) as usize,
                ip_bytes: (low & 0x1ff) as usize,
                is_ipv4: command >> 10 & 1 != 0,
                l4: [L4::Udp, L4::Tcp, L4::Sctp, L4::Reserved][(command >> 11 & 3) as usize],
                l4_bytes: (options >> 8 & 0xff) as usize,
                mss: (options >> 16) as usize,
            };
            let _ = high;
            (Kind::Context { slot, context, reports }, 0)
        }
        3 => {
            data.offload = Offload::Advanced {
                slot,
                ip: options >> 8 & 1 != 0,
                l4: options >> 9 & 1 != 0,
                segment: has(command::TSE).then_some((options >> 14) as usize),
            };
            (Kind::Data(data), bytes)
        }
        _ => (Kind::Unknown { reports }, 0),
    }
}
