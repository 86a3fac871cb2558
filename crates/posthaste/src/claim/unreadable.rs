//! Isolates a job that cannot be read and makes the claims fail that contain it: smaller claims
//! find the job, and then it is ended.

use uuid::Uuid;

use super::{MAX_CLAIM_JOBS, QueueClaimer, RETRY_BACKOFF};
use crate::error::Error;
use crate::log_limit::{FEW, LogLimit};
use crate::store;

/// Factor by which claims shrink around a job that cannot be read. It is large because a failure is
/// expensive: the server may print a gigabyte before it fails; claims that succeed cost next to
/// nothing.
pub(super) const SHRINK_FACTOR: usize = 64;

/// The search for a job that cannot be read: it is among the next `within` jobs, so a part of them
/// is claimed.
#[derive(Default)]
pub(super) struct UnreadableSearch {
    within: Option<usize>,
}

static ENDED_LOG: LogLimit = LogLimit::new(FEW);

impl UnreadableSearch {
    pub(super) fn limit(&self) -> usize {
        self.within
            .map_or(MAX_CLAIM_JOBS, |within| (within / SHRINK_FACTOR).max(1))
    }

    pub(super) fn record_success(&mut self, jobs: usize) {
        self.within = self
            .within
            .map(|within| within.saturating_sub(jobs))
            .filter(|within| *within > 0);
    }

    pub(super) fn record_failure(&mut self, asked: usize) {
        self.within = Some(self.within.unwrap_or(asked).min(asked));
    }
}

impl QueueClaimer {
    /// Handles a failed claim: ends the unreadable job that caused it, or waits. Returns whether it
    /// ended one.
    pub(super) async fn end_unreadable_or_wait(
        &self,
        error: &Error,
        asked: usize,
        failures: u32,
        unreadable: &mut UnreadableSearch,
    ) -> bool {
        if failures.is_power_of_two() {
            tracing::warn!(queue = &*self.queue.name, failures, %error, "a claim failed");
        }
        if is_caused_by_data(error) {
            // A job that cannot be read makes the claim fail that contains it. Smaller claims
            // isolate it; then it is ended, and no other job is affected.
            unreadable.record_failure(asked);
            if asked == 1 {
                *unreadable = UnreadableSearch::default();
                if self.dead_letter_next(error).await {
                    return true;
                }
            }
            // An unreadable job is isolated and ended after a few failures: if claims still fail,
            // the cause is another one.
            if failures <= 3 {
                return false;
            }
        }
        let wait = RETRY_BACKOFF.after(failures, fastrand::f64());
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = self.claimer.stopping.cancelled() => {}
        }
        false
    }

    /// Ends the next job. This is a claim too, so it does not run beside a quarantined job. Returns
    /// whether a job was ended.
    pub(crate) async fn dead_letter_next(&self, error: &Error) -> bool {
        let Some(_passed) = self.claimer.gate.pass(&self.claimer.stopping).await else {
            return false;
        };
        let Ok(worker) = self.claimer.registration.worker().await else {
            return false;
        };
        let text = error.to_string();
        match store::dead_letter_next(
            &self.claimer.link,
            &self.queue.name,
            &self.queue.priorities(),
            worker.id,
            Uuid::new_v4(),
            &text,
        )
        .await
        {
            Ok(0) => false,
            Ok(jobs) => {
                if let Some(left_out) = ENDED_LOG.admit_field(&self.queue.name) {
                    tracing::error!(
                        queue = &*self.queue.name,
                        jobs,
                        error = text,
                        left_out,
                        "a job that cannot be read was ended"
                    );
                }
                true
            }
            Err(error) => {
                tracing::error!(
                    queue = &*self.queue.name, %error,
                    "a job that cannot be read could not be ended"
                );
                false
            }
        }
    }
}

/// Whether a claim failed because of the contents of its jobs, not because of the connection, a
/// lock, a restart, a missing privilege or a full disk.
pub(super) fn is_caused_by_data(error: &Error) -> bool {
    match error.sqlstate().map(|state| state.code()) {
        Some("53200") => true, // out of memory: the text of one job may be what did not fit
        Some(code) => {
            !error.is_connection()
                && !["25", "28", "40", "42", "53", "55", "57", "58"].contains(&&code[..2])
        }
        // An error without SQLSTATE that is not of the connection: the row arrived and could not be
        // parsed.
        None => !error.is_connection(),
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_CLAIM_JOBS, UnreadableSearch};

    /// Returns how many claims fail and how many succeed until the job at this place is isolated.
    fn closing_in(place: usize) -> (usize, usize) {
        let mut unreadable = UnreadableSearch::default();
        let (mut before, mut failed, mut passed) = (place, 0, 0);
        loop {
            let asked = unreadable.limit();
            if asked <= before {
                before -= asked;
                passed += 1;
                unreadable.record_success(asked);
                continue;
            }
            failed += 1;
            unreadable.record_failure(asked);
            if asked == 1 {
                return (failed, passed);
            }
        }
    }

    #[test]
    fn unreadable_jobs_are_isolated_in_few_claims() {
        for place in 0..MAX_CLAIM_JOBS {
            let (failed, passed) = closing_in(place);
            assert!(
                failed <= 3 && passed <= 400,
                "{place}: {failed} fail, {passed} pass"
            );
        }
    }
}
