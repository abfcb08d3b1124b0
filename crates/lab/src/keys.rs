//! Keys for the nodes of a run: one fabric, and a key of its own for each node.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::daemon::etherslot_binary;
use crate::error::{Error, Result};
use crate::process::output;
use crate::run::Run;

/// Where the environment tells `etherslot` of its key.
pub const KEY_VARIABLE: &str = "ETHERSLOT_KEY";

/// The file of the fabric's key for the node of this name, with the node's own key beside it. Both are made when they are asked for
/// first, by `etherslot keygen`.
pub fn node_keys(run: &Run, name: &str) -> Result<PathBuf> {
    let folder = run.path(&format!("keys-{name}"));
    let (fabric, shared) = (folder.join("fabric.key"), run.path("fabric.key"));
    if fabric.exists() {
        return Ok(fabric);
    }
    fs::create_dir_all(&folder).map_err(Error::io(format!("create {}", folder.display())))?;
    // A copy keeps the permissions.
    let copy = |from: &PathBuf, to: &PathBuf| {
        fs::copy(from, to).map(drop).map_err(Error::io(format!(
            "copy {} to {}",
            from.display(),
            to.display()
        )))
    };
    if shared.exists() {
        copy(&shared, &fabric)?;
    }
    output(Command::new(etherslot_binary()?).arg("keygen").arg("--folder").arg(&folder))?;
    if !shared.exists() {
        copy(&fabric, &shared)?;
    }
    Ok(fabric)
}
