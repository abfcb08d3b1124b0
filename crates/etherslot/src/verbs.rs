//! `etherslot verbs`: programs that use RDMA verbs, on the RNIC in software.

use std::ffi::OsString;
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use clap::{Args, Subcommand};

/// What a program's libraries are named, and the folder that has ours.
const LIBRARIES: [&str; 2] = ["libibverbs.so.1", "librdmacm.so.1"];
const FOLDER: &str = "verbs";
/// What shows [`NODE`] to a program where the machine has none: UCX looks for it, and looks no closer.
const PATHS: &str = "paths.so";
const NODE: &str = "/dev/infiniband/uverbs0";
/// Where installed programs keep libraries of their own, seen from the binary's folder.
const INSTALLED: &str = "../lib/etherslot/verbs";
const LIBRARY_PATH: &str = "LD_LIBRARY_PATH";
const PRELOAD: &str = "LD_PRELOAD";

/// `etherslot verbs`.
#[derive(Subcommand)]
pub(crate) enum Verbs {
    /// Runs a program with Etherslot's RNIC in place of the machine's RDMA devices. No privileges are needed.
    Run(Run),
}

/// `etherslot verbs run`.
#[derive(Args)]
pub(crate) struct Run {
    /// The IPv4 address that peers reach the program at. By default, the first of this machine's that is not loopback.
    #[arg(long, env = "ETHERSLOT_VERBS_IP", value_name = "ADDRESS")]
    ip: Option<Ipv4Addr>,
    /// The MTU of the way to the peers, if it is not the interface's.
    #[arg(long, env = "ETHERSLOT_VERBS_MTU", value_name = "BYTES", value_parser = clap::value_parser!(u16).range(624..=9284))]
    mtu: Option<u16>,
    /// The slot, a UDP port from 18944 on, that the program holds, for peers that have to know it before. By default the first that is
    /// free.
    #[arg(long, env = "ETHERSLOT_VERBS_SLOT", value_name = "NUMBER", value_parser = clap::value_parser!(u8).range(0..=254))]
    slot: Option<u8>,
    /// The link: udp, which needs no privileges; packet:INTERFACE or xdp:INTERFACE, one process an interface; ring:FOLDER, for processes of
    /// this machine. By default udp.
    #[arg(long, env = "ETHERSLOT_VERBS_LINK", value_name = "LINK")]
    link: Option<String>,
    /// The RNIC that is a PCI Function of this machine, as in 0000:03:00.0, or none. By default the first whose driver is vfio-pci; without
    /// one the RNIC is in the program itself.
    #[arg(long, env = "ETHERSLOT_VERBS_FUNCTION", value_name = "ADDRESS")]
    function: Option<String>,
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

impl Verbs {
    /// Does it; `Ok` is returned by none that runs a program.
    pub(crate) fn run(self) -> Result<()> {
        match self {
            Self::Run(run) => run.run(),
        }
    }
}

impl Run {
    fn run(self) -> Result<()> {
        let binary = std::env::current_exe().context("where is this program?")?;
        let folder = find(binary.parent().unwrap_or(Path::new("/")))?;
        let mut command = Command::new(&self.program[0]);
        command.args(&self.program[1..]).env(LIBRARY_PATH, in_front(&folder, LIBRARY_PATH)?);
        if !Path::new(NODE).exists() {
            command.env(PRELOAD, in_front(&folder.join(PATHS), PRELOAD)?);
        }
        if let Some(ip) = self.ip {
            command.env("ETHERSLOT_VERBS_IP", ip.to_string());
        }
        if let Some(mtu) = self.mtu {
            command.env("ETHERSLOT_VERBS_MTU", mtu.to_string());
        }
        if let Some(slot) = self.slot {
            command.env("ETHERSLOT_VERBS_SLOT", slot.to_string());
        }
        if let Some(link) = self.link {
            command.env("ETHERSLOT_VERBS_LINK", link);
        }
        if let Some(function) = self.function {
            command.env("ETHERSLOT_VERBS_FUNCTION", function);
        }
        let error = command.exec();
        Err(error).with_context(|| format!("cannot run {}", Path::new(&self.program[0]).display()))
    }
}

/// The folder of our libraries, seen from that of the binary.
fn find(here: &Path) -> Result<PathBuf> {
    let folders = [here.join(FOLDER), here.join(INSTALLED)];
    let files = [LIBRARIES[0], LIBRARIES[1], PATHS];
    let has_all = |folder: &&PathBuf| files.iter().all(|file| folder.join(file).is_file());
    match folders.iter().find(has_all) {
        Some(folder) => Ok(folder.clone()),
        None => bail!(
            "{} are neither in {} nor in {}: `./run build` makes them",
            files.join(", "),
            folders[0].display(),
            folders[1].display()
        ),
    }
}

/// A list of the environment, with this path before what was there.
fn in_front(path: &Path, list: &str) -> Result<OsString> {
    let before = std::env::var_os(list).unwrap_or_default();
    let before = std::env::split_paths(&before).filter(|path| !path.as_os_str().is_empty());
    std::env::join_paths(std::iter::once(path.to_owned()).chain(before))
        .context("a folder's name has a colon")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_libraries_are_found_beside_the_binary_or_where_they_are_installed() {
        let root = tempfile::tempdir().expect("a folder");
        let bin = root.path().join("bin");
        std::fs::create_dir(&bin).expect("a folder");
        let error = find(&bin).expect_err("there is none").to_string();
        assert!(error.contains("./run build"), "{error}");
        for folder in [bin.join("../lib/etherslot/verbs"), bin.join("verbs")] {
            std::fs::create_dir_all(&folder).expect("a folder");
            let before = find(&bin).ok();
            for file in [LIBRARIES[0], LIBRARIES[1], PATHS] {
                // One alone is of no use.
                assert_eq!(find(&bin).ok(), before);
                std::fs::write(folder.join(file), []).expect("a file");
            }
            assert_eq!(find(&bin).expect("found"), folder);
        }
    }
}
