//! The size of batches and the pauses between them. No IO, no clock.

use std::time::Duration;

use crate::store::StoreError;

/// Jobs of one batch at first, and at most, if finding jobs costs more than acting on them.
pub(crate) const BATCH: usize = 1_000;
const MOST: usize = 8_000;
/// Duration above which a full batch is followed by a larger one.
const DEAR: Duration = Duration::from_millis(400);
/// Duration above which the next batch is smaller.
const LONG: Duration = Duration::from_secs(4);
/// Consecutive failed batches after which an action fails.
const TRIES: i32 = 20;

/// Returns the size of the next batch. Cancelling and retrying read whole tables for each batch, so
/// in a large store batches grow.
pub(super) fn size(last: usize, took: Duration, was_full: bool) -> usize {
    match took {
        _ if took > LONG => (last / 2).max(BATCH),
        _ if took > DEAR && was_full => (last * 2).min(MOST),
        _ => last,
    }
}

/// Returns the pause after a batch, which leaves other work at least a third of the time, up to 15
/// seconds.
pub(super) fn between(took: Duration) -> Duration {
    (took / 2).clamp(Duration::from_millis(10), Duration::from_secs(15))
}

/// The consequence of a failed batch.
#[derive(Debug, PartialEq)]
pub(super) enum After {
    /// Retry after this many seconds.
    Rest(f64),
    /// The action fails and is not retried automatically.
    End,
}

/// Returns the consequence of an error after this many failures before it.
pub(super) fn after(error: &StoreError, before: i32) -> After {
    let is_lasting = matches!(
        error,
        StoreError::Denied(_) | StoreError::Schema(_) | StoreError::Refused(_)
    );
    match is_lasting || before + 1 >= TRIES {
        true => After::End,
        false => After::Rest(f64::from(before + 1).min(30.0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_grow_when_scans_are_expensive_and_shrink_when_slow() {
        let of = |last, millis| size(last, Duration::from_millis(millis), true);
        assert_eq!(of(BATCH, 50), BATCH);
        assert_eq!(of(BATCH, 500), 2 * BATCH);
        assert_eq!(of(MOST, 500), MOST);
        assert_eq!(of(MOST, 5_000), MOST / 2);
        assert_eq!(of(BATCH, 5_000), BATCH);
        assert_eq!(size(BATCH, Duration::from_millis(500), false), BATCH);
    }

    #[test]
    fn permanent_errors_are_not_retried_and_retries_are_bounded() {
        let denied = StoreError::Denied("no".to_owned());
        assert_eq!(after(&denied, 0), After::End);
        let late = StoreError::Late("its time limit");
        assert_eq!(after(&late, 0), After::Rest(1.0));
        assert_eq!(after(&late, 4), After::Rest(5.0));
        assert_eq!(after(&late, TRIES - 1), After::End);
    }
}
