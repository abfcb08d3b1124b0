//! What one session carries in virtual time: loose bounds, so that a change that breaks recovery shows.

mod pair;

use etherslot_session::Config;
use pair::{Link, MS, Pair, US};

/// 10 Gbit/s.
const RATE: u64 = 1_250_000_000;

/// Payload bytes that arrive, as a share of what the link carries, in per mille, with bulk in one direction.
fn goodput(seed: u64, link: Link, config: &Config) -> u64 {
    let mut pair = Pair::connected(seed, config, link);
    let (start_ns, ns) = (pair.now_ns, 40 * MS);
    while pair.now_ns < start_ns + ns {
        while pair.nodes[0].put(1, 1396) {}
        pair.step(start_ns + ns);
    }
    let got = pair.nodes[1].sink.bytes;
    got * 1_000_000_000 / ns * 1000 / link.rate
}

fn link(loss: u32) -> Link {
    Link { loss, rate: RATE, delay_ns: 20 * US, ..Link::default() }
}

#[test]
fn a_clean_link_is_filled() {
    let got = goodput(1, link(0), &Config::default());
    assert!(got >= 900, "{got} per mille");
}

#[test]
fn one_per_cent_loss_leaves_most_of_the_link() {
    let got = goodput(2, link(10_000), &Config::default());
    assert!(got >= 850, "{got} per mille");
}

#[test]
fn five_per_cent_loss_leaves_a_useful_link() {
    let got = goodput(3, link(50_000), &Config::default());
    assert!(got >= 800, "{got} per mille");
}

#[test]
fn reordering_costs_little() {
    let link = Link { reordering: 50_000, reorder_ns: 40 * US, ..link(0) };
    let got = goodput(4, link, &Config::default());
    assert!(got >= 850, "{got} per mille");
}
