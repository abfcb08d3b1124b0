//! From the bytes of descriptors to frames: checksums, VLAN tags, and segments of large packets (82576 datasheet, 7.2.4, 7.2.5, 7.4).

use super::descriptor::{Context, Data, Kind, L4, Offload};
use super::{Outside, vlan_ether_type};
use crate::cable::{End, Frame, MAX_FRAME_BYTES};
use crate::e82576::bits::{register, tctl};
use crate::e82576::checksum;
use crate::e82576::statistics::counter;

/// Bytes of the headers that are in front of each segment, at most (MACLEN, IPLEN and L4LEN have no larger ones).
const HEADER_BYTES: usize = 127 + 511 + 255;
/// The shortest frame that leaves, without FCS, if TCTL.PSP is set; and the shortest that can be made longer.
const PADDED_BYTES: usize = 60;
const ETHERNET_BYTES: usize = 14;
const FCS_BYTES: usize = 4;
/// Where the tag goes: behind the addresses.
const TAG_AT: usize = 12;

/// How much of what was fed was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fed {
    All,
    /// So many bytes; the others when the cable has room.
    Part(usize),
}

/// The packet that is being put together.
#[derive(Debug)]
struct Packet {
    first: Data,
    context: Context,
    /// Too long, or not to be understood: nothing of it leaves.
    is_bad: bool,
    segments: Option<Segments>,
}

/// How far the segmentation of a packet is.
#[derive(Clone, Copy, Debug)]
struct Segments {
    header_bytes: usize,
    /// Payload of the packet that is left, and of the segment that is being filled.
    left: usize,
    filled: usize,
    /// Segments made, and payload in them.
    made: u16,
    sent: u32,
}

/// The state of a ring's framing.
#[derive(Debug)]
pub(super) struct Framer {
    contexts: [Context; 2],
    packet: Option<Packet>,
    frame: Option<Frame>,
    header: Vec<u8>,
    /// All of the descriptor at the front was taken, but its end could not be told.
    pub(super) held: bool,
}

impl Framer {
    pub(super) fn new() -> Self {
        Self {
            contexts: [Context::default(); 2],
            packet: None,
            frame: None,
            header: Vec::with_capacity(HEADER_BYTES),
            held: false,
        }
    }

    pub(super) fn stop(&mut self, cable: &End) {
        self.packet = None;
        self.header.clear();
        self.held = false;
        if let Some(frame) = self.frame.take() {
            cable.unused(frame);
        }
    }

    /// Takes bytes of a descriptor; `is_last` if it has no more.
    pub(super) fn feed(
        &mut self,
        kind: &Kind,
        bytes: &[u8],
        is_last: bool,
        outside: &mut Outside<'_>,
    ) -> Fed {
        if self.held {
            return Fed::All;
        }
        let data = match kind {
            Kind::Context { slot, context, .. } => {
                self.contexts[*slot] = *context;
                return Fed::All;
            }
            Kind::Unknown { .. } => return Fed::All,
            Kind::Data(data) => data,
        };
        if self.packet.is_none() {
            self.packet = Some(self.begin(data, outside));
        }
        let Some(packet) = &mut self.packet else { return Fed::All };
        let taken = if packet.is_bad {
            bytes.len()
        } else if packet.segments.is_some() {
            self.feed_segments(bytes, outside)
        } else {
            match self.feed_frame(bytes, outside) {
                Some(taken) => taken,
                None => return Fed::Part(0),
            }
        };
        if taken < bytes.len() {
            return Fed::Part(taken);
        }
        if is_last && data.is_end && !self.end(outside) {
            return Fed::Part(taken);
        }
        Fed::All
    }

    fn begin(&mut self, first: &Data, outside: &mut Outside<'_>) -> Packet {
        self.header.clear();
        let mut packet = Packet { first: *first, context: Context::default(), is_bad: false, segments: None };
        if let Offload::Advanced { slot, segment, .. } = first.offload {
            let context = self.contexts[slot];
            packet.context = context;
            if let Some(left) = segment {
                let header_bytes = context.mac_bytes + context.ip_bytes + context.l4_bytes;
                packet.is_bad = !can_segment(&context, header_bytes, left);
                packet.segments = Some(Segments { header_bytes, left, filled: 0, made: 0, sent: 0 });
                let counted = if packet.is_bad { counter::TSCTFC } else { counter::TSCTC };
                outside.statistics.add(counted, 1);
            }
        }
        if packet.is_bad {
            outside.statistics.total.refused += 1;
        }
        packet
    }

    /// A buffer for the next frame, if there is one.
    fn has_frame(&mut self, outside: &Outside<'_>) -> bool {
        if self.frame.is_none() {
            self.frame = outside.cable.buffer();
        }
        self.frame.is_some()
    }

    fn feed_frame(&mut self, bytes: &[u8], outside: &mut Outside<'_>) -> Option<usize> {
        if !self.has_frame(outside) {
            return None;
        }
        let frame = self.frame.as_mut()?;
        if !frame.push(bytes)
            && let Some(packet) = &mut self.packet
        {
            packet.is_bad = true;
            outside.statistics.total.refused += 1;
        }
        Some(bytes.len())
    }

    /// Fills segments, and sends those that are full. Returns how many bytes were taken.
    fn feed_segments(&mut self, bytes: &[u8], outside: &mut Outside<'_>) -> usize {
        let mut taken = 0;
        while taken < bytes.len() {
            let Some(Packet { context, segments: Some(segments), .. }) = &mut self.packet else { break };
            let rest = &bytes[taken..];
            if self.header.len() < segments.header_bytes {
                let part = rest.len().min(segments.header_bytes - self.header.len());
                self.header.extend_from_slice(&rest[..part]);
                taken += part;
                continue;
            }
            if segments.left == 0 {
                // More data than PAYLEN says.
                return bytes.len();
            }
            let part = rest.len().min(segments.left).min(context.mss - segments.filled);
            let is_new = segments.filled == 0;
            if is_new && !self.has_frame(outside) {
                return taken;
            }
            let Some(frame) = &mut self.frame else { return taken };
            if is_new {
                frame.set_len(0);
                frame.push(&self.header);
            }
            frame.push(&rest[..part]);
            taken += part;
            let Some(Packet { context, segments: Some(segments), .. }) = &mut self.packet else { break };
            segments.filled += part;
            segments.left -= part;
            if segments.filled == context.mss || segments.left == 0 {
                self.send_segment(outside);
            }
        }
        taken
    }

    /// The last descriptor was taken: what is left leaves. False if there is no buffer for it.
    fn end(&mut self, outside: &mut Outside<'_>) -> bool {
        let Some(packet) = &self.packet else { return true };
        if packet.is_bad {
            if let Some(frame) = self.frame.take() {
                outside.cable.unused(frame);
            }
        } else if let Some(segments) = packet.segments {
            if segments.filled > 0 {
                // Less data than PAYLEN says: what there is leaves.
                self.send_segment(outside);
            }
        } else if !self.has_frame(outside) {
            return false;
        } else {
            self.send_frame(outside);
        }
        self.packet = None;
        true
    }

    fn send_frame(&mut self, outside: &mut Outside<'_>) {
        let (Some(packet), Some(mut frame)) = (&self.packet, self.frame.take()) else { return };
        if !packet.first.adds_fcs {
            let len = frame.len().saturating_sub(FCS_BYTES);
            frame.set_len(len);
        }
        match packet.first.offload {
            Offload::None => {}
            Offload::Legacy { checksum, .. } => {
                if let Some((start, offset)) = checksum {
                    insert_checksum(&mut frame, start, offset, false);
                }
            }
            Offload::Advanced { ip, l4, .. } => insert_checksums(&mut frame, &packet.context, ip, l4),
        }
        leave(frame, packet, outside);
    }

    fn send_segment(&mut self, outside: &mut Outside<'_>) {
        let Some(packet) = &mut self.packet else { return };
        let (Some(mut frame), Some(segments)) = (self.frame.take(), &mut packet.segments) else { return };
        let place = match (segments.made, segments.left) {
            (_, 0) => Place::Last,
            (0, _) => Place::First,
            _ => Place::Middle,
        };
        let flags = flags_mask(outside, place);
        fit_headers(&mut frame, &packet.context, segments, flags);
        segments.made = segments.made.wrapping_add(1);
        segments.sent = segments.sent.wrapping_add(segments.filled as u32);
        segments.filled = 0;
        if let Offload::Advanced { ip, l4, .. } = packet.first.offload {
            insert_checksums(&mut frame, &packet.context, ip, l4);
        }
        outside.statistics.total.segmented += 1;
        leave(frame, packet, outside);
    }
}

/// Whether headers and segments of these lengths make frames.
fn can_segment(context: &Context, header_bytes: usize, payload: usize) -> bool {
    let l4_bytes = match context.l4 {
        L4::Tcp => 20,
        L4::Udp => 8,
        L4::Sctp | L4::Reserved => return false,
    };
    let ip_bytes = if context.is_ipv4 { 20 } else { 40 };
    context.mac_bytes >= ETHERNET_BYTES
        && context.ip_bytes >= ip_bytes
        && context.l4_bytes >= l4_bytes
        && context.mss > 0
        && payload > 0
        && header_bytes + context.mss <= MAX_FRAME_BYTES
}

#[derive(Clone, Copy, Debug)]
enum Place {
    First,
    Middle,
    Last,
}

/// The TCP flags that a segment at this place keeps (DTXTCPFLGL, DTXTCPFLGH).
fn flags_mask(outside: &Outside<'_>, place: Place) -> u16 {
    let low = outside.registers.get(register::DTXTCPFLGL);
    (match place {
        Place::First => low,
        Place::Middle => low >> 16,
        Place::Last => outside.registers.get(register::DTXTCPFLGH),
    }) as u16
        & 0xfff
}

/// The headers of a segment: lengths, IPv4 identification, sequence number and flags (7.2.4.7). The pseudo header's sum, which the driver
/// made without a length, gets that of the segment.
fn fit_headers(frame: &mut Frame, context: &Context, segments: &Segments, flags: u16) {
    let ip = context.mac_bytes;
    let l4 = ip + context.ip_bytes;
    let (from_ip, behind_ip) = (frame.len() - ip, (frame.len() - l4) as u16);
    if context.is_ipv4 {
        put16(frame, ip + 2, from_ip as u16);
        let identification = get16(frame, ip + 4).wrapping_add(segments.made);
        put16(frame, ip + 4, identification);
    } else {
        put16(frame, ip + 4, (from_ip - 40) as u16);
    }
    let sum_at = match context.l4 {
        L4::Tcp => {
            let sequence = u32::from(get16(frame, l4 + 4)) << 16 | u32::from(get16(frame, l4 + 6));
            let sequence = sequence.wrapping_add(segments.sent);
            put16(frame, l4 + 4, (sequence >> 16) as u16);
            put16(frame, l4 + 6, sequence as u16);
            let word = get16(frame, l4 + 12);
            put16(frame, l4 + 12, word & 0xf000 | word & flags);
            l4 + 16
        }
        L4::Udp | L4::Sctp | L4::Reserved => {
            put16(frame, l4 + 4, behind_ip);
            l4 + 6
        }
    };
    let sum = checksum::fold(u64::from(get16(frame, sum_at)) + u64::from(behind_ip));
    put16(frame, sum_at, sum);
}

fn get16(frame: &[u8], at: usize) -> u16 {
    frame.get(at..at + 2).map_or(0, |bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
}

fn put16(frame: &mut [u8], at: usize, value: u16) {
    if let Some(place) = frame.get_mut(at..at + 2) {
        place.copy_from_slice(&value.to_be_bytes());
    }
}

/// Checksums of advanced descriptors (7.2.5): over the IPv4 header, and from the L4 header to the end.
fn insert_checksums(frame: &mut Frame, context: &Context, ip: bool, l4: bool) {
    let l4_at = context.mac_bytes + context.ip_bytes;
    if ip && context.is_ipv4 {
        put16(frame, context.mac_bytes + 10, 0);
        if let Some(header) = frame.get(context.mac_bytes..l4_at) {
            let sum = checksum::internet(header);
            put16(frame, context.mac_bytes + 10, sum);
        }
    }
    match context.l4 {
        _ if !l4 => {}
        L4::Tcp => insert_checksum(frame, l4_at, l4_at + 16, false),
        L4::Udp => insert_checksum(frame, l4_at, l4_at + 6, true),
        L4::Sctp => {
            if frame.len() >= l4_at + 12 {
                frame[l4_at + 8..l4_at + 12].fill(0);
                let sum = checksum::sctp(&frame[l4_at..]);
                frame[l4_at + 8..l4_at + 12].copy_from_slice(&sum.to_le_bytes());
            }
        }
        L4::Reserved => {}
    }
}

/// Stores the checksum of all from `start` on at `offset`, where the sum to begin with is. Of UDP, 0 means that there is none.
fn insert_checksum(frame: &mut Frame, start: usize, offset: usize, is_udp: bool) {
    let Some(data) = frame.get(start..) else { return };
    if offset + 2 > frame.len() {
        return;
    }
    let sum = checksum::internet(data);
    put16(frame, offset, if is_udp && sum == 0 { 0xffff } else { sum });
}

/// The frame leaves, with its tag, or comes back.
fn leave(mut frame: Frame, packet: &Packet, outside: &mut Outside<'_>) {
    let vlan = match packet.first.offload {
        Offload::Legacy { vlan, .. } => vlan,
        Offload::None | Offload::Advanced { .. } => packet.context.vlan,
    };
    let is_frame = frame.len() >= ETHERNET_BYTES;
    if is_frame && packet.first.inserts_vlan {
        let kind = vlan_ether_type(outside.registers).to_be_bytes();
        let tag = vlan.to_be_bytes();
        frame.insert(TAG_AT, &[kind[0], kind[1], tag[0], tag[1]]);
    }
    if !is_frame || !outside.has_link {
        // Too short to be a frame, or nobody hears it.
        outside.statistics.total.refused += 1;
        outside.cable.unused(frame);
        return;
    }
    if frame.len() < PADDED_BYTES && outside.registers.get(register::TCTL) & tctl::PSP != 0 {
        let padding = [0; PADDED_BYTES];
        let missing = PADDED_BYTES - frame.len();
        frame.push(&padding[..missing]);
    }
    outside.statistics.transmitted(&frame);
    match &mut outside.looped {
        Some(looped) => looped.push_back(frame),
        None => outside.cable.send(frame),
    }
}
