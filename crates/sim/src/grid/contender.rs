//! The contenders: congestion controllers, each with the recovery it is judged with.

use etherslot_session::{Classic, Config, Controller, Detection, Efe, Limits, Mode};

use super::cell::Cell;
use crate::rivals::{Cubic, Dctcp, Reno, Swift};

/// A congestion controller and a recovery.
#[derive(Clone, Copy, Debug)]
pub struct Contender {
    /// Its name: controller, and recovery where there are two of them.
    pub name: &'static str,
    controller: fn(&Limits) -> Box<dyn Controller>,
    mode: Mode,
    detection: Detection,
    /// Whether switches mark frames for it.
    pub(crate) heeds_marks: bool,
    /// Whether its receiver bounds the windows of its senders.
    pub(crate) has_receiver_cap: bool,
}

/// EFE, and what most others share with it.
const EFE: Contender = Contender {
    name: "efe",
    controller: |limits| Box::new(Efe::new(limits)),
    mode: Mode::Selective,
    detection: Detection::Rack,
    heeds_marks: false,
    has_receiver_cap: true,
};

const SHARED: Contender = Contender { has_receiver_cap: false, ..EFE };
/// TCP's way to find losses.
const SACK: Contender = Contender { detection: Detection::Sack, ..SHARED };

const RENO: fn(&Limits) -> Box<dyn Controller> = |limits| Box::new(Reno::new(limits));
const CUBIC: fn(&Limits) -> Box<dyn Controller> = |limits| Box::new(Cubic::new(limits));
const DCTCP: fn(&Limits) -> Box<dyn Controller> = |limits| Box::new(Dctcp::new(limits));
const SWIFT: fn(&Limits) -> Box<dyn Controller> = |limits| Box::new(Swift::new(limits));

/// All that are compared: first EFE, which the others are compared with.
pub const CONTENDERS: &[Contender] = &[
    EFE,
    Contender {
        name: "classic",
        controller: |limits| Box::new(Classic::new(limits)),
        mode: Mode::Classic,
        ..SHARED
    },
    Contender { name: "reno", controller: RENO, detection: Detection::NewReno, ..SHARED },
    Contender { name: "reno-rack", controller: RENO, ..SHARED },
    Contender { name: "cubic", controller: CUBIC, ..SACK },
    Contender { name: "cubic-rack", controller: CUBIC, ..SHARED },
    Contender { name: "dctcp", controller: DCTCP, heeds_marks: true, ..SACK },
    Contender { name: "dctcp-rack", controller: DCTCP, heeds_marks: true, ..SHARED },
    Contender { name: "swift", controller: SWIFT, ..SACK },
    Contender { name: "swift-rack", controller: SWIFT, ..SHARED },
];

/// The contender of this name.
pub fn contender(name: &str) -> Option<Contender> {
    CONTENDERS.iter().find(|contender| contender.name == name).copied()
}

impl Contender {
    /// How the sessions of a cell are set up. Timers are those of hardware: what a machine's scheduler would need is left
    /// out. Recovery by count has TCP's timeout of a data centre, 1 ms at least, as it has no probes.
    pub(crate) fn config(&self, cell: &Cell) -> Config {
        let base_ns = cell.base_rtt_ns();
        Config {
            max_frame_bytes: cell.frame_bytes,
            window_frames: cell.window_frames(),
            backlog_frames: 8,
            streams: super::record::STREAMS,
            mode: self.mode,
            detection: self.detection,
            ack_every_frames: 2,
            ack_delay_ns: (base_ns / 8).max(500),
            probe_min_ns: 10_000,
            rto_min_ns: if self.detection == Detection::Rack { 200_000 } else { 1_000_000 },
            pacing_burst_ns: (2 * cell.frame_ns()).max(500),
            port_rate: Some(cell.frame_rate()),
            noise_ns: cell.noise_ns(),
            controller: self.controller,
            ..Config::default()
        }
    }
}
