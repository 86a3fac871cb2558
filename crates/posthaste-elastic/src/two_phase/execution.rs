//! One executor's work on one transaction: its next requests, and the handling of their answers.
//!
//! Any number of them may work on one transaction, stop forever at any step, or continue later.

use serde::{Deserialize, Serialize};

use super::document::{Fence, Obstacle};
use super::request::{Evidence, Request, Response, SeenMarks, ValidMarks};
use super::state::{Event, State};
use super::step::{Sequence, Step};

/// The reason why a transaction was abandoned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// A caller requested it.
    Asked,
    /// A document has less available than the transaction takes.
    Insufficient,
    /// A balance could have grown beyond 2^53.
    TooLarge,
    /// A document does not exist.
    Missing,
    /// Other transactions were setting a document at each attempt.
    Busy,
    /// It was [adopted](super::Coordinator::adopt) in a final state while an account still listed
    /// it: an operator should inspect it.
    Listed,
}

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Progress {
    /// Continue with the next step.
    Next,
    /// Start over after a delay: another process intervened, or an answer is missing.
    Again,
    /// The transaction is in this final state, and stays there.
    Ended(State),
    /// The transaction does not exist (a hint), and the executor may not create it.
    Absent,
    /// Not begun: a transaction of this name exists and has other effects.
    Different,
    /// Not begun: this document does not exist. Nothing was written.
    Missing(usize),
}

/// The state of an executor's work on a transaction.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Execution {
    documents: usize,
    /// Whether it creates the transaction if it does not exist.
    may_create: bool,
    /// A creation has no answer: the transaction may exist unseen, or appear later.
    may_be_there: bool,
    /// The reason, once the transaction is to be abandoned.
    reason: Option<Reason>,
    /// Further attempts that may find documents being set by other transactions.
    patience: u8,
    /// The last known state of the transaction.
    state: Option<State>,
    sequence: Sequence,
    at: usize,
    seen: SeenMarks,
    valid: ValidMarks,
}

impl Execution {
    /// Creates a transaction on this many documents and runs it to its end.
    pub fn for_new(documents: usize, patience: u8) -> Self {
        let start = Self::for_existing(documents, patience);
        Self {
            may_create: true,
            ..start.with_sequence(Sequence::Forward)
        }
    }

    /// Runs an existing transaction to its end.
    pub fn for_existing(documents: usize, patience: u8) -> Self {
        Self {
            documents,
            may_create: false,
            may_be_there: false,
            reason: None,
            patience,
            state: None,
            sequence: Sequence::Enter,
            at: 0,
            seen: SeenMarks::default(),
            valid: ValidMarks::default(),
        }
    }

    /// Abandons a transaction, unless it is decided.
    pub fn for_rollback(documents: usize, reason: Reason) -> Self {
        Self {
            reason: Some(reason),
            ..Self::for_existing(documents, 0)
        }
    }

    /// Returns the next step.
    pub fn step(&self) -> Step {
        self.sequence.steps()[self.at]
    }

    /// Whether the next step writes.
    pub fn writes(&self) -> bool {
        !matches!(self.step(), Step::Read | Step::ReadMark)
    }

    /// Whether the transaction was ever seen, or is known to have been recorded.
    pub(super) fn is_known_to_exist(&self) -> bool {
        self.state.is_some()
    }

    /// Returns the reason why the transaction is being abandoned, if it is.
    pub fn reason(&self) -> Option<Reason> {
        self.reason
    }

    /// Returns the marks of the documents that it relies on, from their read to the hold.
    pub fn marks(&self) -> &[Fence] {
        match self.step() {
            Step::Begin => self.seen.marks(),
            _ => self.valid.marks(),
        }
    }

    /// Returns the requests of the next step; they may be sent in any order, together or not.
    pub fn requests(&self) -> Vec<Request> {
        let each = |request: fn(usize) -> Request| (0..self.documents).map(request).collect();
        match (self.step(), self.state) {
            (Step::Read, _) => vec![Request::Read],
            (Step::ReadMark, _) => each(Request::ReadMark),
            (Step::Begin, None) => vec![Request::Create],
            (Step::Begin, Some(State::Created)) => {
                vec![Request::Advance(State::Created, Event::Begun)]
            }
            (Step::Begin, Some(_)) => vec![Request::Touch(State::Pending)],
            (Step::Hold, _) => self.valid.hold_requests(),
            (Step::Commit, _) => vec![Request::Advance(State::Pending, Event::Held)],
            (Step::Confirm, state) => state.map(Request::Touch).into_iter().collect(),
            (Step::Settle, _) => each(Request::Settle),
            (Step::Finish, _) => vec![Request::Advance(State::Committed, Event::Settled)],
            (Step::Abandon, state) => {
                let give_up = |state| Request::Advance(state, Event::Abandoned);
                state.map(give_up).into_iter().collect()
            }
            (Step::Undo, _) => each(Request::Undo),
            (Step::RollBack, _) => vec![Request::Advance(State::Terminating, Event::Undone)],
        }
    }

    /// Applies the answers to all requests of the step, in their order.
    pub fn apply_answers(&mut self, answers: &[Response]) -> Progress {
        match (self.step(), answers) {
            (Step::Read, [Response::State(state)]) => self.choose_sequence(*state),
            (Step::Read, [Response::Different]) => Progress::Different,
            (Step::ReadMark, _) => self.apply_read_marks(answers),
            (Step::Begin, [Response::Different]) => Progress::Different,
            (step, _) => {
                let evidence: Option<Vec<_>> = answers.iter().map(|a| a.evidence()).collect();
                match evidence {
                    Some(evidence) if evidence.len() == self.requests().len() => {
                        self.complete_step(step, &evidence)
                    }
                    _ if step == Step::Hold => self.handle_missing_holds(answers),
                    _ => {
                        self.may_be_there |= self.state.is_none();
                        self.start_over()
                    }
                }
            }
        }
    }

    /// Chooses the sequence by the state that was read, a hint: the first write of each sequence
    /// detects whether it was wrong.
    fn choose_sequence(&mut self, state: Option<State>) -> Progress {
        self.state = state;
        let sequence = match state {
            None if self.may_create => Sequence::Forward,
            None => return Progress::Absent,
            Some(State::Created | State::Pending) if self.reason.is_some() => Sequence::Abandon,
            Some(State::Created | State::Pending) => Sequence::Forward,
            Some(State::Committed) => Sequence::Settle,
            Some(State::Terminating) => Sequence::Undo,
            Some(State::Finished | State::RolledBack) => Sequence::Rest,
        };
        self.enter_sequence(sequence, 0)
    }

    fn apply_read_marks(&mut self, answers: &[Response]) -> Progress {
        let mut marks = Vec::with_capacity(self.documents);
        for (at, answer) in answers.iter().enumerate() {
            match (answer, self.state) {
                (Response::Mark(mark), _) => marks.push(*mark),
                (Response::Missing, None) if self.may_be_there => return self.start_over(),
                (Response::Missing, None) => return Progress::Missing(at),
                (Response::Missing, Some(_)) => return self.abandon(Reason::Missing),
                _ => return self.start_over(),
            }
        }
        self.seen = SeenMarks::new(marks);
        self.at += 1;
        Progress::Next
    }

    /// Completes a step whose writes were all acknowledged.
    fn complete_step(&mut self, step: Step, evidence: &[Evidence]) -> Progress {
        if step == Step::Begin {
            self.state = Some(State::Pending);
            self.valid = std::mem::take(&mut self.seen).into_valid(evidence);
        }
        if step == Step::Hold {
            self.valid = ValidMarks::default();
        }
        self.at += 1;
        if self.at < self.sequence.steps().len() {
            return Progress::Next;
        }
        match (self.sequence, self.state) {
            (Sequence::Forward, _) => self.continue_decided(Sequence::Settle, State::Committed),
            (Sequence::Abandon, Some(State::Pending)) => {
                self.continue_decided(Sequence::Undo, State::Terminating)
            }
            (Sequence::Settle, _) => Progress::Ended(State::Finished),
            (Sequence::Rest, Some(state)) => Progress::Ended(state),
            _ => Progress::Ended(State::RolledBack),
        }
    }

    fn continue_decided(&mut self, sequence: Sequence, state: State) -> Progress {
        self.state = Some(state);
        self.enter_sequence(sequence, sequence.index_after_confirm())
    }

    /// Decides what to try next if holds are missing. Existing ones are settled or undone later.
    fn handle_missing_holds(&mut self, answers: &[Response]) -> Progress {
        let refused = |of: Obstacle| answers.contains(&Response::Rejected(of));
        if answers.contains(&Response::Missing) {
            return self.abandon(Reason::Missing);
        }
        if refused(Obstacle::Insufficient) {
            return self.abandon(Reason::Insufficient);
        }
        if refused(Obstacle::TooLarge) {
            return self.abandon(Reason::TooLarge);
        }
        // A full document has room once any transaction ends; a busy one may be held for long.
        if refused(Obstacle::Busy) {
            match self.patience.checked_sub(1) {
                Some(left) => self.patience = left,
                None => return self.abandon(Reason::Busy),
            }
        }
        self.start_over()
    }

    /// Abandons a transaction that was created or pending when it was read.
    fn abandon(&mut self, reason: Reason) -> Progress {
        self.reason = Some(reason);
        self.enter_sequence(Sequence::Abandon, 0)
    }

    fn enter_sequence(&mut self, sequence: Sequence, at: usize) -> Progress {
        (self.sequence, self.at) = (sequence, at);
        Progress::Next
    }

    fn start_over(&mut self) -> Progress {
        let entered =
            std::mem::replace(self, Self::for_existing(0, 0)).with_sequence(Sequence::Enter);
        *self = entered;
        Progress::Again
    }

    fn with_sequence(self, sequence: Sequence) -> Self {
        Self {
            sequence,
            at: 0,
            state: None,
            seen: SeenMarks::default(),
            valid: ValidMarks::default(),
            ..self
        }
    }
}

#[cfg(test)]
mod tests;
