//! Why a transaction did not come to the end that was asked for, and what that means for what it
//! would have moved.

use std::fmt;

use super::execution::Reason;
use super::state::State;
use super::transaction::{Refusal, TransactionId};
use crate::{Error, ErrorKind};

/// Why a transaction did not come to the end that was asked for.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// It breaks a rule. Nothing was written.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The indexes are not as they must be. This call moved nothing.
    #[error("{0}")]
    Misconfigured(String),
    /// A document is not there. This call wrote nothing.
    #[error(
        "there is no document {0:?}: accounts are created before they take part, and never deleted"
    )]
    Missing(String),
    /// There is a transaction of this name which does something else, and which proceeds
    /// independently.
    #[error("a transaction named {0} exists and has other effects")]
    Different(TransactionId),
    /// There is no such transaction, or none yet: one whose creation is late may still come.
    #[error("there is no transaction {0}")]
    Absent(TransactionId),
    /// It was given up and moves nothing, now or later.
    #[error("the transaction was rolled back: {}", why(*.0))]
    RolledBack(Option<Reason>),
    /// It happened and cannot be given up: another one may reverse it.
    #[error("the transaction is finished, or will be: it was committed before")]
    Committed,
    /// It is open. Recovery completes or aborts it.
    #[error("the transaction is open, and recovery will end it{}", because(.0.as_ref()))]
    Open(Option<Error>),
    /// It may have been written down or not: if it was, it is open and recovery completes or aborts
    /// it.
    #[error(
        "nobody knows whether the transaction was written down; if it was, recovery ends it ({0})"
    )]
    Ambiguous(Error),
    /// A document that was to be opened may be there or not. The same call may be made again.
    #[error("nobody knows whether the document {document:?} was opened: open it again ({error})")]
    Unopened {
        /// The document.
        document: String,
        /// Why nobody knows.
        error: Error,
    },
    /// The documents were written so often that no consistent state was read.
    #[error("the documents changed during every read: read fewer of them together, or try again")]
    Moving,
    /// This call could write nothing.
    #[error(transparent)]
    Unavailable(Error),
}

impl Failure {
    /// Whether the transaction may have moved something, or may yet do it, by whatever call was
    /// ever made with its name.
    ///
    /// It is safe to do the same under another name only where this is false. Where it is true, the
    /// same call may be made again until one of them says.
    pub fn may_have_moved(&self) -> bool {
        match self {
            Self::Open(_)
            | Self::Ambiguous(_)
            | Self::Committed
            // What an earlier call has written, or has sent that is late, was not seen.
            | Self::Misconfigured(_)
            | Self::Missing(_)
            | Self::Absent(_)
            | Self::Unavailable(_) => true,
            Self::Refused(_)
            | Self::Different(_)
            | Self::RolledBack(_)
            | Self::Unopened { .. }
            | Self::Moving => false,
        }
    }

    /// As [`may_have_moved`](Self::may_have_moved), for a caller who knows that this was the first
    /// call ever made with the transaction's name.
    pub fn may_have_moved_by_this_call(&self) -> bool {
        matches!(self, Self::Open(_) | Self::Ambiguous(_) | Self::Committed)
    }

    /// What was to be read is not there any more.
    pub(super) fn is_missing(&self) -> bool {
        matches!(self, Self::Unavailable(error) if error.kind() == ErrorKind::Missing)
    }

    /// The same after the transaction was written down: the one that recovers carries it out.
    pub(super) fn after_recording(self) -> Self {
        match self {
            Self::Unavailable(error) => Self::Open(Some(error)),
            Self::Misconfigured(why) => {
                Self::Open(Some(Error::new("check", ErrorKind::NoIndex, why)))
            }
            other => other,
        }
    }

    /// Whether the same may succeed at another time: for a transaction that was rolled back, under
    /// another name.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Open(_) | Self::Ambiguous(_) | Self::Unopened { .. } | Self::Moving => true,
            Self::RolledBack(reason) => *reason != Some(Reason::TooLarge),
            Self::Unavailable(error) => error.may_pass() || error.kind() == ErrorKind::Conflict,
            _ => false,
        }
    }
}

/// How a transaction ended, as the caller of `run` sees it.
pub(super) fn ended(state: State, reason: Option<Reason>) -> Result<(), Failure> {
    match state {
        State::Finished => Ok(()),
        _ => Err(Failure::RolledBack(reason)),
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Asked => "somebody asked for it",
            Self::Insufficient => "a document has less available than it takes",
            Self::TooLarge => "a balance could have grown beyond 2^53",
            Self::Missing => "a document is not there",
            Self::Busy => "others held a document again and again",
            Self::Listed => "when it was adopted it was at its end, and still on an account",
        })
    }
}

fn why(reason: Option<Reason>) -> String {
    let nobody = || "nobody wrote down why".to_owned();
    reason.map_or_else(nobody, |reason| reason.to_string())
}

fn because(error: Option<&Error>) -> String {
    error.map(|error| format!(": {error}")).unwrap_or_default()
}
