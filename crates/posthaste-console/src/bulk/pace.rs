//! The size of batches and the pauses between them. No IO, no clock.

use std::time::Duration;

use crate::store::StoreError;

/// Jobs of one batch at first, and at most, if finding jobs costs more than acting on them.
pub(crate) const FIRST_BATCH_JOBS: usize = 1_000;
const MAX_BATCH_JOBS: usize = 8_000;
/// Duration above which a full batch is followed by a larger one.
const EXPENSIVE_BATCH_TIME: Duration = Duration::from_millis(400);
/// Duration above which the next batch is smaller.
const MAX_BATCH_TIME: Duration = Duration::from_secs(4);
/// Consecutive failed batches after which an action fails.
const MAX_FAILED_BATCHES: i32 = 20;

/// Returns the size of the next batch. Cancelling and retrying read whole tables for each batch, so
/// in a large store batches grow.
pub(super) fn next_batch_size(last: usize, took: Duration, was_full: bool) -> usize {
    match took {
        _ if took > MAX_BATCH_TIME => (last / 2).max(FIRST_BATCH_JOBS),
        _ if took > EXPENSIVE_BATCH_TIME && was_full => (last * 2).min(MAX_BATCH_JOBS),
        _ => last,
    }
}

/// Returns the pause after a batch, which leaves other work at least a third of the time, up to 15
/// seconds.
pub(super) fn pause_after_batch(took: Duration) -> Duration {
    (took / 2).clamp(Duration::from_millis(10), Duration::from_secs(15))
}

/// The consequence of a failed batch.
#[derive(Debug, PartialEq)]
pub(super) enum FailedBatch {
    /// Retry after this many seconds.
    Rest(f64),
    /// The action fails and is not retried automatically.
    End,
}

/// Returns the consequence of an error after this many failures before it.
pub(super) fn judge_failure(error: &StoreError, before: i32) -> FailedBatch {
    let is_lasting = matches!(
        error,
        StoreError::Denied(_) | StoreError::Schema(_) | StoreError::Refused(_)
    );
    match is_lasting || before + 1 >= MAX_FAILED_BATCHES {
        true => FailedBatch::End,
        false => FailedBatch::Rest(f64::from(before + 1).min(30.0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_grow_when_scans_are_expensive_and_shrink_when_slow() {
        let of = |last, millis| next_batch_size(last, Duration::from_millis(millis), true);
        assert_eq!(of(FIRST_BATCH_JOBS, 50), FIRST_BATCH_JOBS);
        assert_eq!(of(FIRST_BATCH_JOBS, 500), 2 * FIRST_BATCH_JOBS);
        assert_eq!(of(MAX_BATCH_JOBS, 500), MAX_BATCH_JOBS);
        assert_eq!(of(MAX_BATCH_JOBS, 5_000), MAX_BATCH_JOBS / 2);
        assert_eq!(of(FIRST_BATCH_JOBS, 5_000), FIRST_BATCH_JOBS);
        assert_eq!(
            next_batch_size(FIRST_BATCH_JOBS, Duration::from_millis(500), false),
            FIRST_BATCH_JOBS
        );
    }

    #[test]
    fn permanent_errors_are_not_retried_and_retries_are_bounded() {
        let denied = StoreError::Denied("no".to_owned());
        assert_eq!(judge_failure(&denied, 0), FailedBatch::End);
        let late = StoreError::Late("its time limit");
        assert_eq!(judge_failure(&late, 0), FailedBatch::Rest(1.0));
        assert_eq!(judge_failure(&late, 4), FailedBatch::Rest(5.0));
        assert_eq!(
            judge_failure(&late, MAX_FAILED_BATCHES - 1),
            FailedBatch::End
        );
    }
}
