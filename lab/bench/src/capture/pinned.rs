//! Captures under an open snapshot: the dead rows of their tables.

use anyhow::Result;
use posthaste_testkit::receivers::Redis;

use super::captor::Captor;
use super::events::{Arrivals, Offer};
use super::ground::{Ground, KEEPS, SOON};
use super::options::Sizes;
use super::paced::warm_up;
use crate::pin::Pin;
use crate::report::Bar;
use crate::rounds::{Figures, play};
use crate::taint::Watch;
use crate::verdict::{Bound, Evidence, Requirement};

const CAPTORS: [Captor; 2] = [Captor::Direct, Captor::Jobs];
const PER_SECOND: u64 = 300;
const CHANGED: &str = "changed_rows";

/// Runs it once and judges it.
pub(crate) async fn measure(ground: &Ground<'_>, bar: &mut Bar, sizes: Sizes) -> Result<()> {
    bar.parameter("seconds", sizes.seconds);
    let names = CAPTORS.map(Captor::name);
    play(&names, 1, &mut bar.runs, async |index| {
        once(ground, CAPTORS[index], sizes.seconds).await
    })
    .await?;
    let evidence = Evidence::from_runs(&bar.runs, 1);
    bar.judgements = names
        .into_iter()
        .map(|name| {
            let text = format!("dead rows in the tables of marks, {name}");
            let none = Requirement::bar(&text, "", Bound::AtMost(0.0));
            evidence.highest(none, name, CHANGED)
        })
        .collect::<Result<_>>()?;
    Ok(())
}

async fn once(ground: &Ground<'_>, captor: Captor, seconds: u64) -> Result<Figures> {
    let field = ground.field("outbox").await?;
    captor.install(&field).await?;
    let redis = Redis::start(&KEEPS)?;
    let mut arrivals = Arrivals::at(&redis.url(), captor.receiver()).await?;
    let mut process = captor.start(&field.database, &redis.url()).await?;
    let offer = Offer {
        statement: "insert",
        per_second: PER_SECOND,
        seconds,
        from: 0,
    };
    warm_up(&field, offer, &mut arrivals).await?;
    let watch = Watch::begin()?;
    let pin = Pin::snapshot(&field.database).await?;
    let before = field.number("changed_rows").await?;
    let written = offer.make(&field.database).await?;
    let wanted = u64::try_from(written.len())?;
    arrivals.take_all(wanted, SOON).await?;
    let processor = watch.finish()?;
    process.end();
    // A session reports its changes when it ends.
    process.finish().await?;
    let changed = field.number("changed_rows").await? - before;
    pin.release().await?;
    Ok(Figures::measured_under(processor).with(CHANGED, changed as f64))
}
