//! Every record is delivered exactly once, in the order of its stream, whatever the link does.

mod pair;

use etherslot_session::{Config, Mode};
use pair::{Link, MS, Pair};

#[test]
fn records_of_all_lengths_arrive_both_ways_on_a_clean_link() {
    let mut pair = Pair::connected(1, &Config::default(), Link::default());
    pair.exchange(3000, 5, 4112, 2000 * MS);
    for node in &mut pair.nodes {
        let counters = *node.session().counters();
        assert_eq!((counters.retransmissions, counters.duplicates, counters.out_of_order), (0, 0, 0));
        assert_eq!((counters.rtos, counters.tail_probes), (0, 0));
    }
}

#[test]
fn records_arrive_once_and_in_order_under_loss_duplication_and_reordering() {
    for seed in 0..20 {
        let link = Link { loss: 30_000, duplication: 20_000, reordering: 50_000, ..Link::default() };
        let mut pair = Pair::connected(seed, &Config::default(), link);
        pair.exchange(1500, 8, 4112, 20_000 * MS);
    }
}

#[test]
fn classic_mode_delivers_under_loss_duplication_and_reordering() {
    for seed in 0..10 {
        let link = Link { loss: 20_000, duplication: 20_000, reordering: 10_000, ..Link::default() };
        let config = Config { mode: Mode::Classic, ..Config::default() };
        let mut pair = Pair::connected(seed, &config, link);
        assert_eq!(pair.nodes[0].session().mode(), Mode::Classic);
        pair.exchange(1500, 8, 4112, 20_000 * MS);
    }
}
