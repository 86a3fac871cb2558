//! Reads a whole database for however many ask, no oftener than so.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use deadpool_postgres::Client;
use tokio::sync::Mutex;

use super::exposition::{self, Metric};
use super::labels::{Asked, Labels};
use super::snapshot::Snapshot;
use crate::connect::Address;

/// A snapshot is shared for this long,
const FRESH: Duration = Duration::from_secs(4);
/// longer where jobs are still to be counted, so that reading takes a fiftieth of the time, but for
/// no longer than this.
const OLDEST: Duration = Duration::from_secs(30);
/// A database that answers slower than this is not waited for.
const WITHIN: Duration = Duration::from_secs(10);

/// One connection, one reading at a time.
#[derive(Clone)]
pub(crate) struct Collector(Arc<Mutex<State>>);

struct State {
    address: Address,
    asked: Asked,
    labels: Labels,
    client: Option<Client>,
    last: Option<Last>,
}

struct Last {
    at: Instant,
    took: Duration,
    metrics: Arc<Vec<Metric>>,
}

impl Last {
    fn is_fresh(&self) -> bool {
        self.at.elapsed() < pause(self.took)
    }
}

fn pause(took: Duration) -> Duration {
    (took * 50).clamp(FRESH, OLDEST)
}

impl Collector {
    pub(crate) fn new(address: Address, asked: Asked) -> Self {
        Self(Arc::new(Mutex::new(State {
            address,
            asked,
            labels: Labels::default(),
            client: None,
            last: None,
        })))
    }

    /// The metrics of the whole database, of a few seconds ago, or of longer where reading takes
    /// long.
    pub(crate) async fn metrics(&self) -> anyhow::Result<Arc<Vec<Metric>>> {
        let mut state = self.0.lock().await;
        if let Some(last) = state.last.as_ref().filter(|last| last.is_fresh()) {
            return Ok(Arc::clone(&last.metrics));
        }
        let begun = Instant::now();
        let metrics = tokio::time::timeout(WITHIN, state.read()).await??;
        let last = Last {
            at: Instant::now(),
            took: begun.elapsed(),
            metrics: Arc::new(metrics),
        };
        let metrics = Arc::clone(&last.metrics);
        state.last = Some(last);
        Ok(metrics)
    }

    /// The same for Prometheus.
    pub(crate) async fn text(&self) -> anyhow::Result<String> {
        Ok(exposition::text(&self.metrics().await?))
    }
}

impl State {
    async fn read(&mut self) -> anyhow::Result<Vec<Metric>> {
        // Taken out, so that a reading that fails or is given up leaves no connection behind that
        // still answers the one before.
        let client = match self.client.take() {
            Some(client) => client,
            None => self.address.connect().await?,
        };
        let begun = Instant::now();
        let snapshot = Snapshot::read(&client).await?;
        self.client = Some(client);
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
