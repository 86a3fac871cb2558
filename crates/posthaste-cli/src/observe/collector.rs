//! Reads a whole database for however many ask, no oftener than so.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use posthaste::{Client, Unnamed};
use tokio::sync::Mutex;

use super::exposition::{self, Metric};
use super::labels::{Asked, Labels};
use super::snapshot::Snapshot;
use crate::connect::Address;
use crate::kept::{self, Kept};

/// A snapshot is shared for this long,
const FRESH: Duration = Duration::from_secs(4);
/// longer where reading takes long: it takes a fiftieth of the time, unless metrics would be older
/// than this.
const OLDEST: Duration = Duration::from_secs(30);
/// While a worker has this many jobs to count, reading waits for it, until metrics are that old.
const MANY: u32 = 50_000;
/// A database that answers slower than this is not waited for: Prometheus waits for ten seconds,
/// and is to be told that the database is down.
const WITHIN: Duration = Duration::from_secs(8);

/// One connection, one reading at a time.
#[derive(Clone)]
pub(crate) struct Collector(Arc<Mutex<State>>);

struct State {
    asked: Asked,
    labels: Labels,
    kept: Kept,
    last: Option<Last>,
    /// Metrics were as old as they may be, and a worker still had many to count: no more waiting.
    is_in_vain: bool,
}

struct Last {
    at: Instant,
    /// Until when nothing is asked.
    until: Instant,
    metrics: Arc<Vec<Metric>>,
}

fn pause(took: Duration) -> Duration {
    (took * 50).clamp(FRESH, OLDEST)
}

impl Collector {
    pub(crate) fn new(address: Address, asked: Asked) -> Self {
        Self(Arc::new(Mutex::new(State {
            asked,
            labels: Labels::default(),
            kept: Kept::at(&address),
            last: None,
            is_in_vain: false,
        })))
    }

    /// The metrics of the whole database, of a few seconds ago, or of longer where reading takes
    /// long.
    pub(crate) async fn metrics(&self) -> anyhow::Result<Arc<Vec<Metric>>> {
        let metrics = async { self.0.lock().await.metrics().await };
        let metrics = tokio::time::timeout(WITHIN, metrics).await;
        metrics.context("the database does not answer")?
    }

    /// The same for Prometheus.
    pub(crate) async fn text(&self) -> anyhow::Result<String> {
        Ok(exposition::text(&self.metrics().await?))
    }
}

impl State {
    async fn metrics(&mut self) -> anyhow::Result<Arc<Vec<Metric>>> {
        if let Some(metrics) = self.still_holds().await {
            return Ok(metrics);
        }
        let begun = Instant::now();
        let metrics = Arc::new(self.read().await?);
        let at = Instant::now();
        self.last = Some(Last {
            at,
            until: at + pause(begun.elapsed()),
            metrics: Arc::clone(&metrics),
        });
        Ok(metrics)
    }

    /// What was read last, where that is shown once more.
    async fn still_holds(&mut self) -> Option<Arc<Vec<Metric>>> {
        let mut last = self.last.take()?;
        let asked = Instant::now();
        if last.until <= asked {
            // Reading says what is the matter with the database.
            let many = self.is_uncounted().await.unwrap_or(false);
            let waits = many && !self.is_in_vain && last.at + OLDEST > asked;
            self.is_in_vain = many && !waits;
            if !waits {
                return None;
            }
            last.until = Instant::now() + pause(asked.elapsed());
        }
        let metrics = Arc::clone(&last.metrics);
        self.last = Some(last);
        Some(metrics)
    }

    async fn is_uncounted(&mut self) -> anyhow::Result<bool> {
        let client = self.kept.take().await?;
        let mut jobs = Client::new(Unnamed(&client));
        let uncounted = async { Ok(jobs.uncounted(MANY).await?) };
        let uncounted = kept::bounded(&client, uncounted).await?;
        self.kept.keep(client);
        Ok(uncounted == MANY)
    }

    async fn read(&mut self) -> anyhow::Result<Vec<Metric>> {
        let client = self.kept.take().await?;
        let begun = Instant::now();
        let snapshot = Snapshot::read(&client).await?;
        self.kept.keep(client);
        let mut metrics = exposition::metrics(&snapshot, &mut self.labels, &self.asked);
        let (name, help) = (
            "posthaste_scrape_seconds",
            "How long the database took to answer.",
        );
        metrics.push(Metric::value(name, help, begun.elapsed().as_secs_f64()));
        let (name, help) = (
            "posthaste_read_timestamp_seconds",
            "When the database was read, in seconds since 1970.",
        );
        let since = SystemTime::now().duration_since(UNIX_EPOCH)?;
        metrics.push(Metric::value(name, help, since.as_secs_f64()));
        Ok(metrics)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings_take_a_fiftieth_of_the_time_and_metrics_are_never_older_than_half_a_minute() {
        let of = |took| pause(Duration::from_millis(took)).as_millis();
        assert_eq!([of(0), of(80), of(330)], [4_000, 4_000, 16_500]);
        assert_eq!([of(600), of(10_000)], [30_000, 30_000]);
    }
}
