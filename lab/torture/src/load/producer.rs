//! Producers: transactions that enqueue, commit, roll back, and sometimes never learn their result.

use std::collections::HashSet;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};
use posthaste::JobId;
use posthaste_testkit::connect;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_postgres::Client;
use tokio_util::sync::CancellationToken;

use super::{PRODUCERS, intend};
use crate::bugs::Misbehavior;
use crate::history::log::Log;
use crate::history::{CommitResult, Intent, JobBehavior, Meant, now};
use crate::plan::{Pace, Processes};
use crate::round::progress::Progress;

/// The timeout of a producer, after which it closes its connection.
const PATIENCE: Duration = Duration::from_secs(2);

/// The backlog at which producers pause, and their pause between two transactions in milliseconds.
const fn pauses(pace: Pace) -> (u64, Range<u64>) {
    match pace {
        Pace::Busy => (250, 0..25),
        Pace::Idle => (0, 200..1_500),
    }
}

/// The settings of the producers.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) folder: PathBuf,
    pub(crate) seed: u64,
    /// The processes that carry the jobs.
    pub(crate) processes: Processes,
    pub(crate) pace: Pace,
    /// How far the server's clock is ahead of the machine's, in microseconds; `None` if it uses
    /// that one.
    pub(crate) ahead: Option<Arc<AtomicI64>>,
    pub(crate) misbehavior: Option<Misbehavior>,
    /// The current URL for each of them.
    pub(crate) urls: watch::Receiver<Vec<String>>,
    pub(crate) progress: Arc<Progress>,
}

/// The running producers.
pub(crate) struct Producers {
    stop: CancellationToken,
    tasks: JoinSet<anyhow::Result<()>>,
}

impl Producers {
    pub(crate) fn start(settings: &Settings) -> anyhow::Result<Self> {
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        for number in 0..PRODUCERS {
            let producer = Producer {
                log: Log::open(&settings.folder.join(format!("p{number}.log")))?,
                settings: settings.clone(),
                number,
                chance: fastrand::Rng::with_seed(settings.seed ^ number as u64),
                transactions: AtomicU64::new(0),
            };
            tasks.spawn(producer.run(stop.clone()));
        }
        Ok(Self { stop, tasks })
    }

    /// Stops all producers after their current transactions.
    pub(crate) async fn stop(mut self) -> anyhow::Result<()> {
        self.stop.cancel();
        while let Some(ended) = self.tasks.join_next().await {
            ended.context("a producer")??;
        }
        Ok(())
    }
}

struct Producer {
    log: Log,
    settings: Settings,
    number: usize,
    chance: fastrand::Rng,
    transactions: AtomicU64,
}

/// The result of a transaction, as far as it is known.
struct TransactionResult {
    result: CommitResult,
    absorbed: Vec<i64>,
    /// Whether its connection is lost.
    is_cut_off: bool,
}

impl Producer {
    async fn run(mut self, stop: CancellationToken) -> anyhow::Result<()> {
        let (most, rest) = pauses(self.settings.pace);
        let mut client: Option<(String, Client)> = None;
        while !stop.is_cancelled() {
            let url = self.settings.urls.borrow()[self.number].clone();
            // After a promotion the old server no longer answers.
            client = client.filter(|(place, client)| *place == url && !client.is_closed());
            let Some((_, connected)) = client.as_mut() else {
                let connected = timeout(PATIENCE, connect(&url)).await;
                client = connected.ok().and_then(Result::ok).map(|one| (url, one));
                sleep(Duration::from_millis(20)).await;
                continue;
            };
            if self.settings.progress.backlog() > most {
                sleep(Duration::from_millis(10)).await;
                continue;
            }
            if self.one(connected).await? {
                client = None;
            }
            sleep(Duration::from_millis(self.chance.u64(rest.clone()))).await;
        }
        Ok(())
    }

    /// Runs one transaction, with its two lines in the log. Returns whether its connection is lost.
    async fn one(&mut self, client: &mut Client) -> anyhow::Result<bool> {
        let tx = self.transactions.fetch_add(1, Ordering::Relaxed);
        let count = match self.chance.u32(0..10) {
            0 => self.chance.usize(20..60),
            _ => self.chance.usize(1..7),
        };
        let ahead = self.settings.ahead.as_ref();
        let ahead = ahead.map(|ahead| ahead.load(Ordering::Relaxed));
        let mut jobs: Vec<Intent> = (0..count)
            .map(|_| intend::job(self.settings.processes, ahead, &mut self.chance))
            .collect();
        // Transactions that take the same keys in different orders would deadlock.
        jobs.sort_by(|a, b| a.unique.cmp(&b.unique));
        self.log.append(&Meant::Intent {
            tx,
            at: now(),
            jobs: jobs.clone(),
        })?;
        let is_kept = self.chance.u32(0..8) > 0;
        let told = self.transact(client, &jobs, is_kept).await;
        let lsn = match told.result {
            CommitResult::Committed => timeout(PATIENCE, position(client))
                .await
                .ok()
                .and_then(Result::ok),
            _ => None,
        };
        if told.result == CommitResult::Committed {
            let is_to_end = |job: &&Intent| {
                let never = matches!(job.behavior, JobBehavior::Expire | JobBehavior::Exhaust);
                !job.undone && !never && !told.absorbed.contains(&job.key)
            };
            let jobs = jobs.iter().filter(is_to_end).count();
            self.settings.progress.committed(jobs as u64);
        }
        let TransactionResult {
            result,
            absorbed,
            is_cut_off,
        } = told;
        let known = match (result, self.settings.misbehavior) {
            (CommitResult::Ambiguous, Some(Misbehavior::TakesSilenceForNo)) => {
                CommitResult::RolledBack
            }
            _ => result,
        };
        self.log.append(&Meant::Outcome {
            tx,
            at: now(),
            result: known,
            absorbed,
            lsn,
        })?;
        Ok(is_cut_off)
    }

    async fn transact(
        &mut self,
        client: &mut Client,
        jobs: &[Intent],
        is_kept: bool,
    ) -> TransactionResult {
        let mut absorbed = Vec::new();
        let writing = self.write(client, jobs, &mut absorbed);
        // Without a COMMIT nothing of it can last, whatever error occurred.
        let is_written = matches!(timeout(PATIENCE, writing).await, Ok(Ok(())));
        if !is_written || !is_kept {
            let undo = timeout(PATIENCE, client.batch_execute("ROLLBACK")).await;
            return TransactionResult {
                result: CommitResult::RolledBack,
                absorbed,
                is_cut_off: !matches!(undo, Ok(Ok(()))),
            };
        }
        let result = match timeout(PATIENCE, client.batch_execute("COMMIT")).await {
            Ok(Ok(())) => CommitResult::Committed,
            Ok(Err(error)) if is_refusal(&error) => CommitResult::RolledBack,
            _ => CommitResult::Ambiguous,
        };
        TransactionResult {
            result,
            absorbed,
            is_cut_off: result == CommitResult::Ambiguous,
        }
    }

    /// Writes everything except the end of the transaction.
    async fn write(
        &mut self,
        client: &mut Client,
        jobs: &[Intent],
        absorbed: &mut Vec<i64>,
    ) -> anyhow::Result<()> {
        let isolation = match self.chance.u32(0..8) {
            0 => "REPEATABLE READ",
            1 => "SERIALIZABLE",
            _ => "READ COMMITTED",
        };
        let begin = format!("BEGIN ISOLATION LEVEL {isolation}");
        client.batch_execute(&begin).await?;
        let (undone, kept): (Vec<&Intent>, Vec<&Intent>) = jobs.iter().partition(|job| job.undone);
        if !undone.is_empty() {
            client.batch_execute("SAVEPOINT undone").await?;
            for job in undone {
                self.enqueue(client, job, &mut HashSet::new()).await?;
            }
            client
                .batch_execute("ROLLBACK TO undone; RELEASE undone")
                .await?;
        }
        let mut mine = HashSet::new();
        for job in kept {
            if self.enqueue(client, job, &mut mine).await? {
                promise(client, job.key).await?;
            } else {
                absorbed.push(job.key);
            }
        }
        if self.chance.u32(0..10) == 0 {
            sleep(Duration::from_millis(self.chance.u64(0..100))).await;
        }
        Ok(())
    }

    /// Returns whether the job was enqueued; otherwise its unique key was held by another
    /// transaction or by this one.
    async fn enqueue(
        &self,
        client: &Client,
        job: &Intent,
        mine: &mut HashSet<JobId>,
    ) -> anyhow::Result<bool> {
        let new = job.new_job()?;
        if self.settings.misbehavior == Some(Misbehavior::WritesTwice) && job.key % 5 == 0 {
            // On another connection, outside the transaction.
            let url = self.settings.urls.borrow()[self.number].clone();
            posthaste::enqueue(&connect(&url).await?, &new).await?;
            return Ok(true);
        }
        let is_new = mine.insert(posthaste::enqueue(client, &new).await?);
        let Some(unique) = &job.unique else {
            return Ok(true);
        };
        let ours =
            "SELECT xmin = pg_current_xact_id()::xid FROM posthaste.unique_key WHERE key = $1";
        match client.query_opt(ours, &[unique]).await? {
            Some(row) => Ok(is_new && row.get(0)),
            None => bail!("the unique key {unique:?} vanished in its own transaction"),
        }
    }
}

async fn promise(client: &Client, key: i64) -> anyhow::Result<()> {
    client
        .execute("INSERT INTO promise (key) VALUES ($1)", &[&key])
        .await?;
    Ok(())
}

/// The end of the server's log.
async fn position(client: &Client) -> anyhow::Result<u64> {
    let row = client
        .query_one("SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint", &[])
        .await?;
    Ok(row.get::<_, i64>(0).unsigned_abs())
}

/// Whether the server answered that it did not commit.
fn is_refusal(error: &tokio_postgres::Error) -> bool {
    error.code().is_some_and(|code| {
        let class = code.code().get(..2);
        matches!(class, Some("40" | "23" | "25"))
    })
}
