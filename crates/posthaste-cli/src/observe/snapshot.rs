//! What a whole database holds at one moment.

use deadpool_postgres::Client;
use posthaste::Counters;
use posthaste_relay::RelayReport;

use crate::commands::status::tables;

/// Read once for however many ask.
pub(crate) struct Snapshot {
    pub(crate) counters: Counters,
    pub(crate) relays: Vec<RelayReport>,
    pub(crate) syncs: Vec<tables::Line>,
    pub(crate) segments: Segments,
    pub(crate) horizon: Vec<Holder>,
}

/// Segments of the ready log.
#[derive(Default)]
pub(crate) struct Segments {
    pub(crate) live: i64,
    pub(crate) sealed: i64,
}

/// Who keeps rows from being removed.
pub(crate) struct Holder {
    /// `transaction`, `prepared`, `slot` or `replica`.
    pub(crate) kind: String,
    pub(crate) transactions: i64,
    /// For how long, where anybody knows.
    pub(crate) seconds: Option<f64>,
}

impl Snapshot {
    pub(crate) async fn read(client: &Client) -> anyhow::Result<Self> {
        let mut counters = posthaste::Client::new(posthaste::Unnamed(client));
        let counters = counters.counters().await?;
        let syncs = tables::lines(client, &counters).await?;
        let segments = client.query_typed(include_str!("segments.sql"), &[]);
        let segments = segments.await?.first().map(|row| Segments {
            live: row.get(0),
            sealed: row.get(1),
        });
        let horizon = client.query_typed(include_str!("horizon.sql"), &[]).await?;
        let horizon = horizon.iter().map(|row| Holder {
            kind: row.get(0),
            transactions: row.get(1),
            seconds: row.get(2),
        });
        Ok(Self {
            relays: posthaste_relay::relays(client).await?,
            syncs,
            segments: segments.unwrap_or_default(),
            horizon: horizon.collect(),
            counters,
        })
    }
}
