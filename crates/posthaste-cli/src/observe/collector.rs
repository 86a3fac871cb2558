//! Reads a whole database for however many ask, no oftener than so.

use std::sync::Arc;
use std::time::{Duration, Instant};

use deadpool_postgres::Client;
use tokio::sync::Mutex;

use super::exposition::{self, Metric};
use super::labels::{Asked, Labels};
use super::snapshot::Snapshot;
use crate::connect::Address;

/// A snapshot is shared for this long.
const FRESH: Duration = Duration::from_secs(4);
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
    last: Option<(Instant, Arc<Vec<Metric>>)>,
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

    /// The metrics of the whole database, a few seconds old at most.
    pub(crate) async fn metrics(&self) -> anyhow::Result<Arc<Vec<Metric>>> {
        let mut state = self.0.lock().await;
        if let Some((at, metrics)) = &state.last
            && at.elapsed() < FRESH
        {
            return Ok(Arc::clone(metrics));
        }
        let metrics = tokio::time::timeout(WITHIN, state.read()).await??;
        let metrics = Arc::new(metrics);
        state.last = Some((Instant::now(), Arc::clone(&metrics)));
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
        Ok(metrics)
    }
}
