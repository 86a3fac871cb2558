//! Reads a whole database for however many ask, no oftener than so.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use posthaste::{Client, Unnamed};
use tokio::sync::Mutex;

use super::exposition::{self, Metric};
use super::labels::{Asked, Labels};
use super::snapshot::Snapshot;
use crate::connect::Address;

type PoolClient = deadpool_postgres::Client;

/// A snapshot is shared for this long,
const FRESH: Duration = Duration::from_secs(4);
/// longer while reading takes long, so that it takes a fiftieth of the time, and while more than
/// this is still to be counted by a worker; but for no longer than this.
const MANY: u32 = 50_000;
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
    client: Option<PoolClient>,
    last: Option<Last>,
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
        if let Some(metrics) = tokio::time::timeout(WITHIN, state.kept()).await?? {
            return Ok(metrics);
        }
        let begun = Instant::now();
        let metrics = Arc::new(tokio::time::timeout(WITHIN, state.read()).await??);
        let at = Instant::now();
        state.last = Some(Last {
            at,
            until: at + pause(at - begun),
            metrics: Arc::clone(&metrics),
        });
        Ok(metrics)
    }

    /// The same for Prometheus.
    pub(crate) async fn text(&self) -> anyhow::Result<String> {
        Ok(exposition::text(&self.metrics().await?))
    }
}

impl State {
    /// What was read last, where that will do.
    async fn kept(&mut self) -> anyhow::Result<Option<Arc<Vec<Metric>>>> {
        let now = Instant::now();
        let Some(mut last) = self.last.take_if(|last| now < last.at + OLDEST) else {
            return Ok(None);
        };
        if last.until <= now {
            let client = self.client().await?;
            let many = Client::new(Unnamed(&client)).uncounted(MANY).await? == MANY;
            self.client = Some(client);
            if !many {
                return Ok(None);
            }
            last.until = Instant::now() + FRESH;
        }
        let last = self.last.insert(last);
        Ok(Some(Arc::clone(&last.metrics)))
    }

    /// Taken out, so that what fails or is given up leaves no connection behind that still answers
    /// what was asked before.
    async fn client(&mut self) -> anyhow::Result<PoolClient> {
        match self.client.take() {
            Some(client) => Ok(client),
            None => self.address.connect().await,
        }
    }

    async fn read(&mut self) -> anyhow::Result<Vec<Metric>> {
        let client = self.client().await?;
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
