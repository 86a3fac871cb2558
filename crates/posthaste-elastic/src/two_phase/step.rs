//! The steps of a transaction, as lists. The executor, the model and the tests that stop after
//! every step go by these lists and by nothing else.

/// A step: one or several requests that do not depend on each other, each about a document of its
/// own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// Read where the transaction is. Every attempt begins here, except the first of who makes the
    /// transaction.
    Read,
    /// Read the marks of all documents.
    ReadMark,
    /// Have it acknowledged that the transaction is pending, after the check.
    Begin,
    /// Hold every document.
    Hold,
    /// Decide that it happens.
    Commit,
    /// Have it acknowledged that the state which was read is not a passing one.
    Confirm,
    /// Settle every document.
    Settle,
    /// Say that all are settled.
    Finish,
    /// Decide that it does not happen.
    Abandon,
    /// Undo every document.
    Undo,
    /// Say that all are undone.
    RollBack,
}

/// Where a list of steps leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sequence {
    /// Find out which sequence to take.
    Enter,
    /// From nothing, created or pending to committed.
    Forward,
    /// From committed to finished.
    Settle,
    /// From created to rolled-back, or from pending to terminating.
    Abandon,
    /// From terminating to rolled-back.
    Undo,
    /// From a final state nowhere: only to have it acknowledged.
    Rest,
}

impl Sequence {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Enter,
        Self::Forward,
        Self::Settle,
        Self::Abandon,
        Self::Undo,
        Self::Rest,
    ];

    /// Its steps, each of which needs everything before it.
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

    /// The sequence for the one that has just had it acknowledged that the transaction is where
    /// this one begins: nothing is left to confirm.
    pub(super) fn confirmed(self) -> usize {
        usize::from(self.steps()[0] == Step::Confirm)
    }
}
