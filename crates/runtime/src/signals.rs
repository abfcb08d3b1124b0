//! Signals, as the poll loop sees them: a descriptor to sleep on and two questions.

use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};
use signal_hook::{flag, low_level::pipe};

/// SIGTERM and SIGINT ask for a clean stop, SIGUSR1 for the counters in the log.
#[derive(Debug)]
pub(crate) struct Signals {
    wake: UnixStream,
    stop: Arc<AtomicBool>,
    report: Arc<AtomicBool>,
}

impl Signals {
    /// Takes over the signals of the process.
    pub(crate) fn install() -> io::Result<Self> {
        let (wake, sender) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        sender.set_nonblocking(true)?;
        let (stop, report) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        for (signal, asked) in [(SIGTERM, &stop), (SIGINT, &stop), (SIGUSR1, &report)] {
            flag::register(signal, Arc::clone(asked))?;
            pipe::register(signal, sender.try_clone()?)?;
        }
        Ok(Self { wake, stop, report })
    }

    /// Readable when a signal has come.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// Whether a clean stop was asked for.
    pub(crate) fn stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Whether the counters were asked for since the last call.
    pub(crate) fn report(&mut self) -> bool {
        let asked = self.report.swap(false, Ordering::Relaxed);
        if asked {
            let mut sink = [0; 64];
            while matches!(self.wake.read(&mut sink), Ok(bytes) if bytes > 0) {}
        }
        asked
    }
}
