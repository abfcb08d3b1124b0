//! What an operation costs box and host, against ceilings that are kept in the tree: in instructions, counted by callgrind, and in bytes
//! copied, counted by DHAT.
//!
//! Counts do not vary with what else a machine does, so a change that makes the hot path longer shows at once. Two runs of
//! different length tell the cost of an operation from that of the start. Copies of the C library (`memcpy` and its like) are
//! left out of the instructions: how theirs are counted depends on the processor. They are what DHAT counts; a copy of a few bytes that the
//! compiler writes out is none. The example says by its functions' names whose a copy is.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use serde::{Deserialize, Serialize};

/// Operations in the shorter run; the longer one has twice as many.
const COUNT: u64 = 2_000;
/// The same where copies are counted, which vary less.
const COPY_COUNT: u64 = 500;
/// By how much a new ceiling is above what was counted.
const MARGIN_PERCENT: u64 = 10;
/// The same of bytes copied: a copy too many is far more.
const COPY_MARGIN_PERCENT: u64 = 2;
/// Callers that DHAT keeps of a copy: enough to meet the function that says whose it is.
const CALLERS: u32 = 60;

/// Count the instructions and copies of an operation and compare them with the ceilings.
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
    /// Bytes copied by the box, and by the host.
    box_copied_bytes: u64,
    host_copied_bytes: u64,
}

/// Bytes copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Copied {
    by_box: u64,
    by_host: u64,
}

/// A profile of DHAT, as far as it matters here.
#[derive(Debug, Deserialize)]
struct Profile {
    /// Places from which was copied.
    pps: Vec<Place>,
    /// Functions.
    ftbl: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Place {
    /// Bytes.
    tb: u64,
    /// The functions under way, by their numbers.
    fs: Vec<usize>,
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
        let copied = copied(&arguments.operation, &row.arguments).with_context(|| row.name.clone())?;
        for (ceiling, count, margin_percent, unit) in [
            (&mut row.ceiling, cost, MARGIN_PERCENT, "instructions"),
            (&mut row.box_copied_bytes, copied.by_box, COPY_MARGIN_PERCENT, "bytes copied by the box"),
            (&mut row.host_copied_bytes, copied.by_host, COPY_MARGIN_PERCENT, "bytes copied by the host"),
        ] {
            if arguments.write {
                *ceiling = count + count * margin_percent / 100;
            }
            let is_ok = count <= *ceiling;
            let word = if is_ok { "ok" } else { "over" };
            println!("{}: {count} {unit}, ceiling {ceiling}, {word}", row.name);
            if is_ok { passed += 1 } else { failed += 1 }
        }
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

/// Bytes that one operation copies.
fn copied(operation: &Path, arguments: &[String]) -> Result<Copied> {
    let run = |operations| -> Result<Copied> {
        let tool = ["--tool=dhat".to_owned(), "--mode=copy".to_owned(), format!("--num-callers={CALLERS}")];
        let profile = profile(&tool, "dhat", operation, arguments, operations)?;
        Ok(own_copies(&serde_json::from_str(&profile).context("a profile of DHAT")?))
    };
    let (short, long) = (run(COPY_COUNT)?, run(2 * COPY_COUNT)?);
    let each = |short: u64, long: u64| long.saturating_sub(short) / COPY_COUNT;
    Ok(Copied { by_box: each(short.by_box, long.by_box), by_host: each(short.by_host, long.by_host) })
}

/// Instructions of a run with so many operations.
fn count(operation: &Path, arguments: &[String], operations: u64) -> Result<u64> {
    let tool = ["--tool=callgrind".to_owned()];
    Ok(own_instructions(&profile(&tool, "callgrind", operation, arguments, operations)?))
}

/// What a tool of valgrind's writes about a run with so many operations.
fn profile(
    tool: &[String],
    name: &str,
    operation: &Path,
    arguments: &[String],
    operations: u64,
) -> Result<String> {
    let folder = tempfile::tempdir()?;
    let profile = folder.path().join("profile");
    let output = Command::new("valgrind")
        .arg("--quiet")
        .args(tool)
        .arg(format!("--{name}-out-file={}", profile.display()))
        .arg(operation)
        .args(arguments)
        .args(["--count", &operations.to_string()])
        .output()
        .context("valgrind can't be run")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(fs::read_to_string(profile)?)
}

/// The sum over all places, by whose they are: the innermost function, or module, that says so counts. What is of the link or the load is nobody's.
fn own_copies(profile: &Profile) -> Copied {
    let mut copied = Copied::default();
    for place in &profile.pps {
        let mut functions = place.fs.iter().filter_map(|&number| profile.ftbl.get(number));
        let owner = functions
            .find_map(|name| ["::Wire::", "::box_", "::host_"].into_iter().find(|own| name.contains(own)));
        match owner {
            Some("::box_") => copied.by_box += place.tb,
            Some("::host_") => copied.by_host += place.tb,
            _ => {}
        }
    }
    copied
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
    fn a_copy_is_of_the_innermost_function_that_says_whose_it_is() {
        let profile = r#"{"dhatFileVersion": 2, "mode": "copy",
            "pps": [{"tb": 4096, "tbk": 1, "fs": [1, 2, 3]}, {"tb": 100, "tbk": 2, "fs": [1, 4, 5]},
                    {"tb": 7, "tbk": 1, "fs": [1, 6, 5]}, {"tb": 9, "tbk": 1, "fs": [1, 3]}],
            "ftbl": ["[root]", "0x1: memmove (in lib)", "0x2: operation::box_receive (operation.rs:1)",
                     "0x3: operation::run (operation.rs:2)", "0x4: etherslot_session::f (a.rs:3)",
                     "0x5: operation::host_poll (operation.rs:4)", "0x6: operation::Wire::take (operation.rs:5)"]}"#;
        assert_eq!(
            own_copies(&serde_json::from_str(profile).unwrap()),
            Copied { by_box: 4096, by_host: 100 }
        );
    }

    #[test]
    fn calls_and_copies_are_not_counted_and_names_hold_on() {
        let profile = "events: Ir\nfn=(1) work\n10 5\n+2 7\ncfn=(2) __memcpy_avx\ncalls=3 20\n11 900\n12 1\n\
                       fn=(2)\n20 800\nfn=(3) rest\n* 4\nfn=(1)\n-3 6\n";
        assert_eq!(own_instructions(profile), 5 + 7 + 1 + 4 + 6);
    }
}
