//! Reasons why a transaction did not end as requested, and whether it may have changed something.

use std::fmt;

use super::execution::Reason;
use super::state::State;
use super::transaction::{Refusal, TransactionId};
use crate::{Error, ErrorKind};

/// The reason why a transaction did not end as requested.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The request breaks a rule. Nothing was written.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The indexes are misconfigured. This call moved nothing.
    #[error("{0}")]
    Misconfigured(String),
    /// A document does not exist. This call wrote nothing.
    #[error(
        "there is no document {0:?}: create documents before transactions use them, and never \
         delete them"
    )]
    Missing(String),
    /// A transaction of this name exists, has other effects, and proceeds independently.
    #[error("a transaction named {0} exists and has other effects")]
    Different(TransactionId),
    /// The transaction does not exist, or does not exist yet: a late creation may still arrive.
    #[error("there is no transaction {0}")]
    Absent(TransactionId),
    /// The transaction was rolled back and moves nothing, now or later.
    #[error("the transaction was rolled back: {}", reason_text(*.0))]
    RolledBack(Option<Reason>),
    /// The transaction is committed and cannot be rolled back: another transaction may reverse it.
    #[error("the transaction is finished, or will be: it was committed before")]
    Committed,
    /// The transaction is open. Recovery completes it or rolls it back.
    #[error("the transaction is open, and recovery will end it{}", error_suffix(.0.as_ref()))]
    Open(Option<Error>),
    /// The transaction may have been recorded or not: if it was, it is open and recovery completes
    /// it or rolls it back.
    #[error("it is unknown whether the transaction was created; if it was, recovery ends it ({0})")]
    Ambiguous(Error),
    /// The document to open may exist or not. The same call may be made again.
    #[error("it is unknown whether the document {document:?} was opened: open it again ({error})")]
    Unopened {
        /// The document.
        document: String,
        /// The error that left the outcome unknown.
        error: Error,
    },
    /// The documents were written too often to read a consistent state.
    #[error("the documents changed during every read: read fewer of them together, or try again")]
    Moving,
    /// This call wrote nothing.
    #[error(transparent)]
    Unavailable(Error),
}

impl Failure {
    /// Whether any call that was ever made with this name may have moved something, or may still do
    /// so.
    ///
    /// Only if this is false is it safe to repeat the transaction under another name. If it is
    /// true, the same call may be repeated until its result is definite.
    pub fn may_have_moved(&self) -> bool {
        match self {
            Self::Open(_)
            | Self::Ambiguous(_)
            | Self::Committed
            // Earlier calls may have written, or sent late requests, that this call did not see.
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

    /// Like [`may_have_moved`](Self::may_have_moved), for a caller that knows that this was the
    /// first call ever made with the transaction's name.
    pub fn may_have_moved_by_this_call(&self) -> bool {
        matches!(self, Self::Open(_) | Self::Ambiguous(_) | Self::Committed)
    }

    /// Whether the thing to read no longer exists.
    pub(super) fn is_missing(&self) -> bool {
        matches!(self, Self::Unavailable(error) if error.kind() == ErrorKind::Missing)
    }

    /// Converts a failure after the transaction was recorded: recovery will run it to its end.
    pub(super) fn after_recording(self) -> Self {
        match self {
            Self::Unavailable(error) => Self::Open(Some(error)),
            Self::Misconfigured(why) => {
                Self::Open(Some(Error::new("check", ErrorKind::NoIndex, why)))
            }
            other => other,
        }
    }

    /// Whether the same call may succeed at another time; a transaction that was rolled back, under
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

/// Returns the result of `run` for a final state.
pub(super) fn result_of_end(state: State, reason: Option<Reason>) -> Result<(), Failure> {
    match state {
        State::Finished => Ok(()),
        _ => Err(Failure::RolledBack(reason)),
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Asked => "a client requested it",
            Self::Insufficient => "a document has less available than it takes",
            Self::TooLarge => "a balance could have grown beyond 2^53",
            Self::Missing => "a document does not exist",
            Self::Busy => "other transactions held a document repeatedly",
            Self::Listed => "at its adoption it had ended, but was still listed by an account",
        })
    }
}

fn reason_text(reason: Option<Reason>) -> String {
    let nobody = || "no reason was recorded".to_owned();
    reason.map_or_else(nobody, |reason| reason.to_string())
}

fn error_suffix(error: Option<&Error>) -> String {
    error.map(|error| format!(": {error}")).unwrap_or_default()
}
