//! From commit to start at a low rate, by polling.

use std::time::Duration;

use anyhow::Result;
use tokio::time::{MissedTickBehavior, interval};

use crate::bench::Bench;
use crate::clock::{Clock, Sightings};
use crate::contestants::posthaste::{self, Crew, Manner, Producer};
use crate::database::Database;
use crate::report::Bar;
use crate::rounds::{Figures, play};
use crate::statistics::percentile;
use crate::taint::Watch;
use crate::verdict::{Bound, Evidence, Requirement};

const OURS: &str = "posthaste";
const JOBS_PER_SECOND: u64 = 50;

/// Plays the rounds and judges them.
pub(crate) async fn measure(bench: &Bench<'_>, bar: &mut Bar) -> Result<()> {
    let (seconds, rounds) = (bench.plan.latency_seconds, bench.plan.rounds);
    bar.parameter("jobs per second", JOBS_PER_SECOND);
    bar.parameter("seconds", seconds);
    bar.remarks
        .push("Time runs from the answer to COMMIT to the handler's first line.".to_owned());
    play(&[OURS], rounds, &mut bar.runs, async |_| {
        trickle(bench, seconds).await
    })
    .await?;
    let evidence = Evidence::from_runs(&bar.runs, rounds);
    let median = Requirement::bar("commit to start, p50", "ms", Bound::AtMost(5.0));
    bar.judgements = vec![evidence.median(median, OURS, "start_p50_ms")?];
    Ok(())
}

async fn trickle(bench: &Bench<'_>, seconds: u64) -> Result<Figures> {
    let database = Database::fresh(bench.server).await?;
    posthaste::prepare(&database).await?;
    let clock = Clock::start();
    let (committed, started) = (Sightings::default(), Sightings::default());
    let seen = started.clone();
    let crew = Crew::start(&database, Manner::fast(), move |number| {
        seen.note(number, clock.now())
    })
    .await?;
    let producer = Producer::connect(&database).await?;
    // The first job finds a worker that does not know its lane yet.
    producer.enqueue(0).await?;
    crew.reach(1, Duration::from_secs(30)).await?;

    let watch = Watch::begin()?;
    let mut pace = interval(Duration::from_millis(1_000 / JOBS_PER_SECOND));
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let jobs = JOBS_PER_SECOND * seconds;
    for number in 1..=jobs {
        pace.tick().await;
        producer.enqueue(number).await?;
        committed.note(number, clock.now());
    }
    crew.reach(jobs + 1, Duration::from_secs(30)).await?;
    let processor = watch.finish()?;
    crew.stop().await?;
    let starts = started.milliseconds_since(&committed);
    Ok(Figures::measured_under(processor)
        .with("start_p50_ms", percentile(&starts, 0.5))
        .with("start_p99_ms", percentile(&starts, 0.99))
        .with("start_slowest_ms", percentile(&starts, 1.0)))
}
