//! The grid: real sessions over NICs, links and a switch in virtual time, measured, cell by cell and contender by
//! contender. `docs/session.md` tells how it is built and what came out.
//!
//! A cell is one network and one load; a contender is a congestion controller with a way to find losses. A run is decided
//! by cell, contender and seed alone: the same three give the same run.

mod cell;
mod cells;
mod check;
mod contender;
mod document;
mod end;
mod events;
mod histogram;
mod link;
mod net;
mod outcome;
mod record;
mod run;
mod sweep;
mod tally;

pub use cell::{Cell, Change, Load};
pub use cells::cells;
pub use check::{Finding, findings, summary};
pub use contender::{CONTENDERS, Contender, contender};
pub use document::replace;
pub use link::{Faults, Loss};
pub use outcome::{Outcome, median_ns};
pub use record::Violations;
pub use run::run;
pub use sweep::Sweep;

use etherslot_wire::frame::MAX_FRAME_BYTES;
