//! A repeated call for a transaction that an earlier call left open: it reports that nothing moved
//! only if that is certain.

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

/// Makes a first call that records the transfer, gets no answer, and reports that its outcome is
/// unknown.
async fn begun(fake: &FakeElastic, coordinator: &Coordinator) {
    opened(coordinator, &[("a", 10), ("b", 0)]).await;
    fake.faults(AWAY);
    fake.plan([None, Some(Fault::LostAfter)]);
    let result = coordinator.run(&transfer()).await;
    assert!(matches!(result, Err(Failure::Ambiguous(_))), "{result:?}");
}

/// Checks that the later call does not exclude the earlier one, whose transfer is then executed.
async fn happens_after(fake: &FakeElastic, coordinator: &Coordinator, result: &Failure) {
    assert!(result.may_have_moved(), "{result:?}");
    assert!(!result.may_have_moved_by_this_call(), "{result:?}");
    fake.settle();
    coordinator.run(&transfer()).await.unwrap();
    let left = balances(coordinator, &["a", "b"]).await;
    assert_eq!((left["a"], left["b"]), (3, 7));
}

#[tokio::test]
async fn an_unreachable_second_run_does_not_report_that_nothing_moved() {
    let (fake, coordinator) = fake(1, Marks::Compared).await;
    begun(&fake, &coordinator).await;
    let result = coordinator.run(&transfer()).await.unwrap_err();
    assert!(matches!(result, Failure::Unavailable(_)), "{result:?}");
    happens_after(&fake, &coordinator, &result).await;
}

#[tokio::test]
async fn a_second_run_with_a_missing_document_does_not_report_that_nothing_moved() {
    let (fake, coordinator) = fake(1, Marks::Compared).await;
    begun(&fake, &coordinator).await;
    fake.faults(Faults { stale: 1.0, ..NONE });
    let result = coordinator.run(&transfer()).await.unwrap_err();
    assert!(matches!(result, Failure::Missing(_)), "{result:?}");
    happens_after(&fake, &coordinator, &result).await;
}

#[tokio::test]
async fn aborting_an_unknown_transaction_does_not_report_that_nothing_moved() {
    let mut later = 0;
    for seed in 0..8 {
        let (fake, coordinator) = fake(seed, Marks::Compared).await;
        opened(&coordinator, &[("a", 10), ("b", 0)]).await;
        fake.plan([None, Some(Fault::Late)]);
        let result = coordinator.create_transaction(&transfer()).await;
        assert!(matches!(result, Err(Failure::Ambiguous(_))), "{result:?}");
        // With some seeds the creation arrives before the check.
        if let Err(result) = coordinator.roll_back("t").await {
            assert!(matches!(result, Failure::Absent(_)), "{result:?}");
            happens_after(&fake, &coordinator, &result).await;
            later += 1;
        }
    }
    assert!(later > 0);
}

#[tokio::test]
async fn aborting_an_uncreated_transaction_also_refuses_late_requests() {
    let (fake, coordinator) = fake(1, Marks::Compared).await;
    opened(&coordinator, &[("a", 10), ("b", 0)]).await;
    fake.plan([None, Some(Fault::Late)]);
    let result = coordinator.create_transaction(&transfer()).await;
    assert!(matches!(result, Err(Failure::Ambiguous(_))), "{result:?}");
    coordinator.create_transaction(&transfer()).await.unwrap();
    coordinator.roll_back("t").await.unwrap();
    fake.settle();
    let result = coordinator.run(&transfer()).await.unwrap_err();
    assert!(matches!(result, Failure::RolledBack(_)), "{result:?}");
    assert!(!result.may_have_moved());
    let left = balances(&coordinator, &["a", "b"]).await;
    assert_eq!((left["a"], left["b"]), (10, 0));
}

#[tokio::test]
async fn an_unreachable_server_never_reports_that_a_committed_transaction_failed() {
    let (fake, coordinator) = fake(1, Marks::Compared).await;
    opened(&coordinator, &[("a", 10), ("b", 0)]).await;
    let (transfer, mut execution) = (transfer(), Execution::for_new(2, 1));
    while execution.step() != Step::Settle {
        coordinator.run_step(&transfer, &mut execution).await;
    }
    assert_eq!(state(&coordinator, "t").await, Some(State::Committed));
    for gives_up in [true, false] {
        fake.faults(AWAY);
        let result = match gives_up {
            true => coordinator.roll_back("t").await,
            false => coordinator.resume("t").await,
        };
        let result = result.unwrap_err();
        assert!(matches!(result, Failure::Unavailable(_)), "{result:?}");
        happens_after(&fake, &coordinator, &result).await;
    }
}
