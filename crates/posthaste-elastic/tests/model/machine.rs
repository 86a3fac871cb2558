//! An executor: the library's, or one of the published protocol.

use posthaste_elastic::two_phase::{Execution, Fence, Progress, Reason, Request, Response, Step};

use super::seed::Seed;

/// The goal of an executor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Goal {
    /// Create the transaction and run it to its end.
    Create,
    /// Run it to its end, as recovery does.
    Resume,
    /// Roll it back.
    RollBack,
    /// Run it to its end by the published protocol.
    SeedResume,
    /// Roll it back by the published protocol.
    SeedRollBack,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Machine {
    Ours(Execution),
    Seed(Seed),
}

impl Machine {
    pub fn new(aim: Goal, documents: usize, patience: u8) -> Self {
        match aim {
            Goal::Create => Self::Ours(Execution::for_new(documents, patience)),
            Goal::Resume => Self::Ours(Execution::for_existing(documents, patience)),
            Goal::RollBack => Self::Ours(Execution::for_rollback(documents, Reason::Asked)),
            Goal::SeedResume => Self::Seed(Seed::new(documents, false)),
            Goal::SeedRollBack => Self::Seed(Seed::new(documents, true)),
        }
    }

    pub fn requests(&self) -> Vec<Request> {
        match self {
            Self::Ours(execution) => execution.requests(),
            Self::Seed(seed) => vec![seed.request()],
        }
    }

    pub fn apply_answers(&mut self, answers: &[Response]) -> Progress {
        match self {
            Self::Ours(execution) => execution.apply_answers(answers),
            Self::Seed(seed) => seed.apply_answers(answers[0]),
        }
    }

    pub fn marks(&self) -> &[Fence] {
        match self {
            Self::Ours(execution) => execution.marks(),
            Self::Seed(_) => &[],
        }
    }

    /// Whether the next step reads: only the order of reads does not matter.
    pub fn is_looking(&self) -> bool {
        matches!(self, Self::Ours(execution) if execution.step() == Step::ReadMark)
    }
}

/// The mark of a hold by the published protocol, which has no marks.
pub const NO_MARK: Fence = Fence(0);
