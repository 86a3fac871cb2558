//! Who asks once more about a transaction that an earlier call has left behind: that nothing can
//! have moved is said only where it is so.

use posthaste_elastic::two_phase::{Coordinator, Execution, Failure, State, Step, Transaction};
use posthaste_testkit::elastic::{FakeElastic, Fault, Faults};

use super::fake::{Marks, fake};
use super::{balances, opened, state};

const AWAY: Faults = Faults {
    lost_before: 1.0,
    ..NONE
};
const NONE: Faults = Faults {
    lost_before: 0.0,
    lost_after: 0.0,
    late: 0.0,
    too_many: 0.0,
    unavailable_before: 0.0,
    unavailable_after: 0.0,
    partial: 0.0,
    lies: 0.0,
    stale: 0.0,
    dirty: 0.0,
    read_only: 0.0,
};

fn transfer() -> Transaction {
    Transaction::transfer("t", "a", "b", 7).unwrap()
}

/// A first call has written the transfer down, has heard nothing, and says that it is open.
async fn begun(fake: &FakeElastic, coordinator: &Coordinator) {
    opened(coordinator, &[("a", 10), ("b", 0)]).await;
    fake.faults(AWAY);
    fake.plan([None, Some(Fault::LostAfter)]);
    let told = coordinator.run(&transfer()).await;
    assert!(matches!(told, Err(Failure::Ambiguous(_))), "{told:?}");
}

/// What the later call was told is no word about the earlier one, whose transfer happens.
async fn happens_after(fake: &FakeElastic, coordinator: &Coordinator, told: &Failure) {
    assert!(told.may_have_moved(), "{told:?}");
    assert!(!told.may_have_moved_by_this_call(), "{told:?}");
    fake.settle();
    coordinator.run(&transfer()).await.unwrap();
    let left = balances(coordinator, &["a", "b"]).await;
    assert_eq!((left["a"], left["b"]), (3, 7));
}

#[tokio::test]
async fn a_second_run_that_reaches_nobody_does_not_say_that_nothing_moved() {
    let (fake, coordinator) = fake(1, Marks::Compared).await;
    begun(&fake, &coordinator).await;
    let told = coordinator.run(&transfer()).await.unwrap_err();
    assert!(matches!(told, Failure::Unavailable(_)), "{told:?}");
    happens_after(&fake, &coordinator, &told).await;
}

#[tokio::test]
async fn a_second_run_that_sees_a_document_missing_does_not_say_that_nothing_moved() {
    let (fake, coordinator) = fake(1, Marks::Compared).await;
    begun(&fake, &coordinator).await;
    fake.faults(Faults { stale: 1.0, ..NONE });
    let told = coordinator.run(&transfer()).await.unwrap_err();
    assert!(matches!(told, Failure::Missing(_)), "{told:?}");
    happens_after(&fake, &coordinator, &told).await;
}

#[tokio::test]
async fn who_gives_up_what_is_not_there_yet_is_not_told_that_nothing_moves() {
    let mut later = 0;
    for seed in 0..8 {
        let (fake, coordinator) = fake(seed, Marks::Compared).await;
        opened(&coordinator, &[("a", 10), ("b", 0)]).await;
        fake.plan([None, Some(Fault::Late)]);
        let told = coordinator.create(&transfer()).await;
        assert!(matches!(told, Err(Failure::Ambiguous(_))), "{told:?}");
        // By some seeds the creation comes before the look.
        if let Err(told) = coordinator.roll_back("t").await {
            assert!(matches!(told, Failure::Absent(_)), "{told:?}");
            happens_after(&fake, &coordinator, &told).await;
            later += 1;
        }
    }
    assert!(later > 0);
}

#[tokio::test]
async fn who_creates_it_first_gives_up_also_what_is_late() {
    let (fake, coordinator) = fake(1, Marks::Compared).await;
    opened(&coordinator, &[("a", 10), ("b", 0)]).await;
    fake.plan([None, Some(Fault::Late)]);
    let told = coordinator.create(&transfer()).await;
    assert!(matches!(told, Err(Failure::Ambiguous(_))), "{told:?}");
    coordinator.create(&transfer()).await.unwrap();
    coordinator.roll_back("t").await.unwrap();
    fake.settle();
    let told = coordinator.run(&transfer()).await.unwrap_err();
    assert!(matches!(told, Failure::RolledBack(_)), "{told:?}");
    assert!(!told.may_have_moved());
    let left = balances(&coordinator, &["a", "b"]).await;
    assert_eq!((left["a"], left["b"]), (10, 0));
}

#[tokio::test]
async fn who_asks_about_a_committed_one_and_reaches_nobody_is_not_told_that_nothing_moved() {
    let (fake, coordinator) = fake(1, Marks::Compared).await;
    opened(&coordinator, &[("a", 10), ("b", 0)]).await;
    let (transfer, mut execution) = (transfer(), Execution::create(2, 1));
    while execution.step() != Step::Settle {
        coordinator.step(&transfer, &mut execution).await;
    }
    assert_eq!(state(&coordinator, "t").await, Some(State::Committed));
    for gives_up in [true, false] {
        fake.faults(AWAY);
        let told = match gives_up {
            true => coordinator.roll_back("t").await,
            false => coordinator.resume("t").await,
        };
        let told = told.unwrap_err();
        assert!(matches!(told, Failure::Unavailable(_)), "{told:?}");
        happens_after(&fake, &coordinator, &told).await;
    }
}
