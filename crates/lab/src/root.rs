//! Another release of Debian than the machine's, as the root of processes: its programs, its libraries, its loader.
//!
//! Nothing of it is installed or started but what a test runs in it, on this machine's kernel.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cache::Cache;
use crate::error::{Error, Result};
use crate::packages::{Selection, Tree};
use crate::process::mortal;

/// What uses verbs, the headers, and what it takes to become nobody and to start a program.
const PACKAGES: Selection<'static> = Selection {
    packages: &[
        "base-files",
        "dash",
        "coreutils",
        "util-linux",
        "bsdutils",
        "ibverbs-utils",
        "perftest",
        "rdmacm-utils",
        "ucx-utils",
        "libfabric-bin",
        "openmpi-bin",
        "libibverbs-dev",
        "librdmacm-dev",
    ],
    backports: false,
};

/// Where a folder of the machine's is in such a root.
const SHARED: &str = "/mnt";

/// In a mount namespace of its own: the machine's devices and processes, the shared folder, and the program.
const ENTER: &str = r#"root=$1 shared=$2; shift 2
for folder in dev proc sys; do mount --rbind "/$folder" "$root/$folder" || exit; done
mount --bind "$shared" "$root/mnt" && exec chroot "$root" "$@""#;

/// Debian 13 with the programs that use verbs.
#[derive(Clone, Debug)]
pub struct Root {
    path: PathBuf,
}

/// What an installation has that is in no package: names of this machine, of root, and of nobody.
const HOSTS: &str = "127.0.0.1 localhost\n";
const PASSWD: &str = "root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/nonexistent:/bin/sh\n";

/// Unpacks packages, and adds what an installation has.
pub(crate) fn unpack(root: &Path, packages: &Selection<'_>) -> Result<()> {
    Tree::unpack(root, packages)?;
    let write = || {
        fs::write(root.join("etc/hosts"), HOSTS)?;
        fs::write(root.join("etc/passwd"), PASSWD)?;
        fs::create_dir_all(root.join("mnt"))?;
        // Nobody has to find its programs.
        fs::set_permissions(root, fs::Permissions::from_mode(0o755))
    };
    write().map_err(Error::io(format!("complete {}", root.display())))
}

impl Root {
    /// Unpacked, if it is not there yet.
    pub fn ensure() -> Result<Self> {
        Ok(Self { path: Cache::root_of_13(&PACKAGES)? })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path in this root of a file in the shared folder.
    pub fn shared(file: &str) -> PathBuf {
        Path::new(SHARED).join(file)
    }

    /// As [`mortal`], with this root, in which `shared` is a folder of the machine's. The program and its arguments are to follow.
    pub fn enter(&self, namespace: Option<&str>, shared: &Path) -> Command {
        let mut command = mortal(namespace, Path::new("unshare"));
        command.args(["--mount", "--propagation", "private", "--", "sh", "-c", ENTER, "sh"]);
        command.arg(&self.path).arg(shared);
        command
    }
}
