//! Whatever driver, user and peer do: nothing panics, nothing works without end, and a reset makes all good.

use crate::bus::Random;
use crate::chaos::{act, begin, serves};

#[test]
fn whatever_was_done_a_reset_makes_all_good() {
    for seed in 1..=30 {
        let mut random = Random(seed);
        let mut choose = |bound: u32| random.below(u64::from(bound)) as u32;
        let mut world = begin();
        for _ in 0..400 {
            act(&mut world, &mut choose);
        }
        serves(&mut world);
    }
}
