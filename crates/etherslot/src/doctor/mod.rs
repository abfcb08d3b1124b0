//! `etherslot doctor`: whether this machine can do what a configuration asks of it, and what would make it better.

mod devices;
mod links;
mod machine;
mod node;

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use etherslot_runtime::keys::KeyFiles;
use etherslot_runtime::options::SecurityOptions;
use serde::Serialize;

use crate::config::check::{Kind, check};
use crate::config::problems::position;
use crate::config::show::Shown;
use crate::stat::Output;
use machine::{Here, Machine};

#[derive(Args)]
pub(crate) struct Doctor {
    /// The configuration of a box or a host; without one, what most nodes need is looked at.
    #[arg(long, env = "ETHERSLOT_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Whose the configuration is, if its tables do not tell.
    #[arg(long, value_enum, value_name = "ROLE")]
    role: Option<Kind>,
    /// The QEMU to look at.
    #[arg(long, default_value = devices::QEMU, value_name = "PROGRAM")]
    qemu: String,
    /// Tell what is as it should be, too.
    #[arg(long)]
    all: bool,
    /// How to print: json is one object, with everything.
    #[arg(long, value_enum, default_value_t, value_name = "FORM")]
    output: Output,
    #[command(flatten)]
    changes: crate::Changes,
}

/// How bad something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Verdict {
    /// As it should be.
    Fine,
    /// It works, and would work better.
    Hint,
    /// It works until something happens, or not safely.
    Warning,
    /// What is configured can't be.
    Impossible,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Finding {
    check: &'static str,
    subject: String,
    verdict: Verdict,
    what: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

/// Everything that was found, and what is being looked at.
#[derive(Default)]
struct Findings {
    check: &'static str,
    subject: String,
    found: Vec<Finding>,
}

impl Findings {
    fn about(&mut self, check: &'static str, subject: String) {
        (self.check, self.subject) = (check, subject);
    }

    fn add(&mut self, verdict: Verdict, what: impl Into<String>, remedy: Option<String>) {
        let (check, subject) = (self.check, self.subject.clone());
        self.found.push(Finding { check, subject, verdict, what: what.into(), remedy });
    }

    fn fine(&mut self, what: impl Into<String>) {
        self.add(Verdict::Fine, what, None);
    }

    fn hint(&mut self, what: impl Into<String>, remedy: impl Into<String>) {
        self.add(Verdict::Hint, what, Some(remedy.into()));
    }

    fn warning(&mut self, what: impl Into<String>, remedy: impl Into<String>) {
        self.add(Verdict::Warning, what, Some(remedy.into()));
    }

    fn impossible(&mut self, what: impl Into<String>, remedy: impl Into<String>) {
        self.add(Verdict::Impossible, what, Some(remedy.into()));
    }

    /// Impossible if it has to be, or else a warning.
    fn unless(&mut self, is_needed: bool, what: impl Into<String>, remedy: impl Into<String>) {
        let verdict = if is_needed { Verdict::Impossible } else { Verdict::Warning };
        self.add(verdict, what, Some(remedy.into()));
    }
}

impl Doctor {
    pub(crate) fn run(self) -> Result<()> {
        let mut findings = Findings::default();
        match &self.config {
            None => without(&Here, &self.qemu, &mut findings),
            Some(path) => {
                let text = std::fs::read_to_string(path)
                    .with_context(|| format!("cannot read the configuration {}", path.display()))?;
                let mut overrides = self.changes.overrides();
                let checked = check(&text, self.role, &overrides);
                findings.about("config", path.display().to_string());
                for problem in &checked.errors {
                    let line = problem.at.map(|at| format!("line {}: ", position(&text, at).0));
                    let what = format!("{}{}", line.unwrap_or_default(), problem.what.trim_end());
                    findings.impossible(what, "`etherslot config check` tells more");
                }
                if let Some(options) = &checked.options {
                    examine(&Here, options, Some(options.security()), &self.qemu, &mut findings);
                } else {
                    // What lacks nothing but its keys, which was told, is looked at for all else.
                    overrides.security.plaintext = true;
                    if let Some(options) = check(&text, self.role, &overrides).options {
                        examine(&Here, &options, None, &self.qemu, &mut findings);
                    }
                }
            }
        }
        match self.output {
            Output::Json => println!("{}", serde_json::json!({ "findings": findings.found })),
            Output::Text => print!("{}", shown(&findings.found, self.all)),
        }
        let impossible = findings.found.iter().filter(|it| it.verdict == Verdict::Impossible).count();
        match impossible {
            0 => Ok(()),
            1 => bail!("one thing makes it impossible"),
            several => bail!("{several} things make it impossible"),
        }
    }
}

/// Whether the machine can do what is configured; `security`, if it is known.
fn examine(
    machine: &dyn Machine,
    options: &Shown,
    security: Option<&SecurityOptions>,
    qemu: &str,
    findings: &mut Findings,
) {
    match options {
        Shown::Box(options) => {
            links::check(machine, &options.links, findings);
            node::check(machine, &options.run, security, options.fabric.as_ref(), findings);
            node::clock(machine, options.fabric.is_some(), findings);
            devices::of_box(machine, &options.devices, findings);
        }
        Shown::Host(options) => {
            links::check(machine, &options.links, findings);
            node::check(machine, &options.run, security, options.fabric.as_ref(), findings);
            node::clock(machine, options.fabric.is_some(), findings);
            devices::of_host(machine, &options.slots, qemu, findings);
        }
    }
}

/// What most nodes need.
fn without(machine: &dyn Machine, qemu: &str, findings: &mut Findings) {
    findings.about("permissions", "this user".to_owned());
    if links::may(machine, &[links::NET_RAW]) {
        findings.fine("raw frames may be sent and received (links of kind packet)");
    } else {
        findings.hint(
            "this user may not open raw sockets: links of kind packet and xdp are not possible, udp and ring are",
            "root, or AmbientCapabilities=CAP_NET_RAW in the unit",
        );
    }
    findings.about("keys", "this user".to_owned());
    if let Some(files) = KeyFiles::usual() {
        match machine.keys(&files) {
            Ok(()) => {
                findings.fine(format!("{} and {} can be used", files.fabric.display(), files.node.display()));
            }
            Err(reason) => findings.hint(reason, "`etherslot keygen` makes what is missing"),
        }
    }
    node::clock(machine, false, findings);
    devices::qemu(machine, qemu, false, findings);
}

/// The worst first, each with its remedy below it.
fn shown(found: &[Finding], all: bool) -> String {
    let mut found: Vec<&Finding> = found.iter().filter(|it| all || it.verdict != Verdict::Fine).collect();
    if found.is_empty() {
        return "all is as it should be\n".to_owned();
    }
    found.sort_by_key(|finding| std::cmp::Reverse(finding.verdict));
    let mut text = String::new();
    for Finding { check, subject, verdict, what, remedy } in found {
        let verdict = match verdict {
            Verdict::Fine => "fine",
            Verdict::Hint => "hint",
            Verdict::Warning => "warning",
            Verdict::Impossible => "IMPOSSIBLE",
        };
        let _ = writeln!(text, "{verdict:<10}  {check}, {subject}: {what}");
        if let Some(remedy) = remedy {
            let _ = writeln!(text, "            remedy: {remedy}");
        }
    }
    text
}

#[cfg(test)]
mod tests;
