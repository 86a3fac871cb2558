//! The states of a job and the only transitions between them. docs/reference/states.md draws them;
//! tests check that the store follows them.

use std::fmt;
use std::str::FromStr;

use crate::error::Error;

/// The state of a job. A `Completed` job has no row; `posthaste.job` shows the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Not due yet.
    Scheduled,
    /// Due, waiting for a worker.
    Available,
    /// Due, but another job of its ordering key comes first.
    Blocked,
    /// Claimed by a worker.
    Running,
    /// An attempt failed; waiting for the next one.
    Retrying,
    /// Its effect happens elsewhere and is not confirmed yet.
    Awaiting,
    /// Its worker died; it runs alone next.
    Quarantined,
    /// Finished.
    Completed,
    /// No attempts are left. Retained.
    Dead,
    /// Discarded by its handler. Retained.
    Discarded,
    /// It expired before it was started. Retained.
    Expired,
    /// Cancelled on request. Retained.
    Cancelled,
}

impl State {
    /// All states, with their names in the database.
    const NAMES: [(Self, &'static str); 12] = [
        (Self::Scheduled, "scheduled"),
        (Self::Available, "available"),
        (Self::Blocked, "blocked"),
        (Self::Running, "running"),
        (Self::Retrying, "retrying"),
        (Self::Awaiting, "awaiting"),
        (Self::Quarantined, "quarantined"),
        (Self::Completed, "completed"),
        (Self::Dead, "dead"),
        (Self::Discarded, "discarded"),
        (Self::Expired, "expired"),
        (Self::Cancelled, "cancelled"),
    ];

    /// Returns the name that the database and the command line use.
    pub(crate) fn name(self) -> &'static str {
        let mut names = Self::NAMES.iter();
        names
            .find(|(of, _)| *of == self)
            .map_or("", |(_, name)| name)
    }
}

/// Writes the name that the database and the command line use.
impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Parses the output of `Display`; the error for other text names all states.
impl FromStr for State {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        let mut names = Self::NAMES.iter();
        let found = names.find(|(_, of)| *of == name);
        found.map(|(state, _)| *state).ok_or_else(|| {
            let all = Self::NAMES.map(|(_, name)| name).join(", ");
            Error::invalid("state", format!("{name:?} is none of {all}"))
        })
    }
}

/// An event in the life of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// Its scheduled time has come.
    Due,
    /// It is due, or was redriven, and has an ordering key.
    Blocked,
    /// The earlier jobs of its ordering key have ended for good.
    Unblocked,
    /// A worker claimed it.
    Claimed,
    /// Its handler finished it.
    Finished,
    /// An attempt was counted and another one is left.
    Failed,
    /// The last attempt was counted.
    Exhausted,
    /// Postponed without counting an attempt.
    Snoozed,
    /// Returned unstarted or unfinished, without counting an attempt.
    GivenBack,
    /// Its effect happens elsewhere and is to be confirmed.
    HandedOn,
    /// The effect was confirmed.
    Confirmed,
    /// Its handler discarded it.
    Discarded,
    /// Its worker died.
    WorkerDied,
    /// `expires_at` passed.
    Expired,
    /// It ended because it was cancelled.
    Cancelled,
    /// A dead job was redriven.
    Redriven,
}

/// An event that cannot happen in a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IllegalTransition {
    /// The state of the job.
    pub state: State,
    /// The event that cannot happen.
    pub event: Event,
}

impl fmt::Display for IllegalTransition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} cannot happen to a job that is {:?}",
            self.event, self.state
        )
    }
}

impl std::error::Error for IllegalTransition {}

/// Returns the state after an event. These are all transitions.
///
/// ```
/// use posthaste::State;
/// use posthaste::__private::{Event, next};
/// assert_eq!(next(State::Running, Event::Failed), Ok(State::Retrying));
/// assert!(next(State::Completed, Event::Claimed).is_err());
/// ```
pub fn next(state: State, event: Event) -> Result<State, IllegalTransition> {
    use State::{
        Available, Awaiting, Blocked, Cancelled, Completed, Dead, Discarded, Expired, Quarantined,
        Retrying, Running, Scheduled,
    };
    Ok(match (state, event) {
        (Scheduled | Retrying, Event::Due) => Available,
        (Scheduled | Dead | Discarded | Expired | Cancelled, Event::Blocked) => Blocked,
        (Blocked, Event::Unblocked) => Available,
        (Available | Quarantined, Event::Claimed) => Running,
        (Running, Event::Finished) => Completed,
        (Running | Awaiting, Event::Failed) => Retrying,
        (Running | Awaiting | Quarantined, Event::Exhausted) => Dead,
        (Running, Event::Snoozed) => Scheduled,
        (Running, Event::GivenBack) => Available,
        (Running, Event::HandedOn) => Awaiting,
        (Awaiting, Event::Confirmed) => Completed,
        (Running, Event::Discarded) => Discarded,
        (Running, Event::WorkerDied) => Quarantined,
        (Scheduled | Blocked | Available | Retrying | Awaiting | Quarantined, Event::Expired) => {
            Expired
        }
        (
            Scheduled | Blocked | Available | Running | Retrying | Awaiting | Quarantined,
            Event::Cancelled,
        ) => Cancelled,
        (Dead | Discarded | Expired | Cancelled, Event::Redriven) => Available,
        _ => return Err(IllegalTransition { state, event }),
    })
}

#[cfg(test)]
mod tests {
    use super::{Event, State, next};

    #[test]
    fn finished_jobs_change_state_only_on_request() {
        let events = [
            Event::Due,
            Event::Claimed,
            Event::Finished,
            Event::Failed,
            Event::Snoozed,
            Event::GivenBack,
            Event::WorkerDied,
            Event::Expired,
            Event::Cancelled,
        ];
        for state in [
            State::Completed,
            State::Dead,
            State::Discarded,
            State::Expired,
            State::Cancelled,
        ] {
            assert!(events.iter().all(|event| next(state, *event).is_err()));
        }
    }

    #[test]
    fn running_jobs_do_not_expire() {
        assert!(next(State::Running, Event::Expired).is_err());
    }
}
