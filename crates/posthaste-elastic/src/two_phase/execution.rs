//! One executor's way with one transaction: which requests next, and what their answers lead to. No IO, no clock.
//!
//! Any number of these may be at work on one transaction at once, stop for ever anywhere, or go on after a year.

use serde::{Deserialize, Serialize};

use super::document::{Fence, Obstacle};
use super::request::{Answer, Evidence, Request, Seen, Valid};
use super::state::{Event, State};
use super::step::{Road, Step};

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
    /// It was [adopted](super::Coordinator::adopt) at its end, which an account that still listed it did not agree with: a person should look at it.
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
    road: Road,
    at: usize,
    seen: Seen,
    valid: Valid,
}

impl Execution {
    /// Makes a transaction on so many documents and brings it to its end.
    pub fn create(documents: usize, patience: u8) -> Self {
        let start = Self::resume(documents, patience);
        Self {
            may_create: true,
            ..start.on(Road::Forward)
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
            road: Road::Enter,
            at: 0,
            seen: Seen::default(),
            valid: Valid::default(),
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
        self.road.steps()[self.at]
    }

    /// Whether the next step writes.
    pub fn writes(&self) -> bool {
        !matches!(self.step(), Step::Read | Step::Look)
    }

    /// Why the transaction is being given up, if it is.
    pub fn reason(&self) -> Option<Reason> {
        self.reason
    }

    /// The marks of the documents that it goes by, from the look to the hold.
    pub fn marks(&self) -> &[Fence] {
        match self.step() {
            Step::Begin => self.seen.marks(),
            _ => self.valid.marks(),
        }
    }

    /// What the next step asks for. The order of these requests does not matter, nor whether they go together.
    pub fn requests(&self) -> Vec<Request> {
        let each = |request: fn(usize) -> Request| (0..self.documents).map(request).collect();
        match (self.step(), self.state) {
            (Step::Read, _) => vec![Request::Read],
            (Step::Look, _) => each(Request::Look),
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
    pub fn answered(&mut self, answers: &[Answer]) -> Progress {
        match (self.step(), answers) {
            (Step::Read, [Answer::State(state)]) => self.enter(*state),
            (Step::Read, [Answer::Different]) => Progress::Different,
            (Step::Look, _) => self.looked(answers),
            (Step::Begin, [Answer::Different]) => Progress::Different,
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

    /// Picks the road by a state that was read. The hint may be wrong: the first write of each road finds out.
    fn enter(&mut self, state: Option<State>) -> Progress {
        self.state = state;
        let road = match state {
            None if self.may_create => Road::Forward,
            None => return Progress::Absent,
            Some(State::Created | State::Pending) if self.reason.is_some() => Road::Abandon,
            Some(State::Created | State::Pending) => Road::Forward,
            Some(State::Committed) => Road::Settle,
            Some(State::Terminating) => Road::Undo,
            Some(State::Finished | State::RolledBack) => Road::Rest,
        };
        self.take(road, 0)
    }

    fn looked(&mut self, answers: &[Answer]) -> Progress {
        let mut marks = Vec::with_capacity(self.documents);
        for (at, answer) in answers.iter().enumerate() {
            match (answer, self.state) {
                (Answer::Mark(mark), _) => marks.push(*mark),
                (Answer::Missing, None) if self.may_be_there => return self.again(),
                (Answer::Missing, None) => return Progress::Missing(at),
                (Answer::Missing, Some(_)) => return self.abandon(Reason::Missing),
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
            self.valid = Valid::default();
        }
        self.at += 1;
        if self.at < self.road.steps().len() {
            return Progress::Next;
        }
        match (self.road, self.state) {
            (Road::Forward, _) => self.decided(Road::Settle, State::Committed),
            (Road::Abandon, Some(State::Pending)) => self.decided(Road::Undo, State::Terminating),
            (Road::Settle, _) => Progress::Ended(State::Finished),
            (Road::Rest, Some(state)) => Progress::Ended(state),
            _ => Progress::Ended(State::RolledBack),
        }
    }

    fn decided(&mut self, road: Road, state: State) -> Progress {
        self.state = Some(state);
        self.take(road, road.confirmed())
    }

    /// Not every document holds the transaction. Which of them does is settled or undone later; here it only counts what to try next.
    fn not_held(&mut self, answers: &[Answer]) -> Progress {
        let refused = |of: Obstacle| answers.contains(&Answer::Refused(of));
        if answers.contains(&Answer::Missing) {
            return self.abandon(Reason::Missing);
        }
        if refused(Obstacle::Insufficient) {
            return self.abandon(Reason::Insufficient);
        }
        if refused(Obstacle::TooLarge) {
            return self.abandon(Reason::TooLarge);
        }
        // One that is full has a place as soon as any of its transactions ends; who sets a document may hold it for long.
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
        self.take(Road::Abandon, 0)
    }

    fn take(&mut self, road: Road, at: usize) -> Progress {
        (self.road, self.at) = (road, at);
        Progress::Next
    }

    fn again(&mut self) -> Progress {
        let entered = std::mem::replace(self, Self::resume(0, 0)).on(Road::Enter);
        *self = entered;
        Progress::Again
    }

    fn on(self, road: Road) -> Self {
        Self {
            road,
            at: 0,
            state: None,
            seen: Seen::default(),
            valid: Valid::default(),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers every request of the steps until this one as a store does that nothing is wrong with.
    fn until(step: Step, mut execution: Execution) -> Execution {
        while execution.step() != step {
            let answers: Vec<_> = execution.requests().into_iter().map(well).collect();
            assert_eq!(execution.answered(&answers), Progress::Next);
        }
        execution
    }

    fn well(request: Request) -> Answer {
        match request {
            Request::Read => Answer::State(Some(State::Created)),
            Request::Look(_) => Answer::Mark(Fence(7)),
            _ => Answer::Acknowledged,
        }
    }

    #[test]
    fn an_undisturbed_transfer_takes_six_round_trips_and_eight_requests() {
        let mut execution = Execution::create(2, 0);
        let mut told = Vec::new();
        loop {
            let requests = execution.requests();
            told.push((execution.step(), requests.len()));
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
            (Step::Look, 2),
            (Step::Begin, 1),
            (Step::Hold, 2),
            (Step::Commit, 1),
            (Step::Settle, 2),
            (Step::Finish, 1),
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn a_step_is_done_once_every_request_of_it_was_acknowledged() {
        for other in [
            Answer::Elsewhere,
            Answer::Unknown,
            Answer::Missing,
            Answer::Refused(Obstacle::Fenced),
        ] {
            for step in [Step::Begin, Step::Commit, Step::Settle, Step::Finish] {
                let mut execution = until(step, Execution::create(2, 0));
                let mut answers = vec![Answer::Acknowledged; execution.requests().len()];
                answers[0] = other;
                assert_eq!(execution.answered(&answers), Progress::Again, "{step:?}");
                assert_eq!(execution.step(), Step::Read);
            }
        }
        let mut execution = until(Step::Settle, Execution::create(2, 0));
        assert_eq!(execution.answered(&[Answer::Acknowledged]), Progress::Again);
    }

    #[test]
    fn what_no_document_will_take_is_given_up_and_what_it_may_take_later_is_tried_again() {
        let refused = |patience, obstacle| {
            let mut execution = until(Step::Hold, Execution::create(2, patience));
            let progress = execution.answered(&[Answer::Acknowledged, Answer::Refused(obstacle)]);
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
    fn nobody_is_told_that_nothing_was_written_once_an_answer_is_missing() {
        let missing = [Answer::Mark(Fence(0)), Answer::Missing];
        let mut execution = Execution::create(2, 0);
        assert_eq!(execution.answered(&missing), Progress::Missing(1));
        let mut execution = until(Step::Begin, Execution::create(2, 0));
        assert_eq!(execution.answered(&[Answer::Unknown]), Progress::Again);
        let absent = [Answer::State(None)];
        assert_eq!(execution.answered(&absent), Progress::Next);
        assert_eq!(execution.step(), Step::Look);
        assert_eq!(execution.answered(&missing), Progress::Again);
    }
}
