//! Goodput over a lossy link of this kernel, against the same link in the simulator.
//!
//! Compared are ratios, goodput with loss over goodput without, each of measurements that follow one another; the median of
//! several rounds is taken. What else the machine does at the time takes from both.

use std::fmt::Write as _;
use std::process::{Child, Command, Stdio};

use etherslot_lab::{BOX_MAC, INTERFACE, Net, NetOptions, Run, Side, ensure_net, etherslot_command};
use etherslot_session::{Config, Limits, Mode};
use etherslot_sim::grid::{Cell, Contender, Faults, Loss, contender, run};
use serde_json::Value;

use crate::Story;

/// Low enough for two shared cores.
const RATE: u64 = 300_000_000;
const FRAME_BYTES: u16 = 9000;
const RECORD_BYTES: usize = 4096;
/// Lost frames, in a million.
const LOSSES: [u32; 4] = [0, 1_000, 10_000, 50_000];
const ROUNDS: usize = 5;
const SECONDS: &str = "1";
/// How far a ratio may be from the simulator's.
const AGREEMENT: f64 = 0.1;
/// The simulator's runs are short: as many frames as here take several.
const SEEDS: u32 = 40;

/// `etherslot link serve`, until it is dropped.
struct Server(Child);

impl Server {
    fn start(net: &Net) -> Self {
        let mut command = etherslot_command(net, Side::Box).unwrap();
        command.args(["--log", "warn", "link", "serve", "--interface", INTERFACE]);
        Self(command.stdin(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `etherslot link test` to the server; its report.
fn measure(net: &Net) -> Value {
    let mut command: Command = etherslot_command(net, Side::Host).unwrap();
    command.args(["link", "test", BOX_MAC, "--interface", INTERFACE, "--seconds", SECONDS]);
    command.args(["--record-bytes", &RECORD_BYTES.to_string(), "--output", "json"]);
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

pub(crate) fn goodput(report: &Value, flow: &str) -> f64 {
    report[flow]["bits_per_second"].as_f64().unwrap()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The simulator's contender with the controller that nodes have.
fn of_nodes() -> Contender {
    let limits = Limits {
        frame_bytes: FRAME_BYTES.into(),
        window_frames: 256,
        rate: None,
        noise_ns: 0,
        mode: Mode::Selective,
    };
    let controller = format!("{:?}", (Config::default().controller)(&limits));
    let name = controller.split_whitespace().next().unwrap_or_default().to_lowercase();
    contender(&name).unwrap_or_else(|| panic!("the simulator has no {name:?}"))
}

/// The simulator's goodput with this loss, as a share of what the link carries.
fn simulated(contender: &Contender, loss_ppm: u32, rtt_ns: u64) -> f64 {
    let cell = Cell {
        name: "link".to_owned(),
        rate: RATE,
        rtt_ns,
        fan_in: 1,
        frame_bytes: FRAME_BYTES,
        record_bytes: RECORD_BYTES,
        faults: Faults { loss: Loss::Ppm(loss_ppm), ..Faults::default() },
        ..Cell::default()
    };
    let goodput = (0..SEEDS).map(|seed| run(&cell, contender, seed.into(), None).mean_goodput());
    goodput.sum::<f64>() / f64::from(SEEDS)
}

#[test]
#[ignore = "needs root: ./run test link"]
fn goodput_under_loss_is_what_the_simulator_says() {
    let story = Story::begin();
    ensure_net().unwrap();
    let run = Run::new("goodput").unwrap();
    let net = Net::new(&run, NetOptions { mtu: u32::from(FRAME_BYTES) }).unwrap();
    for side in [Side::Host, Side::Box] {
        story.tell(match net.limit_rate(side, Some(RATE)) {
            Ok(()) => format!("to {side:?}: {} Mbit/s by the kernel's token bucket", RATE / 1_000_000),
            Err(error) => format!("to {side:?}: the machine's own pace, since there is no shaper: {error}"),
        });
    }
    let _server = Server::start(&net);
    story.tell("a first run, for the round trip of the idle link");
    let rtt_ns = measure(&net)["idle"]["p50_ns"].as_u64().unwrap();

    let mut ratios: Vec<Vec<f64>> = vec![Vec::new(); LOSSES.len()];
    let mut repaired = [0; LOSSES.len()];
    for round in 1..=ROUNDS {
        let mut clean = 0.0;
        let mut line = String::new();
        for ((loss, ratios), repaired) in LOSSES.iter().zip(&mut ratios).zip(&mut repaired) {
            for side in [Side::Host, Side::Box] {
                net.lose(side, *loss).unwrap();
            }
            let report = measure(&net);
            let goodput = goodput(&report, "to_peer");
            if *loss == 0 {
                clean = goodput;
            }
            *repaired += report["session"]["counters"]["retransmissions"].as_u64().unwrap();
            ratios.push(goodput / clean);
            let _ = write!(line, "  {:.1} %: {:.0} Mbit/s", f64::from(*loss) / 1e4, goodput / 1e6);
        }
        story.tell(format!("round {round} of {ROUNDS} {line}"));
    }

    assert!(repaired[1..].iter().all(|frames| *frames > 0), "something was lost: {repaired:?}");
    let contender = of_nodes();
    story.tell(format!("the simulator's {}, with a round trip of {} us", contender.name, rtt_ns / 1000));
    let clean = simulated(&contender, 0, rtt_ns);
    let mut apart = Vec::new();
    for (loss, ratios) in LOSSES.iter().zip(ratios).skip(1) {
        let (here, there) = (median(ratios), simulated(&contender, *loss, rtt_ns) / clean);
        let difference = here / there - 1.0;
        let percent = f64::from(*loss) / 1e4;
        let line =
            format!("loss {percent} %: {here:.3} here, {there:.3} simulated, {:+.1} %", difference * 100.0);
        story.tell(&line);
        if difference.abs() > AGREEMENT {
            apart.push(line);
        }
    }
    assert!(apart.is_empty(), "more than {} % apart: {apart:?}", AGREEMENT * 100.0);
}
