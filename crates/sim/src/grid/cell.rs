//! A cell of the grid: one network and one load.

use super::link::{Faults, OVERHEAD_BYTES, ps_per_byte};
use etherslot_wire::frame::{CHECK_BYTES, HEADER_BYTES, SACK_BYTES, TAG_BYTES};
use etherslot_wire::record;

/// The least propagation delay of a link.
const LEAST_DELAY_NS: u64 = 20;
/// Product of rate and round trip from which on frames are of 9000 bytes.
const JUMBO_FROM_BYTES: u64 = 10_000_000;
/// DCTCP's threshold at 10 Gbit/s.
const MARK_BYTES_10G: u64 = 65 * 1500;

/// What the senders have to send.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Load {
    /// As much as goes in, all the time.
    Bulk,
    /// Records at random times, for this share of what the bottleneck carries, in per cent.
    Open {
        /// Per cent.
        percent: u32,
    },
    /// All senders send so many bytes at the same time, again and again.
    Incast {
        /// Payload bytes of each sender.
        bytes: u64,
    },
    /// Requests, small and at random times, each answered by a small record in the same stream, beside bulk of the
    /// same session in both directions.
    Mixed {
        /// Whether the bulk is there.
        is_loaded: bool,
    },
}

/// A change of the bottleneck's capacity in the middle of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It falls to a quarter.
    Quarter,
    /// It was a quarter of the rate and rises to it.
    Fourfold,
}

/// A network and a load.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// What it is called; unique.
    pub name: String,
    /// The dimension it is a point of.
    pub dimension: &'static str,
    /// Rate of all links, bits per second.
    pub rate: u64,
    /// Wanted round-trip time without a queue; see [`Cell::base_rtt_ns`].
    pub rtt_ns: u64,
    /// Senders.
    pub fan_in: u32,
    /// The largest frame.
    pub frame_bytes: u16,
    /// Payload of a record.
    pub record_bytes: usize,
    /// Faults of the receiver's link, in both directions.
    pub faults: Faults,
    /// Change of capacity.
    pub change: Option<Change>,
    /// Whether other nodes load the links on which the acknowledgements come.
    pub is_reverse_loaded: bool,
    /// Whether the first sender's session is replaced in the middle.
    pub restarts: bool,
    /// Whether the last sender comes in the middle.
    pub joins: bool,
    /// Load.
    pub load: Load,
}

impl Default for Cell {
    fn default() -> Self {
        Self {
            name: "base".to_owned(),
            dimension: "base",
            rate: 100_000_000_000,
            rtt_ns: 8_000,
            fan_in: 2,
            frame_bytes: 1500,
            // A Memory Write of 256 bytes, with its 4 DW header.
            record_bytes: 272,
            faults: Faults::default(),
            change: None,
            is_reverse_loaded: false,
            restarts: false,
            joins: false,
            load: Load::Bulk,
        }
    }
}

impl Cell {
    fn body_max(&self) -> u64 {
        (self.frame_bytes as u64 - (HEADER_BYTES + SACK_BYTES + TAG_BYTES) as u64) / 4 * 4
    }

    /// Payload of a full frame, and its bytes without those of Ethernet.
    pub(crate) fn full_frame(&self) -> (u64, u64) {
        let (body_max, size) = (self.body_max(), record::size(self.record_bytes) as u64);
        let outside = (HEADER_BYTES + CHECK_BYTES) as u64;
        if size <= body_max {
            let records = body_max / size;
            (records * self.record_bytes as u64, outside + records * size)
        } else {
            // Parts of long records: each has a header, and each frame all but always the ends of two.
            let parts = (self.record_bytes as u64).div_ceil(body_max - record::HEADER_BYTES as u64) + 1;
            let payload = self.record_bytes as u64;
            (body_max * payload / (payload + parts * record::HEADER_BYTES as u64), outside + body_max)
        }
    }

    /// Payload bytes per second that a link of `rate` carries at most.
    #[allow(clippy::cast_precision_loss)]
    pub(crate) fn payload_rate(&self, rate: u64) -> f64 {
        let (payload, bytes) = self.full_frame();
        rate as f64 / 8.0 * payload as f64 / (bytes + OVERHEAD_BYTES) as f64
    }

    /// Bytes of full frames, without those of Ethernet, per second that the receiver's Port carries.
    pub(crate) fn frame_rate(&self) -> u64 {
        let bytes = self.full_frame().1;
        self.rate / 8 * bytes / (bytes + OVERHEAD_BYTES)
    }

    /// Time that a full frame takes at the bottleneck.
    pub fn frame_ns(&self) -> u64 {
        ((self.full_frame().1 + OVERHEAD_BYTES) * ps_per_byte(self.rate)).div_ceil(1000)
    }

    /// What the frames themselves take of a round trip: a full one and an acknowledgement, each on two links.
    fn serialisation_ns(&self) -> u64 {
        let acknowledgement = (HEADER_BYTES + CHECK_BYTES) as u64 + OVERHEAD_BYTES;
        2 * (self.full_frame().1 + OVERHEAD_BYTES + acknowledgement) * ps_per_byte(self.rate) / 1000
    }

    /// Delay of each of the four links that a round trip passes.
    pub(crate) fn link_delay_ns(&self) -> u64 {
        (self.rtt_ns.saturating_sub(self.serialisation_ns()) / 4).max(LEAST_DELAY_NS)
    }

    /// The round-trip time of a full frame without a queue: the wanted one, or what the frames themselves take if that is
    /// more.
    pub fn base_rtt_ns(&self) -> u64 {
        self.serialisation_ns() + 4 * self.link_delay_ns()
    }

    /// What the round-trip time varies by without a queue: the operator of a link knows, and tells the controllers.
    pub fn noise_ns(&self) -> u64 {
        2 * self.faults.jitter_ns
    }

    /// Bytes of frames that are on their way when the path is full and no queue is.
    pub fn bdp_bytes(&self) -> u64 {
        (u128::from(self.rate) * u128::from(self.base_rtt_ns()) / 8_000_000_000) as u64
    }

    /// The queue that is aimed at, in time.
    pub fn target_ns(&self) -> u64 {
        (8 * self.frame_ns()).max(3_000 + 4 * self.faults.jitter_ns)
    }

    /// The window that sessions are set up with, frames.
    pub fn window_frames(&self) -> u16 {
        let frames = self.bdp_bytes() * 5 / 2 / u64::from(self.frame_bytes) + 64;
        frames.clamp(16, 8192) as u16
    }

    /// The length of a queue from which on a switch marks: the 65 frames of 1500 bytes at 10 Gbit/s of DCTCP's authors
    /// (Alizadeh et al., SIGCOMM 2010, 3.4), in proportion to the rate. They are far more than a short path needs (a
    /// seventh of its bandwidth-delay product, 3.3), so no more than that product, and no less than 8 frames.
    pub(crate) fn mark_above_bytes(&self) -> u64 {
        let bytes = MARK_BYTES_10G * self.rate / 10_000_000_000;
        bytes.min(self.bdp_bytes()).max(8 * u64::from(self.frame_bytes))
    }

    /// From when on is measured, and when it ends, from the beginning.
    pub(crate) fn span_ns(&self) -> (u64, u64) {
        let base_ns = self.base_rtt_ns();
        let share_ns = u64::from(self.fan_in) * self.frame_ns();
        let warm_ns = (30 * base_ns).max(500_000).max(50 * share_ns);
        let measure_ns = (60 * base_ns).max(3_000_000).max(300 * share_ns).max(2000 * self.frame_ns());
        (warm_ns, warm_ns + measure_ns)
    }

    /// Rate of the bottleneck before and after the middle of the measurement.
    pub(crate) fn rates(&self) -> [u64; 2] {
        match self.change {
            None => [self.rate; 2],
            Some(Change::Quarter) => [self.rate, self.rate / 4],
            Some(Change::Fourfold) => [self.rate / 4, self.rate],
        }
    }

    /// The same with frames for its bandwidth-delay product.
    #[must_use]
    pub fn with_fitting_frames(mut self) -> Self {
        if self.rate / 8 * self.rtt_ns / 1_000_000_000 >= JUMBO_FROM_BYTES {
            self.frame_bytes = 9000;
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_of_the_links_makes_the_wanted_round_trip() {
        let cell = Cell::default();
        // Five records of 280 bytes.
        assert_eq!(cell.full_frame(), (1360, 1452));
        assert_eq!(cell.frame_ns(), 120);
        assert!((7_990..=8_010).contains(&cell.base_rtt_ns()), "{}", cell.base_rtt_ns());
        let slow = Cell { rate: 1_000_000_000, rtt_ns: 2_000, ..Cell::default() };
        assert!((25_000..26_000).contains(&slow.base_rtt_ns()), "{}", slow.base_rtt_ns());
        assert_eq!(slow.link_delay_ns(), LEAST_DELAY_NS);
    }

    #[test]
    fn marks_begin_at_what_the_path_holds_or_at_dctcps_threshold() {
        let rtt = |us: u64, rate| Cell { rtt_ns: us * 1000, rate, ..Cell::default() }.mark_above_bytes();
        assert_eq!(rtt(8, 100_000_000_000), Cell::default().bdp_bytes());
        assert_eq!(rtt(1000, 100_000_000_000), 975_000);
        assert_eq!(rtt(1000, 10_000_000_000), 97_500);
        assert_eq!(rtt(8, 1_000_000_000), 12_000);
    }

    #[test]
    fn only_a_long_and_fast_path_has_large_frames() {
        let long = Cell { rtt_ns: 1_000_000, ..Cell::default() };
        assert_eq!(long.with_fitting_frames().frame_bytes, 9000);
        assert_eq!(Cell::default().with_fitting_frames().frame_bytes, 1500);
    }
}
