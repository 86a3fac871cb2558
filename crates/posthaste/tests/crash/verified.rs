//! The leader records how far it has verified the oldest segment. A crash may lose completions that
//! it has seen, if handlers committed them asynchronously in their own transactions: then the
//! leader has to verify them again, or it would truncate open jobs.

use std::time::Duration;

use posthaste::{Config, Outcome, WorkerHandle};
use posthaste_testkit::{PgServer, PgVersion, TestDb, eventually};

use crate::stress::store::{Claimed, Store};
use crate::support;

/// Before the crash only commits that request it reach the disk.
const SETTINGS: [(&str, &str); 4] = [
    ("wal_writer_delay", "10s"),
    ("wal_writer_flush_after", "1GB"),
    ("full_page_writes", "off"),
    ("autovacuum", "off"),
];

/// Starts a worker that only does maintenance, with such long intervals that it can miss a crash
/// entirely, and that hardly ever writes.
async fn leader(db: &TestDb) -> WorkerHandle {
    let config = Config {
        name: "leader".to_owned(),
        promote_interval: Duration::from_secs(2),
        maintenance_interval: Duration::from_secs(2),
        heartbeat_interval: Duration::from_secs(600),
        rescue_after: Duration::from_secs(3600),
        ..support::quick()
    };
    support::worker(&db.pool(2).unwrap())
        .config(config)
        .queue("another", 1)
        .handler("x", |_, _| async { Ok(Outcome::Done) })
        .start()
        .await
        .expect("a worker")
}

/// Waits until the leader has completed a whole round from now on, and is idle on both its
/// connections; no other connection of a worker meets the condition.
async fn leader_rests(store: &Store) -> anyhow::Result<()> {
    let since = store.clock(300).await?;
    let rests = "SELECT count(*) >= 2 FROM pg_stat_activity WHERE datname = current_database()
        AND state = 'idle'
        AND query_start > $1::text::timestamptz AND state_change < clock_timestamp() - interval
          '500 ms'";
    eventually(support::SOON, "the leader rests", async || {
        store.value::<bool>(rests, &[&since]).await
    })
    .await
}

/// Makes a sealed segment of three batches, which no crash loses.
async fn sealed(store: &Store) -> anyhow::Result<[Vec<Claimed>; 3]> {
    store.enqueue_many("x", 3).await?;
    let batches = [
        store.claim(1).await?,
        store.claim(1).await?,
        store.claim(1).await?,
    ];
    store.rotate().await?;
    while store.seal().await? {}
    store.say("CHECKPOINT").await?;
    Ok(batches)
}

/// Completes jobs as `complete_in` does, in a transaction that waits for the disk only if its
/// session requires it.
async fn complete(store: &Store, jobs: &[Claimed]) -> anyhow::Result<()> {
    let sql = include_str!("../../src/store/complete.sql");
    for job in jobs {
        let closed: i64 = store
            .value(sql, &[&job.slot, &job.batch, &job.token, &job.id])
            .await?;
        anyhow::ensure!(closed == 1, "{job:?} was not ours");
    }
    Ok(())
}

async fn lost_acknowledgements_are_verified_again(version: PgVersion) -> anyhow::Result<()> {
    let server = PgServer::start(version, &SETTINGS)?;
    let db = support::migrated(&server).await;
    for _ in 0..5 {
        tokio::task::block_in_place(|| server.restart())?;
        let worker = leader(&db).await;
        let store = Store::new(db.url()).await?;
        leader_rests(&store).await?;
        let [first, second, third] = sealed(&store).await?;
        let segment = store.position("ready_low").await?;
        store.say("SET synchronous_commit = off").await?;
        complete(&store, &first).await?;
        complete(&store, &second).await?;
        leader_rests(&store).await?;
        tokio::task::block_in_place(|| -> anyhow::Result<()> {
            server.stop_immediate()?;
            server.restart()
        })?;
        let store = Store::new(db.url()).await?;
        let forgotten = store.unfinished().await? == 3;
        store.done(&third).await?;
        if forgotten {
            leader_rests(&store).await?;
            for batch in [&first, &second] {
                store.done(batch).await?;
            }
        }
        eventually(support::SOON, "the segment is truncated", async || {
            Ok(store.position("ready_low").await? > segment)
        })
        .await?;
        worker.stop().await?;
        if forgotten {
            posthaste_testkit::ran::count("verified", 1);
            return Ok(());
        }
    }
    panic!("in five crashes no acknowledgement was forgotten: the hazard was never met");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn acknowledgements_lost_in_a_crash_are_verified_again_on_15() {
    lost_acknowledgements_are_verified_again(PgVersion::V15)
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn acknowledgements_lost_in_a_crash_are_verified_again_on_18() {
    lost_acknowledgements_are_verified_again(PgVersion::V18)
        .await
        .unwrap();
}
