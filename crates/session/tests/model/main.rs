//! A model check of the session: every run of two nodes over an adversary's network, within bounds, on the code itself.
//!
//! The explorer (`explore`) goes breadth first through all that may happen, and reaches each state by running the real
//! `Session` and `Listener` from the beginning. At each step the adversary delivers any burst of frames that was ever
//! sent, in any order, also for a second time and in a later life of either node; frames that it never delivers are lost,
//! so losing and holding back need no choices of their own. Or it lets the next timer run, lets all of them be late,
//! restarts a node, or has an application put a record in, or stop taking them. Records are taken inside of
//! `Session::handle_frame`; an application that stops is one that gives no credit meanwhile (`shim`).
//!
//! In every state: a record is delivered once, in the order of its stream, by the very life of the peer that confirmed,
//! or was confirmed by, the life it is delivered to; no epoch makes two sessions; who connected is up only with a session
//! made for it; no packet number and no timestamp is used twice; nothing is sent beyond the credit that has arrived; a
//! node whose timers have run has no timer that is still due. And from every state, when the network turns fair (`fair`),
//! with all that was under way lost and with all that was ever sent arriving again: both ends come up with each other and
//! everything put in comes through, one direction after the other; sessions that are up survive.
//!
//! Bounds by default, complete within them: 4 to 8 steps of the adversary after the beginning that a scope names, 2 lives
//! of each node beside those that die by themselves, windows of 1, 2 and 16 frames; about 110,000 states.
//! `ETHERSLOT_MODEL_STEPS=n` goes n steps further; each step takes about five times as long.

mod explore;
mod fair;
mod lives;
mod scope;
mod shim;
mod world;

use etherslot_session::Mode;
use explore::{Report, explore};
use scope::{Budget, Epochs, Prelude, Sabotage, Scope};

/// Nothing happens but deliveries.
const NOTHING: Budget = Budget { timers: 0, sleeps: 0, restarts: [0; 2], puts: [0; 2], holds: 0, replays: 0 };

/// From the first Hello on.
const GREETING: Scope = Scope {
    epochs: Epochs::Apart,
    window: Some(1),
    mode: Mode::Selective,
    prelude: Prelude::Fresh,
    budget: Budget { timers: 3, restarts: [1, 1], puts: [1, 1], replays: 1, ..NOTHING },
    is_coarse: false,
    sabotage: Sabotage::None,
    depth: 6,
};

/// With all frames of an earlier session in the hands of the adversary.
const SECOND_LIFE: Scope = Scope {
    epochs: Epochs::Crossed,
    prelude: Prelude::Restarted(0),
    budget: Budget { timers: 3, sleeps: 1, restarts: [1, 1], puts: [1, 1], replays: 2, ..NOTHING },
    depth: 5,
    ..GREETING
};

/// A session with a window of one frame, or two, and an application that stops and goes on.
const CREDIT: Scope = Scope {
    prelude: Prelude::Up,
    budget: Budget { timers: 5, puts: [3, 1], holds: 2, ..NOTHING },
    depth: 6,
    ..GREETING
};

/// A session with the least window it can be set up with, always filled; what is sent together is lost, turned round or
/// repeated together.
const FULL_WINDOWS: Scope = Scope {
    prelude: Prelude::Up,
    window: None,
    is_coarse: true,
    budget: Budget { timers: 5, puts: [2, 1], replays: 1, ..NOTHING },
    depth: 5,
    ..GREETING
};

/// Explores a scope in which nothing may be found wrong.
#[track_caller]
fn holds(scope: &Scope) -> Report {
    let more = std::env::var("ETHERSLOT_MODEL_STEPS").ok().and_then(|steps| steps.parse().ok());
    let scope = Scope { depth: scope.depth + more.unwrap_or(0), ..*scope };
    match explore(&scope) {
        Ok(report) => {
            let Scope { epochs, prelude, mode, window, .. } = scope;
            println!("{prelude:?}, epochs {epochs:?}, {mode:?}, window {window:?}: {report:?}");
            assert_eq!(report.steps, scope.depth, "the scope runs dry before its bound: {report:?}");
            report
        }
        Err(found) => panic!("{} after {:?}", found.fault, found.way),
    }
}

/// Explores a scope in which something is wrong on purpose.
#[track_caller]
fn finds(scope: &Scope, fault: &str) {
    match explore(scope) {
        Ok(report) => panic!("nothing found: {report:?}"),
        Err(found) => assert!(found.fault.contains(fault), "{} after {:?}", found.fault, found.way),
    }
}

#[test]
fn a_handshake_under_any_loss_reordering_replay_and_restart_makes_one_session_of_two_lives() {
    for epochs in [Epochs::Apart, Epochs::Same, Epochs::Crossed] {
        let seen = holds(&Scope { epochs, ..GREETING }).seen;
        assert!(seen.delivered > 0 && seen.lives > 2 && seen.retransmissions > 0, "{seen:?}");
    }
}

#[test]
fn a_node_that_greets_anew_is_up_with_the_session_that_answers_it() {
    let budget = Budget { timers: 2, replays: 1, ..NOTHING };
    let seen = holds(&Scope { budget, depth: 8, ..GREETING }).seen;
    assert!(seen.for_one_life > 1 && seen.dropped_epoch > 0, "{seen:?}");
}

#[test]
fn nothing_of_an_earlier_epoch_is_delivered_while_the_next_session_comes_up() {
    for (restarted, epochs) in [(0, Epochs::Crossed), (1, Epochs::Same)] {
        let seen = holds(&Scope { epochs, prelude: Prelude::Restarted(restarted), ..SECOND_LIFE }).seen;
        assert!(seen.delivered > 3 && seen.lives > 3 && seen.refused > 0, "{seen:?}");
    }
}

#[test]
fn nothing_of_an_earlier_epoch_is_delivered_to_the_session_after_it() {
    for (restarted, epochs) in [(0, Epochs::Same), (1, Epochs::Crossed)] {
        let prelude = Prelude::UpAgain(restarted);
        let seen = holds(&Scope { epochs, prelude, depth: 4, ..SECOND_LIFE }).seen;
        assert!(seen.delivered > 4 && seen.lives > 4 && seen.refused > 0, "{seen:?}");
    }
}

#[test]
fn no_lost_acknowledgement_and_no_withheld_credit_is_a_deadlock() {
    for mode in [Mode::Selective, Mode::Classic] {
        for window in [1, 2] {
            let seen = holds(&Scope { mode, window: Some(window), ..CREDIT }).seen;
            assert!(seen.delivered > 1 && seen.asked > 3 && seen.retransmissions > 3, "{seen:?}");
        }
    }
}

#[test]
fn full_windows_that_are_lost_turned_round_or_repeated_come_through_once_and_in_order() {
    for mode in [Mode::Selective, Mode::Classic] {
        let seen = holds(&Scope { mode, ..FULL_WINDOWS }).seen;
        assert!(seen.delivered > 10 && seen.dropped_replay > 0 && seen.retransmissions > 0, "{seen:?}");
    }
}

#[test]
fn a_confirmation_of_an_earlier_life_that_comes_late_does_not_end_the_session_of_the_next() {
    holds(&Scope { budget: Budget { restarts: [1, 0], ..NOTHING }, depth: 7, ..GREETING });
}

#[test]
fn frames_taken_whatever_their_epoch_are_found() {
    let sabotage = Sabotage::IgnoresEpochs;
    finds(&Scope { sabotage, prelude: Prelude::UpAgain(0), ..SECOND_LIFE }, "is of another life");
}

#[test]
fn a_receiver_that_gives_no_credit_is_found() {
    finds(&Scope { sabotage: Sabotage::GivesNoCredit, ..CREDIT }, "no rest");
}

#[test]
fn credit_that_is_lost_with_one_frame_is_found() {
    finds(&Scope { sabotage: Sabotage::GivesCreditOnce, ..CREDIT }, "no rest");
}

#[test]
fn a_sender_that_does_not_ask_for_credit_is_found() {
    finds(&Scope { sabotage: Sabotage::NeverAsks, ..CREDIT }, "did not survive");
}

#[test]
fn a_frame_that_never_arrives_is_found() {
    finds(&Scope { sabotage: Sabotage::LosesFirst, ..CREDIT }, "did not survive");
}

#[test]
fn confirmations_that_are_taken_without_a_half_open_session_are_found() {
    let sabotage = Sabotage::TrustsConfirmations;
    finds(&Scope { sabotage, prelude: Prelude::UpAgain(0), ..SECOND_LIFE }, "begins a second session");
}

/// That no epoch is drawn twice is what keeps earlier lives out (docs/wire.md, section 4).
#[test]
fn an_epoch_that_is_drawn_twice_by_either_node_is_found() {
    for at in 0..2 {
        let scope = Scope { epochs: Epochs::Reused(at), prelude: Prelude::Restarted(at), ..SECOND_LIFE };
        finds(&scope, "");
    }
}
