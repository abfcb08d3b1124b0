//! The keeper: a process beside the daemon that ends its clients' connections in order if the daemon is killed.

use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use etherslot_vfio_user::{Keeper, keep};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

/// Starts `command`, which has to call [`run`] in its process.
pub(crate) fn start(mut command: Command) -> io::Result<Arc<Keeper>> {
    let (keeper, theirs) = Keeper::new()?;
    // In a group of its own, so that no terminal's signal meets it.
    command.stdin(Stdio::from(theirs)).stdout(Stdio::null()).process_group(0).spawn()?;
    Ok(Arc::new(keeper))
}

/// The keeper's process: returns when the daemon that started it is gone.
pub fn run() -> io::Result<()> {
    // Whoever stops the daemon by these stops it first; it is the daemon's end that counts here.
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        flag::register(signal, Arc::new(AtomicBool::new(false)))?;
    }
    keep(io::stdin().as_fd())
}
