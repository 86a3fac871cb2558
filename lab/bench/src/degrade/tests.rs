//! Each algorithm on a real server: no job is lost when one of two workers dies in its work.

mod crowded;
mod holders;
mod judged;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use posthaste_testkit::receivers::{self, Receiver, Redis};
use posthaste_testkit::{PgServer, PgVersion, eventually};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::algorithm::{self, Algorithm, Manner};
use super::crew::Crew;
use super::ledger::Ledger;
use super::producer;
use super::run;
use super::scenario::Scenario;
use super::scene::Scene;
use crate::clock::Clock;
use crate::server;

/// The number of jobs for each algorithm.
const JOBS: u64 = 1_000;

const WITHIN: Duration = Duration::from_secs(30);

/// The time after which a job of the dead worker is claimed again.
const LEASE: Duration = Duration::from_secs(1);

/// Fast enough that operations with an interval of seconds or a minute run soon.
const SCENARIO: &str = r#"
about = "two workers"
algorithms = "all"
speed = 20
[produce]
jobs = 50
every = "1s"
shape = { per_transaction = 10, rollback = 0.1 }
[work]
workers = 2
takes = "10ms"
batch = 20
poll = "200ms"
"#;

fn server() -> Result<PgServer> {
    let settings = [("shared_preload_libraries", "pg_stat_statements")];
    server::start_with(PgVersion::any(), &std::env::temp_dir(), &settings)
}

async fn survive(name: &str) -> Result<()> {
    let algorithm = Algorithm::shipped(name)?;
    let drains = algorithm.manner == Manner::Drain;
    if drains && !receivers::are_here(name, &[Receiver::Redis]) {
        return Ok(());
    }
    let server = server()?;
    let scenario = Scenario::parse(SCENARIO)?;
    let database = run::prepare(&server, &algorithm).await?;
    let ledger = Arc::new(Ledger::new(Clock::start()));
    let redis = run::redis(&algorithm)?;
    let url = redis.as_ref().map(Redis::url);
    let (stop_producing, producing) = watch::channel(true);
    let (stop_working, working) = watch::channel(true);
    let scene = |going: watch::Receiver<bool>| Scene {
        database: &database,
        algorithm: &algorithm,
        scenario: &scenario,
        lease: LEASE,
        redis: url.as_deref(),
        ledger: Arc::clone(&ledger),
        going,
    };
    let (mut producers, mut workers) = (JoinSet::new(), JoinSet::new());
    let mut crew = Crew::start(&scene(working), 2, &mut workers).await?;
    producer::start(&scene(producing), &mut producers).await?;
    reach(&ledger, JOBS / 4, &mut workers).await?;
    crew.kill_one();
    let committed = || ledger.totals().committed;
    eventually(WITHIN, "jobs are committed", async || {
        Ok(committed() >= JOBS)
    })
    .await?;
    let _ = stop_producing.send(false);
    while let Some(ended) = producers.join_next().await {
        ended??;
    }
    reach(&ledger, committed(), &mut workers).await?;
    let _ = stop_working.send(false);
    run::finish(workers, crew).await?;
    let totals = ledger.totals();
    ensure!(totals.waiting() == 0, "{totals:?}");
    // Work that a worker had done before it died may be repeated, and nothing else. Jobs of the
    // library count as finished shortly before they are acknowledged.
    let most = if algorithm.manner == Manner::Library {
        10
    } else {
        0
    };
    ensure!(totals.surplus <= most, "{totals:?}");
    let client = database.connect().await?;
    let remaining = algorithm.statements.get("remaining")?;
    let remaining: i64 = client.query_one(remaining, &[]).await?.get(0);
    ensure!(remaining == 0, "{remaining} jobs remain");
    Ok(())
}

/// Waits until this many jobs are finished, or a worker has failed.
async fn reach(ledger: &Ledger, jobs: u64, workers: &mut JoinSet<Result<()>>) -> Result<()> {
    let reached = eventually(WITHIN, "jobs are worked", async || {
        Ok(ledger.totals().finished >= jobs)
    });
    let failed = async {
        while let Some(ended) = workers.join_next().await {
            if let Ok(Err(error)) = ended {
                return error;
            }
        }
        std::future::pending().await
    };
    tokio::select! {
        reached = reached => reached,
        error = failed => Err(error),
    }
}

/// Defines a test for each algorithm.
macro_rules! survives {
    ($($name:ident)*) => {
        mod a_worker_dies_and_no_job_is_lost {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() -> anyhow::Result<()> {
                    super::survive(stringify!($name)).await
                }
            )*

            #[test]
            fn every_algorithm_is_tried() {
                let tried = [$(stringify!($name)),*];
                assert!(super::algorithm::names().eq(tried));
            }
        }
    };
}

survives! {
    que que_last_id que_keyset queue_classic skip_locked lock_many update_shape
    visibility_timeout snapshot_batch segments staged_drain posthaste
}
