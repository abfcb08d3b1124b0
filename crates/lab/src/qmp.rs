//! A client of QEMU's monitor (QMP): commands in turn, events kept until they are asked for.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use crate::error::{Error, Result};

/// A device under QEMU's big lock may hold the monitor up for as long as a daemon holds up the device.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Old events go when nobody asks for them.
const EVENTS_MAX: usize = 1024;

/// Something that QEMU reports by itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// QMP's name, such as `DEVICE_DELETED`.
    pub name: String,
    /// What comes with it.
    pub data: Value,
}

/// A connection to QEMU's monitor.
#[derive(Debug)]
pub struct Qmp {
    reader: BufReader<UnixStream>,
    writer: UnixStream,
    /// Part of a line, if a time-out cut it.
    pending: Vec<u8>,
    events: VecDeque<Event>,
}

impl Qmp {
    /// Takes over a fresh connection and leaves the negotiation mode.
    pub(crate) fn new(stream: UnixStream) -> Result<Self> {
        let writer = stream.try_clone().map_err(Error::io("clone the monitor's socket"))?;
        let mut qmp =
            Self { reader: BufReader::new(stream), writer, pending: Vec::new(), events: VecDeque::new() };
        let greeting = qmp.message(Instant::now() + ANSWER_TIMEOUT)?;
        if greeting.as_ref().is_none_or(|greeting| greeting["QMP"].is_null()) {
            return Err(Error::unexpected("greeting of QEMU's monitor", format!("{greeting:?}")));
        }
        qmp.execute("qmp_capabilities", &json!({}))?;
        Ok(qmp)
    }

    /// Runs a command; its return value, or QEMU's error.
    pub fn execute(&mut self, command: &str, arguments: &Value) -> Result<Value> {
        let request = json!({ "execute": command, "arguments": arguments });
        writeln!(self.writer, "{request}").map_err(Error::io(format!("send {command} to QEMU")))?;
        let deadline = Instant::now() + ANSWER_TIMEOUT;
        loop {
            let Some(mut message) = self.message(deadline)? else {
                return Err(Error::Timeout {
                    what: format!("QEMU's answer to {command}"),
                    after: ANSWER_TIMEOUT,
                    evidence: String::new(),
                });
            };
            if let Some(value) = message.get_mut("return") {
                return Ok(value.take());
            }
            if let Some(error) = message.get("error") {
                return Err(Error::unexpected(
                    format!("{command} in QEMU"),
                    error["desc"].as_str().unwrap_or("error").to_owned(),
                ));
            }
            self.keep(&message);
        }
    }

    /// Adds a device: `driver`, `id`, `bus` and whatever else it takes.
    pub fn device_add(&mut self, properties: &Map<String, Value>) -> Result<()> {
        self.execute("device_add", &Value::Object(properties.clone())).map(drop)
    }

    /// Asks the guest to give a device back; `DEVICE_DELETED` tells when it has.
    pub fn device_del(&mut self, id: &str) -> Result<()> {
        self.execute("device_del", &json!({ "id": id })).map(drop)
    }

    /// Ends QEMU at once.
    pub fn quit(&mut self) -> Result<()> {
        self.execute("quit", &json!({})).map(drop)
    }

    /// The next event that `wanted` accepts, those kept first; `None` after `timeout`. Events before it are dropped.
    pub fn wait_event(
        &mut self,
        timeout: Duration,
        wanted: impl Fn(&Event) -> bool,
    ) -> Result<Option<Event>> {
        let deadline = Instant::now() + timeout;
        loop {
            while let Some(event) = self.events.pop_front() {
                if wanted(&event) {
                    return Ok(Some(event));
                }
            }
            match self.message(deadline)? {
                Some(message) => self.keep(&message),
                None => return Ok(None),
            }
        }
    }

    fn keep(&mut self, message: &Value) {
        if let Some(name) = message["event"].as_str() {
            if self.events.len() == EVENTS_MAX {
                self.events.pop_front();
            }
            self.events.push_back(Event { name: name.to_owned(), data: message["data"].clone() });
        }
    }

    /// The next message; `None` at the deadline.
    fn message(&mut self, deadline: Instant) -> Result<Option<Value>> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
            self.reader
                .get_ref()
                .set_read_timeout(Some(left))
                .map_err(Error::io("set a time-out on QEMU's monitor"))?;
            match self.reader.read_until(b'\n', &mut self.pending) {
                Ok(0) => {
                    return Err(Error::Ended { what: "QEMU's monitor".to_owned(), evidence: String::new() });
                }
                Ok(_) if !self.pending.ends_with(b"\n") => {}
                Ok(_) => {
                    let line = std::mem::take(&mut self.pending);
                    return serde_json::from_slice(&line)
                        .map(Some)
                        .map_err(|error| Error::unexpected("read from QEMU's monitor", error.to_string()));
                }
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    if Instant::now() >= deadline {
                        return Ok(None);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::io("read from QEMU's monitor")(error)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn events_between_command_and_answer_are_kept_in_order() {
        let (ours, qemus) = UnixStream::pair().unwrap();
        let monitor = thread::spawn(move || {
            let mut lines = BufReader::new(qemus.try_clone().unwrap()).lines();
            let mut out = qemus;
            writeln!(out, r#"{{"QMP":{{"version":{{}}}}}}"#).unwrap();
            assert!(lines.next().unwrap().unwrap().contains("qmp_capabilities"));
            writeln!(out, r#"{{"return":{{}}}}"#).unwrap();
            assert!(lines.next().unwrap().unwrap().contains("device_del"));
            writeln!(out, r#"{{"event":"A","data":{{}}}}"#).unwrap();
            writeln!(out, r#"{{"event":"DEVICE_DELETED","data":{{"device":"d0"}}}}"#).unwrap();
            writeln!(out, r#"{{"return":{{}}}}"#).unwrap();
            assert!(lines.next().unwrap().unwrap().contains("\"x\""));
            writeln!(out, r#"{{"error":{{"class":"GenericError","desc":"no such thing"}}}}"#).unwrap();
        });
        let mut qmp = Qmp::new(ours).unwrap();
        qmp.device_del("d0").unwrap();
        let error = qmp.execute("x", &json!({})).unwrap_err();
        assert!(error.to_string().contains("no such thing"));
        let event =
            qmp.wait_event(Duration::from_secs(5), |event| event.name == "DEVICE_DELETED").unwrap().unwrap();
        assert_eq!(event.data["device"], "d0");
        monitor.join().unwrap();
        assert!(qmp.wait_event(Duration::from_millis(1), |_| true).is_err(), "the monitor has gone");
    }
}
