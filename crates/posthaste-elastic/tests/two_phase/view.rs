//! Concurrent readers see each transaction wholly or not at all.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::{join, join_all};
use posthaste_elastic::two_phase::{
    DocumentView, Effect, Execution, Failure, State, Step, Transaction,
};
use posthaste_testkit::elastic::Faults;
use posthaste_testkit::ran;
use tokio::task::JoinSet;

use super::fake::{Marks, fake};
use super::schedules::{self, BALANCE, DOCUMENTS};
use super::{coordinator, opened};
use crate::support::asked;

/// The number of schedules by default and in longer runs.
const SCHEDULES: [u64; 2] = [100, 300];

/// Reads all documents together repeatedly while executors change them. Returns the numbers of
/// successful and of failed reads.
async fn play(seed: u64) -> (u64, u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let (fake, coordinator) = fake(random.u64(..), Marks::Compared).await;
    for document in DOCUMENTS {
        coordinator.open(document, BALANCE).await.unwrap();
    }
    let transactions = schedules::some_transactions(&mut random);
    let plans = schedules::some_plans(&mut random, &transactions);
    // A reader cannot detect a lagging copy or a primary that is cut off.
    fake.faults(Faults {
        stale: 0.0,
        dirty: 0.0,
        ..Faults::without_lies([0.0, 0.01, 0.05][random.usize(..3)])
    });
    let coordinator = &coordinator;
    let running = plans.into_iter().map(|plan| {
        let transaction = &transactions[plan.transaction];
        schedules::execute(coordinator, transaction, plan)
    });
    let is_over = AtomicBool::new(false);
    let writers = async {
        join_all(running).await;
        is_over.store(true, Ordering::Relaxed);
    };
    let reader = async {
        let mut result = (0, 0);
        while !is_over.load(Ordering::Relaxed) {
            match coordinator.views(&DOCUMENTS).await {
                Ok(views) => {
                    judge(&views);
                    result.0 += 1;
                }
                Err(Failure::Unavailable(_) | Failure::Moving) => result.1 += 1,
                Err(other) => panic!("{other}"),
            }
            // An audit must not report transactions that are merely in progress.
            if random.u8(..16) == 0
                && let Ok(audit) = coordinator.audit().await
            {
                assert!(audit.agrees(), "{audit:?}");
            }
            tokio::task::yield_now().await;
        }
        result
    };
    let result = join(writers, reader).await.1;
    // A read after the reported end must see it.
    fake.faults(Faults::default());
    fake.settle();
    let views = coordinator.views(&DOCUMENTS).await.unwrap();
    judge(&views);
    let mut expected = BTreeMap::from(DOCUMENTS.map(|document| (document, BALANCE)));
    for transaction in &transactions {
        let record = coordinator.get(transaction.id().as_str()).await.unwrap();
        let happened = record.is_some_and(|record| {
            matches!(record.transaction_state, State::Committed | State::Finished)
        });
        for effect in transaction.effects().iter().filter(|_| happened) {
            *expected.get_mut(effect.document.as_str()).unwrap() += effect.add;
        }
    }
    for (document, view) in DOCUMENTS.into_iter().zip(views) {
        assert_eq!(view.unwrap().total, expected[document], "{document}");
    }
    result
}

/// The transactions of these schedules move amounts between the documents, and set d0 and d1
/// together.
fn judge(views: &[Option<DocumentView>]) {
    let views: Vec<_> = views.iter().flatten().collect();
    let sum: i64 = views.iter().map(|view| view.total).sum();
    assert_eq!(sum, BALANCE * DOCUMENTS.len() as i64, "{views:?}");
    assert_eq!(views[0].data, views[1].data);
    for view in views {
        assert!(view.available >= 0 && view.total >= 0);
    }
}

#[test]
fn readers_see_transactions_atomically() {
    let runtime = schedules::runtime();
    let replayed = asked("POSTHASTE_SEED");
    let first = replayed.unwrap_or_else(|| fastrand::u64(..));
    let many = SCHEDULES[usize::from(asked("POSTHASTE_SCHEDULES").is_some())];
    let schedules = replayed.map_or(many, |_| 1);
    let (mut result, mut in_vain) = (0, 0);
    for seed in (0..schedules).map(|at| first.wrapping_add(at)) {
        let played = catch_unwind(AssertUnwindSafe(|| runtime.block_on(play(seed))));
        let Ok((some, none)) = played else {
            panic!("POSTHASTE_SEED={seed} replays it");
        };
        (result, in_vain) = (result + some, in_vain + none);
    }
    println!("{schedules} schedules: {result} readings, {in_vain} in vain");
    assert!(result > schedules, "hardly anything was result");
    ran::count("two-phase-readings", result);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn totals_are_constant_during_transfers_on_a_real_server() {
    const ACCOUNTS: [&str; 4] = ["a", "b", "c", "d"];
    let Some(coordinator) = coordinator("view").await else {
        return;
    };
    let coordinator = Arc::new(coordinator);
    opened(&coordinator, &ACCOUNTS.map(|account| (account, 100))).await;
    let mut running = JoinSet::new();
    for who in 0..16 {
        let coordinator = Arc::clone(&coordinator);
        running.spawn(async move {
            for at in 0..12 {
                let (from, to) = (ACCOUNTS[(who + at) % 4], ACCOUNTS[(who + 2 * at + 1) % 4]);
                let Ok(transfer) = Transaction::transfer(&format!("t{who}-{at}"), from, to, 3)
                else {
                    continue;
                };
                coordinator.run(&transfer).await.unwrap();
            }
        });
    }
    let (mut result, mut in_vain, mut seen_between) = (0, 0, 0);
    while !running.is_empty() {
        match coordinator.views(&ACCOUNTS).await {
            Ok(views) => {
                let views: Vec<_> = views.into_iter().flatten().collect();
                let sum: i64 = views.iter().map(|view| view.total).sum();
                assert_eq!(sum, 400, "{views:?}");
                seen_between += u64::from(views.iter().any(|one| one.available < one.total));
                result += 1;
            }
            Err(Failure::Moving) => in_vain += 1,
            Err(other) => panic!("{other}"),
        }
        let one = coordinator.view("a").await.unwrap().unwrap();
        assert!(one.available >= 0 && one.total >= 0, "{one:?}");
        while let Some(ended) = running.try_join_next() {
            ended.unwrap();
        }
    }
    println!("{result} readings, {in_vain} in vain; {seen_between} met open transactions");
    assert!(result > 0 && seen_between > 0);
}

/// Reads at each step of a transfer that also sets a field.
#[tokio::test]
async fn transactions_are_visible_from_their_commit() {
    let (_fake, coordinator) = fake(1, Marks::Compared).await;
    opened(&coordinator, &[("a", 10), ("b", 0)]).await;
    let mut to = Effect::add("b", 4);
    to.set.insert("from".to_owned(), "a".into());
    let transfer = Transaction::new("t", vec![Effect::add("a", -4), to]).unwrap();
    let mut execution = Execution::for_new(2, 0);
    loop {
        let step = execution.step();
        coordinator.run_step(&transfer, &mut execution).await;
        let seen = coordinator.views(&["a", "b"]).await.unwrap();
        let seen: Vec<_> = seen.into_iter().flatten().collect();
        let result = (
            seen[0].available,
            seen[0].total,
            seen[1].available,
            seen[1].total,
        );
        let expected = match step {
            Step::ReadMark | Step::Begin => (10, 10, 0, 0),
            Step::Hold => (6, 10, 0, 0),
            Step::Commit => (6, 6, 0, 4),
            _ => (6, 6, 4, 4),
        };
        assert_eq!(result, expected, "after {step:?}");
        let is_set = seen[1].data.contains_key("from");
        assert_eq!(is_set, expected.3 == 4, "after {step:?}");
        assert_eq!(coordinator.view("b").await.unwrap().unwrap(), seen[1]);
        if step == Step::Finish {
            break;
        }
    }
    assert_eq!(coordinator.view("nobody").await.unwrap(), None);
}
