//! Between files and block devices of this machine, as in a guest: their kernel copies them, in the memory of a device if it can.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use etherslot_runtime::initiator::driver::{CopyConfig, CopyError, CopyRange, Phase};
use etherslot_runtime::local::{LocalFile, LocalSite, PeerMemory, peer_memories};

use super::places::Place;
use super::{Copy, Pair, carry_out};

/// `--buffer`: memory of no device.
const NO_BUFFER: &str = "none";
const FALL_BACK: &str = "all data passes this machine's memory";

/// A file, and whether it is written to.
struct Named {
    path: PathBuf,
    is_target: bool,
}

/// What is to be done with them.
struct Plan {
    files: Vec<Named>,
    pairs: Vec<Pair>,
    /// Of each file: where it is to end afterwards, if all of it is written.
    ends: Vec<Option<u64>>,
}

pub(super) fn run(copy: &Copy, places: &[Place]) -> Result<()> {
    let (mut plan, files) = Plan::new(places)?;
    let mut memory = memory_for(copy, &plan, &files)?;
    let owner = memory.as_ref().map(|memory| plan.owner(memory, &files));
    let begun = Instant::now();
    let mut site = plan.site(copy, files, &mut memory)?;
    let mut resume = copy.open_resume(&mut site, &mut plan.pairs)?;
    let known: Vec<u64> = plan.pairs.iter().map(|pair| pair.range.done).collect();
    let config = CopyConfig { verify: false, ..copy.config() };
    let mut job = carry_out(&mut site, &plan.pairs, config, resume.as_mut())?;
    if let (Some(refusal), Some(PeerMemory { device, .. })) = (site.refusal(), &memory) {
        eprintln!(
            "the kernel does not let all of these reach the memory of {device} ({refusal}): {FALL_BACK}"
        );
        memory = None;
        for (number, pair) in plan.pairs.iter_mut().enumerate() {
            pair.range.done = job.durable(number);
        }
        // Who has a block device for itself has to close it first.
        drop(site);
        site = plan.site(copy, plan.open()?, &mut memory)?;
        job = carry_out(&mut site, &plan.pairs, config, resume.as_mut())?;
    }
    drop(site);
    plan.pairs.iter_mut().zip(known).for_each(|(pair, known)| pair.range.done = known);
    let by = if memory.is_some() { "buffer" } else { "host" };
    let mut report = copy.report(by, &plan.pairs, &job, begun.elapsed());
    for (number, pair) in report.pairs.iter_mut().enumerate() {
        if let (Some(CopyError::Away), Some(owner)) = (job.error(number), &owner) {
            pair.error = Some(format!("{}: {owner}", CopyError::Away));
        }
    }
    if report.pairs.iter().all(|pair| pair.error.is_none()) {
        plan.cut()?;
        if copy.verify {
            let job = plan.compare(copy)?;
            for (number, pair) in report.pairs.iter_mut().enumerate() {
                pair.verified = job.phase(number) == Phase::Done;
                pair.error = job.error(number).map(|error| error.to_string());
            }
        }
    }
    copy.end(&report, resume)
}

impl Plan {
    /// What `places` mean, and the files, open; a target that is not there is made, and gets room.
    fn new(places: &[Place]) -> Result<(Self, Vec<LocalFile>)> {
        let mut plan = Self { files: Vec::new(), pairs: Vec::new(), ends: Vec::new() };
        let mut numbers = Vec::new();
        for (at, place) in places.iter().enumerate() {
            let Place::File { path, .. } = place else { bail!("two files are a pair") };
            numbers.push(plan.number(path, at % 2 == 1));
        }
        let mut files = plan.open()?;
        for (places, numbers) in places.chunks_exact(2).zip(numbers.chunks_exact(2)) {
            plan.add(places, numbers, &mut files)?;
        }
        Ok((plan, files))
    }

    /// The number of a file, which may be named more than once.
    fn number(&mut self, path: &Path, is_target: bool) -> usize {
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let known = self.files.iter().position(|file| file.path == path);
        let number = known.unwrap_or_else(|| {
            self.files.push(Named { path, is_target });
            self.ends.push(None);
            self.files.len() - 1
        });
        self.files[number].is_target |= is_target;
        number
    }

    fn open(&self) -> Result<Vec<LocalFile>> {
        let open = |Named { path, is_target }: &Named| {
            if *is_target { LocalFile::target(path) } else { LocalFile::source(path) }
        };
        Ok(self.files.iter().map(open).collect::<Result<_, _>>()?)
    }

    /// One more pair.
    fn add(&mut self, places: &[Place], numbers: &[usize], files: &mut [LocalFile]) -> Result<()> {
        let (
            [
                Place::File { path: source_path, offset: source_start, bytes: source_bytes },
                Place::File { path: target_path, offset: target_start, bytes: target_bytes },
            ],
            &[source, target],
        ) = (places, numbers)
        else {
            bail!("two files are a pair")
        };
        let names = [source_path, target_path].map(|path| path.display().to_string());
        let (source_start, is_part) = (source_start.unwrap_or(0), target_start.is_some());
        let target_start = target_start.unwrap_or(0);
        let there = files[source].bytes();
        let wanted = match (source_bytes, target_bytes) {
            (Some(bytes), Some(other)) => {
                ensure!(
                    bytes == other,
                    "{} and {}: {bytes} and {other} bytes are not the same",
                    names[0],
                    names[1]
                );
                *bytes
            }
            (bytes, other) => bytes.or(*other).unwrap_or(there.saturating_sub(source_start)),
        };
        let end = source_start.checked_add(wanted).filter(|&end| end <= there);
        let end = end.with_context(|| format!("{} ends at {there} bytes", names[0]))?;
        let target_end =
            target_start.checked_add(wanted).with_context(|| format!("{} can't be that long", names[1]))?;
        let block_bytes = u64::from(files[source].block_bytes().max(files[target].block_bytes()));
        let bytes = wanted.next_multiple_of(block_bytes);
        // What is behind the end in the last block goes along, and is cut off.
        let is_whole_file = !is_part && !files[target].is_block_device();
        ensure!(
            bytes == wanted || end == there && is_whole_file,
            "{} to {}: {wanted} bytes are no whole blocks of {block_bytes}; only all that is left of a file may be, if it becomes a file",
            names[0],
            names[1]
        );
        files[target].make_room(target_end)?;
        if is_whole_file {
            self.ends[target] = Some(target_end);
        }
        let range = CopyRange { source, source_start, target, target_start, bytes, done: 0 };
        self.pairs.push(Pair { names, range });
        Ok(())
    }

    /// The files with what is between them: `memory`, or, where that can't be had, this machine's.
    fn site(&self, copy: &Copy, files: Vec<LocalFile>, memory: &mut Option<PeerMemory>) -> Result<LocalSite> {
        let pieces = copy.pieces(self.pairs.len());
        let files = match memory {
            None => files,
            Some(peer) => match LocalSite::open(files, Some(peer), pieces) {
                Ok(site) => return Ok(site),
                Err(error) => {
                    eprintln!("the memory of {} can't be had ({error}): {FALL_BACK}", peer.device);
                    *memory = None;
                    self.open()?
                }
            },
        };
        LocalSite::open(files, None, pieces).context("cannot copy files: io_uring or memory is missing")
    }

    /// Whose memory it is, as it is told when that is out of reach.
    fn owner(&self, memory: &PeerMemory, files: &[LocalFile]) -> String {
        let is_there = |file: &LocalFile| file.pci_address().as_deref() == Some(&memory.device);
        let beside = self.files.iter().zip(files).filter(|(_, file)| is_there(file));
        let names: Vec<String> = beside
            .map(|(Named { path, is_target }, _)| {
                format!("{} {}", if *is_target { "target" } else { "source" }, path.display())
            })
            .collect();
        let with = if names.is_empty() { String::new() } else { format!(" with {}", names.join(", ")) };
        format!("it is memory of {}{with}", memory.device)
    }

    /// Ends target files where they are to end.
    fn cut(&self) -> Result<()> {
        for (file, end) in self.files.iter().zip(&self.ends) {
            if let Some(end) = end {
                LocalFile::target(&file.path)?.cut(*end)?;
            }
        }
        Ok(())
    }

    /// Compares everything, in this machine's memory.
    fn compare(&self, copy: &Copy) -> Result<super::Job> {
        let done = |pair: &Pair| {
            let range = CopyRange { done: pair.range.bytes, ..pair.range };
            Pair { names: pair.names.clone(), range }
        };
        let pairs: Vec<Pair> = self.pairs.iter().map(done).collect();
        let mut site = self.site(copy, self.open()?, &mut None)?;
        carry_out(&mut site, &pairs, copy.config(), None)
    }
}

/// The memory to copy in: what was asked for, or the target's, the source's, any other; `None` is this machine's.
fn memory_for(copy: &Copy, plan: &Plan, files: &[LocalFile]) -> Result<Option<PeerMemory>> {
    let asked = copy.buffer.as_deref();
    if asked == Some(NO_BUFFER) {
        return Ok(None);
    }
    if let Some(at) = files.iter().position(|file| !file.is_direct()) {
        let path = plan.files[at].path.display();
        ensure!(
            asked.is_none(),
            "{path} takes no direct I/O, and so no memory of a device: leave --buffer out"
        );
        eprintln!("{path} takes no direct I/O: {FALL_BACK}");
        return Ok(None);
    }
    let mut offered = match (peer_memories(), asked) {
        (Ok(offered), _) => offered,
        (Err(reason), None) => {
            eprintln!("{reason}: {FALL_BACK}");
            return Ok(None);
        }
        (Err(reason), Some(device)) => bail!("--buffer {device}: {reason}"),
    };
    if let Some(device) = asked {
        let names: Vec<&str> = offered.iter().map(|memory| memory.device.as_str()).collect();
        let message =
            format!("--buffer {device} offers no peer-to-peer memory; there is {}", names.join(", "));
        return Ok(Some(offered.into_iter().find(|memory| memory.device == device).context(message)?));
    }
    let range = plan.pairs[0].range;
    let beside = [range.target, range.source].map(|file| files[file].pci_address());
    let is_wanted = |memory: &PeerMemory, at: &Option<String>| at.as_deref() == Some(&memory.device);
    let best = beside.iter().find_map(|at| offered.iter().position(|memory| is_wanted(memory, at)));
    Ok(Some(offered.swap_remove(best.unwrap_or(0))))
}
