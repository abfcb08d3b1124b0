//! What holds for every order to a box and every outcome, and for any bytes.

use etherslot_wire::NodeId;
use etherslot_wire::control::Name;
use etherslot_wire::discovery::{Change, Group, Order, Outcome, Progress, Reason, Step};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::FileFailurePersistence;

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        any::<[u8; 16]>().prop_filter("a host", |id| *id != [0; 16]).prop_map(|id| Change::Host(NodeId(id))),
        (1..=Group::MAX).prop_map(|number| Change::Group(Group::new(number).unwrap())),
        Just(Change::Nobody),
        Just(Change::Anybody),
    ]
}

fn order() -> impl Strategy<Value = Order> {
    let device = "[a-zä0-9]{1,16}".prop_map(|text| Name::new(&text).unwrap());
    (any::<(u64, [u8; 16], u64, bool, bool)>(), device, change()).prop_map(
        |((number, to, life, dry_run, force), device, change)| Order {
            number,
            to: NodeId(to),
            life,
            device,
            change,
            dry_run,
            force,
        },
    )
}

fn outcome() -> impl Strategy<Value = Outcome> {
    let progress = select(vec![Progress::Working, Progress::Done, Progress::Refused, Progress::RolledBack]);
    let step = select(vec![Step::None, Step::Recall, Step::Offer]);
    let reason = select(vec![Reason::None, Reason::NotReleased, Reason::NotPermitted, Reason::NotAnOwner]);
    let numbers = any::<(u64, u64, u64, u32, [u8; 16], [u8; 16], [u8; 16])>();
    (progress, step, reason, numbers).prop_map(
        |(progress, step, reason, (number, asker_life, epoch, elapsed_ms, asker, from, to))| {
            let some = |id: [u8; 16]| (id != [0; 16]).then_some(NodeId(id));
            Outcome {
                asker: NodeId(asker),
                asker_life,
                number,
                progress,
                step,
                reason,
                elapsed_ms,
                epoch,
                from: some(from),
                to: some(to),
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    })]

    #[test]
    fn an_order_that_is_emitted_parses_to_itself(order in order(), behind in 0..9_usize, cut in any::<Index>()) {
        let mut bytes = [0xFF; Order::BYTES + 8];
        prop_assert_eq!(order.emit(&mut bytes), Some(Order::BYTES));
        prop_assert_eq!(Order::parse(&bytes[..(Order::BYTES + behind).min(bytes.len())]), Some(order));
        prop_assert_eq!(Order::parse(&bytes[..cut.index(Order::BYTES)]), None);
        prop_assert_eq!(order.emit(&mut bytes[..cut.index(Order::BYTES)]), None);
    }

    #[test]
    fn an_outcome_that_is_emitted_parses_to_itself(outcome in outcome(), cut in any::<Index>()) {
        let mut bytes = [0xFF; Outcome::BYTES];
        prop_assert_eq!(outcome.emit(&mut bytes), Some(Outcome::BYTES));
        prop_assert_eq!(Outcome::parse(&bytes), Some(outcome));
        prop_assert_eq!(Outcome::parse(&bytes[..cut.index(Outcome::BYTES)]), None);
    }

    #[test]
    fn any_change_that_is_not_listed_is_refused(order in order(), code: u8) {
        let mut bytes = [0; Order::BYTES];
        order.emit(&mut bytes).unwrap();
        bytes[0] = code;
        prop_assert!(Order::parse(&bytes).is_none() || (1..=4).contains(&code));
    }

    #[test]
    fn any_bytes_are_an_order_and_an_outcome_or_none(bytes in vec(any::<u8>(), 0..100)) {
        if let Some(order) = Order::parse(&bytes) {
            let mut again = [0; Order::BYTES];
            order.emit(&mut again).unwrap();
            prop_assert_eq!(Order::parse(&again), Some(order));
        }
        if let Some(outcome) = Outcome::parse(&bytes) {
            let mut again = [0; Outcome::BYTES];
            outcome.emit(&mut again).unwrap();
            prop_assert_eq!(Outcome::parse(&again), Some(outcome));
        }
    }
}
