//! The staged drain: one session moves jobs from Postgres to Redis, and workers take them there.
//!
//! A worker moves a job to its own list before it works, so that the jobs of a dead worker can be
//! returned.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;
use tokio::sync::{Notify, watch};
use tokio::time::{MissedTickBehavior, interval, sleep};
use tokio_postgres::Client;

use super::ledger::Ledger;
use super::parameters::{Prepared, Values};
use super::scene::Scene;
use super::worker::{CLAIM, Claimed, Pacing};

/// The list of waiting jobs.
const JOBS: &str = "jobs";

/// The longest time between two checks for dead workers.
const LOOK: Duration = Duration::from_secs(5);

/// The session that moves jobs.
pub(crate) struct Drain {
    client: Client,
    claim: Prepared,
    finish: Prepared,
    redis: MultiplexedConnection,
    ledger: Arc<Ledger>,
    rest: Duration,
}

impl Drain {
    /// Connects to Postgres and Redis.
    pub(crate) async fn connect(scene: &Scene<'_>, pacing: Pacing) -> Result<Self> {
        let client = scene.database.connect().await?;
        let statements = &scene.algorithm.statements;
        Ok(Self {
            claim: Prepared::new(&client, CLAIM, statements.get(CLAIM)?).await?,
            finish: Prepared::new(&client, "finish", statements.get("finish")?).await?,
            redis: connect(scene).await?,
            ledger: Arc::clone(&scene.ledger),
            rest: pacing.rest,
            client,
        })
    }

    /// Moves jobs until `going` turns false.
    pub(crate) async fn work(mut self, going: watch::Receiver<bool>) -> Result<()> {
        while *going.borrow() {
            if !self.turn().await? {
                sleep(self.rest).await;
            }
        }
        Ok(())
    }

    async fn turn(&mut self) -> Result<bool> {
        let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ";
        self.client.batch_execute(begin).await?;
        let mut values = Values::new(1, 0.0);
        let asked = Instant::now();
        let rows = self.claim.query(&self.client, &values).await?;
        let taken = asked.elapsed();
        if !rows.is_empty() {
            self.ledger.claimed(taken.as_secs_f64() * 1_000.0);
            let jobs = rows.iter().map(Claimed::read).collect::<Result<Vec<_>>>()?;
            let numbers: Vec<u64> = jobs.iter().map(|job| job.number).collect();
            let () = self.redis.rpush(JOBS, numbers).await?;
            values.ids = jobs.iter().map(|job| job.id).collect();
            self.finish.query(&self.client, &values).await?;
        }
        self.client.batch_execute("COMMIT").await?;
        Ok(!rows.is_empty())
    }
}

/// A worker that takes jobs from Redis.
pub(crate) struct RedisWorker {
    redis: MultiplexedConnection,
    place: usize,
    pacing: Pacing,
    ledger: Arc<Ledger>,
    death: Arc<Notify>,
}

impl RedisWorker {
    /// Connects.
    pub(crate) async fn connect(scene: &Scene<'_>, place: usize, pacing: Pacing) -> Result<Self> {
        Ok(Self {
            redis: connect(scene).await?,
            place,
            pacing,
            ledger: Arc::clone(&scene.ledger),
            death: Arc::default(),
        })
    }

    /// A handle that ends the worker in the middle of its next job.
    pub(crate) fn death(&self) -> Arc<Notify> {
        Arc::clone(&self.death)
    }

    /// Works until `going` turns false.
    pub(crate) async fn work(mut self, going: watch::Receiver<bool>) -> Result<()> {
        let (own, life) = (own_list(self.place), life(self.place));
        let lease = self.pacing.lease.as_millis() as u64;
        while *going.borrow() {
            let () = self.redis.pset_ex(life.as_str(), 1, lease).await?;
            let (from, to) = (redis::Direction::Left, redis::Direction::Right);
            let number: Option<u64> = self.redis.lmove(JOBS, own.as_str(), from, to).await?;
            let Some(number) = number else {
                sleep(self.pacing.rest).await;
                continue;
            };
            self.ledger.started(number);
            tokio::select! {
                () = sleep(self.pacing.of_job(number)) => {}
                () = self.death.notified() => return Ok(()),
            }
            let () = self.redis.lrem(own.as_str(), 1, number).await?;
            self.ledger.finished(number);
        }
        Ok(())
    }
}

/// Returns the jobs of dead workers to the queue.
pub(crate) async fn rescue(
    scene: &Scene<'_>,
) -> Result<impl Future<Output = Result<()>> + Send + use<>> {
    let mut redis = connect(scene).await?;
    let (workers, period, going) = (
        scene.scenario.work.workers,
        (scene.lease / 2).min(LOOK),
        scene.going.clone(),
    );
    Ok(async move {
        let mut pace = interval(period);
        pace.set_missed_tick_behavior(MissedTickBehavior::Skip);
        while *going.borrow() {
            pace.tick().await;
            for place in 0..workers {
                let lives: bool = redis.exists(life(place)).await?;
                if !lives {
                    put_back(&mut redis, place).await?;
                }
            }
        }
        Ok(())
    })
}

async fn put_back(redis: &mut MultiplexedConnection, place: usize) -> Result<()> {
    loop {
        let (from, to) = (redis::Direction::Left, redis::Direction::Left);
        let back: Option<u64> = redis.lmove(own_list(place), JOBS, from, to).await?;
        if back.is_none() {
            return Ok(());
        }
    }
}

/// The number of jobs in Redis.
pub(crate) async fn remaining(scene: &Scene<'_>) -> Result<u64> {
    let mut redis = connect(scene).await?;
    let mut all: u64 = redis.llen(JOBS).await?;
    for place in 0..scene.scenario.work.workers {
        let own: u64 = redis.llen(own_list(place)).await?;
        all += own;
    }
    Ok(all)
}

async fn connect(scene: &Scene<'_>) -> Result<MultiplexedConnection> {
    let url = scene.redis.context("the drain has no Redis")?;
    Ok(redis::Client::open(url)?
        .get_multiplexed_async_connection()
        .await?)
}

fn own_list(place: usize) -> String {
    format!("working:{place}")
}

fn life(place: usize) -> String {
    format!("life:{place}")
}
