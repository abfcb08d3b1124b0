//! What a session is set up with.

use etherslot_wire::NodeId;
use etherslot_wire::control::{Hello, feature};
use etherslot_wire::frame::{MAX_FRAME_BYTES, MIN_FRAME_BYTES};

use crate::controller::{Classic, Controller, Efe, Limits};
use crate::path::MAX_PATHS;

/// How lost frames are made good.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Selective repeat: the receiver keeps what is out of order and says so in SACK blocks.
    #[default]
    Selective,
    /// Go-Back-N with an in-order receiver. Used only if both sides ask for it.
    Classic,
}

/// How a sender in [`Mode::Selective`] finds lost frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Detection {
    /// By time: RACK-TLP (RFC 8985), with tail-loss probes.
    #[default]
    Rack,
    /// By count, from SACK blocks: three later frames have arrived (RFC 6675). A retransmission that is lost is found
    /// by timeout. To compare with.
    Sack,
    /// By count, without SACK blocks: one lost frame a round trip (`NewReno`, RFC 6582). To compare with.
    NewReno,
}

/// Set-up of a session. Values outside of their range are brought to the nearest end of it.
#[derive(Clone, Debug)]
pub struct Config {
    /// Who this node is.
    pub node: NodeId,
    /// The largest frame that the Port carries; the smaller of both sides' is used.
    pub max_frame_bytes: u16,
    /// Data frames that may be on their way unacknowledged, and frames that can be kept out of order: 16 to 8192.
    pub window_frames: u16,
    /// Frames that may wait for their first transmission before [`crate::Session::room`] is 0. Short, because what
    /// waits here delays whatever comes after it.
    pub backlog_frames: u16,
    /// Streams: the highest number plus one, 1 to 4096. Each takes 4 KiB for reassembly.
    pub streams: u16,
    /// Wanted mode.
    pub mode: Mode,
    /// How lost frames are found.
    pub detection: Detection,
    /// Whether every record, or part of one, leaves in a frame of its own, as TLPs do in the published kernel version. To
    /// compare with, or for peers that take no more.
    pub one_record_a_frame: bool,
    /// Whether memory may be sent along with doorbells (docs/wire.md, Read-ahead), if the peer agrees.
    pub read_ahead: bool,
    /// We take DDP segments ([`Kind::Ddp`](etherslot_wire::record::Kind::Ddp)).
    pub rdma: bool,
    /// Features that the owner of the session offers beside those of the session itself ([`feature`]).
    pub features: u32,
    /// Whether our link keeps what it carries intact, as memory does: if the peer's does as well, the bodies of Data frames
    /// go unchecked.
    pub is_link_intact: bool,
    /// In-order data frames that one acknowledgement may answer.
    pub ack_every_frames: u16,
    /// The most paths that a session may have, 1 to [`crate::MAX_PATHS`]. More than one is for [`Mode::Selective`] and
    /// [`Detection::Rack`] only.
    pub paths: u8,
    /// Bytes per second that the Port carries, if known.
    pub port_rate: Option<u64>,
    /// What the round-trip time of the path varies by though no queue builds: polling and interrupt moderation of the
    /// peers, links that batch. A controller that goes by delay can't tell that from a queue
    /// and has to be told. The default, 1 ms, is what loops that sleep and the kernels between them make.
    pub noise_ns: u64,
    /// The longest that an acknowledgement is held back in the hope of data to ride on. The default, 50 us, is what a
    /// device model needs to answer a request, and well below the earliest tail-loss probe.
    pub ack_delay_ns: u64,
    /// The least time without news before a tail-loss probe (otherwise 2 SRTT). A probe that was not needed costs one
    /// frame.
    pub probe_min_ns: u64,
    /// The least margin over SRTT of the retransmission timeout. The default, 10 ms, is beyond the time for which a
    /// busy machine of few cores does not run its peer process; single losses are found long before it, by SACK or by
    /// tail-loss probe. Hardware peers can do with 200 us.
    pub rto_min_ns: u64,
    /// How late a paced frame may leave without its successors waiting for it: the grain of the owner's timers. What
    /// leaves in one burst after a pause is this long on the link.
    pub pacing_burst_ns: u64,
    /// How long nothing may be heard before the peer is asked for a sign of life.
    pub heartbeat_ns: u64,
    /// How long nothing may be heard, or nothing be acknowledged, before the session is dead; at most 4 s, since
    /// timestamps wrap after 4.29 s.
    pub dead_after_ns: u64,
    /// Half-open sessions that a [`crate::Listener`] remembers; the oldest makes room for a new one.
    pub half_open: u16,
    /// The first sequence of the Data frames we send. Any value does.
    pub first_sequence: u32,
    /// Makes the congestion controller of a session: by default [`Classic`] in classic mode, otherwise [`Efe`].
    pub controller: fn(&Limits) -> Box<dyn Controller>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            node: NodeId::default(),
            max_frame_bytes: 1500,
            window_frames: 256,
            backlog_frames: 64,
            streams: 64,
            mode: Mode::Selective,
            detection: Detection::Rack,
            one_record_a_frame: false,
            read_ahead: true,
            rdma: false,
            features: 0,
            is_link_intact: false,
            paths: 1,
            port_rate: None,
            noise_ns: 1_000_000,
            ack_every_frames: 2,
            ack_delay_ns: 50_000,
            probe_min_ns: 250_000,
            rto_min_ns: 10_000_000,
            pacing_burst_ns: 50_000,
            heartbeat_ns: 100_000_000,
            dead_after_ns: 1_000_000_000,
            half_open: 64,
            first_sequence: 0,
            controller: |limits| match limits.mode {
                Mode::Classic => Box::new(Classic::new(limits)),
                Mode::Selective => Box::new(Efe::new(limits)),
            },
        }
    }
}

impl Config {
    /// The same with every value in its range.
    pub(crate) fn clamped(&self) -> Self {
        let dead_after_ns = self.dead_after_ns.clamp(1_000_000, 4_000_000_000);
        let may_spread = self.mode == Mode::Selective && self.detection == Detection::Rack;
        Self {
            max_frame_bytes: self.max_frame_bytes.clamp(MIN_FRAME_BYTES as u16, MAX_FRAME_BYTES as u16),
            window_frames: self.window_frames.clamp(16, 8192),
            backlog_frames: self.backlog_frames.max(1),
            streams: self.streams.clamp(1, 4096),
            paths: if may_spread { self.paths.clamp(1, MAX_PATHS as u8) } else { 1 },
            ack_every_frames: self.ack_every_frames.max(1),
            ack_delay_ns: self.ack_delay_ns.min(dead_after_ns / 16),
            probe_min_ns: self.probe_min_ns.clamp(1_000, dead_after_ns / 16),
            rto_min_ns: self.rto_min_ns.clamp(10_000, dead_after_ns / 8),
            heartbeat_ns: self.heartbeat_ns.clamp(100_000, dead_after_ns / 4),
            dead_after_ns,
            half_open: self.half_open.clamp(1, 1024),
            ..self.clone()
        }
    }

    /// What we say about ourselves in Hello and `HelloAck`.
    pub(crate) fn hello(&self) -> Hello {
        Hello {
            node: self.node,
            max_frame_bytes: self.max_frame_bytes,
            receive_window_frames: self.window_frames,
            features: if self.mode == Mode::Classic { feature::CLASSIC } else { 0 }
                | if self.is_link_intact { feature::HEADER_CHECK } else { 0 }
                | if self.read_ahead { feature::READ_AHEAD } else { 0 }
                | if self.rdma { feature::RDMA } else { 0 }
                | feature::LEASES
                | feature::PEERS
                | self.features,
        }
    }

    /// Whether both sides' links keep bodies intact.
    pub(crate) fn agreed_header_check(&self, peer: &Hello) -> bool {
        self.hello().features & peer.features & feature::HEADER_CHECK != 0
    }

    /// The mode that both sides can do.
    pub(crate) fn agreed_mode(&self, peer: &Hello) -> Mode {
        if self.mode == Mode::Classic && peer.features & feature::CLASSIC != 0 {
            Mode::Classic
        } else {
            Mode::Selective
        }
    }
}
