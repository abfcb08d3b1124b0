//! `etherslot nvme read` and `write`: between a device and a file.
//!
//! The file has a thread of its own, so that a slow one holds up neither the session nor the other requests.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal as _, Read as _, Write as _, stderr};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use etherslot_runtime::initiator::Client;
use etherslot_runtime::initiator::driver::{Buffer, BufferClass, DiskError, Done, Op, Request, nvme};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::shape;
use super::target::{Reach, Target};

/// Polls for so long, then sleeps.
const BUSY_POLL: Duration = Duration::from_micros(200);
/// The most of one request.
const CHUNK_BYTES: usize = 1 << 20;
/// Requests under way, and chunks that wait for the file.
const DEPTH: usize = 16;
/// While the file is what is waited for, it is looked at this often.
const FILE_PACE_NS: u64 = 500_000;

#[derive(Args)]
pub(crate) struct Read {
    #[command(flatten)]
    target: Target,
    /// Where to start, bytes; a multiple of the block size, as in 0, 4k or 1g.
    #[arg(long, default_value = "0", value_name = "SIZE", value_parser = shape::bytes)]
    offset: u64,
    /// How much; up to the end of the device if it is not said.
    #[arg(long, value_name = "SIZE", value_parser = shape::bytes)]
    bytes: Option<u64>,
    /// Where to; `-` is the standard output.
    #[arg(long, default_value = "-", value_name = "FILE")]
    output_file: PathBuf,
}

#[derive(Args)]
pub(crate) struct Write {
    #[command(flatten)]
    target: Target,
    /// Where from; `-` is the standard input.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Where to start on the device, bytes; a multiple of the block size.
    #[arg(long, default_value = "0", value_name = "SIZE", value_parser = shape::bytes)]
    offset: u64,
    /// How much, if not all of the file.
    #[arg(long, value_name = "SIZE", value_parser = shape::bytes)]
    bytes: Option<u64>,
    /// Fill up the last block with zeros, if the data does not end with a block.
    #[arg(long)]
    pad: bool,
}

/// A part of a disk goes to a file.
pub(crate) fn to_file(
    reach: &Reach,
    device: &str,
    nsid: u32,
    offset: u64,
    bytes: Option<u64>,
    file: &Path,
) -> Result<()> {
    let target = Target::new(reach, device, nsid);
    Read { target, offset, bytes, output_file: file.to_owned() }.run()
}

/// A file goes to a part of a disk.
pub(crate) fn from_file(
    reach: &Reach,
    device: &str,
    nsid: u32,
    offset: u64,
    bytes: Option<u64>,
    file: &Path,
) -> Result<()> {
    let target = Target::new(reach, device, nsid);
    Write { target, file: file.to_owned(), offset, bytes, pad: false }.run()
}

fn connect(target: &Target) -> Result<Client> {
    let driver = nvme::Config {
        queue_depth: DEPTH as u16 + 1,
        buffers: vec![BufferClass { bytes: CHUNK_BYTES, count: DEPTH }],
        ..nvme::Config::default()
    };
    target.connect(driver, BUSY_POLL)
}

fn bar(bytes: Option<u64>) -> ProgressBar {
    let target =
        if stderr().is_terminal() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(bytes, target);
    let template = match bytes {
        Some(_) => "{wide_bar} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left",
        None => "{spinner} {bytes}, {bytes_per_sec}",
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}

/// One round with the device: what is done is left in `done`. True if something was.
fn round(client: &mut Client, done: &mut Vec<Done>) -> Result<bool> {
    ensure!(!client.should_stop(), "stopped");
    let progress = client.receive();
    Ok(client.disk().poll(&mut |one| done.push(one)) != 0 || progress)
}

fn request(token: u64, op: Op, first_block: u64, blocks: u32, buffer: Option<Buffer>) -> Request {
    Request { token, op, first_block, blocks, buffer }
}

fn told(first_block: u64, error: DiskError) -> anyhow::Error {
    anyhow::anyhow!("at block {first_block}: {error}")
}

impl Read {
    pub(crate) fn run(self) -> Result<()> {
        let mut client = connect(&self.target)?;
        let info = client.disk().info().clone();
        let block_bytes = u64::from(info.block_bytes);
        let bytes = self.bytes.unwrap_or(info.bytes().saturating_sub(self.offset));
        let end = self.offset.checked_add(bytes).filter(|&end| end <= info.bytes());
        let end = end.with_context(|| format!("the device ends at {} bytes", info.bytes()))?;
        ensure!(self.offset.is_multiple_of(block_bytes), "--offset has to be a multiple of {block_bytes}");
        let chunk_blocks = info.max_transfer_bytes.min(CHUNK_BYTES as u32) / info.block_bytes;
        let end_block = end.div_ceil(block_bytes);
        let (sink, spare, writer) = start_writer(&self.output_file)?;
        let bar = bar(Some(bytes));
        let mut left = bytes;
        let mut next = self.offset / block_bytes;
        // What was asked for, in its order, and what of it has come.
        let mut order: VecDeque<(u64, Option<Buffer>)> = VecDeque::with_capacity(DEPTH);
        let mut first = next;
        let (mut done, mut waiting) = (Vec::new(), None);
        while left > 0 {
            let mut progress = round(&mut client, &mut done)?;
            for Done { token, buffer, result } in done.drain(..) {
                result.map_err(|error| told(token, error))?;
                if let Some(slot) = order.get_mut(((token - first) / u64::from(chunk_blocks)) as usize) {
                    slot.1 = buffer;
                }
            }
            while waiting.is_none()
                && let Some((block, buffer)) = order.pop_front_if(|slot| slot.1.is_some())
            {
                let Some(buffer) = buffer else { break };
                first = block + u64::from(chunk_blocks);
                let mut data: Vec<u8> = spare.try_recv().unwrap_or_default();
                data.clear();
                let whole = client.disk().data(&buffer);
                data.extend_from_slice(
                    &whole[..whole
                        .len()
                        .min(usize::try_from(left).unwrap_or(usize::MAX))
                        .min(chunk_blocks as usize * info.block_bytes as usize)],
                );
                client.disk().give_back(buffer);
                left -= data.len() as u64;
                bar.inc(data.len() as u64);
                waiting = give(&sink, data)?;
                progress = true;
            }
            if let Some(data) = waiting.take() {
                waiting = give(&sink, data)?;
                progress |= waiting.is_none();
            }
            while next < end_block
                && let Some(buffer) = client.disk().take_buffer(1)
            {
                let blocks = (end_block - next).min(u64::from(chunk_blocks)) as u32;
                let read = request(next, Op::Read, next, blocks, Some(buffer));
                if let Err(refused) = client.disk().submit(read) {
                    bail!("the disk refuses a read: {}", refused.reason);
                }
                order.push_back((next, None));
                next += u64::from(blocks);
                progress = true;
            }
            progress |= client.transmit();
            let pace_ns = waiting.is_some().then(|| client.now_ns() + FILE_PACE_NS);
            client.rest(progress, pace_ns)?;
        }
        drop(client);
        if let Some(data) = waiting {
            let _ = sink.send(data);
        }
        drop(sink);
        bar.finish_and_clear();
        finish(writer, &self.output_file)
    }
}

/// Gives data to the file's thread, or gives it back while that has no room.
fn give(sink: &Sink, data: Vec<u8>) -> Result<Option<Vec<u8>>> {
    match sink.try_send(data) {
        Ok(()) => Ok(None),
        Err(TrySendError::Full(data)) => Ok(Some(data)),
        // Its error is told when it is waited for.
        Err(TrySendError::Disconnected(_)) => bail!("the output can't be written any more"),
    }
}

/// The file's thread, what it is given or gives, and the memory that comes back.
type Worker = JoinHandle<io::Result<()>>;
type Chunks = Receiver<Vec<u8>>;
type Sink = SyncSender<Vec<u8>>;

/// A thread that writes what it is given, and returns the memory.
fn start_writer(path: &Path) -> Result<(Sink, Chunks, Worker)> {
    let context = || format!("cannot write {}", path.display());
    let mut file: Box<dyn io::Write + Send> = if path == Path::new("-") {
        Box::new(io::stdout())
    } else {
        Box::new(File::create(path).with_context(context)?)
    };
    let (sink, chunks) = sync_channel::<Vec<u8>>(DEPTH);
    let (empty, spare) = sync_channel(2 * DEPTH);
    let writer = thread::Builder::new().name("file".to_owned()).spawn(move || {
        for chunk in chunks {
            file.write_all(&chunk)?;
            let _ = empty.try_send(chunk);
        }
        file.flush()
    })?;
    Ok((sink, spare, writer))
}

fn finish(worker: Worker, path: &Path) -> Result<()> {
    let outcome = worker.join().unwrap_or_else(|_| Err(io::Error::other("its thread ended")));
    outcome.with_context(|| format!("with {}", path.display()))
}

impl Write {
    pub(crate) fn run(self) -> Result<()> {
        let (file, length) = open(&self.file)?;
        let mut client = connect(&self.target)?;
        let info = client.disk().info().clone();
        let block_bytes = u64::from(info.block_bytes);
        ensure!(self.offset.is_multiple_of(block_bytes), "--offset has to be a multiple of {block_bytes}");
        ensure!(!info.read_only, "the namespace is write protected");
        let room = info.bytes().saturating_sub(self.offset);
        let bytes = match (self.bytes, length) {
            (Some(bytes), Some(length)) => Some(bytes.min(length)),
            (bytes, length) => bytes.or(length),
        };
        if let Some(bytes) = bytes {
            ensure!(
                bytes <= room,
                "{bytes} bytes from {} on do not fit: the device ends at {}",
                self.offset,
                info.bytes()
            );
            ensure!(
                self.pad || bytes.is_multiple_of(block_bytes),
                "{bytes} bytes do not end with a block of {block_bytes}: --pad fills it up with zeros"
            );
        }
        let chunk_bytes =
            info.max_transfer_bytes.min(CHUNK_BYTES as u32) / info.block_bytes * info.block_bytes;
        let (source, spare, reader) = start_reader(file, bytes, chunk_bytes as usize)?;
        let bar = bar(bytes);
        let mut next = self.offset / block_bytes;
        let (mut done, mut pending, mut ended) = (Vec::new(), None, false);
        while !ended || pending.is_some() || client.disk().in_flight() > 0 {
            let mut progress = round(&mut client, &mut done)?;
            for Done { token, buffer, result } in done.drain(..) {
                result.map_err(|error| told(token, error))?;
                if let Some(buffer) = buffer {
                    client.disk().give_back(buffer);
                }
            }
            loop {
                if pending.is_none() && !ended {
                    match source.try_recv() {
                        Ok(chunk) => pending = Some(chunk),
                        Err(TryRecvError::Empty) => {}
                        Err(TryRecvError::Disconnected) => ended = true,
                    }
                }
                let Some(chunk) = pending.take() else { break };
                let Some(buffer) = client.disk().take_buffer(1) else {
                    pending = Some(chunk);
                    break;
                };
                let tail = chunk.len() as u64 % block_bytes;
                ensure!(
                    tail == 0 || self.pad,
                    "the data does not end with a block of {block_bytes} bytes: --pad fills it up with zeros"
                );
                let data = client.disk().data_mut(&buffer);
                data[..chunk.len()].copy_from_slice(&chunk);
                let blocks = (chunk.len() as u64).div_ceil(block_bytes);
                data[chunk.len()..(blocks * block_bytes) as usize].fill(0);
                let write = request(next, Op::Write { durable: false }, next, blocks as u32, Some(buffer));
                client
                    .disk()
                    .submit(write)
                    .map_err(|refused| anyhow::anyhow!("at block {next}: {}", refused.reason))?;
                next += blocks;
                bar.inc(chunk.len() as u64);
                let _ = spare.try_send(chunk);
                progress = true;
            }
            progress |= client.transmit();
            let pace_ns = (!ended).then(|| client.now_ns() + FILE_PACE_NS);
            client.rest(progress, pace_ns)?;
        }
        finish(reader, &self.file)?;
        flush(&mut client)?;
        drop(client);
        bar.finish_and_clear();
        Ok(())
    }
}

/// Makes durable what was written.
fn flush(client: &mut Client) -> Result<()> {
    let flush = request(0, Op::Flush, 0, 0, None);
    client.disk().submit(flush).map_err(|refused| anyhow::anyhow!("flush: {}", refused.reason))?;
    let mut done = Vec::new();
    while client.disk().in_flight() > 0 {
        let progress = round(client, &mut done)? | client.transmit();
        client.rest(progress, None)?;
    }
    done.into_iter().try_for_each(|one| one.result).context("flush")
}

/// The file, and how long it is, if that is known.
fn open(path: &Path) -> Result<(Box<dyn io::Read + Send>, Option<u64>)> {
    if path == Path::new("-") {
        return Ok((Box::new(io::stdin()), None));
    }
    let context = || format!("cannot read {}", path.display());
    let file = OpenOptions::new().read(true).open(path).with_context(context)?;
    let length = file.metadata().with_context(context)?;
    Ok((Box::new(file), length.is_file().then_some(length.len())))
}

/// A thread that reads whole chunks, but for the last.
fn start_reader(
    file: Box<dyn io::Read + Send>,
    bytes: Option<u64>,
    chunk_bytes: usize,
) -> Result<(Chunks, Sink, Worker)> {
    let (chunks, source) = sync_channel::<Vec<u8>>(DEPTH);
    let (spare, empty) = sync_channel::<Vec<u8>>(2 * DEPTH);
    let reader = thread::Builder::new().name("file".to_owned()).spawn(move || {
        let mut file = file.take(bytes.unwrap_or(u64::MAX));
        loop {
            let mut chunk = empty.try_recv().unwrap_or_default();
            chunk.clear();
            file.by_ref().take(chunk_bytes as u64).read_to_end(&mut chunk)?;
            if chunk.is_empty() || chunks.send(chunk).is_err() {
                return Ok(());
            }
        }
    })?;
    Ok((source, spare, reader))
}
