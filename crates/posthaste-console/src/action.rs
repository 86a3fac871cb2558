//! What an action on all jobs of a filter is, and how far it is. No IO.

use jiff::Timestamp;
use posthaste::State as JobState;

use crate::filter::Filter;
use crate::window::KEPT;

const WAITING: [JobState; 3] = [
    JobState::Scheduled,
    JobState::Retrying,
    JobState::Quarantined,
];
const LISTED: [JobState; 7] = [
    JobState::Available,
    JobState::Running,
    JobState::Scheduled,
    JobState::Retrying,
    JobState::Blocked,
    JobState::Awaiting,
    JobState::Quarantined,
];

/// What is done to the jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Retry,
    Cancel,
    Redrive,
    Delete,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Retry, Self::Cancel, Self::Redrive, Self::Delete];

    pub(crate) fn read(name: &str) -> Option<Self> {
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

    /// The verb that follows their number.
    pub(crate) fn done(self) -> &'static str {
        match self {
            Self::Retry => "let run",
            Self::Cancel => "cancelled",
            Self::Redrive => "redriven",
            Self::Delete => "deleted",
        }
    }

    /// States of the jobs that it is for.
    pub(crate) fn states(self) -> &'static [JobState] {
        match self {
            Self::Retry => &WAITING,
            Self::Cancel => &LISTED,
            Self::Redrive | Self::Delete => &KEPT,
        }
    }

    /// Of jobs that were given up.
    pub(crate) fn is_of_kept(self) -> bool {
        matches!(self, Self::Redrive | Self::Delete)
    }
}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Running,
    Finished,
    Stopped,
    Failed,
}

impl Progress {
    const ALL: [Self; 4] = [Self::Running, Self::Finished, Self::Stopped, Self::Failed];

    pub(crate) fn read(name: &str) -> Option<Self> {
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
    /// As it is typed, with its times resolved.
    pub(crate) filter: String,
    pub(crate) at_most: i64,
    /// How many jobs there were when it began, if somebody counted.
    pub(crate) expected: Option<i64>,
    pub(crate) who: String,
    pub(crate) started_at: Timestamp,
    pub(crate) ended_at: Option<Timestamp>,
    pub(crate) progress: Progress,
    /// Done so far.
    pub(crate) jobs: i64,
    /// Of them in this pass over all places, and how many passes came to their end.
    pub(crate) pass_jobs: i64,
    pub(crate) passes: i32,
    /// Where the walk goes on.
    pub(crate) place: Option<String>,
    /// Batches in a row that failed.
    pub(crate) failures: i32,
    pub(crate) last_error: Option<String>,
    pub(crate) stopped_by: Option<String>,
    /// Whether a console works on it.
    pub(crate) is_driven: bool,
    /// Whether it was begun in this database, and not in one that this is a copy of.
    pub(crate) is_ours: bool,
}

impl Action {
    /// The filter that selects its jobs.
    pub(crate) fn job_filter(&self) -> Result<Filter, String> {
        Filter::kept(&self.filter, self.started_at)
    }

    /// What it is about, as a line of the log has it.
    pub(crate) fn on(&self) -> String {
        format!(
            "bulk action {}: filter {}, at most {}",
            self.id, self.filter, self.at_most
        )
    }
}

/// What became of an action by one change of its row.
#[derive(Clone, Debug)]
pub(crate) struct Moved {
    pub(crate) progress: Progress,
    pub(crate) jobs: i64,
}

/// What one batch of an action did, and where the next one begins.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) jobs: usize,
    pub(crate) place: Option<String>,
    pub(crate) passes: i32,
    pub(crate) pass_jobs: i64,
    pub(crate) is_over: bool,
}
