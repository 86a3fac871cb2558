//! Many transfers at once by the coordinator.

use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use posthaste_elastic::two_phase::{Failure, Transaction};

use super::ground::{ACCOUNTS, AT_ONCE, Ground, account, at_once, pair};
use super::{LATENCY, RATE};
use crate::rounds::Figures;
use crate::statistics::{greatest, percentile};
use crate::taint::Watch;

/// The number of concurrent transfers on one account.
pub(super) const ON_ONE: usize = 250;
pub(super) const STARVED: &str = "starved";

/// Runs many transfers at once.
pub(super) async fn transfers(ground: &Ground, count: usize) -> Result<Figures> {
    let indexes = ground.indexes();
    let coordinator = ground.coordinator(&indexes).await?;
    let watch = Watch::begin()?;
    let (rate, taken) = at_once(count, AT_ONCE, async |at| {
        let (from, to) = pair(at);
        let transfer = Transaction::transfer(&format!("t{at}"), &from, &to, 1)?;
        Ok(coordinator.run(&transfer).await?)
    })
    .await?;
    let figures = Figures::measured_under(watch.finish()?);
    ground.clear(&indexes).await?;
    Ok(figures
        .with(LATENCY, percentile(&taken, 0.5))
        .with("p99_ms", percentile(&taken, 0.99))
        .with(RATE, rate))
}

/// Runs all transfers from one account. A transfer that does not end by itself counts as starved
/// and is left to recovery.
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
            Err(Failure::Open(_) | Failure::Ambiguous(_) | Failure::RolledBack(_)) => {
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
