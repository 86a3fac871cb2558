//! What to do about what happened: pure decisions, no clock and no chance but those passed in.

use std::time::Duration;

use jiff::Timestamp;

use crate::consumer::Outcome;
use crate::job::Job;

/// How long to wait before the next attempt: `base * 2^attempt`, at most `cap`, of which a random half is jitter.
///
/// ```
/// use std::time::Duration;
/// let backoff = posthaste::Backoff { base: Duration::from_secs(1), cap: Duration::from_secs(3600) };
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
    /// The wait after `attempt` earlier failures; `chance` in 0..=1 picks the jitter.
    pub fn after(&self, attempt: i32, chance: f64) -> Duration {
        let doubled = self
            .base
            .saturating_mul(
                1u32.checked_shl(attempt.clamp(0, 31) as u32)
                    .unwrap_or(u32::MAX),
            )
            .min(self.cap);
        doubled / 2 + doubled.mul_f64(chance.clamp(0.0, 1.0) / 2.0)
    }
}

/// What a consumer's run of a job came to.
#[derive(Debug)]
pub(crate) enum Report {
    /// The consumer said so.
    Returned(Outcome),
    /// It returned an error.
    Failed(String),
    /// It returned an error that says when to try again, and whether this attempt counts.
    FailedUntil {
        error: String,
        after: Duration,
        burns: bool,
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
    /// The handler finished it in its own transaction. Whether that transaction committed is the database's to say: if it did not, the job
    /// goes back, if it did, giving back changes nothing.
    CompletedInTransaction,
}

/// How the store is to close a job; the codes are `ack_k.outcome` (migrations/0004_acknowledge.sql).
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Verdict {
    Done,
    Park {
        attempt: i32,
        after: Option<Duration>,
        until: Option<Timestamp>,
        error: Option<String>,
    },
    Bury {
        /// Attempts burnt; none when that is not known.
        attempt: Option<i32>,
        state: &'static str,
        error: String,
    },
    Await {
        until: Timestamp,
    },
    GiveBack,
}

impl Verdict {
    pub(crate) fn code(&self) -> i16 {
        match self {
            Self::Done => 0,
            Self::Park { .. } => 1,
            Self::Bury { .. } => 2,
            Self::Await { .. } => 4,
            Self::GiveBack => 8,
        }
    }
}

/// An unknown name is looked at again after this: another version of the program may know it.
const UNKNOWN_NAME_AFTER: Duration = Duration::from_secs(60);

/// The one place where attempts are counted.
pub(crate) fn verdict(job: &Job, report: &Report, backoff: &Backoff, chance: f64) -> Verdict {
    let burn = |after: Option<Duration>, error: Option<String>| {
        let attempt = job.attempt.saturating_add(1);
        if job.max_attempts.is_some_and(|most| attempt >= most) {
            return Verdict::Bury {
                attempt: Some(attempt),
                state: "dead",
                error: error.unwrap_or_else(|| "the last attempt asked for a retry".into()),
            };
        }
        Verdict::Park {
            attempt,
            after: Some(after.unwrap_or_else(|| backoff.after(job.attempt, chance))),
            until: None,
            error,
        }
    };
    match report {
        Report::Returned(Outcome::Done) => Verdict::Done,
        Report::Returned(Outcome::Retry { after }) => burn(*after, None),
        Report::Returned(Outcome::Snooze { until }) => Verdict::Park {
            attempt: job.attempt,
            after: None,
            until: Some(*until),
            error: None,
        },
        Report::Returned(Outcome::Await { until }) => Verdict::Await { until: *until },
        Report::Returned(Outcome::Discard { reason }) => Verdict::Bury {
            attempt: Some(job.attempt.saturating_add(1)),
            state: "discarded",
            error: printable(reason),
        },
        Report::Failed(error) => burn(None, Some(printable(error))),
        Report::FailedUntil {
            error,
            after,
            burns: true,
        } => burn(Some(*after), Some(printable(error))),
        Report::FailedUntil {
            error,
            after,
            burns: false,
        } => Verdict::Park {
            attempt: job.attempt,
            after: Some(*after),
            until: None,
            error: Some(printable(error)),
        },
        Report::Panicked(error) => burn(None, Some(printable(&format!("panicked: {error}")))),
        Report::TimedOut(limit) => burn(
            None,
            Some(format!("ran longer than {} s", limit.as_secs_f32())),
        ),
        Report::Cancelled => Verdict::Bury {
            attempt: None,
            state: "cancelled",
            error: "cancelled while it ran".into(),
        },
        Report::Unknown => Verdict::Park {
            attempt: job.attempt,
            after: Some(UNKNOWN_NAME_AFTER),
            until: None,
            error: Some(printable(&format!(
                "no handler knows the job name {}",
                job.name
            ))),
        },
        Report::GivenBack | Report::CompletedInTransaction => Verdict::GiveBack,
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
