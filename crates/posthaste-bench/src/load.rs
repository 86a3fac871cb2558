//! A steady load: jobs committed at a fixed rate, whatever the server makes of it.

use std::time::Duration;

use anyhow::{Context, Result};
use futures_util::future::try_join_all;
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout_at};

use crate::clock::Clock;
use crate::contestants::posthaste::Producer;
use crate::database::Database;

/// How a load is offered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    pub(crate) jobs_per_second: u64,
    pub(crate) jobs_per_transaction: u64,
    pub(crate) producers: u64,
    pub(crate) duration: Duration,
}

impl Load {
    /// The load of the bars about churn: five jobs in each transaction, from four producers.
    pub(crate) fn churn(jobs_per_second: u64, seconds: u64) -> Self {
        Self {
            jobs_per_second,
            jobs_per_transaction: 5,
            producers: 4,
            duration: Duration::from_secs(seconds),
        }
    }

    /// Commits jobs whose arguments carry the time at which their transaction began; returns how many.
    ///
    /// A producer that falls behind commits without a pause until it has caught up, and fails when it is still
    /// behind long after its end: a load that was not offered would make every figure under it look good.
    pub(crate) async fn offer(self, database: &Database, clock: Clock) -> Result<u64> {
        let producers =
            try_join_all((0..self.producers).map(|_| Producer::connect(database))).await?;
        let period = Duration::from_secs_f64(
            (self.jobs_per_transaction * self.producers) as f64
                / self.jobs_per_second.max(1) as f64,
        );
        let ticks = (self.duration.as_secs_f64() / period.as_secs_f64()).round() as u64;
        let begun = Instant::now();
        let late = begun + self.duration.mul_f64(1.2) + Duration::from_secs(1);
        let offered = producers
            .into_iter()
            .zip(0_u32..)
            .map(|(mut producer, place)| async move {
                // Producers take turns within a period instead of committing at once.
                let mut pace = interval_at(
                    begun + period * place / self.producers.max(1) as u32,
                    period,
                );
                pace.set_missed_tick_behavior(MissedTickBehavior::Burst);
                for _ in 0..ticks {
                    pace.tick().await;
                    let numbers = vec![clock.now(); self.jobs_per_transaction as usize];
                    timeout_at(late, producer.commit(&numbers))
                        .await
                        .context("the load could not be offered in time")??;
                }
                anyhow::Ok(ticks * self.jobs_per_transaction)
            });
        Ok(try_join_all(offered).await?.into_iter().sum())
    }
}
