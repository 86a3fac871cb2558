//! Reads a whole database for however many ask, no oftener than so.

use std::sync::Arc;
use std::time::{Duration, Instant};

use deadpool_postgres::Client;
use tokio::sync::Mutex;

use super::exposition;
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
    last: Option<(Instant, String)>,
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
    pub(crate) async fn text(&self) -> anyhow::Result<String> {
        let mut state = self.0.lock().await;
        if let Some((at, text)) = &state.last
            && at.elapsed() < FRESH
        {
            return Ok(text.clone());
        }
        let text = tokio::time::timeout(WITHIN, state.read()).await??;
        state.last = Some((Instant::now(), text.clone()));
        Ok(text)
    }
}

impl State {
    async fn read(&mut self) -> anyhow::Result<String> {
        // Taken out, so that a reading that fails or is given up leaves no connection behind that
        // still answers the one before.
        let client = match self.client.take() {
            Some(client) => client,
            None => self.address.connect().await?,
        };
        let begun = Instant::now();
        let snapshot = Snapshot::read(&client).await?;
        self.client = Some(client);
        let mut text = exposition::text(&snapshot, &mut self.labels, &self.asked);
        let seconds = begun.elapsed().as_secs_f64();
        text.push_str(&format!(
            "# HELP posthaste_scrape_seconds How long the database took to answer.\n\
             # TYPE posthaste_scrape_seconds gauge\nposthaste_scrape_seconds {seconds}\n"
        ));
        Ok(text)
    }
}
