//! The asking end. It may wait, and does: for a node that does not answer, a few seconds.

use std::io::{self, BufRead as _, BufReader, ErrorKind, Lines, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::{Request, Response};

const PATIENCE: Duration = Duration::from_secs(5);
/// More than the longest answer: 64 sessions and slots with all their counters.
const ANSWER_BYTES: u64 = 16 << 20;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// No node listens there.
    #[error("{0}: no node runs there")]
    NoNode(PathBuf),
    /// The socket is another user's.
    #[error("{0}: the node belongs to another user: ask as that user, or as root")]
    NotPermitted(PathBuf),
    /// The node does not answer, or not to the end.
    #[error("{0}: the node does not answer: {1}")]
    NoAnswer(PathBuf, io::Error),
    /// The answer is none that is understood.
    #[error("{0}: not the answer of a node of this version: {1}")]
    Answer(PathBuf, serde_json::Error),
    /// The node refuses.
    #[error("{0}: {1}")]
    Refused(PathBuf, String),
}

/// The lines of a node that is listened to; they end when the node does.
pub type Following = Lines<BufReader<UnixStream>>;

/// Listens to what happens to the node whose control socket is at `path`: [`crate::events::Record`]s, a line each. The node's counters
/// come among them every so many milliseconds, if that is said.
pub fn follow(path: &Path, every_ms: Option<u64>) -> Result<Following, AskError> {
    let stream = connected(path, &Request::Events { every_ms })?;
    let failed = |error| AskError::NoAnswer(path.to_owned(), error);
    let mut reader = BufReader::new(stream);
    // The answer to a request that is refused is an object of its own; the first record never begins so.
    let refusal = b"{\"error\":";
    if reader.fill_buf().map_err(failed)?.starts_with(refusal) {
        let mut line = String::new();
        reader.read_line(&mut line).map_err(failed)?;
        let answer = serde_json::from_str::<Response<()>>(&line);
        return match answer.map_err(|error| AskError::Answer(path.to_owned(), error))? {
            Response::Error(reason) => Err(AskError::Refused(path.to_owned(), reason)),
            Response::Ok(()) => Ok(reader.lines()),
        };
    }
    reader.get_ref().set_read_timeout(None).map_err(failed)?;
    Ok(reader.lines())
}

/// Asks the node whose control socket is at `path`.
pub fn ask<T: DeserializeOwned>(path: &Path, request: &Request) -> Result<T, AskError> {
    let place = || path.to_owned();
    let failed = |error| AskError::NoAnswer(place(), error);
    let stream = connected(path, request)?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES).read_to_end(&mut answer).map_err(failed)?;
    match serde_json::from_slice(&answer).map_err(|error| AskError::Answer(place(), error))? {
        Response::Ok(answer) => Ok(answer),
        Response::Error(reason) => Err(AskError::Refused(place(), reason)),
    }
}

/// A connection that was asked `request`.
fn connected(path: &Path, request: &Request) -> Result<UnixStream, AskError> {
    let place = || path.to_owned();
    let mut stream = UnixStream::connect(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => AskError::NoNode(place()),
        ErrorKind::PermissionDenied => AskError::NotPermitted(place()),
        _ => AskError::NoAnswer(place(), error),
    })?;
    let failed = |error| AskError::NoAnswer(place(), error);
    stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    stream.set_write_timeout(Some(PATIENCE)).map_err(failed)?;
    let mut line = serde_json::to_vec(request).map_err(|error| AskError::Answer(place(), error))?;
    line.push(b'\n');
    stream.write_all(&line).map_err(failed)?;
    Ok(stream)
}
