//! The history of a round, as its processes recorded it: each line is on disk before the event that
//! it announces, or immediately after it.

mod arrived;
mod captured;
mod clock;
mod fault;
pub mod log;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use arrived::Arrived;
pub(crate) use captured::{APART, FILE};
pub use captured::{CaptureEnd, Captured, CapturedEvent, OutboxRow};
pub use clock::{Tick, Turn};
pub(crate) use fault::COPY;
pub use fault::{Fault, Kind};

/// Microseconds since 1970 by the machine's clock, which producers and workers share; the server
/// shares it too, unless it has a separate clock.
pub type Moment = i64;

/// The current time.
pub fn now() -> Moment {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
    })
}

/// The behaviour of a job when it is run, from which the checker knows how it must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobBehavior {
    /// Succeeds immediately.
    Finish,
    /// Completes in the handler's own transaction, together with a row in `effect`.
    Complete,
    /// Requests this many retries, then succeeds.
    Retry(i32),
    /// Fails this many times, then succeeds.
    Fail(i32),
    /// Reschedules itself until this time by the server's clock, then succeeds.
    Snooze(Moment),
    /// Waits for a confirmation, which comes at once, or never; then the second attempt succeeds.
    Await {
        /// Whether the confirmation comes.
        confirmed: bool,
    },
    /// Is discarded by its handler.
    Discard,
    /// Fails until no attempt remains.
    Exhaust,
    /// Was already expired when it was enqueued.
    Expire,
}

/// A job as its producer enqueues it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Intent {
    /// The key of the job in every log; the database assigns IDs and may reuse them.
    pub key: i64,
    /// Its behaviour.
    pub behavior: JobBehavior,
    /// Its queue.
    pub queue: String,
    /// Its priority; lower values first.
    pub priority: i32,
    /// The earliest time to run, by the server's clock.
    pub due: Moment,
    /// The expiry time; 0 for none.
    #[serde(default)]
    pub expires: Moment,
    /// The requested unique key.
    pub unique: Option<String>,
    /// Its ordering key.
    pub ordering_key: Option<String>,
    /// Whether it is enqueued in a savepoint that is rolled back.
    pub undone: bool,
    /// Its arguments, which contain the key and the behaviour too.
    pub args: Value,
}

/// A line of a producer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Meant {
    /// A transaction is about to enqueue these.
    Intent {
        /// The number of the producer's transaction.
        tx: u64,
        /// A time before its BEGIN.
        at: Moment,
        /// The jobs in the order in which they are enqueued.
        jobs: Vec<Intent>,
    },
    /// The result that the producer knows afterwards. Without this line it is unknown.
    Outcome {
        /// The number of the transaction.
        tx: u64,
        /// When its COMMIT was answered.
        at: Moment,
        /// The result.
        result: CommitResult,
        /// Keys of jobs that were not enqueued because another job held their unique key.
        absorbed: Vec<i64>,
        /// The end of the server's log soon after the COMMIT.
        lsn: Option<u64>,
    },
}

/// A producer's knowledge of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CommitResult {
    /// The COMMIT was answered.
    Committed,
    /// The COMMIT was never sent, or was refused.
    RolledBack,
    /// The COMMIT was sent and not answered.
    Ambiguous,
}

/// A line of a handler.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Acted {
    /// The handler begins.
    Began {
        /// The key of the job.
        key: i64,
        /// The database's ID of the job.
        id: i64,
        /// The delivery ID that an external receiver would get.
        delivery: String,
        /// The fence that the acknowledgement will carry.
        fence: String,
        /// Attempts that were counted before.
        attempt: i32,
        /// The arguments of the job.
        args: Value,
        /// When it began.
        at: Moment,
    },
    /// The handler is about to return.
    Ended {
        /// The key of the job.
        key: i64,
        /// The same fence as at the beginning.
        fence: String,
        /// The outcome.
        how: How,
        /// When it ended.
        at: Moment,
    },
}

/// The outcome of a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum How {
    /// Done.
    Done,
    /// Its transaction rolled back or was not answered; the database decides.
    Ambiguous,
    /// Retry, with a counted attempt.
    Again,
    /// Reschedule, without a counted attempt.
    Later,
    /// Held; the confirmation was answered.
    Confirmed,
    /// Held; no confirmation follows.
    Unconfirmed,
    /// Discarded.
    Discarded,
}

/// One run of a handler.
#[derive(Clone, Debug)]
pub struct Run {
    /// The worker process, such as `w1.3`: the third process at place 1.
    pub worker: String,
    /// The key of the job.
    pub key: i64,
    /// The database's ID of the job.
    pub id: i64,
    /// The delivery ID that an external receiver would get.
    pub delivery: String,
    /// The fence of the acknowledgement.
    pub fence: String,
    /// Attempts that were counted before.
    pub attempt: i32,
    /// The arguments of the job.
    pub args: Value,
    /// When it began.
    pub began: Moment,
    /// The outcome and its time; `None` if the run did not end.
    pub ended: Option<(How, Moment)>,
}

/// The state of the store at the end.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct End {
    /// Keys of the rows that were written with the jobs, in the same transactions.
    pub promised: BTreeSet<i64>,
    /// Jobs in the store, with their states.
    pub shown: Vec<(i64, String)>,
    /// The number of rows by key that handlers wrote in the transactions that completed their jobs.
    pub effects: BTreeMap<i64, i64>,
    /// By the database's ID of a job: counted attempts, and workers that died while they had it.
    pub attempts: BTreeMap<i64, (i64, i64)>,
    /// Leftovers in places that should be empty, such as `3 unique keys`.
    pub litter: Vec<String>,
}

/// The complete record of a round.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// The lines of each producer.
    pub meant: Vec<Vec<Meant>>,
    /// The runs of all worker processes.
    pub runs: Vec<Run>,
    /// The injected faults.
    pub faults: Vec<Fault>,
    /// The changes of the server's clock; empty if it uses the machine's.
    pub turns: Vec<Turn>,
    /// Runs of the jobs of ticks.
    pub ticks: Vec<Tick>,
    /// The outbox and its captures.
    pub captured: Captured,
    /// The state of the store at the end.
    pub end: End,
}

impl History {
    /// Reads the logs of a round: `p*.log` of producers, `w*.log` of workers, `c*.log` of
    /// workers of copies, `s*.log` of receivers, `t*.log` of ticks, `faults.log`, `turns.log`,
    /// `captured.json` and `end.json`.
    pub fn read(folder: &Path) -> anyhow::Result<Self> {
        let mut history = Self {
            faults: log::read(&folder.join("faults.log"))?,
            turns: log::read(&folder.join("turns.log"))?,
            captured: captured::read(folder)?,
            ..Self::default()
        };
        let mut files: Vec<_> = std::fs::read_dir(folder)?
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<Result<_, _>>()?;
        files.sort();
        for file in files {
            let Some(name) = file.file_name().and_then(|name| name.to_str()) else {
                continue;
            };
            match name.strip_suffix(".log") {
                Some(producer) if producer.starts_with('p') => {
                    history.meant.push(log::read(&file)?);
                }
                Some(worker) if worker.starts_with(['w', 'c']) => {
                    history.runs.extend(runs(worker, log::read(&file)?));
                }
                Some(receiver) if receiver.starts_with('s') => {
                    let lines: Vec<Arrived> = log::read(&file)?;
                    history.runs.extend(lines.into_iter().map(Arrived::run));
                }
                Some(worker) if worker.starts_with("t-") => {
                    history.ticks.extend(log::read::<Tick>(&file)?);
                }
                _ => {}
            }
        }
        let end = std::fs::read(folder.join("end.json")).context("how the round ended")?;
        history.end = serde_json::from_slice(&end)?;
        Ok(history)
    }
}

/// The runs of one worker process, in the order in which they began.
fn runs(worker: &str, lines: Vec<Acted>) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    let mut open: BTreeMap<(i64, String), usize> = BTreeMap::new();
    for line in lines {
        match line {
            Acted::Began {
                key,
                id,
                delivery,
                fence,
                attempt,
                args,
                at,
            } => {
                open.insert((key, fence.clone()), runs.len());
                runs.push(Run {
                    worker: worker.to_owned(),
                    key,
                    id,
                    delivery,
                    fence,
                    attempt,
                    args,
                    began: at,
                    ended: None,
                });
            }
            Acted::Ended {
                key,
                fence,
                how,
                at,
            } => {
                if let Some(run) = open.remove(&(key, fence)) {
                    runs[run].ended = Some((how, at));
                }
            }
        }
    }
    runs
}
