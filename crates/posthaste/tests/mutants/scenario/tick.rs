//! Ticks of periodic jobs.

use futures_util::FutureExt;
use posthaste_testkit::connect;
use tokio_postgres::Client;

use super::Scenario;

/// Two leaders enqueue the same tick: one after the other, and while the first has not committed.
pub const TICK: Scenario =
    Scenario::new("two leaders and one tick", |url| ticked(url).boxed_local());

async fn ticked(url: String) -> anyhow::Result<()> {
    let (one, other) = (connect(&url).await?, connect(&url).await?);
    // No statement waits for another.
    other.batch_execute("SET lock_timeout = '2s'").await?;
    one.batch_execute(
        "INSERT INTO posthaste.periodic (name, schedule, job, next_at) \
         VALUES ('p', '0 0 1 1 *', 'yearly', '2100-01-01Z')",
    )
    .await?;
    let both = [tick(&one, 2100).await?, tick(&other, 2100).await?];
    anyhow::ensure!(both == [1, 0], "one after the other made {both:?} jobs");
    one.batch_execute("BEGIN").await?;
    let both = [tick(&one, 2101).await?, tick(&other, 2101).await?];
    one.batch_execute("COMMIT").await?;
    anyhow::ensure!(both == [1, 0], "at the same time they made {both:?} jobs");
    one.batch_execute("BEGIN").await?;
    tick(&one, 2102).await?;
    one.batch_execute("ROLLBACK").await?;
    let again = tick(&other, 2102).await?;
    anyhow::ensure!(again == 1, "what was rolled back was not made");
    let late = tick(&other, 2100).await?;
    anyhow::ensure!(late == 0, "a tick of long ago was made again");
    let next = "SELECT next_at::text FROM posthaste.periodic";
    let next: String = one.query_one(next, &[]).await?.get(0);
    anyhow::ensure!(next.starts_with("2103"), "an old leader moved to {next}");
    let jobs = "SELECT count(*) FROM posthaste.job";
    let jobs: i64 = one.query_one(jobs, &[]).await?.get(0);
    anyhow::ensure!(jobs == 3, "there are {jobs} jobs of three ticks");
    Ok(())
}

/// Enqueues the tick of this year; returns the number of jobs.
async fn tick(client: &Client, year: i32) -> anyhow::Result<i64> {
    let next = year + 1;
    let sql = format!(
        "SELECT posthaste.tick('p', '0 0 1 1 *', 'UTC', '{year}-01-01Z', \
         ARRAY['{year}-01-01Z']::timestamptz[], '{next}-01-01Z')"
    );
    Ok(client.query_one(&sql, &[]).await?.get(0))
}
