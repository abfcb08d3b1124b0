//! The control socket of a node: how another program on the machine asks it for something.
//!
//! A Unix stream socket that only its owner may use. One request a connection: a JSON object on one line (or up to the
//! end of the stream) is answered with `{"ok": …}` or `{"error": "…"}`, and the connection is closed. `docs/configuration.md`
//! describes it for others.

mod client;
pub(crate) mod listener;
mod server;

use std::env;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use client::{AskError, Following, ask, follow};
pub use listener::BindError;
pub(crate) use server::Control;

use crate::fabric::view::{FabricView, OrderView, To};
use crate::stat::NodeStat;

/// The folder of all nodes' sockets, for root.
const SYSTEM_FOLDER: &str = "/run/etherslot";
const EXTENSION: &str = "control";

/// What can be asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Everything that is counted: [`NodeStat`].
    Stat {},
    /// What the node knows of the fabric: [`FabricView`].
    Ls {},
    /// What happens from now on: [`crate::events::Record`]s, a line each, until the connection ends.
    Events {
        /// Tell the counters as often as that, ms.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        every_ms: Option<u64>,
    },
    /// Have a device change hands: [`OrderView`], at once. [`Request::OrderState`] tells the rest.
    Order {
        /// The device: its name, its box's name and its own with a slash between, or its serial number.
        device: String,
        /// To whom.
        to: To,
        /// Only say what would be done.
        #[serde(default)]
        dry_run: bool,
        /// Take it away from a host that does not give it back.
        #[serde(default)]
        force: bool,
        /// It is withdrawn if it is not done after so long, ms; 30 s if that is not said, an hour at most.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        wait_ms: Option<u64>,
    },
    /// How far an order is: [`OrderView`].
    OrderState {
        /// Its number.
        order: u64,
    },
    /// Nobody waits for an order any more; what its box has begun goes on: [`OrderView`].
    Withdraw {
        /// Its number.
        order: u64,
    },
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Response<T> {
    /// As asked.
    Ok(T),
    /// Not done, and why.
    Error(String),
}

/// A node's answer to a [`Request`] that it could meet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub(crate) enum Answer {
    /// To [`Request::Stat`].
    Stat(Box<NodeStat>),
    /// To [`Request::Ls`].
    Ls(FabricView),
    /// To [`Request::Order`], [`Request::OrderState`] and [`Request::Withdraw`].
    Order(OrderView),
}

/// What a node says to a request about a fabric that it takes no part in.
pub(crate) const NO_FABRIC: &str = "the node takes no part in a fabric: add [fabric] to its configuration";

/// Where the sockets of this user's nodes are, unless their configuration says otherwise: `/run/etherslot` for root, a
/// folder below `XDG_RUNTIME_DIR` for others; none without it.
pub fn folder() -> Option<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Some(PathBuf::from(SYSTEM_FOLDER));
    }
    let folder = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from)?;
    folder.is_absolute().then(|| folder.join("etherslot"))
}

/// The name of the socket of the node with this name in [`folder`]. Different names have different ones.
pub fn file_name(node: &str) -> String {
    let mut file = String::new();
    for byte in node.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_') || byte == b'.' && !file.is_empty() {
            file.push(char::from(byte));
        } else {
            let _ = write!(file, "%{byte:02X}");
        }
    }
    format!("{file}.{EXTENSION}")
}

/// The sockets in [`folder`], in the order of their names; some of them may be left from nodes that were killed.
pub fn sockets() -> Vec<PathBuf> {
    let entries = folder().and_then(|folder| folder.read_dir().ok());
    let mut sockets: Vec<PathBuf> = entries
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == EXTENSION))
        .collect();
    sockets.sort();
    sockets
}

/// Why no node of this user could be asked; `dead`: sockets at which nobody is.
pub fn nobody(dead: &[PathBuf]) -> String {
    let root = Path::new(SYSTEM_FOLDER);
    let is_roots = folder().is_none_or(|folder| folder != root);
    if is_roots && root.exists() {
        return format!(
            "no node of this user runs here; those of root are in {}: use sudo, or give the nodes [node] control_group",
            root.display()
        );
    }
    match (dead, folder()) {
        ([], Some(folder)) => format!(
            "no node of this user runs here ({} has no control socket): start one, or name its socket",
            folder.display()
        ),
        ([], None) => {
            "no node of this user runs here, and XDG_RUNTIME_DIR is not set: start one, or name its socket"
                .to_owned()
        }
        (dead, _) => {
            let dead: Vec<String> = dead.iter().map(|path| path.display().to_string()).collect();
            format!(
                "no node runs here; nobody serves {}: its node was killed: start it again",
                dead.join(", ")
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_a_file_of_its_own() {
        assert_eq!(file_name("box-1.lab"), "box-1.lab.control");
        assert_eq!(file_name("../a b"), "%2E.%2Fa%20b.control");
        assert_ne!(file_name("a/b"), file_name("a%2Fb"));
    }

    #[test]
    fn of_a_socket_that_nobody_serves_it_is_said_which() {
        if folder().is_some_and(|folder| folder == Path::new(SYSTEM_FOLDER)) {
            let said = nobody(&[PathBuf::from("/run/etherslot/box.control")]);
            assert!(said.contains("nobody serves /run/etherslot/box.control"), "{said}");
        }
    }

    #[test]
    fn the_words_of_a_request_stay_as_documented() {
        assert_eq!(serde_json::to_string(&Request::Stat {}).unwrap(), r#"{"request":"stat"}"#);
        assert_eq!(serde_json::from_str::<Request>(r#"{"request":"stat"}"#).unwrap(), Request::Stat {});
        let order = r#"{"request":"order","device":"disk0","to":{"host":"a"}}"#;
        let to = To::Host("a".to_owned());
        let parsed =
            Request::Order { device: "disk0".to_owned(), to, dry_run: false, force: false, wait_ms: None };
        assert_eq!(serde_json::from_str::<Request>(order).unwrap(), parsed);
        for bad in ["", "{}", r#"{"request":"reboot"}"#, r#"{"request":"stat","now":1}"#, "[]", "\"stat\""] {
            assert!(serde_json::from_str::<Request>(bad).is_err(), "{bad}");
        }
        let error: Response<()> = Response::Error("no".to_owned());
        assert_eq!(serde_json::to_string(&error).unwrap(), r#"{"error":"no"}"#);
    }
}
