//! `etherslot stat`: what running nodes of this machine count.

use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _, stdout};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueEnum};
use etherslot_runtime::Counted;
use etherslot_runtime::control::{self, AskError, Request};
use etherslot_runtime::stat::{NodeStat, PathStat, Protection, Role, SessionStat, SlotStat};

use crate::security::RED;
use crate::units;

const LINE_WIDTH: usize = 100;
/// Red on a terminal.
const PLAINTEXT: &str = "PLAINTEXT";
/// Moves to the upper left of a terminal and clears what is below.
const CLEAR: &str = "\x1b[H\x1b[J";

/// How a command prints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For people.
    #[default]
    Text,
    /// For programs: one object on a line.
    Json,
}

#[derive(Args)]
pub(crate) struct Stat {
    /// A node's name, or the path of its control socket; all nodes that run here if none is given.
    #[arg(value_name = "NODE-OR-SOCKET")]
    node: Option<String>,
    /// How to print: json is one object a node on a line of its own.
    #[arg(long, value_enum, default_value_t, value_name = "FORM")]
    output: Output,
    /// Print again every so many seconds, with the rates since the last time.
    #[arg(long, value_name = "SECONDS", value_parser = interval)]
    watch: Option<Duration>,
}

fn interval(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.1..=86_400.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "write a number of seconds, 0.1 or more".to_owned())
}

impl Stat {
    pub(crate) fn run(self) -> Result<()> {
        let mut earlier: Vec<NodeStat> = Vec::new();
        loop {
            let now = self.ask()?;
            let mut text = String::new();
            for stat in &now {
                match self.output {
                    Output::Json => writeln!(text, "{}", serde_json::to_string(stat)?)?,
                    Output::Text => {
                        let before = earlier.iter().find(|before| is_same_life(before, stat));
                        text.push_str(&show(stat, before));
                        text.push('\n');
                    }
                }
            }
            if stdout().is_terminal() && self.output == Output::Text {
                let [red, back] = RED;
                text = text.replace(PLAINTEXT, &format!("{red}{PLAINTEXT}{back}"));
            }
            let clears = self.watch.is_some() && self.output == Output::Text && stdout().is_terminal();
            let mut out = stdout().lock();
            write!(out, "{}{text}", if clears { CLEAR } else { "" })?;
            out.flush()?;
            let Some(interval) = self.watch else { return Ok(()) };
            earlier = now;
            thread::sleep(interval);
        }
    }

    fn ask(&self) -> Result<Vec<NodeStat>> {
        if let Some(node) = &self.node {
            return Ok(vec![control::ask(&socket_of(node)?, &Request::Stat {})?]);
        }
        let (mut found, mut dead) = (Vec::new(), Vec::new());
        for path in control::sockets() {
            match control::ask(&path, &Request::Stat {}) {
                Ok(stat) => found.push(stat),
                Err(AskError::NoNode(path)) => dead.push(path),
                Err(error) => return Err(error.into()),
            }
        }
        if found.is_empty() {
            bail!("{}", control::nobody(&dead));
        }
        Ok(found)
    }
}

/// A path has a slash; anything else is the name of a node that runs on this machine.
pub(crate) fn socket_of(node: &str) -> Result<PathBuf> {
    if node.contains('/') {
        return Ok(PathBuf::from(node));
    }
    let folder =
        control::folder().context("XDG_RUNTIME_DIR is not set: name the path of the node's socket")?;
    let socket = folder.join(control::file_name(node));
    if socket.exists() {
        return Ok(socket);
    }
    let is_there = |path: &PathBuf| control::ask::<NodeStat>(path, &Request::Stat {}).ok();
    let names: Vec<String> = control::sockets().iter().filter_map(is_there).map(|stat| stat.name).collect();
    let others =
        if names.is_empty() { "none does".to_owned() } else { format!("there are {}", names.join(", ")) };
    bail!("no node called {node:?} runs here: {others}; one with a [node] control is named by that path")
}

/// Whether the counters of `now` go on from those of `before`.
fn is_same_life(before: &NodeStat, now: &NodeStat) -> bool {
    before.name == now.name && before.role == now.role && before.uptime_ns < now.uptime_ns
}

/// Everything of a node, with rates if it was asked `before`.
pub(crate) fn show(stat: &NodeStat, before: Option<&NodeStat>) -> String {
    let NodeStat {
        name,
        role,
        version,
        uptime_ns,
        address,
        security,
        notices,
        counters,
        port,
        links,
        sessions,
        slots,
        devices,
        peers: _,
        fabric,
        leases,
    } = stat;
    let seconds = before.map_or(0.0, |before| (uptime_ns - before.uptime_ns) as f64 / 1e9);
    let role = match role {
        Role::Box => "box",
        Role::Host => "host",
        Role::Export => "export",
    };
    let mut text =
        format!("{role} {name}   {address}   up {}   etherslot {version}\n", units::uptime(*uptime_ns));
    let key = security.public_key.as_deref().unwrap_or_default();
    let _ = match security.protection {
        Protection::Keys => writeln!(text, "  public key {key}"),
        Protection::Plaintext => writeln!(text, "  {PLAINTEXT}: whoever reaches the link can use everything"),
        Protection::Memory => writeln!(text, "  without keys, over memory of this user"),
    };
    for notice in notices {
        let _ = writeln!(text, "  WRONG: {notice}");
    }
    table(&mut text, "node", counters, before.map(|before| (&before.counters, seconds)));
    if security.protection == Protection::Keys {
        let before = before.map(|before| (&before.security.counters, seconds));
        table(&mut text, "security", &security.counters, before);
    }
    if let [_, _, ..] = links.as_slice() {
        for (number, link) in links.iter().enumerate() {
            let before = before.and_then(|before| Some((&before.links.get(number)?.counters, seconds)));
            table(&mut text, &format!("link {number}, {}", link.address), &link.counters, before);
        }
    } else {
        table(&mut text, "link", port, before.map(|before| (&before.port, seconds)));
    }
    for session in sessions {
        let before =
            before.and_then(|before| before.sessions.iter().find(|known| known.peer == session.peer));
        show_session(&mut text, session, before.map(|before| (before, seconds)));
    }
    for device in devices {
        let before = before.and_then(|before| before.devices.iter().find(|known| known.name == device.name));
        let before = before.map(|before| (&before.counters, seconds));
        let owner = device.owner.as_deref().map(|owner| format!(" by {owner}")).unwrap_or_default();
        let title = format!("device {}: {}{owner}, lease epoch {}", device.name, device.state, device.epoch);
        table(&mut text, &title, &device.counters, before);
    }
    for slot in slots {
        let before = before.and_then(|before| before.slots.iter().find(|known| known.device == slot.device));
        let before = before.map(|before| (&before.counters, seconds));
        table(&mut text, &format!("slot of {}: {}", slot.device, where_it_is(slot)), &slot.counters, before);
    }
    if let Some(counters) = fabric {
        let before = before.and_then(|before| Some((before.fabric.as_ref()?, seconds)));
        table(&mut text, "fabric", counters, before);
    }
    if let Some(counters) = leases {
        let before = before.and_then(|before| Some((before.leases.as_ref()?, seconds)));
        table(&mut text, "leases", counters, before);
    }
    text
}

/// Where a slot's device is.
fn where_it_is(slot: &SlotStat) -> String {
    let guest = slot.guest.as_deref().map(|stage| match stage {
        "in" => "in the guest".to_owned(),
        "out" => "not in the guest".to_owned(),
        "entering" | "leaving" => format!("{stage} the guest"),
        stage => stage.to_owned(),
    });
    let attached = if slot.is_attached { "attached" } else { "not attached" };
    [Some(attached.to_owned()), guest, slot.refusal.clone()]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join(", ")
}

/// A session, with rates if it was known so many seconds earlier.
pub(crate) fn show_session(text: &mut String, session: &SessionStat, before: Option<(&SessionStat, f64)>) {
    let SessionStat {
        peer,
        peer_key,
        cipher,
        state,
        mode,
        frame_bytes,
        unacked_frames,
        gauges,
        counters,
        paths,
        hierarchy,
        ..
    } = session;
    // A session that came after another to the same peer counts from 0 again.
    let goes_on = |(before, _): &(&SessionStat, f64)| {
        before.counters.iter().all(|(name, value)| counters.get(name).is_none_or(|now| now >= value))
    };
    let before = before.filter(goes_on);
    let _ = writeln!(
        text,
        "  session with {peer}: {state}, {mode}, frames of {frame_bytes} B, {unacked_frames} on their way"
    );
    if let (Some(key), Some(cipher)) = (peer_key, cipher) {
        let _ = writeln!(text, "    {cipher}, public key {key}");
    }
    let _ = writeln!(text, "    {}", show_gauges(gauges));
    for (index, PathStat { is_up, gauges, counters }) in paths.iter().enumerate() {
        let state = if *is_up { "up" } else { "down" };
        let _ = writeln!(text, "    path {index}: {state}, {}, {counters}", show_gauges(gauges));
    }
    table(text, "counters", counters, before.map(|(before, seconds)| (&before.counters, seconds)));
    if let Some(hierarchy) = hierarchy {
        let before = before.and_then(|(before, seconds)| Some((before.hierarchy.as_ref()?, seconds)));
        table(text, "hierarchy", hierarchy, before);
    }
}

fn show_gauges(gauges: &Counted) -> String {
    let shown = gauges.iter();
    let shown: Vec<String> = shown
        .map(|(name, value)| format!("{} {}", units::gauge_name(name), units::gauge(name, value)))
        .collect();
    shown.join(", ")
}

/// What is not 0 in lines of its own, the names of the rest behind them.
fn table(text: &mut String, title: &str, counters: &Counted, before: Option<(&Counted, f64)>) {
    let width = counters.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let _ = match before {
        Some(_) => writeln!(text, "  {title:w$}  {:>18}  {:>12}", "in all", "a second", w = width + 2),
        None => writeln!(text, "  {title}"),
    };
    for (name, value) in counters.iter().filter(|(_, value)| *value != 0) {
        let _ = write!(text, "    {name:width$}  {:>18}", units::count(name, value));
        if let Some((before, seconds)) = before {
            let grown = value.saturating_sub(before.get(name).unwrap_or(0)) as f64 / seconds.max(1e-9);
            let _ = write!(text, "  {:>12}", units::growth(name, grown));
        }
        text.push('\n');
    }
    let mut line = "    0:".to_owned();
    for (name, _) in counters.iter().filter(|(_, value)| *value == 0) {
        if line.len() + 1 + name.len() > LINE_WIDTH {
            let _ = writeln!(text, "{line}");
            line = " ".repeat(6);
        }
        let _ = write!(line, " {name}");
    }
    if line.trim() != "0:" && !line.trim().is_empty() {
        let _ = writeln!(text, "{line}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherslot_runtime::stat::SecurityStat;
    use etherslot_session::Counters;

    /// A node as it would answer.
    fn stat(uptime_ns: u64, frames: u64) -> NodeStat {
        let named = |gauges: bool| {
            let counters = Counters {
                frames_sent: frames,
                bytes_sent: 1000 * frames,
                srtt_ns: 43_219,
                ..Counters::default()
            };
            let chosen: Vec<_> = counters.named().filter(|named| named.is_gauge == gauges).collect();
            Counted::from(chosen.into_iter().map(|named| (named.name, named.value)))
        };
        NodeStat {
            name: "box".to_owned(),
            role: Role::Box,
            version: "0.1.0".to_owned(),
            uptime_ns,
            address: "02:00:00:00:00:02".to_owned(),
            security: SecurityStat::default(),
            notices: vec!["no box has disk9: there are disk0, disk1".to_owned()],
            counters: Counted::from([("sessions_up", 1), ("sessions_dead", 0)]),
            port: Counted::from([("tx_frames", frames)]),
            sessions: vec![SessionStat {
                peer: "02:00:00:00:00:01".to_owned(),
                peer_node: None,
                peer_key: Some("ab".repeat(32)),
                cipher: Some("AES-256-GCM".to_owned()),
                state: "up".to_owned(),
                mode: "selective".to_owned(),
                frame_bytes: 9000,
                unacked_frames: 3,
                gauges: named(true),
                counters: named(false),
                paths: Vec::new(),
                hierarchy: None,
            }],
            links: Vec::new(),
            slots: Vec::new(),
            devices: Vec::new(),
            peers: Vec::new(),
            fabric: None,
            leases: None,
        }
    }

    #[test]
    fn every_counter_of_a_session_is_named() {
        let text = show(&stat(5_000_000_000, 7), None);
        for named in Counters::default().named().filter(|named| !named.is_gauge) {
            assert!(text.contains(named.name), "{} is missing in\n{text}", named.name);
        }
        assert!(text.contains("srtt 43.2 us"), "{text}");
        assert!(text.contains("WRONG: no box has disk9"), "{text}");
        assert!(text.contains(PLAINTEXT) && text.contains("AES-256-GCM"), "{text}");
        assert!(text.lines().all(|line| line.len() <= LINE_WIDTH + 20), "{text}");
    }

    #[test]
    fn a_slot_says_where_its_device_is() {
        let mut slot = SlotStat {
            device: "disk0".to_owned(),
            is_attached: true,
            guest: Some("in".to_owned()),
            refusal: None,
            counters: Counted::default(),
        };
        let mut stat = stat(1, 0);
        stat.slots = vec![slot.clone()];
        assert!(show(&stat, None).contains("slot of disk0: attached, in the guest"));
        (slot.is_attached, slot.guest) = (false, None);
        slot.refusal = Some("the box has no such device".to_owned());
        assert_eq!(where_it_is(&slot), "not attached, the box has no such device");
    }

    #[test]
    fn rates_are_those_since_the_last_print() {
        let text = show(&stat(7_000_000_000, 2_007), Some(&stat(5_000_000_000, 7)));
        let line = |name: &str| text.lines().find(|line| line.trim_start().starts_with(name)).unwrap();
        assert!(line("tx_frames").ends_with("1.00 k/s"), "{text}");
        assert!(line("bytes_sent").ends_with("8.00 Mbit/s"), "{text}");
        let fresh = show(&stat(7_000_000_000, 5), Some(&stat(5_000_000_000, 700)));
        let frames = fresh.lines().find(|line| line.contains("frames_sent")).unwrap();
        assert!(!frames.contains("/s"), "a new session has no rate yet: {frames}");
    }

    #[test]
    fn a_path_is_a_path_and_a_name_is_that_of_a_node_that_runs_here() {
        assert_eq!(socket_of("./box").unwrap(), PathBuf::from("./box"));
        if control::folder().is_some() {
            let error = socket_of("none of this name").unwrap_err().to_string();
            assert!(error.starts_with("no node called \"none of this name\" runs here"), "{error}");
        }
    }

    #[test]
    fn a_watch_has_an_interval_that_a_node_can_bear() {
        assert_eq!(interval("0.5").unwrap(), Duration::from_millis(500));
        for bad in ["0", "-1", "nan", "1s", ""] {
            assert!(interval(bad).is_err(), "{bad}");
        }
    }
}
