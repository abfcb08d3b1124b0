//! `etherslot events`: what happens to a node, as it happens.

use std::io::{self, Write as _, stdout};
use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Result, bail};
use clap::Args;
use etherslot_runtime::control::{self, AskError, Following};
use etherslot_runtime::events::{DeviceChange, Event, NodeChange, Record, SessionChange, SlotChange};

use crate::stat::{Output, socket_of};

#[derive(Args)]
pub(crate) struct Events {
    /// A node's name, or the path of its control socket; by default the first one of this user on this machine.
    #[arg(value_name = "NODE-OR-SOCKET")]
    node: Option<String>,
    /// Tell all counters as often as that, as in 1s.
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    every: Option<Duration>,
    /// How to print: json is one object on a line for each record, beginning with a snapshot of everything.
    #[arg(long, value_enum, default_value_t, value_name = "FORM")]
    output: Output,
}

impl Events {
    pub(crate) fn run(self) -> Result<()> {
        if self.every.is_some() && self.output == Output::Text {
            bail!(
                "--every is for programs: it needs --output json; `etherslot stat --watch` shows counters to people"
            );
        }
        let mut has_stopped = false;
        for line in self.follow()? {
            let line = line?;
            let record: Record = serde_json::from_str(&line)?;
            has_stopped = record.event == Event::Stopping;
            let text = match self.output {
                Output::Json => Some(line),
                Output::Text => shown(&record),
            };
            let Some(text) = text else { continue };
            let mut out = stdout().lock();
            match writeln!(out, "{text}").and_then(|()| out.flush()) {
                // Who has read enough, as `head` does.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
                written => written?,
            }
        }
        if !has_stopped {
            bail!("the node has gone, and has not said why: it was killed, or this listener was cut off");
        }
        Ok(())
    }

    fn follow(&self) -> Result<Following> {
        let every_ms = self.every.map(|every| u64::try_from(every.as_millis()).unwrap_or(u64::MAX));
        let sockets: Vec<PathBuf> = match &self.node {
            Some(node) => return Ok(control::follow(&socket_of(node)?, every_ms)?),
            None => control::sockets(),
        };
        for socket in sockets {
            match control::follow(&socket, every_ms) {
                // Left by one that was killed.
                Err(AskError::NoNode(_)) => {}
                followed => return Ok(followed?),
            }
        }
        bail!("no node of this user runs here: start one, or name its socket")
    }
}

/// A record for people; counters are for programs.
fn shown(record: &Record) -> Option<String> {
    let what = match &record.event {
        Event::Snapshot { stat, ls, .. } => {
            let nodes = ls.as_ref().map_or(0, |ls| ls.nodes.len());
            format!(
                "{} listened to: {} sessions, {nodes} nodes in its fabric",
                stat.name,
                stat.sessions.len()
            )
        }
        Event::Counters { .. } => return None,
        Event::Lost { records } => format!("{records} records were lost: this listener was too slow"),
        Event::Node { node, what, .. } => {
            let what = match what {
                NodeChange::Up => "is up",
                NodeChange::Restarted => "was started again",
                NodeChange::Down => "is silent",
                NodeChange::Left => "has stopped",
            };
            format!("node {node} {what}")
        }
        Event::Device { r#box, device, what, state, owner, epoch } => {
            let owner = owner.as_deref().unwrap_or("nobody");
            let what = match what {
                DeviceChange::Found => format!("is there: {state}, owner {owner}"),
                DeviceChange::Assigned => format!("is {owner}'s"),
                DeviceChange::Released => "is free".to_owned(),
                DeviceChange::Kept => format!("is kept for {owner}, who is out of reach"),
                DeviceChange::Changed => format!("has changed: {state}, owner {owner}"),
            };
            format!("device {box}/{device} {what}, lease epoch {epoch}")
        }
        Event::Session { peer, what: SessionChange::Up, .. } => format!("session with {peer} is up"),
        Event::Session { peer, what: SessionChange::Dead, why } => {
            format!("session with {peer} is over: {}", why.as_deref().unwrap_or("it is not said why"))
        }
        Event::Slot { slot, device, what } => {
            let what = match what {
                SlotChange::Attached => "is attached",
                SlotChange::Detached => "is away",
                SlotChange::Plugged => "is in the guest",
                SlotChange::Unplugged => "is not in the guest",
            };
            format!("slot {slot}: {device} {what}")
        }
        Event::Guest { slot, device, is_connected } => {
            let what = if *is_connected { "a guest has come" } else { "the guest has gone" };
            format!("slot {slot} of {device}: {what}")
        }
        Event::Link { link, interface, is_up } => {
            format!("link {link}: {interface} is {}", if *is_up { "up" } else { "down" })
        }
        Event::Stopping => "the node stops".to_owned(),
    };
    let time = UNIX_EPOCH + Duration::from_millis(record.time_ms);
    Some(format!("{}  {what}", humantime::format_rfc3339_millis(time)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The lines of the documentation, which users build on.
    fn documented() -> Vec<String> {
        let text = include_str!("../../../docs/operations.md");
        let (_, rest) = text.split_once("```json\n").unwrap();
        let (lines, _) = rest.split_once("```").unwrap();
        lines.lines().map(str::to_owned).collect()
    }

    #[test]
    fn the_records_of_the_documentation_are_such_and_all_kinds_are_there() {
        let mut kinds = BTreeSet::new();
        for line in documented() {
            let record: Record =
                serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
            let again: serde_json::Value = serde_json::to_value(&record).unwrap();
            let told: serde_json::Value = serde_json::from_str(&line).unwrap();
            assert_eq!(again["event"], told["event"]);
            for key in told.as_object().unwrap().keys() {
                assert!(again.get(key).is_some(), "{key} is no key of such a record: {line}");
            }
            kinds.insert(told["event"].as_str().unwrap().to_owned());
        }
        let all = [
            "counters", "device", "guest", "link", "lost", "node", "session", "slot", "snapshot", "stopping",
        ];
        assert_eq!(kinds.into_iter().collect::<Vec<_>>(), all);
    }

    #[test]
    fn a_record_is_a_line_for_people() {
        let of = |words: &str| {
            let lines = documented().into_iter();
            let shown = lines.filter_map(|line| shown(&serde_json::from_str(&line).unwrap()));
            shown.into_iter().find(|line| line.contains(words)).unwrap_or_else(|| panic!("no {words}"))
        };
        assert!(of("session with").starts_with("20"), "{}", of("session with"));
        of("device box-1/disk0 is host-b's, lease epoch 6");
        of("node box-1 is silent");
    }
}
