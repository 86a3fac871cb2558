//! Producers: what programs do around an enqueue. Each transaction records its expectations in the
//! table `expected`.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_postgres::{Client, Error, Statement};

use super::Stress;
use super::session::{connect, describe, is_serialization};

/// Queues that are always worked, and the one that is not worked at first.
pub const QUEUES: [&str; 3] = ["a", "b", "c"];
pub const PAUSED: &str = "paused";
/// All priorities, in the order of claiming.
pub const PRIORITIES: [i32; 3] = [-7, 0, 3];

/// Keys are unique within a process.
static KEYS: AtomicI64 = AtomicI64::new(1);

const BULK: &str = "
    INSERT INTO posthaste.job (name, queue, priority, scheduled_at, expires_at, kwargs,
                               max_attempts)
    SELECT 'stress', $1, $2,
           statement_timestamp()
             + CASE WHEN $8 THEN 1 ELSE random() END * $3::float8 * interval '1 s',
           clock_timestamp() + $4::float8 * interval '1 s',
           jsonb_build_object('key', $5::bigint + i, 'pad', repeat('x', $6::integer)), NULL
      FROM generate_series(0, $7::integer - 1) i";
const SINGLE: &str = "
    SELECT posthaste.enqueue('stress', jsonb_build_object('key', $1::bigint), $2, $3,
           clock_timestamp() + random() * $4::float8 * interval '1 s', unique_key => $5,
           max_attempts => NULL)";
const EXPECTED: &str = "INSERT INTO expected (key, expired) SELECT $1::bigint + i, $2 \
                        FROM generate_series(0, $3::integer - 1) i";

/// Starts all producers.
pub fn start(stress: &Arc<Stress>, tasks: &mut JoinSet<Result<(), String>>) {
    for _ in 0..stress.settings.producers {
        tasks.spawn(short(Arc::clone(stress)));
    }
    for _ in 0..stress.settings.long_producers {
        tasks.spawn(long(Arc::clone(stress), "REPEATABLE READ"));
        tasks.spawn(long(Arc::clone(stress), "SERIALIZABLE"));
        tasks.spawn(late(Arc::clone(stress)));
        tasks.spawn(prepared(Arc::clone(stress)));
    }
}

/// A connection that enqueues.
struct Producer {
    client: Client,
    bulk: Statement,
    single: Statement,
    expected: Statement,
}

impl Producer {
    async fn new(url: &str) -> Result<Self, String> {
        let client = connect(url).await?;
        let prepare = async |sql| {
            client
                .prepare(sql)
                .await
                .map_err(|error| describe(sql, &error))
        };
        Ok(Self {
            bulk: prepare(BULK).await?,
            single: prepare(SINGLE).await?,
            expected: prepare(EXPECTED).await?,
            client,
        })
    }

    async fn say(&self, sql: &str) -> Result<(), Error> {
        self.client.batch_execute(sql).await
    }

    /// Enqueues this many jobs in the open transaction, by one of the possible methods, and records
    /// that in `expected`.
    async fn enqueue(&self, jobs: i32) -> Result<(), Error> {
        let queue = match fastrand::u32(0..20) {
            0 => PAUSED,
            _ => fastrand::choice(QUEUES).unwrap_or("a"),
        };
        let priority = fastrand::choice(PRIORITIES).unwrap_or(0);
        // The longest delay in seconds: most jobs are due at once, some very soon, some later.
        let ahead = match fastrand::u32(0..20) {
            0..=2 => 0.05,
            3..=4 => 2.0,
            _ => 0.0,
        };
        let key = KEYS.fetch_add(i64::from(jobs), Ordering::Relaxed);
        let expired = jobs > 1 && fastrand::u32(0..40) == 0;
        let expires = if expired { -1.0 } else { 3600.0 };
        if jobs == 1 && fastrand::bool() {
            let unique = (fastrand::u32(0..3) == 0).then(|| format!("unique {key}"));
            self.client
                .query(&self.single, &[&key, &queue, &priority, &ahead, &unique])
                .await?;
        } else {
            let (pad, one_instant) = (fastrand::i32(0..120), fastrand::bool());
            self.client
                .execute(
                    &self.bulk,
                    &[
                        &queue,
                        &priority,
                        &ahead,
                        &expires,
                        &key,
                        &pad,
                        &jobs,
                        &one_instant,
                    ],
                )
                .await?;
        }
        self.client
            .execute(&self.expected, &[&key, &expired, &jobs])
            .await
            .map(drop)
    }
}

/// Runs short READ COMMITTED transactions with savepoints, rollbacks and some that stay open for up
/// to 100 ms.
async fn short(stress: Arc<Stress>) -> Result<(), String> {
    let producer = Producer::new(&stress.url).await?;
    // This tests concurrency, not the disk.
    producer
        .say("SET synchronous_commit = off")
        .await
        .map_err(|error| describe("preparing", &error))?;
    while stress.producing() {
        short_once(&producer)
            .await
            .map_err(|error| describe("a short producer", &error))?;
        sleep(Duration::from_millis(fastrand::u64(0..6))).await;
    }
    Ok(())
}

async fn short_once(producer: &Producer) -> Result<(), Error> {
    producer.say("BEGIN ISOLATION LEVEL READ COMMITTED").await?;
    producer.enqueue(fastrand::i32(1..8)).await?;
    if fastrand::u32(0..10) == 0 {
        sleep(Duration::from_millis(fastrand::u64(0..100))).await;
    }
    if fastrand::u32(0..4) == 0 {
        producer.say("SAVEPOINT outer_one").await?;
        producer.enqueue(1).await?;
        producer.say("SAVEPOINT inner_one").await?;
        producer.enqueue(fastrand::i32(1..3)).await?;
        match fastrand::u32(0..4) {
            0 => producer.say("ROLLBACK TO inner_one").await?,
            1 => producer.say("ROLLBACK TO outer_one").await?,
            2 => {
                producer.say("ROLLBACK TO outer_one").await?;
                producer.enqueue(1).await?;
            }
            _ => {}
        }
    }
    let end = if fastrand::u32(0..10) == 0 {
        "ROLLBACK"
    } else {
        "COMMIT"
    };
    producer.say(end).await
}

/// Runs transactions that take their snapshot long before they enqueue and commit long after. All
/// long ones begin together, so that the ready log rotates freely in between.
async fn long(stress: Arc<Stress>, isolation: &str) -> Result<(), String> {
    let producer = Producer::new(&stress.url).await?;
    while stress.producing() {
        wait_for_turn(&stress).await;
        if let Err(error) = long_once(&producer, isolation, stress.settings.long).await {
            if !is_serialization(&error) {
                return Err(describe(isolation, &error));
            }
            producer
                .say("ROLLBACK")
                .await
                .map_err(|error| describe(isolation, &error))?;
        }
    }
    Ok(())
}

async fn long_once(producer: &Producer, isolation: &str, long: Duration) -> Result<(), Error> {
    producer
        .say(&format!("BEGIN ISOLATION LEVEL {isolation}"))
        .await?;
    // Takes the snapshot; some also have their xid long before they enqueue.
    producer
        .say(if fastrand::bool() {
            "SELECT 1 FROM expected LIMIT 1"
        } else {
            "SELECT pg_current_xact_id() FROM expected LIMIT 1"
        })
        .await?;
    sleep(long).await;
    producer.enqueue(2).await?;
    sleep(long.mul_f64(0.9)).await;
    producer.enqueue(1).await?;
    producer.say("COMMIT").await
}

/// Runs transactions that enqueue and then commit after their scheduled jobs became due.
async fn late(stress: Arc<Stress>) -> Result<(), String> {
    let producer = Producer::new(&stress.url).await?;
    let once = async |long: Duration| {
        producer.say("BEGIN").await?;
        producer.enqueue(3).await?;
        sleep(long.mul_f64(0.7 + fastrand::f64() / 4.0)).await;
        producer.enqueue(3).await?;
        producer.say("COMMIT").await
    };
    while stress.producing() {
        wait_for_turn(&stress).await;
        sleep(stress.settings.long).await;
        once(stress.settings.long)
            .await
            .map_err(|error| describe("a late producer", &error))?;
    }
    Ok(())
}

/// Runs prepared transactions, which no session holds.
async fn prepared(stress: Arc<Stress>) -> Result<(), String> {
    let producer = Producer::new(&stress.url).await?;
    let once = async |long: Duration| {
        let name = format!("stress {}", KEYS.fetch_add(1, Ordering::Relaxed));
        producer.say("BEGIN").await?;
        producer.enqueue(fastrand::i32(1..5)).await?;
        producer
            .say(&format!("PREPARE TRANSACTION '{name}'"))
            .await?;
        sleep(long.mul_f64(fastrand::f64() * 0.9)).await;
        let end = if fastrand::u32(0..3) == 0 {
            "ROLLBACK"
        } else {
            "COMMIT"
        };
        producer.say(&format!("{end} PREPARED '{name}'")).await
    };
    while stress.producing() {
        wait_for_turn(&stress).await;
        sleep(stress.settings.long).await;
        once(stress.settings.long)
            .await
            .map_err(|error| describe("a prepared producer", &error))?;
    }
    Ok(())
}

/// Makes long transactions begin together, every two long times: nothing pins the ready log for the
/// first half of each rotation.
async fn wait_for_turn(stress: &Stress) {
    let turn = stress.settings.long * 2;
    let into = stress.started.elapsed().as_nanos() % turn.as_nanos();
    let left = u64::try_from(turn.as_nanos() - into).unwrap_or(0);
    if into > turn.as_nanos() / 10 {
        sleep(Duration::from_nanos(left)).await;
    }
}
