//! The console's pages while very many jobs wait and the same number is done: from the request to
//! the last byte.

use std::time::Instant;

use anyhow::{Result, ensure};

use super::counters;
use super::watch::{Served, client};
use crate::bench::Bench;
use crate::contestants::posthaste;
use crate::database::{Database, Session};
use crate::report::Bar;
use crate::rounds::{Figures, play};
use crate::statistics::percentile;
use crate::taint::Watch;
use crate::verdict::{Bound, Evidence, Requirement};

/// The measured pages, each with its path.
const PAGES: [(&str, &str); 5] = [
    ("the overview", "/"),
    ("the queues", "/queues"),
    ("jobs", "/jobs"),
    ("jobs of one name", "/jobs?state=available&name=bench.5"),
    ("given up", "/dead"),
];
const READS: usize = 20;
const QUEUES: i64 = 100;
const ALL: &str = "100 queues of 10 names";
/// Loading takes minutes; one backlog is read many times.
pub(super) const ROUNDS: u32 = 1;

/// Runs one round and judges it.
pub(crate) async fn measure(bench: &Bench<'_>, bar: &mut Bar) -> Result<()> {
    let jobs = bench.plan.pages_jobs;
    bar.parameter("jobs that wait", jobs);
    bar.parameter("jobs that were done before", jobs);
    play(&[ALL], ROUNDS, &mut bar.runs, async |_| {
        read(bench, jobs).await
    })
    .await?;
    let evidence = Evidence::from_runs(&bar.runs, ROUNDS);
    bar.judgements = PAGES
        .iter()
        .map(|(name, _)| {
            let bound = Requirement::bar(name, "ms", Bound::AtMost(100.0));
            evidence.median(bound, ALL, &figure(name))
        })
        .collect::<Result<_>>()?;
    Ok(())
}

fn figure(page: &str) -> String {
    format!("{}_p50_ms", page.replace(' ', "_"))
}

async fn read(bench: &Bench<'_>, jobs: u64) -> Result<Figures> {
    let database = Database::fresh(bench.server).await?;
    posthaste::prepare(&database).await?;
    let statements = posthaste::statements();
    let hasty = database.session(Session::Hasty).await?;
    let preload = statements.get("preload_mixed")?;
    let enqueued = i64::try_from(jobs * 2)?;
    hasty.execute(preload, &[&enqueued, &QUEUES]).await?;
    counters::drain(&hasty, jobs, QUEUES).await?;
    let account = hasty.prepare(statements.get("account")?).await?;
    while hasty.query_one(&account, &[]).await?.get(0) {}

    let (console, client) = (Served::start(&database, "console").await?, client()?);
    let watch = Watch::begin()?;
    let mut figures = Vec::new();
    for (name, path) in PAGES {
        let mut taken = Vec::with_capacity(READS);
        for _ in 0..=READS {
            let begun = Instant::now();
            let answer = client.get(format!("{}{path}", console.root)).send().await?;
            let status = answer.status();
            let page = answer.text().await?;
            taken.push(begun.elapsed().as_secs_f64() * 1000.0);
            ensure!(
                status.is_success() && page.contains("</html>"),
                "{path}: {status}"
            );
        }
        // The first request opens a session.
        figures.push((figure(name), percentile(&taken[1..], 0.5)));
    }
    let figures = figures.into_iter().fold(
        Figures::measured_under(watch.finish()?),
        |all, (name, value)| all.with(&name, value),
    );
    console.stop().await?;
    Ok(figures)
}
