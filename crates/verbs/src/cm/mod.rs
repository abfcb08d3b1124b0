//! Connection management: ids, ports, and how two processes agree on a pair of QPs (docs/verbs.md, "Connections").
//!
//! [`Connections`] is the state machine, sans-IO: it is told of calls, messages, answers and the time, makes events, and sends on the
//! RNIC's sessions. [`Directory`] are the sockets by which a port belongs to one process of a node, and is found.
//! [`Manager`] joins both with the device of the process, and has a thread, since a program waits for events by their
//! descriptor alone.

mod connections;
mod directory;
mod manager;

pub use connections::{Binding, Connections, Counters, Event, Id, Kind, Question, REASON_CONSUMER, Setup};
pub use directory::{Answer, Directory};
pub use manager::Manager;

/// Why something that a program asks for is not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CmError {
    /// The id is not in a state for this, or was destroyed.
    #[error("the id is not in a state for this")]
    State,
    /// A value that cannot be.
    #[error("a value is out of range")]
    Value,
    /// Somebody listens at this port, or has it.
    #[error("the port is in use")]
    InUse,
    /// It is not the address of our device.
    #[error("no device has this address")]
    Address,
    /// Ids, ports or peers are used up.
    #[error("there is no room for more")]
    NoRoom,
    /// The other side is gone.
    #[error("the other side is gone")]
    Gone,
    /// The system, by its number.
    #[error("error {0} of the system")]
    System(i32),
}

impl From<std::io::Error> for CmError {
    fn from(error: std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::AddrInUse {
            Self::InUse
        } else {
            // EIO, where the system has no number for it.
            Self::System(error.raw_os_error().unwrap_or(5))
        }
    }
}
