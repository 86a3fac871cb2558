//! Maintenance sets sequences, which no rollback undoes. After a crash between setval and COMMIT,
//! at each of them, the store still rotates and has lost nothing.

use posthaste_testkit::{PgServer, PgVersion};

use crate::stress::store::Store;
use crate::support;

/// Each duty, and the state of the store in which it sets a sequence.
const STEPS: [(&str, &str); 9] = [
    ("SELECT posthaste.rotate(-1) = 'rotated'", ""),
    ("SELECT o_sealed FROM posthaste.seal()", "rotate"),
    (
        "SELECT (posthaste.reclaim(ready_low, 0, 100000)).o_state = 'truncated' \
         FROM posthaste.segments()",
        "seal",
    ),
    ("SELECT posthaste.publish_horizon()", "schedule"),
    ("SELECT posthaste.promote(100, false) > 0", "publish"),
    (
        "SELECT (posthaste.tidy_scheduled(1)).o_state = 'rotated'",
        "promote",
    ),
    ("SELECT posthaste.promote(100, true) > 0", "carry"),
    (
        "SELECT (posthaste.tidy_scheduled(1)).o_state = 'truncated'",
        "leave",
    ),
    (
        "SELECT posthaste.move_to_overflow((ready_scan % 4)::integer, 100) > 0 \
         FROM posthaste.segments()",
        "wait",
    ),
];

/// Brings the store into that state; every job that it enqueues must come in the end.
async fn prepare(store: &Store, point: &str) -> anyhow::Result<i64> {
    let mut jobs = 0;
    match point {
        "rotate" | "seal" => {
            store.rotate().await?;
            if point == "seal" {
                while store.seal().await? {}
            }
        }
        "wait" => {
            store.enqueue_many("crash", 5).await?;
            jobs += 5;
            store.rotate().await?;
            store.seal().await?;
        }
        "" => {}
        _ => {
            // Not due before the test ends, however slow the machine.
            store.enqueue("crash", 3_600_000).await?;
            for _ in 0..5 {
                store.enqueue("crash", 30).await?;
            }
            jobs += 5;
            store.until(&store.clock(40).await?).await?;
            for step in ["publish", "promote", "carry", "leave"] {
                if point == "schedule" {
                    break;
                }
                match step {
                    "publish" => drop(
                        store
                            .value::<bool>("SELECT posthaste.publish_horizon()", &[])
                            .await?,
                    ),
                    "promote" => drop(store.promote(100).await?),
                    "carry" => drop(store.tidy_scheduled(1).await?),
                    _ => drop(store.promote(100).await?),
                }
                if step == point {
                    break;
                }
            }
        }
    }
    Ok(jobs)
}

async fn each_step_may_be_lost(version: PgVersion) -> anyhow::Result<()> {
    let server = PgServer::start(version, &[])?;
    let database = support::migrated(&server).await;
    for (step, point) in STEPS {
        let mut store = Store::new(database.url()).await?;
        store.enqueue_many("crash", 20).await?;
        let done = store.claim_all().await?;
        assert!(done.len() >= 20, "before {step}: {}", done.len());
        store.finish(&done).await?;
        let mut due = prepare(&store, point).await?;
        if point != "wait" {
            let claimed = store.claim_all().await?;
            due -= i64::try_from(claimed.len())?;
            store.finish(&claimed).await?;
        }
        store.say("BEGIN").await?;
        let moved: bool = store.value(step, &[]).await?;
        assert!(moved, "{step} did nothing");
        // A commit of another session writes the sequence to disk; the step itself never commits.
        Store::new(database.url()).await?;
        tokio::task::block_in_place(|| -> anyhow::Result<()> {
            server.stop_immediate()?;
            server.restart()
        })?;
        store = Store::new(database.url()).await?;
        still_turns(&store, due, step).await?;
        posthaste_testkit::ran::count("undone", 1);
    }
    Ok(())
}

/// Every log rotates at least once again, and every job comes once.
async fn still_turns(store: &Store, due: i64, step: &str) -> anyhow::Result<()> {
    let before = (
        store.position("ready_low").await?,
        store.position("scheduled_low").await?,
    );
    let mut come = 0;
    let mut asked = due;
    for _ in 0..8 {
        store.enqueue_many("crash", 10).await?;
        for _ in 0..10 {
            store.enqueue("crash", 20).await?;
        }
        asked += 20;
        store.until(&store.clock(30).await?).await?;
        for _ in 0..3 {
            store.promote(100).await?;
            store.tidy_scheduled(1).await?;
        }
        let jobs = store.claim_all().await?;
        come += i64::try_from(jobs.len())?;
        store.finish(&jobs).await?;
        store.rotate().await?;
        while store.seal().await? {}
        store.reclaim().await?;
        store
            .value::<String>("SELECT o_state FROM posthaste.tidy_overflow(1, 100)", &[])
            .await?;
    }
    for _ in 0..8 {
        store.promote(100).await?;
        let jobs = store.claim_all().await?;
        come += i64::try_from(jobs.len())?;
        store.finish(&jobs).await?;
    }
    assert_eq!(come, asked, "after a crash in {step}");
    let now = (
        store.position("ready_low").await?,
        store.position("scheduled_low").await?,
    );
    assert!(
        now.0 > before.0 && now.1 > before.1,
        "after a crash in {step} the rings stand still: {before:?}, {now:?}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_between_setval_and_commit_loses_no_job_on_15() {
    each_step_may_be_lost(PgVersion::V15).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_between_setval_and_commit_loses_no_job_on_18() {
    each_step_may_be_lost(PgVersion::V18).await.unwrap();
}
