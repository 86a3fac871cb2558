//! What a whole database holds at one moment.

use std::collections::BTreeMap;

use deadpool_postgres::Client;
use posthaste::{Counters, HolderKind};
use posthaste_relay::RelayReport;

use crate::commands::status::tables;
use crate::kept;

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
    /// Held by a transaction with jobs in them.
    pub(crate) by_transaction: i64,
    /// Held by a lock on their tables.
    pub(crate) by_lock: i64,
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
        kept::bounded(client, Self::read_within(client)).await
    }

    async fn read_within(client: &Client) -> anyhow::Result<Self> {
        let mut counters = posthaste::Client::new(posthaste::Unnamed(client));
        let counters = counters.counters().await?;
        let syncs = tables::lines(client, &counters).await?;
        let segments = client.query_typed(include_str!("segments.sql"), &[]);
        let segments = segments.await?.first().map(|row| Segments {
            live: row.get(0),
            sealed: row.get(1),
            by_transaction: row.get(2),
            by_lock: row.get(3),
        });
        let horizon = posthaste::holders(client).await?;
        Ok(Self {
            relays: posthaste_relay::relays(client).await?,
            syncs,
            segments: segments.unwrap_or_default(),
            horizon: by_kind(&horizon),
            counters,
        })
    }
}

/// How far back each kind of holder keeps rows; nothing for a kind that holds nothing.
fn by_kind(holders: &[posthaste::Holder]) -> Vec<Holder> {
    let mut kinds: BTreeMap<&str, Holder> = BTreeMap::new();
    // What a replica keeps by a slot is the slot's.
    for holder in holders.iter().filter(|one| !one.is_by_slot) {
        let kind = match holder.kind {
            HolderKind::Prepared => "prepared",
            HolderKind::Replica => "replica",
            HolderKind::Slot => "slot",
            _ => "transaction",
        };
        let Some(transactions) = holder.transactions else {
            continue;
        };
        let all = kinds.entry(kind).or_insert_with(|| Holder {
            kind: kind.to_owned(),
            transactions,
            seconds: None,
        });
        all.transactions = all.transactions.max(transactions);
        let longest = all.seconds.into_iter().chain(holder.seconds);
        all.seconds = longest.reduce(f64::max);
    }
    kinds.into_values().collect()
}
