//! Huge pages for those who want them, and the machine as it was afterwards.
//!
//! What there was before is written down, under a lock, so that the next run can undo what a killed one left.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

const COUNT: &str = "/proc/sys/vm/nr_hugepages";
const FREE: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages";
/// How many there were, and on the next line where a file system of them is.
const NOTE: &str = "/run/etherslot-bench.hugepages";
const PAGE_MIB: u32 = 2;

/// Huge pages of 2 MiB, and a file system of them. Dropped, both are gone.
pub(crate) struct HugePages {
    folder: PathBuf,
    _note: File,
}

fn read(path: &str) -> Result<u32> {
    let text = fs::read_to_string(path).with_context(|| format!("read {path}"))?;
    text.trim().parse().with_context(|| format!("read {path}"))
}

/// Undoes what the note says.
fn undo() {
    let Ok(note) = fs::read_to_string(NOTE) else { return };
    if let Some((before, folder)) = note.split_once('\n') {
        // It may be that it was never mounted.
        let _ = unmount(folder, UnmountFlags::DETACH);
        let _ = fs::write(COUNT, before);
    }
    let _ = fs::remove_file(NOTE);
}

/// Gives back what a run took that was killed.
pub(crate) fn clear_stale() {
    if File::open(NOTE).is_ok_and(|note| note.try_lock().is_ok()) {
        undo();
    }
}

impl HugePages {
    /// Sees to it that `mib` MiB are free, and mounts them at `folder`.
    pub(crate) fn new(mib: u32, folder: PathBuf) -> Result<Self> {
        let (before, wanted) = (read(COUNT)?, mib.div_ceil(PAGE_MIB));
        let missing = wanted.saturating_sub(read(FREE)?);
        fs::create_dir_all(&folder)?;
        // Locked before it has its name: nobody takes it for a dead run's.
        let young = format!("{NOTE}.{}", std::process::id());
        let mut note = File::create(&young).with_context(|| format!("create {young}"))?;
        note.lock().with_context(|| format!("lock {young}"))?;
        write!(note, "{before}\n{}", folder.display())?;
        let linked = fs::hard_link(&young, NOTE);
        fs::remove_file(&young)?;
        linked.with_context(|| format!("another run has huge pages ({NOTE})"))?;
        let pages = Self { folder, _note: note };
        fs::write(COUNT, (before + missing).to_string()).with_context(|| format!("write {COUNT}"))?;
        let free = read(FREE)?;
        ensure!(
            free >= wanted,
            "{wanted} huge pages of 2 MiB are not to be had, only {free}: free some memory"
        );
        mount("none", &pages.folder, "hugetlbfs", MountFlags::empty(), None).context("mount huge pages")?;
        Ok(pages)
    }

    /// Where they are mounted.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        undo();
    }
}
