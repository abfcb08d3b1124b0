//! Capture files, and what tshark makes of them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use etherslot_lab::{Run, write_pcap};

/// Between several values of one field; no value has it.
const AGGREGATOR: char = '\u{1}';

/// How frames are packed into a capture file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    /// `EtherType` 0x88B5.
    Ethernet,
    /// IPv4 and UDP, to this port.
    Udp(u16),
}

/// A capture file of these payloads.
pub(crate) fn write<'a>(path: &Path, frames: impl IntoIterator<Item = (Link, &'a [u8])>) {
    let whole = |(link, payload): (Link, &[u8])| [&header(link, payload.len())[..], payload].concat();
    let frames: Vec<Vec<u8>> = frames.into_iter().map(whole).collect();
    write_pcap(path, frames.iter().map(Vec::as_slice)).unwrap();
}

fn header(link: Link, payload: usize) -> Vec<u8> {
    let mut header = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    match link {
        Link::Ethernet => header.extend_from_slice(&etherslot_wire::frame::ETHERTYPE.to_be_bytes()),
        Link::Udp(port) => {
            header.extend_from_slice(&[8, 0, 0x45, 0]);
            header.extend_from_slice(&(payload as u16 + 28).to_be_bytes());
            // Don't Fragment, 64 hops, UDP, no checksum, 10.0.0.1 to 10.0.0.2.
            header.extend_from_slice(&[0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
            for half in [40_000, port, payload as u16 + 8, 0] {
                header.extend_from_slice(&half.to_be_bytes());
            }
        }
    }
    header
}

/// What tshark says of one frame: the values of each field that was asked for.
#[derive(Debug)]
pub(crate) struct Row(HashMap<String, Vec<String>>);

impl Row {
    /// All values of a field.
    pub(crate) fn all(&self, field: &str) -> &[String] {
        self.0.get(field).unwrap_or_else(|| panic!("{field} was not asked for"))
    }

    pub(crate) fn has(&self, field: &str) -> bool {
        !self.all(field).is_empty()
    }

    /// The first value of a field, a number in decimal or hexadecimal, or a flag.
    pub(crate) fn number(&self, field: &str) -> Option<u64> {
        self.all(field).first().map(|value| number(value))
    }

    pub(crate) fn numbers(&self, field: &str) -> Vec<u64> {
        self.all(field).iter().map(|value| number(value)).collect()
    }

    pub(crate) fn text(&self, field: &str) -> &str {
        self.all(field).first().map_or("", String::as_str)
    }
}

fn number(value: &str) -> u64 {
    match value {
        "True" => 1,
        "False" => 0,
        hex if hex.starts_with("0x") => u64::from_str_radix(&hex[2..], 16).unwrap(),
        decimal => decimal.parse().unwrap_or_else(|_| panic!("{decimal:?} is no number")),
    }
}

/// The folder of the dissector.
pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../wireshark")
}

/// Reads a capture with the dissector of this checkout and no other; a row for each frame. Two passes, as in Wireshark, so that
/// a Request knows its Completion.
pub(crate) fn read(run: &Run, capture: &Path, preferences: &[&str], fields: &[&str]) -> Vec<Row> {
    let mut command = Command::new("tshark");
    // Neither the user's configuration nor plugins that may be installed already.
    command.env("HOME", run.folder()).env("XDG_CONFIG_HOME", run.folder());
    command.arg("-X").arg(format!("lua_script:{}", folder().join("etherslot.lua").display()));
    for preference in preferences {
        command.args(["-o", preference]);
    }
    command.args(["-n", "-2", "-T", "fields", "-E", "separator=/t", "-E", "occurrence=a"]);
    command.arg("-E").arg(format!("aggregator={AGGREGATOR}"));
    for field in fields {
        command.args(["-e", field]);
    }
    let output = command.arg("-r").arg(capture).output().unwrap();
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !complaints.contains("ua:"), "{complaints}");
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().map(|line| row(line, fields)).collect()
}

fn row(line: &str, fields: &[&str]) -> Row {
    let values = line.split('\t').map(|values| {
        values.split(AGGREGATOR).filter(|value| !value.is_empty()).map(str::to_owned).collect()
    });
    Row(fields.iter().map(|&field| field.to_owned()).zip(values).collect())
}
