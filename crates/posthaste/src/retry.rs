//! Decides how a finished run is recorded. Pure: time and chance are passed in.

use std::time::Duration;

use jiff::Timestamp;

use crate::job::{Job, Outcome};

/// The delay before the next attempt: `base`, doubled after each further failure up to `cap`; half
/// of it is random jitter.
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
    /// The delay after the first failure.
    pub base: Duration,
    /// The longest delay.
    pub cap: Duration,
}

impl Default for Backoff {
    /// Returns a back-off from one second to one hour: 25 attempts take approximately half a day.
    fn default() -> Self {
        Self {
            base: Duration::from_secs(1),
            cap: Duration::from_secs(3600),
        }
    }
}

impl Backoff {
    /// Returns the delay after a failure that this many preceded; `chance` in 0..=1 picks the
    /// jitter.
    pub fn after(&self, failures: u32, chance: f64) -> Duration {
        let doubled = self.base.saturating_mul(1 << failures.min(31));
        let doubled = doubled.min(self.cap);
        doubled / 2 + doubled.mul_f64(chance.clamp(0.0, 1.0) / 2.0)
    }
}

/// The result of running a job.
#[derive(Clone, Debug)]
pub(crate) enum RunResult {
    /// The consumer returned this outcome.
    Returned(Outcome),
    /// The consumer returned an error.
    Failed(String),
    /// The handler cannot read its arguments. The error names the argument and includes its value,
    /// which must not be logged.
    Misread { error: String },
    /// The consumer returned an error with a retry time, and whether the attempt counts.
    FailedUntil {
        error: String,
        after: Duration,
        counts_as_attempt: bool,
    },
    /// The consumer panicked, or dropped the job without an outcome.
    Panicked(String),
    /// The run exceeded its timeout.
    TimedOut(Duration),
    /// The job was cancelled, and its run ended because of that.
    Cancelled,
    /// No handler of this worker knows the job's name.
    Unknown,
    /// The job was not started, or not finished when the worker stopped.
    GivenBack,
    /// The handler reported that it completed the job in its own transaction. If that was
    /// committed, the acknowledgement has no effect; if not, the attempt failed.
    CompletedInTransaction,
}

impl RunResult {
    /// Returns the result of a job that may have been cancelled: only a completed job stays
    /// completed.
    pub(crate) fn unless_cancelled(self, is_cancelled: bool) -> Self {
        match self {
            Self::Returned(Outcome::Done) | Self::CompletedInTransaction => self,
            _ if is_cancelled => Self::Cancelled,
            _ => self,
        }
    }
}

/// How the store closes a job; the codes are those of `job_done_k.outcome`
/// (sql/functions/complete.sql).
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Disposition {
    Done,
    Reschedule {
        /// The number of counted attempts.
        attempt: i32,
        after: Option<Duration>,
        until: Option<Timestamp>,
        error: Option<String>,
    },
    DeadLetter {
        /// The number of counted attempts; `None` if unknown.
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

/// Delay before a job with an unknown name is retried: another version of the program may know the
/// name.
const UNKNOWN_NAME_AFTER: Duration = Duration::from_secs(60);

/// The error that is stored if a handler called `complete_in`, returned `Done`, and rolled back.
const NOT_COMMITTED: &str = "complete_in was called and its transaction was not committed";

/// Decides how a run is recorded. Attempts of runs are counted only here; the database counts those
/// of dead workers (sql/functions/rescue.sql).
pub(crate) fn disposition_of_run(
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

/// Formats an error for the store: no control characters, at most 2,000 characters.
fn printable(error: &str) -> String {
    error
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(2000)
        .collect()
}
