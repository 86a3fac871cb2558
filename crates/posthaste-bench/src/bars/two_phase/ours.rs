//! Transfers by the coordinator, and the requests that one is made of.

use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use posthaste_elastic::two_phase::{Failure, Transaction};
use posthaste_elastic::{Operation, Reading, Script, Source};
use serde_json::json;

use super::ground::{ACCOUNTS, AT_ONCE, Ground, account, at_once, one_by_one, pair};
use super::{LATENCY, RATE};
use crate::rounds::Figures;
use crate::statistics::{greatest, percentile};
use crate::taint::Watch;

/// Hundreds at once on one account.
pub(super) const ON_ONE: usize = 250;
pub(super) const STARVED: &str = "starved";
/// One transfer at a time, until it is finished.
pub(super) const FINISHED: &str = "median_finished_ms";
/// Writes of a transfer each of which waits for the one before: create, hold, commit, settle. Before them is a read, behind them the one that says finished.
const WRITES: f64 = 4.0;
pub(super) const REMARK: &str = "Until a transfer is settled it takes five round trips, each of which waits for the one before: both accounts are looked at, the transaction is created, both \
     accounts hold it, it is committed, both are settled. One more says that it is finished: `run` waits for it, `run_to_settled` does not. The chain of requests is measured in the same round, \
     by a read of two documents and four or five times one update by script. The latency beside the seven updates is that of `run_to_settled`; the rate is that of `run`, which \
     leaves nothing undone. On the hot account hundreds are under way at once, each to another account: the slowest is told beside the median.";
const COUNT: (&str, &str) = ("bench-count", "ctx._source.balance += params.by");

/// What one request of each kind takes, one after the other.
pub(super) async fn chain(ground: &Ground, count: usize) -> Result<Figures> {
    let indexes = ground.indexes();
    let coordinator = ground.coordinator(&indexes).await?;
    let client = coordinator.client();
    client.put_script(COUNT.0, COUNT.1).await?;
    let script = Script {
        id: COUNT.0,
        params: json!({"by": 1}),
    };
    let watch = Watch::begin()?;
    let writes = one_by_one(count / 4, async |at| {
        let update = Operation::update(&indexes[0], &account(at), &script)?;
        client.write(&update.retried(3)).await?;
        Ok(())
    })
    .await?;
    let reads = one_by_one(count / 4, async |at| {
        let (from, to) = pair(at);
        let both = [from.as_str(), to.as_str()];
        let read = client.multi_get(&indexes[0], &both, Reading::Latest, Source::Whole);
        read.await?;
        Ok(())
    })
    .await?;
    let figures = Figures::measured_under(watch.finish()?);
    ground.clear(&indexes).await?;
    let (write, read) = (percentile(&writes, 0.5), percentile(&reads, 0.5));
    Ok(figures
        .with("write_ms", write)
        .with("read_ms", read)
        .with(LATENCY, read + WRITES * write)
        .with(FINISHED, read + (WRITES + 1.0) * write))
}

/// One after the other, then many at once.
pub(super) async fn transfers(ground: &Ground, count: usize) -> Result<Figures> {
    let indexes = ground.indexes();
    let coordinator = ground.coordinator(&indexes).await?;
    let transfer = |kind: &str, at: usize| {
        let (from, to) = pair(at);
        Transaction::transfer(&format!("{kind}{at}"), &from, &to, 1)
    };
    let watch = Watch::begin()?;
    let settled = one_by_one(count / 8, async |at| {
        Ok(coordinator
            .run_to_settled(&transfer("settled", at)?)
            .await?)
    })
    .await?;
    let finished = one_by_one(count / 8, async |at| {
        Ok(coordinator.run(&transfer("finished", at)?).await?)
    })
    .await?;
    let (rate, _) = at_once(count, AT_ONCE, async |at| {
        Ok(coordinator.run(&transfer("many", at)?).await?)
    })
    .await?;
    let figures = Figures::measured_under(watch.finish()?);
    ground.clear(&indexes).await?;
    Ok(figures
        .with(LATENCY, percentile(&settled, 0.5))
        .with("p99_ms", percentile(&settled, 0.99))
        .with(FINISHED, percentile(&finished, 0.5))
        .with(RATE, rate))
}

/// All from one account. Who does not come to an end by itself is starved, and left to recovery.
pub(super) async fn hot(ground: &Ground, count: usize) -> Result<Figures> {
    let indexes = ground.indexes();
    let coordinator = ground.coordinator(&indexes).await?;
    let starved = AtomicU64::new(0);
    let watch = Watch::begin()?;
    let (rate, taken) = at_once(count, ON_ONE, async |at| {
        let to = account(1 + at % (ACCOUNTS - 1));
        let transfer = Transaction::transfer(&format!("t{at}"), &account(0), &to, 1)?;
        match coordinator.run(&transfer).await {
            Ok(()) => {}
            Err(Failure::Open(_) | Failure::RolledBack(_)) => {
                starved.fetch_add(1, Ordering::Relaxed);
            }
            Err(other) => return Err(other.into()),
        }
        Ok(())
    })
    .await?;
    let figures = Figures::measured_under(watch.finish()?);
    ground.clear(&indexes).await?;
    Ok(figures
        .with(LATENCY, percentile(&taken, 0.5))
        .with("p99_ms", percentile(&taken, 0.99))
        .with("slowest_ms", greatest(&taken))
        .with(STARVED, starved.into_inner() as f64)
        .with(RATE, rate))
}
