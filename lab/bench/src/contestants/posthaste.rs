//! posthaste, through its library, which only this module and its submodules use.

mod audited;
mod carrier;
mod crew;
pub(crate) mod paced;
mod producer;
mod sleeper;
mod synced;

use std::time::{Duration, Instant};

use ::posthaste::migrate;
use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};
use tokio_postgres::Client;

pub(crate) use self::audited::{audit, fill_equal};
pub(crate) use self::carrier::{Carrier, REQUESTS};
pub(crate) use self::crew::{Crew, Manner};
pub(crate) use self::producer::{Extra, Producer};
pub(crate) use self::sleeper::{Sleeper, preload_queues};
pub(crate) use self::synced::{Indexed, Place};
use crate::database::Database;
use crate::statements::Statements;

/// The schema of the library.
pub(crate) const SCHEMA: &str = "posthaste";

const STATISTICS_LIMIT: Duration = Duration::from_secs(20);

/// The statements that the bench sends in addition to the library's.
pub(crate) fn statements() -> Statements {
    Statements::parse(include_str!("../../locking/posthaste.sql"))
}

/// Arguments of every job of the bench.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Arguments {
    n: u64,
}

/// Migrates an empty database.
pub(crate) async fn prepare(database: &Database) -> Result<()> {
    migrate(&mut database.connect().await?).await?;
    Ok(())
}

/// Makes the store resolve a route for each job without a queue.
pub(crate) async fn add_route(database: &Database) -> Result<()> {
    let client = database.connect().await?;
    client.execute(statements().get("route")?, &[]).await?;
    Ok(())
}

/// Enqueues `jobs` jobs by one statement.
pub(crate) async fn preload(database: &Database, jobs: u64) -> Result<()> {
    let client = database.connect().await?;
    client
        .execute(statements().get("preload")?, &[&i64::try_from(jobs)?])
        .await?;
    Ok(())
}

/// Enqueues `jobs` jobs by one statement into a queue without workers.
pub(crate) async fn preload_queue(database: &Database, jobs: u64, queue: &str) -> Result<()> {
    let client = database.connect().await?;
    client
        .execute(
            statements().get("preload_queue")?,
            &[&i64::try_from(jobs)?, &queue],
        )
        .await?;
    Ok(())
}

/// Enqueues one job into each lane of this many queues; returns their number.
pub(crate) async fn touch_lanes(database: &Database, queues: u32, priorities: i32) -> Result<u64> {
    let client = database.connect().await?;
    let queues = i32::try_from(queues)?;
    client
        .execute(statements().get("touch_lanes")?, &[&queues, &priorities])
        .await?;
    Ok(u64::try_from(queues * priorities)?)
}

/// Enqueues very many jobs by one statement and returns how long it took.
pub(crate) async fn bulk(client: &Client, rows: u64) -> Result<Duration> {
    let begun = Instant::now();
    let inserted = client
        .execute(statements().get("bulk")?, &[&i64::try_from(rows)?])
        .await?;
    let taken = begun.elapsed();
    // A rule may report the rows of a statement other than the one that inserted them.
    ensure!(
        inserted == rows || inserted == 0,
        "{inserted} of {rows} rows were inserted"
    );
    Ok(taken)
}

/// Enqueues `jobs` jobs that are due at `due`, in seconds since the epoch, numbered from `first`,
/// by one statement.
pub(crate) async fn numbered(client: &Client, due: f64, first: u64, jobs: u64) -> Result<()> {
    client
        .execute(
            statements().get("numbered")?,
            &[&due, &i64::try_from(first)?, &i64::try_from(jobs)?],
        )
        .await?;
    Ok(())
}

/// The name of the worker that runs the maintenance, if there is one.
pub(crate) async fn leader(client: &Client) -> Result<Option<String>> {
    let row = client.query_opt(statements().get("leader")?, &[]).await?;
    Ok(row.map(|row| row.get(0)))
}

/// The number of promoted jobs of the scheduled segment that had most of them.
pub(crate) async fn promoted(client: &Client) -> Result<i64> {
    Ok(client
        .query_one(statements().get("promoted")?, &[])
        .await?
        .get(0))
}

/// The duration of a drain.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Drained {
    /// From the start of the worker to its end, when all jobs are acknowledged.
    pub(crate) taken: Duration,
    /// The part of it after the last job was started: the last acknowledgements and the shutdown.
    pub(crate) stopping: Duration,
}

/// Works a preloaded backlog to its end.
pub(crate) async fn drain(database: &Database, jobs: u64, manner: Manner) -> Result<Drained> {
    let begun = Instant::now();
    let crew = Crew::start_counting(database, manner).await?;
    crew.reach(jobs, Duration::from_secs(600)).await?;
    let reached = Instant::now();
    crew.stop().await?;
    Ok(Drained {
        taken: begun.elapsed(),
        stopping: reached.elapsed(),
    })
}

/// Fails while the view of all jobs that are not done contains any.
pub(crate) async fn ensure_nothing_remains(database: &Database) -> Result<()> {
    let remaining: i64 = database
        .connect()
        .await?
        .query_one(statements().get("remaining")?, &[])
        .await?
        .get(0);
    ensure!(remaining == 0, "{remaining} jobs are not done");
    Ok(())
}

/// Dead and changed tuples of the hot tables.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct HotTuples {
    pub(crate) dead: i64,
    pub(crate) changed: i64,
}

/// Reads the hot tables' tuple counts once the statistics are complete: sessions that have ended
/// report at once, others within seconds, so two equal answers with a delay between them are final.
pub(crate) async fn hot_tuples(client: &Client) -> Result<HotTuples> {
    let read = async || -> Result<(HotTuples, i64)> {
        let row = client
            .query_one(statements().get("hot_tuples")?, &[])
            .await?;
        Ok((
            HotTuples {
                dead: row.get("dead"),
                changed: row.get("changed"),
            },
            row.get("inserted"),
        ))
    };
    let deadline = Instant::now() + STATISTICS_LIMIT;
    let mut last = read().await?;
    loop {
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        let now = read().await?;
        if now == last && now.1 > 0 {
            return Ok(now.0);
        }
        ensure!(
            Instant::now() < deadline,
            "the statistics of the hot tables do not settle"
        );
        last = now;
    }
}

/// The average number of jobs of a claim, while all claims can still be read.
pub(crate) async fn jobs_per_claim(database: &Database) -> Result<f64> {
    let row = database
        .connect()
        .await?
        .query_one(statements().get("claims")?, &[])
        .await?;
    let (claims, jobs): (i64, i64) = (row.get("claims"), row.get("jobs"));
    Ok(jobs as f64 / claims.max(1) as f64)
}

/// The current segment, and the oldest one that still exists.
pub(crate) async fn segments(client: &Client) -> Result<(i64, i64)> {
    let row = client.query_one(statements().get("segments")?, &[]).await?;
    Ok((row.get("current"), row.get("oldest")))
}
