//! A few seconds under a snapshot: growth breaks the gate, and its absence keeps it.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use posthaste_testkit::PgVersion;

use crate::degrade::algorithm::Algorithm;
use crate::degrade::figures::Figures;
use crate::degrade::gate::{Judgement, Verdict, judge};
use crate::degrade::run;
use crate::degrade::sample::Sample;
use crate::degrade::scenario::Scenario;
use crate::server;

const SCENARIO: &str = r#"
about = "four seconds"
algorithms = ["posthaste"]
after = "1s"
[produce]
jobs = 300
every = "1s"
[work]
workers = 4
takes = "1ms"
[[hold]]
kind = "snapshot"
at = "2s"
for = "4s"
[bound]
claim_blocks = 1.5
"#;

async fn judged(algorithm: &Algorithm) -> Result<Vec<Judgement>> {
    let scenario = Scenario::parse(SCENARIO)?;
    let settings = [("shared_preload_libraries", "pg_stat_statements")];
    let server = server::start_with(PgVersion::any(), &std::env::temp_dir(), &settings)?;
    let mut lines = Vec::new();
    let outcome = run::play(&server, &scenario, algorithm, &mut lines, |_| Ok(())).await;
    ensure!(outcome.failure.is_none(), "{:?}", outcome.failure);
    ensure!(outcome.lost == 0, "{} jobs are lost", outcome.lost);
    let written: Vec<Sample> = String::from_utf8(lines)?
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()?;
    ensure!(written == outcome.samples, "the lines are the samples");
    let last = outcome.samples.last().context("no sample")?;
    ensure!(last.finished > 0 && last.wal_bytes > 0, "{last:?}");
    let figures = Figures::read(&outcome, 100).context("no figures")?;
    ensure!(figures.claim_p50_ms.under.is_some(), "{figures:?}");
    let limits = scenario.limits(&algorithm.name);
    Ok(judge(&outcome, Some(&figures), limits))
}

fn verdicts(all: &[Judgement]) -> Vec<(&str, Verdict)> {
    all.iter()
        .map(|one| (one.bound.as_str(), one.verdict))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_of_a_file_that_reads_its_dead_rows_breaks_the_gate() -> Result<()> {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/algorithms/que.sql");
    let all = judged(&Algorithm::from_file(Path::new(file))?).await?;
    ensure!(
        verdicts(&all) == [("claim_blocks", Verdict::Broken)],
        "{all:?}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn posthaste_keeps_the_gate() -> Result<()> {
    let all = judged(&Algorithm::shipped("posthaste")?).await?;
    ensure!(
        verdicts(&all) == [("claim_blocks", Verdict::Kept)],
        "{all:?}"
    );
    Ok(())
}
