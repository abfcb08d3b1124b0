//! Child processes that never outlive the lab.
//!
//! Every child asks the kernel to be killed when the thread that spawned it ends. A thread that lives as long as the
//! process therefore spawns all of them: a child belongs to the lab, not to the test thread that asked for it.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, OnceLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::error::{Error, Result, tail};

const POLL: Duration = Duration::from_millis(5);

type Order = (Command, mpsc::Sender<io::Result<Child>>);

/// Spawns `command` from the thread that lives as long as this process.
fn spawn_for_life(command: Command) -> io::Result<Child> {
    static ORDERS: OnceLock<Mutex<mpsc::Sender<Order>>> = OnceLock::new();
    let orders = ORDERS.get_or_init(|| {
        let (sender, receiver) = mpsc::channel::<Order>();
        thread::spawn(move || {
            for (mut command, answer) in receiver {
                let _ = answer.send(command.spawn());
            }
        });
        Mutex::new(sender)
    });
    let (answer, child) = mpsc::channel();
    let sent = orders.lock().map(|orders| orders.send((command, answer)).is_ok());
    debug_assert!(matches!(sent, Ok(true)), "the spawning thread never ends");
    child.recv().unwrap_or_else(|_| Err(io::Error::other("the spawning thread has ended")))
}

/// A command that is killed by the kernel when the lab dies; the program replaces the wrapper, so the pid is its own.
pub fn mortal(namespace: Option<&str>, program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]);
    if let Some(namespace) = namespace {
        command.arg("nsenter").arg(format!("--net=/run/netns/{namespace}")).arg("--");
    }
    command.arg(program);
    command
}

/// A running child with its output in a log file.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
    status: Option<ExitStatus>,
}

impl Process {
    /// Starts `command` (see [`mortal`]) with both outputs in `log`.
    pub fn start(name: &str, mut command: Command, log: &Path) -> Result<Self> {
        let file = File::create(log).map_err(Error::io(format!("create {}", log.display())))?;
        let copy = file.try_clone().map_err(Error::io(format!("create {}", log.display())))?;
        command.stdin(Stdio::null()).stdout(copy).stderr(file);
        Self::start_with_terminal(name, command, log)
    }

    /// Starts `command` with its outputs as they are set in it; `log` may be written by the child itself.
    pub(crate) fn start_with_terminal(name: &str, command: Command, log: &Path) -> Result<Self> {
        let child = spawn_for_life(command).map_err(Error::io(format!("start {name}")))?;
        Ok(Self { name: name.to_owned(), child, log: log.to_owned(), status: None })
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Everything written so far.
    pub fn log(&self) -> String {
        fs::read(&self.log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    /// Exit status if it has ended.
    pub fn status(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() {
            self.status = self.child.try_wait().ok().flatten();
        }
        self.status
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        self.status().is_none()
    }

    /// Waits for its end.
    pub fn wait(&mut self, timeout: Duration) -> Result<ExitStatus> {
        let start = Instant::now();
        loop {
            if let Some(status) = self.status() {
                return Ok(status);
            }
            if start.elapsed() > timeout {
                return Err(Error::Timeout {
                    what: format!("the end of {}", self.name),
                    after: timeout,
                    evidence: tail(&self.name, &self.log(), 20),
                });
            }
            thread::sleep(POLL);
        }
    }

    /// Waits until `done` holds; fails early if the process ends.
    pub fn wait_until(
        &mut self,
        what: &str,
        timeout: Duration,
        mut done: impl FnMut(&Self) -> bool,
    ) -> Result<()> {
        let start = Instant::now();
        loop {
            if done(self) {
                return Ok(());
            }
            if let Some(status) = self.status() {
                return Err(Error::Ended {
                    what: self.name.clone(),
                    evidence: format!(" with {status} before {what}{}", tail(&self.name, &self.log(), 20)),
                });
            }
            if start.elapsed() > timeout {
                return Err(Error::Timeout {
                    what: format!("{}: {what}", self.name),
                    after: timeout,
                    evidence: tail(&self.name, &self.log(), 20),
                });
            }
            thread::sleep(POLL);
        }
    }

    fn signal(&mut self, signal: Signal) {
        // An unreaped child keeps its pid, so this can't hit a stranger.
        if self.is_running()
            && let Some(pid) = i32::try_from(self.pid()).ok().and_then(Pid::from_raw)
        {
            let _ = kill_process(pid, signal);
        }
    }

    /// SIGTERM, then waits for the end.
    pub fn terminate(&mut self, timeout: Duration) -> Result<ExitStatus> {
        self.signal(Signal::TERM);
        self.wait(timeout)
    }

    /// SIGSTOP: the process is there but silent.
    pub fn pause(&mut self) {
        self.signal(Signal::STOP);
    }

    /// SIGCONT after [`Process::pause`].
    pub fn resume(&mut self) {
        self.signal(Signal::CONT);
    }

    /// SIGKILL, and reaps it.
    pub fn kill(&mut self) {
        if self.is_running() {
            let _ = self.child.kill();
            self.status = self.child.wait().ok();
        }
    }

    /// Resident memory in bytes; 0 once it has ended.
    pub fn resident_bytes(&self) -> u64 {
        let statm = fs::read_to_string(format!("/proc/{}/statm", self.pid())).unwrap_or_default();
        let pages: u64 = statm.split_whitespace().nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
        pages * rustix::param::page_size() as u64
    }

    /// Whether somebody in its network namespace listens at this port of TCP.
    pub fn listens_at(&self, port: u16) -> bool {
        /// State of a socket in /proc/PID/net/tcp that listens.
        const LISTENS: &str = "0A";
        let port = format!(":{port:04X}");
        ["tcp", "tcp6"].iter().any(|table| {
            let text = fs::read_to_string(format!("/proc/{}/net/{table}", self.pid())).unwrap_or_default();
            text.lines().any(|line| {
                let fields: Vec<&str> = line.split_whitespace().collect();
                fields.get(1).is_some_and(|local| local.ends_with(&port)) && fields.get(3) == Some(&LISTENS)
            })
        })
    }

    /// Open file descriptors; 0 once it has ended.
    pub fn open_files(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.pid())).map_or(0, Iterator::count)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Runs a short command to its end and returns its standard output.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let shown = shown(command);
    let output =
        command.stdin(Stdio::null()).output().map_err(Error::io(format!("run {}", program_name(command))))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    Err(Error::Command {
        command: shown,
        status: output.status.to_string(),
        output: tail(&program_name(command), &text, 20),
    })
}

/// `program` with `args`, to its end.
pub(crate) fn tool<const N: usize>(program: &str, args: [&str; N]) -> Result<String> {
    output(Command::new(program).args(args))
}

fn program_name(command: &Command) -> String {
    Path::new(command.get_program())
        .file_name()
        .map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

fn shown(command: &Command) -> String {
    let mut text = program_name(command);
    for argument in command.get_args() {
        text.push(' ');
        text.push_str(&argument.to_string_lossy());
    }
    match text.char_indices().nth(200) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
