//! Delays jobs that are returned repeatedly with no attempt counted and no delay: the delay grows
//! with each return in a row. Pure: the clock and chance are passed in.

use std::collections::HashMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::consumer::Settled;
use crate::job::{Job, JobId};
use crate::retry::{Backoff, Disposition};

/// The delay from the second return in a row on. The first return has no delay, because a worker
/// that stops gives back its jobs.
const RETURN_BACKOFF: Backoff = Backoff {
    base: Duration::from_millis(100),
    cap: Duration::from_secs(60),
};
/// A shorter delay counts as none.
const NEGLIGIBLE_DELAY: Duration = Duration::from_millis(10);
/// The number of returns in a row from which they are logged. A consumer whose jobs became slow may
/// return a job twice.
const MIN_LOGGED_RETURNS: u32 = 4;
/// The most jobs whose returns are counted; beyond it all counts are reset.
const MAX_COUNTED_JOBS: usize = 20_000;

/// How often in a row this process returned each job.
#[derive(Debug, Default)]
pub(super) struct ReturnCounts(HashMap<JobId, u32>);

impl ReturnCounts {
    /// Delays a job that is returned again, and logs whenever its count has doubled.
    pub(super) fn delay_repeated(
        &mut self,
        one: &mut Settled,
        now: impl Fn() -> Timestamp,
        chance: impl Fn() -> f64,
    ) {
        let Some(job) = one.job.clone().filter(|job| is_at_once(one, job, &now)) else {
            if !self.0.is_empty() {
                self.0.remove(&one.id);
            }
            return;
        };
        if self.0.len() >= MAX_COUNTED_JOBS && !self.0.contains_key(&one.id) {
            self.0.clear();
        }
        let times = self.0.entry(one.id).or_default();
        *times = times.saturating_add(1);
        let Some(before) = times.checked_sub(2) else {
            return;
        };
        let pause = RETURN_BACKOFF.after(before, chance());
        let error = match &one.disposition {
            Disposition::Reschedule { error, .. } => error.clone(),
            _ => None,
        };
        if *times >= MIN_LOGGED_RETURNS && times.is_power_of_two() {
            tracing::warn!(
                job = job.id.0,
                name = &*job.name,
                queue = &*job.queue,
                times = *times,
                error = error
                    .as_deref()
                    .unwrap_or("returned, or snoozed without a delay"),
                "a job is returned repeatedly; it waits longer each time"
            );
        }
        one.disposition = Disposition::Reschedule {
            attempt: job.attempts_counted(),
            after: Some(pause),
            until: None,
            error,
        };
    }
}

/// Whether the job is to run again at once without a change. A quarantined job that is given back
/// stays quarantined, and an ordered consumer waits before it claims again.
fn is_at_once(one: &Settled, job: &Job, now: impl Fn() -> Timestamp) -> bool {
    match &one.disposition {
        Disposition::GiveBack => job.crashes == 0 && !one.batch.is_ordered,
        Disposition::Reschedule {
            attempt,
            after,
            until,
            ..
        } if *attempt == job.attempts_counted() => {
            let left = |until: &Timestamp| until.duration_since(now());
            let is_none =
                |left: SignedDuration| left.is_negative() || left.unsigned_abs() < NEGLIGIBLE_DELAY;
            after.is_some_and(|after| after < NEGLIGIBLE_DELAY)
                || until.as_ref().map(left).is_some_and(is_none)
        }
        _ => false,
    }
}
