//! Transfers on one OpenSearch: one after the other, many at once, and many on one account,
//! compared with the updates of the published protocol.

mod article;
mod ground;
mod ours;
mod single;

use anyhow::{Result, ensure};
use posthaste_testkit::receivers::{OpenSearch, Receiver};

use crate::bench::Bench;
use crate::report::Bar;
use crate::rounds::{Figures, play};
use crate::verdict::{Bound, Evidence, Requirement};
use ground::{AT_ONCE, Ground};

const SINGLE: &str = "one at a time";
const OURS: &str = "transfers at once";
const ARTICLE: &str = "seven updates at once";
const HOT: &str = "a hot account";
const NAMES: [&str; 4] = [SINGLE, OURS, ARTICLE, HOT];

const LATENCY: &str = "median_ms";
const RATE: &str = "transfers_per_second";

/// Runs the rounds and judges them.
pub(crate) async fn measure(bench: &Bench<'_>, bar: &mut Bar) -> Result<()> {
    let (transfers, rounds) = (bench.plan.transfers, bench.plan.rounds);
    ensure!(Receiver::OpenSearch.find().is_ok(), "no OpenSearch is here");
    bar.parameter("transfers", transfers);
    bar.parameter("in flight", AT_ONCE);
    bar.parameter("in flight on the hot account", ours::ON_ONE);
    let server = tokio::task::block_in_place(|| OpenSearch::start_optimised(&[]))?;
    let ground = Ground::on(&server.url())?;
    // The server compiles hot code: it should not do so in the first round.
    for name in NAMES {
        once(&ground, name, transfers / 2).await?;
    }
    play(&NAMES, rounds, &mut bar.runs, async |index| {
        once(&ground, NAMES[index], transfers).await
    })
    .await?;
    let evidence = Evidence::from_runs(&bar.runs, rounds);
    let bar_of = Requirement::bar;
    let settled = "until it is settled, in that of its requests";
    let settled = bar_of(settled, "x", Bound::AtMost(1.2));
    let finished = "until it is finished, in that of its requests";
    let finished = bar_of(finished, "x", Bound::AtMost(1.2));
    let latency = "until it is settled, in that of seven updates";
    let latency = bar_of(latency, "x", Bound::AtMost(0.7));
    let rate = "rate in that of seven updates, 32 in flight";
    let rate = bar_of(rate, "x", Bound::AtLeast(1.0));
    let starved = "transfers that a hot account starved";
    let starved = bar_of(starved, "transfers", Bound::AtMost(0.0));
    bar.judgements = vec![
        evidence.median(settled, SINGLE, single::SETTLED_TO_CHAIN)?,
        evidence.median(finished, SINGLE, single::FINISHED_TO_CHAIN)?,
        evidence.median(latency, SINGLE, single::SETTLED_TO_SEVEN)?,
        evidence.ratio(rate, OURS, ARTICLE, RATE)?,
        evidence.highest(starved, HOT, ours::STARVED)?,
    ];
    Ok(())
}

async fn once(ground: &Ground, name: &str, transfers: usize) -> Result<Figures> {
    match name {
        SINGLE => single::in_turn(ground, transfers / 8).await,
        OURS => ours::transfers(ground, transfers).await,
        ARTICLE => article::transfers(ground, transfers).await,
        _ => ours::hot(ground, transfers).await,
    }
}
