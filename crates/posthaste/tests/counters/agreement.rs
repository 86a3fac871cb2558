//! Compares the counters with the view repeatedly during concurrent work.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio_postgres::Client;

use crate::stress::{self, session, settings::Settings};

/// Selects the differences between counters and view in one statement, and therefore by one
/// snapshot. A job that has expired while it waits keeps its former state until a claim or the
/// leader finds it, so those states are one here.
const DISAGREEMENT: &str = "
  WITH counted AS (
    SELECT c.queue, c.priority, c.name, c.tag, CASE WHEN c.what IN ('available', 'blocked',
      'scheduled', 'retrying', 'expired') THEN 'unclaimed' ELSE c.what END AS what,
           sum(c.jobs) AS jobs
      FROM posthaste.count_all() c WHERE c.what NOT LIKE '%\\_total' GROUP BY 1, 2, 3, 4, 5
      HAVING sum(c.jobs) <> 0),
  shown AS (
    SELECT j.queue, j.priority, j.name, j.tag, CASE WHEN j.state IN ('available', 'blocked',
      'scheduled', 'retrying', 'expired') THEN 'unclaimed' ELSE j.state END AS what,
           count(*) AS jobs
      FROM posthaste.job j GROUP BY 1, 2, 3, 4, 5)
  SELECT string_agg(format('%s %s %s %s %s: counted %s, shown %s', queue, priority, name, tag,
    what, c.jobs, s.jobs), '; ')
    FROM counted c FULL JOIN shown s USING (queue, priority, name, tag, what)
      WHERE c.jobs IS DISTINCT FROM s.jobs";

/// The number of comparisons, and the most marks at once.
#[derive(Debug, Default)]
pub struct Compared {
    pub times: usize,
    pub marks: i64,
}

/// Compares once; the error is a difference. If a segment is rotated during the comparison, it is
/// read twice or not at all: then the comparison does not count.
async fn agree(client: &Client) -> Result<bool, String> {
    let at = async || -> Result<String, String> {
        let row = client
            .query_one("SELECT posthaste.segment_positions()", &[])
            .await;
        row.map(|row| row.get(0))
            .map_err(|error| session::describe("reading the segments", &error))
    };
    let before = at().await?;
    let row = client
        .query_one(DISAGREEMENT, &[])
        .await
        .map_err(|error| session::describe("comparing", &error))?;
    if before != at().await? {
        return Ok(false);
    }
    match row.get::<_, Option<String>>(0) {
        Some(finding) => Err(format!("the counters are wrong: {finding}")),
        None => Ok(true),
    }
}

/// Counts without a pause, in steps so small that nearly everything is marked.
async fn account(url: &str, over: &AtomicBool) -> Result<(), String> {
    let client = session::connect(url).await?;
    while !over.load(Ordering::SeqCst) {
        let (limit, step) = (fastrand::i32(1..60), fastrand::i32(1..8));
        client
            .execute(
                "SELECT posthaste.count_new_jobs($1, $2, 65536)",
                &[&limit, &step],
            )
            .await
            .map_err(|error| session::describe("counting", &error))?;
        tokio::time::sleep(Duration::from_millis(fastrand::u64(0..20))).await;
    }
    Ok(())
}

async fn compare(url: &str, over: &AtomicBool) -> Result<Compared, String> {
    const MARKS: &str = "SELECT (SELECT count(*) FROM posthaste.counted_0) + (SELECT count(*)
                              FROM posthaste.opened_0) + (SELECT count(*) FROM posthaste.counted_6)
                              + (SELECT count(*) FROM posthaste.stats_sum)";
    let client = session::connect(url).await?;
    let mut compared = Compared::default();
    while !over.load(Ordering::SeqCst) {
        if agree(&client).await? {
            compared.times += 1;
        }
        let marks = client.query_one(MARKS, &[]).await;
        let marks = marks.map_err(|error| session::describe("looking for marks", &error))?;
        compared.marks = compared.marks.max(marks.get(0));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(compared)
}

/// Runs the stress test with a concurrent counter and comparer; returns the first error.
pub async fn under_stress(url: &str, settings: Settings) -> Result<Compared, String> {
    let over = AtomicBool::new(false);
    let working = async {
        let report = stress::run(url, settings).await;
        over.store(true, Ordering::SeqCst);
        report
    };
    // The stress test is not interrupted: it runs to its end.
    let comparing = compare(url, &over);
    let (report, counted, compared) = tokio::join!(working, account(url, &over), comparing);
    let compared = compared?;
    counted?;
    report?;
    Ok(compared)
}

/// Runs one statement after the other, and compares after each; the error is a difference.
async fn agree_after_each(client: &Client, statements: &[&str]) -> Result<(), String> {
    for statement in statements {
        client
            .batch_execute(statement)
            .await
            .map_err(|error| session::describe(statement, &error))?;
        agree(client)
            .await
            .map_err(|finding| format!("after {statement}: {finding}"))?;
    }
    Ok(())
}

/// Cancels some of a lane's jobs, before they are counted and after.
pub async fn after_closes_of_unclaimed_jobs(url: &str) -> Result<(), String> {
    let client = session::connect(url).await?;
    let story = [
        "SELECT posthaste.enqueue('a') FROM generate_series(1, 20)",
        "SELECT posthaste.cancel(2)",
        "SELECT posthaste.count_new_jobs(12, 3, 65536)",
        "SELECT posthaste.cancel_many('{5, 6, 19}')",
        "SELECT posthaste.count_new_jobs(100, 3, 65536)",
        "SELECT posthaste.cancel_many('{7, 20}')",
    ];
    agree_after_each(&client, &story).await
}

/// Claims two jobs.
const CLAIM: &str =
    "SELECT * FROM posthaste.claim('default', '{0}', 1, gen_random_uuid(), 2, 1 << 20)";
/// Counts everything.
const ACCOUNT: &str = "SELECT posthaste.count_new_jobs(1000, 3, 65536)";

/// Claims some of a lane's jobs, counts, and continues, while a transaction that has enqueued
/// before all of them commits in between.
pub async fn after_a_late_commit(url: &str) -> Result<(), String> {
    let (client, late) = (session::connect(url).await?, session::connect(url).await?);
    let failed = |error| session::describe("the late transaction", &error);
    let enqueue =
        "SELECT posthaste.enqueue('a', tag => 't' || i % 2) FROM generate_series(1, 20) i;
                   SELECT posthaste.enqueue('a', scheduled_at => now() + interval '1 hour')
                     FROM generate_series(1, 10)";
    late.batch_execute(&format!("BEGIN; {enqueue}"))
        .await
        .map_err(failed)?;
    agree_after_each(
        &client,
        &["INSERT INTO posthaste.worker (name) VALUES ('w')", enqueue],
    )
    .await?;
    agree_after_each(&client, &[CLAIM, CLAIM, CLAIM, ACCOUNT, CLAIM]).await?;
    late.batch_execute("COMMIT").await.map_err(failed)?;
    agree_after_each(&client, &[ACCOUNT, CLAIM, enqueue, ACCOUNT, ACCOUNT]).await?;
    agree_after_each(&client, &[CLAIM; 12]).await?;
    agree_after_each(&client, &[ACCOUNT; 2]).await?;
    agree_after_each(&client, &[CLAIM; 20]).await
}

/// Runs jobs of one ordering key one after the other.
pub async fn after_turns(url: &str) -> Result<(), String> {
    const ADVANCE_ORDERING: &str = "SELECT posthaste.advance_ordering(10)";
    const DO_ONE: &str = "SELECT posthaste.settle(c.slot, c.batch, t.token, ARRAY[c.id], '{0}',
                            NULL, NULL, NULL, NULL, NULL)
                            FROM (SELECT gen_random_uuid() AS token OFFSET 0) t,
                              LATERAL posthaste.claim('default', '{0}', 1, t.token, 1, 1 << 20) c";
    let client = session::connect(url).await?;
    let story = [
        "INSERT INTO posthaste.worker (name) VALUES ('w')",
        "SELECT posthaste.enqueue('a', ordering_key => 'k') FROM generate_series(1, 6)",
        ACCOUNT,
        "SELECT posthaste.cancel(2)",
        ADVANCE_ORDERING,
        ACCOUNT,
        DO_ONE,
        ADVANCE_ORDERING,
        "SELECT posthaste.cancel(5)",
        DO_ONE,
        ADVANCE_ORDERING,
        ACCOUNT,
        DO_ONE,
        ADVANCE_ORDERING,
    ];
    agree_after_each(&client, &story).await
}
