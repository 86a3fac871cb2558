//! An action on all jobs of a filter, and its progress. No IO.

use jiff::Timestamp;
use posthaste::State as JobState;

use crate::filter::Filter;
use crate::window::GIVEN_UP_STATES;

const RETRYABLE_STATES: [JobState; 3] = [
    JobState::Scheduled,
    JobState::Retrying,
    JobState::Quarantined,
];
const CANCELLABLE_STATES: [JobState; 7] = [
    JobState::Available,
    JobState::Running,
    JobState::Scheduled,
    JobState::Retrying,
    JobState::Blocked,
    JobState::Awaiting,
    JobState::Quarantined,
];

/// The operation on the jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Retry,
    Cancel,
    Redrive,
    Delete,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Retry, Self::Cancel, Self::Redrive, Self::Delete];

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Cancel => "cancel",
            Self::Redrive => "redrive",
            Self::Delete => "delete",
        }
    }

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Retry => "Retry by filter",
            Self::Cancel => "Cancel by filter",
            Self::Redrive => "Redrive by filter",
            Self::Delete => "Delete by filter",
        }
    }

    /// Returns the verb that follows the number of jobs.
    pub(crate) fn past_verb(self) -> &'static str {
        match self {
            Self::Retry => "let run",
            Self::Cancel => "cancelled",
            Self::Redrive => "redriven",
            Self::Delete => "deleted",
        }
    }

    /// Returns the states of the jobs that it applies to.
    pub(crate) fn states(self) -> &'static [JobState] {
        match self {
            Self::Retry => &RETRYABLE_STATES,
            Self::Cancel => &CANCELLABLE_STATES,
            Self::Redrive | Self::Delete => &GIVEN_UP_STATES,
        }
    }

    /// Returns whether it applies to jobs that were given up.
    pub(crate) fn applies_to_given_up(self) -> bool {
        matches!(self, Self::Redrive | Self::Delete)
    }
}

/// The progress of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Running,
    Finished,
    Stopped,
    Failed,
}

impl Progress {
    const ALL: [Self; 4] = [Self::Running, Self::Finished, Self::Stopped, Self::Failed];

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Finished => "finished",
            Self::Stopped => "stopped",
            Self::Failed => "failed",
        }
    }
}

/// A row of `posthaste.bulk_action`.
#[derive(Clone, Debug)]
pub(crate) struct Action {
    pub(crate) id: i32,
    pub(crate) kind: Kind,
    /// The filter as it is typed, with its times resolved.
    pub(crate) filter: String,
    pub(crate) at_most: i64,
    /// How many jobs matched when it began, if they were counted.
    pub(crate) expected: Option<i64>,
    pub(crate) who: String,
    pub(crate) started_at: Timestamp,
    pub(crate) ended_at: Option<Timestamp>,
    pub(crate) progress: Progress,
    /// Jobs done so far.
    pub(crate) jobs: i64,
    /// Jobs done in the current pass over all places, and the number of completed passes.
    pub(crate) pass_jobs: i64,
    pub(crate) passes: i32,
    /// The position at which the next batch continues.
    pub(crate) place: Option<String>,
    /// Consecutive batches that failed.
    pub(crate) failures: i32,
    pub(crate) last_error: Option<String>,
    pub(crate) stopped_by: Option<String>,
    /// Whether a console is processing it.
    pub(crate) is_driven: bool,
    /// Whether it was begun in this database, not in one that this is a copy of.
    pub(crate) is_ours: bool,
}

impl Action {
    /// Returns the filter that selects its jobs.
    pub(crate) fn job_filter(&self) -> Result<Filter, String> {
        Filter::parse_stored(&self.filter, self.started_at)
    }

    /// Returns its description for a line of the log.
    pub(crate) fn log_description(&self) -> String {
        format!(
            "bulk action {}: filter {}, at most {}",
            self.id, self.filter, self.at_most
        )
    }
}

/// The state of an action after one change of its row.
#[derive(Clone, Debug)]
pub(crate) struct ActionState {
    pub(crate) progress: Progress,
    pub(crate) jobs: i64,
}

/// The result of one batch of an action, and the position of the next one.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) jobs: usize,
    pub(crate) place: Option<String>,
    pub(crate) passes: i32,
    pub(crate) pass_jobs: i64,
    pub(crate) is_over: bool,
}
