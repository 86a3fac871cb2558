//! Promotion: segments of scheduled jobs, late commits, many jobs due at one instant.

use anyhow::ensure;
use futures_util::FutureExt;

use super::Scenario;
use crate::mutants::gate;
use crate::stress::store::Store;

/// Checks that everything that is due is promoted and claimed, each job once.
async fn all_come(store: &Store, jobs: usize, page: i32) -> anyhow::Result<()> {
    // A few more empty rounds: a job must not come late, or twice.
    for _ in 0..jobs / usize::try_from(page)? + 6 {
        store.promote(page).await?;
    }
    let come = store.claim_all().await?;
    ensure!(
        come.len() == jobs,
        "{} jobs were handed out, {jobs} were due",
        come.len()
    );
    store.finish(&come).await
}

/// An enqueuer has read which scheduled segment is current and is then held until that one is
/// truncated.
pub const CLOSED_SCHEDULED_SEGMENT: Scenario =
    Scenario::new("a scheduled segment that closes meanwhile", |url| {
        async move {
            let store = Store::new(&url).await?;
            let gate = gate::close(&url, 2).await?;
            let enqueuer = {
                let other = Store::new(&url).await?;
                tokio::spawn(async move { other.enqueue("held up", 300).await })
            };
            gate.reached().await?;
            ensure!(store.tidy_scheduled(0).await? == "rotated", "it is empty");
            ensure!(store.tidy_scheduled(0).await? == "truncated", "it is empty");
            gate.open().await?;
            enqueuer.await??;
            store.until(&store.clock(350).await?).await?;
            all_come(&store, 1, 10).await
        }
        .boxed_local()
    })
    .gated(&["enqueue waits after it has read scheduled_current"]);

/// The transaction that truncated a scheduled slot is lost after its setval: the slot is reused
/// with its old rows and pages.
pub const LOST_TRUNCATION: Scenario = Scenario::new("a lost truncation", |url| {
    async move {
        let store = Store::new(&url).await?;
        store.enqueue("far", 86_400_000).await?;
        for name in ["first", "second", "third"] {
            for _ in 0..10 {
                store.enqueue(name, 40).await?;
            }
            store.until(&store.clock(60).await?).await?;
            // One promotion is enough. The second would be a slow poll, which moves the cursor, and
            // would find them even in a slot that was never emptied.
            store.promote(50).await?;
            let come = store.claim_all().await?;
            ensure!(come.len() == 10, "{} jobs of 10 are promoted", come.len());
            store.finish(&come).await?;
            store.tidy_scheduled(1).await?;
            store.promote(50).await?;
            if name == "first" {
                store.say("BEGIN").await?;
                ensure!(
                    store.tidy_scheduled(1).await? == "truncated",
                    "the old slot is spent"
                );
                store.say("ROLLBACK").await?;
            }
            // Advances to the third segment, which is in the slot of the first, and no further.
            for _ in 0..6 {
                if name != "second" || store.position("scheduled_low").await? == 2 {
                    break;
                }
                store.tidy_scheduled(1).await?;
                store.promote(50).await?;
            }
        }
        ensure!(store.unfinished().await? == 1, "only the far one waits");
        Ok(())
    }
    .boxed_local()
});

/// One statement schedules many jobs for the same instant, another does and commits after it.
pub const ONE_INSTANT: Scenario = Scenario::new("many jobs due at one instant", |url| {
    async move {
        let (store, late) = (Store::new(&url).await?, Store::new(&url).await?);
        let instant = store.clock(300).await?;
        let many = "INSERT INTO posthaste.job (name, scheduled_at) \
                    SELECT 'instant', $1::text::timestamptz FROM generate_series(1, 25)";
        store.client.execute(many, &[&instant]).await?;
        late.say("BEGIN").await?;
        late.client.execute(many, &[&instant]).await?;
        store.until(&instant).await?;
        all_come(&store, 25, 10).await?;
        late.say("COMMIT").await?;
        all_come(&store, 25, 10).await
    }
    .boxed_local()
});

/// Transactions that stay open until after their jobs were due, in every order of commits.
pub const LATE_COMMITS: Scenario = Scenario::new("late commits of scheduled jobs", |url| {
    async move {
        let store = Store::new(&url).await?;
        let mut late = Vec::new();
        for number in 0..4 {
            let other = Store::new(&url).await?;
            other.say("BEGIN").await?;
            other.enqueue("late", 150).await?;
            if number == 2 {
                other.say("SAVEPOINT a").await?;
                other.enqueue("undone", 150).await?;
                other.say("ROLLBACK TO a").await?;
            }
            if number == 3 {
                other.say("PREPARE TRANSACTION 'late'").await?;
            }
            late.push(other);
        }
        store.enqueue("early", 150).await?;
        store.until(&store.clock(200).await?).await?;
        all_come(&store, 1, 10).await?;
        for (at, order) in [2, 0, 3, 1].into_iter().enumerate() {
            let commit = if order == 3 {
                "COMMIT PREPARED 'late'"
            } else {
                "COMMIT"
            };
            late[order].say(commit).await?;
            // In between the promoter advances, or does not.
            if at % 2 == 0 {
                store.enqueue("between", 20).await?;
                store.until(&store.clock(30).await?).await?;
            }
            all_come(&store, 1 + (at + 1) % 2, 10).await?;
        }
        Ok(())
    }
    .boxed_local()
});

/// A slot that began with small rows and continued with large ones is left and truncated like
/// others, but not before its waiting jobs were carried over.
pub const UNEVEN_SLOT: Scenario = Scenario::new("a slot of uneven rows", |url| {
    async move {
        let store = Store::new(&url).await?;
        store.enqueue("far", 86_400_000).await?;
        for (jobs, pad) in [(2_000, 0), (4_000, 900)] {
            store
                .client
                .execute(
                    "INSERT INTO posthaste.job (name, scheduled_at, kwargs)
                     SELECT 'uneven', clock_timestamp() + interval '200 ms', \
                     jsonb_build_object('pad', repeat('x', $2)) FROM generate_series(1, $1)",
                    &[&jobs, &pad],
                )
                .await?;
        }
        store.until(&store.clock(250).await?).await?;
        all_come(&store, 6_000, 2_000).await?;
        for _ in 0..4 {
            store.tidy_scheduled(1_000).await?;
            store.tidy_scheduled(1_000).await?;
            store.promote(100).await?;
        }
        ensure!(
            store.unfinished().await? == 1,
            "a job that waited went with its slot"
        );
        ensure!(
            store.position("scheduled_low").await? > 0,
            "a slot whose jobs are all promoted is never reclaimed"
        );
        Ok(())
    }
    .boxed_local()
});
