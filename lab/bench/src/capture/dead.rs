//! A destination that is dead for long: the log that the server retains, the time of commits, the
//! events that arrive.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::Result;
use posthaste_testkit::receivers::Redis;
use tokio::time::sleep;

use super::captor::{Captor, start};
use super::events::{Arrivals, Name, Offer};
use super::ground::{Field, Ground};
use super::options::Sizes;
use super::paced::{commit_p99, warm_up};
use crate::gauge::sample_during;
use crate::report::Bar;
use crate::rounds::{Figures, play};
use crate::statistics::greatest;
use crate::taint::Watch;
use crate::verdict::{Bound, Evidence, Requirement};

const MIB: u64 = 1 << 20;
const PER_SECOND: u64 = 1_000;
const KEEPS: &[(&str, &str)] = &[("appendonly", "yes"), ("appendfsync", "always")];
const BEYOND: &str = "beyond_spill_after_mib";
const COMMITS: &str = "commit_p99_times";
const LOST: &str = "lost";
const DISORDERED: &str = "out_of_order";
/// Time between two reads of the arrivals.
const PAUSE: Duration = Duration::from_millis(20);

/// Runs it once and judges it.
pub(crate) async fn measure(ground: &Ground<'_>, bar: &mut Bar, sizes: Sizes) -> Result<()> {
    let spill_after = if sizes.dead_seconds >= 300 { 64 } else { 2 };
    bar.parameter("seconds", sizes.dead_seconds);
    bar.parameter("spill_after in MiB", spill_after);
    let name = Captor::Direct.name();
    play(&[name], 1, &mut bar.runs, async |_| {
        once(ground, sizes.dead_seconds, spill_after).await
    })
    .await?;
    let evidence = Evidence::from_runs(&bar.runs, 1);
    let beyond = Requirement::bar(
        "unconfirmed WAL beyond spill_after",
        "MiB",
        Bound::AtMost(64.0),
    );
    let lost = Requirement::bar("lost events", "", Bound::AtMost(0.0));
    let order = Requirement::bar("events out of order", "", Bound::AtMost(0.0));
    let commits = Requirement::bar("p99 of commits: times that before", "x", Bound::AtMost(1.1));
    bar.judgements = vec![
        evidence.highest(beyond, name, BEYOND)?,
        evidence.highest(lost, name, LOST)?,
        evidence.highest(order, name, DISORDERED)?,
        evidence.highest(commits, name, COMMITS)?,
    ];
    Ok(())
}

async fn once(ground: &Ground<'_>, seconds: u64, spill_after: u64) -> Result<Figures> {
    let field = ground.field("outbox").await?;
    Captor::Direct.install(&field).await?;
    let redis = Redis::start(KEEPS)?;
    let (url, path) = (redis.url(), "direct");
    let mut arrivals = Arrivals::at(&url, Captor::Direct.receiver()).await?;
    let limit = Some(spill_after * MIB);
    let mut process = start(&field.database, path, &url, limit).await?;
    let offer = |seconds, from| Offer {
        statement: "insert",
        per_second: PER_SECOND,
        seconds,
        from,
    };
    warm_up(&field, offer(1, 0), &mut arrivals).await?;
    let watch = Watch::begin()?;
    let before = offer((seconds / 4).max(2), 20)
        .make(&field.database)
        .await?;
    redis.kill9()?;
    let dead = outage(&field, offer(seconds, 30)).await?;
    redis.restart()?;
    let after = offer(2, 40).make(&field.database).await?;
    let mut wanted: HashMap<Name, bool> = HashMap::new();
    for written in [&before, &dead.written, &after] {
        wanted.extend(written.keys().map(|name| (*name, false)));
    }
    let mut arrivals = Arrivals::at(&url, Captor::Direct.receiver()).await?;
    let seen = first_arrivals(&mut arrivals, wanted, seconds).await?;
    process.end();
    process.finish().await?;
    Ok(Figures::measured_under(watch.finish()?)
        .with(BEYOND, dead.unconfirmed / MIB as f64 - spill_after as f64)
        .with("unconfirmed_mib", dead.unconfirmed / MIB as f64)
        .with(COMMITS, commit_p99(&dead.written) / commit_p99(&before))
        .with("commit_p99_ms", commit_p99(&dead.written))
        .with(LOST, seen.lost as f64)
        .with(DISORDERED, seen.disordered as f64)
        .with("repeated", seen.repeated as f64))
}

struct Outage {
    written: super::events::Written,
    unconfirmed: f64,
}

/// Writes while the destination is dead.
async fn outage(field: &Field, offer: Offer) -> Result<Outage> {
    let database = field.database.clone();
    let writers = tokio::spawn(async move { offer.make(&database).await });
    let period = Duration::from_millis(500);
    let (written, kept) = sample_during(writers, period, async || {
        Ok(field.number("unconfirmed").await? as f64)
    })
    .await?;
    Ok(Outage {
        written: written??,
        unconfirmed: greatest(&kept),
    })
}

#[derive(Debug, Default, PartialEq)]
struct Seen {
    lost: usize,
    repeated: u64,
    disordered: u64,
}

/// Takes arrivals until nothing is missing, or nothing has arrived for long.
async fn first_arrivals(
    arrivals: &mut Arrivals,
    wanted: HashMap<Name, bool>,
    seconds: u64,
) -> Result<Seen> {
    let mut known = Known::of(wanted);
    let longest = Duration::from_secs(60 + seconds / 4);
    let mut silent = Duration::ZERO;
    while known.missing() > 0 && silent < longest {
        let taken = arrivals.take().await?;
        silent = if taken.is_empty() {
            silent + PAUSE
        } else {
            Duration::ZERO
        };
        if taken.is_empty() {
            sleep(PAUSE).await;
        }
        taken.into_iter().for_each(|name| known.arrived(name));
    }
    known.seen.lost = known.missing();
    Ok(known.seen)
}

/// The arrivals among the written events.
struct Known {
    wanted: HashMap<Name, bool>,
    last: HashMap<u64, u64>,
    seen: Seen,
    arrived: usize,
}

impl Known {
    fn of(wanted: HashMap<Name, bool>) -> Self {
        Self {
            wanted,
            last: HashMap::new(),
            seen: Seen::default(),
            arrived: 0,
        }
    }

    fn missing(&self) -> usize {
        self.wanted.len() - self.arrived
    }

    fn arrived(&mut self, name: Name) {
        // Events of the warm-up are not counted.
        let Some(is_known) = self.wanted.get_mut(&name) else {
            return;
        };
        if std::mem::replace(is_known, true) {
            self.seen.repeated += 1;
            return;
        }
        self.arrived += 1;
        let (writer, number) = name;
        let last = self.last.insert(writer, number);
        self.seen.disordered += u64::from(last.is_some_and(|last| last > number));
    }
}

#[cfg(test)]
mod tests {
    use super::{Known, Seen};

    #[test]
    fn counts_what_is_missing_repeated_and_out_of_order() {
        let wanted = [(1, 0), (1, 1), (1, 2), (2, 0)].map(|name| (name, false));
        let mut known = Known::of(wanted.into());
        for name in [(1, 1), (1, 0), (9, 9), (1, 1), (2, 0)] {
            known.arrived(name);
        }
        let seen = Seen {
            lost: 0,
            repeated: 1,
            disordered: 1,
        };
        assert_eq!((known.missing(), known.seen), (1, seen));
    }
}
