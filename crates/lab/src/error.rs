//! What can go wrong in the lab, told with the evidence at hand.

use std::io;
use std::time::Duration;

/// The lab's result.
pub type Result<T> = std::result::Result<T, Error>;

/// Why the lab could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused.
    #[error("{what}: {answer}")]
    Io {
        /// What was attempted, with the path or name.
        what: String,
        /// The system's answer.
        answer: io::Error,
    },
    /// A program ran and failed.
    #[error("`{command}` failed with {status}: {output}")]
    Command {
        /// The command line, shortened.
        command: String,
        /// Exit status or signal.
        status: String,
        /// The end of what it wrote.
        output: String,
    },
    /// The machine lacks something that the lab can't provide.
    #[error("{cause}; {remedy}")]
    Setup {
        /// What is missing.
        cause: String,
        /// What the operator can do.
        remedy: String,
    },
    /// Something did not happen in time.
    #[error("{what} did not happen within {after:?}{evidence}")]
    Timeout {
        /// The event waited for.
        what: String,
        /// How long was waited.
        after: Duration,
        /// The end of the relevant log, on lines of its own.
        evidence: String,
    },
    /// A process ended that was still needed.
    #[error("{what} ended{evidence}")]
    Ended {
        /// The process.
        what: String,
        /// Its status and the end of its log.
        evidence: String,
    },
    /// A peer (QEMU's monitor, a tool's output) said something unexpected.
    #[error("{what}: {answer}")]
    Unexpected {
        /// What was asked.
        what: String,
        /// What came instead.
        answer: String,
    },
}

impl Error {
    /// For `map_err`: names what was attempted.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |answer| Self::Io { what, answer }
    }

    pub(crate) fn setup(cause: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::Setup { cause: cause.into(), remedy: remedy.into() }
    }

    pub(crate) fn unexpected(what: impl Into<String>, answer: impl Into<String>) -> Self {
        Self::Unexpected { what: what.into(), answer: answer.into() }
    }
}

/// The last `lines` lines of `text`, set off for an error message; empty for empty text.
pub(crate) fn tail(title: &str, text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    if all.is_empty() {
        return String::new();
    }
    let from = all.len().saturating_sub(lines);
    format!("\n--- {title}, end ---\n{}\n---", all[from..].join("\n"))
}
