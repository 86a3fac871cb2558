//! The states of a job and the only ways from one to another. docs/reference/states.md draws it;
//! tests hold the store to it.

use std::fmt;
use std::str::FromStr;

use crate::error::Error;

/// Where a job is. `Completed` has no row any more; the others are what `posthaste.job` shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Not due yet.
    Scheduled,
    /// Due, waiting for a worker.
    Available,
    /// Due, but a job before it has the turn of its ordering key.
    Blocked,
    /// A worker has it.
    Running,
    /// An attempt failed; waiting for the next.
    Retrying,
    /// Its effect happens elsewhere and was not confirmed yet.
    Awaiting,
    /// Its worker died; it runs alone next.
    Quarantined,
    /// Finished.
    Completed,
    /// No attempt is left. Kept.
    Dead,
    /// Given up by its handler. Kept.
    Discarded,
    /// Its time passed before it could be started. Kept.
    Expired,
    /// Somebody cancelled it. Kept.
    Cancelled,
}

impl State {
    /// All of them, with the names that the database gives them.
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

    /// As the database and the command line say it.
    pub(crate) fn name(self) -> &'static str {
        let mut names = Self::NAMES.iter();
        names
            .find(|(of, _)| *of == self)
            .map_or("", |(_, name)| name)
    }
}

/// As the database and the command line say it.
impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Reads what its `Display` writes; an error that names all states for anything else.
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

/// What can happen to a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// Its time has come.
    Due,
    /// It is due, or was redriven, and has an ordering key.
    Blocked,
    /// The jobs before it have ended for good.
    Unblocked,
    /// A worker took it.
    Claimed,
    /// The handler finished it.
    Finished,
    /// An attempt was counted and another is left.
    Failed,
    /// An attempt was counted and it was the last.
    Exhausted,
    /// Put off without counting an attempt.
    Snoozed,
    /// Given back unstarted or unfinished, without counting an attempt.
    GivenBack,
    /// Handed on; the effect is to be confirmed.
    HandedOn,
    /// The effect was confirmed.
    Confirmed,
    /// The handler gave it up.
    Discarded,
    /// Its worker died.
    WorkerDied,
    /// `expires_at` passed.
    Expired,
    /// Somebody cancelled it, and it ended for that.
    Cancelled,
    /// A dead job was redriven.
    Redriven,
}

/// An event that cannot happen in a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IllegalTransition {
    /// Where the job was.
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

/// The whole law.
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
