//! Lanes: the cost of a claim, and where it leaves the cursor.

use anyhow::{Context, ensure};
use futures_util::FutureExt;

use super::Scenario;
use crate::mutants::gate;
use crate::stress::store::Store;

/// Thirty thousand jobs in one window: the last ones cost no more to claim than the first.
pub const LONG_WINDOW: Scenario = Scenario::new("a long window", |url| {
    async move {
        let store = Store::new(&url).await?;
        store.enqueue_many("many", 30_000).await?;
        let first = cost(&store).await?;
        for _ in 0..5 {
            ensure!(
                store.claim(5_000).await?.len() == 5_000,
                "a claim was not full"
            );
        }
        let last = cost(&store).await?;
        ensure!(
            last <= first * 2 + 50,
            "a claim touched {first} pages at first and {last} behind 25,000 claimed jobs"
        );
        Ok(())
    }
    .boxed_local()
});

/// Returns the pages touched by a claim of ten jobs: the least of three, because the first claim
/// fills the caches of its session, as does one after an ANALYZE by autovacuum.
async fn cost(store: &Store) -> anyhow::Result<u64> {
    let mut least = u64::MAX;
    for _ in 0..3 {
        least = least.min(touched(store).await?);
    }
    Ok(least)
}

async fn touched(store: &Store) -> anyhow::Result<u64> {
    let plan: serde_json::Value = store
        .value(
            "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT FROM posthaste.claim('default', '{0}', \
             currval('posthaste.worker_id'), gen_random_uuid(), 10, 16777216)",
            &[],
        )
        .await?;
    let of = |name: &str| plan.pointer(&format!("/0/Plan/{name}"))?.as_u64();
    of("Shared Hit Blocks")
        .zip(of("Shared Read Blocks"))
        .map(|(hit, read)| hit + read)
        .context("the plan tells its buffers")
}

/// Jobs whose arguments fit into a claim's answer, and whose names do not, are not in it.
pub const LONG_NAMES: Scenario = Scenario::new("jobs with long names", |url| {
    async move {
        let store = Store::new(&url).await?;
        store.enqueue_many(&"n".repeat(100), 100).await?;
        let sent: i64 = store
            .value(
                "SELECT count(id) FROM posthaste.claim('default', '{0}', \
                 currval('posthaste.worker_id'), gen_random_uuid(), 100, 16777216, 20480)",
                &[],
            )
            .await?;
        ensure!(sent == 0, "the lane is locked while {sent} jobs are sent");
        Ok(())
    }
    .boxed_local()
});

/// Lets a job come and be claimed by another while the gate holds the slow claimer's poll.
async fn claimed_meanwhile(store: Store, slow: Store, gate: gate::Closed) -> anyhow::Result<()> {
    let look = tokio::spawn(async move { slow.claim(10).await });
    gate.reached().await?;
    store.enqueue("meanwhile", 0).await?;
    let jobs = store.claim(10).await?;
    gate.open().await?;
    ensure!(
        look.await??.is_empty(),
        "nothing was left for the slow claim"
    );
    ensure!(jobs.len() == 1, "a committed job is not handed out");
    ensure!(
        store.claim_all().await?.is_empty(),
        "a job was handed out twice"
    );
    store.finish(&jobs).await
}

/// Claims check a lane before they lock it.
const CHECK_FIRST: &str = "a claim checks for work before it locks the lane";

/// A slow poll finds a lane empty; before it moves the cursor, a job comes and another claimer
/// claims it.
pub const SLOW_EMPTY_SCAN: Scenario = Scenario::new("a slow scan of an empty lane", |url| {
    async move {
        let (store, slow) = (Store::new(&url).await?, Store::new(&url).await?);
        let gate = gate::close(&url, 5).await?;
        claimed_meanwhile(store, slow, gate).await
    }
    .boxed_local()
})
.gated(&[CHECK_FIRST, "a claim waits before it skips a window"]);

/// A claimer is late to lock the lane: another has claimed, and more jobs have come.
pub const LATE_TO_THE_LOCK: Scenario =
    Scenario::new("a claim that waits for the lane's lock", |url| {
        async move {
            let (store, slow) = (Store::new(&url).await?, Store::new(&url).await?);
            store.enqueue("first", 0).await?;
            let gate = gate::close(&url, 6).await?;
            let late = tokio::spawn(async move { slow.claim(10).await });
            gate.reached().await?;
            let first = store.claim(1).await?;
            store.enqueue("second", 0).await?;
            gate.open().await?;
            let second = late.await??;
            ensure!(
                (first.len(), second.len()) == (1, 1) && first[0].id != second[0].id,
                "each claimer takes one job"
            );
            ensure!(
                store.claim_all().await?.is_empty(),
                "a job was handed out twice"
            );
            store.finish(&[first, second].concat()).await
        }
        .boxed_local()
    })
    .gated(&[CHECK_FIRST, "a claim waits before it locks the lane"]);

/// After a poll begins and before it reads the cursor, a job comes and another claimer claims it.
pub const STALE_CURSOR_SNAPSHOT: Scenario =
    Scenario::new("a snapshot from before the cursor was read", |url| {
        async move {
            let (store, slow) = (Store::new(&url).await?, Store::new(&url).await?);
            let _: String = slow
                .value("SELECT set_config('test.is_slow', 'yes', false)", &[])
                .await?;
            let gate = gate::close(&url, 8).await?;
            claimed_meanwhile(store, slow, gate).await
        }
        .boxed_local()
    })
    .gated(&[CHECK_FIRST, "a slow claim waits before it reads the cursor"]);
