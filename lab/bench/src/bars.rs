//! The bars, one file each. A bar knows its contestants, runs its rounds and judges its
//! requirements.

mod about;
pub(crate) mod audit;
pub(crate) mod bulk;
pub(crate) mod churn;
pub(crate) mod counters;
pub(crate) mod crowd;
pub(crate) mod drain;
pub(crate) mod enqueue;
pub(crate) mod idle;
pub(crate) mod latency;
pub(crate) mod memory;
pub(crate) mod pages;
pub(crate) mod paused;
pub(crate) mod pinned;
pub(crate) mod relay;
pub(crate) mod sync;
pub(crate) mod two_phase;
pub(crate) mod wal;
pub(crate) mod watch;

use about::title;
pub(crate) use about::{about, figures};
use anyhow::{Result, bail};

use crate::bench::Bench;
use crate::report::Bar;

/// All bars in the order in which they are measured and shown.
pub(crate) const ORDER: [&str; 18] = [
    "drain",
    "pinned",
    "churn",
    "paused",
    "crowd",
    "enqueue",
    "bulk",
    "latency",
    "idle",
    "wal",
    "memory",
    "counters",
    "watch",
    "pages",
    "relay",
    "two-phase",
    "sync",
    "audit",
];

/// Measures one bar; an error becomes a part of it.
pub(crate) async fn measure(bench: &Bench<'_>, name: &str) -> Bar {
    let rounds = match name {
        "paused" => paused::ROUNDS,
        "crowd" => crowd::ROUNDS,
        "counters" => counters::ROUNDS,
        "pages" => pages::ROUNDS,
        "audit" => audit::ROUNDS,
        _ => bench.plan.rounds,
    };
    let mut bar = Bar::new(name, title(name), rounds);
    eprintln!("\n{name}: {}", bar.title);
    if let Err(error) = attempt(bench, &mut bar).await {
        bar.failure = Some(format!("{error:#}"));
    }
    bar
}

async fn attempt(bench: &Bench<'_>, bar: &mut Bar) -> Result<()> {
    match bar.name.as_str() {
        "drain" => drain::measure(bench, bar).await,
        "pinned" => pinned::measure(bench, bar).await,
        "churn" => churn::measure(bench, bar).await,
        "paused" => paused::measure(bench, bar).await,
        "crowd" => crowd::measure(bench, bar).await,
        "enqueue" => enqueue::measure(bench, bar).await,
        "bulk" => bulk::measure(bench, bar).await,
        "latency" => latency::measure(bench, bar).await,
        "idle" => idle::measure(bench, bar).await,
        "wal" => wal::measure(bench, bar).await,
        "memory" => memory::measure(bench, bar).await,
        "relay" => relay::measure(bench, bar).await,
        "two-phase" => two_phase::measure(bench, bar).await,
        "counters" => counters::measure(bench, bar).await,
        "watch" => watch::measure(bench, bar).await,
        "pages" => pages::measure(bench, bar).await,
        "sync" => sync::measure(bench, bar).await,
        "audit" => audit::measure(bench, bar).await,
        unknown => bail!("there is no bar named {unknown}"),
    }
}
