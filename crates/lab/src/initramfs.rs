//! The guest's root file system: stock programs with their libraries, the kernel's modules, and the lab's few scripts.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::cpio::Archive;
use crate::error::{Error, Result};
use crate::packages::{Selection, Tree};
use crate::process;

/// Packages the programs come from; kmod and xz serve the lab itself.
pub(crate) const PACKAGES: Selection<'static> = Selection {
    packages: &[
        "bash",
        "busybox-static",
        "coreutils",
        "dash",
        "diffutils",
        "e2fsprogs",
        "ethtool",
        "fio",
        "iperf3",
        "iputils-ping",
        "kmod",
        "mdadm",
        "nvme-cli",
        "pciutils",
        "util-linux",
        "xfsprogs",
        "xz-utils",
    ],
    backports: false,
};

/// Programs beyond busybox's, by the name they are called.
const PROGRAMS: [(&str, &str); 41] = [
    ("usr/bin/bash", "bash"),
    ("usr/bin/cat", "cat"),
    ("usr/bin/dash", "dash"),
    // Busybox's shell, env and setsid would run busybox's own version of whatever they start.
    ("usr/bin/dash", "sh"),
    ("usr/sbin/fstrim", "fstrim"),
    ("usr/bin/flock", "flock"),
    ("usr/sbin/losetup", "losetup"),
    ("usr/bin/env", "env"),
    ("usr/bin/mount", "mount"),
    ("usr/bin/setsid", "setsid"),
    ("usr/bin/umount", "umount"),
    ("usr/sbin/wipefs", "wipefs"),
    ("usr/sbin/badblocks", "badblocks"),
    ("usr/sbin/blkdiscard", "blkdiscard"),
    ("usr/sbin/blkid", "blkid"),
    ("usr/sbin/blockdev", "blockdev"),
    ("usr/bin/cmp", "cmp"),
    ("usr/bin/cp", "cp"),
    ("usr/bin/dd", "dd"),
    ("usr/bin/diff", "diff"),
    ("usr/bin/dmesg", "dmesg"),
    ("usr/sbin/dumpe2fs", "dumpe2fs"),
    ("usr/sbin/e2fsck", "e2fsck"),
    ("usr/sbin/e2fsck", "fsck.ext4"),
    ("usr/sbin/ethtool", "ethtool"),
    ("usr/bin/fio", "fio"),
    ("usr/bin/iperf3", "iperf3"),
    ("usr/bin/ping", "ping"),
    ("usr/bin/lsblk", "lsblk"),
    ("usr/bin/lspci", "lspci"),
    ("usr/sbin/mdadm", "mdadm"),
    ("usr/sbin/mke2fs", "mke2fs"),
    ("usr/sbin/mke2fs", "mkfs.ext4"),
    ("usr/sbin/mkfs.xfs", "mkfs.xfs"),
    ("usr/sbin/nvme", "nvme"),
    ("usr/bin/setpci", "setpci"),
    ("usr/bin/sha256sum", "sha256sum"),
    ("usr/bin/stat", "stat"),
    ("usr/bin/sync", "sync"),
    ("usr/bin/timeout", "timeout"),
    ("usr/sbin/xfs_repair", "xfs_repair"),
];
/// The library is that of Rust programs, such as Etherslot's.
const DATA: [&str; 3] =
    ["etc/mke2fs.conf", "usr/share/misc/pci.ids", "usr/lib/x86_64-linux-gnu/libgcc_s.so.1"];

const SCRIPTS: [(&str, &str, u32); 4] = [
    ("etc/inittab", include_str!("../guest/inittab"), 0o644),
    ("etc/lab/boot", include_str!("../guest/boot"), 0o755),
    ("etc/lab/agent", include_str!("../guest/agent"), 0o755),
    ("etc/lab/console", include_str!("../guest/console"), 0o755),
];
const BUSYBOX: &str = "usr/bin/busybox";

/// Changes whenever the image would.
pub(crate) fn recipe(tools: &str, kernel: &str) -> String {
    let mut recipe = format!("tools {tools}; kernel {kernel}; ");
    for (path, name) in PROGRAMS {
        let _ = write!(recipe, "{path} as {name}, ");
    }
    recipe.push_str(&DATA.join(", "));
    for (path, text, mode) in SCRIPTS {
        let _ = write!(recipe, "\n{path} {mode:o}\n{text}");
    }
    recipe
}

/// Writes the image to `output`. `modules` is a folder with `lib/modules` in it.
pub(crate) fn build(output: &Path, tools: &Tree, modules: &Path) -> Result<()> {
    let failed = || format!("write {}", output.display());
    let file = File::create(output).map_err(Error::io(failed()))?;
    let mut archive = Archive::new(BufWriter::new(file));
    let mut image = Image { archive: &mut archive, tools };
    image.skeleton().map_err(Error::io(failed()))?;
    for (path, name) in PROGRAMS {
        image.program(path, name)?;
    }
    image.busybox()?;
    for path in DATA {
        image.copy(&tools.path(path), path, 0o644)?;
    }
    for (path, text, mode) in SCRIPTS {
        image.archive.file(path, mode, text.as_bytes()).map_err(Error::io(failed()))?;
    }
    image.folder(&modules.join("lib/modules"), "usr/lib/modules")?;
    archive.finish().and_then(|mut out| out.flush()).map_err(Error::io(failed()))
}

struct Image<'a, W> {
    archive: &'a mut Archive<W>,
    tools: &'a Tree,
}

impl<W: Write> Image<'_, W> {
    fn skeleton(&mut self) -> std::io::Result<()> {
        for folder in
            ["dev", "mnt", "proc", "root", "run", "sys", "tmp", "usr/bin", "usr/sbin", "usr/lib", "usr/lib64"]
        {
            self.archive.directory(folder)?;
        }
        for folder in ["bin", "sbin", "lib", "lib64"] {
            self.archive.symlink(folder, &format!("usr/{folder}"))?;
        }
        // The console must be there before devtmpfs is.
        self.archive.character_device("dev/console", 5, 1)?;
        self.archive
            .symlink("usr/lib64/ld-linux-x86-64.so.2", "../lib/x86_64-linux-gnu/ld-linux-x86-64.so.2")?;
        self.archive.symlink("etc/mtab", "/proc/mounts")?;
        self.archive.file("etc/passwd", 0o644, b"root:x:0:0:root:/root:/bin/sh\n")?;
        self.archive.file("etc/group", 0o644, b"root:x:0:\n")?;
        self.archive.symlink("init", BUSYBOX)
    }

    fn program(&mut self, path: &str, name: &str) -> Result<()> {
        self.copy(&self.tools.path(path), path, 0o755)?;
        for object in self.tools.shared_objects(path)? {
            self.copy(&self.tools.path(&object), &object, 0o755)?;
        }
        let alias = format!("{}/{name}", path.rsplit_once('/').map_or("", |(folder, _)| folder));
        if !self.archive.contains(&alias) {
            let file = path.rsplit('/').next().unwrap_or(path);
            self.archive.symlink(&alias, file).map_err(Error::io(format!("link {alias}")))?;
        }
        Ok(())
    }

    /// Busybox under all its names that no program has taken.
    fn busybox(&mut self) -> Result<()> {
        self.copy(&self.tools.path(BUSYBOX), BUSYBOX, 0o755)?;
        let applets = process::output(std::process::Command::new(self.tools.path(BUSYBOX)).arg("--list"))?;
        for applet in applets.lines() {
            if PROGRAMS.iter().all(|(_, name)| *name != applet) && applet != "busybox" {
                self.archive
                    .symlink(&format!("usr/bin/{applet}"), "busybox")
                    .map_err(Error::io(format!("link {applet}")))?;
            }
        }
        for (path, target) in [("usr/sbin/modprobe", "../bin/busybox"), ("usr/sbin/init", "../bin/busybox")] {
            self.archive.symlink(path, target).map_err(Error::io(format!("link {path}")))?;
        }
        Ok(())
    }

    /// A file with its content; symbolic links are followed, since versions of a library are links to it.
    fn copy(&mut self, from: &Path, to: &str, mode: u32) -> Result<()> {
        if self.archive.contains(to) {
            return Ok(());
        }
        let content = fs::read(from).map_err(Error::io(format!("read {}", from.display())))?;
        self.archive.file(to, mode, &content).map_err(Error::io(format!("add {to} to the initramfs")))
    }

    fn folder(&mut self, from: &Path, to: &str) -> Result<()> {
        for (path, name) in sorted_entries(from)? {
            let to = format!("{to}/{name}");
            if path.is_dir() {
                self.folder(&path, &to)?;
            } else {
                self.copy(&path, &to, 0o644)?;
            }
        }
        Ok(())
    }
}

/// Sorted, so that equal inputs give equal images.
fn sorted_entries(folder: &Path) -> Result<Vec<(std::path::PathBuf, String)>> {
    let mut entries: Vec<_> = fs::read_dir(folder)
        .map_err(Error::io(format!("list {}", folder.display())))?
        .filter_map(|entry| {
            let entry = entry.ok()?;
            Some((entry.path(), entry.file_name().into_string().ok()?))
        })
        .collect();
    entries.sort();
    Ok(entries)
}

/// Writes an archive with `files` (from this machine, path in the guest) to follow the image.
pub(crate) fn overlay(output: &mut dyn Write, files: &[(std::path::PathBuf, String)]) -> Result<()> {
    let mut archive = Archive::new(output);
    for (from, to) in files {
        let content = fs::read(from).map_err(Error::io(format!("read {}", from.display())))?;
        let mode = fs::metadata(from)
            .map_or(0o644, |metadata| if metadata.permissions().mode() & 0o111 != 0 { 0o755 } else { 0o644 });
        archive.file(to.trim_start_matches('/'), mode, &content).map_err(Error::io(format!("add {to}")))?;
    }
    archive.finish().map(drop).map_err(Error::io("write the guest's own files"))
}
