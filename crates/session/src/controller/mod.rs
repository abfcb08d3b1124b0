//! Congestion control: how much may be on its way, and how fast it leaves.
//!
//! A [`Controller`] sees what was sent, acknowledged and lost, and answers with a window and a pacing rate. Which frames
//! are lost is decided elsewhere (`recovery`), so controllers can be compared under one recovery.

mod classic;
mod efe;

pub use classic::Classic;
pub use efe::{Efe, receiver_cap_bytes};

use crate::config::Mode;

/// What a controller is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the largest frame.
    pub frame_bytes: u64,
    /// The most frames that can be on their way.
    pub window_frames: u64,
    /// Bytes per second that the Port carries, if known.
    pub rate: Option<u64>,
    /// What the round-trip time varies by without a queue, ns.
    pub noise_ns: u64,
    /// How the session makes losses good.
    pub mode: Mode,
}

/// News of one acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acked {
    /// The time.
    pub now_ns: u64,
    /// Bytes of frames newly acknowledged.
    pub bytes: u64,
    /// Round-trip time of the newest transmission that arrived, the peer's hold time taken off; `None` if the
    /// acknowledgement tells none.
    pub rtt_ns: Option<u64>,
    /// What of that the way back took beyond its least of the last seconds; wrong by what the clocks of both ends drift
    /// in these.
    pub back_ns: u64,
    /// When that transmission left.
    pub tx_ns: Option<u64>,
    /// Smoothed round-trip time.
    pub srtt_ns: u64,
    /// The least round-trip time of the last seconds.
    pub min_rtt_ns: u64,
    /// Bytes on their way after this acknowledgement.
    pub in_flight_bytes: u64,
    /// Whether the window or the pacing, and not the lack of data, held transmission back.
    pub window_limited: bool,
    /// Whether the peer says that a switch marked one of these frames for congestion (ECN).
    pub congested: bool,
}

/// News of lost frames, found at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The time.
    pub now_ns: u64,
    /// Their bytes.
    pub bytes: u64,
    /// When the newest of them left.
    pub newest_tx_ns: u64,
    /// The last round-trip time measured.
    pub rtt_ns: u64,
    /// The least round-trip time of the last seconds.
    pub min_rtt_ns: u64,
    /// Bytes on their way after this.
    pub in_flight_bytes: u64,
}

/// A congestion controller.
pub trait Controller: core::fmt::Debug + Send {
    /// The largest frame, agreed with the peer, is of this size. Called once, before anything else.
    fn set_frame_bytes(&mut self, bytes: u64);
    /// A frame has left; `in_flight_bytes` includes it.
    fn on_sent(&mut self, now_ns: u64, bytes: u64, in_flight_bytes: u64);
    /// Frames were acknowledged.
    fn on_ack(&mut self, acked: &Acked);
    /// Frames were lost.
    fn on_loss(&mut self, lost: &Lost);
    /// The retransmission timer ran out: all frames on their way count as lost ([`Controller::on_loss`] is not called).
    fn on_rto(&mut self, now_ns: u64);
    /// Frames of the last loss or timeout arrived after all.
    fn on_spurious(&mut self, now_ns: u64);
    /// Bytes that may be on their way. One frame may be whatever this says.
    fn window_bytes(&self) -> u64;
    /// Bytes per second at which frames may leave; `None` is as fast as the window lets them.
    fn pacing_rate(&self) -> Option<u64>;
    /// The receiver bounds what may be on its way to it, bytes; `u64::MAX` is no bound. The window obeys it whatever the
    /// controller does; one that paces by its window should know.
    fn set_receiver_cap_bytes(&mut self, _bytes: u64) {}
    /// Whether the peer should acknowledge every frame at once, as each tells of the path.
    fn is_probing(&self) -> bool {
        false
    }
}
