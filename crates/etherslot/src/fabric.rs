//! `etherslot ls`, `assign` and `release`: the fabric, as a node of this machine knows it, and what is to change in it.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::Args;
use etherslot_runtime::control::{self, AskError, Request};
use etherslot_runtime::fabric::view::{
    AssignedView, Beginning, DeviceView, FabricView, NodeState, NodeView, OrderState, OrderView, SessionView,
    To,
};
use etherslot_runtime::options::Group;
use etherslot_runtime::stat::Role;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::stat::{Output, socket_of};
use crate::units;

/// Between two questions how far an order is.
const LOOK: Duration = Duration::from_millis(20);
/// A node that has not said by then what became of an order says nothing any more.
const LATE: Duration = Duration::from_secs(2);

/// To whom a device is assigned that any host may have. A host that is called so is meant by its ID.
const ANYBODY: &str = "anybody";

/// Which node is asked.
#[derive(Args)]
struct Asked {
    /// A node's name, or the path of its control socket; by default the first one of this machine that is in a fabric.
    #[arg(long, value_name = "NODE-OR-SOCKET")]
    node: Option<String>,
    /// How to print: json is one object on a line.
    #[arg(long, value_enum, default_value_t, value_name = "FORM")]
    output: Output,
}

#[derive(Args)]
pub(crate) struct Ls {
    #[command(flatten)]
    asked: Asked,
    /// Show devices below their boxes, and below the hosts that use them.
    #[arg(long)]
    tree: bool,
}

#[derive(Args)]
struct How {
    #[command(flatten)]
    asked: Asked,
    /// Only say what would be done.
    #[arg(long)]
    dry_run: bool,
    /// Tell each step.
    #[arg(long)]
    explain: bool,
    /// Take the device away from a host that does not give it back within the `recall` of its box (`[fabric]`, 20 s by default), which is
    /// waited for first. What it had not written is lost.
    #[arg(long)]
    force: bool,
    /// Wait for so long for the end, an hour at most. What its box has not heard by then, or by Ctrl-C, is withdrawn.
    #[arg(long, default_value = "30s", value_name = "DURATION", value_parser = humantime::parse_duration)]
    wait: Duration,
}

#[derive(Args)]
pub(crate) struct Assign {
    /// The device: its name, BOX/NAME, or its serial number.
    device: String,
    /// A host, by its name or ID; a group, 1 to 4000; or `anybody`: no group and no certain host, any host may have it, and who has it
    /// keeps it.
    #[arg(value_name = "HOST|GROUP|anybody")]
    to: String,
    #[command(flatten)]
    how: How,
}

#[derive(Args)]
pub(crate) struct Release {
    /// The device: its name, BOX/NAME, or its serial number.
    device: String,
    #[command(flatten)]
    how: How,
}

impl Asked {
    /// The socket of the node that is asked, and what it knows.
    fn find(&self) -> Result<(PathBuf, FabricView)> {
        if let Some(node) = &self.node {
            let socket = socket_of(node)?;
            let view = control::ask(&socket, &Request::Ls {})?;
            return Ok((socket, view));
        }
        let (mut refusal, mut dead) = (None, Vec::new());
        for socket in control::sockets() {
            match control::ask(&socket, &Request::Ls {}) {
                Ok(view) => return Ok((socket, view)),
                Err(AskError::NoNode(path)) => dead.push(path),
                Err(error) => refusal = Some(error),
            }
        }
        match refusal {
            Some(error) => Err(error.into()),
            None => bail!("{}", control::nobody(&dead)),
        }
    }
}

impl Ls {
    pub(crate) fn run(self) -> Result<()> {
        let (_, view) = self.asked.find()?;
        let text = match self.asked.output {
            Output::Json => serde_json::to_string(&view)? + "\n",
            Output::Text if self.tree => tree(&view),
            Output::Text => tables(&view),
        };
        print!("{text}");
        Ok(())
    }
}

impl Assign {
    pub(crate) fn run(self) -> Result<()> {
        let number = self.to.parse::<u16>().ok();
        let to = match number {
            Some(number) if Group::new(number).is_some() => To::Group(number),
            Some(number) => bail!("{number} is no group: groups are 1 to {}", Group::MAX),
            None if self.to == ANYBODY => To::Anybody,
            None => To::Host(self.to),
        };
        self.how.order(self.device, to)
    }
}

impl Release {
    pub(crate) fn run(self) -> Result<()> {
        self.how.order(self.device, To::Nobody)
    }
}

impl How {
    fn order(self, device: String, to: To) -> Result<()> {
        let (socket, _) = self.asked.find()?;
        let wait_ms = u64::try_from(self.wait.as_millis()).ok();
        let request = Request::Order { device, to, dry_run: self.dry_run, force: self.force, wait_ms };
        let mut view: OrderView = control::ask(&socket, &request)?;
        let until = Instant::now() + self.wait + LATE;
        let interrupted = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // The second time ends the process as usual.
            flag::register_conditional_default(signal, Arc::clone(&interrupted))?;
            flag::register(signal, Arc::clone(&interrupted))?;
        }
        let is_interrupted = || interrupted.load(Ordering::Relaxed);
        let explains = self.explain && self.asked.output == Output::Text;
        let mut told = None;
        loop {
            if explains && !self.dry_run && told != Some(view.state) {
                for step in steps(told.replace(view.state), &view) {
                    println!("{step}");
                }
            }
            if view.state.is_final() {
                break;
            }
            if is_interrupted() {
                view = control::ask(&socket, &Request::Withdraw { order: view.order })?;
                break;
            }
            if Instant::now() >= until {
                bail!("{}: the node says no more of it: see etherslot ls", view.device);
            }
            thread::sleep(LOOK);
            view = control::ask(&socket, &Request::OrderState { order: view.order })?;
        }
        if self.asked.output == Output::Json {
            println!("{}", serde_json::to_string(&view)?);
        }
        match view.state {
            OrderState::Done => {
                if self.asked.output == Output::Text {
                    print!("{}", done(&view));
                }
                Ok(())
            }
            OrderState::RolledBack => bail!("{}: not moved: {}", view.device, view.reason),
            OrderState::Unanswered | OrderState::Stands => {
                let when = if is_interrupted() {
                    "when it was interrupted".to_owned()
                } else {
                    format!("after {}", humantime::format_duration(self.wait))
                };
                bail!("{}: not done {when}: {}", view.device, view.reason)
            }
            _ => bail!("{}: nothing was changed: {}", view.device, view.reason),
        }
    }
}

/// What has happened since an order was at `before`: nobody looks often enough to see each step.
fn steps(before: Option<OrderState>, view: &OrderView) -> Vec<String> {
    let OrderView { r#box, device, to, from, elapsed_ms, reason, .. } = view;
    let was_reset = || format!("{box} has reset {device}");
    let gives_back = |old: &str| {
        format!("{old} is to give {device} back: a guest that has it is asked to let it go, mounted or not")
    };
    let mut texts = Vec::new();
    if before.is_none() && view.state != OrderState::Unanswered {
        texts.push(format!("{box} is asked to give {device} to {to}"));
    }
    let is_at = |state| before == Some(state);
    let stays = match to {
        To::Anybody => true,
        To::Host(to) => from.as_ref() == Some(to),
        To::Group(_) | To::Nobody => false,
    };
    let begins =
        !stays && matches!(view.state, OrderState::Offered | OrderState::Done) && !is_at(OrderState::Offered);
    if let Some(from) = from.as_deref().filter(|_| begins) {
        if !is_at(OrderState::Recalling) {
            texts.push(gives_back(from));
        }
        texts.push(was_reset());
    }
    match view.state {
        OrderState::Asked => {}
        OrderState::Recalling => {
            texts.push(gives_back(from.as_deref().unwrap_or("its owner")));
        }
        OrderState::Offered => texts.push(format!("{to} is to take it")),
        OrderState::Done => texts.push(format!("done, under lease epoch {}", view.epoch)),
        OrderState::Refused => texts.push(format!("refused: {reason}")),
        OrderState::RolledBack => texts.push(format!("undone: {reason}")),
        OrderState::Unanswered | OrderState::Stands => texts.push(reason.clone()),
    }
    texts.into_iter().map(|text| format!("{elapsed_ms:>6} ms  {text}")).collect()
}

fn done(view: &OrderView) -> String {
    let OrderView { r#box, device, to, from, elapsed_ms, epoch, .. } = view;
    let old = from.as_deref().unwrap_or("nobody");
    let note = if view.note.is_empty() { String::new() } else { format!("{}\n", view.note) };
    if (from, to) == (&None, &To::Nobody) {
        let would = if view.begins_with == Some(Beginning::Nothing) {
            ": nothing to do"
        } else if view.dry_run {
            " now, and would wait to be assigned again"
        } else {
            " until it is assigned again"
        };
        return format!("{box}/{device} is nobody's{would}\n");
    }
    let is_plan = view.dry_run && view.begins_with != Some(Beginning::Nothing);
    if to == &To::Anybody && !is_plan {
        let is = if view.dry_run { "would be" } else { "is" };
        let owner = from.as_ref().map(|owner| format!("{owner} keeps it, then "));
        return format!(
            "{box}/{device} {is} anybody's: {}the first host that asks gets it\n",
            owner.unwrap_or_default()
        );
    }
    if !view.dry_run {
        return format!("{box}/{device}: from {old} to {to} in {elapsed_ms} ms, lease epoch {epoch}\n{note}");
    }
    let begins_with = view.begins_with.unwrap_or(Beginning::Recall);
    if begins_with == Beginning::Nothing {
        return format!("{box}/{device} is {old}'s and stays with it: nothing would move\n");
    }
    let mut text = format!("{box}/{device}, now {old}'s, would go to {to}:\n");
    let mut number = 0;
    let mut line = |step: String| {
        number += 1;
        let _ = writeln!(text, "  {number}. {step}");
    };
    if let (Some(from), Beginning::Recall) = (from, begins_with) {
        line(format!(
            "{from} gives it back: a guest that has it is asked to let it go, mounted or not (unmount first); if it does not, all stays as it is, unless --force"
        ));
    }
    if from.is_some() {
        line(format!("{box} resets it"));
    }
    match (to, from) {
        (To::Host(_), Some(from)) => {
            line(format!("{to} takes it; if it does not, {from} gets it back"));
        }
        (To::Host(_), None) => line(format!("{to} takes it; if it does not, it is free again")),
        (To::Group(_), _) => line(format!("the host of {to} takes it as soon as it asks")),
        (To::Anybody, _) => line("the first host that asks gets it".to_owned()),
        (To::Nobody, _) => line("it is nobody's until it is assigned again".to_owned()),
    }
    text + &note
}

/// Rows with columns as wide as they need to be.
fn table<const N: usize>(heads: [&str; N], rows: &[[String; N]]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([heads[column].len()]).max().unwrap_or(0)
    };
    let widths: [usize; N] = std::array::from_fn(width);
    let mut text = String::new();
    let heads = heads.map(str::to_owned);
    for row in std::iter::once(&heads).chain(rows) {
        let line: Vec<String> =
            row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        text.push_str(line.join("  ").trim_end());
        text.push('\n');
    }
    text
}

fn role(role: Role) -> &'static str {
    match role {
        Role::Box => "box",
        Role::Host => "host",
        Role::Export => "export",
    }
}

fn state(node: &NodeView) -> String {
    let state = match node.state {
        NodeState::Itself => "up (asked)".to_owned(),
        NodeState::Up => "up".to_owned(),
        NodeState::Keyed => "up, with keys; we have none".to_owned(),
        NodeState::Down => format!("silent for {:.1} s", node.silent_ms as f64 / 1e3),
        NodeState::Left => "stopped".to_owned(),
    };
    if node.is_double { state + ", name twice" } else { state }
}

fn group(group: Option<u16>) -> String {
    group.map_or_else(|| "-".to_owned(), |group| group.to_string())
}

fn size(device: &DeviceView) -> String {
    if device.bytes == 0 { "-".to_owned() } else { units::bytes(device.bytes) }
}

fn assigned(device: &DeviceView) -> String {
    let who = match &device.assigned {
        AssignedView::Group if device.group.is_some() => "its group".to_owned(),
        AssignedView::Group => "anybody".to_owned(),
        AssignedView::Host(host) => host.name.clone(),
        AssignedView::Nobody => "nobody".to_owned(),
    };
    if device.has_owners && device.assigned != AssignedView::Nobody {
        format!("{who}, if an owner")
    } else {
        who
    }
}

/// Of the frames of a session, with a digit that counts.
fn loss(session: &SessionView) -> String {
    let percent = session.lost as f64 * 100.0 / session.data_frames_sent.max(1) as f64;
    match percent {
        0.0 => "0 %".to_owned(),
        ..0.001 => "<0.001 %".to_owned(),
        ..0.1 => format!("{percent:.3} %"),
        _ => format!("{percent:.1} %"),
    }
}

fn tables(view: &FabricView) -> String {
    let nodes: Vec<[String; 8]> = view
        .nodes
        .iter()
        .map(|node| {
            let quality = node
                .ways
                .iter()
                .map(|way| format!("{}/{}", way.expected - way.lost.min(way.expected), way.expected));
            let addresses = node.ways.iter().map(|way| way.address.clone());
            [
                node.name.clone(),
                role(node.role).to_owned(),
                group(node.group),
                state(node),
                quality.collect::<Vec<_>>().join(" "),
                node.session.map_or_else(|| "-".to_owned(), |session| units::time(session.srtt_ns)),
                node.session.map_or_else(|| "-".to_owned(), |session| loss(&session)),
                addresses.collect::<Vec<_>>().join(" "),
            ]
        })
        .collect();
    let devices: Vec<[String; 9]> = view
        .nodes
        .iter()
        .flat_map(|node| {
            node.devices.iter().map(|device| {
                [
                    format!("{}/{}", node.name, device.name),
                    device.serial.clone(),
                    device.id.clone(),
                    size(device),
                    group(device.group),
                    if node.state == NodeState::Down {
                        "box silent".to_owned()
                    } else {
                        device.state.clone()
                    },
                    device.owner.as_ref().map_or_else(|| "-".to_owned(), |owner| owner.name.clone()),
                    assigned(device),
                    device.epoch.to_string(),
                ]
            })
        })
        .collect();
    let mut text = table(["NODE", "ROLE", "GROUP", "STATE", "HEARTBEATS", "RTT", "LOSS", "ADDRESS"], &nodes);
    text.push('\n');
    let heads = ["DEVICE", "SERIAL", "ID", "SIZE", "GROUP", "STATE", "OWNER", "FOR", "EPOCH"];
    text.push_str(&table(heads, &devices));
    text
}

fn tree(view: &FabricView) -> String {
    let mut text = String::new();
    for node in &view.nodes {
        let group = node.group.map(|group| format!(", group {group}")).unwrap_or_default();
        let rtt = node.session.map(|session| format!(", RTT {}", units::time(session.srtt_ns)));
        let rtt = rtt.unwrap_or_default();
        let _ = writeln!(text, "{} ({}{group}, {}{rtt})", node.name, role(node.role), state(node));
        let mut rows: Vec<String> = node
            .devices
            .iter()
            .map(|device| {
                let owner = device.owner.as_ref().map(|owner| match device.state.as_str() {
                    "kept" => format!("kept for {}", owner.name),
                    "moving" => format!("moving from {}", owner.name),
                    _ => format!("used by {}", owner.name),
                });
                let owner = owner.unwrap_or_else(|| match assigned(device).as_str() {
                    "nobody" => "free, nobody's until it is assigned".to_owned(),
                    who => format!("{}, waits for {who}", device.state),
                });
                format!("{}  {}  {}  {owner}", device.name, device.serial, size(device))
            })
            .collect();
        for other in &view.nodes {
            let is_ours =
                |device: &&DeviceView| device.owner.as_ref().is_some_and(|owner| owner.id == node.id);
            rows.extend(
                other.devices.iter().filter(is_ours).map(|device| format!("{}/{}", other.name, device.name)),
            );
        }
        let last = rows.len().saturating_sub(1);
        for (at, row) in rows.iter().enumerate() {
            let _ = writeln!(text, "{} {row}", if at == last { "└─" } else { "├─" });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(to: To, from: Option<&str>, state: OrderState, dry_run: bool) -> OrderView {
        OrderView {
            order: 1,
            r#box: "box".to_owned(),
            device: "disk0".to_owned(),
            to,
            dry_run,
            state,
            reason: String::new(),
            note: String::new(),
            begins_with: dry_run.then_some(Beginning::Offer),
            from: from.map(str::to_owned),
            epoch: 3,
            elapsed_ms: 7,
        }
    }

    #[test]
    fn every_step_is_told_however_seldom_one_looks() {
        let to = || To::Host("b".to_owned());
        let at = |state| order(to(), Some("a"), state, false);
        let at_once = steps(None, &at(OrderState::Done));
        let mut seen = steps(None, &at(OrderState::Recalling));
        seen.extend(steps(Some(OrderState::Recalling), &at(OrderState::Offered)));
        seen.extend(steps(Some(OrderState::Offered), &at(OrderState::Done)));
        let is_offered = |text: &&String| !text.ends_with("b is to take it");
        assert_eq!(seen.iter().filter(is_offered).collect::<Vec<_>>(), at_once.iter().collect::<Vec<_>>());
        assert!(at_once.iter().any(|text| text.ends_with("box has reset disk0")), "{at_once:?}");
        assert_eq!(at_once.len(), 4);
    }

    #[test]
    fn a_plan_promises_nothing_to_an_owner_that_there_is_not() {
        let plan = done(&order(To::Host("b".to_owned()), None, OrderState::Done, true));
        assert!(
            plan.contains("if it does not, it is free again") && !plan.contains("gets it back"),
            "{plan}"
        );
        let mut twice = order(To::Nobody, None, OrderState::Done, true);
        twice.begins_with = Some(Beginning::Nothing);
        assert!(done(&twice).ends_with("nothing to do\n"));
    }

    #[test]
    fn of_a_device_for_anybody_it_is_said_who_keeps_it() {
        let free = order(To::Anybody, None, OrderState::Done, false);
        assert_eq!(done(&free), "box/disk0 is anybody's: the first host that asks gets it\n");
        let told = steps(None, &order(To::Anybody, Some("a"), OrderState::Done, false));
        assert_eq!(told.len(), 2, "nothing is taken from a: {told:?}");
        let mut used = order(To::Anybody, Some("a"), OrderState::Done, true);
        used.begins_with = Some(Beginning::Nothing);
        assert!(done(&used).contains("would be anybody's: a keeps it, then the first"));
        let plan = done(&order(To::Anybody, None, OrderState::Done, true));
        assert!(plan.ends_with("would go to anybody:\n  1. the first host that asks gets it\n"), "{plan}");
    }

    #[test]
    fn a_plan_says_what_the_guest_of_an_owner_is_asked() {
        let mut plan = order(To::Host("b".to_owned()), Some("a"), OrderState::Done, true);
        plan.begins_with = Some(Beginning::Recall);
        let told = done(&plan);
        assert!(
            told.contains(
                "1. a gives it back: a guest that has it is asked to let it go, mounted or not (unmount first)"
            ),
            "{told}"
        );
    }

    #[test]
    fn a_state_tells_of_keys_and_of_a_name_that_two_have() {
        let node = |state, is_double| NodeView {
            name: "box".to_owned(),
            id: String::new(),
            role: Role::Box,
            group: None,
            state,
            is_double,
            silent_ms: 1500,
            ways: Vec::new(),
            session: None,
            devices: Vec::new(),
        };
        assert_eq!(state(&node(NodeState::Itself, true)), "up (asked), name twice");
        assert_eq!(state(&node(NodeState::Keyed, false)), "up, with keys; we have none");
        assert_eq!(state(&node(NodeState::Down, false)), "silent for 1.5 s");
    }

    #[test]
    fn a_loss_has_digits_that_count() {
        for (lost, text) in [(0, "0 %"), (1, "<0.001 %"), (123, "0.012 %"), (12_345, "1.2 %")] {
            let session = SessionView { srtt_ns: 1, rtt_min_ns: 1, data_frames_sent: 1_000_000, lost };
            assert_eq!(loss(&session), text);
        }
        assert_eq!(loss(&SessionView { srtt_ns: 1, rtt_min_ns: 1, data_frames_sent: 0, lost: 0 }), "0 %");
    }
}
