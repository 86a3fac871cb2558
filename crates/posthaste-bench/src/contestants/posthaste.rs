//! posthaste, through its library; the only module of the bench that uses it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ::posthaste::{
    Config, Context, Job, NewJob, Outcome, Worker, WorkerHandle, enqueue, enqueue_many, migrate,
};
use anyhow::{Context as _, Result, ensure};
use deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_postgres::{Client, NoTls};

use super::{CONNECTIONS, JOB_NAME, QUEUE};
use crate::claims::{LOGGED_SESSION, LOGGING_OPTIONS};
use crate::database::Database;
use crate::statements::Statements;

/// The schema that the library lives in.
pub(crate) const SCHEMA: &str = "posthaste";

/// Handlers that may run at once; how many jobs a claim takes is the library's own decision.
const CONCURRENCY: usize = 32;

/// Every preloaded job has arguments of this length as text, such as `{"n": 1000001}`.
const KWARGS_BYTES: i64 = 14;

const STATISTICS_LIMIT: Duration = Duration::from_secs(20);

/// The statements that the bench sends beside the library's.
pub(crate) fn statements() -> Statements {
    Statements::parse(include_str!("../../locking/posthaste.sql"))
}

/// Arguments of every job of the bench.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Arguments {
    n: u64,
}

/// Migrates an empty database.
pub(crate) async fn prepare(database: &Database) -> Result<()> {
    migrate(&mut database.connect().await?).await?;
    Ok(())
}

/// Enqueues `jobs` jobs by one statement.
pub(crate) async fn preload(database: &Database, jobs: u64) -> Result<()> {
    let client = database.connect().await?;
    client
        .execute(statements().get("preload")?, &[&i64::try_from(jobs)?])
        .await?;
    Ok(())
}

/// Enqueues `jobs` jobs by one statement into a queue that nobody works.
pub(crate) async fn preload_queue(database: &Database, jobs: u64, queue: &str) -> Result<()> {
    let client = database.connect().await?;
    client
        .execute(
            statements().get("preload_queue")?,
            &[&i64::try_from(jobs)?, &queue],
        )
        .await?;
    Ok(())
}

/// Enqueues very many jobs by one statement and says how long it took.
pub(crate) async fn bulk(client: &Client, rows: u64) -> Result<Duration> {
    let begun = Instant::now();
    let inserted = client
        .execute(statements().get("bulk")?, &[&i64::try_from(rows)?])
        .await?;
    let taken = begun.elapsed();
    // A rule may report the rows of another statement than the one that inserted them.
    ensure!(
        inserted == rows || inserted == 0,
        "{inserted} of {rows} rows were inserted"
    );
    Ok(taken)
}

/// How long a backlog took.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Drained {
    /// From the start of the worker to its end, when all is acknowledged.
    pub(crate) taken: Duration,
    /// The part of it after the last job was started: the last acknowledgements and the farewell.
    pub(crate) stopping: Duration,
}

/// Works a preloaded backlog to its end.
pub(crate) async fn drain(database: &Database, jobs: u64, manner: Manner) -> Result<Drained> {
    let pool = pool(database, manner)?;
    let begun = Instant::now();
    let crew = Crew::start_on(pool, manner, |_| {}).await?;
    crew.reach(jobs, Duration::from_secs(600)).await?;
    let reached = Instant::now();
    crew.stop().await?;
    Ok(Drained {
        taken: begun.elapsed(),
        stopping: reached.elapsed(),
    })
}

/// Fails while the view of all jobs that are not done shows any.
pub(crate) async fn ensure_nothing_remains(database: &Database) -> Result<()> {
    let remaining: i64 = database
        .connect()
        .await?
        .query_one(statements().get("remaining")?, &[])
        .await?
        .get(0);
    ensure!(remaining == 0, "{remaining} jobs are not done");
    Ok(())
}

/// Dead and changed tuples of the hot tables.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct HotTuples {
    pub(crate) dead: i64,
    pub(crate) changed: i64,
}

/// Reads the hot tables' tuple counts once the statistics have all arrived: sessions that have ended report
/// at once, others within seconds, so two equal answers a while apart are the last word.
pub(crate) async fn hot_tuples(client: &Client) -> Result<HotTuples> {
    let read = async || -> Result<(HotTuples, i64)> {
        let row = client
            .query_one(statements().get("hot_tuples")?, &[])
            .await?;
        Ok((
            HotTuples {
                dead: row.get("dead"),
                changed: row.get("changed"),
            },
            row.get("inserted"),
        ))
    };
    let deadline = Instant::now() + STATISTICS_LIMIT;
    let mut last = read().await?;
    loop {
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        let now = read().await?;
        if now == last && now.1 > 0 {
            return Ok(now.0);
        }
        ensure!(
            Instant::now() < deadline,
            "the statistics of the hot tables do not settle"
        );
        last = now;
    }
}

/// How many jobs a claim took on average, while all claims are still there to be read.
pub(crate) async fn jobs_per_claim(database: &Database) -> Result<f64> {
    let row = database
        .connect()
        .await?
        .query_one(statements().get("claims")?, &[])
        .await?;
    let (claims, jobs): (i64, i64) = (row.get("claims"), row.get("jobs"));
    Ok(jobs as f64 / claims.max(1) as f64)
}

/// The current generation, and the oldest one that is still kept.
pub(crate) async fn generations(client: &Client) -> Result<(i64, i64)> {
    let row = client
        .query_one(statements().get("generations")?, &[])
        .await?;
    Ok((row.get("current"), row.get("oldest")))
}

/// How a crew works.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Manner {
    /// How many preloaded jobs a claim may take at most; `None` leaves it to the library.
    pub(crate) largest_claim: Option<i64>,
    /// The size at which a generation is followed by a new one; `None` leaves it to the library.
    pub(crate) generation_mebibytes: Option<i64>,
    /// Whether the server logs the duration of each of the crew's statements.
    pub(crate) logged: bool,
}

impl Manner {
    /// As fast as it goes.
    pub(crate) fn fast() -> Self {
        Self {
            largest_claim: None,
            generation_mebibytes: None,
            logged: false,
        }
    }

    /// As fast as it goes with claims of at most `jobs` jobs.
    pub(crate) fn in_batches_of(jobs: i64) -> Self {
        Self {
            largest_claim: Some(jobs),
            ..Self::fast()
        }
    }

    /// With generations of this size.
    pub(crate) fn generations_of(self, mebibytes: i64) -> Self {
        Self {
            generation_mebibytes: Some(mebibytes),
            ..self
        }
    }

    /// With durations in the server's log.
    pub(crate) fn logged(self) -> Self {
        Self {
            logged: true,
            ..self
        }
    }
}

/// A running worker with a handler that does nothing but say that it was started.
pub(crate) struct Crew {
    handle: WorkerHandle,
    progress: Arc<Progress>,
}

#[derive(Debug, Default)]
struct Progress {
    done: AtomicU64,
    target: AtomicU64,
    reached: Notify,
}

impl Crew {
    /// Starts a worker; `started` is called with the number in each job's arguments.
    pub(crate) async fn start(
        database: &Database,
        manner: Manner,
        started: impl Fn(u64) + Send + Sync + 'static,
    ) -> Result<Self> {
        let started = move |job: &Job| {
            if let Ok(Arguments { n }) = job.kwargs() {
                started(n);
            }
        };
        Self::start_on(pool(database, manner)?, manner, started).await
    }

    async fn start_on(
        pool: Pool,
        manner: Manner,
        started: impl Fn(&Job) + Send + Sync + 'static,
    ) -> Result<Self> {
        let progress = Arc::new(Progress {
            target: AtomicU64::new(u64::MAX),
            ..Progress::default()
        });
        let (counted, started) = (Arc::clone(&progress), Arc::new(started));
        let mut config = Config::default();
        if let Some(jobs) = manner.largest_claim {
            // The library bounds a claim by the bytes of its arguments, and those of preloaded jobs are all alike.
            config.claim_bytes = jobs * KWARGS_BYTES;
        }
        if let Some(mebibytes) = manner.generation_mebibytes {
            config.generation_bytes = mebibytes << 20;
        }
        let worker = Worker::builder(pool)
            .config(config)
            .queue(QUEUE, CONCURRENCY)
            .handler(JOB_NAME, move |_: Context, job: Arc<Job>| {
                started(&job);
                counted.count();
                async { Ok(Outcome::Done) }
            });
        Ok(Self {
            handle: worker.start().await?,
            progress,
        })
    }

    /// Jobs started so far.
    pub(crate) fn done(&self) -> u64 {
        self.progress.done.load(Ordering::Relaxed)
    }

    /// Waits until `jobs` jobs were started.
    pub(crate) async fn reach(&self, jobs: u64, limit: Duration) -> Result<()> {
        self.progress.target.store(jobs, Ordering::SeqCst);
        let reached = async {
            while self.done() < jobs {
                self.progress.reached.notified().await;
            }
        };
        timeout(limit, reached)
            .await
            .with_context(|| format!("{} of {jobs} jobs were worked", self.done()))
    }

    /// Lets it finish what it has and acknowledge it.
    pub(crate) async fn stop(self) -> Result<()> {
        Ok(self.handle.stop().await?)
    }
}

impl Progress {
    fn count(&self) {
        if self.done.fetch_add(1, Ordering::SeqCst) + 1 == self.target.load(Ordering::SeqCst) {
            self.reached.notify_one();
        }
    }
}

/// One connection that commits jobs.
#[derive(Debug)]
pub(crate) struct Producer {
    client: deadpool_postgres::Object,
}

impl Producer {
    /// Connects.
    pub(crate) async fn connect(database: &Database) -> Result<Self> {
        let config = database.config().clone();
        let manager = Manager::from_config(
            config,
            NoTls,
            ManagerConfig {
                recycling_method: RecyclingMethod::Fast,
            },
        );
        let client = Pool::builder(manager).max_size(1).build()?.get().await?;
        Ok(Self { client })
    }

    /// Commits one job by itself.
    pub(crate) async fn enqueue(&self, number: u64) -> Result<()> {
        enqueue(
            &self.client,
            &NewJob::new(JOB_NAME, &Arguments { n: number })?,
        )
        .await?;
        Ok(())
    }

    /// Commits one job of a priority by itself; a lower number goes first.
    pub(crate) async fn enqueue_at(&self, number: u64, priority: i32) -> Result<()> {
        let job = NewJob::new(JOB_NAME, &Arguments { n: number })?.priority(priority);
        enqueue(&self.client, &job).await?;
        Ok(())
    }

    /// Commits one job per number in one transaction.
    pub(crate) async fn commit(&mut self, numbers: &[u64]) -> Result<()> {
        let jobs = numbers
            .iter()
            .map(|number| NewJob::new(JOB_NAME, &Arguments { n: *number }))
            .collect::<Result<Vec<_>, _>>()?;
        let transaction = self.client.transaction().await?;
        enqueue_many(&transaction, &jobs).await?;
        transaction.commit().await?;
        Ok(())
    }
}

/// The pool that a worker takes; it opens its own connections through the pool's manager.
fn pool(database: &Database, manner: Manner) -> Result<Pool> {
    let mut config = database.config().clone();
    if manner.logged {
        config
            .application_name(LOGGED_SESSION)
            .options(LOGGING_OPTIONS);
    }
    let manager = Manager::from_config(
        config,
        NoTls,
        ManagerConfig {
            recycling_method: RecyclingMethod::Fast,
        },
    );
    Ok(Pool::builder(manager).max_size(CONNECTIONS).build()?)
}
