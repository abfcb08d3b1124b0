//! `etherslot config`: configuration files looked at without a daemon.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use clap::{Args, Subcommand};
use etherslot_runtime::keys::Keyring;
use etherslot_runtime::options::{Peers, SecurityOptions};
use serde::Serialize;

use super::check::{Checked, Kind, check};
use super::problems::{Problem, position};
use super::show::{self, Shown};
use crate::stat::Output;

#[derive(Subcommand)]
pub(crate) enum Config {
    /// Tells everything that is wrong with a file, and what is odd. Exit status: 0, a daemon would take it; 1, it would not.
    /// `etherslot doctor` tells whether this machine can do what is in it.
    Check(CheckCommand),
    /// Shows a file as it is in effect, with all defaults, flags and environment. No secrets: keys are files, and stay there.
    Show(ShowCommand),
}

/// Which file, and what changes it.
#[derive(Args)]
struct Looked {
    /// The configuration file (TOML).
    file: PathBuf,
    /// Whose it is; by default a file with `[[device]]` is a box's, and one with `[[slot]]` a host's.
    #[arg(long, value_enum, value_name = "ROLE")]
    role: Option<Kind>,
    #[command(flatten)]
    changes: crate::Changes,
}

#[derive(Args)]
pub(crate) struct CheckCommand {
    #[command(flatten)]
    looked: Looked,
    /// Fail for what is odd as for what is wrong.
    #[arg(long)]
    strict: bool,
    /// How to print: json is one object.
    #[arg(long, value_enum, default_value_t, value_name = "FORM")]
    output: Output,
}

#[derive(Args)]
pub(crate) struct ShowCommand {
    #[command(flatten)]
    looked: Looked,
}

/// A finding, as JSON tells it.
#[derive(Serialize)]
struct Told<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    column: Option<usize>,
    severity: &'static str,
    message: &'a str,
}

impl Config {
    pub(crate) fn run(self) -> Result<()> {
        match self {
            Self::Check(check) => check.run(),
            Self::Show(show) => show.run(),
        }
    }
}

impl Looked {
    fn check(self) -> Result<(PathBuf, String, Checked)> {
        let Self { file, role, changes } = self;
        let text = std::fs::read_to_string(&file)
            .with_context(|| format!("cannot read the configuration {}", file.display()))?;
        let checked = check(&text, role, &changes.overrides());
        Ok((file, text, checked))
    }
}

impl CheckCommand {
    fn run(self) -> Result<()> {
        let Self { looked, strict, output } = self;
        let (file, text, mut checked) = looked.check()?;
        checked.errors.extend(checked.options.as_ref().and_then(keys));
        match output {
            Output::Text => print!("{}", listed(&file, &text, &checked)),
            Output::Json => {
                let told = |severity: &'static str, problem: &'_ Problem| {
                    let place = problem.at.map(|at| position(&text, at));
                    serde_json::to_value(Told {
                        line: place.map(|place| place.0),
                        column: place.map(|place| place.1),
                        severity,
                        message: problem.what.trim_end(),
                    })
                };
                let errors = checked.errors.iter().map(|problem| told("error", problem));
                let warnings = checked.warnings.iter().map(|problem| told("warning", problem));
                let findings = errors.chain(warnings).collect::<Result<Vec<_>, _>>()?;
                println!("{}", serde_json::json!({ "file": file, "findings": findings }));
            }
        }
        match (checked.errors.len(), checked.warnings.len()) {
            (0, 0) => Ok(()),
            (0, odd) if strict => bail!("{}: {odd} odd: --strict takes it as wrong", file.display()),
            (0, _) => Ok(()),
            (wrong, _) => bail!("{}: {wrong} wrong: a daemon would not start with it", file.display()),
        }
    }
}

impl ShowCommand {
    fn run(self) -> Result<()> {
        let (file, text, checked) = self.looked.check()?;
        let Some(options) = &checked.options else {
            eprint!("{}", listed(&file, &text, &checked));
            bail!("{}: there is nothing to show of what a daemon would not take", file.display());
        };
        print!("{}", show::file(options));
        Ok(())
    }
}

/// Why the keys that are named can't be used.
fn keys(options: &Shown) -> Option<Problem> {
    let SecurityOptions::Keys { files, .. } = options.security() else { return None };
    let error = Keyring::open(files, Peers::Fabric).err()?;
    Some(Problem { at: None, what: format!("[security] {error}") })
}

/// A line for each finding, as compilers write them, and editors read them.
fn listed(file: &Path, text: &str, checked: &Checked) -> String {
    let mut lines = String::new();
    let errors = checked.errors.iter().map(|problem| ("error", problem));
    for (severity, problem) in errors.chain(checked.warnings.iter().map(|problem| ("warning", problem))) {
        let place = problem.at.map(|at| position(text, at));
        let place = place.map(|(line, column)| format!("{line}:{column}:")).unwrap_or_default();
        let what = problem.what.trim_end().replace('\n', ": ");
        let _ = writeln!(lines, "{}:{place} {severity}: {what}", file.display());
    }
    lines
}

#[cfg(test)]
mod tests;
