use super::*;
use crate::Presence;
use etherslot_wire::discovery::{Order, Progress, Reason, Step};

const MS: u64 = 1_000_000;
const A: NodeId = NodeId([0xA; 16]);
const B: NodeId = NodeId([0xB; 16]);
const BOX: NodeId = NodeId([1; 16]);

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn group(number: u16) -> Option<Group> {
    Group::new(number)
}

/// `disk0` is in no group, `disk1` in group 7.
fn leases() -> Leases {
    let config = LeaseConfig { hold_ns: 1000 * MS, recall_ns: 5000 * MS, ..LeaseConfig::default() };
    let device = |text, group| DeviceConfig { name: name(text), group };
    Leases::new(config, [device("disk0", None), device("disk1", group(7))])
}

fn key(number: u64) -> Key {
    Key { asker: BOX, life: 1, number }
}

fn order(device: &str, change: Change) -> Order {
    Order { number: 1, to: BOX, life: 0, device: name(device), change, dry_run: false, force: false }
}

#[expect(clippy::unnecessary_wraps, reason = "what an order asks")]
fn all_there(_: NodeId) -> Option<Presence> {
    Some(Presence::Up)
}

fn told(leases: &Leases, now_ns: u64, number: u64) -> (Progress, Step, Reason) {
    let outcome = leases.outcome(now_ns, key(number)).unwrap();
    (outcome.progress, outcome.step, outcome.reason)
}

const DONE: (Progress, Step, Reason) = (Progress::Done, Step::None, Reason::None);

#[test]
fn a_device_is_for_the_hosts_of_its_group_one_at_a_time_and_every_lease_has_a_new_epoch() {
    let mut leases = leases();
    assert_eq!(leases.admit(0, A, None, &name("disk9")), Err(Denied::Unknown));
    assert_eq!(leases.admit(0, A, group(8), &name("disk1")), Err(Denied::NotAssigned));
    assert_eq!(leases.admit(0, A, None, &name("disk1")), Err(Denied::NotAssigned));
    assert_eq!(leases.admit(0, A, group(7), &name("disk1")), Ok(1));
    assert_eq!(leases.admit(0, B, group(7), &name("disk1")), Err(Denied::Busy));
    assert_eq!(leases.admit(0, A, group(7), &name("disk1")), Err(Denied::Busy), "not twice either");
    assert_eq!(leases.admit(0, B, group(9), &name("disk0")), Ok(1), "without a group it is anybody's");
    leases.released(0, 1);
    assert_eq!(leases.admit(0, B, group(7), &name("disk1")), Ok(2));
}

#[test]
fn a_device_is_kept_for_an_owner_out_of_reach_and_then_it_is_free() {
    let mut leases = leases();
    leases.admit(0, A, None, &name("disk0")).unwrap();
    leases.owner_lost(10 * MS, 0);
    assert_eq!(leases.admit(20 * MS, B, None, &name("disk0")), Err(Denied::Busy));
    assert_eq!(leases.deadline_ns(), Some(1010 * MS));
    let mut other = leases.clone();
    assert_eq!(other.admit(20 * MS, A, None, &name("disk0")), Ok(2));
    assert!(!leases.poll(1009 * MS) && leases.poll(1010 * MS));
    assert_eq!(leases.admit(1010 * MS, B, None, &name("disk0")), Ok(2));
}

#[test]
fn a_move_recalls_resets_offers_and_is_done_when_the_new_owner_has_it() {
    let mut leases = leases();
    leases.admit(0, A, None, &name("disk0")).unwrap();
    let wanted = order("disk0", Change::Host(B));
    assert_eq!(leases.order(0, key(1), &wanted, &all_there).step, Step::Recall);
    let kind = RecallKind::Recall { window_ns: 5000 * MS };
    assert_eq!(leases.action(), Some(Action { device: 0, host: A, kind }));
    assert_eq!(leases.action(), None);
    leases.order(MS, key(1), &wanted, &all_there);
    assert_eq!(leases.action(), None, "asked again is not begun again");
    assert_eq!(leases.admit(MS, B, None, &name("disk0")), Err(Denied::Busy), "not before it is back");
    let busy = leases.order(MS, key(2), &wanted, &all_there);
    assert_eq!((busy.progress, busy.reason), (Progress::Refused, Reason::Busy));
    leases.released(2 * MS, 0);
    assert_eq!(told(&leases, 2 * MS, 1), (Progress::Working, Step::Offer, Reason::None));
    assert_eq!(leases.admit(2 * MS, A, None, &name("disk0")), Err(Denied::NotAssigned));
    assert_eq!(leases.admit(3 * MS, B, None, &name("disk0")), Ok(2));
    assert_eq!(told(&leases, 9 * MS, 1), DONE);
    let outcome = leases.outcome(9 * MS, key(1)).unwrap();
    assert_eq!((outcome.from, outcome.to, outcome.epoch, outcome.elapsed_ms), (Some(A), Some(B), 2, 3));
}

#[test]
fn an_owner_that_does_not_give_back_keeps_the_device_unless_it_is_forced() {
    for force in [false, true] {
        let mut leases = leases();
        leases.admit(0, A, None, &name("disk0")).unwrap();
        leases.order(0, key(1), &Order { force, ..order("disk0", Change::Host(B)) }, &all_there);
        leases.action();
        assert!(!leases.poll(4999 * MS) && leases.poll(5000 * MS));
        if force {
            assert_eq!(leases.action().unwrap().kind, RecallKind::Fence);
            assert!(!leases.poll(9000 * MS), "nobody else gets it before that is done");
            leases.released(9000 * MS, 0);
            assert_eq!(leases.admit(9000 * MS, B, None, &name("disk0")), Ok(2));
            assert_eq!(told(&leases, 0, 1), DONE);
        } else {
            assert_eq!(leases.action().unwrap().kind, RecallKind::Keep);
            assert_eq!(told(&leases, 0, 1), (Progress::RolledBack, Step::None, Reason::NotReleased));
            assert_eq!(leases.iter().next().unwrap().owner, Some(A));
        }
    }
}

#[test]
fn a_device_that_its_new_owner_does_not_take_goes_back_to_the_old_one_and_nobody_else() {
    let mut leases = leases();
    leases.admit(0, A, None, &name("disk0")).unwrap();
    leases.order(0, key(1), &order("disk0", Change::Host(B)), &all_there);
    leases.released(MS, 0);
    assert!(leases.poll(5001 * MS));
    assert_eq!(told(&leases, 0, 1), (Progress::RolledBack, Step::None, Reason::NotTaken));
    assert_eq!(leases.admit(5001 * MS, B, None, &name("disk0")), Err(Denied::Busy));
    assert_eq!(leases.admit(5001 * MS, A, None, &name("disk0")), Ok(2));
}

#[test]
fn an_order_that_cannot_be_done_changes_nothing_and_a_question_neither() {
    let mut leases = leases();
    leases.admit(0, A, None, &name("disk0")).unwrap();
    let revision = leases.revision();
    let reason = |leases: &mut Leases, device, change, presence: Option<Presence>| {
        leases.order(0, key(1), &order(device, change), &|_| presence).reason
    };
    let to_b = Change::Host(B);
    assert_eq!(reason(&mut leases, "disk9", to_b, Some(Presence::Up)), Reason::UnknownDevice);
    assert_eq!(reason(&mut leases, "disk0", to_b, None), Reason::UnknownHost);
    assert_eq!(reason(&mut leases, "disk0", to_b, Some(Presence::Down)), Reason::SilentHost);
    let question = Order { dry_run: true, ..order("disk0", to_b) };
    let outcome = leases.order(0, key(1), &question, &all_there);
    assert_eq!((outcome.progress, outcome.from, outcome.to), (Progress::Done, Some(A), Some(B)));
    assert_eq!(outcome.step, Step::Recall);
    let mut first_step = |device, change| {
        let question = Order { dry_run: true, ..order(device, change) };
        leases.order(0, key(1), &question, &all_there).step
    };
    assert_eq!(first_step("disk0", Change::Host(A)), Step::None, "it stays");
    assert_eq!(first_step("disk0", Change::Nobody), Step::Recall);
    assert_eq!(first_step("disk1", to_b), Step::Offer, "nobody has to be asked");
    assert_eq!((leases.revision(), leases.action()), (revision, None));
}

#[test]
fn a_released_device_is_nobodys_until_it_is_assigned_again() {
    let mut leases = leases();
    leases.admit(0, A, None, &name("disk0")).unwrap();
    leases.order(0, key(1), &order("disk0", Change::Nobody), &all_there);
    leases.released(MS, 0);
    assert_eq!(leases.action(), None, "what is back need not be recalled");
    assert_eq!(told(&leases, 0, 1), DONE);
    assert_eq!(leases.admit(MS, A, None, &name("disk0")), Err(Denied::NotAssigned));
    leases.order(MS, key(2), &order("disk0", Change::Group(Group::new(3).unwrap())), &all_there);
    assert_eq!(told(&leases, 0, 2), DONE);
    assert_eq!(leases.admit(MS, A, None, &name("disk0")), Err(Denied::NotAssigned));
    assert_eq!(leases.admit(MS, A, group(3), &name("disk0")), Ok(2));
    leases.order(MS, key(3), &order("disk0", Change::Group(Group::new(3).unwrap())), &all_there);
    assert_eq!((told(&leases, 0, 3), leases.action()), (DONE, None), "who may have it keeps it");
}

#[test]
fn a_device_is_anybodys_again_by_an_order_and_who_has_it_keeps_it() {
    let to_anybody = |leases: &mut Leases, now_ns, number, device, dry_run| {
        let order = Order { dry_run, ..order(device, Change::Anybody) };
        leases.order(now_ns, key(number), &order, &all_there)
    };
    let mut leases = leases();
    leases.order(0, key(1), &order("disk0", Change::Nobody), &all_there);
    assert_eq!(to_anybody(&mut leases, 0, 2, "disk0", true).step, Step::Offer, "a question changes nothing");
    assert_eq!(leases.admit(0, A, None, &name("disk0")), Err(Denied::NotAssigned));
    to_anybody(&mut leases, 0, 3, "disk0", false);
    assert_eq!(told(&leases, 0, 3), DONE);
    assert_eq!(leases.admit(0, A, None, &name("disk0")), Ok(1), "whoever asks first");

    leases.admit(0, A, group(7), &name("disk1")).unwrap();
    assert_eq!(to_anybody(&mut leases, 0, 4, "disk1", true).step, Step::None);
    let outcome = to_anybody(&mut leases, 0, 5, "disk1", false);
    assert_eq!((outcome.progress, outcome.from, leases.action()), (Progress::Done, Some(A), None));
    let lease = leases.iter().nth(1).unwrap();
    assert_eq!((lease.owner, lease.assigned, lease.group), (Some(A), Assigned::Group, None));
    leases.owner_lost(MS, 1);
    to_anybody(&mut leases, 2 * MS, 6, "disk1", false);
    assert_eq!(told(&leases, 2 * MS, 6), DONE);
    assert_eq!(leases.admit(3 * MS, B, None, &name("disk1")), Err(Denied::Busy), "it is kept on");

    let mut again = super::tests::leases();
    again.restore(5, leases.image());
    leases.poll(2000 * MS);
    assert_eq!(leases.admit(2000 * MS, B, None, &name("disk1")), Ok(2));
    again.poll(2000 * MS);
    assert_eq!(again.admit(2000 * MS, B, None, &name("disk1")), Ok(2), "the order outlives the box");
}

#[test]
fn what_is_kept_outlives_the_box() {
    let mut leases = leases();
    leases.admit(0, A, None, &name("disk0")).unwrap();
    leases.order(0, key(1), &order("disk1", Change::Host(B)), &all_there);
    let kept: Vec<Image> = leases.image().collect();
    let mut again = super::tests::leases();
    again.restore(5, kept.iter().copied());
    assert_eq!(again.image().collect::<Vec<_>>(), kept);
    assert_eq!(again.admit(5, B, None, &name("disk0")), Err(Denied::Busy), "it is kept for its owner");
    assert_eq!(again.admit(5, A, None, &name("disk0")), Ok(2), "and the epoch goes on");
    assert_eq!(again.admit(5, A, group(7), &name("disk1")), Err(Denied::NotAssigned));
    assert_eq!(again.admit(5, B, None, &name("disk1")), Ok(1), "the order stands");
}

#[test]
fn an_owner_that_dies_while_it_is_asked_has_given_back() {
    let mut leases = leases();
    leases.admit(0, A, None, &name("disk0")).unwrap();
    leases.order(0, key(1), &order("disk0", Change::Host(B)), &all_there);
    leases.owner_lost(MS, 0);
    assert_eq!(leases.admit(MS, A, None, &name("disk0")), Err(Denied::NotAssigned));
    assert_eq!(leases.admit(MS, B, None, &name("disk0")), Ok(2));
}

#[test]
fn a_device_with_owners_goes_to_nobody_else_whatever_is_ordered() {
    let mut leases = leases();
    leases.restrict(&name("disk0"), vec![Owner([0xA; 12])]);
    assert_eq!(leases.admit(0, B, None, &name("disk0")), Err(Denied::NotAssigned));
    for dry_run in [true, false] {
        let order = Order { dry_run, force: true, ..order("disk0", Change::Host(B)) };
        let outcome = leases.order(0, key(1), &order, &all_there);
        assert_eq!((outcome.progress, outcome.reason), (Progress::Refused, Reason::NotAnOwner));
    }
    let revision = leases.revision();
    assert_eq!(leases.admit(0, A, None, &name("disk0")), Ok(1));
    leases.order(0, key(2), &order("disk0", Change::Group(Group::new(3).unwrap())), &all_there);
    leases.released(MS, 0);
    assert_eq!(leases.admit(MS, B, group(3), &name("disk0")), Err(Denied::NotAssigned), "nor by its group");
    assert_eq!(leases.admit(MS, A, group(3), &name("disk0")), Ok(2));
    assert!(leases.revision() > revision);
    leases.order(0, key(3), &order("disk0", Change::Anybody), &all_there);
    assert_eq!(told(&leases, 0, 3), DONE);
    leases.released(MS, 0);
    assert_eq!(
        leases.admit(MS, B, None, &name("disk0")),
        Err(Denied::NotAssigned),
        "nor when it is anybody's"
    );
}
