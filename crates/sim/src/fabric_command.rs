//! `sim fabric`: a large fabric, and its figures as a table.
#![allow(clippy::cast_precision_loss, clippy::cast_sign_loss)] // Of times and rates four digits are shown.

use clap::Args;
use etherslot_sim::fabric::{Figures, Scale, Spread, run};

#[derive(Args)]
pub(crate) struct FabricArguments {
    /// Hosts.
    #[arg(long, default_value_t = Scale::default().hosts)]
    hosts: usize,
    /// Boxes.
    #[arg(long, default_value_t = Scale::default().boxes)]
    boxes: usize,
    /// Devices.
    #[arg(long, default_value_t = Scale::default().devices)]
    devices: usize,
    /// Nodes of each role that listen.
    #[arg(long, default_value_t = Scale::default().listeners)]
    listeners: usize,
    /// Between two heartbeats, ms.
    #[arg(long, default_value_t = 100)]
    interval_ms: u64,
    /// Loss of heartbeats and orders, in percent; once with each.
    #[arg(long, value_delimiter = ',', default_value = "0,1")]
    loss: Vec<f64>,
    /// Moves of a device.
    #[arg(long, default_value_t = Scale::default().moves)]
    moves: usize,
    /// What everything random comes from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl FabricArguments {
    pub(crate) fn execute(self) -> Result<bool, String> {
        let Self { hosts, boxes, devices, listeners, interval_ms, loss, moves, seed } = self;
        if hosts < 3
            || boxes == 0
            || devices < boxes
            || listeners < 3
            || !(10..=60_000).contains(&interval_ms)
        {
            return Err(
                "3 hosts, a box, a device for each box, 3 listeners and 10 ms to 60 s at least".to_owned()
            );
        }
        if !loss.iter().all(|loss| (0.0..=50.0).contains(loss)) {
            return Err("a loss is 0 to 50 percent".to_owned());
        }
        println!(
            "{hosts} hosts, {boxes} boxes, {devices} devices, a heartbeat every {interval_ms} ms, seed {seed}"
        );
        let mut is_good = true;
        for loss in loss {
            let scale = Scale {
                hosts,
                boxes,
                devices,
                listeners,
                interval_ns: interval_ms * 1_000_000,
                loss_ppm: (loss * 10_000.0) as u32,
                moves,
                seed,
            };
            let figures = run(&scale);
            println!("\n{loss} % of frames lost");
            show(&figures);
            is_good &= figures.moves.count == moves
                && figures.storm.known_ns.is_some()
                && figures.storm.strayed == 0;
        }
        Ok(is_good)
    }
}

fn ms(ns: u64) -> String {
    format!("{:.1} ms", ns as f64 / 1e6)
}

fn spread(spread: &Spread) -> String {
    let Spread { count, least_ns, p50_ns, p99_ns, most_ns } = *spread;
    format!("{} / {} / {} / {} (of {count})", ms(least_ns), ms(p50_ns), ms(p99_ns), ms(most_ns))
}

fn show(figures: &Figures) {
    let Figures { rest, cost, joined_ns, found, moves, storm } = figures;
    let row = |what: &str, value: String| println!("  {what:<52} {value}");
    let mbit = |bits: u64| format!("{:.1} Mbit/s", bits as f64 / 1e6);
    row(
        "heartbeats that every node hears",
        format!("{} /s, {}", rest.frames_a_second, mbit(rest.bits_a_second)),
    );
    row("the most in 10 ms", rest.peak_frames.to_string());
    let share = *cost as f64 * rest.frames_a_second as f64 / 1e7;
    row("this machine's time to take one; of a core", format!("{cost} ns; {share:.2} %"));
    row("a new node knows all devices after", ms(*joined_ns));
    row("a dead host is found: least / p50 / p99 / most", spread(found));
    row("a device moves: least / p50 / p99 / most", spread(moves));
    let load = format!("{} /s, {}", storm.load.frames_a_second, mbit(storm.load.bits_a_second));
    row("after the switch was away: heartbeats in a second", load);
    row("  the most in 10 ms", storm.load.peak_frames.to_string());
    let after = |time: Option<u64>| time.map_or_else(|| "never".to_owned(), ms);
    row("  all devices are with their hosts again after", after(storm.leases_ns));
    row("  and everybody knows it after", after(storm.known_ns));
    row("  devices that are another host's", storm.strayed.to_string());
}
