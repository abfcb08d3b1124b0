//! One experiment: a directory for its sockets, configuration and logs, and a name for what it makes on the machine.
//!
//! A run holds a lock file under `/run` for as long as its process lives. A lock that can be taken belongs to a run
//! that died; the next run removes what the dead one left. A run that ends in a panic, or is told to, leaves
//! its logs in `failed/` of the cache.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use crate::cache::Cache;
use crate::error::{Error, Result};
use crate::process::tool;

const LOCKS: &str = "/run/etherslot-lab";
const FOLDER_VARIABLE: &str = "ETHERSLOT_LAB_RUNS";
/// `sun_path` of a Unix socket address, less the terminating zero and room for a file name in a run's folder.
const FOLDER_BYTES_MAX: usize = 107 - 24;
/// What of a failed run is worth keeping.
const EVIDENCE: [&str; 4] = ["log", "toml", "pcap", "pcapng"];
const EVIDENCE_BYTES_MAX: u64 = 64 << 20;

/// A handle to a run; the last one to go cleans up.
#[derive(Clone, Debug)]
pub struct Run(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    id: String,
    name: String,
    folder: PathBuf,
    lock_path: PathBuf,
    keep: AtomicBool,
    forget: AtomicBool,
    _lock: File,
}

impl Run {
    /// Starts a run, after cleaning up after those that died.
    pub fn new(name: &str) -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        Self::clean_stale()?;
        let id = format!("{}-{}", process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let folder = env::var_os(FOLDER_VARIABLE)
            .map_or_else(|| Cache::folder().join("runs"), PathBuf::from)
            .join(&id);
        if folder.as_os_str().len() > FOLDER_BYTES_MAX {
            return Err(Error::setup(
                format!("{} is too long a path for sockets in it", folder.display()),
                format!("name a short folder in {FOLDER_VARIABLE}"),
            ));
        }
        let failed = |path: &Path| format!("create {}", path.display());
        fs::create_dir_all(LOCKS).map_err(Error::io(failed(Path::new(LOCKS))))?;
        // Locked before it bears its name: nobody can take it for a dead run's.
        let lock_path = Path::new(LOCKS).join(format!("{id}.lock"));
        let young = Path::new(LOCKS).join(format!("{id}.new"));
        let lock = File::create(&young).map_err(Error::io(failed(&young)))?;
        lock.lock().map_err(Error::io(format!("lock {}", young.display())))?;
        fs::write(&young, folder.as_os_str().as_encoded_bytes()).map_err(Error::io(failed(&young)))?;
        fs::rename(&young, &lock_path).map_err(Error::io(failed(&lock_path)))?;
        fs::create_dir_all(&folder).map_err(Error::io(failed(&folder)))?;
        let inner = Inner {
            id,
            name: name.to_owned(),
            folder,
            lock_path,
            keep: AtomicBool::new(false),
            forget: AtomicBool::new(false),
            _lock: lock,
        };
        Ok(Self(Arc::new(inner)))
    }

    /// Removes what runs of dead processes left behind.
    pub fn clean_stale() -> Result<()> {
        let Ok(locks) = fs::read_dir(LOCKS) else { return Ok(()) };
        for entry in locks.flatten() {
            let path = entry.path();
            let Ok(lock) = File::open(&path) else { continue };
            if path.extension().is_some_and(|extension| extension == "lock") && lock.try_lock().is_ok() {
                let id = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
                remove_namespaces(&id)?;
                if let Ok(folder) = fs::read_to_string(&path)
                    && Path::new(&folder).ends_with(&id)
                {
                    let _ = fs::remove_dir_all(folder);
                }
                let _ = fs::remove_file(&path);
            }
        }
        Ok(())
    }

    /// Unique on this machine.
    pub fn id(&self) -> &str {
        &self.0.id
    }

    /// Where its files are.
    pub fn folder(&self) -> &Path {
        &self.0.folder
    }

    /// The path of a file in its folder.
    pub fn path(&self, file: &str) -> PathBuf {
        self.0.folder.join(file)
    }

    /// A network namespace's full name.
    pub(crate) fn namespace(&self, part: &str) -> String {
        format!("{}{part}", namespace_prefix(&self.0.id))
    }

    /// Makes a file of `bytes` zeros that takes no room until it is written.
    pub fn disk_image(&self, name: &str, bytes: u64) -> Result<PathBuf> {
        let path = self.path(name);
        let failed = || format!("create {}", path.display());
        let file = File::create(&path).map_err(Error::io(failed()))?;
        file.set_len(bytes).map_err(Error::io(failed()))?;
        Ok(path)
    }

    /// Keeps the logs when the run ends, as a panic does.
    pub fn keep_logs(&self) {
        self.0.keep.store(true, Ordering::Relaxed);
    }

    /// Keeps nothing even if the thread is panicking.
    pub(crate) fn forget(&self) {
        self.0.forget.store(true, Ordering::Relaxed);
    }

    /// What cleans up when the process is about to end without dropping anything, as on a signal. It keeps no run alive.
    pub fn abandoner(&self) -> impl FnOnce() + Send + 'static {
        let run = Arc::downgrade(&self.0);
        move || {
            if let Some(run) = run.upgrade() {
                run.clean();
            }
        }
    }
}

impl Inner {
    fn clean(&self) {
        let _ = remove_namespaces(&self.id);
        let _ = fs::remove_dir_all(&self.folder);
        let _ = fs::remove_file(&self.lock_path);
    }

    fn keep_evidence(&self) {
        let kept = Cache::folder().join("failed").join(format!("{}-{}", self.name, self.id));
        if fs::create_dir_all(&kept).is_err() {
            return;
        }
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let telling =
                path.extension().is_some_and(|extension| EVIDENCE.iter().any(|known| extension == *known));
            if telling && entry.metadata().is_ok_and(|metadata| metadata.len() <= EVIDENCE_BYTES_MAX) {
                let _ = fs::copy(&path, kept.join(entry.file_name()));
            }
        }
        eprintln!("lab: logs of the failed run are in {}", kept.display());
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let failed = self.keep.load(Ordering::Relaxed) || thread::panicking();
        if failed && !self.forget.load(Ordering::Relaxed) {
            self.keep_evidence();
        }
        self.clean();
    }
}

fn namespace_prefix(id: &str) -> String {
    format!("etherslot-{id}-")
}

fn remove_namespaces(id: &str) -> Result<()> {
    let prefix = namespace_prefix(id);
    // As `ip netns` does: a namespace is a file, and need not be asked for.
    for entry in fs::read_dir("/run/netns").into_iter().flatten().flatten() {
        if let Ok(name) = entry.file_name().into_string()
            && name.starts_with(&prefix)
        {
            tool("ip", ["netns", "delete", &name])?;
        }
    }
    Ok(())
}
