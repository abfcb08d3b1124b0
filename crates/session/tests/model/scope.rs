//! What is explored: how a world begins, what may happen in it, and how often.

use etherslot_session::Mode;

/// Which epochs the nodes draw, life by life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Epochs {
    /// No number twice.
    Apart,
    /// Both the same: an end's epoch is always its peer's too.
    Same,
    /// A new epoch is what the peer had in the life before: the pair of a new life is the old one turned round.
    Crossed,
    /// Against the specification: every life of this node has the same.
    Reused(usize),
}

impl Epochs {
    pub(crate) fn draw(self, at: usize, life: u32) -> u32 {
        match self {
            Self::Apart => 0xA0 + 0x10 * at as u32 + life,
            Self::Same => 1 + life,
            Self::Crossed => 1 + (life ^ at as u32),
            Self::Reused(one) if one == at => 1,
            Self::Reused(_) => 0xA0 + life,
        }
    }
}

/// What happens next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// A burst that was sent at any time before arrives, for the first time or once more.
    Deliver(u16, Order),
    /// Nothing happens until the next timer.
    Timer,
    /// Nothing happens for so long that every timer is late.
    Sleep,
    /// The node loses all that it knows.
    Restart(usize),
    /// The application puts in a record; in a coarse scope, as many as go in.
    Put(usize),
    /// The application stops taking what arrives, or goes on: the end gives no credit meanwhile.
    Hold(usize),
}

/// Which frames of a burst arrive, and in which order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Forward,
    Backward,
    WithoutFirst,
    WithoutLast,
}

/// What may happen, how often; a delivery for the first time may always happen.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Budget {
    pub(crate) timers: u32,
    pub(crate) sleeps: u32,
    /// By node.
    pub(crate) restarts: [u32; 2],
    /// By node.
    pub(crate) puts: [u32; 2],
    /// Of the listening node.
    pub(crate) holds: u32,
    /// Bursts that mean something to their receiver for a second time.
    pub(crate) replays: u32,
}

/// How a world begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Prelude {
    /// The first Hello has left.
    Fresh,
    /// A session is up.
    Up,
    /// A session was up and has carried records both ways; all its frames can come again. Then this node restarted.
    Restarted(usize),
    /// The same, and then a second session is up.
    UpAgain(usize),
}

/// What is wrong on purpose, to see that it is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sabotage {
    None,
    /// A Data frame that arrives is taken for one of the session that is up.
    IgnoresEpochs,
    /// The listening node never gives more than the first credit.
    GivesNoCredit,
    /// The listening node gives each credit in one frame only.
    GivesCreditOnce,
    /// Nobody asks for an answer.
    NeverAsks,
    /// The listening node takes a confirmation of an epoch that it does not know.
    TrustsConfirmations,
    /// The first Data frame of each session is lost however often it is sent.
    LosesFirst,
}

/// What is explored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scope {
    pub(crate) epochs: Epochs,
    /// Frames that each end takes from the first that is missing on; `None` is what the code itself gives at least.
    pub(crate) window: Option<u32>,
    pub(crate) mode: Mode,
    pub(crate) prelude: Prelude,
    pub(crate) budget: Budget,
    /// What an end sends at one time is delivered as one burst, and puts fill the session.
    pub(crate) is_coarse: bool,
    pub(crate) sabotage: Sabotage,
    /// Actions in a row.
    pub(crate) depth: usize,
}
