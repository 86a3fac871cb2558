//! What happened, as those who were there wrote it down: each line is on the disk before what it
//! announces happens, or right after it did.

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

/// Microseconds since 1970, by the machine's clock, which producers and workers share; the server
/// too, unless it has one of its own.
pub type Moment = i64;

/// This moment.
pub fn now() -> Moment {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
    })
}

/// What a job does when it is run, so that the checker knows how it must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobBehavior {
    /// Ends at once.
    Finish,
    /// Ends in the handler's own transaction, together with a row in `effect`.
    Complete,
    /// Asks to be tried again this many times, then ends.
    Retry(i32),
    /// Fails this many times, then ends.
    Fail(i32),
    /// Asks to be rescheduled until this moment by the server's clock, then ends.
    Snooze(Moment),
    /// Is handed on and confirmed at once, or else not at all and ends at the second attempt.
    Await {
        /// Whether somebody confirms it.
        confirmed: bool,
    },
    /// Is given up by its handler.
    Discard,
    /// Fails until no attempt is left.
    Exhaust,
    /// Had expired when it was enqueued.
    Expire,
}

/// A job as its producer meant it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Intent {
    /// Names the job in every log; ids are the database's to give, and to give again.
    pub key: i64,
    /// What it does.
    pub behavior: JobBehavior,
    /// Where.
    pub queue: String,
    /// Lower first.
    pub priority: i32,
    /// Not before, by the server's clock.
    pub due: Moment,
    /// Not after; 0: as if nothing was said of it.
    #[serde(default)]
    pub expires: Moment,
    /// The unique key that it asks for.
    pub unique: Option<String>,
    /// Its ordering key.
    pub ordering_key: Option<String>,
    /// It is enqueued in a savepoint that is rolled back.
    pub undone: bool,
    /// Its arguments, which hold the key and the deed too.
    pub args: Value,
}

/// A line of a producer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Meant {
    /// A transaction is going to enqueue these.
    Intent {
        /// Counts the producer's transactions.
        tx: u64,
        /// Before its BEGIN.
        at: Moment,
        /// In the order of their enqueues.
        jobs: Vec<Intent>,
    },
    /// What the producer knows of it afterwards. Without such a line it knows nothing.
    Outcome {
        /// Which one.
        tx: u64,
        /// When its COMMIT was answered.
        at: Moment,
        /// What it came to.
        result: CommitResult,
        /// Keys of jobs that were not enqueued because another job held their unique key.
        absorbed: Vec<i64>,
        /// Where the server's log ended soon after the COMMIT.
        lsn: Option<u64>,
    },
}

/// What its producer knows of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CommitResult {
    /// COMMIT was answered.
    Committed,
    /// COMMIT was never sent, or was refused.
    RolledBack,
    /// COMMIT was sent and not answered.
    Ambiguous,
}

/// A line of a handler.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Acted {
    /// It begins.
    Began {
        /// Of the job.
        key: i64,
        /// The database's number of it.
        id: i64,
        /// What a receiver outside would see.
        delivery: String,
        /// What the acknowledgement will carry.
        fence: String,
        /// Attempts counted before.
        attempt: i32,
        /// What the job brought along.
        args: Value,
        /// When.
        at: Moment,
    },
    /// It is about to return.
    Ended {
        /// Of the job.
        key: i64,
        /// As when it began.
        fence: String,
        /// What it returns.
        how: How,
        /// When.
        at: Moment,
    },
}

/// What a handler returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum How {
    /// Done.
    Done,
    /// Its transaction rolled back or was not answered; whatever the database says.
    Ambiguous,
    /// Again, an attempt counted.
    Again,
    /// Later, none counted.
    Later,
    /// Held; the confirmation was answered.
    Confirmed,
    /// Held; nobody confirms.
    Unconfirmed,
    /// Given up.
    Discarded,
}

/// One run of a handler.
#[derive(Clone, Debug)]
pub struct Run {
    /// The worker process, such as `w1.3`: the third one in the first place.
    pub worker: String,
    /// Of the job.
    pub key: i64,
    /// The database's number of it.
    pub id: i64,
    /// What a receiver outside would see.
    pub delivery: String,
    /// What the acknowledgement carries.
    pub fence: String,
    /// Attempts counted before.
    pub attempt: i32,
    /// What the job brought along.
    pub args: Value,
    /// When it began.
    pub began: Moment,
    /// What it returned and when, if it came so far.
    pub ended: Option<(How, Moment)>,
}

/// What the store says in the end.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct End {
    /// Keys of the rows that were written beside the jobs, in the same transactions.
    pub promised: BTreeSet<i64>,
    /// Jobs that the store still shows, with their states.
    pub shown: Vec<(i64, String)>,
    /// Rows that handlers wrote in the transactions in which they completed their jobs.
    pub effects: BTreeMap<i64, i64>,
    /// By the database's number of a job: attempts that it counted, and workers that died while
    /// they had it.
    pub attempts: BTreeMap<i64, (i64, i64)>,
    /// What should be empty and is not: such as `3 unique keys`.
    pub litter: Vec<String>,
}

/// Everything that is known of a round.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// What each producer wrote.
    pub meant: Vec<Vec<Meant>>,
    /// What each worker process wrote.
    pub runs: Vec<Run>,
    /// What was done to them.
    pub faults: Vec<Fault>,
    /// How the server's clock was turned; empty where it is the machine's.
    pub turns: Vec<Turn>,
    /// Runs of the jobs of ticks.
    pub ticks: Vec<Tick>,
    /// The outbox, and its captures.
    pub captured: Captured,
    /// How it ended.
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

/// The runs of one worker process, in the order of their beginnings.
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
