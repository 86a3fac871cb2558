//! What to do about what happened: pure decisions, no clock and no chance but those passed in.

use std::time::Duration;

use jiff::Timestamp;

use crate::job::{Job, Outcome};

/// How long to wait before the next attempt: `base`, twice as long after each further failure, at
/// most `cap`, of which a random half is jitter.
///
/// ```
/// use std::time::Duration;
/// let hour = Duration::from_secs(3600);
/// let backoff = posthaste::Backoff { base: Duration::from_secs(1), cap: hour };
/// assert_eq!(backoff.after(3, 1.0), Duration::from_secs(8));
/// assert_eq!(backoff.after(3, 0.0), Duration::from_secs(4));
/// assert_eq!(backoff.after(60, 1.0), Duration::from_secs(3600));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The wait after the first failure.
    pub base: Duration,
    /// The longest wait.
    pub cap: Duration,
}

impl Default for Backoff {
    /// From one second to one hour: 25 attempts spread over about half a day.
    fn default() -> Self {
        Self {
            base: Duration::from_secs(1),
            cap: Duration::from_secs(3600),
        }
    }
}

impl Backoff {
    /// The wait after a failure that this many came before; `chance` in 0..=1 picks the jitter.
    pub fn after(&self, failures: u32, chance: f64) -> Duration {
        let doubled = self.base.saturating_mul(1 << failures.min(31));
        let doubled = doubled.min(self.cap);
        doubled / 2 + doubled.mul_f64(chance.clamp(0.0, 1.0) / 2.0)
    }
}

/// What a consumer's run of a job came to.
#[derive(Clone, Debug)]
pub(crate) enum RunResult {
    /// The consumer asked for it.
    Returned(Outcome),
    /// It returned an error.
    Failed(String),
    /// Its arguments are none for the handler; the error names what of them, and says what it is,
    /// which no log is to say.
    Misread { error: String },
    /// It returned an error that says when to try again, and whether this attempt counts.
    FailedUntil {
        error: String,
        after: Duration,
        counts_as_attempt: bool,
    },
    /// It panicked or dropped the job without a word.
    Panicked(String),
    /// It ran longer than allowed.
    TimedOut(Duration),
    /// Somebody cancelled it, and it ended for that.
    Cancelled,
    /// No handler of this worker knows the name.
    Unknown,
    /// It was not started, or not finished when the worker stopped.
    GivenBack,
    /// The handler says that it finished it in its own transaction. If that was committed, what is
    /// sent of it changes nothing; if not, the attempt failed.
    CompletedInTransaction,
}

impl RunResult {
    /// What it comes to where somebody cancelled the job: only what is done stays done.
    pub(crate) fn unless_cancelled(self, is_cancelled: bool) -> Self {
        match self {
            Self::Returned(Outcome::Done) | Self::CompletedInTransaction => self,
            _ if is_cancelled => Self::Cancelled,
            _ => self,
        }
    }
}

/// How the store is to close a job; the codes are `job_done_k.outcome`
/// (sql/functions/complete.sql).
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Disposition {
    Done,
    Reschedule {
        /// Attempts counted.
        attempt: i32,
        after: Option<Duration>,
        until: Option<Timestamp>,
        error: Option<String>,
    },
    DeadLetter {
        /// Attempts counted; none when that is not known.
        attempt: Option<i32>,
        state: &'static str,
        error: String,
    },
    Await {
        until: Timestamp,
    },
    GiveBack,
}

impl Disposition {
    pub(crate) fn code(&self) -> i16 {
        match self {
            Self::Done => 0,
            Self::Reschedule { .. } => 1,
            Self::DeadLetter { .. } => 2,
            Self::Await { .. } => 4,
            Self::GiveBack => 8,
        }
    }
}

/// An unknown name is tried again after this: another version of the program may know it.
const UNKNOWN_NAME_AFTER: Duration = Duration::from_secs(60);

/// What is stored of a run whose handler called `complete_in`, returned `Done`, and rolled back.
const NOT_COMMITTED: &str = "complete_in was called and its transaction was not committed";

/// The one place where the attempts of runs are counted; those of dead workers the database counts
/// (sql/functions/rescue.sql).
pub(crate) fn disposition(
    job: &Job,
    result: &RunResult,
    backoff: &Backoff,
    chance: f64,
) -> Disposition {
    let attempted = |after: Option<Duration>, error: Option<String>| {
        let attempt = job.attempt;
        let failures = u32::try_from(job.attempts_counted()).unwrap_or_default();
        if job.max_attempts.is_some_and(|most| attempt >= most) {
            return Disposition::DeadLetter {
                attempt: Some(attempt),
                state: "dead",
                error: error.unwrap_or_else(|| "the last attempt asked for a retry".into()),
            };
        }
        Disposition::Reschedule {
            attempt,
            after: Some(after.unwrap_or_else(|| backoff.after(failures, chance))),
            until: None,
            error,
        }
    };
    match result {
        RunResult::Returned(Outcome::Done) => Disposition::Done,
        RunResult::Returned(Outcome::Retry { after }) => attempted(*after, None),
        RunResult::Returned(Outcome::Snooze { until }) => Disposition::Reschedule {
            attempt: job.attempts_counted(),
            after: None,
            until: Some(*until),
            error: None,
        },
        RunResult::Returned(Outcome::Await { until }) => Disposition::Await { until: *until },
        RunResult::Returned(Outcome::Discard { reason }) => Disposition::DeadLetter {
            attempt: Some(job.attempt),
            state: "discarded",
            error: printable(reason),
        },
        RunResult::Failed(error) | RunResult::Misread { error, .. } => {
            attempted(None, Some(printable(error)))
        }
        RunResult::FailedUntil {
            error,
            after,
            counts_as_attempt: true,
        } => attempted(Some(*after), Some(printable(error))),
        RunResult::FailedUntil {
            error,
            after,
            counts_as_attempt: false,
        } => Disposition::Reschedule {
            attempt: job.attempts_counted(),
            after: Some(*after),
            until: None,
            error: Some(printable(error)),
        },
        RunResult::Panicked(error) => {
            attempted(None, Some(printable(&format!("panicked: {error}"))))
        }
        RunResult::TimedOut(limit) => attempted(
            None,
            Some(format!("ran longer than {} s", limit.as_secs_f32())),
        ),
        RunResult::Cancelled => Disposition::DeadLetter {
            attempt: None,
            state: "cancelled",
            error: "cancelled while it ran".into(),
        },
        RunResult::Unknown => Disposition::Reschedule {
            attempt: job.attempts_counted(),
            after: Some(UNKNOWN_NAME_AFTER),
            until: None,
            error: Some(printable(&format!(
                "no handler knows the job name {}",
                job.name
            ))),
        },
        RunResult::GivenBack => Disposition::GiveBack,
        RunResult::CompletedInTransaction => attempted(None, Some(NOT_COMMITTED.into())),
    }
}

/// An error as it is stored: one line, no NUL, at most 2,000 characters.
fn printable(error: &str) -> String {
    error
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(2000)
        .collect()
}
