//! Batches: closed as a whole or job by job, never both.

use anyhow::ensure;
use futures_util::FutureExt;

use super::Scenario;
use crate::stress::store::{Claimed, Store};

async fn pair(store: &Store) -> anyhow::Result<(Vec<Claimed>, Claimed)> {
    store.enqueue_many("pair", 2).await?;
    let jobs = store.claim(2).await?;
    ensure!(jobs.len() == 2, "two jobs were there");
    let first = jobs[0];
    Ok((jobs, first))
}

/// Checks that exactly this many jobs come again, and that none is left then.
async fn come_again(store: &Store, jobs: usize) -> anyhow::Result<()> {
    let again = store.claim_all().await?;
    ensure!(
        again.len() == jobs,
        "{} jobs came again, {jobs} were given back",
        again.len()
    );
    store.finish(&again).await?;
    ensure!(store.unfinished().await? == 0, "a job is left over");
    Ok(())
}

/// One job of a batch was given back; its worker then acknowledges the whole batch.
pub const SPLIT_BATCH: Scenario = Scenario::new("a batch that was split", |url| {
    async move {
        let store = Store::new(&url).await?;
        let (jobs, first) = pair(&store).await?;
        ensure!(store.settle(first, 8, 0).await?, "it was ours");
        ensure!(
            store.done(&jobs).await.is_err(),
            "a batch was closed as a whole although a job of it had been given back"
        );
        store.finish(&jobs[1..]).await?;
        come_again(&store, 1).await
    }
    .boxed_local()
});

/// The same while the transaction that gives the job back is still open, or prepared.
pub const SPLITTING_BATCH: Scenario = Scenario::new("a batch that is being split", |url| {
    async move {
        let (store, splitter) = (Store::new(&url).await?, Store::new(&url).await?);
        for [prepare, commit] in [
            ["SELECT 1", "COMMIT"],
            ["PREPARE TRANSACTION 'split'", "COMMIT PREPARED 'split'"],
        ] {
            let (jobs, first) = pair(&store).await?;
            splitter.say("BEGIN").await?;
            ensure!(splitter.settle(first, 8, 0).await?, "it was ours");
            splitter.say(prepare).await?;
            ensure!(
                store.done(&jobs).await.is_err(),
                "a batch was closed as a whole while a job of it was being given back"
            );
            splitter.say(commit).await?;
            store.finish(&jobs[1..]).await?;
            come_again(&store, 1).await?;
        }
        // A rolled-back split has no effect.
        let (jobs, first) = pair(&store).await?;
        splitter.say("BEGIN").await?;
        ensure!(splitter.settle(first, 8, 0).await?, "it was ours");
        splitter.say("ROLLBACK").await?;
        store.done(&jobs).await?;
        come_again(&store, 0).await
    }
    .boxed_local()
});

/// A batch is closed as a whole, and then again, as a whole and job by job.
pub const BATCH_CLOSED_AGAIN: Scenario = Scenario::new("a batch that is closed again", |url| {
    async move {
        let store = Store::new(&url).await?;
        let (jobs, _) = pair(&store).await?;
        store.done(&jobs).await?;
        ensure!(store.done(&jobs).await.is_err(), "it was closed twice");
        for job in jobs {
            ensure!(
                !store.settle(job, 8, 0).await?,
                "a job was returned that had been closed with its batch"
            );
        }
        come_again(&store, 0).await
    }
    .boxed_local()
});

/// Unclaimed jobs are moved to the overflow; their segment is reclaimed, and they come once.
pub const MOVED_TO_OVERFLOW: Scenario = Scenario::new("jobs moved to the overflow", |url| {
    async move {
        let store = Store::new(&url).await?;
        store.enqueue_many("waiting", 5).await?;
        store.rotate().await?;
        ensure!(!store.seal().await?, "jobs in it were never claimed");
        let moved: i64 = store
            .value("SELECT posthaste.move_to_overflow(0, 100)", &[])
            .await?;
        ensure!(moved == 5, "{moved} jobs were moved");
        ensure!(store.seal().await?, "nothing in it is unclaimed any more");
        let held: i64 = store
            .value("SELECT posthaste.move_running(0, 0, 10)", &[])
            .await?;
        ensure!(
            held == 0,
            "{held} jobs were moved and put in flight as well"
        );
        ensure!(
            store.reclaim().await? == "truncated",
            "the segment is spent and was not truncated"
        );
        come_again(&store, 5).await
    }
    .boxed_local()
});
