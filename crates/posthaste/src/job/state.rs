//! The states of a job and the only ways from one to another. docs/states.md draws it; tests hold the store to it.

use std::fmt;

/// Where a job is. `Done` has no row any more; the others are what `posthaste.job` shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Not due yet.
    Scheduled,
    /// Due, waiting for a worker.
    Claimable,
    /// Due, but a job before it has the turn of its ordering key.
    Waiting,
    /// A worker has it.
    Running,
    /// An attempt failed; waiting for the next.
    Retrying,
    /// Its effect happens elsewhere and was not confirmed yet.
    Awaiting,
    /// Its worker died; it is run alone next.
    Suspect,
    /// Finished.
    Done,
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
        (Self::Claimable, "claimable"),
        (Self::Waiting, "waiting"),
        (Self::Running, "running"),
        (Self::Retrying, "retrying"),
        (Self::Awaiting, "awaiting"),
        (Self::Suspect, "suspect"),
        (Self::Done, "done"),
        (Self::Dead, "dead"),
        (Self::Discarded, "discarded"),
        (Self::Expired, "expired"),
        (Self::Cancelled, "cancelled"),
    ];

    pub(crate) fn named(name: &str) -> Option<Self> {
        let mut names = Self::NAMES.iter();
        names.find(|(_, of)| *of == name).map(|(state, _)| *state)
    }
}

/// As the database and the command line say it.
impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names = Self::NAMES.iter();
        f.pad(
            names
                .find(|(of, _)| of == self)
                .map_or("", |(_, name)| name),
        )
    }
}

/// What can happen to a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// Its time has come.
    Due,
    /// It is due, or was sent to work again, and has an ordering key.
    LinedUp,
    /// The jobs before it have ended for good.
    Turn,
    /// A worker took it.
    Claimed,
    /// The handler finished it.
    Finished,
    /// An attempt was burnt and another is left.
    Failed,
    /// An attempt was burnt and it was the last.
    Exhausted,
    /// Put off without burning an attempt.
    Snoozed,
    /// Given back unstarted or unfinished, without burning an attempt.
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
    /// Somebody sent a kept job to work again.
    Redriven,
}

/// An event that cannot happen in a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IllegalTransition {
    /// Where the job was.
    pub state: State,
    /// What was said to happen.
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
/// use posthaste::{next, Event, State};
/// assert_eq!(next(State::Running, Event::Failed), Ok(State::Retrying));
/// assert!(next(State::Done, Event::Claimed).is_err());
/// ```
pub fn next(state: State, event: Event) -> Result<State, IllegalTransition> {
    use State::{
        Awaiting, Cancelled, Claimable, Dead, Discarded, Done, Expired, Retrying, Running,
        Scheduled, Suspect, Waiting,
    };
    Ok(match (state, event) {
        (Scheduled | Retrying, Event::Due) => Claimable,
        (Scheduled | Dead | Discarded | Expired | Cancelled, Event::LinedUp) => Waiting,
        (Waiting, Event::Turn) => Claimable,
        (Claimable | Suspect, Event::Claimed) => Running,
        (Running, Event::Finished) => Done,
        (Running | Awaiting, Event::Failed) => Retrying,
        (Running | Awaiting | Suspect, Event::Exhausted) => Dead,
        (Running, Event::Snoozed) => Scheduled,
        (Running, Event::GivenBack) => Claimable,
        (Running, Event::HandedOn) => Awaiting,
        (Awaiting, Event::Confirmed) => Done,
        (Running, Event::Discarded) => Discarded,
        (Running, Event::WorkerDied) => Suspect,
        (Scheduled | Waiting | Claimable | Retrying | Awaiting | Suspect, Event::Expired) => {
            Expired
        }
        (
            Scheduled | Waiting | Claimable | Running | Retrying | Awaiting | Suspect,
            Event::Cancelled,
        ) => Cancelled,
        (Dead | Discarded | Expired | Cancelled, Event::Redriven) => Claimable,
        _ => return Err(IllegalTransition { state, event }),
    })
}

#[cfg(test)]
mod tests {
    use super::{Event, State, next};

    #[test]
    fn a_finished_job_never_moves_again_by_itself() {
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
            State::Done,
            State::Dead,
            State::Discarded,
            State::Expired,
            State::Cancelled,
        ] {
            assert!(events.iter().all(|event| next(state, *event).is_err()));
        }
    }

    #[test]
    fn a_running_job_does_not_expire() {
        assert!(next(State::Running, Event::Expired).is_err());
    }
}
