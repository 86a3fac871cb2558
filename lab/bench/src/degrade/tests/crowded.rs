//! Tables that also contain jobs of an open transaction, and jobs that are due in a year.

use anyhow::{Context, Result, ensure};
use posthaste_testkit::PgVersion;

use crate::degrade::algorithm::{self, Algorithm};
use crate::degrade::run;
use crate::degrade::scenario::Scenario;
use crate::server;

const SCENARIO: &str = r#"
about = "a few seconds in a crowded table"
algorithms = ["posthaste"]
after = "2s"
[produce]
jobs = 100
every = "1s"
scheduled = 1000
[work]
workers = 2
takes = "1ms"
[[hold]]
kind = "bulk"
rows = 1200
at = "1s"
for = "2s"
"#;

async fn works_only_what_is_due(name: &str) -> Result<()> {
    let scenario = Scenario::parse(SCENARIO)?;
    let settings = [("shared_preload_libraries", "pg_stat_statements")];
    let server = server::start_with(PgVersion::any(), &std::env::temp_dir(), &settings)?;
    let algorithm = Algorithm::shipped(name)?;
    let outcome = run::play(&server, &scenario, &algorithm, &mut Vec::new(), |_| Ok(())).await;
    ensure!(outcome.failure.is_none(), "{:?}", outcome.failure);
    ensure!(outcome.lost == 0, "{} jobs are lost", outcome.lost);
    let hold = outcome.holds.first().context("no hold")?;
    ensure!(hold.let_go.is_none(), "{hold:?}");
    let last = outcome.samples.last().context("no sample")?;
    ensure!(last.finished > 0 && last.surplus == 0, "{last:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scheduled_and_uncommitted_jobs_are_not_worked() -> Result<()> {
    works_only_what_is_due("posthaste").await?;
    works_only_what_is_due("skip_locked").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scheduled_jobs_do_not_count_as_remaining() -> Result<()> {
    let settings = [("shared_preload_libraries", "pg_stat_statements")];
    let server = server::start_with(PgVersion::any(), &std::env::temp_dir(), &settings)?;
    for name in algorithm::names() {
        let algorithm = Algorithm::shipped(name)?;
        if algorithm.statements.get("schedule").is_err() {
            continue;
        }
        let database = run::prepare(&server, &algorithm).await?;
        run::schedule(&database, &algorithm, 50).await?;
        let client = database.connect().await?;
        let remaining = algorithm.statements.get("remaining")?;
        let remaining: i64 = client.query_one(remaining, &[]).await?.get(0);
        ensure!(remaining == 0, "{name}: {remaining} jobs remain");
    }
    Ok(())
}
