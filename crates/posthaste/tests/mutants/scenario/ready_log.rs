//! The ready log: enqueues while segments are rotated, sealed and truncated.

use anyhow::ensure;
use futures_util::FutureExt;

use super::Scenario;
use crate::mutants::gate;
use crate::stress::store::Store;

/// An enqueuer, on either path, is held at a gate while its segment is left and sealed; its job
/// must be claimed nevertheless.
async fn sealed_at(url: String, number: i32) -> anyhow::Result<()> {
    let store = Store::new(&url).await?;
    for sql in [
        "INSERT INTO posthaste.job (name) VALUES ('by the view')",
        "SELECT posthaste.enqueue('by the function')",
    ] {
        let gate = gate::close(&url, number).await?;
        let other = Store::new(&url).await?;
        let enqueuer = tokio::spawn(async move { other.say(sql).await });
        gate.reached().await?;
        ensure!(
            store.rotate().await? == "rotated",
            "the ready log is not full"
        );
        while store.seal().await? {}
        gate.open().await?;
        enqueuer.await??;
        let jobs = store.claim_all().await?;
        ensure!(
            jobs.len() == 1,
            "{} jobs of 1 are handed out after {sql}",
            jobs.len()
        );
        store.finish(&jobs).await?;
    }
    Ok(())
}

/// An enqueuer has read which segment is current and is then held until that one is sealed; on both
/// paths.
pub const SEALED_BEFORE_THE_LOCK: Scenario =
    Scenario::new("sealed between the check and the lock", |url| {
        sealed_at(url, 1).boxed_local()
    })
    .gated(&["enqueue waits after it has read ready_current"]);

/// A statement has entered its segment and has not written its first row, so it has no lock on the
/// slot's table; on both paths.
pub const SEALED_BEFORE_THE_ROW: Scenario =
    Scenario::new("sealed between the lock and the row", |url| {
        sealed_at(url, 6).boxed_local()
    })
    .gated(&["enqueue waits before it writes the row"]);

/// Transactions with jobs in a segment, on both paths, are open, or prepared, while a leader tries
/// to seal it.
pub const SEALED_UNDER_AN_OPEN_TRANSACTION: Scenario =
    Scenario::new("an open transaction in the segment", |url| {
        async move {
            let (store, enqueuer) = (Store::new(&url).await?, Store::new(&url).await?);
            let inserts = [
                "INSERT INTO posthaste.job (name) VALUES ('by the view')",
                "SELECT posthaste.enqueue('by the function')",
            ];
            for insert in inserts {
                let undone = format!("SAVEPOINT a; {insert}; ROLLBACK TO a");
                for (before, after) in [
                    ("SELECT 1", "COMMIT"),
                    ("PREPARE TRANSACTION 'ring'", "COMMIT PREPARED 'ring'"),
                    (undone.as_str(), "COMMIT"),
                ] {
                    enqueuer.say("BEGIN").await?;
                    enqueuer.say(insert).await?;
                    enqueuer.say(before).await?;
                    store.rotate().await?;
                    while store.seal().await? {}
                    enqueuer.say(after).await?;
                    let jobs = store.claim_all().await?;
                    ensure!(
                        jobs.len() == 1,
                        "{} jobs of 1 are handed out after {insert} and {before}",
                        jobs.len()
                    );
                    store.finish(&jobs).await?;
                    while store.seal().await? {}
                    while store.reclaim().await? == "truncated" {}
                }
            }
            Ok(())
        }
        .boxed_local()
    });

/// A job runs for so long that the ready log fills; then it ends, and its segment is truncated
/// while others enqueue.
pub const FULL_READY_LOG: Scenario = Scenario::new("a full ready log", |url| {
    async move {
        let store = Store::new(&url).await?;
        store.enqueue("long", 0).await?;
        let long = store.claim(1).await?;
        // The fourth would reuse the slot of the long one.
        for _ in 0..4 {
            store.rotate().await?;
            while store.seal().await? {}
        }
        store.finish(&long).await?;
        let gate = gate::close(&url, 1).await?;
        let reclaim = {
            let other = Store::new(&url).await?;
            tokio::spawn(async move { other.reclaim().await })
        };
        gate.reached().await?;
        store.enqueue("meanwhile", 0).await?;
        gate.open().await?;
        reclaim.await??;
        ensure!(
            store.claim_all().await?.len() == 1,
            "a committed job was truncated with an old segment"
        );
        Ok(())
    }
    .boxed_local()
})
.gated(&["truncation waits before it locks the slot"]);
