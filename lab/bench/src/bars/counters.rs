//! Reads all counters while very many jobs wait, after half of their backlog was drained: in many
//! lanes, in one, and of every kind.

use std::ops::RangeInclusive;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use tokio_postgres::Client;

use crate::bench::Bench;
use crate::contestants::posthaste;
use crate::database::{Database, Session};
use crate::report::Bar;
use crate::rounds::{Figures, play};
use crate::statistics::percentile;
use crate::taint::Watch;
use crate::verdict::{Bound, Evidence, Requirement};

/// The shape of a backlog.
struct Shape {
    name: &'static str,
    queues: i64,
    /// The number of queues and priorities in which jobs wait after half of the backlog was
    /// drained.
    lanes: RangeInclusive<usize>,
    preload: &'static str,
}

const MANY: Shape = Shape {
    name: "100 queues of 10 names",
    queues: 100,
    lanes: 100..=100,
    preload: "preload_mixed",
};
const ONE: Shape = Shape {
    name: "one queue of 10 names",
    queues: 1,
    lanes: 1..=1,
    preload: "preload_mixed",
};
const VARIED: Shape = Shape {
    name: "10 queues of 10 names, 3 priorities and 4 tags, a tenth scheduled",
    queues: 10,
    // Whole priorities of a queue are done.
    lanes: 10..=30,
    preload: "preload_varied",
};
const SHAPES: [Shape; 3] = [MANY, ONE, VARIED];
const READS: usize = 50;
/// Loading takes minutes; one backlog is read many times.
pub(super) const ROUNDS: u32 = 1;

/// Runs all shapes and judges them.
pub(crate) async fn measure(bench: &Bench<'_>, bar: &mut Bar) -> Result<()> {
    let jobs = bench.plan.counters_jobs;
    bar.parameter("jobs that wait", jobs);
    bar.parameter("jobs that were done before", jobs / 2);
    let names = SHAPES.map(|shape| shape.name);
    play(&names, ROUNDS, &mut bar.runs, async |shape| {
        let shape = SHAPES.get(shape).context("no such shape")?;
        read(bench, jobs, shape).await
    })
    .await?;
    let evidence = Evidence::from_runs(&bar.runs, ROUNDS);
    let whole = |text| Requirement::bar(text, "ms", Bound::AtMost(50.0));
    let first = |text| Requirement::aim(text, "ms", Bound::AtMost(200.0));
    bar.judgements = vec![
        evidence.median(
            whole("the whole set, many queues"),
            MANY.name,
            "read_p50_ms",
        )?,
        evidence.median(whole("the whole set, one queue"), ONE.name, "read_p50_ms")?,
        evidence.median(
            whole("the whole set, of every kind"),
            VARIED.name,
            "read_p50_ms",
        )?,
        evidence.median(first("a session's first read"), MANY.name, "first_read_ms")?,
        evidence.median(
            first("a session's first read, of every kind"),
            VARIED.name,
            "first_read_ms",
        )?,
    ];
    Ok(())
}

async fn read(bench: &Bench<'_>, jobs: u64, shape: &Shape) -> Result<Figures> {
    let queues = shape.queues;
    let database = Database::fresh(bench.server).await?;
    posthaste::prepare(&database).await?;
    let statements = posthaste::statements();
    let enqueued = jobs + jobs / 2;
    let hasty = database.session(Session::Hasty).await?;
    hasty
        .execute(
            statements.get(shape.preload)?,
            &[&i64::try_from(enqueued)?, &queues],
        )
        .await?;
    drain(&hasty, jobs / 2, queues).await?;
    let account = hasty.prepare(statements.get("account")?).await?;
    let begun = Instant::now();
    while hasty.query_one(&account, &[]).await?.get(0) {}
    let counted = begun.elapsed();

    let watch = Watch::begin()?;
    let reader = database.connect().await?;
    let mut taken = Vec::with_capacity(READS);
    for _ in 0..=READS {
        let begun = Instant::now();
        let found = ::posthaste::Client::new(&reader).counters().await?;
        taken.push(begun.elapsed().as_secs_f64() * 1000.0);
        let waiting = found.jobs.iter().map(|of| of.available + of.scheduled);
        let waiting: i64 = waiting.sum();
        ensure!(
            u64::try_from(waiting)? == jobs,
            "{waiting} jobs were counted"
        );
        let lanes = found.oldest.len();
        ensure!(
            shape.lanes.contains(&lanes),
            "{lanes} lanes have an oldest job"
        );
    }
    let (first, rest) = taken.split_first().context("nothing was read")?;
    Ok(Figures::measured_under(watch.finish()?)
        .with("read_p50_ms", percentile(rest, 0.5))
        .with("read_p99_ms", percentile(rest, 0.99))
        .with("first_read_ms", *first)
        .with(
            "counting_us_per_job",
            counted.as_secs_f64() * 1e6 / jobs as f64,
        )
        .with_series("read_ms", taken))
}

/// Claims and closes this many jobs in batches of at most a thousand, evenly over the queues.
pub(super) async fn drain(client: &Client, jobs: u64, queues: i64) -> Result<()> {
    let statements = posthaste::statements();
    let worker: i64 = client
        .query_one(statements.get("register")?, &[])
        .await?
        .get(0);
    let claim = client.prepare(statements.get("claim_and_close")?).await?;
    let mut left = i64::try_from(jobs)?;
    let each = (left / queues).clamp(1, 1000);
    let mut queue = 0;
    while left > 0 {
        let done: i64 = client
            .query_one(&claim, &[&queue, &worker, &i32::try_from(each.min(left))?])
            .await?
            .get(0);
        ensure!(done > 0, "queue {queue} is empty");
        left -= done;
        queue = (queue + 1) % queues;
    }
    Ok(())
}
