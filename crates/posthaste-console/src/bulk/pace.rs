//! How large batches are, and how long there is nothing between them. No IO, no clock.

use std::time::Duration;

use crate::store::StoreError;

/// Jobs of one batch, and of one where looking for them costs more than acting.
pub(crate) const BATCH: usize = 1_000;
const MOST: usize = 8_000;
/// A batch that takes longer is worth a larger one.
const DEAR: Duration = Duration::from_millis(400);
/// A larger batch must not take longer than this.
const LONG: Duration = Duration::from_secs(4);
/// Batches in a row that fail before nobody tries any more.
const TRIES: i32 = 20;

/// Cancelling and retrying read whole tables for each batch: in a large store batches grow.
pub(super) fn size(last: usize, took: Duration, was_full: bool) -> usize {
    match took {
        _ if took > LONG => (last / 2).max(BATCH),
        _ if took > DEAR && was_full => (last * 2).min(MOST),
        _ => last,
    }
}

/// Others have at least a third of the time for themselves.
pub(super) fn between(took: Duration) -> Duration {
    (took / 2).clamp(Duration::from_millis(10), Duration::from_secs(15))
}

/// What follows from a batch that failed.
#[derive(Debug, PartialEq)]
pub(super) enum After {
    /// It is tried again after this many seconds.
    Rest(f64),
    /// Nobody tries again by himself.
    End,
}

/// After this many failures before this one.
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
