//! Random schedules of several executors on the fake, which loses, delays, repeats and forgets
//! requests: at the end, all balances are right. `POSTHASTE_SEED=7` replays one,
//! `POSTHASTE_SCHEDULES=1000000` runs more; `make test-full` runs 10,000.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use futures_util::future::join_all;
use posthaste_elastic::two_phase::{
    Coordinator, Document, Effect, Execution, Progress, Reason, Recovered, State, Transaction,
};
use posthaste_testkit::elastic::{FakeElastic, Faults};
use posthaste_testkit::ran;
use serde_json::{Map, json};
use tokio::runtime::{Builder, Runtime};

use super::fake::{Marks, fake};
use crate::support::asked;

const SCHEDULES: u64 = 250;
/// The number of concurrent threads: most other tests have ended by then.
const THREADS: u64 = 2;
pub(super) const DOCUMENTS: [&str; 4] = ["d0", "d1", "d2", "d3"];
pub(super) const BALANCE: i64 = 5;
/// The most passes of recovery. An undisturbed one needs one pass; of two concurrent ones, each may
/// leave transactions to the other.
const PASSES: usize = 4;

fn is_replay() -> bool {
    static REPLAY: OnceLock<bool> = OnceLock::new();
    *REPLAY.get_or_init(|| asked("POSTHASTE_SEED").is_some())
}

/// The plan of one executor: its transaction, its procedure, and the number of steps after which it
/// stops forever.
pub(super) struct Plan {
    pub(super) transaction: usize,
    pub(super) execution: Execution,
    pub(super) steps: usize,
}

pub(super) fn some_transactions(random: &mut fastrand::Rng) -> Vec<Transaction> {
    (0..random.usize(1..=4))
        .map(|at| {
            let mut documents = DOCUMENTS;
            random.shuffle(&mut documents);
            let name = format!("t{at}");
            match random.u8(..6) {
                0 => {
                    let effects = [-2, 1, 1].into_iter().zip(documents);
                    let effects = effects.map(|(add, document)| Effect::add(document, add));
                    Transaction::new(&name, effects.collect())
                }
                1 => {
                    let by = Map::from_iter([("by".to_owned(), json!(name))]);
                    let effects = ["d0", "d1"].map(|document| Effect::set(document, by.clone()));
                    Transaction::new(&name, effects.to_vec())
                }
                _ => Transaction::transfer(&name, documents[0], documents[1], random.i64(1..=4)),
            }
            .unwrap()
        })
        .collect()
}

pub(super) fn some_plans(random: &mut fastrand::Rng, transactions: &[Transaction]) -> Vec<Plan> {
    let plan = |transaction: usize, kind: u8, steps: usize| {
        let documents = transactions[transaction].effects().len();
        let execution = match kind {
            0 => Execution::for_new(documents, 1),
            1..=2 => Execution::for_existing(documents, 1),
            _ => Execution::for_rollback(documents, Reason::Asked),
        };
        Plan {
            transaction,
            execution,
            steps,
        }
    };
    let creators = (0..transactions.len()).map(|at| plan(at, 0, random.usize(1..40)));
    let mut plans: Vec<_> = creators.collect();
    for _ in 0..random.usize(..5) {
        let kind = random.u8(..4);
        plans.push(plan(
            random.usize(..transactions.len()),
            kind,
            random.usize(1..40),
        ));
    }
    plans
}

/// Runs a plan until its steps are used up, or the transaction has ended. Returns its final state
/// if known.
pub(super) async fn execute(
    coordinator: &Coordinator,
    transaction: &Transaction,
    mut plan: Plan,
) -> Option<State> {
    for _ in 0..plan.steps {
        let step = plan.execution.step();
        let (progress, error) = coordinator.run_step(transaction, &mut plan.execution).await;
        if is_replay() {
            println!("{} {step:?}: {progress:?} {error:?}", transaction.id());
        }
        match progress {
            Progress::Next | Progress::Again | Progress::Absent => {}
            Progress::Ended(state) => return Some(state),
            // A stale copy does not have the document yet.
            Progress::Missing(_) => return None,
            Progress::Different => panic!("nobody does anything else"),
        }
        tokio::task::yield_now().await;
    }
    None
}

fn documents(fake: &FakeElastic) -> BTreeMap<String, Document> {
    let held = fake.documents("documents").into_iter();
    held.map(|(id, held)| (id, serde_json::from_value(held.source.unwrap()).unwrap()))
        .collect()
}

/// Runs the schedule of this seed. Returns how each transaction ended.
async fn play(seed: u64, marks: Marks) -> Vec<Option<State>> {
    let mut random = fastrand::Rng::with_seed(seed);
    // Marks and waits are random.
    fastrand::seed(seed);
    let (fake, coordinator) = fake(random.u64(..), marks).await;
    for document in DOCUMENTS {
        coordinator.open(document, BALANCE).await.unwrap();
    }
    let transactions = some_transactions(&mut random);
    let plans = some_plans(&mut random, &transactions);
    fake.faults(Faults::without_lies(
        [0.0, 0.01, 0.05, 0.1][random.usize(..4)],
    ));
    let coordinator = &Arc::new(coordinator);
    let running = plans.into_iter().map(|plan| {
        let at = plan.transaction;
        let transaction = &transactions[at];
        async move { (at, execute(coordinator, transaction, plan).await) }
    });
    let result = join_all(running).await;
    for document in documents(&fake).values() {
        assert!(document.available() >= 0, "{document:?}");
    }
    // The faults stop, and recovery ends the rest.
    fake.faults(Faults::default());
    fake.settle();
    recover(&fake, coordinator, seed.is_multiple_of(16)).await;
    let mut ended = Vec::new();
    for transaction in &transactions {
        let record = coordinator.get(transaction.id().as_str()).await.unwrap();
        let end = record.map(|record| record.transaction_state);
        assert!(end.is_none_or(State::is_final), "{transaction:?}: {end:?}");
        ended.push(end);
    }
    for (at, result) in result {
        assert!(
            result.is_none() || result == ended[at],
            "t{at}: result {result:?}, is {:?}",
            ended[at]
        );
    }
    judge(&documents(&fake), &transactions, &ended);
    if seed.is_multiple_of(4) {
        prune(&fake, coordinator, &transactions).await;
        judge(&documents(&fake), &transactions, &ended);
    }
    ended
}

/// Prunes ended transactions much later, in passes with faults: documents keep their balances, and
/// the audit result stays the same.
async fn prune(fake: &FakeElastic, coordinator: &Coordinator, transactions: &[Transaction]) {
    const HOUR: Duration = Duration::from_secs(3_600);
    fake.advance_clock(2 * HOUR);
    fake.faults(Faults::without_lies(0.1));
    let (one, other) = tokio::join!(coordinator.prune(HOUR), coordinator.prune(HOUR));
    if is_replay() {
        println!("{one:?} {other:?}");
    }
    fake.faults(Faults::default());
    fake.settle();
    let audit = coordinator.audit().await.unwrap();
    assert!(audit.agrees(), "{audit:?}");
    let rest = coordinator.prune(HOUR).await.unwrap();
    assert_eq!(rest.kept, 0, "{rest:?}");
    for transaction in transactions {
        let record = coordinator.get(transaction.id().as_str()).await.unwrap();
        assert_eq!(record, None, "{transaction:?}");
    }
    let audit = coordinator.audit().await.unwrap();
    assert!(audit.agrees(), "{audit:?}");
    assert!(audit.transactions.is_empty(), "{audit:?}");
}

/// Recovers until no transaction is open. Each attempt may have postponed the next one, by up to an
/// hour.
async fn recover(fake: &FakeElastic, coordinator: &Coordinator, by_two: bool) {
    for _ in 0..PASSES {
        fake.advance_clock(Duration::from_secs(3_601));
        let client = coordinator.client();
        client.refresh("transactions").await.unwrap();
        let another = async {
            match by_two {
                true => coordinator.recover(Duration::ZERO).await,
                false => Ok(Recovered::default()),
            }
        };
        let (one, other) = tokio::join!(coordinator.recover(Duration::ZERO), another);
        let (one, other) = (one.unwrap(), other.unwrap());
        if is_replay() {
            println!("{one:?} {other:?}");
        }
        client.refresh("transactions").await.unwrap();
        let stuck = coordinator.list_stuck(Duration::ZERO).await.unwrap();
        if stuck.is_empty() {
            return;
        }
    }
    panic!("recovery has not ended all");
}

/// Checks that each document has the effects of finished transactions, and nothing else.
fn judge(
    documents: &BTreeMap<String, Document>,
    transactions: &[Transaction],
    ended: &[Option<State>],
) {
    let happened = |at: &usize| ended[*at] == Some(State::Finished);
    let finished: Vec<_> = (0..ended.len())
        .filter(happened)
        .map(|at| &transactions[at])
        .collect();
    for (name, document) in documents {
        let effects = finished
            .iter()
            .flat_map(|transaction| transaction.effects());
        let effects: Vec<_> = effects.filter(|effect| effect.document == *name).collect();
        let moved: i64 = effects.iter().map(|effect| effect.add).sum();
        assert_eq!(
            document.balance,
            BALANCE + moved,
            "{name} after {finished:?}"
        );
        assert_eq!(document.holds, [], "{name}");
        let set = effects.iter().any(|effect| !effect.set.is_empty());
        assert_eq!(document.data.is_empty(), !set, "{name}");
    }
    assert_eq!(
        documents["d0"].data, documents["d1"].data,
        "they are set together"
    );
}

/// Runs one schedule; `None` if it failed.
fn played(runtime: &Runtime, seed: u64, marks: Marks) -> Option<Vec<Option<State>>> {
    let played = AssertUnwindSafe(|| runtime.block_on(play(seed, marks)));
    catch_unwind(played).ok()
}

pub(super) fn runtime() -> Runtime {
    Builder::new_current_thread().enable_time().build().unwrap()
}

/// Runs this many schedules, and returns how their transactions ended.
fn play_all(schedules: u64) -> BTreeMap<String, u64> {
    let first = fastrand::u64(..);
    let ends = Mutex::new(BTreeMap::<String, u64>::new());
    let some = |thread: u64| {
        let runtime = runtime();
        for seed in (thread..schedules).step_by(THREADS as usize) {
            let seed = first.wrapping_add(seed);
            let Some(ended) = played(&runtime, seed, Marks::Compared) else {
                panic!("POSTHASTE_SEED={seed} replays it");
            };
            let mut ends = ends.lock().unwrap();
            for end in ended {
                *ends.entry(format!("{end:?}")).or_default() += 1;
            }
        }
    };
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let some = &some;
            scope.spawn(move || some(thread));
        }
    });
    ends.into_inner().unwrap()
}

#[test]
fn balances_are_correct_after_any_faults() {
    if let Some(seed) = asked("POSTHASTE_SEED") {
        println!("{:?}", runtime().block_on(play(seed, Marks::Compared)));
        return;
    }
    let schedules = asked("POSTHASTE_SCHEDULES").unwrap_or(SCHEDULES);
    let ends = play_all(schedules);
    println!("{schedules} schedules: {ends:?}");
    let some = schedules / 10;
    for end in ["Some(Finished)", "Some(RolledBack)"] {
        assert!(ends[end] > some, "{ends:?}");
    }
    ran::count("two-phase-schedules", schedules);
}

/// Without this, the schedules above would prove nothing.
#[test]
fn fault_schedules_detect_a_server_that_accepts_late_holds() {
    let runtime = runtime();
    let mut seeds = 0..1_000;
    let wrong = seeds.find(|seed| played(&runtime, *seed, Marks::Ignored).is_none());
    println!("noticed by schedule {wrong:?}");
    let wrong = wrong.expect("no schedule went wrong");
    let compared = played(&runtime, wrong, Marks::Compared);
    assert!(compared.is_some(), "it goes wrong by itself");
}
