//! Fences: which claim may close a job.

use anyhow::{Context, ensure};
use futures_util::FutureExt;

use super::Scenario;
use crate::stress::store::Store;

/// A segment contains an acknowledgement of none of its jobs, like one that came late to a recycled
/// slot.
pub const FOREIGN_ACKNOWLEDGEMENT: Scenario = Scenario::new("a foreign acknowledgement", |url| {
    async move {
        let store = Store::new(&url).await?;
        store.enqueue_many("pair", 2).await?;
        let jobs = store.claim(2).await?;
        store.finish(&jobs[..1]).await?;
        store
            .say("INSERT INTO posthaste.job_done_0 (xid, id, outcome) VALUES ('1', 999999999, 0)")
            .await?;
        store.rotate().await?;
        store.seal().await?;
        store.reclaim().await?;
        store
            .finish(&jobs[1..])
            .await
            .context("a segment was truncated while a job of it ran")?;
        ensure!(
            store.reclaim().await? == "truncated",
            "the segment is spent and was not truncated"
        );
        Ok(())
    }
    .boxed_local()
});

/// A crash loses a claim and the sequence steps back with it: another worker gets the same batch
/// number while the first one is alive.
pub const REUSED_NUMBER: Scenario = Scenario::new("a reused batch number", |url| {
    async move {
        let (late, other) = (Store::new(&url).await?, Store::new(&url).await?);
        late.enqueue_many("contested", 3).await?;
        late.say("BEGIN").await?;
        let forgotten = late.claim(3).await?;
        late.say("ROLLBACK").await?;
        let number = forgotten.first().context("three jobs were there")?.batch;
        late.value::<i64>("SELECT setval('posthaste.batch_id', $1, false)", &[&number])
            .await?;
        let jobs = other.claim(3).await?;
        ensure!(
            jobs.len() == 3 && jobs[0].batch == number,
            "the number did not come again"
        );
        ensure!(
            late.done(&forgotten).await.is_err(),
            "a late worker closed another's batch, or did not learn that it had lost its own"
        );
        for job in forgotten {
            ensure!(
                !late.settle(job, 0, 0).await?,
                "a late worker closed another's job"
            );
        }
        other
            .done(&jobs)
            .await
            .context("the owner lost its batch to a late worker")
    }
    .boxed_local()
});

/// A consumer in SQL claims and gives back in one transaction, while others continue.
pub const CLAIM_AND_SETTLE_AT_ONCE: Scenario =
    Scenario::new("claim and settle in one transaction", |url| {
        async move {
            let (store, other) = (Store::new(&url).await?, Store::new(&url).await?);
            for priority in [0, 1] {
                store
                    .value::<i64>(
                        "SELECT posthaste.enqueue('lane', priority => $1)",
                        &[&priority],
                    )
                    .await?;
            }
            store.say("BEGIN ISOLATION LEVEL READ COMMITTED").await?;
            // Fewer than requested: their windows end here, and the next ones begin where these
            // claims assume they are.
            let mut jobs = store.claim_lane(0, 10).await?;
            other.say("SELECT pg_current_xact_id()").await?;
            jobs.extend(store.claim_lane(1, 10).await?);
            for job in &jobs {
                ensure!(store.settle(*job, 8, 0).await?, "{job:?} was lost");
            }
            store.say("COMMIT").await?;
            for priority in [0, 1] {
                let again = store.claim_lane(priority, 1).await?;
                ensure!(
                    again.len() == 1,
                    "a job that was given back is never handed out again"
                );
            }
            Ok(())
        }
        .boxed_local()
    });

/// The answer to a claim is lost, and before the claim is given back its jobs are moved to
/// `in_flight`.
pub const IN_FLIGHT_AND_RELEASED: Scenario = Scenario::new("in flight, then released", |url| {
    async move {
        let store = Store::new(&url).await?;
        store.enqueue_many("unanswered", 2).await?;
        let unanswered = store.claim(2).await?;
        let token = unanswered.first().context("two jobs were there")?.token;
        store.rotate().await?;
        store.seal().await?;
        let held: i64 = store
            .value("SELECT posthaste.move_running(0, 0, 1)", &[])
            .await?;
        ensure!(held == 1, "{held} jobs were moved to in_flight");
        let returned: i64 = store
            .value(
                "SELECT posthaste.return_claim($1, $2)",
                &[&store.worker, &token],
            )
            .await?;
        ensure!(returned == 2, "{returned} jobs of 2 were given back");
        ensure!(store.claim_all().await?.len() == 2, "not all came again");
        Ok(())
    }
    .boxed_local()
});

/// A worker's heartbeat comes between the leader's poll and its decision.
pub const FRESH_HEARTBEAT: Scenario = Scenario::new("a worker with a fresh heartbeat", |url| {
    async move {
        let store = Store::new(&url).await?;
        store.enqueue_many("alive", 1).await?;
        let jobs = store.claim(1).await?;
        store
            .say("UPDATE posthaste.worker SET beat = beat + 1")
            .await?;
        store
            .value::<i64>("SELECT posthaste.rescue($1, 0)", &[&store.worker])
            .await?;
        store
            .finish(&jobs)
            .await
            .context("a living worker's job was taken from it")
    }
    .boxed_local()
});
