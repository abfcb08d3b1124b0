//! What all contenders stand on: the same cable, one core a side, memory of the same size.

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use etherslot_lab::{Cable, NetOptions, Process, Run, Side, mortal};

use crate::contender::Setup;
use crate::hugepages::{self, HugePages};

/// For the end of a client beyond the time it was told to measure.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a person chose.
#[derive(Clone, Debug)]
pub(crate) struct Choices {
    /// The size of what is read and written.
    pub(crate) memory_mib: u32,
    pub(crate) client_cpu: u16,
    pub(crate) server_cpu: u16,
    /// SPDK, built.
    pub(crate) spdk: Option<PathBuf>,
    /// Whether clients and servers run before all other processes of their cores.
    pub(crate) real_time: bool,
}

/// The bed.
pub(crate) struct Bed {
    /// In a folder of the run: they are gone before it.
    pages: OnceCell<Result<HugePages>>,
    run: Run,
    pub(crate) choices: Choices,
    cables: RefCell<BTreeMap<Setup, Rc<Cable>>>,
}

impl Bed {
    pub(crate) fn new(choices: Choices) -> Result<Self> {
        hugepages::clear_stale();
        let run = Run::new("bench")?;
        Ok(Self { pages: OnceCell::new(), run, choices, cables: RefCell::default() })
    }

    /// Sees to it that those who want huge pages find them, before the first of them starts.
    pub(crate) fn reserve_huge_pages(&self, mib: u32) {
        if mib > 0 {
            self.pages.get_or_init(|| HugePages::new(mib, self.path("huge")));
        }
    }

    /// Where huge pages are mounted.
    pub(crate) fn huge_pages(&self) -> Result<&Path> {
        match self.pages.get() {
            Some(Ok(pages)) => Ok(pages.folder()),
            Some(Err(error)) => Err(anyhow!("{error:#}")),
            None => Err(anyhow!("no huge pages were reserved")),
        }
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        u64::from(self.choices.memory_mib) << 20
    }

    /// A place for files.
    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.run.path(file)
    }

    pub(crate) fn run(&self) -> &Run {
        &self.run
    }

    /// Every setup has a cable of its own, all alike: boxes on the same interface would answer for each other.
    fn cable(&self, setup: Setup) -> Result<Rc<Cable>> {
        let mut cables = self.cables.borrow_mut();
        if let Some(cable) = cables.get(&setup) {
            return Ok(cable.clone());
        }
        let options = NetOptions { mtu: setup.mtu.into() };
        let cable = Rc::new(Cable::new(&self.run, &format!("cable{}", cables.len()), options)?);
        cables.insert(setup, cable.clone());
        Ok(cable)
    }

    /// `program` on its side of the setup's cable, on its side's core; it dies with us.
    pub(crate) fn command(&self, side: Side, setup: Setup, program: &Path) -> Result<Command> {
        let cpu = match side {
            Side::Host => self.choices.client_cpu,
            Side::Box | Side::OtherBox => self.choices.server_cpu,
        };
        let mut command = mortal(Some(self.cable(setup)?.namespace(side)), Path::new("taskset"));
        command.arg("--cpu-list").arg(cpu.to_string());
        if self.choices.real_time {
            command.args(["chrt", "--fifo", "1"]);
        }
        command.arg(program).current_dir(self.run.folder());
        Ok(command)
    }

    /// Starts a server; its outputs go to `NAME.log`.
    pub(crate) fn serve(&self, name: &str, command: Command) -> Result<Process> {
        Ok(Process::start(name, command, &self.path(&format!("{name}.log")))?)
    }

    /// Runs a client that measures for `time`, to its end; what it printed.
    pub(crate) fn client(&self, name: &str, command: Command, time: Duration) -> Result<String> {
        let mut client = self.serve(name, command)?;
        outcome(&mut client, time)
    }

    /// A file in memory, of the size that was chosen.
    pub(crate) fn memory_file(&self) -> Result<MemoryFile> {
        memory_file(self.choices.memory_mib)
    }
}

/// A file in memory that vanishes with the returned value. Every page of it is there.
pub(crate) fn memory_file(mib: u32) -> Result<MemoryFile> {
    let flags = rustix::fs::MemfdFlags::empty();
    let mut file: File =
        rustix::fs::memfd_create("etherslot-bench", flags).context("make a file in memory")?.into();
    let zeros = vec![0; 1 << 20];
    for _ in 0..mib {
        file.write_all(&zeros).context("fill a file in memory")?;
    }
    file.seek(SeekFrom::Start(0))?;
    Ok(MemoryFile { file })
}

/// Waits for the end of a client.
pub(crate) fn outcome(client: &mut Process, time: Duration) -> Result<String> {
    let status = client.wait(time + PATIENCE)?;
    let log = client.log();
    let end: Vec<&str> = log.lines().rev().take(5).collect();
    ensure!(
        status.success(),
        "it ended with {status}: {}",
        end.into_iter().rev().collect::<Vec<_>>().join("; ")
    );
    Ok(log)
}

/// A file in memory.
pub(crate) struct MemoryFile {
    file: File,
}

impl MemoryFile {
    /// A path by which any process of this machine can open it.
    pub(crate) fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()))
    }
}
