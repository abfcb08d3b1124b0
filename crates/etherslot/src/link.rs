//! `etherslot link`: what a session carries over a link, from one machine to another.

use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _, stderr};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use clap::{Args, Subcommand};
use etherslot_runtime::link_test::{
    self, EndOptions, Flow, Latency, Phase, Progress, RECORD_BYTES, Report, TestOptions,
};
use etherslot_runtime::options::{
    Address, Impairment, LinkKind, LinkOptions, LoopOptions, MAX_PATHS, MAX_PAYLOAD_BYTES, Routes,
    SessionOptions,
};

use crate::config;
use crate::stat::{self, Output};
use crate::units;

/// Between two pictures of the progress.
const REDRAW: Duration = Duration::from_millis(100);
const BAR_WIDTH: u64 = 24;

#[derive(Subcommand)]
pub(crate) enum Link {
    /// Waits for link tests, until it is stopped.
    Serve(Serve),
    /// Tests the link to a machine where `link serve` runs.
    Test(Test),
}

#[derive(Args)]
pub(crate) struct Serve {
    #[command(flatten)]
    end: End,
}

#[derive(Args)]
pub(crate) struct Test {
    /// Where `link serve` runs: a MAC address, address and port for UDP, or ring:N. With several links, an address on each.
    #[arg(value_name = "PEER", required = true, num_args = 1..=MAX_PATHS)]
    peers: Vec<Address>,
    #[command(flatten)]
    end: End,
    /// How long bulk records are sent; as long again, but at most a second, pings are sent alone before.
    #[arg(long, default_value = "5", value_name = "SECONDS", value_parser = seconds)]
    seconds: Duration,
    /// Bytes of a bulk record, 1 to 4112.
    #[arg(long, default_value = "4096", value_name = "BYTES", value_parser = record_bytes)]
    record_bytes: usize,
    /// Send bulk from the peer to us, not to the peer.
    #[arg(long, conflicts_with = "both")]
    reverse: bool,
    /// Send bulk both ways at the same time.
    #[arg(long)]
    both: bool,
    /// How to print: json is one object.
    #[arg(long, value_enum, default_value_t, value_name = "FORM")]
    output: Output,
}

/// One end: its link and its session.
#[derive(Args)]
struct End {
    /// A link in one word: `packet:INTERFACE`, `udp:ADDRESS:PORT`, `xdp:INTERFACE` or `ring:FOLDER#N`. Given several times: several links, for a path each.
    #[arg(long, value_name = "LINK", conflicts_with_all = ["interface", "listen", "mtu"])]
    link: Vec<LinkKind>,
    /// Raw Ethernet on this interface. Given several times: several links, for a path each.
    #[arg(long, value_name = "INTERFACE", conflicts_with = "listen")]
    interface: Vec<String>,
    /// UDP at this address and port, several times for several links; the test takes any free port if none is given.
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Vec<SocketAddr>,
    /// UDP: the path's MTU, if it is not the interface's.
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(624..=9284))]
    mtu: Option<u16>,
    /// The session's published mode: in-order receiver, Go-Back-N.
    #[arg(long)]
    classic: bool,
    /// Frames in flight and held out of order.
    #[arg(long, value_name = "FRAMES", value_parser = clap::value_parser!(u16).range(16..=4096))]
    window_frames: Option<u16>,
    /// Poll for this long before sleeping, as in 50us; 0s sleeps at once. By default, as long as it pays.
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    busy_poll: Option<Duration>,
    /// Write all frames of the link to this pcapng file.
    #[arg(long, value_name = "FILE")]
    capture: Option<PathBuf>,
    /// Make faults on purpose, as in `loss=1%,reorder=1%,duplicate=1%,seed=7`.
    #[arg(long, value_name = "FAULTS", value_parser = faults)]
    impair: Option<String>,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.1..=86_400.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "write a number of seconds, 0.1 to 86400".to_owned())
}

fn record_bytes(text: &str) -> Result<usize, String> {
    let bytes = text.parse().ok().filter(|bytes| RECORD_BYTES.contains(bytes));
    bytes
        .ok_or_else(|| format!("write a number of bytes, {} to {}", RECORD_BYTES.start(), RECORD_BYTES.end()))
}

fn faults(text: &str) -> Result<String, String> {
    text.parse::<Impairment>().map(|_| text.to_owned()).map_err(|error| error.to_string())
}

impl End {
    /// What is to be opened; `unsaid` are the addresses to listen at if neither such nor an interface was given.
    fn options(self, name: &str, unsaid: Vec<SocketAddr>) -> Result<EndOptions> {
        let Self { link, interface, listen, mtu, classic, window_frames, busy_poll, capture, impair } = self;
        let listen = if listen.is_empty() { unsaid } else { listen };
        let kinds: Vec<LinkKind> = if !link.is_empty() {
            link
        } else if interface.is_empty() {
            listen.into_iter().map(|listen| LinkKind::Udp { listen, mtu }).collect()
        } else if mtu.is_some() {
            bail!("--mtu is for UDP: an interface has its own")
        } else {
            interface.into_iter().map(|interface| LinkKind::Packet { interface }).collect()
        };
        if kinds.is_empty() {
            bail!("which link? Add --interface for raw Ethernet, or --listen ADDRESS:PORT for UDP")
        }
        ensure!(kinds.len() <= MAX_PATHS, "more than {MAX_PATHS} links: use {MAX_PATHS} or fewer");
        ensure!(kinds.len() == 1 || capture.is_none(), "--capture takes one link: there are {}", kinds.len());
        let session = SessionOptions {
            classic,
            one_tlp_a_frame: false,
            read_ahead: true,
            max_payload: MAX_PAYLOAD_BYTES,
            paths: kinds.len() as u8,
            window_frames,
            dead_after: config::DEFAULT_DEAD_AFTER,
            heartbeat: config::DEFAULT_DEAD_AFTER / config::HEARTBEATS,
        };
        let run = LoopOptions {
            name: name.to_owned(),
            busy_poll,
            control: None,
            control_group: None,
            metrics: None,
        };
        let links = kinds
            .into_iter()
            .map(|kind| LinkOptions { kind, capture: capture.clone(), impair: impair.clone() })
            .collect();
        Ok(EndOptions { run, links, session })
    }
}

impl Link {
    pub(crate) fn run(self) -> Result<()> {
        match self {
            Self::Serve(Serve { end }) => Ok(link_test::serve(&end.options("link-serve", Vec::new())?)?),
            Self::Test(test) => test.run(),
        }
    }
}

impl Test {
    fn run(self) -> Result<()> {
        let Self { peers, end, seconds, record_bytes, reverse, both, output } = self;
        let unspecified = |peer: &Address| match peer {
            Address::Udp(SocketAddr::V4(_)) => Some(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))),
            Address::Udp(SocketAddr::V6(_)) => Some(SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0))),
            _ => None,
        };
        let end = end.options("link-test", peers.iter().filter_map(unspecified).collect())?;
        ensure!(
            end.links.len() == peers.len(),
            "{} links and {} addresses of the peer: write one for each link, in the order of the links",
            end.links.len(),
            peers.len()
        );
        for (link, &peer) in end.links.iter().zip(&peers) {
            let kind = &link.kind;
            ensure!(kind.reaches(&peer), "{peer} is not {}, as the link {kind} needs", kind.peer_form());
        }
        let peer = Routes::new(peers[0], peers[1..].iter().copied());
        let test = TestOptions {
            peer,
            idle: seconds.min(Duration::from_secs(1)),
            load: seconds,
            record_bytes,
            to_peer: both || !reverse,
            from_peer: both || reverse,
        };
        let mut line = ProgressLine::new();
        let report = link_test::test(&end, &test, &mut |progress| line.draw(progress))?;
        drop(line);
        match output {
            Output::Json => println!("{}", serde_json::to_string(&report)?),
            Output::Text => print!("{}", show(&report)),
        }
        Ok(())
    }
}

/// A line on the terminal that is gone when the test is over. Without a terminal nothing is shown.
struct ProgressLine {
    is_shown: bool,
    drawn: Instant,
}

impl ProgressLine {
    fn new() -> Self {
        Self { is_shown: stderr().is_terminal(), drawn: Instant::now() }
    }

    fn draw(&mut self, progress: &Progress) {
        if !self.is_shown || self.drawn.elapsed() < REDRAW {
            return;
        }
        self.drawn = Instant::now();
        let Progress { phase, passed_ns, total_ns, to_peer, from_peer } = *progress;
        let full = (passed_ns * BAR_WIDTH / total_ns).min(BAR_WIDTH) as usize;
        let mut line = format!("{phase:10} [{}{}]", "#".repeat(full), "-".repeat(BAR_WIDTH as usize - full));
        for (rate, direction) in [(to_peer, "to peer"), (from_peer, "from peer")] {
            if phase == Phase::Loaded && rate > 0.0 {
                let _ = write!(line, "  {} {direction}", units::bit_rate(rate));
            }
        }
        let _ = write!(stderr(), "\r\x1b[K{line}");
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        if self.is_shown {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}

fn show(report: &Report) -> String {
    let Report { address, record_bytes, to_peer, from_peer, idle, loaded, session, .. } = report;
    let mut text = format!("{address} to {}, records of {record_bytes} B\n", session.peer);
    for (flow, direction) in [(to_peer, "to peer"), (from_peer, "from peer")] {
        if let Some(Flow { bytes, span_ns, bits_per_second }) = flow {
            let _ = writeln!(
                text,
                "  {direction:10} {:>12}  goodput: {} in {}",
                units::bit_rate(*bits_per_second),
                units::bytes(*bytes),
                units::time(*span_ns)
            );
        }
    }
    if let Some(pause_ns) = report.longest_pause_ns {
        let _ = writeln!(text, "  {:10} {:>12}  longest pause", "from peer", units::time(pause_ns));
    }
    let _ = writeln!(text, "  round trip {:>12} {:>12} {:>12} {:>12}", "p50", "p99", "p99.9", "most");
    for (latency, when) in [(idle, "idle"), (loaded, "loaded")] {
        let Latency { pings, unanswered, p50_ns, p99_ns, p999_ns, most_ns } = *latency;
        let _ = write!(text, "    {when:8}");
        for time_ns in [p50_ns, p99_ns, p999_ns, most_ns] {
            let _ = write!(text, " {:>12}", units::time(time_ns));
        }
        let _ = write!(text, "  of {pings} pings");
        if unanswered != 0 {
            let _ = write!(text, ", {unanswered} unanswered");
        }
        text.push('\n');
    }
    stat::show_session(&mut text, session, None);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        test: Test,
    }

    fn options(arguments: &[&str]) -> Result<EndOptions, String> {
        let line =
            Line::try_parse_from([&["test"], arguments].concat()).map_err(|error| error.to_string())?;
        line.test.end.options("tried", Vec::new()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_link_is_an_interface_or_an_address_and_not_both() {
        let peer = "02:00:00:00:00:02";
        assert!(matches!(
            options(&[peer, "--interface", "eth0"]).unwrap().links.remove(0).kind,
            LinkKind::Packet { interface } if interface == "eth0"
        ));
        let two = options(&[peer, peer, "--interface", "eth0", "--interface", "eth1"]).unwrap();
        assert_eq!((two.links.len(), two.session.paths), (2, 2));
        let udp = options(&["10.0.0.1:4700", "--listen", "0.0.0.0:0", "--mtu", "1500"]).unwrap();
        assert!(matches!(udp.links[0].kind, LinkKind::Udp { mtu: Some(1500), .. }));
        let word = options(&["10.0.0.1:4700", "--link", "udp:0.0.0.0:0,mtu=1500"]).unwrap();
        assert_eq!(word.links[0].kind, udp.links[0].kind);
        for (bad, remedy) in [
            (&[peer][..], "--interface"),
            (&[peer, "--link", "packet:eth0", "--interface", "eth0"], "--link"),
            (&[peer, "--link", "eth0"], "packet:eth0"),
            (&[peer, "--interface", "eth0", "--listen", "0.0.0.0:0"], "--listen"),
            (&[peer, "--interface", "eth0", "--mtu", "1500"], "UDP"),
            (&[peer, "--interface", "eth0", "--record-bytes", "5000"], "4112"),
            (&[peer, "--interface", "eth0", "--seconds", "0"], "seconds"),
            (&[peer, "--interface", "eth0", "--impair", "lost=1%"], "loss"),
            (&[peer, "--interface", "eth0", "--reverse", "--both"], "--both"),
            (&["nowhere"], "MAC"),
        ] {
            let error = options(bad).unwrap_err();
            assert!(error.contains(remedy), "{bad:?}: {error}");
        }
    }
}
