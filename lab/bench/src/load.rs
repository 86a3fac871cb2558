//! A steady load: jobs committed at a fixed rate, independent of the server's progress.

use std::time::Duration;

use anyhow::{Context, Result};
use futures_util::future::try_join_all;
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout_at};

use crate::clock::Clock;
use crate::contestants::posthaste::Producer;
use crate::database::Database;

/// The greatest delay of a producer. A later one does not offer the load, and the figures would
/// look better than they are.
const LATEST: Duration = Duration::from_secs(10);

/// The shape of a load.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    pub(crate) jobs_per_second: u64,
    pub(crate) jobs_per_transaction: u64,
    pub(crate) producers: u64,
    pub(crate) priority: i32,
}

impl Load {
    /// The load of the bars about churn: five jobs in each transaction, from four producers.
    pub(crate) fn churn(jobs_per_second: u64) -> Self {
        Self {
            jobs_per_second,
            jobs_per_transaction: 5,
            producers: 4,
            priority: 0,
        }
    }

    /// Sets the priority.
    pub(crate) fn at(self, priority: i32) -> Self {
        Self { priority, ..self }
    }

    /// Commits jobs for this many seconds, as [`Load::offer_while`] does.
    pub(crate) async fn offer(
        self,
        database: &Database,
        clock: Clock,
        seconds: u64,
    ) -> Result<u64> {
        let ticks = (seconds as f64 / self.period().as_secs_f64()).round() as u64;
        self.offer_while(database, clock, |tick| tick < ticks).await
    }

    /// Commits jobs whose arguments contain the time at which their transaction began, until
    /// `goes_on` returns false for a producer's next transaction; returns their number. A producer
    /// that is late commits without a pause until it has caught up.
    pub(crate) async fn offer_while(
        self,
        database: &Database,
        clock: Clock,
        goes_on: impl Fn(u64) -> bool,
    ) -> Result<u64> {
        let producers =
            try_join_all((0..self.producers).map(|_| Producer::connect(database))).await?;
        let (period, begun, goes_on) = (self.period(), Instant::now(), &goes_on);
        let offered = producers
            .into_iter()
            .zip(0_u32..)
            .map(|(mut producer, place)| async move {
                // Their commits are spread over a period instead of coinciding.
                let mut pace = interval_at(
                    begun + period * place / self.producers.max(1) as u32,
                    period,
                );
                pace.set_missed_tick_behavior(MissedTickBehavior::Burst);
                let mut ticks = 0;
                while goes_on(ticks) {
                    let due = pace.tick().await;
                    let numbers = vec![clock.now(); self.jobs_per_transaction as usize];
                    timeout_at(due + LATEST, producer.commit(&numbers, self.priority))
                        .await
                        .context("the load could not be offered in time")??;
                    ticks += 1;
                }
                anyhow::Ok(ticks * self.jobs_per_transaction)
            });
        Ok(try_join_all(offered).await?.into_iter().sum())
    }

    /// The time between two transactions of a producer.
    fn period(self) -> Duration {
        Duration::from_secs_f64(
            (self.jobs_per_transaction * self.producers) as f64
                / self.jobs_per_second.max(1) as f64,
        )
    }
}
