//! From commit to start at a low rate: rung for, and by polling.

use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::json;
use tokio::time::{MissedTickBehavior, interval};

use crate::bench::Bench;
use crate::clock::{Clock, Sightings};
use crate::contestants::JOB_NAME;
use crate::contestants::bare::Bare;
use crate::contestants::posthaste::{self, Crew, Manner, Producer};
use crate::database::Database;
use crate::report::Bar;
use crate::rounds::{Figures, play};
use crate::statistics::percentile;
use crate::taint::Watch;
use crate::verdict::{Bound, Evidence, Requirement};

const OURS: &str = "posthaste";
const POLLING: &str = "posthaste, by polling";
const JOBS_PER_SECOND: u64 = 50;

/// Plays the rounds and judges them.
pub(crate) async fn measure(bench: &Bench<'_>, bar: &mut Bar) -> Result<()> {
    let (seconds, rounds) = (bench.plan.latency_seconds, bench.plan.rounds);
    bar.parameter("jobs per second", JOBS_PER_SECOND);
    bar.parameter("seconds", seconds);
    bar.remarks.push(
        "Time runs from the answer to COMMIT to the handler's first line. Half-way between two jobs one row is committed into a bare table: \
         a figure \"in commits\" is told in medians of that commit's round trip in the same run."
            .to_owned(),
    );
    play(&[OURS, POLLING], rounds, &mut bar.runs, async |index| {
        let manner = if index == 0 {
            Manner::fast()
        } else {
            Manner::fast().without_bell()
        };
        trickle(bench, manner, seconds).await
    })
    .await?;
    let evidence = Evidence::from_runs(&bar.runs, rounds);
    let p50 = Requirement::bar("commit to start, p50", "commits", Bound::AtMost(5.0));
    let p99 = Requirement::bar("commit to start, p99", "commits", Bound::AtMost(15.0));
    let polling = Requirement::bar("commit to start, p50, by polling", "ms", Bound::AtMost(5.0));
    bar.judgements = vec![
        evidence.median(p50, OURS, "start_p50_commits")?,
        evidence.median(p99, OURS, "start_p99_commits")?,
        evidence.median(polling, POLLING, "start_p50_ms")?,
    ];
    Ok(())
}

async fn trickle(bench: &Bench<'_>, manner: Manner, seconds: u64) -> Result<Figures> {
    let database = Database::fresh(bench.server).await?;
    posthaste::prepare(&database).await?;
    let bare = Bare::new();
    bare.prepare(&database).await?;
    let bystander = database.connect().await?;
    let row = bystander.prepare(bare.enqueue_statement()?).await?;
    let clock = Clock::start();
    let (committed, started) = (Sightings::default(), Sightings::default());
    let seen = started.clone();
    let crew = Crew::start(&database, manner, move |number| {
        seen.note(number, clock.now())
    })
    .await?;
    let producer = Producer::connect(&database).await?;
    // The first job finds a worker that does not know its lane yet.
    producer.enqueue(0).await?;
    crew.reach(1, Duration::from_secs(30)).await?;

    let watch = Watch::begin()?;
    let mut pace = interval(Duration::from_millis(500 / JOBS_PER_SECOND));
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let jobs = JOBS_PER_SECOND * seconds;
    let mut commits = Vec::new();
    for number in 1..=jobs {
        pace.tick().await;
        producer.enqueue(number).await?;
        committed.note(number, clock.now());
        pace.tick().await;
        let begun = Instant::now();
        let arguments = json!({ "n": number });
        bystander.execute(&row, &[&JOB_NAME, &arguments]).await?;
        commits.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    crew.reach(jobs + 1, Duration::from_secs(30)).await?;
    let processor = watch.finish()?;
    crew.stop().await?;
    let starts = started.milliseconds_since(&committed);
    let commit = percentile(&commits, 0.5);
    let (p50, p99) = (percentile(&starts, 0.5), percentile(&starts, 0.99));
    Ok(Figures::measured_under(processor)
        .with("commit_p50_ms", commit)
        .with("start_p50_ms", p50)
        .with("start_p99_ms", p99)
        .with("start_p50_commits", p50 / commit)
        .with("start_p99_commits", p99 / commit)
        .with("start_slowest_ms", percentile(&starts, 1.0)))
}
