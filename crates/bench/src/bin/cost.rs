//! What an operation costs box and host in instructions, counted by callgrind, against ceilings that are kept in the tree.
//!
//! Counts do not vary with what else a machine does, so a change that makes the hot path longer shows at once. Two runs of
//! different length tell the cost of an operation from that of the start. Copies of the C library (`memcpy` and its like) are
//! left out: how their instructions are counted depends on the processor.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use serde::{Deserialize, Serialize};

/// Operations in the shorter run; the longer one has twice as many.
const COUNT: u64 = 2_000;
/// By how much a new ceiling is above what was counted.
const MARGIN_PERCENT: u64 = 10;

/// Count the instructions of an operation and compare them with the ceilings.
#[derive(Debug, Parser)]
struct Arguments {
    /// The example `operation` of etherslot-initiator, built optimised
    operation: PathBuf,
    /// The ceilings
    #[arg(long, default_value = "bench/instructions.toml")]
    ceilings: PathBuf,
    /// Write what is counted, and a margin, as new ceilings
    #[arg(long)]
    write: bool,
}

/// The file of ceilings.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Ceilings {
    operation: Vec<Row>,
}

/// A kind of operation.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Row {
    name: String,
    arguments: Vec<String>,
    /// Instructions of box and host together.
    ceiling: u64,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("cost: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Whether no operation costs more than its ceiling.
fn run(arguments: &Arguments) -> Result<bool> {
    etherslot_lab::ensure_programs(&[("valgrind", "valgrind")])?;
    let path = arguments.ceilings.display();
    let text = fs::read_to_string(&arguments.ceilings).with_context(|| format!("{path} can't be read"))?;
    let mut ceilings: Ceilings = toml::from_str(&text).with_context(|| path.to_string())?;
    let (mut passed, mut failed) = (0, 0);
    for row in &mut ceilings.operation {
        let cost = cost(&arguments.operation, &row.arguments).with_context(|| row.name.clone())?;
        if arguments.write {
            row.ceiling = cost + cost * MARGIN_PERCENT / 100;
        }
        let is_ok = cost <= row.ceiling;
        let word = if is_ok { "ok" } else { "over" };
        println!("{}: {cost} instructions, ceiling {}, {word}", row.name, row.ceiling);
        if is_ok { passed += 1 } else { failed += 1 }
    }
    if arguments.write {
        fs::write(&arguments.ceilings, toml::to_string(&ceilings)?)
            .with_context(|| format!("{path} can't be written"))?;
    }
    println!("test result: {passed} passed; {failed} failed");
    Ok(failed == 0)
}

/// Instructions of one operation.
fn cost(operation: &Path, arguments: &[String]) -> Result<u64> {
    let (short, long) = (count(operation, arguments, COUNT)?, count(operation, arguments, 2 * COUNT)?);
    Ok(long.saturating_sub(short) / COUNT)
}

/// Instructions of a run with so many operations.
fn count(operation: &Path, arguments: &[String], operations: u64) -> Result<u64> {
    let folder = tempfile::tempdir()?;
    let profile = folder.path().join("profile");
    let output = Command::new("valgrind")
        .args(["--quiet", "--tool=callgrind"])
        .arg(format!("--callgrind-out-file={}", profile.display()))
        .arg(operation)
        .args(arguments)
        .args(["--count", &operations.to_string()])
        .output()
        .context("valgrind can't be run")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(own_instructions(&fs::read_to_string(profile)?))
}

/// The sum over all functions that are no copies, from a profile in callgrind's format: a line `fn=(7) name` names the
/// function that the cost lines (position, instructions) behind it are of, `fn=(7)` names it again; the line behind `calls=` is
/// what a call cost in other functions.
fn own_instructions(profile: &str) -> u64 {
    let mut names: HashMap<&str, &str> = HashMap::new();
    let (mut is_own, mut is_call, mut sum) = (false, false, 0);
    for line in profile.lines() {
        if let Some((key @ ("fn" | "cfn"), function)) = line.split_once('=') {
            let (number, name) = function.split_once(' ').unwrap_or((function, ""));
            if !name.is_empty() {
                names.insert(number, name);
            }
            if key == "fn" {
                is_own = names.get(number).is_some_and(|name| !is_copy(name));
            }
        } else if line.starts_with("calls=") {
            is_call = true;
        } else if line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first)) {
            let cost = line.split_whitespace().nth(1).and_then(|cost| cost.parse::<u64>().ok());
            if is_own && !std::mem::take(&mut is_call) {
                sum += cost.unwrap_or(0);
            }
            is_call = false;
        }
    }
    sum
}

fn is_copy(name: &str) -> bool {
    ["mem", "__mem"].iter().any(|start| name.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_and_copies_are_not_counted_and_names_hold_on() {
        let profile = "events: Ir\nfn=(1) work\n10 5\n+2 7\ncfn=(2) __memcpy_avx\ncalls=3 20\n11 900\n12 1\n\
                       fn=(2)\n20 800\nfn=(3) rest\n* 4\nfn=(1)\n-3 6\n";
        assert_eq!(own_instructions(profile), 5 + 7 + 1 + 4 + 6);
    }
}
