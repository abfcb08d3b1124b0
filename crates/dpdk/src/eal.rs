//! EAL: started once in a process, with memory of its own and one core, and its log in ours.

use std::cell::Cell;
use std::ffi::{CString, c_char};
use std::fs;
use std::io;
use std::panic::catch_unwind;
use std::sync::Mutex;
use std::thread;

use crate::OpenError;
use crate::shim::Shim;

/// Free huge pages are used if there is at least this much of them: a few Ports.
const HUGE_BYTES: u64 = 64 << 20;
/// Memory without huge pages: MiB that are reserved, and touched only as Ports need them.
const SMALL_MIB: &str = "512";
/// Arguments that choose the memory; any of them and ours are left out.
const MEMORY: [&str; 8] = [
    "--no-huge",
    "--in-memory",
    "--huge-dir",
    "--socket-mem",
    "--legacy-mem",
    "--file-prefix",
    "--single-file-segments",
    "-m",
];
/// A PCI address that no device has: only what is asked for is to be touched, so something has to be on the list.
const NO_PCI_DEVICE: &str = "ffff:ff:1f.7";
/// `RTE_LOG_ERR` and `RTE_LOG_INFO`: the lower, the graver.
const LEVEL_ERROR: u32 = 4;
const LEVEL_INFO: u32 = 7;

/// The arguments EAL was started with by a Port, or why it was not.
static STARTED: Mutex<Option<Result<Vec<String>, OpenError>>> = Mutex::new(None);
/// The last error in EAL's log: its functions tell numbers at best.
static LAST_ERROR: Mutex<String> = Mutex::new(String::new());

thread_local! {
    /// Whether this thread does something that may well fail.
    static TRYING: Cell<bool> = const { Cell::new(false) };
}

/// Starts EAL unless it runs. `further` are arguments of the user.
pub(crate) fn start(shim: &'static Shim, further: &[String]) -> Result<(), OpenError> {
    let mut started = lock(&STARTED);
    let result = started.get_or_insert_with(|| {
        let all = arguments(further);
        // EAL moves the thread that starts it to one core: a thread that is good for nothing else.
        let run = thread::Builder::new().name("dpdk-start".to_owned());
        let given = all.clone();
        let result = run.spawn(move || call(shim, given)).map(thread::JoinHandle::join);
        let reason = match result {
            Ok(Ok(Ok(()))) => return Ok(further.to_vec()),
            Ok(Ok(Err(reason))) => reason,
            Ok(Err(_)) => "its thread failed".to_owned(),
            Err(error) => error.to_string(),
        };
        Err(OpenError::NotStarted { arguments: all.join(" "), reason })
    });
    match result {
        Ok(running) if further.is_empty() || running == further => Ok(()),
        Ok(running) => Err(OpenError::OtherArguments { running: running.clone() }),
        Err(error) => Err(error.clone()),
    }
}

fn call(shim: &Shim, all: Vec<String>) -> Result<(), String> {
    // EAL keeps pointers to its arguments.
    let mut pointers: Vec<*mut c_char> = Vec::new();
    for argument in all {
        pointers.push(CString::new(argument).map_err(|error| error.to_string())?.into_raw());
    }
    let count = i32::try_from(pointers.len()).map_err(|error| error.to_string())?;
    pointers.push(std::ptr::null_mut());
    let pointers = Box::leak(pointers.into_boxed_slice());
    forget_errors();
    // SAFETY: `count` strings that are never freed, and a null behind them.
    let result = unsafe { (shim.start)(count, pointers.as_mut_ptr(), log) };
    if result == 0 { Ok(()) } else { Err(reason(result)) }
}

/// One core, no files but those in memory, no socket for others, and no device but those that are asked for.
fn arguments(further: &[String]) -> Vec<String> {
    let core = first_core();
    let mut all: Vec<String> = [
        "etherslot",
        "--lcores",
        &format!("0@{core}"),
        "--no-telemetry",
        "--log-level=*:notice",
        "-a",
        NO_PCI_DEVICE,
    ]
    .map(str::to_owned)
    .to_vec();
    let is_chosen = further.iter().any(|argument| {
        MEMORY.iter().any(|known| argument.split('=').next().is_some_and(|name| name == *known))
    });
    if !is_chosen {
        if free_huge_bytes() >= HUGE_BYTES {
            // A file for all pages of a kind: peers in other processes take no more than eight.
            all.extend(["--in-memory", "--single-file-segments"].map(str::to_owned));
        } else {
            // EAL does not take `--in-memory` with this; no files is all of it that matters.
            all.extend(["--no-huge", "--no-shconf", "-m", SMALL_MIB].map(str::to_owned));
        }
    }
    all.extend_from_slice(further);
    all
}

fn first_core() -> usize {
    let cores = rustix::thread::sched_getaffinity(None).unwrap_or_else(|_| rustix::thread::CpuSet::new());
    (0..rustix::thread::CpuSet::MAX_CPU).find(|&core| cores.is_set(core)).unwrap_or(0)
}

fn free_huge_bytes() -> u64 {
    let Ok(kinds) = fs::read_dir("/sys/kernel/mm/hugepages") else { return 0 };
    let bytes = |kind: fs::DirEntry| {
        let name = kind.file_name().into_string().ok()?;
        let kib: u64 = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
        let free: u64 = fs::read_to_string(kind.path().join("free_hugepages")).ok()?.trim().parse().ok()?;
        Some(kib * 1024 * free)
    };
    kinds.flatten().filter_map(bytes).sum()
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// What [`reason`] tells from now on is of what is done from now on.
pub(crate) fn forget_errors() {
    lock(&LAST_ERROR).clear();
}

/// Why a function of the shim returned `result`: in EAL's words if it had any.
pub(crate) fn reason(result: i32) -> String {
    let last = std::mem::take(&mut *lock(&LAST_ERROR));
    if last.is_empty() { io::Error::from_raw_os_error(-result).to_string() } else { last }
}

/// Does what may well fail, so that EAL's complaints are no warnings.
pub(crate) fn trying<T>(attempt: impl FnOnce() -> T) -> T {
    TRYING.set(true);
    let result = attempt();
    TRYING.set(false);
    result
}

extern "C" fn log(level: u32, text: *const u8, bytes: usize) {
    // SAFETY: the shim passes text of this length, which lives through the call.
    let text = String::from_utf8_lossy(unsafe { std::slice::from_raw_parts(text, bytes) });
    // A panic must not reach C.
    let _ = catch_unwind(|| {
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            if level <= LEVEL_ERROR {
                line.clone_into(&mut lock(&LAST_ERROR));
            }
            if level <= LEVEL_ERROR && !TRYING.get() {
                tracing::warn!("{line}");
            } else if level <= LEVEL_INFO {
                tracing::debug!("{line}");
            } else {
                tracing::trace!("{line}");
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::{MEMORY, arguments};

    #[test]
    fn memory_that_the_user_chose_is_left_alone() {
        let with = |further: &[&str]| {
            let further: Vec<String> = further.iter().map(|&argument| argument.to_owned()).collect();
            arguments(&further)
        };
        let ours = with(&["--log-level=debug"]);
        let is_ours = |argument: &String| argument == "--in-memory" || argument == "--no-huge";
        assert_eq!(ours.iter().filter(|argument| is_ours(argument)).count(), 1, "{ours:?}");
        assert_eq!(ours.last().map(String::as_str), Some("--log-level=debug"));
        for argument in ["--no-huge", "--socket-mem=64", "-m"] {
            let theirs = with(&[argument]);
            let memory =
                theirs.iter().filter(|all| MEMORY.contains(&all.split('=').next().unwrap_or_default()));
            assert_eq!(memory.count(), 1, "{theirs:?}");
        }
    }
}
