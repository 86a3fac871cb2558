//! The published protocol: seven steps and a rollback, each answered "updated" or "noop".

use posthaste_elastic::two_phase::{Event, Progress, Request, Response, State};

use super::machine::NO_MARK;

/// The state of an executor of the published protocol.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Seed {
    documents: usize,
    gives_up: bool,
    at: SeedStep,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum SeedStep {
    Read,
    Advance(State, Event),
    Apply(usize),
    Remove(usize),
    Undo(usize),
}

impl Seed {
    pub fn new(documents: usize, gives_up: bool) -> Self {
        Self {
            documents,
            gives_up,
            at: SeedStep::Read,
        }
    }

    pub fn request(&self) -> Request {
        match self.at {
            SeedStep::Read => Request::Read,
            SeedStep::Advance(from, event) => Request::Advance(from, event),
            SeedStep::Apply(document) => Request::Hold(document, NO_MARK),
            SeedStep::Remove(document) => Request::Settle(document),
            SeedStep::Undo(document) => Request::Undo(document),
        }
    }

    /// "If the request fails, it should be retried several times"; "noop" on an account means that
    /// the step was executed before.
    pub fn apply_answers(&mut self, answer: Response) -> Progress {
        let next = match (self.at, answer) {
            (SeedStep::Read, Response::State(Some(state))) => match state {
                State::Created if self.gives_up => SeedStep::Advance(state, Event::Abandoned),
                State::Created => SeedStep::Advance(state, Event::Begun),
                State::Pending if self.gives_up => SeedStep::Advance(state, Event::Abandoned),
                State::Pending => SeedStep::Apply(0),
                State::Committed => SeedStep::Remove(0),
                State::Terminating => SeedStep::Undo(0),
                State::Finished | State::RolledBack => return Progress::Ended(state),
            },
            (SeedStep::Advance(from, event), Response::Acknowledged) => match from.next(event) {
                Ok(State::Pending) => SeedStep::Apply(0),
                Ok(State::Committed) => SeedStep::Remove(0),
                Ok(State::Terminating) => SeedStep::Undo(0),
                Ok(state) => return Progress::Ended(state),
                Err(illegal) => panic!("{illegal}"),
            },
            // Another executor works on it: stop.
            (SeedStep::Read | SeedStep::Advance(..), _) => {
                self.at = SeedStep::Read;
                return Progress::Again;
            }
            // No answer: repeat the request.
            (_, Response::Ambiguous) => return Progress::Again,
            (SeedStep::Apply(at), _) => self.then(at, SeedStep::Apply, State::Pending, Event::Held),
            (SeedStep::Remove(at), _) => {
                self.then(at, SeedStep::Remove, State::Committed, Event::Settled)
            }
            (SeedStep::Undo(at), _) => {
                self.then(at, SeedStep::Undo, State::Terminating, Event::Undone)
            }
        };
        self.at = next;
        Progress::Next
    }

    fn then(&self, at: usize, each: fn(usize) -> SeedStep, from: State, event: Event) -> SeedStep {
        match at + 1 < self.documents {
            true => each(at + 1),
            false => SeedStep::Advance(from, event),
        }
    }
}
