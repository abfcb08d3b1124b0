//! The lab's side of the command line into a guest: a serial port of its own, see `guest/agent`.
//!
//! Answers carry their length, so whatever a command prints is returned as it is. The commands run side by side in
//! the guest; one that hangs holds up nobody.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{Error, Result, tail};

/// Longest request line: the guest's line discipline drops what exceeds its buffer of 64 KiB.
const REQUEST_BYTES_MAX: usize = 48 << 10;
/// A line of ours is far shorter; anything longer is firmware noise.
const LINE_BYTES_MAX: usize = 256;

/// What a command in the guest came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Exit status; above 128 a signal ended it.
    pub status: i32,
    /// Standard output and standard error as they came.
    pub stdout: String,
}

impl Output {
    /// The output, if the status is 0.
    pub fn success(self) -> Result<String> {
        if self.status == 0 {
            return Ok(self.stdout);
        }
        Err(Error::Command {
            command: "a command in the guest".to_owned(),
            status: format!("status {}", self.status),
            output: tail("guest", &self.stdout, 30),
        })
    }
}

#[derive(Default)]
struct State {
    /// The guest's boot id; another one means that it has started anew.
    boot: Option<String>,
    boots: u32,
    next_id: u64,
    done: HashMap<u64, Output>,
    closed: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A command that runs in the guest.
pub struct Job {
    shared: Arc<Shared>,
    id: u64,
    boots: u32,
    command: String,
}

impl Job {
    /// Whether it has ended.
    pub fn is_done(&self) -> bool {
        self.shared.state().done.contains_key(&self.id)
    }

    /// Waits for its end. After a time-out it may be waited for again.
    pub fn wait(&self, timeout: Duration) -> Result<Output> {
        let start = Instant::now();
        let mut state = self.shared.state();
        loop {
            if let Some(output) = state.done.get(&self.id) {
                return Ok(output.clone());
            }
            if state.closed || state.boots != self.boots {
                return Err(Error::Ended {
                    what: "the guest".to_owned(),
                    evidence: format!(" or started anew during `{}`", self.command),
                });
            }
            let Some(left) = timeout.checked_sub(start.elapsed()) else {
                return Err(Error::Timeout {
                    what: format!("the end of `{}` in the guest", self.command),
                    after: timeout,
                    evidence: String::new(),
                });
            };
            state = self.shared.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.shared.state().done.remove(&self.id);
    }
}

/// The connection to one guest.
pub(crate) struct Agent {
    shared: Arc<Shared>,
    stream: UnixStream,
}

impl Agent {
    /// Takes over the connection to the guest's port.
    pub(crate) fn new(stream: UnixStream) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let reader = Reader { stream: stream.try_clone()?, buffer: Vec::new(), shared: shared.clone() };
        thread::spawn(move || reader.run());
        Ok(Self { shared, stream })
    }

    /// How often the guest has come up, waiting at most `timeout` for more than `boots` times; `None` if it did not.
    pub(crate) fn wait_boot(&self, boots: u32, timeout: Duration) -> Option<u32> {
        let start = Instant::now();
        let mut state = self.shared.state();
        while state.boots <= boots && !state.closed {
            let left = timeout.checked_sub(start.elapsed())?;
            state = self.shared.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        (state.boots > boots).then_some(state.boots)
    }

    pub(crate) fn boots(&self) -> u32 {
        self.shared.state().boots
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.shared.state().closed
    }

    /// Starts `command` (shell text, several lines if need be).
    pub(crate) fn start(&self, command: &str) -> Result<Job> {
        let (id, boots) = {
            let mut state = self.shared.state();
            state.next_id += 1;
            (state.next_id, state.boots)
        };
        let request = format!("{id} {}\n", base64(command.as_bytes()));
        let shown = command.trim().lines().next().unwrap_or_default().to_owned();
        if request.len() > REQUEST_BYTES_MAX {
            return Err(Error::unexpected(
                format!("run `{shown}…` in the guest"),
                "the command is longer than 36 KiB",
            ));
        }
        (&self.stream)
            .write_all(request.as_bytes())
            .map_err(Error::io(format!("send `{shown}` to the guest")))?;
        Ok(Job { shared: self.shared.clone(), id, boots, command: shown })
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // Ends the reading thread.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

struct Reader {
    stream: UnixStream,
    buffer: Vec<u8>,
    shared: Arc<Shared>,
}

impl Reader {
    fn run(mut self) {
        while let Ok(line) = self.line() {
            let mut words = line.split_ascii_whitespace();
            match (words.next(), words.next()) {
                (Some("@ready"), Some(boot)) => self.ready(boot),
                (Some("@done"), Some(id)) => {
                    let numbers = (id.parse(), words.next().map(str::parse), words.next().map(str::parse));
                    let (Ok(id), Some(Ok(status)), Some(Ok(bytes))) = numbers else { continue };
                    let Ok(stdout) = self.bytes(bytes) else { break };
                    self.shared.state().done.insert(id, Output { status, stdout });
                }
                _ => continue,
            }
            self.shared.changed.notify_all();
        }
        self.shared.state().closed = true;
        self.shared.changed.notify_all();
    }

    fn ready(&self, boot: &str) {
        let mut state = self.shared.state();
        if state.boot.as_deref() != Some(boot) {
            state.boot = Some(boot.to_owned());
            state.boots += 1;
        }
    }

    fn fill(&mut self) -> io::Result<()> {
        let mut chunk = [0; 16 << 10];
        match self.stream.read(&mut chunk)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            bytes => {
                self.buffer.extend_from_slice(&chunk[..bytes]);
                Ok(())
            }
        }
    }

    fn line(&mut self) -> io::Result<String> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Ok(String::from_utf8_lossy(&line).into_owned());
            }
            if self.buffer.len() > LINE_BYTES_MAX {
                self.buffer.clear();
            }
            self.fill()?;
        }
    }

    fn bytes(&mut self, count: usize) -> io::Result<String> {
        while self.buffer.len() < count {
            self.fill()?;
        }
        let bytes: Vec<u8> = self.buffer.drain(..count).collect();
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// RFC 4648, section 4.
pub(crate) fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let group = [chunk[0], chunk.get(1).copied().unwrap_or(0), chunk.get(2).copied().unwrap_or(0)];
        let bits = u32::from_be_bytes([0, group[0], group[1], group[2]]);
        for digit in 0..4 {
            let padding = digit > chunk.len();
            let index = (bits >> (18 - 6 * digit)) & 63;
            text.push(if padding { '=' } else { char::from(DIGITS[index as usize]) });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_matches_the_vectors_of_rfc_4648() {
        for (plain, coded) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(base64(plain.as_bytes()), coded);
        }
    }

    const SOON: Duration = Duration::from_secs(5);

    #[test]
    fn answers_are_matched_by_id_and_taken_by_length_whatever_they_contain() {
        let (lab, mut guest) = UnixStream::pair().unwrap();
        let agent = Agent::new(lab).unwrap();
        guest.write_all(b"SeaBIOS noise\x00\n\n@ready b00t\n").unwrap();
        assert_eq!(agent.wait_boot(0, SOON), Some(1));
        let first = agent.start("echo one").unwrap();
        let second = agent.start("echo two").unwrap();
        guest.write_all(b"\n@done 2 3 18\n@done 1 0 3\nno\nyes\n@done 1 0 4\none\n").unwrap();
        assert_eq!(first.wait(SOON).unwrap(), Output { status: 0, stdout: "one\n".to_owned() });
        assert_eq!(
            second.wait(SOON).unwrap(),
            Output { status: 3, stdout: "@done 1 0 3\nno\nyes".to_owned() }
        );
    }

    #[test]
    fn a_job_ends_with_an_error_when_the_guest_starts_anew_or_goes_away() {
        let (lab, mut guest) = UnixStream::pair().unwrap();
        let agent = Agent::new(lab).unwrap();
        guest.write_all(b"@ready a\n").unwrap();
        assert_eq!(agent.wait_boot(0, SOON), Some(1));
        let job = agent.start("sleep 100").unwrap();
        assert!(matches!(job.wait(Duration::from_millis(10)), Err(Error::Timeout { .. })));
        guest.write_all(b"@ready b\n").unwrap();
        assert!(matches!(job.wait(SOON), Err(Error::Ended { .. })));
        let job = agent.start("true").unwrap();
        drop(guest);
        assert!(matches!(job.wait(SOON), Err(Error::Ended { .. })));
    }
}
