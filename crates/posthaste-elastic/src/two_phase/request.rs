//! The requests to the store, each about one document, and the meaning of its answers.

use super::document::{Fence, Obstacle};
use super::state::{Event, State};

/// A request of a step. It is about one document: that of the transaction, or that of the effect
/// with this index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Request {
    /// Reads the state of the transaction, as a hint of what to try.
    Read,
    /// Reads the mark in the transaction's slot of a document.
    ReadMark(usize),
    /// Records the transaction as pending. Refused if a transaction of this name exists.
    Create,
    /// Changes the transaction from this state to the one after the event, if it is in this state.
    Advance(State, Event),
    /// Rewrites the transaction without a change of its state, if it is in this state.
    Touch(State),
    /// Holds the document for the transaction, if the document still has this mark.
    Hold(usize, Fence),
    /// Applies what the document holds for the transaction.
    Settle(usize),
    /// Releases what the document holds for the transaction.
    Undo(usize),
}

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Response {
    /// The write was executed and acknowledged: no later failure loses it.
    Acknowledged,
    /// The state that was read, `None` without a transaction. A failure may still lose the write
    /// that was read.
    State(Option<State>),
    /// The mark that was read. A failure may still lose the write that was read.
    Mark(Fence),
    /// The transaction is not in the state of the request, or existed before. Nothing was written.
    Elsewhere,
    /// A transaction of this name exists and has other effects. Nothing was written.
    Different,
    /// The document rejects the hold. Nothing was written.
    Rejected(Obstacle),
    /// The document does not exist. Nothing was written.
    Missing,
    /// No answer, or an inconclusive one: the request may have been executed, may still be
    /// executed, or may be lost again.
    Ambiguous,
}

/// Proof that a write was acknowledged. It cannot come from a read, nor from an answer that nothing
/// had to be done.
#[derive(Debug)]
pub(super) struct Evidence(());

impl Response {
    pub(super) fn evidence(self) -> Option<Evidence> {
        (self == Self::Acknowledged).then_some(Evidence(()))
    }
}

/// Marks that were read before the transaction was acknowledged as pending.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct SeenMarks(Vec<Fence>);

impl SeenMarks {
    pub(super) fn new(marks: Vec<Fence>) -> Self {
        Self(marks)
    }

    pub(super) fn marks(&self) -> &[Fence] {
        &self.0
    }

    /// Converts marks to valid ones. The order matters: a process can begin to settle or undo only
    /// after the transaction was pending for the last time, so marks that were read before that are
    /// older than any settle or undo, and a hold with such marks fails after one.
    pub(super) fn into_valid(self, _pending: &[Evidence]) -> ValidMarks {
        ValidMarks(self.0)
    }
}

/// Marks that a hold may contain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct ValidMarks(Vec<Fence>);

impl ValidMarks {
    pub(super) fn marks(&self) -> &[Fence] {
        &self.0
    }

    pub(super) fn hold_requests(&self) -> Vec<Request> {
        let marks = self.0.iter().enumerate();
        marks.map(|(at, mark)| Request::Hold(at, *mark)).collect()
    }
}
