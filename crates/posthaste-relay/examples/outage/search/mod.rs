//! The search server is down for minutes, while a web service saves annotations, each with its
//! index job, and indexes them directly. The request pays at most the time budget of the direct
//! write; annotations that are not indexed wait in Postgres as jobs, and a sync indexes them when
//! the server is back.
//!
//! It is down in three ways, a third of the time each: connections are half open, so that no bytes
//! pass and no end is notified; the server receives requests and its answers are lost; it is
//! stopped and connections are refused. The first two cost the whole budget.

pub mod service;
pub mod sync;
mod verdict;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use posthaste_sync::{Audit, Elastic, ElasticClient, Table};
use posthaste_testkit::receivers::OpenSearch;
use posthaste_testkit::{Child, PgServer, PgVersion, Proxy, TestDb, connect};
use serde_json::json;
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use tokio_postgres::Client;

use crate::load::Load;
use crate::process::{self, SOON, end};
use crate::{Verdict, WARM, beside, figures};
use verdict::{Findings, Part, Phase};

const PATHS: [&str; 1] = ["annotation"];
/// The synced table, and the alias of its index.
const NAME: &str = "annotation";
/// The environment variables with the URL of the search server, and with the period of the sync in
/// milliseconds.
const SEARCH_URL: &str = "SEARCH_URL";
const PERIOD: &str = "SYNC_PERIOD_MS";
/// A timeout that exceeds every remaining step of an outage.
const LONG: Duration = Duration::from_secs(900);

/// Runs the outage and returns its findings.
pub async fn play(outage: Duration) -> Result<Verdict> {
    println!("{} s without the search server", outage.as_secs());
    let findings = Stage::set(outage).await?.play(outage).await?;
    Ok(Verdict {
        findings: findings.to_string(),
        broken: findings.broken(),
    })
}

/// Returns the index that all processes of the run use.
fn index() -> Result<Elastic> {
    index_at(&std::env::var(SEARCH_URL)?)
}

fn index_at(url: &str) -> Result<Elastic> {
    let client = ElasticClient::new(reqwest::Client::builder().no_proxy(), url)?;
    Ok(Elastic::new(client, NAME).definition(json!({
        "settings": {"number_of_shards": 1, "number_of_replicas": 0},
        "mappings": {"properties": {"body": {"type": "text"}}},
    })))
}

/// The servers, and the proxy through which the search server is reached.
struct Stage {
    search: Arc<OpenSearch>,
    proxy: Proxy,
    database: TestDb,
    client: Client,
    period: Duration,
}

impl Stage {
    async fn set(outage: Duration) -> Result<Self> {
        // The usual minute if the outage lasts ten; shorter for shorter outages.
        let period = (outage / 10).clamp(Duration::from_secs(1), Duration::from_secs(60));
        let search = Arc::new(spawn_blocking(|| OpenSearch::start(&[])).await??);
        let proxy = Proxy::start_raw(([127, 0, 0, 1], search.port()).into()).await?;
        let postgres = PgServer::shared(PgVersion::any())?;
        let database = TestDb::from_template(postgres, "search-outage", async |url| {
            let mut client = connect(&url).await?;
            posthaste::migrate(&mut client).await?;
            Ok(client.batch_execute(include_str!("annotation.sql")).await?)
        });
        let database = database.await?;
        let client = database.client().await?;
        let synced =
            "SELECT posthaste.sync_table('annotation', delay => make_interval(secs => $1))";
        client.execute(synced, &[&period.as_secs_f64()]).await?;
        Ok(Self {
            search,
            proxy,
            database,
            client,
            period,
        })
    }

    async fn play(&self, outage: Duration) -> Result<Findings> {
        let mut sync = self.child("sync")?;
        sync.line("ready", SOON).await?;
        let mut service = self.child("service")?;
        let address = process::address(&mut service).await?;
        let load = Load::on(address, &PATHS)?;
        load.put(None, sleep(WARM)).await;
        load.put(Some(Phase::Before), sleep(beside(outage))).await;
        let mut jobs = vec![self.jobs(i64::MAX).await?];
        for phase in [Phase::HalfOpen, Phase::Muted, Phase::Stopped] {
            let most = load.put(Some(phase), self.down(phase, outage / 3)).await;
            jobs.push(most?);
        }
        let ended = Instant::now();
        let last = self.last_job().await?;
        let drained = load.put(Some(Phase::After), self.drained(last)).await;
        drained?;
        let drained = ended.elapsed();
        jobs.push(self.jobs(i64::MAX).await?);

        self.drained(i64::MAX).await?;
        end(&mut service).await?;
        end(&mut sync).await?;
        let table = Table::new(self.database.pool(1)?, NAME);
        let index = index_at(&self.search.url())?;
        let audited = Audit::default().run(&table, &index).await?;
        let parts = Phase::ALL.into_iter().zip(jobs).map(|(phase, jobs)| Part {
            phase,
            figures: load.figures(Some(phase), PATHS[0]),
            jobs,
        });
        Ok(Findings {
            parts: parts.collect(),
            period: self.period,
            drained,
            rows: audited.rows,
            documents: audited.documents,
            differences: audited.differences(),
        })
    }

    /// Makes the search server unavailable in this way for this long; after the last way it is
    /// back. Returns the number of jobs that wait at the end.
    async fn down(&self, phase: Phase, lasting: Duration) -> Result<i64> {
        let search = Arc::clone(&self.search);
        match phase {
            Phase::HalfOpen => self.proxy.half_open(),
            Phase::Muted => {
                self.proxy.restore().await?;
                self.proxy.mute();
            }
            _ => {
                self.proxy.cut().await;
                spawn_blocking(move || search.stop()).await??;
            }
        }
        sleep(lasting).await;
        let jobs = self.jobs(i64::MAX).await?;
        if phase == Phase::Stopped {
            let search = Arc::clone(&self.search);
            spawn_blocking(move || search.restart()).await??;
            self.proxy.restore().await?;
        }
        Ok(jobs)
    }

    /// Returns how many jobs exist, up to this one.
    async fn jobs(&self, last: i64) -> Result<i64> {
        let count = "SELECT count(*) FROM posthaste.job WHERE id <= $1";
        Ok(self.client.query_one(count, &[&last]).await?.get(0))
    }

    async fn last_job(&self) -> Result<i64> {
        let last = "SELECT max(id) FROM posthaste.job";
        Ok(self.client.query_one(last, &[]).await?.get(0))
    }

    /// Waits until no job is left, up to this one.
    async fn drained(&self, last: i64) -> Result<()> {
        let drained = async {
            // Twice a second only, because the count loads Postgres too.
            while self.jobs(last).await? > 0 {
                sleep(Duration::from_millis(500)).await;
            }
            anyhow::Ok(())
        };
        let drained = tokio::time::timeout(LONG, drained).await;
        drained.context("the jobs do not drain")?
    }

    fn child(&self, role: &str) -> Result<Child> {
        Child::spawn(
            process::role("search", role)?
                .env("DATABASE_URL", self.database.url())
                .env(SEARCH_URL, format!("http://{}", self.proxy.address()))
                .env(PERIOD, self.period.as_millis().to_string()),
        )
    }
}
