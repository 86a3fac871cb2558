//! The lag of indexes, for reports.

pub(crate) use posthaste_sync::{Problem, SyncLag, lagging_syncs};

/// The maximum number of reasons shown for a sync; if they name documents there may be thousands.
pub(crate) const MAX_SHOWN_REASONS: usize = 3;
