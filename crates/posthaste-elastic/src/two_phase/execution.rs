//! One executor's work on one transaction: which requests next, and what their answers lead to.
//!
//! Any number of them may work on one transaction, stop for ever anywhere, or go on after a year.

use serde::{Deserialize, Serialize};

use super::document::{Fence, Obstacle};
use super::request::{Evidence, Request, Response, Seen, ValidMarks};
use super::state::{Event, State};
use super::step::{Sequence, Step};

/// Why a transaction was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// Somebody asked for it.
    Asked,
    /// A document has less available than the transaction takes.
    Insufficient,
    /// A balance could have grown beyond 2^53.
    TooLarge,
    /// A document is not there.
    Missing,
    /// Others set a document, again and again.
    Busy,
    /// It was [adopted](super::Coordinator::adopt) at its end, which an account that still listed
    /// it did not agree with: a person should inspect it.
    Listed,
}

/// What a step led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Progress {
    /// The next step.
    Next,
    /// From the beginning, after a while: somebody else was there, or an answer is missing.
    Again,
    /// It is in this final state, and stays there.
    Ended(State),
    /// There is no such transaction (a hint), and making it is not what was asked for.
    Absent,
    /// It was not begun: there is a transaction of this name which does something else.
    Different,
    /// It was not begun: this document is not there. Nothing was written.
    Missing(usize),
}

/// Where an executor stands with a transaction.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Execution {
    documents: usize,
    /// Make the transaction if there is none.
    may_create: bool,
    /// It was tried, and the answer is missing: it may be there, unseen, or come yet.
    may_be_there: bool,
    /// Set once it is to be given up.
    reason: Option<Reason>,
    /// How often more it may find its documents set by others.
    patience: u8,
    /// Where the transaction is, as far as is known.
    state: Option<State>,
    sequence: Sequence,
    at: usize,
    seen: Seen,
    valid: ValidMarks,
}

impl Execution {
    /// Makes a transaction on this many documents and brings it to its end.
    pub fn create(documents: usize, patience: u8) -> Self {
        let start = Self::resume(documents, patience);
        Self {
            may_create: true,
            ..start.on(Sequence::Forward)
        }
    }

    /// Brings a transaction that is there to its end.
    pub fn resume(documents: usize, patience: u8) -> Self {
        Self {
            documents,
            may_create: false,
            may_be_there: false,
            reason: None,
            patience,
            state: None,
            sequence: Sequence::Enter,
            at: 0,
            seen: Seen::default(),
            valid: ValidMarks::default(),
        }
    }

    /// Gives a transaction up, unless it is decided.
    pub fn roll_back(documents: usize, reason: Reason) -> Self {
        Self {
            reason: Some(reason),
            ..Self::resume(documents, 0)
        }
    }

    /// The step that is next.
    pub fn step(&self) -> Step {
        self.sequence.steps()[self.at]
    }

    /// Whether the next step writes.
    pub fn writes(&self) -> bool {
        !matches!(self.step(), Step::Read | Step::ReadMark)
    }

    /// Whether the transaction was ever seen, or is known to have been written down.
    pub(super) fn is_there(&self) -> bool {
        self.state.is_some()
    }

    /// Why the transaction is being given up, if it is.
    pub fn reason(&self) -> Option<Reason> {
        self.reason
    }

    /// The marks of the documents that it goes by, from the check to the hold.
    pub fn marks(&self) -> &[Fence] {
        match self.step() {
            Step::Begin => self.seen.marks(),
            _ => self.valid.marks(),
        }
    }

    /// What the next step asks for, in any order, together or not.
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
            (Step::Hold, _) => self.valid.holds(),
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

    /// Takes the answers to all requests of the step, in their order.
    pub fn answered(&mut self, answers: &[Response]) -> Progress {
        match (self.step(), answers) {
            (Step::Read, [Response::State(state)]) => self.choose_sequence(*state),
            (Step::Read, [Response::Different]) => Progress::Different,
            (Step::ReadMark, _) => self.marks_read(answers),
            (Step::Begin, [Response::Different]) => Progress::Different,
            (step, _) => {
                let evidence: Option<Vec<_>> = answers.iter().map(|a| a.evidence()).collect();
                match evidence {
                    Some(evidence) if evidence.len() == self.requests().len() => {
                        self.done(step, &evidence)
                    }
                    _ if step == Step::Hold => self.not_held(answers),
                    _ => {
                        self.may_be_there |= self.state.is_none();
                        self.again()
                    }
                }
            }
        }
    }

    /// Picks the sequence by a state that was read. The hint may be wrong: the first write of each
    /// sequence finds out.
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
        self.take(sequence, 0)
    }

    fn marks_read(&mut self, answers: &[Response]) -> Progress {
        let mut marks = Vec::with_capacity(self.documents);
        for (at, answer) in answers.iter().enumerate() {
            match (answer, self.state) {
                (Response::Mark(mark), _) => marks.push(*mark),
                (Response::Missing, None) if self.may_be_there => return self.again(),
                (Response::Missing, None) => return Progress::Missing(at),
                (Response::Missing, Some(_)) => return self.abandon(Reason::Missing),
                _ => return self.again(),
            }
        }
        self.seen = Seen::new(marks);
        self.at += 1;
        Progress::Next
    }

    /// A step of writes is done, each of them acknowledged.
    fn done(&mut self, step: Step, evidence: &[Evidence]) -> Progress {
        if step == Step::Begin {
            self.state = Some(State::Pending);
            self.valid = std::mem::take(&mut self.seen).then_pending(evidence);
        }
        if step == Step::Hold {
            self.valid = ValidMarks::default();
        }
        self.at += 1;
        if self.at < self.sequence.steps().len() {
            return Progress::Next;
        }
        match (self.sequence, self.state) {
            (Sequence::Forward, _) => self.decided(Sequence::Settle, State::Committed),
            (Sequence::Abandon, Some(State::Pending)) => {
                self.decided(Sequence::Undo, State::Terminating)
            }
            (Sequence::Settle, _) => Progress::Ended(State::Finished),
            (Sequence::Rest, Some(state)) => Progress::Ended(state),
            _ => Progress::Ended(State::RolledBack),
        }
    }

    fn decided(&mut self, sequence: Sequence, state: State) -> Progress {
        self.state = Some(state);
        self.take(sequence, sequence.confirmed())
    }

    /// Not every document holds the transaction. Which of them does is settled or undone later;
    /// here it only counts what to try next.
    fn not_held(&mut self, answers: &[Response]) -> Progress {
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
        // One that is full has a place once any transaction ends; who sets one may hold it long.
        if refused(Obstacle::Busy) {
            match self.patience.checked_sub(1) {
                Some(left) => self.patience = left,
                None => return self.abandon(Reason::Busy),
            }
        }
        self.again()
    }

    /// Gives up a transaction that was created or pending a moment ago.
    fn abandon(&mut self, reason: Reason) -> Progress {
        self.reason = Some(reason);
        self.take(Sequence::Abandon, 0)
    }

    fn take(&mut self, sequence: Sequence, at: usize) -> Progress {
        (self.sequence, self.at) = (sequence, at);
        Progress::Next
    }

    fn again(&mut self) -> Progress {
        let entered = std::mem::replace(self, Self::resume(0, 0)).on(Sequence::Enter);
        *self = entered;
        Progress::Again
    }

    fn on(self, sequence: Sequence) -> Self {
        Self {
            sequence,
            at: 0,
            state: None,
            seen: Seen::default(),
            valid: ValidMarks::default(),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers every request of the steps until this one as a sound store does.
    fn until(step: Step, mut execution: Execution) -> Execution {
        while execution.step() != step {
            let answers: Vec<_> = execution.requests().into_iter().map(well).collect();
            assert_eq!(execution.answered(&answers), Progress::Next);
        }
        execution
    }

    fn well(request: Request) -> Response {
        match request {
            Request::Read => Response::State(Some(State::Created)),
            Request::ReadMark(_) => Response::Mark(Fence(7)),
            _ => Response::Acknowledged,
        }
    }

    #[test]
    fn a_transfer_without_faults_takes_six_round_trips_and_eight_requests() {
        let mut execution = Execution::create(2, 0);
        let mut result = Vec::new();
        loop {
            let requests = execution.requests();
            result.push((execution.step(), requests.len()));
            let answers: Vec<_> = requests.into_iter().map(well).collect();
            match execution.answered(&answers) {
                Progress::Next => {}
                end => {
                    assert_eq!(end, Progress::Ended(State::Finished));
                    break;
                }
            }
        }
        let expected = [
            (Step::ReadMark, 2),
            (Step::Begin, 1),
            (Step::Hold, 2),
            (Step::Commit, 1),
            (Step::Settle, 2),
            (Step::Finish, 1),
        ];
        assert_eq!(result, expected);
    }

    #[test]
    fn steps_complete_when_every_request_is_acknowledged() {
        for other in [
            Response::Elsewhere,
            Response::Ambiguous,
            Response::Missing,
            Response::Rejected(Obstacle::Fenced),
        ] {
            for step in [Step::Begin, Step::Commit, Step::Settle, Step::Finish] {
                let mut execution = until(step, Execution::create(2, 0));
                let mut answers = vec![Response::Acknowledged; execution.requests().len()];
                answers[0] = other;
                assert_eq!(execution.answered(&answers), Progress::Again, "{step:?}");
                assert_eq!(execution.step(), Step::Read);
            }
        }
        let mut execution = until(Step::Settle, Execution::create(2, 0));
        assert_eq!(
            execution.answered(&[Response::Acknowledged]),
            Progress::Again
        );
    }

    #[test]
    fn permanent_refusals_abort_and_temporary_ones_retry() {
        let refused = |patience, obstacle| {
            let mut execution = until(Step::Hold, Execution::create(2, patience));
            let progress =
                execution.answered(&[Response::Acknowledged, Response::Rejected(obstacle)]);
            (progress, execution.step(), execution.reason())
        };
        for (obstacle, reason) in [
            (Obstacle::Insufficient, Reason::Insufficient),
            (Obstacle::TooLarge, Reason::TooLarge),
            (Obstacle::Busy, Reason::Busy),
        ] {
            let given_up = (Progress::Next, Step::Abandon, Some(reason));
            assert_eq!(refused(0, obstacle), given_up);
        }
        for (patience, obstacle) in [
            (1, Obstacle::Busy),
            (0, Obstacle::Full),
            (0, Obstacle::Fenced),
        ] {
            let again = (Progress::Again, Step::Read, None);
            assert_eq!(refused(patience, obstacle), again);
        }
    }

    #[test]
    fn a_missing_answer_is_never_reported_as_nothing_written() {
        let missing = [Response::Mark(Fence(0)), Response::Missing];
        let mut execution = Execution::create(2, 0);
        assert_eq!(execution.answered(&missing), Progress::Missing(1));
        let mut execution = until(Step::Begin, Execution::create(2, 0));
        assert_eq!(execution.answered(&[Response::Ambiguous]), Progress::Again);
        let absent = [Response::State(None)];
        assert_eq!(execution.answered(&absent), Progress::Next);
        assert_eq!(execution.step(), Step::ReadMark);
        assert_eq!(execution.answered(&missing), Progress::Again);
    }
}
