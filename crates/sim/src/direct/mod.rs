//! Copies between disks in boxes, past their host, over a network that loses, repeats, delays and corrupts frames, while boxes and the
//! host's program die and come back, and nodes do not reach each other for a while.
//!
//! The nodes, the disks, the DC buffer and the copy are the real ones. Outside of them is checked: every byte is in its place and durable
//! at the end, nothing around it has changed, what was said to be durable is there after each crash, and, where nothing dies, hardly a byte
//! was the host's.

mod world;

use crate::network::{Burst, Faults, NetworkPlan};
use crate::random::Random;

const MS: u64 = 1_000_000;
/// Bytes of each disk.
const DISK_BYTES: u64 = 2 << 20;
const BLOCK_BYTES: u64 = 512;

/// What goes wrong, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Disaster {
    /// A box dies with what its disks have not made durable, and is back after so many ns.
    KillBox(usize, u64),
    /// The host's program dies; another goes on where the copy was durable, after so many ns.
    KillHost(u64),
    /// Two nodes do not reach each other for so many ns. The host is behind the last box.
    Cut(usize, usize, u64),
}

/// A pair of disks, and what is copied.
#[derive(Clone, Copy, Debug)]
struct Pair {
    source_start: u64,
    target_start: u64,
    bytes: u64,
}

/// What is to be run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What everything random comes from.
    pub seed: u64,
    boxes: usize,
    /// Two disks each: source and target. The box of each disk.
    pairs: Vec<Pair>,
    places: Vec<usize>,
    /// The box with the buffer.
    buffer_in: usize,
    network: NetworkPlan,
    /// Chunks under way and their size, if they are not to be found out; bytes between checkpoints; compared afterwards.
    outstanding: Option<usize>,
    chunk_bytes: Option<u64>,
    checkpoint_bytes: u64,
    verify: bool,
    /// Disasters, and how many per mille of the bytes have been copied when they come.
    disasters: Vec<(u64, Disaster)>,
    /// A byte of a target is changed when all of it is copied: to see that this is found.
    sabotage: bool,
}

impl Plan {
    /// The plan of a seed.
    pub fn of(seed: u64) -> Self {
        let random = &mut Random::new(seed).fork("direct", 0);
        let boxes = random.pick(&[1, 2, 2, 2, 3]);
        let pairs = (0..random.range(1, 2)).map(|_| plan_pair(random)).collect::<Vec<_>>();
        let mut places: Vec<_> = (0..2 * pairs.len()).map(|_| random.below(boxes as u64) as usize).collect();
        if boxes > 1 {
            // From box to box, most often.
            places[1] = if random.percent(80) { (places[0] + 1) % boxes } else { places[0] };
        }
        let count = if random.percent(40) { 0 } else { random.range(1, 3) };
        let disasters = (0..count).map(|_| (random.below(1000), plan_disaster(random, boxes))).collect();
        Self {
            seed,
            boxes,
            buffer_in: random.below(boxes as u64) as usize,
            pairs,
            places,
            network: plan_network(random),
            outstanding: random.percent(50).then(|| random.range(1, 8) as usize),
            chunk_bytes: random.percent(50).then(|| 4096 << random.below(6)),
            checkpoint_bytes: random.pick(&[0, 128 << 10, 512 << 10]),
            verify: random.percent(50),
            disasters,
            sabotage: false,
        }
    }

    /// All bytes that are to be copied.
    fn bytes(&self) -> u64 {
        self.pairs.iter().map(|pair| pair.bytes).sum()
    }
}

fn plan_pair(random: &mut Random) -> Pair {
    let bytes = BLOCK_BYTES * random.range(1024, DISK_BYTES / BLOCK_BYTES);
    let free = (DISK_BYTES - bytes) / BLOCK_BYTES + 1;
    let mut start = || BLOCK_BYTES * random.below(free);
    Pair { source_start: start(), target_start: start(), bytes }
}

fn plan_disaster(random: &mut Random, boxes: usize) -> Disaster {
    let for_ns = random.magnitude(MS, 2_000 * MS);
    let the_box = random.below(boxes as u64) as usize;
    match random.below(6) {
        0 | 1 => Disaster::KillBox(the_box, for_ns),
        2 => Disaster::KillHost(for_ns),
        3 if boxes > 1 => Disaster::Cut(the_box, (the_box + 1) % boxes, for_ns),
        _ => Disaster::Cut(the_box, boxes, for_ns),
    }
}

fn plan_network(random: &mut Random) -> NetworkPlan {
    let mut some = |high: u64| if random.percent(60) { random.magnitude(100, high) as u32 } else { 0 };
    let (loss_ppm, duplicate_ppm, reorder_ppm, corrupt_ppm) =
        (some(30_000), some(20_000), some(30_000), some(5_000));
    let burst = random.percent(20).then(|| Burst {
        begins_ppm: random.magnitude(100, 1_000) as u32,
        lasts_ns: random.magnitude(10_000, 2 * MS),
        loss_ppm: 700_000,
    });
    NetworkPlan {
        rate_bps: random.magnitude(1_000_000_000, 40_000_000_000),
        delay_ns: random.magnitude(1_000, 100_000),
        jitter_ns: random.magnitude(100, 20_000),
        transmit_frames: 512,
        switch_bytes: random.magnitude(256_000, 4_000_000),
        mtu: random.pick(&[1500, 9000]),
        faults: Faults {
            loss_ppm,
            burst,
            duplicate_ppm,
            reorder_ppm,
            reorder_ns: random.magnitude(1_000, MS),
            corrupt_ppm,
            deliver_corrupt: true,
            ..Faults::default()
        },
    }
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// What was against the rules, if anything.
    pub violation: Option<String>,
    /// Bytes that were to be copied, and were checked.
    pub bytes: u64,
    /// Requests from box to box.
    pub far_requests: u64,
    /// Functions that were reset because what they had written to another box may have been lost.
    pub severed: u64,
    /// Chunks that were done again, for whatever reason, and pairs that went back to what was durable.
    pub repeated: u64,
    /// Disasters that came.
    pub disasters: u64,
    /// Frames that were lost.
    pub lost: u64,
    /// Virtual time, ns.
    pub virtual_ns: u64,
}

/// Runs a plan.
pub fn run(plan: &Plan) -> Report {
    world::World::new(plan).run()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_copied_under_loss_reordering_and_deaths() {
        let mut sum = Report::default();
        for seed in 1..=25 {
            let report = run(&Plan::of(seed));
            assert_eq!(report.violation, None, "seed {seed}");
            sum.far_requests += report.far_requests;
            sum.repeated += report.repeated;
            sum.disasters += report.disasters;
            sum.lost += report.lost;
        }
        assert!(
            sum.far_requests > 1000 && sum.repeated > 10 && sum.disasters > 10 && sum.lost > 100,
            "{sum:?}"
        );
    }

    #[test]
    fn a_seed_says_all() {
        let [one, other] = [5, 5].map(|seed| run(&Plan::of(seed)));
        assert_eq!(format!("{one:?}"), format!("{other:?}"));
    }

    #[test]
    fn a_byte_that_is_wrong_is_found() {
        for seed in 1..=6 {
            // What is copied again afterwards is right again.
            let plan = Plan { sabotage: true, verify: false, disasters: Vec::new(), ..Plan::of(seed) };
            let found = run(&plan).violation;
            assert!(
                found.as_ref().is_some_and(|text| text.contains("is not what was copied")),
                "{seed}: {found:?}"
            );
        }
    }
}
