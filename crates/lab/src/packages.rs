//! Debian packages: what the lab needs on this machine, and package trees unpacked beside it.
//!
//! A tree is unpacked by mmdebstrap without running any of its scripts; its programs run through its own dynamic
//! loader, so nothing is mounted, nothing of the machine changes, and no chroot is needed.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{Error, Result};
use crate::process;

/// Names the mirror when apt's configuration has none of Debian's.
const MIRROR_VARIABLE: &str = "ETHERSLOT_LAB_MIRROR";

/// A program that the lab runs on this machine, and the package that brings it.
type Program = (&'static str, &'static str);

/// For the Ethernet of a run and the processes on it.
const NET_PROGRAMS: &[Program] = &[
    ("ip", "iproute2"),
    ("nft", "nftables"),
    ("nsenter", "util-linux"),
    ("setpriv", "util-linux"),
    ("sysctl", "procps"),
    ("tc", "iproute2"),
];
/// For guests and captures.
const GUEST_PROGRAMS: &[Program] = &[("mmdebstrap", "mmdebstrap"), ("tcpdump", "tcpdump")];
/// Users of an exported disk.
const NBD_PROGRAMS: &[Program] = &[("fio", "fio"), ("nbdcopy", "libnbd-bin"), ("qemu-io", "qemu-utils")];
/// mmdebstrap checks signatures by this file; the package of any supported release has the keys of the suites used here.
const KEYRING: (&str, &str) = ("/usr/share/keyrings/debian-archive-keyring.gpg", "debian-archive-keyring");

/// The program's path, as a shell would find it; the administrator's folders are searched in any case.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from))
        .map(|folder| folder.join(name))
        .find(|program| program.is_file())
}

/// Root, Linux on x86-64: without these nothing here works.
pub(crate) fn check_machine() -> Result<()> {
    if env::consts::ARCH != "x86_64" || env::consts::OS != "linux" {
        return Err(Error::setup(
            format!(
                "the lab's guests are x86-64 Linux machines, this is {} {}",
                env::consts::ARCH,
                env::consts::OS
            ),
            "run it on Linux on x86-64",
        ));
    }
    check_root()
}

fn check_root() -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Err(Error::setup(
            "the lab makes network namespaces, which takes root",
            "run it as root (sudo ./run …)",
        ));
    }
    Ok(())
}

/// Completes what a run without guests needs of this machine: its Ethernet alone. Tells on standard error what it installs.
pub fn ensure_net() -> Result<()> {
    check_root()?;
    install(packages_of(NET_PROGRAMS), &mut |text| eprintln!("lab: {text}"))
}

/// The same for the programs that use an exported disk.
pub fn ensure_nbd_clients() -> Result<()> {
    check_root()?;
    install(packages_of(NBD_PROGRAMS), &mut |text| eprintln!("lab: {text}"))
}

/// The same with programs of the caller's: each, and the package that brings it.
pub fn ensure_programs(programs: &[(&'static str, &'static str)]) -> Result<()> {
    check_root()?;
    let mut missing = packages_of(NET_PROGRAMS);
    missing.extend(packages_of(programs));
    install(missing, &mut |text| eprintln!("lab: {text}"))
}

/// Installs whatever the lab's own programs lack on this machine.
pub(crate) fn ensure_host(say: &mut dyn FnMut(&str)) -> Result<()> {
    let mut missing = packages_of(NET_PROGRAMS);
    missing.extend(packages_of(GUEST_PROGRAMS));
    if !Path::new(KEYRING.0).exists() {
        missing.insert(KEYRING.1);
    }
    install(missing, say)
}

/// The packages of those programs that are not there.
fn packages_of(programs: &[Program]) -> BTreeSet<&'static str> {
    programs
        .iter()
        .filter(|(program, _)| find_program(program).is_none())
        .map(|(_, package)| *package)
        .collect()
}

fn install(missing: BTreeSet<&str>, say: &mut dyn FnMut(&str)) -> Result<()> {
    if missing.is_empty() {
        return Ok(());
    }
    let list: Vec<&str> = missing.into_iter().collect();
    if find_program("apt-get").is_none() {
        return Err(Error::setup(
            format!("these programs are missing: {}", list.join(", ")),
            "install them (the lab can do so itself only with apt-get)",
        ));
    }
    say(&format!("installing on this machine: {}", list.join(" ")));
    update();
    process::output(
        Command::new("apt-get")
            .args(["-o", "DPkg::Lock::Timeout=300", "install", "--yes", "--quiet", "--no-install-recommends"])
            .args(&list)
            .env("DEBIAN_FRONTEND", "noninteractive"),
    )?;
    Ok(())
}

/// Some archive that has nothing to do with the lab may well be out of reach; what is really missing shows later.
fn update() {
    let _ = process::tool("apt-get", ["-o", "DPkg::Lock::Timeout=300", "update", "--quiet"]);
}

/// A Debian archive, taken from this machine's own configuration of apt.
fn mirror() -> Result<String> {
    if let Ok(mirror) = env::var(MIRROR_VARIABLE) {
        return Ok(mirror);
    }
    if let Some(mirror) = configured_mirror()? {
        return Ok(mirror);
    }
    // Until its first update apt does not know whose archives it has been given.
    update();
    configured_mirror()?.ok_or_else(|| {
        Error::setup(
            "apt's configuration on this machine names no Debian archive",
            format!("give one in {MIRROR_VARIABLE}"),
        )
    })
}

fn configured_mirror() -> Result<Option<String>> {
    let targets = process::tool(
        "apt-get",
        ["indextargets", "--format", "$(ORIGIN)|$(LABEL)|$(COMPONENT)|$(REPO_URI)", "Created-By: Packages"],
    )?;
    Ok(targets.lines().find_map(debian_archive))
}

fn debian_archive(target: &str) -> Option<String> {
    let mut fields = target.splitn(4, '|');
    let known =
        fields.next() == Some("Debian") && fields.next() == Some("Debian") && fields.next() == Some("main");
    let uri = fields.next()?;
    let usable = ["http://", "https://", "file:/"].iter().any(|scheme| uri.starts_with(scheme));
    (known && usable).then(|| uri.trim_end_matches('/').to_owned())
}

/// The release whose packages the lab uses.
const SUITE: &str = "trixie";

/// Which packages make a tree.
pub(crate) struct Selection<'a> {
    /// Packages by name; what they depend on comes along.
    pub(crate) packages: &'a [&'a str],
    /// Prefer the backports of the release.
    pub(crate) backports: bool,
}

impl Selection<'_> {
    /// One line that changes whenever the tree would.
    pub(crate) fn recipe(&self) -> String {
        let backports = if self.backports { "-backports" } else { "" };
        format!("{SUITE}{backports}: {}", self.packages.join(" "))
    }
}

/// Unpacked packages.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    pub(crate) root: PathBuf,
}

impl Tree {
    /// Fetches and unpacks `selection` into `root`, which must not exist.
    pub(crate) fn unpack(root: &Path, selection: &Selection<'_>) -> Result<Self> {
        let mirror = mirror()?;
        let mut command = Command::new("mmdebstrap");
        command
            .args(["--quiet", "--variant=extract", "--aptopt=APT::Install-Recommends \"false\""])
            .args(["--aptopt=Acquire::Languages \"none\"", "--aptopt=Acquire::Retries \"3\""])
            .arg(format!("--include={}", selection.packages.join(",")));
        if selection.backports {
            command.arg(format!("--aptopt=APT::Default-Release \"{SUITE}-backports\""));
        }
        command.arg(SUITE).arg(root).arg(format!("deb {mirror} {SUITE} main"));
        if selection.backports {
            command.arg(format!("deb {mirror} {SUITE}-backports main"));
        }
        process::output(&mut command)?;
        // What a release's base-files would add in its scripts: programs and module tools look below /lib.
        let tree = Self { root: root.to_owned() };
        for folder in ["bin", "sbin", "lib", "lib64"] {
            if !tree.root.join(folder).exists() {
                std::os::unix::fs::symlink(format!("usr/{folder}"), tree.root.join(folder))
                    .map_err(Error::io(format!("link {folder} in {}", root.display())))?;
            }
        }
        // Archives of packages and lists of them are of no more use.
        for folder in ["var/cache/apt", "var/lib/apt", "usr/share/doc", "usr/share/man", "usr/share/locale"] {
            let _ = fs::remove_dir_all(tree.root.join(folder));
        }
        Ok(tree)
    }

    pub(crate) fn path(&self, relative: &str) -> PathBuf {
        self.root.join(relative)
    }

    fn loader(&self) -> PathBuf {
        self.path("usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2")
    }

    fn libraries(&self) -> String {
        // Ceph's library is found by an absolute path in the programs that need it, which does not hold here.
        ["usr/lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu/ceph"]
            .map(|folder| self.path(folder).display().to_string())
            .join(":")
    }

    /// Program and arguments that run `program` of this tree, under the name `as_name`.
    pub(crate) fn invocation(&self, program: &str, as_name: &str) -> (PathBuf, Vec<String>) {
        let arguments = [
            "--argv0".to_owned(),
            as_name.to_owned(),
            "--library-path".to_owned(),
            self.libraries(),
            self.path(program).display().to_string(),
        ];
        (self.loader(), arguments.to_vec())
    }

    /// A command that runs `program` of this tree, under the name `as_name`.
    pub(crate) fn command(&self, program: &str, as_name: &str) -> Command {
        let (loader, arguments) = self.invocation(program, as_name);
        let mut command = Command::new(loader);
        command.args(arguments);
        command
    }

    /// The shared objects that `program` loads, relative to the root; empty for a static program.
    pub(crate) fn shared_objects(&self, program: &str) -> Result<Vec<String>> {
        let mut command = Command::new(self.loader());
        command.args(["--library-path", &self.libraries(), "--list"]).arg(self.path(program));
        let list = match process::output(&mut command) {
            Ok(list) => list,
            Err(Error::Command { output, .. }) if output.contains("not a dynamic executable") => {
                return Ok(Vec::new());
            }
            Err(error) => return Err(error),
        };
        let root = format!("{}/", self.root.display());
        let mut objects = Vec::new();
        for word in list.split_whitespace() {
            if let Some(object) = word.strip_prefix(&root) {
                objects.push(object.to_owned());
            }
        }
        Ok(objects)
    }
}

#[cfg(test)]
mod tests {
    use super::debian_archive;

    #[test]
    fn only_a_main_archive_of_debian_itself_serves_as_mirror() {
        assert_eq!(
            debian_archive("Debian|Debian|main|http://a.test/debian/").as_deref(),
            Some("http://a.test/debian")
        );
        assert_eq!(debian_archive("Debian|Debian-Security|main|http://a.test/debian-security/"), None);
        assert_eq!(debian_archive("Ubuntu|Ubuntu|main|http://a.test/ubuntu/"), None);
        assert_eq!(debian_archive("Debian|Debian|main|cdrom://disc/"), None);
        assert_eq!(debian_archive(""), None);
    }
}
