//! The steps of a transaction, as lists. The executor, the model and the tests that stop after
//! every step use these lists and nothing else.

/// A step: one or several requests that do not depend on each other, each for a different document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// Read the state of the transaction. Every attempt begins here, except the first attempt of a
    /// process that creates the transaction.
    Read,
    /// Read the marks of all documents.
    ReadMark,
    /// Write the transaction as pending, and have that acknowledged after the marks were read.
    Begin,
    /// Hold every document.
    Hold,
    /// Decide for the transaction.
    Commit,
    /// Rewrite the transaction in the state that was read, so that the state is acknowledged and
    /// cannot be lost.
    Confirm,
    /// Settle every document.
    Settle,
    /// Record that all documents are settled.
    Finish,
    /// Decide against the transaction.
    Abandon,
    /// Undo every document.
    Undo,
    /// Record that all documents are undone.
    RollBack,
}

/// A list of steps from one state to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sequence {
    /// Find out which sequence to take.
    Enter,
    /// From no transaction, created or pending to committed.
    Forward,
    /// From committed to finished.
    Settle,
    /// From created to rolled-back, or from pending to terminating.
    Abandon,
    /// From terminating to rolled-back.
    Undo,
    /// From a final state: only has it acknowledged.
    Rest,
}

impl Sequence {
    /// All sequences.
    pub const ALL: [Self; 6] = [
        Self::Enter,
        Self::Forward,
        Self::Settle,
        Self::Abandon,
        Self::Undo,
        Self::Rest,
    ];

    /// Returns its steps. Each step requires that the one before is complete.
    pub const fn steps(self) -> &'static [Step] {
        match self {
            Self::Enter => &[Step::Read],
            Self::Forward => &[Step::ReadMark, Step::Begin, Step::Hold, Step::Commit],
            Self::Settle => &[Step::Confirm, Step::Settle, Step::Finish],
            Self::Abandon => &[Step::Abandon],
            Self::Undo => &[Step::Confirm, Step::Undo, Step::RollBack],
            Self::Rest => &[Step::Confirm],
        }
    }

    /// Returns the index of the first step for a process whose own write has just reached the state
    /// in which this sequence begins: that state needs no confirmation.
    pub(super) fn index_after_confirm(self) -> usize {
        usize::from(self.steps()[0] == Step::Confirm)
    }
}
