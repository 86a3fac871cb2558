//! A backlog of small transactions, from the first arrival to the last.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use posthaste_testkit::receivers::Redis;
use tempfile::TempDir;
use tokio::time::sleep;

use super::captor::Captor;
use super::events::{Arrivals, LINE, fill, filled};
use super::ground::{Ground, KEEPS};
use super::options::Sizes;
use crate::peers::Adapter;
use crate::report::Bar;
use crate::rounds::{Figures, play};
use crate::taint::Watch;
use crate::verdict::{Bound, Evidence, Requirement};

const CAPTORS: [Captor; 4] = [Captor::Direct, Captor::Jobs, Captor::File, Captor::Debezium];
const RATE: &str = "events_per_second";
const SENDER: &str = "sender_us_per_event";
const LIMIT: Duration = Duration::from_secs(600);

/// Runs the rounds and judges them.
pub(crate) async fn measure(ground: &Ground<'_>, bar: &mut Bar, sizes: Sizes) -> Result<()> {
    bar.parameter("transactions", filled(sizes.events));
    let captors = installed(bar, &CAPTORS);
    let names: Vec<&str> = captors.iter().map(|captor| captor.name()).collect();
    play(&names, sizes.rounds, &mut bar.runs, async |index| {
        once(ground, captors[index], sizes.events).await
    })
    .await?;
    let evidence = Evidence::from_runs(&bar.runs, sizes.rounds);
    let (direct, file) = (Captor::Direct.name(), Captor::File.name());
    let share = Requirement::bar("share of decoding alone", "x", Bound::AtLeast(0.8));
    let sender = Requirement::bar("CPU of the sender", "µs/event", Bound::AtMost(10.0));
    let mut judged = vec![
        evidence.ratio(share, direct, file, RATE)?,
        evidence.median(sender, direct, SENDER)?,
    ];
    if captors.contains(&Captor::Debezium) {
        let times = Requirement::bar("times Debezium", "x", Bound::AtLeast(3.0));
        judged.push(evidence.ratio(times, direct, Captor::Debezium.name(), RATE)?);
    }
    bar.judgements = judged;
    Ok(())
}

/// The installed captors; the bar notes the others as missing.
pub(super) fn installed(bar: &mut Bar, captors: &[Captor]) -> Vec<Captor> {
    let (here, absent): (Vec<Captor>, Vec<Captor>) = captors
        .iter()
        .copied()
        .partition(|captor| captor.is_installed());
    for captor in absent {
        let note = format!("{} was not installed.", captor.name());
        eprintln!("  {note}");
        bar.notes.push(note);
    }
    here
}

async fn once(ground: &Ground<'_>, captor: Captor, events: u64) -> Result<Figures> {
    let field = ground.field("outbox").await?;
    captor.install(&field).await?;
    fill(&field.database, events).await?;
    let redis = Redis::start(&KEEPS)?;
    let folder = TempDir::new()?;
    let file = folder.path().join("events");
    let target = match captor {
        Captor::File => file.display().to_string(),
        _ => redis.url(),
    };
    let watch = Watch::begin()?;
    let mut arrivals = Arrivals::at(&redis.url(), captor.receiver()).await?;
    let before = ground.meter().await?;
    let mut process = captor.start(&field.database, &target).await?;
    let count = async || -> Result<u64> {
        match captor {
            Captor::File => Ok(std::fs::metadata(&file).map_or(0, |file| file.len()) / LINE),
            _ => arrivals.count().await,
        }
    };
    let drained = drained(&process, filled(events), count).await?;
    let used = ground.meter().await?.since(before);
    process.end();
    process.finish().await?;
    let all = filled(events) as f64;
    Ok(Figures::measured_under(watch.finish()?)
        .with(RATE, drained.events / drained.seconds)
        .with(SENDER, drained.processor * 1e6 / drained.events)
        .with("server_us_per_event", used.seconds * 1e6 / all))
}

struct Drained {
    events: f64,
    seconds: f64,
    processor: f64,
}

/// Waits until everything has arrived, and measures from the first arrival.
async fn drained(
    process: &Adapter,
    all: u64,
    mut count: impl AsyncFnMut() -> Result<u64>,
) -> Result<Drained> {
    let started = Instant::now();
    // If everything arrives at once, from the start of the process.
    let mut first = (0, started, 0.0);
    loop {
        let here = count().await?;
        ensure!(started.elapsed() < LIMIT, "{here} of {all} events arrived");
        let (events, at, processor) = first;
        if here >= all {
            return Ok(Drained {
                events: (all - events) as f64,
                seconds: at.elapsed().as_secs_f64(),
                processor: process.processor_seconds()? - processor,
            });
        }
        if events == 0 && here > 0 {
            first = (here, Instant::now(), process.processor_seconds()?);
        }
        sleep(Duration::from_millis(1)).await;
    }
}
