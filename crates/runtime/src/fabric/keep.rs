//! What of a box's leases outlives its daemon: a small file, replaced whole at each change.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use etherslot_fabric::{Image, Leases};
use etherslot_wire::NodeId;
use etherslot_wire::control::Name;
use etherslot_wire::discovery::{Assigned, Group};
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};

use crate::StartError;
use crate::control::file_name;
use crate::options::FabricOptions;

/// Where root's boxes keep their leases.
const SYSTEM_FOLDER: &str = "/var/lib/etherslot";
/// Whose devices are is the node's business alone.
const MODE: u32 = 0o600;

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    version: u32,
    devices: Vec<Row>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    name: String,
    epoch: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    owner: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ordered: Option<Ordered>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Ordered {
    /// `group`, `nobody`, or a host's ID.
    assigned: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    group: Option<u16>,
}

/// Where leases are kept, and which were kept last.
#[derive(Debug)]
pub(super) struct Keeping {
    path: Option<PathBuf>,
    /// Locked as long as this box may write the file.
    _lock: Option<fs::File>,
    /// Of devices that the box does not have now: their epochs have to go on when they are back.
    absent: Vec<Row>,
    revision: Option<u64>,
    has_failed: bool,
}

impl Keeping {
    pub(super) const fn nowhere() -> Self {
        Self { path: None, _lock: None, absent: Vec::new(), revision: None, has_failed: false }
    }

    /// Where the options say, or in the usual folder. Only a path that was asked for has to be possible.
    pub(super) fn at(options: &FabricOptions, node: &str) -> Result<Self, StartError> {
        let path = options.state.clone().or_else(|| usual_path(node));
        if let Some(folder) = path.as_deref().and_then(Path::parent).filter(|it| !it.as_os_str().is_empty())
            && let Err(error) = fs::create_dir_all(folder)
        {
            let reason = format!("state: cannot make the folder {}: {error}", folder.display());
            if options.state.is_some() {
                return Err(StartError::Fabric(reason));
            }
            tracing::warn!(reason, "leases and orders are forgotten when the daemon ends");
            return Ok(Self::nowhere());
        }
        let Some(path) = path else { return Ok(Self::nowhere()) };
        let in_the_way = path.with_extension("leases.lock");
        match lock(&in_the_way) {
            Ok(lock) => Ok(Self { path: Some(path), _lock: Some(lock), ..Self::nowhere() }),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(StartError::Fabric(format!(
                "state: another box keeps its leases in {}: stop it, or choose another [node] name or state",
                path.display()
            ))),
            Err(error) if options.state.is_some() => {
                Err(StartError::Fabric(format!("state: {}: {error}", in_the_way.display())))
            }
            Err(error) => {
                tracing::warn!(%error, path = %in_the_way.display(), "leases and orders are forgotten when the daemon ends");
                Ok(Self::nowhere())
            }
        }
    }

    /// Gives back what an earlier life has kept. A file that is there and can't be read is no reason to begin anew.
    pub(super) fn restore(&mut self, now_ns: u64, leases: &mut Leases) -> Result<(), StartError> {
        let Some(path) = &self.path else { return Ok(()) };
        let failed = |reason: String| {
            let path = path.display();
            StartError::Fabric(format!(
                "state: {path}: {reason}: restore it, or remove it and assign devices anew"
            ))
        };
        let text = match fs::read_to_string(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            text => text.map_err(|error| failed(error.to_string()))?,
        };
        let file: File = serde_json::from_str(&text).map_err(|error| failed(error.to_string()))?;
        if file.version != 1 {
            return Err(failed(format!("version {} is not 1", file.version)));
        }
        let images: Option<Vec<Image>> = file.devices.iter().map(image).collect();
        let images = images.ok_or_else(|| failed("it has a value that is none".to_owned()))?;
        let is_here = |row: &Row| leases.image().any(|image| image.name.as_str() == row.name);
        self.absent = file.devices.into_iter().filter(|row| !is_here(row)).collect();
        leases.restore(now_ns, images);
        Ok(())
    }

    /// Keeps the leases if they have changed. What can't be kept is said once.
    pub(super) fn keep(&mut self, leases: &Leases) {
        let Some(path) = self.path.as_deref().filter(|_| self.revision != Some(leases.revision())) else {
            return;
        };
        self.revision = Some(leases.revision());
        let here = leases.image().map(|image| row(&image));
        let file = File { version: 1, devices: here.chain(self.absent.iter().cloned()).collect() };
        match replace(path, &file) {
            Ok(()) => self.has_failed = false,
            Err(error) if !self.has_failed => {
                self.has_failed = true;
                tracing::error!(%error, path = %path.display(), "leases are not kept: a restart of this daemon forgets them");
            }
            Err(_) => {}
        }
    }
}

/// Where a box of this name keeps its leases unless it is told: for users other than root nowhere without `XDG_STATE_HOME`.
pub fn usual_path(node: &str) -> Option<PathBuf> {
    let file = Path::new(&file_name(node)).with_extension("leases");
    let root = rustix::process::geteuid().is_root().then(|| PathBuf::from(SYSTEM_FOLDER));
    let user = || Some(PathBuf::from(std::env::var_os("XDG_STATE_HOME")?).join("etherslot"));
    root.or_else(user).map(|folder| folder.join(file))
}

/// Holds the file `path` alone, until it is closed.
fn lock(path: &Path) -> io::Result<fs::File> {
    let file = fs::File::options().create(true).truncate(false).write(true).mode(MODE).open(path)?;
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    Ok(file)
}

/// Whole or not at all.
fn replace(path: &Path, file: &File) -> io::Result<()> {
    let fresh = path.with_extension("leases.new");
    let mut bytes = serde_json::to_vec_pretty(file)?;
    bytes.push(b'\n');
    let mut out = fs::File::options().create(true).write(true).truncate(true).mode(MODE).open(&fresh)?;
    // One of an earlier release may have been everybody's to read.
    out.set_permissions(fs::Permissions::from_mode(MODE))?;
    out.write_all(&bytes)?;
    out.sync_data()?;
    fs::rename(&fresh, path)
}

fn row(image: &Image) -> Row {
    Row {
        name: image.name.as_str().to_owned(),
        epoch: image.epoch,
        owner: image.owner.map(|owner| format!("{owner:?}")),
        ordered: image.ordered.map(|(assigned, group)| Ordered {
            assigned: match assigned {
                Assigned::Group => "group".to_owned(),
                Assigned::Nobody => "nobody".to_owned(),
                Assigned::Host(host) => format!("{host:?}"),
            },
            group: group.map(Group::get),
        }),
    }
}

fn image(row: &Row) -> Option<Image> {
    let owner = match &row.owner {
        Some(owner) => Some(node(owner)?),
        None => None,
    };
    let ordered = match &row.ordered {
        Some(Ordered { assigned, group }) => {
            let assigned = match assigned.as_str() {
                "group" => Assigned::Group,
                "nobody" => Assigned::Nobody,
                host => Assigned::Host(node(host)?),
            };
            let group = match group {
                Some(number) => Some(Group::new(*number)?),
                None => None,
            };
            Some((assigned, group))
        }
        None => None,
    };
    Some(Image { name: Name::new(&row.name)?, epoch: row.epoch, owner, ordered })
}

fn node(text: &str) -> Option<NodeId> {
    let number = u128::from_str_radix(text, 16).ok().filter(|_| text.len() == 32)?;
    Some(NodeId(number.to_be_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherslot_fabric::{DeviceConfig, LeaseConfig};

    fn leases() -> Leases {
        let config = LeaseConfig { hold_ns: 1_000, ..LeaseConfig::default() };
        let names = ["disk0", "disk1"].map(|name| Name::new(name).unwrap());
        Leases::new(config, names.map(|name| DeviceConfig { name, group: Group::new(7) }))
    }

    fn kept(path: &Path) -> Keeping {
        Keeping { path: Some(path.to_owned()), ..Keeping::nowhere() }
    }

    #[test]
    fn leases_are_the_same_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("box.leases");
        let mut before = leases();
        kept(&path).restore(1, &mut before).unwrap();
        before.admit(1, NodeId([3; 16]), Group::new(7), &Name::new("disk0").unwrap()).unwrap();
        let image = before.image().next().unwrap();
        let ordered = Image { ordered: Some((Assigned::Host(NodeId([4; 16])), Group::new(9))), ..image };
        before.restore(1, [Image { name: Name::new("disk1").unwrap(), owner: None, ..ordered }]);
        kept(&path).keep(&before);
        let mut after = leases();
        kept(&path).restore(1, &mut after).unwrap();
        assert_eq!(after.image().collect::<Vec<_>>(), before.image().collect::<Vec<_>>());
    }

    #[test]
    fn the_epochs_of_devices_that_are_not_configured_for_a_while_go_on() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("box.leases");
        let other = Name::new("other").unwrap();
        let of = |name| Leases::new(LeaseConfig::default(), [DeviceConfig { name, group: None }]);
        let mut before = leases();
        before.admit(1, NodeId([3; 16]), Group::new(7), &Name::new("disk0").unwrap()).unwrap();
        kept(&path).keep(&before);
        let (mut keeping, mut between) = (kept(&path), of(other));
        keeping.restore(1, &mut between).unwrap();
        between.admit(1, NodeId([3; 16]), None, &other).unwrap();
        keeping.keep(&between);
        let mut after = leases();
        kept(&path).restore(1, &mut after).unwrap();
        assert_eq!(after.image().collect::<Vec<_>>(), before.image().collect::<Vec<_>>());
    }

    #[test]
    fn two_boxes_do_not_keep_their_leases_in_one_file() {
        let folder = tempfile::tempdir().unwrap();
        let lock_file = folder.path().join("box.leases.lock");
        let first = lock(&lock_file).unwrap();
        assert_eq!(lock(&lock_file).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(first);
        lock(&lock_file).unwrap();
    }

    #[test]
    fn a_file_that_is_damaged_is_not_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("box.leases");
        for bad in
            ["", "{}", r#"{"version":2,"devices":[]}"#, r#"{"version":1,"devices":[{"name":"","epoch":1}]}"#]
        {
            fs::write(&path, bad).unwrap();
            let error = kept(&path).restore(1, &mut leases()).unwrap_err().to_string();
            assert!(error.contains("remove it"), "{error}");
        }
    }
}
