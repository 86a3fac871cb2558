//! Clocks may cost latency, never a job: how enqueuers and the promoter coordinate.

use anyhow::ensure;
use futures_util::FutureExt;

use super::Scenario;
use crate::mutants::gate;
use crate::stress::store::Store;

/// An enqueuer waits at gate 3 after it has read the clock, before it reads the promoter's horizon;
/// the publisher at gate 4 after it has its xid, as setval itself takes one before it writes.
const GATES: &[&str] = &[
    "enqueue waits before it reads the horizon",
    "publishing waits before it writes the horizon",
];

/// Promotes and claims until nothing comes; all of these jobs must come.
async fn come(store: &Store, jobs: usize) -> anyhow::Result<()> {
    for _ in 0..4 {
        store.promote(100).await?;
    }
    let come = store.claim_all().await?;
    ensure!(
        come.len() == jobs,
        "{} jobs were handed out, {jobs} were due",
        come.len()
    );
    store.finish(&come).await
}

async fn park(store: Store, due: String) -> anyhow::Result<Store> {
    store
        .value::<i64>(
            "SELECT posthaste.enqueue('slow', scheduled_at => $1::text::timestamptz)",
            &[&due],
        )
        .await?;
    Ok(store)
}

/// A job becomes due after the promoter published its horizon and before it polls, while its
/// enqueuer is between reading the clock and reading the horizon.
pub const DUE_AFTER_PUBLISHING: Scenario =
    Scenario::new("due between publishing and promoting", |url| {
        async move {
            let (store, enqueuer) = (Store::new(&url).await?, Store::new(&url).await?);
            store.enqueue("first", 200).await?;
            let (published, due, promoted) = (
                store.clock(400).await?,
                store.clock(800).await?,
                store.clock(1000).await?,
            );
            let gate = gate::close(&url, 3).await?;
            let enqueuer = tokio::spawn(park(enqueuer, due));
            gate.reached().await?;
            store.until(&published).await?;
            ensure!(
                store
                    .value::<bool>("SELECT posthaste.publish_horizon()", &[])
                    .await?,
                "the first job is due"
            );
            store.until(&promoted).await?;
            store
                .value::<i64>("SELECT posthaste.promote(100, false)", &[])
                .await?;
            gate.open().await?;
            enqueuer.await??;
            come(&store, 2).await
        }
        .boxed_local()
    })
    .gated(GATES);

/// An enqueuer gets its xid after the publisher got its own and reads the horizon before the
/// publisher has written: its xid is beyond the snapshot of the poll, and in no list of running
/// ones.
pub const XID_BEFORE_PROMOTER: Scenario =
    Scenario::new("an xid between those of publisher and promoter", |url| {
        async move {
            let store = Store::new(&url).await?;
            // An unrelated transaction that ends in between hides the moment: it is played until it
            // was seen twice, or a busy server has hidden it repeatedly.
            let mut seen = 0;
            for _ in 0..40 {
                if seen == 2 {
                    break;
                }
                let enqueuer = Store::new(&url).await?;
                enqueuer.say("BEGIN").await?;
                store.enqueue("first", 100).await?;
                let asking = gate::close(&url, 3).await?;
                let (due, published) = (store.clock(300).await?, store.clock(500).await?);
                let enqueuer = tokio::spawn(park(enqueuer, due));
                if !asking.reached_unless_ended(&enqueuer).await? {
                    // It was due before it was enqueued; the horizon is not read for such a job.
                    asking.open().await?;
                    enqueuer.await??.say("COMMIT").await?;
                    come(&store, 2).await?;
                    continue;
                }
                store.until(&published).await?;
                let publishing = gate::close(&url, 4).await?;
                let publisher = Store::new(&url).await?;
                let publisher = tokio::spawn(async move {
                    publisher
                        .value::<bool>("SELECT posthaste.publish_horizon()", &[])
                        .await
                });
                publishing.reached().await?;
                asking.open().await?;
                let enqueuer = enqueuer.await??;
                let xid = "SELECT pg_current_xact_id()::text";
                let xid: String = enqueuer.value(xid, &[]).await?;
                publishing.open().await?;
                ensure!(publisher.await??, "the first job is due");
                let is_beyond =
                    format!("SELECT pg_snapshot_xmax(pg_current_snapshot()) <= '{xid}'::xid8");
                seen += i32::from(store.value::<bool>(&is_beyond, &[]).await?);
                store
                    .value::<i64>("SELECT posthaste.promote(100, false)", &[])
                    .await?;
                enqueuer.say("COMMIT").await?;
                come(&store, 2).await?;
            }
            Ok(())
        }
        .boxed_local()
    })
    .gated(GATES);

/// The clock was ahead when the promoter published, and has been set back: jobs that are due by
/// that clock run early, by each path into the store, and none is lost.
pub const CLOCK_STEPS_BACK: Scenario = Scenario::new("a clock that steps back", |url| {
    async move {
        let store = Store::new(&url).await?;
        store.enqueue("carried over", 1200).await?;
        store.enqueue("to be retried", 0).await?;
        let retried = store.claim(1).await?;
        ensure!(retried.len() == 1, "one job is due");
        // The old segment holds the far job; the new one gets a window up to a time in the future.
        let current = store.position("scheduled_current").await?;
        store
            .value::<i64>(
                "SELECT setval('posthaste.scheduled_current', $1)",
                &[&(current + 1)],
            )
            .await?;
        store
            .say(
                "SELECT setval('posthaste.promote_horizon', (extract(epoch \
                 FROM clock_timestamp() + interval '1500 ms') * 1000000)::bigint)",
            )
            .await?;
        store
            .value::<i64>("SELECT posthaste.promote(100, false)", &[])
            .await?;
        store
            .value::<i64>("SELECT posthaste.promote(100, true)", &[])
            .await?;
        store
            .say(
                "INSERT INTO posthaste.job (name, scheduled_at) \
                 VALUES ('by the view', clock_timestamp() + interval '600 ms')",
            )
            .await?;
        store
            .value::<i64>(
                "SELECT posthaste.enqueue('by the function', scheduled_at => clock_timestamp() + \
                 interval '600 ms')",
                &[],
            )
            .await?;
        ensure!(store.settle(retried[0], 1, 600).await?, "it was ours");
        store.until(&store.clock(1700).await?).await?;
        come(&store, 4).await
    }
    .boxed_local()
})
.gated(GATES);

/// The promoter has followed a clock that was an hour ahead and has published the present again:
/// jobs enqueued since run when they are due, those scheduled by that clock as long after it, and
/// no ineffective back-off counts an attempt.
pub const CLOCK_WAS_AHEAD: Scenario =
    Scenario::new("a clock that was ahead and is corrected", |url| {
        async move {
            let store = Store::new(&url).await?;
            store.enqueue("to be retried", 0).await?;
            store.enqueue("early", 1_800_000).await?;
            store.enqueue("next year", 7_200_000).await?;
            store
                .say(
                    "SELECT setval('posthaste.promote_horizon',
                       (extract(epoch FROM now() + interval '1 hour') * 1000000)::bigint)",
                )
                .await?;
            store
                .value::<i64>("SELECT posthaste.promote(100, false)", &[])
                .await?;
            let mut failed = store.claim(2).await?;
            ensure!(failed.len() == 2, "{failed:?}");
            failed[0].attempt = 1;
            ensure!(store.settle(failed[0], 1, 2000).await?, "it was ours");
            let again = store.claim_all().await?;
            ensure!(again.len() == 1, "nothing can wait yet: {again:?}");
            ensure!(again[0].attempt == 0, "a vain back-off: {again:?}");
            // As that clock would reschedule it.
            let mut ahead = failed[1];
            ahead.attempt = 1;
            ensure!(store.settle(ahead, 1, 3_602_000).await?, "it was ours");
            ensure!(
                store
                    .value::<bool>("SELECT posthaste.publish_horizon()", &[])
                    .await?,
                "the clock is behind"
            );
            store
                .say(
                    "INSERT INTO posthaste.job (name, scheduled_at)
                     VALUES ('by the view', clock_timestamp() + interval '2 s')",
                )
                .await?;
            store.enqueue("by the function", 2000).await?;
            let mut waits = again[0];
            waits.attempt = 1;
            ensure!(store.settle(waits, 1, 2000).await?, "it was ours");
            store.promote(100).await?;
            let early = store.claim_all().await?;
            ensure!(early.is_empty(), "nothing is due yet: {early:?}");
            store.until(&store.clock(4000).await?).await?;
            come(&store, 4).await?;
            let left: i64 = store.unfinished().await?;
            ensure!(left == 1, "{left} are left, one is to come in two hours");
            Ok(())
        }
        .boxed_local()
    });

/// Expiry reads a clock that is two hours ahead and is then set right: jobs that it closed are not
/// claimed, although they have not expired now.
pub const EXPIRED_AHEAD_OF_TIME: Scenario =
    Scenario::new("expiry by a clock that steps back", |url| {
        async move {
            let store = Store::new(&url).await?;
            store
                .say(
                    "SELECT posthaste.enqueue('closed', expires_at => clock_timestamp() + interval \
                     '1 hour')",
                )
                .await?;
            let expired: i64 = store.value("SELECT posthaste.expire(0, 100)", &[]).await?;
            ensure!(expired == 1, "{expired} jobs of 1 expired");
            store.enqueue("open", 0).await?;
            come(&store, 1).await
        }
        .boxed_local()
    })
    .gated(&["expiry reads a clock that is two hours ahead"]);
