//! How far a copy is durable, in a file, for the next attempt.

use std::fs;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use etherslot_runtime::initiator::driver::CopyRange;
use serde::{Deserialize, Serialize};

/// Of one pair. Disks are known by their serial numbers: a name may be that of another one by then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Entry {
    source_serial: String,
    source_start: u64,
    target_serial: String,
    target_start: u64,
    bytes: u64,
    durable: u64,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct State {
    version: u32,
    pairs: Vec<Entry>,
}

/// The file.
#[derive(Debug)]
pub(super) struct Resume {
    path: PathBuf,
    state: State,
}

const VERSION: u32 = 1;

impl Entry {
    pub(super) fn of(range: &CopyRange, [source_serial, target_serial]: [String; 2]) -> Self {
        let CopyRange { source_start, target_start, bytes, .. } = *range;
        Self { source_serial, source_start, target_serial, target_start, bytes, durable: 0 }
    }

    fn is_same(&self, other: &Self) -> bool {
        *self == Self { durable: self.durable, ..other.clone() }
    }
}

impl Resume {
    /// What the file says of these pairs; nothing, if there is none.
    pub(super) fn open(path: &Path, wanted: Vec<Entry>) -> Result<Self> {
        let mut state = State { version: VERSION, pairs: wanted };
        match fs::read_to_string(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
            Ok(text) => {
                let of_another = || {
                    format!(
                        "{} is not of this copy: remove it, or name another --resume file",
                        path.display()
                    )
                };
                let known: State = serde_json::from_str(&text).with_context(of_another)?;
                let is_same = known.version == VERSION
                    && known.pairs.len() == state.pairs.len()
                    && known
                        .pairs
                        .iter()
                        .zip(&state.pairs)
                        .all(|(known, wanted)| known.is_same(wanted) && known.durable <= known.bytes);
                ensure!(is_same, of_another());
                state = known;
            }
        }
        Ok(Self { path: path.to_owned(), state })
    }

    /// How much of each pair is there.
    pub(super) fn durable(&self) -> impl Iterator<Item = u64> {
        self.state.pairs.iter().map(|pair| pair.durable)
    }

    /// So much of each pair is durable. The file is replaced in one step if that is more than before.
    pub(super) fn note(&mut self, durable: impl Iterator<Item = u64>) -> Result<()> {
        let mut is_news = false;
        for (pair, durable) in self.state.pairs.iter_mut().zip(durable) {
            is_news |= std::mem::replace(&mut pair.durable, durable) != durable;
        }
        if !is_news {
            return Ok(());
        }
        let write = || {
            let next = self.path.with_added_extension("new");
            let mut file = fs::File::create(&next)?;
            serde_json::to_writer(&mut file, &self.state)?;
            file.write_all(b"\n")?;
            file.sync_all()?;
            fs::rename(&next, &self.path)
        };
        write().with_context(|| format!("cannot write {}", self.path.display()))
    }

    /// Everything is copied: the next copy is another one.
    pub(super) fn remove(self) -> Result<()> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(error).with_context(|| format!("cannot remove {}", self.path.display()))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(serial: &str, bytes: u64) -> Entry {
        let range = CopyRange { source: 0, source_start: 1, target: 1, target_start: 2, bytes, done: 0 };
        Entry::of(&range, [serial.to_owned(), "T".to_owned()])
    }

    #[test]
    fn the_file_tells_the_next_attempt_and_no_other_copy() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let mut resume = Resume::open(&path, vec![entry("A", 100), entry("B", 50)]).unwrap();
        assert_eq!(resume.durable().collect::<Vec<_>>(), [0, 0]);
        resume.note([0, 0].into_iter()).unwrap();
        assert!(!path.exists(), "nothing to tell");
        resume.note([64, 50].into_iter()).unwrap();
        let again = Resume::open(&path, vec![entry("A", 100), entry("B", 50)]).unwrap();
        assert_eq!(again.durable().collect::<Vec<_>>(), [64, 50]);
        for other in [
            vec![entry("A", 100)],
            vec![entry("A", 100), entry("C", 50)],
            vec![entry("A", 99), entry("B", 50)],
        ] {
            assert!(Resume::open(&path, other).unwrap_err().to_string().contains("--resume"));
        }
        fs::write(&path, "{}").unwrap();
        assert!(Resume::open(&path, vec![entry("A", 100)]).is_err());
        again.remove().unwrap();
        assert!(!path.exists());
    }
}
