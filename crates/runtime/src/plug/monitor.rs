//! A client of a QEMU's monitor (QMP) that is never waited for: commands leave, answers and events come, between two rounds of
//! the poll loop. It connects by itself, again and again: a QEMU comes and goes as it likes.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use serde_json::{Value, json};

use crate::sleeper::Sleeper;

/// While the loop does not sleep, and so is not woken, the socket is looked at this often.
const LOOK_NS: u64 = 1_000_000;
/// After a QEMU was not there, or went.
const RETRY_NS: u64 = 500_000_000;
/// A monitor that did not greet by then talks to somebody else.
const GREETING_NS: u64 = 5_000_000_000;
/// The longest line; QEMU's answers to what is asked here are much shorter.
const LINE_BYTES: usize = 1 << 20;

/// What comes from a QEMU.
#[derive(Debug)]
pub(super) enum Word {
    /// It takes commands from now on.
    Ready,
    /// The answer to the command of this number: what it returns, or why it was not done.
    Answer(u64, Result<Value, Refusal>),
    /// Something has happened.
    Event(Event),
    /// It is gone.
    Gone,
}

/// What QEMU reports by itself about a device.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Event {
    /// QMP's name, such as `DEVICE_DELETED`.
    pub(super) name: String,
    /// The device's ID.
    pub(super) device: String,
}

/// Why QEMU did not do something.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    /// QMP's class of errors, such as `DeviceNotFound`.
    pub(super) class: String,
    /// In words.
    pub(super) text: String,
}

#[derive(Debug)]
struct Connection {
    stream: UnixStream,
    inbound: Vec<u8>,
    outbound: Vec<u8>,
    is_ready: bool,
    /// When it has to have greeted.
    greets_by_ns: u64,
}

/// A monitor's socket, and the connection to it if there is one.
#[derive(Debug)]
pub(super) struct Monitor {
    path: PathBuf,
    connection: Option<Connection>,
    retry_ns: u64,
    look_ns: u64,
    /// It has been said that the monitor does not answer.
    has_complained: bool,
}

impl Monitor {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, connection: None, retry_ns: 0, look_ns: 0, has_complained: false }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether commands are taken.
    pub(super) fn is_ready(&self) -> bool {
        self.connection.as_ref().is_some_and(|connection| connection.is_ready)
    }

    /// Whether nobody is at its socket.
    pub(super) fn is_absent(&self) -> bool {
        self.connection.is_none()
    }

    /// When [`Monitor::poll`] has something to do if nothing comes.
    pub(super) fn deadline_ns(&self) -> Option<u64> {
        match &self.connection {
            None => Some(self.retry_ns),
            Some(connection) => (!connection.is_ready).then_some(connection.greets_by_ns),
        }
    }

    /// Sends a command; its answer comes with `number`. Not for a monitor that is not ready.
    pub(super) fn execute(&mut self, number: u64, command: &str, arguments: &Value) {
        if let Some(connection) = &mut self.connection {
            connection.say(&json!({ "execute": command, "arguments": arguments, "id": number }));
        }
    }

    /// Goes on, and hands over what came. True if something did.
    pub(super) fn poll(&mut self, now_ns: u64, sleeper: &Sleeper, heard: &mut dyn FnMut(Word)) -> bool {
        if now_ns < self.look_ns {
            return false;
        }
        self.look_ns = now_ns + LOOK_NS;
        let Some(connection) = &mut self.connection else {
            if now_ns >= self.retry_ns {
                self.retry_ns = now_ns + RETRY_NS;
                self.connect(now_ns, sleeper);
            }
            return false;
        };
        let was_ready = connection.is_ready;
        let outcome = connection.go_on(heard);
        if connection.is_ready && !was_ready {
            self.has_complained = false;
            tracing::info!(monitor = %self.path.display(), "QEMU's monitor is there");
        }
        let is_mute = !connection.is_ready && now_ns >= connection.greets_by_ns;
        if is_mute && !std::mem::replace(&mut self.has_complained, true) {
            tracing::warn!(
                monitor = %self.path.display(),
                "QEMU's monitor does not answer: it serves one client at a time; give this daemon one of its own"
            );
        }
        match outcome {
            Ok(progress) if !is_mute => progress,
            outcome => {
                if let Err(error) = outcome {
                    tracing::info!(monitor = %self.path.display(), %error, "QEMU's monitor is gone");
                }
                self.connection = None;
                self.retry_ns = now_ns + RETRY_NS;
                heard(Word::Gone);
                true
            }
        }
    }

    fn connect(&mut self, now_ns: u64, sleeper: &Sleeper) {
        let Ok(stream) = dial(&self.path) else { return };
        if sleeper.watch(stream.as_fd()).is_ok() {
            self.connection = Some(Connection {
                stream: stream.into(),
                inbound: Vec::new(),
                outbound: Vec::new(),
                is_ready: false,
                greets_by_ns: now_ns + GREETING_NS,
            });
        }
    }
}

/// Connects without waiting for a monitor whose backlog is full.
fn dial(path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

impl Connection {
    fn say(&mut self, message: &Value) {
        self.outbound.extend_from_slice(message.to_string().as_bytes());
        self.outbound.push(b'\n');
    }

    fn go_on(&mut self, heard: &mut dyn FnMut(Word)) -> io::Result<bool> {
        let mut progress = false;
        let mut room = [0; 4096];
        loop {
            match self.stream.read(&mut room) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(bytes) => {
                    progress = true;
                    self.inbound.extend_from_slice(&room[..bytes]);
                    if self.inbound.len() > LINE_BYTES {
                        return Err(io::Error::other("a line without end"));
                    }
                    self.hear(heard)?;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        while !self.outbound.is_empty() {
            match self.stream.write(&self.outbound) {
                Ok(bytes) => drop(self.outbound.drain(..bytes)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(progress)
    }

    /// Takes the lines that are whole.
    fn hear(&mut self, heard: &mut dyn FnMut(Word)) -> io::Result<()> {
        while let Some(end) = self.inbound.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = self.inbound.drain(..=end).collect();
            let mut message: Value = serde_json::from_slice(&line)?;
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            if !message["QMP"].is_null() {
                self.say(&json!({ "execute": "qmp_capabilities" }));
            } else if !message["event"].is_null() {
                let (name, device) = (text(&message["event"]), text(&message["data"]["device"]));
                heard(Word::Event(Event { name, device }));
            } else if let Some(number) = message["id"].as_u64() {
                let answer = if let Some(value) = message.get_mut("return") {
                    Ok(value.take())
                } else {
                    let error = &message["error"];
                    Err(Refusal { class: text(&error["class"]), text: text(&error["desc"]) })
                };
                heard(Word::Answer(number, answer));
            } else if !self.is_ready && message.get("return").is_some() {
                self.is_ready = true;
                heard(Word::Ready);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::os::unix::net::UnixListener;
    use std::time::Duration;

    use super::*;

    /// Polls until `count` words have come.
    fn words(monitor: &mut Monitor, now_ns: &mut u64, count: usize) -> Vec<Word> {
        let sleeper = Sleeper::new(Some(Duration::ZERO)).unwrap();
        let mut words = Vec::new();
        for _ in 0..20_000 {
            *now_ns += LOOK_NS;
            monitor.poll(*now_ns, &sleeper, &mut |word| words.push(word));
            if words.len() >= count {
                return words;
            }
            std::thread::yield_now();
        }
        panic!("only {words:?} came");
    }

    #[test]
    fn answers_and_events_come_and_a_monitor_that_went_is_found_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("qmp");
        let listener = UnixListener::bind(&path).unwrap();
        let mut monitor = Monitor::new(path);
        let mut now_ns = 0;
        for _ in 0..2 {
            monitor.poll(now_ns, &Sleeper::new(None).unwrap(), &mut |word| panic!("{word:?}"));
            let (mut qemu, _) = listener.accept().unwrap();
            let mut lines = BufReader::new(qemu.try_clone().unwrap()).lines();
            qemu.write_all(b"{\"QMP\": {\"version\": {}}}\n{\"event\": \"RESUME\"}\n").unwrap();
            assert!(
                matches!(&words(&mut monitor, &mut now_ns, 1)[..], [Word::Event(event)] if event.name == "RESUME")
            );
            assert!(lines.next().unwrap().unwrap().contains("qmp_capabilities"));
            assert!(!monitor.is_ready());
            qemu.write_all(b"{\"return\": {}}\n").unwrap();
            assert!(matches!(words(&mut monitor, &mut now_ns, 1)[..], [Word::Ready]));
            monitor.execute(7, "device_del", &json!({ "id": "d" }));
            monitor.execute(8, "device_del", &json!({ "id": "e" }));
            now_ns += LOOK_NS;
            monitor.poll(now_ns, &Sleeper::new(None).unwrap(), &mut |word| panic!("{word:?}"));
            for id in ["d", "e"] {
                let asked: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
                assert_eq!(
                    (&asked["execute"], &asked["arguments"]["id"]),
                    (&json!("device_del"), &json!(id))
                );
            }
            // Lines come in any pieces.
            qemu.write_all(b"{\"return\": {}, \"id\": 7}\n{\"event\": \"DEVICE_DEL").unwrap();
            assert!(matches!(words(&mut monitor, &mut now_ns, 1)[..], [Word::Answer(7, Ok(_))]));
            qemu.write_all(b"ETED\", \"data\": {\"device\": \"d\"}}\n").unwrap();
            let deleted = Event { name: "DEVICE_DELETED".to_owned(), device: "d".to_owned() };
            assert!(
                matches!(&words(&mut monitor, &mut now_ns, 1)[..], [Word::Event(event)] if *event == deleted)
            );
            let refusal = br#"{"error": {"class": "DeviceNotFound", "desc": "no e"}, "id": 8}"#;
            qemu.write_all(&[&refusal[..], b"\n"].concat()).unwrap();
            let words_8 = words(&mut monitor, &mut now_ns, 1);
            assert!(
                matches!(&words_8[..], [Word::Answer(8, Err(why))] if why.class == "DeviceNotFound" && why.text == "no e")
            );
            drop((qemu, lines));
            assert!(matches!(words(&mut monitor, &mut now_ns, 1)[..], [Word::Gone]));
            assert!(!monitor.is_ready());
            now_ns += RETRY_NS;
        }
    }

    #[test]
    fn what_is_no_monitor_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("qmp");
        let listener = UnixListener::bind(&path).unwrap();
        let mut monitor = Monitor::new(path);
        let mut now_ns = 0;
        for said in [&b"SSH-2.0\n"[..], &vec![b'x'; LINE_BYTES + 1]] {
            monitor.poll(now_ns, &Sleeper::new(None).unwrap(), &mut |word| panic!("{word:?}"));
            let (mut other, _) = listener.accept().unwrap();
            let said = said.to_vec();
            let talk = std::thread::spawn(move || drop(other.write_all(&said)));
            assert!(matches!(words(&mut monitor, &mut now_ns, 1)[..], [Word::Gone]));
            talk.join().unwrap();
            now_ns += RETRY_NS;
        }
        // One that serves somebody else says nothing.
        monitor.poll(now_ns, &Sleeper::new(None).unwrap(), &mut |word| panic!("{word:?}"));
        now_ns += GREETING_NS;
        assert!(matches!(words(&mut monitor, &mut now_ns, 1)[..], [Word::Gone]));
    }
}
