//! Metrics of a whole database, shared by concurrent scrapes.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::anyhow;
use posthaste_observe::{Snapshot, Source, Thresholds, findings};
use tokio::sync::Mutex;

use super::exposition::{self, Metric};
use super::labels::{ExtraLabels, Labels};
use crate::cached_connection::{self, CachedConnection};
use crate::connect::Address;
use crate::failure;

/// The minimum time for which a read is shared.
const MIN_READ_INTERVAL: Duration = Duration::from_secs(4);
/// The time limit of a read. Prometheus waits for ten seconds: a slow database must be reported as
/// down before that.
const READ_TIMEOUT: Duration = Duration::from_secs(8);

/// Metrics of a whole database, read so rarely that reading costs little.
#[derive(Clone)]
pub(crate) struct Collector(posthaste_observe::Collector<Database>);

struct Database {
    asked: ExtraLabels,
    thresholds: Thresholds,
    state: Mutex<State>,
}

struct State {
    labels: Labels,
    connection: CachedConnection,
}

impl Collector {
    pub(crate) fn new(address: Address, asked: ExtraLabels, thresholds: Thresholds) -> Self {
        let database = Database {
            asked,
            thresholds,
            state: Mutex::new(State {
                labels: Labels::default(),
                connection: CachedConnection::new(&address),
            }),
        };
        Self(posthaste_observe::Collector::new(
            database,
            MIN_READ_INTERVAL,
            READ_TIMEOUT,
        ))
    }

    /// Returns the metrics of the database. They are a few seconds old, or older if reading takes
    /// long.
    pub(crate) async fn metrics(&self) -> anyhow::Result<Arc<Vec<Metric>>> {
        self.0.get().await.map_err(|error| anyhow!("{error}"))
    }

    /// Returns the metrics as text for Prometheus.
    pub(crate) async fn text(&self) -> anyhow::Result<String> {
        Ok(exposition::prometheus_text(&self.metrics().await?))
    }
}

impl Source for Database {
    type Output = Arc<Vec<Metric>>;
    type Error = String;

    async fn read(&self) -> Result<Self::Output, String> {
        let read = self.metrics().await;
        read.map(Arc::new)
            .map_err(|error| failure::error_line(&error))
    }

    fn timeout_error(&self, _within: Duration) -> String {
        "the database does not answer".to_owned()
    }
}

impl Database {
    async fn metrics(&self) -> anyhow::Result<Vec<Metric>> {
        let mut state = self.state.lock().await;
        let client = state.connection.take_or_connect().await?;
        let begun = Instant::now();
        let snapshot = cached_connection::read_bounded(&client, async {
            let mut snapshot = Snapshot::read(&client).await?;
            snapshot.read_syncs(&client).await?;
            Ok(snapshot)
        });
        let snapshot = snapshot.await?;
        state.connection.put_back(client);
        let mut watched = snapshot.clone();
        watched.leave_out_tags(&self.asked.exempt);
        let found = findings(&watched, &self.thresholds);
        let unworked = snapshot.queues_without_worker(&self.thresholds);
        let labels = &mut state.labels;
        let mut metrics = exposition::metrics(&snapshot, &unworked, labels, &self.asked);
        metrics.extend(exposition::alerts(&watched, &found, labels));
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
