//! Where and with what a run was made.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

/// What belongs to every figure.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Machine {
    /// When the run ended (UTC).
    pub(crate) date: String,
    /// Of the checkout; with `-dirty` if there are changes.
    pub(crate) commit: String,
    pub(crate) cpu: String,
    pub(crate) cpus: usize,
    pub(crate) kernel: String,
    /// Runnable threads of the last minute when the run began: more than a few tell of other work.
    pub(crate) load_before: f64,
    /// Of the peers that are there.
    pub(crate) versions: BTreeMap<String, String>,
}

/// The first line that a command prints, whatever its status.
fn first_line(program: &str, arguments: &[&str]) -> Option<String> {
    let output =
        Command::new(program).args(arguments).stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    text.lines().next().map(str::to_owned)
}

/// Of a package of Debian's.
pub(crate) fn package_version(name: &str) -> Option<String> {
    first_line("dpkg-query", &["--showformat=${Version}", "--show", name])
}

fn load() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or_default()
}

fn cpu() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("model name"));
    line.and_then(|line| line.split_once(':')).map_or_else(String::new, |(_, name)| name.trim().to_owned())
}

impl Machine {
    /// Looked at before the run.
    pub(crate) fn look(spdk: Option<&Path>) -> Self {
        let mut versions = BTreeMap::new();
        for (name, program, arguments) in [
            ("fio", "fio", ["--version"]),
            ("nbdkit", "nbdkit", ["--version"]),
            ("tgt", "tgtd", ["--version"]),
        ] {
            if let Some(version) = first_line(program, &arguments) {
                versions.insert(name.to_owned(), version);
            }
        }
        if let Some(version) = package_version("libiscsi-bin") {
            versions.insert("libiscsi".to_owned(), version);
        }
        if let Some(version) = spdk.and_then(spdk_version) {
            versions.insert("SPDK".to_owned(), version);
        }
        let commit = first_line("git", &["describe", "--always", "--dirty", "--abbrev=12"]);
        Self {
            date: String::new(),
            commit: commit.unwrap_or_else(|| "unknown".to_owned()),
            cpu: cpu(),
            cpus: std::thread::available_parallelism().map_or(0, usize::from),
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned(),
            load_before: load(),
            versions,
        }
    }

    /// With the time of its end.
    pub(crate) fn ended(self) -> Self {
        Self { date: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(), ..self }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cpu, cpus, kernel, commit, .. } = self;
        write!(f, "{cpu}, {cpus} CPUs, Linux {kernel}; commit {commit}")
    }
}

/// From the header that tells it.
fn spdk_version(tree: &Path) -> Option<String> {
    let header = fs::read_to_string(tree.join("include/spdk/version.h")).ok()?;
    let number = |name: &str| {
        let line =
            header.lines().find_map(|line| line.strip_prefix("#define SPDK_VERSION_")?.strip_prefix(name));
        line.map(str::trim).and_then(|value| value.parse::<u32>().ok())
    };
    Some(format!("{}.{:02}.{}", number("MAJOR")?, number("MINOR")?, number("PATCH")?))
}
