//! Workers, each with a separate session: claim, work, finish, repeat.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::Value;
use tokio::sync::{Notify, watch};
use tokio::time::sleep;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Row};

use super::algorithm::{Algorithm, Manner};
use super::ledger::Ledger;
use super::parameters::{Prepared, Values};
use super::scenario::Scenario;
use crate::database::Database;

/// The mark of claims in `pg_stat_statements`.
pub(crate) const CLAIM: &str = "claim";

/// The interval after which a worker forgets its last job, with a jitter of a tenth.
const MEMORY: Duration = Duration::from_secs(60);

/// The shortest pause between two claims, at any speed of the run.
const LEAST_REST: Duration = Duration::from_millis(10);

/// The duration of work, and the pauses of workers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pacing {
    pub(crate) takes: Duration,
    pub(crate) slow_every: u64,
    pub(crate) slow_takes: Duration,
    pub(crate) rest: Duration,
    pub(crate) memory: Duration,
    /// The time after which a job of a dead worker may be claimed again.
    pub(crate) lease: Duration,
}

impl Pacing {
    /// The pacing of a scenario.
    pub(crate) fn new(scenario: &Scenario, lease: Duration) -> Self {
        let work = &scenario.work;
        Self {
            takes: scenario.real(work.takes),
            slow_every: work.slow.every,
            slow_takes: scenario.real(work.slow.takes),
            rest: scenario.real(work.poll).max(LEAST_REST),
            memory: MEMORY.div_f64(scenario.speed),
            lease,
        }
    }

    /// The duration of job `number`.
    pub(crate) fn of_job(&self, number: u64) -> Duration {
        let is_slow = self.slow_every > 0 && number % self.slow_every == self.slow_every - 1;
        if is_slow { self.slow_takes } else { self.takes }
    }
}

/// A worker's session and statements.
pub(crate) struct Worker {
    client: Client,
    manner: Manner,
    claim: Prepared,
    check: Option<Prepared>,
    finish: Prepared,
    release: Option<Prepared>,
    values: Values,
    remembered: Instant,
    memory: Duration,
    pacing: Pacing,
    ledger: Arc<Ledger>,
    death: Arc<Notify>,
}

/// The result of one claim.
enum Turn {
    Worked,
    Idle,
    /// The worker ended in the middle of a job; its session ends with it.
    Died,
}

/// A claimed job.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Claimed {
    pub(crate) id: i64,
    pub(crate) number: u64,
}

impl Worker {
    /// Connects and prepares the statements.
    pub(crate) async fn connect(
        database: &Database,
        algorithm: &Algorithm,
        batch: i64,
        pacing: Pacing,
        ledger: &Arc<Ledger>,
    ) -> Result<Self> {
        let client = database.connect().await?;
        let prepare =
            async |name: &str| Prepared::new(&client, name, algorithm.statements.get(name)?).await;
        let maybe = async |name: &str| match algorithm.statements.get(name) {
            Ok(text) => Prepared::new(&client, name, text).await.map(Some),
            Err(_) => Ok(None),
        };
        let limit = algorithm.manner.limit(batch);
        Ok(Self {
            claim: prepare(CLAIM).await?,
            check: maybe("check").await?,
            finish: prepare("finish").await?,
            release: maybe("release").await?,
            manner: algorithm.manner,
            values: Values::new(limit, pacing.lease.as_secs_f64()),
            remembered: Instant::now(),
            memory: pacing.memory,
            pacing,
            ledger: Arc::clone(ledger),
            death: Arc::default(),
            client,
        })
    }

    /// A handle that ends the worker in the middle of its next job.
    pub(crate) fn death(&self) -> Arc<Notify> {
        Arc::clone(&self.death)
    }

    /// Works until `going` turns false.
    pub(crate) async fn work(mut self, going: watch::Receiver<bool>) -> Result<()> {
        while *going.borrow() {
            match self.turn().await {
                Ok(Turn::Worked) => {}
                Ok(Turn::Died) => return Ok(()),
                Ok(Turn::Idle) => sleep(self.pacing.rest).await,
                Err(error) if is_contention(&error) => {
                    self.client.batch_execute("ROLLBACK").await?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Claims once and works the jobs.
    async fn turn(&mut self) -> Result<Turn> {
        self.forget_sometimes();
        let transaction = self.manner.holds_transaction();
        if transaction {
            self.client.batch_execute("BEGIN").await?;
        }
        let asked = Instant::now();
        let rows = self.claim.query(&self.client, &self.values).await?;
        let taken = asked.elapsed();
        let jobs = self.read(&rows)?;
        if jobs.is_empty() {
            if transaction {
                self.client.batch_execute("COMMIT").await?;
            }
            return Ok(Turn::Idle);
        }
        self.ledger.claimed(taken.as_secs_f64() * 1_000.0);
        if !self.is_still_there().await? {
            self.let_go().await?;
            return Ok(Turn::Worked);
        }
        for job in &jobs {
            self.ledger.started(job.number);
            tokio::select! {
                () = sleep(self.pacing.of_job(job.number)) => {}
                () = self.death.notified() => return Ok(Turn::Died),
            }
        }
        self.values.ids = jobs.iter().map(|job| job.id).collect();
        self.finish.query(&self.client, &self.values).await?;
        if transaction {
            self.client.batch_execute("COMMIT").await?;
        }
        for job in &jobs {
            self.ledger.finished(job.number);
        }
        self.values.remember();
        self.let_go().await?;
        Ok(Turn::Worked)
    }

    /// Stores the values that later statements need.
    fn read(&mut self, rows: &[Row]) -> Result<Vec<Claimed>> {
        let Some(first) = rows.first() else {
            return Ok(Vec::new());
        };
        self.values.id = first.try_get("id")?;
        if first
            .columns()
            .iter()
            .any(|column| column.name() == "run_at")
        {
            self.values.priority = first.try_get("priority")?;
            self.values.run_at = first.try_get("run_at")?;
        }
        rows.iter().map(Claimed::read).collect()
    }

    async fn is_still_there(&self) -> Result<bool> {
        match &self.check {
            Some(check) => Ok(!check.query(&self.client, &self.values).await?.is_empty()),
            None => Ok(true),
        }
    }

    async fn let_go(&self) -> Result<()> {
        if let Some(release) = &self.release {
            release.query(&self.client, &self.values).await?;
        }
        Ok(())
    }

    fn forget_sometimes(&mut self) {
        if self.remembered.elapsed() >= self.memory {
            self.values.forget();
            self.remembered = Instant::now();
            self.memory = self.pacing.memory.mul_f64(0.9 + 0.2 * fastrand::f64());
        }
    }
}

impl Claimed {
    /// Reads the job of a row.
    pub(crate) fn read(row: &Row) -> Result<Self> {
        let args: Value = row.try_get("args")?;
        Ok(Self {
            id: row.try_get("id")?,
            number: args
                .get("n")
                .and_then(Value::as_u64)
                .context("a job without its number")?,
        })
    }
}

/// Whether the error is a conflict with another session, which is retried.
fn is_contention(error: &anyhow::Error) -> bool {
    let code = error
        .downcast_ref::<tokio_postgres::Error>()
        .and_then(tokio_postgres::Error::code);
    code.is_some_and(|code| {
        [
            SqlState::LOCK_NOT_AVAILABLE,
            SqlState::T_R_SERIALIZATION_FAILURE,
            SqlState::T_R_DEADLOCK_DETECTED,
        ]
        .contains(code)
    })
}
