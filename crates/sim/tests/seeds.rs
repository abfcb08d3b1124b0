//! A few seeds of every scenario; `sim run` does thousands.

use etherslot_sim::{Devices, Scenario, run, run_of};

#[test]
fn every_scenario_holds_on_its_first_seeds() {
    for devices in Devices::ALL {
        for scenario in Scenario::ALL {
            for seed in 1..=6 {
                let report = run_of(seed, scenario, devices, false);
                let run = format!("seed {seed} scenario {scenario} devices {devices}");
                assert!(report.violation.is_none(), "{run}: {}", report.violation.unwrap());
                assert!(scenario == Scenario::Hostile || report.progress.finished, "{run}");
            }
        }
    }
}

#[test]
fn a_seed_gives_the_same_run_each_time() {
    for scenario in Scenario::ALL {
        let (first, again) = (run(7, scenario, false), run(7, scenario, false));
        assert_eq!(
            (first.hash, first.events, first.virtual_ns),
            (again.hash, again.events, again.virtual_ns)
        );
        assert_ne!(first.hash, run(8, scenario, false).hash);
    }
}
