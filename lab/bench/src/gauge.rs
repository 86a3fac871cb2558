//! Measures the cost of work: CPU time and WAL, in addition to the time it took.

use std::time::Duration;

use anyhow::Result;
use tokio::time::{MissedTickBehavior, interval};
use tokio_postgres::Client;

use crate::database::{Database, instruments};
use crate::rounds::Figures;
use crate::taint::Watch;

/// A measurement, begun before the work and finished after it.
#[derive(Debug)]
pub(crate) struct Gauge {
    observer: Client,
    watch: Watch,
    wal: i64,
}

impl Gauge {
    /// Begins to measure.
    pub(crate) async fn begin(database: &Database) -> Result<Self> {
        let observer = database.connect().await?;
        let wal = wal_bytes(&observer).await?;
        Ok(Self {
            observer,
            wal,
            watch: Watch::begin()?,
        })
    }

    /// Returns rate, CPU time and WAL per job.
    pub(crate) async fn finish(self, jobs: u64, taken: Duration) -> Result<Figures> {
        let processor = self.watch.finish()?;
        let wal = wal_bytes(&self.observer).await? - self.wal;
        let jobs = jobs.max(1) as f64;
        Ok(Figures::measured_under(processor)
            .with("jobs_per_second", jobs / taken.as_secs_f64())
            .with(
                "cpu_microseconds_per_job",
                processor.own_seconds * 1e6 / jobs,
            )
            .with("wal_bytes_per_job", wal as f64 / jobs))
    }
}

/// Takes a sample at once and then once per period until `work` has ended; returns its output and
/// the samples. Pass work that runs in a separate task: it is not driven while a sample is taken.
pub(crate) async fn sample_during<W: Future, S>(
    work: W,
    period: Duration,
    mut sample: impl AsyncFnMut() -> Result<S>,
) -> Result<(W::Output, Vec<S>)> {
    tokio::pin!(work);
    let mut samples = Vec::new();
    let mut pace = interval(period);
    pace.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            output = &mut work => return Ok((output, samples)),
            _ = pace.tick() => samples.push(sample().await?),
        }
    }
}

async fn wal_bytes(observer: &Client) -> Result<i64> {
    Ok(observer
        .query_one(instruments().get("wal_bytes")?, &[])
        .await?
        .get(0))
}
