//! A steady rate of single events: the delay of their arrivals, and the cost of each.

use std::time::Duration;

use anyhow::{Context, Result};
use posthaste_testkit::receivers::Redis;

use super::backlog::installed;
use super::captor::Captor;
use super::events::{Arrivals, Offer, Written};
use super::ground::{Field, Ground, KEEPS, SOON};
use super::options::Sizes;
use crate::report::Bar;
use crate::rounds::{Figures, play};
use crate::statistics::percentile;
use crate::taint::Watch;
use crate::verdict::{Bound, Evidence, Requirement};

const CAPTORS: [Captor; 5] = [
    Captor::Direct,
    Captor::Jobs,
    Captor::Outbox,
    Captor::Debezium,
    Captor::EagerDebezium,
];
/// A run without a capture.
const ALONE: &str = "writer alone";
const PER_SECOND: u64 = 300;
const P50: &str = "p50_ms";
const SERVER: &str = "server_us_per_event";
const WAL: &str = "wal_bytes_per_event";

/// Runs the rounds and judges them.
pub(crate) async fn measure(ground: &Ground<'_>, bar: &mut Bar, sizes: Sizes) -> Result<()> {
    bar.parameter("seconds", sizes.seconds);
    let captors = installed(bar, &CAPTORS);
    let mut names: Vec<&str> = captors.iter().map(|captor| captor.name()).collect();
    names.push(ALONE);
    play(
        &names,
        sizes.rounds,
        &mut bar.runs,
        async |index| match captors.get(index) {
            Some(captor) => once(ground, *captor, sizes.seconds).await,
            None => alone(ground, sizes.seconds).await,
        },
    )
    .await?;
    judge(bar, &captors, sizes.rounds)
}

fn judge(bar: &mut Bar, captors: &[Captor], rounds: u32) -> Result<()> {
    let evidence = Evidence::from_runs(&bar.runs, rounds);
    let (direct, jobs) = (Captor::Direct.name(), Captor::Jobs.name());
    let outbox = Captor::Outbox.name();
    let p50 = Requirement::bar("p50: share of the own outbox's", "x", Bound::AtMost(1.0));
    // 10 bytes of the writer's 535.
    let wal = Requirement::bar(
        "WAL, direct: share of the writer's",
        "x",
        Bound::AtMost(1.02),
    );
    let of_jobs = Requirement::bar("WAL, by jobs", "B/event", Bound::AtMost(1_000.0));
    let mut judged = vec![
        evidence.ratio(p50, direct, outbox, P50)?,
        evidence.ratio(wal, direct, ALONE, WAL)?,
        evidence.median(of_jobs, jobs, WAL)?,
    ];
    if captors.contains(&Captor::Debezium) {
        let eager = Captor::EagerDebezium.name();
        let p50 = Requirement::bar("p50: share of Debezium's at 10 ms", "x", Bound::AtMost(0.5));
        let server = Requirement::bar("server CPU: share of Debezium's", "x", Bound::AtMost(1.1));
        judged.push(evidence.ratio(p50, direct, eager, P50)?);
        judged.push(evidence.ratio(server, direct, Captor::Debezium.name(), SERVER)?);
    }
    bar.judgements = judged;
    Ok(())
}

async fn once(ground: &Ground<'_>, captor: Captor, seconds: u64) -> Result<Figures> {
    let field = ground.field("outbox").await?;
    captor.install(&field).await?;
    let redis = Redis::start(&KEEPS)?;
    let mut arrivals = Arrivals::at(&redis.url(), captor.receiver()).await?;
    let mut process = captor.start(&field.database, &redis.url()).await?;
    let offer = Offer {
        statement: match captor {
            Captor::Outbox => "enqueue",
            _ => "insert",
        },
        per_second: PER_SECOND,
        seconds,
        from: 0,
    };
    warm_up(&field, offer, &mut arrivals).await?;
    let wanted = offer.per_second * offer.seconds;
    let (watch, before) = (Watch::begin()?, ground.meter().await?);
    let sender = process.processor_seconds()?;
    let (written, arrived) = tokio::join!(
        offer.make(&field.database),
        arrivals.take_all(wanted, SOON + Duration::from_secs(seconds))
    );
    let (written, arrived) = (written?, arrived?);
    let used = ground.meter().await?.since(before);
    let sender = process.processor_seconds()? - sender;
    let processor = watch.finish()?;
    process.end();
    process.finish().await?;
    let mut waited = Vec::with_capacity(arrived.len());
    for (name, at) in arrived {
        let (answered, _) = written.get(&name).context("an event that nobody wrote")?;
        waited.push(at.saturating_duration_since(*answered).as_secs_f64() * 1e3);
    }
    let all = waited.len() as f64;
    Ok(Figures::measured_under(processor)
        .with(P50, percentile(&waited, 0.5))
        .with("p99_ms", percentile(&waited, 0.99))
        .with("commit_p99_ms", commit_p99(&written))
        .with(SERVER, used.seconds * 1e6 / all)
        .with("sender_us_per_event", sender * 1e6 / all)
        .with(WAL, used.wal_bytes / all))
}

async fn alone(ground: &Ground<'_>, seconds: u64) -> Result<Figures> {
    let field = ground.field("outbox").await?;
    let offer = Offer {
        statement: "insert",
        per_second: PER_SECOND,
        seconds,
        from: 0,
    };
    warm(offer).make(&field.database).await?;
    let (watch, before) = (Watch::begin()?, ground.meter().await?);
    let written = offer.make(&field.database).await?;
    let used = ground.meter().await?.since(before);
    let all = written.len() as f64;
    Ok(Figures::measured_under(watch.finish()?)
        .with("commit_p99_ms", commit_p99(&written))
        .with(SERVER, used.seconds * 1e6 / all)
        .with(WAL, used.wal_bytes / all))
}

/// The 99th percentile of the duration of a transaction, in milliseconds.
pub(super) fn commit_p99(written: &Written) -> f64 {
    let took: Vec<f64> = written
        .values()
        .map(|(_, took)| took.as_secs_f64() * 1e3)
        .collect();
    percentile(&took, 0.99)
}

/// One second of the same load, by other writers.
fn warm(offer: Offer) -> Offer {
    Offer {
        seconds: 1,
        from: 10,
        ..offer
    }
}

/// Waits until the first events have arrived: a process may take seconds to begin.
pub(super) async fn warm_up(field: &Field, offer: Offer, arrivals: &mut Arrivals) -> Result<()> {
    let written = warm(offer).make(&field.database).await?;
    arrivals.take_all(written.len() as u64, SOON).await?;
    Ok(())
}
