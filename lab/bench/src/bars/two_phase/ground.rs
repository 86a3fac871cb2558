//! Indexes for each run, and concurrent execution of an operation.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use anyhow::Result;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use posthaste_elastic::Client;
use posthaste_elastic::two_phase::Coordinator;

/// The number of transfers in flight.
pub(super) const AT_ONCE: usize = 32;
/// The number of accounts: enough that transfers in flight share none.
pub(super) const ACCOUNTS: usize = 8 * AT_ONCE;
/// The initial balance: no account runs out of money.
pub(super) const BALANCE: i64 = 1_000_000;

/// A server on which each run has separate indexes.
pub(super) struct Ground {
    pub(super) client: Client,
    runs: AtomicU32,
}

impl Ground {
    pub(super) fn on(url: &str) -> Result<Self> {
        let client = Client::new(reqwest::Client::builder().no_proxy(), url)?;
        let runs = AtomicU32::new(0);
        Ok(Self { client, runs })
    }

    /// The names of the indexes of accounts and transactions for the next run.
    pub(super) fn indexes(&self) -> [String; 2] {
        let run = self.runs.fetch_add(1, Ordering::Relaxed);
        ["accounts", "transactions"].map(|kind| format!("{kind}-{run}"))
    }

    /// Creates a coordinator with accounts.
    pub(super) async fn coordinator(&self, indexes: &[String; 2]) -> Result<Coordinator> {
        let [accounts, transactions] = indexes;
        let coordinator = Coordinator::new(self.client.clone(), accounts, transactions);
        coordinator.prepare(0).await?;
        at_once(ACCOUNTS, AT_ONCE, async |at| {
            coordinator.open(&account(at), BALANCE).await?;
            Ok(())
        })
        .await?;
        Ok(coordinator)
    }

    /// Deletes the indexes of a run, which would slow down the next one.
    pub(super) async fn clear(&self, indexes: &[String; 2]) -> Result<()> {
        for index in indexes {
            self.client.delete_index(index).await?;
        }
        Ok(())
    }
}

pub(super) fn account(at: usize) -> String {
    format!("a{}", at % ACCOUNTS)
}

/// The two accounts of a transfer.
pub(super) fn pair(at: usize) -> (String, String) {
    (account(2 * at), account(2 * at + 1))
}

/// Runs an operation concurrently. Measures the operations per second, and the milliseconds of
/// each.
pub(super) async fn at_once(
    count: usize,
    under_way: usize,
    once: impl AsyncFn(usize) -> Result<()>,
) -> Result<(f64, Vec<f64>)> {
    let begun = Instant::now();
    let once = &once;
    let all = (0..count).map(|at| async move {
        let begun = Instant::now();
        once(at).await?;
        anyhow::Ok(begun.elapsed().as_secs_f64() * 1_000.0)
    });
    let taken = stream::iter(all).buffer_unordered(under_way);
    let taken: Vec<f64> = taken.try_collect().await?;
    Ok((count as f64 / begun.elapsed().as_secs_f64(), taken))
}
