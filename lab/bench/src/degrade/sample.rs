//! The samples of a run, two per second.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use posthaste_testkit::PgServer;
use serde::{Deserialize, Serialize};
use tokio_postgres::Client;

use super::algorithm::{Algorithm, Manner};
use super::figures::shown;
use super::instruments;
use super::ledger::{Ledger, Window};
use super::worker::CLAIM;
use crate::claims::LogReader;
use crate::contestants::posthaste::paced;
use crate::database::Database;
use crate::statistics::{greatest, percentile};
use crate::taint::Watch;

/// Time between two samples.
pub(crate) const PERIOD: Duration = Duration::from_millis(500);

/// A line of the report's data. Suffixes of the names denote milliseconds, seconds and bytes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Sample {
    pub(crate) algorithm: String,
    /// Seconds since the first job was offered.
    pub(crate) at_s: f64,
    pub(crate) waiting: u64,
    pub(crate) oldest_s: f64,
    /// Since the beginning.
    pub(crate) committed: u64,
    pub(crate) started: u64,
    pub(crate) finished: u64,
    /// Jobs that were finished more than once.
    pub(crate) surplus: u64,
    /// Claims that found jobs, by the clock of their workers; by the server's for the library.
    pub(crate) claims: usize,
    pub(crate) claim_p50_ms: Option<f64>,
    pub(crate) claim_p99_ms: Option<f64>,
    pub(crate) claim_max_ms: Option<f64>,
    /// The mean of all claims, including those that found nothing, by the server.
    pub(crate) claim_server_ms: Option<f64>,
    pub(crate) claim_blocks: Option<f64>,
    /// From commit to start.
    pub(crate) start_p50_ms: Option<f64>,
    pub(crate) start_p99_ms: Option<f64>,
    /// The greatest delay of a producer.
    pub(crate) late_s: f64,
    pub(crate) dead: i64,
    pub(crate) dead_by_table: BTreeMap<String, i64>,
    /// The age of the oldest holder of the horizon.
    pub(crate) holder_s: f64,
    pub(crate) holder_transactions: i64,
    pub(crate) wal_bytes: i64,
    pub(crate) database_bytes: i64,
    /// Shares of the machine's capacity.
    pub(crate) own_share: f64,
    pub(crate) foreign_share: f64,
    pub(crate) niced_share: f64,
    pub(crate) stolen_share: f64,
    pub(crate) tainted: bool,
}

impl Sample {
    /// The sample in one line for the terminal.
    pub(crate) fn line(&self) -> String {
        let tainted = if self.tainted { "  [busy machine]" } else { "" };
        format!(
            "{:<19} {:>5.0} s  waiting {:>7}  claim {:>8} ms  {:>7} blocks  dead {:>8}  \
             held {:>5.0} s{tainted}",
            self.algorithm,
            self.at_s,
            self.waiting,
            shown(self.claim_p50_ms),
            shown(self.claim_blocks),
            self.dead,
            self.holder_s,
        )
    }
}

/// Takes samples.
pub(crate) struct Sampler {
    name: String,
    observer: Client,
    ledger: Arc<Ledger>,
    claims_like: &'static str,
    log: Option<LogReader>,
    watch: Watch,
    wal: i64,
    cost: Cost,
}

/// The total cost of all claims of the database.
#[derive(Debug, Clone, Copy, Default)]
struct Cost {
    calls: i64,
    blocks: i64,
    milliseconds: f64,
}

impl Sampler {
    /// Begins to observe.
    pub(crate) async fn begin(
        server: &PgServer,
        database: &Database,
        algorithm: &Algorithm,
        ledger: &Arc<Ledger>,
    ) -> Result<Self> {
        let is_library = algorithm.manner == Manner::Library;
        let mut sampler = Self {
            name: algorithm.name.clone(),
            observer: database.connect().await?,
            ledger: Arc::clone(ledger),
            claims_like: if is_library {
                "%posthaste.claim(%"
            } else {
                concat!("%/* ", "claim", " */%")
            },
            log: is_library
                .then(|| LogReader::at_end(&server.log_file()))
                .transpose()?,
            watch: Watch::begin()?,
            wal: 0,
            cost: Cost::default(),
        };
        debug_assert!(is_library || sampler.claims_like.contains(CLAIM));
        sampler.wal = sampler.server().await?.0;
        sampler.cost = sampler.claim_cost().await?;
        Ok(sampler)
    }

    /// Takes one sample.
    pub(crate) async fn take(&mut self, at: Duration) -> Result<Sample> {
        let window = self.window()?;
        let totals = self.ledger.totals();
        let (wal, database_bytes) = self.server().await?;
        let cost = self.claim_cost().await?;
        let calls = (cost.calls - self.cost.calls) as f64;
        let per_call = |grown: f64| (calls > 0.0).then(|| grown / calls);
        let dead_by_table = self.dead_rows().await?;
        let own = |name: &&String| !name.starts_with("pg_catalog.");
        let (holder_s, holder_transactions) = paced::oldest_holder(&self.observer).await?;
        let processor = self.watch.finish()?;
        let sample = Sample {
            algorithm: self.name.clone(),
            at_s: at.as_secs_f64(),
            waiting: totals.waiting(),
            oldest_s: self.ledger.oldest(),
            committed: totals.committed,
            started: totals.started,
            finished: totals.finished,
            surplus: totals.surplus,
            claims: window.claims.len(),
            claim_p50_ms: share(&window.claims, 0.5),
            claim_p99_ms: share(&window.claims, 0.99),
            claim_max_ms: (!window.claims.is_empty()).then(|| greatest(&window.claims)),
            claim_server_ms: per_call(cost.milliseconds - self.cost.milliseconds),
            claim_blocks: per_call((cost.blocks - self.cost.blocks) as f64),
            start_p50_ms: share(&window.starts, 0.5),
            start_p99_ms: share(&window.starts, 0.99),
            late_s: window.late,
            dead: dead_by_table
                .iter()
                .filter(|(name, _)| own(name))
                .map(|(_, rows)| rows)
                .sum(),
            dead_by_table,
            holder_s,
            holder_transactions,
            wal_bytes: wal - self.wal,
            database_bytes,
            own_share: processor.own,
            foreign_share: processor.foreign,
            niced_share: processor.niced,
            stolen_share: processor.stolen,
            tainted: processor.taint().is_some(),
        };
        self.watch = Watch::begin()?;
        self.wal = wal;
        self.cost = cost;
        Ok(sample)
    }

    /// The records of the ledger, with the claims of a library, which are only in the server's log.
    fn window(&mut self) -> Result<Window> {
        let mut window = self.ledger.take_window();
        if let Some(log) = &mut self.log {
            let claims = log.read()?.into_iter().filter(|claim| claim.found);
            window.claims = claims.map(|claim| claim.milliseconds).collect();
        }
        Ok(window)
    }

    async fn server(&self) -> Result<(i64, i64)> {
        let row = self
            .observer
            .query_one(instruments().get("server")?, &[])
            .await?;
        Ok((row.get("wal"), row.get("bytes")))
    }

    async fn claim_cost(&self) -> Result<Cost> {
        let row = self
            .observer
            .query_one(instruments().get("claim_cost")?, &[&self.claims_like])
            .await?;
        Ok(Cost {
            calls: row.get("calls"),
            blocks: row.get("blocks"),
            milliseconds: row.get("milliseconds"),
        })
    }

    async fn dead_rows(&self) -> Result<BTreeMap<String, i64>> {
        let rows = self
            .observer
            .query(instruments().get("dead_rows")?, &[])
            .await?;
        Ok(rows
            .iter()
            .map(|row| (row.get("name"), row.get("rows")))
            .collect())
    }
}

fn share(sample: &[f64], share: f64) -> Option<f64> {
    (!sample.is_empty()).then(|| percentile(sample, share))
}
