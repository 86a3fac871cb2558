//! What is asked of the store, each of one document, and what its answers are worth.

use super::document::{Fence, Obstacle};
use super::state::{Event, State};

/// One request of a step. It is about one document: the transaction's own, or that of the effect
/// with this index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Request {
    /// Where the transaction is, as a hint of what to try.
    Read,
    /// The mark in the transaction's slot of a document.
    ReadMark(usize),
    /// Writes the transaction down, pending at once. Refused where one of that name is.
    Create,
    /// Brings the transaction from this state to what the event makes of it, if it is in this
    /// state.
    Advance(State, Event),
    /// Writes the transaction without changing its state, if it is in this state.
    Touch(State),
    /// Holds the document for the transaction, if the mark is still this one.
    Hold(usize, Fence),
    /// What the document holds for the transaction happens.
    Settle(usize),
    /// What the document holds for the transaction is let go.
    Undo(usize),
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Response {
    /// The write was made and acknowledged: whatever fails now, it stays.
    Acknowledged,
    /// What was read: the state of the transaction, if there is one. Its writer may yet lose it.
    State(Option<State>),
    /// What was read: the mark that was asked for. Its writer may yet lose it.
    Mark(Fence),
    /// The transaction is not in the state that the request is for, or was there before. Nothing
    /// was written.
    Elsewhere,
    /// There is a transaction of this name which does something else. Nothing was written.
    Different,
    /// The document takes no such hold. Nothing was written.
    Rejected(Obstacle),
    /// There is no such document. Nothing was written.
    Missing,
    /// No answer, or one that says neither: it may have happened, may happen yet, or may be lost
    /// again.
    Ambiguous,
}

/// That a write was acknowledged. Nothing else makes one: not a read, not an answer that nothing
/// had to be done.
#[derive(Debug)]
pub(super) struct Evidence(());

impl Response {
    pub(super) fn evidence(self) -> Option<Evidence> {
        (self == Self::Acknowledged).then_some(Evidence(()))
    }
}

/// Marks that were seen before the transaction was known to be pending.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Seen(Vec<Fence>);

impl Seen {
    pub(super) fn new(marks: Vec<Fence>) -> Self {
        Self(marks)
    }

    pub(super) fn marks(&self) -> &[Fence] {
        &self.0
    }

    /// The order is what matters: the one that settles or undoes can begin only after the
    /// transaction was pending for the last time, so marks that were seen before that are older
    /// than any settle or undo, and a hold that carries them cannot come after one.
    pub(super) fn then_pending(self, _pending: &[Evidence]) -> ValidMarks {
        ValidMarks(self.0)
    }
}

/// Marks that a hold may carry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct ValidMarks(Vec<Fence>);

impl ValidMarks {
    pub(super) fn marks(&self) -> &[Fence] {
        &self.0
    }

    pub(super) fn holds(&self) -> Vec<Request> {
        let marks = self.0.iter().enumerate();
        marks.map(|(at, mark)| Request::Hold(at, *mark)).collect()
    }
}
