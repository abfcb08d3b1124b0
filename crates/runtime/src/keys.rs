//! Key files: where they are, who may read them, and what they hold.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::{env, fmt};

use etherslot_node::Security;
use etherslot_node::seal::{Credentials, Entropy, FabricKey, KeyError, NodeKey, Peers, PublicKey, Suites};

/// The file of the fabric's key, in its usual folders.
pub const FABRIC_FILE: &str = "fabric.key";
/// The file of the node's own key.
pub const NODE_FILE: &str = "node.key";
/// For root.
const SYSTEM_FOLDER: &str = "/etc/etherslot";
/// More than any key file has.
const MOST_BYTES: u64 = 4096;

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// The file can't be read or made.
    #[error("{path}: {source}{}", hint(source))]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Others could read or write it.
    #[error(
        "{path}: others may use this file (mode {mode:04o}): chmod 600 {path}, and make a new key if others had it"
    )]
    Mode {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// It belongs to somebody else.
    #[error("{path}: belongs to user {uid}, who is neither this node's nor root: chown it")]
    Owner {
        /// The file.
        path: PathBuf,
        /// Its owner.
        uid: u32,
    },
    /// It holds no such key.
    #[error("{path}: not a key file: {source}; `etherslot keygen` makes keys")]
    Content {
        /// The file.
        path: PathBuf,
        /// Why.
        source: KeyError,
    },
    /// There is no entropy.
    #[error("/dev/urandom: {0}")]
    Entropy(io::Error),
}

fn hint(error: &io::Error) -> &'static str {
    if error.kind() == io::ErrorKind::NotFound { "; `etherslot keygen` makes keys" } else { "" }
}

/// The files of a node's keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyFiles {
    /// The fabric's key.
    pub fabric: PathBuf,
    /// The node's own.
    pub node: PathBuf,
}

impl KeyFiles {
    /// Those of a folder.
    pub fn within(folder: &Path) -> Self {
        Self { fabric: folder.join(FABRIC_FILE), node: folder.join(NODE_FILE) }
    }

    /// Where a node looks if it is not told: among the credentials of the service manager, if they have a fabric's key; otherwise in
    /// [`folder`].
    pub fn usual() -> Option<Self> {
        let credentials = credentials_folder().map(|folder| Self::within(&folder));
        credentials
            .filter(|files| files.fabric.exists())
            .or_else(|| folder().map(|folder| Self::within(&folder)))
    }
}

fn credentials_folder() -> Option<PathBuf> {
    env::var_os("CREDENTIALS_DIRECTORY").map(PathBuf::from).filter(|folder| folder.is_absolute())
}

/// The folder of a user's keys: `/etc/etherslot` for root, `etherslot` in the user's configuration for others.
pub fn folder() -> Option<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Some(PathBuf::from(SYSTEM_FOLDER));
    }
    let home = || env::var_os("HOME").map(|home| PathBuf::from(home).join(".config"));
    let folder = env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).or_else(home)?;
    folder.is_absolute().then(|| folder.join("etherslot"))
}

/// 32 bytes of the operating system's entropy.
pub fn entropy() -> Result<Entropy, KeyFileError> {
    let mut seed = [0; 32];
    File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut seed))
        .map_err(KeyFileError::Entropy)?;
    Ok(Entropy::new(seed))
}

/// Reads a key that nobody but its owner can read.
fn read<K: std::str::FromStr<Err = KeyError>>(path: &Path) -> Result<K, KeyFileError> {
    let io = |source| KeyFileError::Io { path: path.to_owned(), source };
    let file = File::open(path).map_err(io)?;
    let status = file.metadata().map_err(io)?;
    // The service manager lets a service read its credentials by an access list, which shows as the group's permission.
    let is_credential = credentials_folder().is_some_and(|folder| path.starts_with(folder));
    let forbidden = if is_credential { 0o037 } else { 0o077 };
    if status.mode() & forbidden != 0 {
        return Err(KeyFileError::Mode { path: path.to_owned(), mode: status.mode() & 0o7777 });
    }
    let user = rustix::process::geteuid().as_raw();
    if ![0, user].contains(&status.uid()) {
        return Err(KeyFileError::Owner { path: path.to_owned(), uid: status.uid() });
    }
    let mut text = String::new();
    file.take(MOST_BYTES).read_to_string(&mut text).map_err(io)?;
    text.parse().map_err(|source| KeyFileError::Content { path: path.to_owned(), source })
}

/// Makes a file that nobody but its owner can read; an error if there is one.
fn write(path: &Path, text: &str) -> Result<(), KeyFileError> {
    let io = |source| KeyFileError::Io { path: path.to_owned(), source };
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(io)?;
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(io)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(io)
}

/// What became of the keys.
#[derive(Debug)]
pub struct Made {
    /// The fabric's key was not there.
    pub fabric: bool,
    /// The node's key was not there.
    pub node: bool,
    /// What the fabric's key is known by.
    pub fingerprint: String,
    /// The node's identity.
    pub public: PublicKey,
}

/// Makes the keys that are not there yet; those that are stay as they are, and have to be good.
pub fn make(files: &KeyFiles) -> Result<Made, KeyFileError> {
    let mut entropy = entropy()?;
    let fabric = !files.fabric.exists();
    if fabric {
        write(&files.fabric, &FabricKey::generate(&mut entropy).to_text())?;
    }
    let node = !files.node.exists();
    if node {
        write(&files.node, &NodeKey::generate(&mut entropy).to_text())?;
    }
    // It gives nothing away: a tag of what is no frame.
    let tag = read::<FabricKey>(&files.fabric)?.announcement_tag(b"fingerprint");
    let fingerprint = crate::stat::hex(&tag[..8]);
    Ok(Made { fabric, node, fingerprint, public: read::<NodeKey>(&files.node)?.public() })
}

/// The keys of a node, read.
#[derive(Clone)]
pub struct Keyring(Credentials);

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Keyring {
    /// Reads both files.
    pub fn open(files: &KeyFiles, peers: Peers) -> Result<Self, KeyFileError> {
        let (fabric, node) = (read(&files.fabric)?, read(&files.node)?);
        Ok(Self(Credentials { fabric, node, peers, suites: Suites::of_this_machine() }))
    }

    /// The node's identity.
    pub fn public(&self) -> PublicKey {
        self.0.node.public()
    }

    /// What all nodes of the fabric have.
    pub(crate) fn fabric(&self) -> FabricKey {
        self.0.fabric.clone()
    }

    /// What a node protects this life of its sessions with.
    pub(crate) fn security(&self) -> Result<Security, KeyFileError> {
        Ok(Security { credentials: self.0.clone(), entropy: entropy()? })
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn keys_are_made_once_and_for_their_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let files = KeyFiles::within(&folder.path().join("keys"));
        let made = make(&files).unwrap();
        assert!(made.fabric && made.node);
        for path in [&files.fabric, &files.node] {
            assert_eq!(fs::metadata(path).unwrap().mode() & 0o7777, 0o600);
        }
        let again = make(&files).unwrap();
        assert!(!again.fabric && !again.node && again.public == made.public);
        assert_eq!(Keyring::open(&files, Peers::Fabric).unwrap().public(), made.public);
    }

    #[test]
    fn a_file_that_others_may_use_or_that_holds_something_else_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let files = KeyFiles::within(folder.path());
        make(&files).unwrap();
        for mode in [0o640, 0o604, 0o620, 0o644, 0o666] {
            fs::set_permissions(&files.node, Permissions::from_mode(mode)).unwrap();
            let error = Keyring::open(&files, Peers::Fabric).unwrap_err().to_string();
            assert!(error.contains("chmod 600") && error.contains(&format!("{mode:o}")), "{error}");
        }
        fs::set_permissions(&files.node, Permissions::from_mode(0o400)).unwrap();
        Keyring::open(&files, Peers::Fabric).unwrap();
        let swapped = KeyFiles { fabric: files.node.clone(), node: files.fabric.clone() };
        let error = Keyring::open(&swapped, Peers::Fabric).unwrap_err().to_string();
        assert!(error.contains("etherslot-fabric-key"), "{error}");
        let gone = KeyFiles::within(&folder.path().join("none"));
        let error = Keyring::open(&gone, Peers::Fabric).unwrap_err().to_string();
        assert!(error.contains("keygen"), "{error}");
    }
}
