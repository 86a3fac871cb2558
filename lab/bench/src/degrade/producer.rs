//! The producer: transactions at a steady rate, independent of the queue's progress.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use futures_util::future::try_join_all;
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tokio_postgres::Client;

use super::algorithm::{Algorithm, Manner};
use super::ledger::Ledger;
use super::parameters::{Prepared, Values};
use super::scenario::Shape;
use super::scene::Scene;
use crate::contestants::posthaste::paced;
use crate::database::Database;

/// The number of transactions per second of one connection on a slow disk.
const TRANSACTIONS_PER_PRODUCER: f64 = 150.0;
const MOST_PRODUCERS: f64 = 24.0;

/// The number of jobs that are sent to the server before the first is answered.
const PIPELINED: u64 = 500;

/// The first number of jobs that roll back; no job of the ledger has it.
const FIRST_UNCOMMITTED: u64 = 1 << 40;

/// A connection that commits jobs.
struct Producer {
    client: Client,
    enqueue: Option<Prepared>,
    values: Values,
    pad: String,
    shape: Shape,
    open: Duration,
    ledger: Arc<Ledger>,
}

/// Starts the producers; they end when `going` turns false.
pub(crate) async fn start(scene: &Scene<'_>, tasks: &mut JoinSet<Result<()>>) -> Result<()> {
    let scenario = scene.scenario;
    let shape = scenario.produce.shape;
    let transactions = scenario.rate() / f64::from(shape.per_transaction);
    let producers = producers(transactions, scenario.real(shape.open));
    let period = Duration::from_secs_f64(f64::from(producers) / transactions);
    let mut connected = Vec::new();
    for _ in 0..producers {
        connected.push(Producer::connect(scene).await?);
    }
    let begun = Instant::now();
    for (producer, place) in connected.into_iter().zip(0_u32..) {
        // Their commits are spread over a period instead of coinciding.
        let first = begun + period * place / producers;
        tasks.spawn(producer.offer(first, period, scene.going.clone()));
    }
    Ok(())
}

/// Inserts jobs into a transaction that stays open; returns its connection.
pub(crate) async fn insert_uncommitted(
    database: &Database,
    algorithm: &Algorithm,
    jobs: u64,
) -> Result<Client> {
    let client = database.connect().await?;
    let enqueue = prepare_enqueue(&client, algorithm).await?;
    client.batch_execute("BEGIN").await?;
    for first in (0..jobs).step_by(PIPELINED as usize) {
        let numbers = FIRST_UNCOMMITTED + first..FIRST_UNCOMMITTED + jobs.min(first + PIPELINED);
        match &enqueue {
            Some(enqueue) => {
                let inserts = numbers.map(|number| {
                    let mut values = Values::new(1, 0.0);
                    values.args = json!({"n": number, "pad": ""});
                    let client = &client;
                    async move { enqueue.query(client, &values).await }
                });
                try_join_all(inserts).await?;
            }
            None => paced::insert(&client, &numbers.collect::<Vec<_>>(), "").await?,
        }
    }
    Ok(client)
}

async fn prepare_enqueue(client: &Client, algorithm: &Algorithm) -> Result<Option<Prepared>> {
    if algorithm.manner == Manner::Library {
        return Ok(None);
    }
    let text = algorithm.statements.get("enqueue")?;
    Ok(Some(Prepared::new(client, "enqueue", text).await?))
}

/// The number of connections for this many transactions per second, each open for this long.
fn producers(transactions: f64, open: Duration) -> u32 {
    let waiting = transactions * open.as_secs_f64();
    (transactions / TRANSACTIONS_PER_PRODUCER + waiting)
        .ceil()
        .clamp(1.0, MOST_PRODUCERS) as u32
}

impl Producer {
    async fn connect(scene: &Scene<'_>) -> Result<Self> {
        let client = scene.database.connect().await?;
        let enqueue = prepare_enqueue(&client, scene.algorithm).await?;
        let shape = scene.scenario.produce.shape;
        Ok(Self {
            client,
            enqueue,
            values: Values::new(1, 0.0),
            pad: "x".repeat(shape.payload),
            shape,
            open: scene.scenario.real(shape.open),
            ledger: Arc::clone(&scene.ledger),
        })
    }

    async fn offer(
        mut self,
        first: Instant,
        period: Duration,
        going: watch::Receiver<bool>,
    ) -> Result<()> {
        let mut pace = interval_at(first, period);
        pace.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let mut transactions = 0_u64;
        while *going.borrow() {
            let due = pace.tick().await;
            self.ledger.late(due.elapsed().as_secs_f64());
            transactions += 1;
            let fails = rolls_back(transactions, self.shape.rollback);
            self.transact(fails).await?;
        }
        Ok(())
    }

    async fn transact(&mut self, fails: bool) -> Result<()> {
        let numbers = self.ledger.offer(self.shape.per_transaction);
        self.client.batch_execute("BEGIN").await?;
        match &self.enqueue {
            Some(enqueue) => {
                for number in numbers.clone() {
                    self.values.args = json!({"n": number, "pad": self.pad});
                    enqueue.query(&self.client, &self.values).await?;
                }
            }
            None => {
                let all: Vec<u64> = numbers.clone().collect();
                paced::insert(&self.client, &all, &self.pad).await?;
            }
        }
        if !self.open.is_zero() {
            tokio::time::sleep(self.open).await;
        }
        if fails {
            self.client.batch_execute("ROLLBACK").await?;
            self.ledger.rolled_back(numbers);
        } else {
            self.client.batch_execute("COMMIT").await?;
            self.ledger.committed(numbers);
        }
        Ok(())
    }
}

/// Whether the n-th transaction rolls back, so that the share of rollbacks is `share`.
fn rolls_back(n: u64, share: f64) -> bool {
    (n as f64 * share).floor() > ((n - 1) as f64 * share).floor()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{producers, rolls_back};

    #[test]
    fn the_share_of_rollbacks_is_kept() {
        let failed = |share| (1..=1_000).filter(|n| rolls_back(*n, share)).count();
        assert_eq!((failed(0.0), failed(0.25), failed(0.5)), (0, 250, 500));
    }

    #[test]
    fn transactions_that_stay_open_take_more_connections() {
        assert_eq!(producers(50.0, Duration::ZERO), 1);
        assert_eq!(producers(1_000.0, Duration::ZERO), 7);
        assert_eq!(producers(50.0, Duration::from_millis(100)), 6);
    }
}
