//! Scheduled jobs: never early, never lost, even after late commits; many jobs due at once do not
//! block others; and scheduled jobs take no more space than available ones.

mod burst;
mod space;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use jiff::{SignedDuration, Timestamp};
use posthaste::{NewJob, Outcome};
use posthaste_testkit::{PgVersion, eventually};

use crate::stress::store::Store;
use crate::support;

/// Runs a test on both versions.
macro_rules! on_both {
    ($($test:ident => $on15:ident, $on18:ident;)+) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $on15() {
            $test(PgVersion::V15).await.unwrap();
        }
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $on18() {
            $test(PgVersion::V18).await.unwrap();
        }
    )+};
}
pub(crate) use on_both;

on_both! {
    each_job_runs_once_and_never_early => jobs_run_once_and_never_before_their_time_on_15,
        jobs_run_once_and_never_before_their_time_on_18;
    late_commits_run_once => jobs_of_transactions_committed_after_their_due_time_run_once_on_15,
        jobs_of_transactions_committed_after_their_due_time_run_once_on_18;
    expired_before_due => expired_scheduled_jobs_are_retained_and_never_run_on_15,
        expired_scheduled_jobs_are_retained_and_never_run_on_18;
}

/// How often each job ran, and how many ran early.
type Runs = Arc<Mutex<(HashMap<i64, u32>, Vec<i64>)>>;

async fn each_job_runs_once_and_never_early(version: PgVersion) -> anyhow::Result<()> {
    let database = support::database(version).await;
    let mut client = database.client().await?;
    let runs = Runs::default();
    let worker = watching(&database.pool(4)?, &runs).await;
    let mut ids = Vec::new();
    for step in 0..60 {
        let tx = client.transaction().await?;
        let due = Timestamp::now() + SignedDuration::from_millis(step * 20);
        let job = NewJob::new("watched", &serde_json::json!({}))?.scheduled_at(due);
        ids.push(posthaste::enqueue(&tx, &job).await?.0);
        tx.commit().await?;
    }
    support::all_done(&client).await;
    worker.stop().await?;
    let runs = runs.lock().unwrap();
    assert!(runs.1.is_empty(), "these ran early: {:?}", runs.1);
    assert!(ids.iter().all(|id| runs.0.get(id) == Some(&1)));
    Ok(())
}

/// Starts a worker that records each run, and whether the job was due.
async fn watching(pool: &deadpool_postgres::Pool, runs: &Runs) -> posthaste::WorkerHandle {
    let runs = Arc::clone(runs);
    support::worker(pool)
        .queue("default", 8)
        .handler("watched", move |_context, job| {
            let mut runs = runs.lock().unwrap();
            *runs.0.entry(job.id.0).or_default() += 1;
            // The test and the server share the clock.
            if Timestamp::now() < job.scheduled_at {
                runs.1.push(job.id.0);
            }
            async { Ok(Outcome::Done) }
        })
        .start()
        .await
        .expect("a worker")
}

/// Open, prepared, and with a savepoint rolled back; each ends only after later jobs have run.
async fn late_commits_run_once(version: PgVersion) -> anyhow::Result<()> {
    let database = support::database(version).await;
    let (open, prepared, other) = (
        Store::new(database.url()).await?,
        Store::new(database.url()).await?,
        Store::new(database.url()).await?,
    );
    for store in [&open, &prepared] {
        store.say("BEGIN ISOLATION LEVEL REPEATABLE READ").await?;
        store.enqueue("watched", 100).await?;
        store.say("SAVEPOINT a").await?;
        store.enqueue("watched", 100).await?;
        store.say("ROLLBACK TO a").await?;
    }
    prepared.say("PREPARE TRANSACTION 'scheduled'").await?;
    let runs = Runs::default();
    let worker = watching(&database.pool(4)?, &runs).await;
    let mut expected = 0;
    for end in ["", "COMMIT", "COMMIT PREPARED 'scheduled'"] {
        let ender = if end == "COMMIT" { &open } else { &prepared };
        if !end.is_empty() {
            ender.say(end).await?;
            expected += 1;
        }
        // Two that are due one after the other: when both have run, the promoter has advanced
        // twice.
        for ahead in [120, 240] {
            other.enqueue("watched", ahead).await?;
            expected += 1;
        }
        eventually(support::SOON, "what is committed has run", async || {
            Ok(runs.lock().unwrap().0.len() >= expected)
        })
        .await?;
    }
    support::all_done(&other.client).await;
    worker.stop().await?;
    let runs = runs.lock().unwrap();
    assert_eq!(runs.0.len(), expected);
    assert!(runs.0.values().all(|times| *times == 1), "{:?}", runs.0);
    assert!(runs.1.is_empty(), "these ran early: {:?}", runs.1);
    Ok(())
}

/// Expired jobs are found while they are scheduled, or by the promoter if no duty found them
/// before.
async fn expired_before_due(version: PgVersion) -> anyhow::Result<()> {
    let database = support::database(version).await;
    let store = Store::new(database.url()).await?;
    for by_expiry in [true, false] {
        let id: i64 = store
            .value(
                "SELECT posthaste.enqueue('brief', unique_key => 'brief', \
                 scheduled_at => clock_timestamp() + interval '300 ms', \
                 expires_at => clock_timestamp() + interval '50 ms')",
                &[],
            )
            .await?;
        let due = store.clock(300).await?;
        if by_expiry {
            store.until(&store.clock(60).await?).await?;
            let found: i64 = store.value("SELECT posthaste.expire(6, 10)", &[]).await?;
            assert_eq!(found, 1);
        }
        store.until(&due).await?;
        for _ in 0..3 {
            store.promote(10).await?;
        }
        assert!(store.claim_all().await?.is_empty(), "it was handed out");
        let state: String = store
            .value("SELECT state FROM posthaste.dead WHERE id = $1", &[&id])
            .await?;
        assert_eq!(state, "expired");
        let seen: i64 = store
            .value("SELECT count(*) FROM posthaste.job WHERE id = $1", &[&id])
            .await?;
        assert_eq!(seen, 1, "it is shown once");
        let keys: i64 = store
            .value("SELECT count(*) FROM posthaste.unique_key", &[])
            .await?;
        assert_eq!(keys, 0, "its key is free");
    }
    Ok(())
}
