//! What the Function reaches in other boxes: its box is told where that is.

use etherslot_session::Session;
use etherslot_wire::FunctionId;
use etherslot_wire::boxes::{Behind, Reach, WINDOWS};
use etherslot_wire::control::Message;

use super::{Slot, State};
use crate::out::send_control;

/// What the box has been told, and what it is to be told.
#[derive(Debug, Default)]
pub(super) struct Reaches {
    wanted: Vec<Behind>,
    told: Vec<Behind>,
    /// What the box says of what it was told.
    all: Option<bool>,
    /// What others are told of this slot may be out of date.
    is_moved: bool,
}

impl Slot {
    /// Something changed by which others reach the Function, or it them.
    pub(super) fn moved(&mut self) {
        self.reaches.is_moved = true;
    }

    /// The box forgets what it was told, as the Function leaves it or comes anew.
    pub(super) fn forget_reaches(&mut self) {
        self.reaches = Reaches { is_moved: true, ..Reaches::default() };
    }

    /// Whether [`Slot::decoded`] or [`Slot::function`] may have changed since the last call.
    pub(crate) fn take_moved(&mut self) -> bool {
        std::mem::take(&mut self.reaches.is_moved)
    }

    /// The ID of the Function, while it is the host's.
    pub(crate) fn function(&self) -> Option<FunctionId> {
        matches!(self.state, State::BringUp(_) | State::Ready).then_some(self.function)
    }

    /// The addresses that it decodes, each with its bytes.
    pub(crate) fn decoded(&self) -> impl Iterator<Item = (u64, u64)> {
        let config = self.config.as_ref().filter(|config| self.is_ready() && config.memory_enabled());
        config.into_iter().flat_map(|config| {
            let bars = config.layout().bars.iter().enumerate();
            bars.filter_map(|(at, bar)| Some((config.bar_address(at), bar.as_ref()?.bytes)))
                .filter(|&(address, bytes)| address != 0 && address.checked_add(bytes).is_some())
        })
    }

    /// What lies in other boxes; the first 64 count.
    pub(crate) fn set_reaches(&mut self, mut wanted: Vec<Behind>) {
        wanted.truncate(WINDOWS);
        self.reaches.wanted = wanted;
    }

    /// Whether all that lies in other boxes can be reached, as the box says.
    pub(crate) fn is_reaching(&self) -> bool {
        let Reaches { wanted, told, all, .. } = &self.reaches;
        wanted == told && (told.is_empty() || *all == Some(true))
    }

    pub(super) fn reached(&mut self, all: bool) {
        self.reaches.all = Some(all);
    }

    /// Tells the box. True if something was sent; what has no room waits.
    pub(super) fn tell_reaches(&mut self, session: &mut Session) -> bool {
        let Reaches { wanted, told, all, .. } = &mut self.reaches;
        if wanted == told {
            return false;
        }
        let mut progress = false;
        for at in 0..wanted.len().max(told.len()) {
            let behind = wanted.get(at).copied();
            if told.get(at) == behind.as_ref() {
                continue;
            }
            let reach = Reach { window: at as u8, behind };
            if !send_control(session, self.stream, Message::Reach(reach)) {
                return progress;
            }
            (*all, progress) = (None, true);
            // Windows that go are the last ones: they go together, below.
            if let Some(behind) = behind {
                if at < told.len() { told[at] = behind } else { told.push(behind) }
            }
        }
        told.truncate(wanted.len());
        progress
    }
}
