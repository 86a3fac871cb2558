//! The protocol as it was published: seven steps and a rollback, each answered "updated" or "noop".

use posthaste_elastic::two_phase::{Event, Progress, Request, Response, State};

use super::machine::NO_MARK;

/// Where an executor of the published protocol stands.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Seed {
    documents: usize,
    gives_up: bool,
    at: At,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum At {
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
            at: At::Read,
        }
    }

    pub fn request(&self) -> Request {
        match self.at {
            At::Read => Request::Read,
            At::Advance(from, event) => Request::Advance(from, event),
            At::Apply(document) => Request::Hold(document, NO_MARK),
            At::Remove(document) => Request::Settle(document),
            At::Undo(document) => Request::Undo(document),
        }
    }

    /// "If the request fails, it should be retried several times"; "noop" on an account means that
    /// it has been done already.
    pub fn answered(&mut self, answer: Response) -> Progress {
        let next = match (self.at, answer) {
            (At::Read, Response::State(Some(state))) => match state {
                State::Created if self.gives_up => At::Advance(state, Event::Abandoned),
                State::Created => At::Advance(state, Event::Begun),
                State::Pending if self.gives_up => At::Advance(state, Event::Abandoned),
                State::Pending => At::Apply(0),
                State::Committed => At::Remove(0),
                State::Terminating => At::Undo(0),
                State::Finished | State::RolledBack => return Progress::Ended(state),
            },
            (At::Advance(from, event), Response::Acknowledged) => match from.next(event) {
                Ok(State::Pending) => At::Apply(0),
                Ok(State::Committed) => At::Remove(0),
                Ok(State::Terminating) => At::Undo(0),
                Ok(state) => return Progress::Ended(state),
                Err(illegal) => panic!("{illegal}"),
            },
            // Somebody else is at it: stop.
            (At::Read | At::Advance(..), _) => {
                self.at = At::Read;
                return Progress::Again;
            }
            // No answer: the same again.
            (_, Response::Ambiguous) => return Progress::Again,
            (At::Apply(at), _) => self.then(at, At::Apply, State::Pending, Event::Held),
            (At::Remove(at), _) => self.then(at, At::Remove, State::Committed, Event::Settled),
            (At::Undo(at), _) => self.then(at, At::Undo, State::Terminating, Event::Undone),
        };
        self.at = next;
        Progress::Next
    }

    fn then(&self, at: usize, each: fn(usize) -> At, from: State, event: Event) -> At {
        match at + 1 < self.documents {
            true => each(at + 1),
            false => At::Advance(from, event),
        }
    }
}
