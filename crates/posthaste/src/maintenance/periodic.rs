//! Enqueues periodic jobs on the leader when their ticks are due.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use crate::periodic::{Missed, due_ticks, schedule::Schedule};
use crate::store::periodic::{self as store, Due};
use crate::store::reconnecting::ReconnectingClient;

/// The failures that this leader has logged.
#[derive(Default)]
pub(super) struct PeriodicTicker {
    logged: HashSet<String>,
}

impl PeriodicTicker {
    /// Enqueues the due ticks. Returns the time until the next tick if it is near. A schedule that
    /// cannot be read or enqueued does not delay the others.
    pub(super) async fn tick(&mut self, link: &ReconnectingClient) -> Option<Duration> {
        let jobs = super::log_failure("periodic", store::periodic_due(link).await)?;
        let asked = Instant::now();
        let (ahead, due): (Vec<_>, Vec<_>) = jobs.into_iter().partition(|job| job.is_ahead);
        let mut failed = Vec::new();
        for job in due {
            if let Err(error) = enqueue_ticks(link, &job).await {
                failed.push((job, error));
            }
        }
        self.record_failures(link, failed).await;
        let wait = |job: &Due| Duration::try_from(job.next_at?.duration_since(job.now)).ok();
        let next = ahead.iter().filter_map(wait).min()?;
        Some(next.saturating_sub(asked.elapsed()))
    }

    /// Records the errors in the rows of the failed schedules, and logs the first that was not
    /// logged.
    async fn record_failures(&mut self, link: &ReconnectingClient, failed: Vec<(Due, String)>) {
        if failed.is_empty() {
            return;
        }
        super::log_failure("periodic", store::fail_ticks(link, &failed).await);
        let mut untold = failed
            .iter()
            .filter(|(job, _)| self.logged.insert(format!("{} {}", job.name, job.schedule)));
        if let Some((job, error)) = untold.next() {
            let (name, others) = (&job.name, untold.count());
            tracing::error!(name, error, others, "a periodic job could not be enqueued");
        }
    }
}

async fn enqueue_ticks(link: &ReconnectingClient, job: &Due) -> Result<(), String> {
    let schedule = Schedule::parse(&job.schedule, &job.time_zone)?;
    let missed = match job.missed.as_str() {
        "all" => Missed::All,
        "none" => Missed::None,
        _ => Missed::Last,
    };
    let (ticks, next) = due_ticks(&schedule, missed, job.next_at, job.now);
    store::tick(link, job, &ticks, next)
        .await
        .map(drop)
        .map_err(|error| error.to_string())
}
