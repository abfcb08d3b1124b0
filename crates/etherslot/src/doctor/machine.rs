//! The machine as `doctor` sees it: files, what programs say, what the process may do. Tests have one of their own making.

use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::{fs, io};

use etherslot_runtime::keys::{KeyFiles, Keyring};
use etherslot_runtime::options::Peers;

/// What is at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) is_folder: bool,
    pub(super) is_block_device: bool,
    pub(super) bytes: u64,
    /// Whether this process may read it, and write to it (of a folder: make files in it).
    pub(super) is_readable: bool,
    pub(super) is_writable: bool,
}

/// What can be asked of a machine.
pub(super) trait Machine {
    /// The text of a small file, without white space around it.
    fn read(&self, path: &str) -> Option<String>;

    /// What is at a path, if anything.
    fn entry(&self, path: &Path) -> Option<Entry>;

    /// Where a symbolic link leads to.
    fn link(&self, path: &str) -> Option<String>;

    /// What a program prints, if it is there and ends well.
    fn run(&self, program: &str, arguments: &[&str]) -> Option<String>;

    /// Whether these keys can be used, or why not.
    fn keys(&self, files: &KeyFiles) -> Result<(), String>;

    /// Whether DPDK can be used, or why not.
    fn dpdk(&self) -> Result<(), String>;

    /// Seconds since 1970 by its clock.
    fn now_s(&self) -> u64;
}

/// This very machine.
pub(super) struct Here;

impl Machine for Here {
    fn read(&self, path: &str) -> Option<String> {
        fs::read(path).ok().map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    fn entry(&self, path: &Path) -> Option<Entry> {
        let status = fs::metadata(path).ok()?;
        let kind = status.file_type();
        let may = |how: &str| {
            // What the kernel would say to this very process, its capabilities included.
            Command::new("test").arg(how).arg(path).status().is_ok_and(|status| status.success())
        };
        Some(Entry {
            is_folder: kind.is_dir(),
            is_block_device: kind.is_block_device(),
            bytes: if kind.is_block_device() { 0 } else { status.size() },
            is_readable: may("-r"),
            is_writable: may("-w"),
        })
    }

    fn link(&self, path: &str) -> Option<String> {
        fs::read_link(path).ok().map(|to| to.to_string_lossy().into_owned())
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Option<String> {
        let output: io::Result<_> =
            Command::new(program).args(arguments).stdin(Stdio::null()).stderr(Stdio::null()).output();
        let output = output.ok().filter(|output| output.status.success())?;
        Some(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn keys(&self, files: &KeyFiles) -> Result<(), String> {
        Keyring::open(files, Peers::Fabric).map(|_| ()).map_err(|error| error.to_string())
    }

    fn dpdk(&self) -> Result<(), String> {
        etherslot_runtime::link_spec::dpdk_available()
    }

    fn now_s(&self) -> u64 {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.map_or(0, |since| since.as_secs())
    }
}

/// A machine that a test makes up.
#[cfg(test)]
pub(super) mod made_up {
    use std::collections::BTreeMap;

    use super::*;

    #[derive(Clone, Default)]
    pub(crate) struct Made {
        pub(crate) files: BTreeMap<String, String>,
        pub(crate) entries: BTreeMap<String, Entry>,
        pub(crate) links: BTreeMap<String, String>,
        /// What programs print, by their command lines.
        pub(crate) programs: BTreeMap<String, String>,
        pub(crate) keys: Option<String>,
        pub(crate) dpdk: Option<String>,
        pub(crate) now_s: u64,
    }

    impl Made {
        pub(crate) fn prints(&mut self, line: &str, text: &str) {
            self.programs.insert(line.to_owned(), text.to_owned());
        }

        pub(crate) fn lacks(&mut self, line: &str) {
            self.programs.remove(line);
        }

        pub(crate) fn has(&mut self, path: &str, entry: Entry) {
            self.entries.insert(path.to_owned(), entry);
        }

        pub(crate) fn has_no(&mut self, path: &str) {
            self.entries.remove(path);
        }
    }

    impl Machine for Made {
        fn read(&self, path: &str) -> Option<String> {
            self.files.get(path).cloned()
        }

        fn entry(&self, path: &Path) -> Option<Entry> {
            self.entries.get(&*path.to_string_lossy()).copied()
        }

        fn link(&self, path: &str) -> Option<String> {
            self.links.get(path).cloned()
        }

        fn run(&self, program: &str, arguments: &[&str]) -> Option<String> {
            let line = std::iter::once(&program).chain(arguments).copied().collect::<Vec<_>>().join(" ");
            self.programs.get(&line).cloned()
        }

        fn keys(&self, _files: &KeyFiles) -> Result<(), String> {
            self.keys.clone().map_or(Ok(()), Err)
        }

        fn dpdk(&self) -> Result<(), String> {
            self.dpdk.clone().map_or(Ok(()), Err)
        }

        fn now_s(&self) -> u64 {
            self.now_s
        }
    }
}
