//! What a UDP Port moves by itself, without a session: from its buffers to the kernel, over the network, and out of the kernel.
//!
//! `raw serve ADDRESS` on one machine; on another `raw move ADDRESS PEER SECONDS BYTES` prints the bytes a second that arrived, in frames as long as the
//! MTU lets them be, in bursts, out of a buffer of so many bytes, and `raw trip ADDRESS PEER SECONDS` the median of half round trips of 8 bytes, in microseconds. Both sides poll.
#![allow(clippy::cast_precision_loss)] // Rates.

use std::error::Error;
use std::time::{Duration, Instant};

use etherslot_netio::udp::{UdpConfig, UdpPort};
use etherslot_netio::{Address, BURST_FRAMES, Port};

/// First bytes of frames: data; sent back; the server says what data came, and forgets it.
const DATA: u8 = 0;
const ECHO: u8 = 1;
const REPORT: u8 = 2;
/// When an answer is asked for again.
const PATIENCE: Duration = Duration::from_millis(100);

fn open(address: &str) -> Result<UdpPort, Box<dyn Error>> {
    Ok(UdpPort::open(&UdpConfig::new(address.parse()?))?)
}

/// Counts and answers, for good.
fn serve(port: &mut UdpPort) -> ! {
    let (mut bytes, mut first, mut last) = (0, None, Instant::now());
    let mut answers: Vec<(Address, Vec<u8>)> = Vec::new();
    loop {
        let now = Instant::now();
        port.receive(&mut |from, frame| match frame.first() {
            Some(&DATA) => {
                // The first burst is not counted: the time begins with it.
                if *first.get_or_insert(now) != now {
                    bytes += frame.len() as u64;
                }
                last = now;
            }
            Some(&ECHO) => answers.push((*from, frame.to_vec())),
            Some(&REPORT) => {
                let time = first.take().map_or(Duration::ZERO, |first| last - first);
                let report =
                    [&[REPORT; 8], &bytes.to_le_bytes()[..], &(time.as_nanos() as u64).to_le_bytes()];
                answers.push((*from, report.concat()));
                bytes = 0;
            }
            _ => {}
        });
        for (to, answer) in answers.drain(..) {
            port.send(&to, &[&answer]);
        }
    }
}

/// Sends until an answer comes; the answer.
fn ask(port: &mut UdpPort, to: &Address, frame: &[u8]) -> Vec<u8> {
    let mut answer = None;
    while answer.is_none() {
        port.send(to, &[frame]);
        let asked = Instant::now();
        while answer.is_none() && asked.elapsed() < PATIENCE {
            port.receive(&mut |_, frame| answer = Some(frame.to_vec()));
        }
    }
    answer.unwrap_or_default()
}

/// Bytes a second.
fn rate(port: &mut UdpPort, to: &Address, time: Duration, bytes: usize) -> Option<f64> {
    let frame_bytes = port.max_frame_bytes();
    let buffer = vec![DATA; bytes.max(frame_bytes)];
    let frames: Vec<&[u8]> = buffer.chunks_exact(frame_bytes).collect();
    let frames: Vec<&[u8]> = frames.iter().copied().cycle().take(frames.len() * BURST_FRAMES).collect();
    let start = Instant::now();
    for burst in frames.chunks(BURST_FRAMES).cycle() {
        if start.elapsed() >= time {
            break;
        }
        port.send(to, burst);
    }
    let report = ask(port, to, &[REPORT; 8]);
    let word = |at: usize| Some(u64::from_le_bytes(report.get(at..at + 8)?.try_into().ok()?));
    Some(word(8)? as f64 / (word(16)? as f64 / 1e9))
}

/// Microseconds.
fn trip(port: &mut UdpPort, to: &Address, time: Duration) -> Option<f64> {
    let mut trips = Vec::new();
    let start = Instant::now();
    while start.elapsed() < time {
        let sent = Instant::now();
        ask(port, to, &[ECHO; 8]);
        trips.push(sent.elapsed());
    }
    trips.sort_unstable();
    Some(trips.get(trips.len() / 2)?.as_secs_f64() * 1e6 / 2.0)
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["serve", address] => {
            let mut port = open(address)?;
            println!("ready");
            serve(&mut port)
        }
        ["move", address, peer, seconds, bytes] => {
            let (mut port, to) = (open(address)?, Address::Udp(peer.parse()?));
            let time = Duration::from_secs_f64(seconds.parse()?);
            println!("{}", rate(&mut port, &to, time, bytes.parse()?).ok_or("nothing came")?);
            Ok(())
        }
        ["trip", address, peer, seconds] => {
            let (mut port, to) = (open(address)?, Address::Udp(peer.parse()?));
            let time = Duration::from_secs_f64(seconds.parse()?);
            println!("{}", trip(&mut port, &to, time).ok_or("nothing came")?);
            Ok(())
        }
        _ => Err(
            "usage: raw serve ADDRESS | raw move ADDRESS PEER SECONDS BYTES | raw trip ADDRESS PEER SECONDS"
                .into(),
        ),
    }
}
