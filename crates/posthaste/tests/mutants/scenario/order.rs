//! Jobs that wait for the turn of their ordering key.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use posthaste_testkit::connect;

use super::Scenario;
use crate::order::without_workers::Store;

/// Forty jobs of one key, two of which are cancelled while they wait, while their slots are
/// emptied.
pub const ORDERING: Scenario = Scenario::new("an ordering key whose slots are emptied", |url| {
    async move {
        let played = AssertUnwindSafe(ordering(url)).catch_unwind().await;
        played.map_err(|_| anyhow::anyhow!("the order is not kept"))?
    }
    .boxed_local()
});

async fn ordering(url: String) -> anyhow::Result<()> {
    let store = Store::new(connect(&url).await?).await;
    let mut ids = Vec::new();
    for n in 0..30 {
        ids.push(store.enqueue(n).await);
    }
    store.turns().await;
    for n in (0..40).filter(|n| ![10, 20].contains(n)) {
        let id = ids[n];
        let job = store.claim().await;
        let job = job.ok_or_else(|| anyhow::anyhow!("nobody came where {id} was next"))?;
        anyhow::ensure!(job.id == id, "{} came where {id} was next", job.id);
        if n == 9 || n == 18 {
            // One that is next, and one that is not.
            let cancelled = ids[if n == 9 { 10 } else { 20 }];
            let cancel = "SELECT posthaste.cancel($1)";
            store.client.execute(cancel, &[&cancelled]).await?;
        }
        // A slot is left, carried over and emptied while its job runs.
        for _ in 0..3 {
            let tidy = "SELECT posthaste.tidy_scheduled(4)";
            store.client.execute(tidy, &[]).await?;
            let carry = "SELECT posthaste.promote(100, true)";
            store.client.execute(carry, &[]).await?;
        }
        // Other jobs come while the key is taken.
        if n % 3 == 0 && ids.len() < 40 {
            ids.push(store.enqueue(30).await);
        }
        store.nobody().await;
        store.settle(&job, 0).await;
        store.turns().await;
    }
    let left = "SELECT count(*) FROM posthaste.job WHERE state <> 'cancelled'";
    let left = store.number(left).await;
    anyhow::ensure!(left == 0, "{left} jobs are left");
    Ok(())
}
