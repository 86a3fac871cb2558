//! Recovery, by several at once.

use std::time::Duration;

use posthaste_elastic::two_phase::{
    Coordinator, Execution, Failure, Hindrance, State, Step, Transaction,
};

use super::{balances, coordinator, opened, state};

const AT_ONCE: Duration = Duration::ZERO;

/// Runs a transfer until this step is made, and leaves it there.
async fn left_behind(coordinator: &Coordinator, transfer: &Transaction, last: Step) {
    let mut execution = Execution::create(2, 1);
    loop {
        let step = execution.step();
        coordinator.step(transfer, &mut execution).await;
        if step == last {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_recover_what_others_left_behind_and_none_hides_another() {
    let Some(coordinator) = coordinator("recovered").await else {
        return;
    };
    opened(&coordinator, &[("a", 1000), ("b", 0)]).await;
    let last = [Step::Begin, Step::Hold, Step::Commit, Step::Settle];
    let count = 120;
    for at in 0..count {
        let transfer = Transaction::transfer(&format!("t{at}"), "a", "b", 1).unwrap();
        match at % 5 {
            4 => coordinator.create(&transfer).await.unwrap(),
            at => left_behind(&coordinator, &transfer, last[at]).await,
        }
    }
    // The first of all, by its time: it cannot be ended while its document is away.
    let client = coordinator.client();
    opened(&coordinator, &[("gone", 5)]).await;
    let lost = Transaction::transfer("lost", "gone", "b", 5).unwrap();
    left_behind(&coordinator, &lost, Step::Commit).await;
    let gone = coordinator.document("gone").await.unwrap().unwrap();
    let documents = "recovered-documents";
    client
        .write(&posthaste_elastic::Operation::delete(documents, "gone"))
        .await
        .unwrap();
    client.refresh("recovered-transactions").await.unwrap();

    let (one, other) = tokio::join!(coordinator.recover(AT_ONCE), coordinator.recover(AT_ONCE));
    let (one, other) = (one.unwrap(), other.unwrap());
    println!("{one:?} {other:?}");
    let open = one.open.iter().chain(&other.open);
    for (id, failure) in open {
        assert_eq!(id, "lost", "{failure}");
        assert!(failure.may_have_moved());
    }
    for at in 0..count {
        let ended = state(&coordinator, &format!("t{at}")).await;
        assert_eq!(ended, Some(State::Finished), "t{at}");
    }
    assert_eq!(state(&coordinator, "lost").await, Some(State::Committed));
    client.refresh("recovered-transactions").await.unwrap();
    let stuck = coordinator.stuck(Duration::ZERO).await.unwrap();
    let names: Vec<_> = stuck.iter().map(|stuck| stuck.id.as_str()).collect();
    assert_eq!(names, ["lost"]);
    let record = stuck[0].record.as_ref().unwrap();
    assert!(record.attempts >= Some(1), "{record:?}");
    assert_eq!(stuck[0].hindrances, [Hindrance::Missing("gone".into())]);
    let soon = coordinator.recover(AT_ONCE).await.unwrap();
    assert_eq!((soon.finished, soon.open.len()), (0, 0), "it was put off");

    // Somebody brings the document back as it was.
    let back = posthaste_elastic::Operation::index(documents, "gone", &gone).unwrap();
    client.write(&back).await.unwrap();
    coordinator.resume("lost").await.unwrap();
    let left = balances(&coordinator, &["a", "b", "gone"]).await;
    assert_eq!(
        left.into_values().collect::<Vec<_>>(),
        [1000 - count as i64, count as i64 + 5, 0]
    );
    assert!(matches!(
        coordinator.roll_back("lost").await,
        Err(Failure::Committed)
    ));
}
