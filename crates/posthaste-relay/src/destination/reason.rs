//! The reason why a destination did not accept a message: a text for people, and a kind for
//! metrics.

use std::fmt;
use std::ops::Deref;

/// Kinds of failures. They are labels of metrics: few, and none contains text from a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Failure {
    /// There is no connection, or it was lost.
    Connect,
    /// There was no answer in time.
    Timeout,
    /// It does not know the account, or denies it a permission.
    Auth,
    /// It accepts no more for now: a queue is full, or a rate was exceeded.
    Full,
    /// It has no queue, stream, topic or address for the message.
    NoRoute,
    /// The message is too large for it.
    TooLarge,
    /// It can never accept the message.
    Refused,
    /// It answered with another error, and the message is retried.
    Error,
    /// It is unknown whether the destination has the message.
    Ambiguous,
    /// Any other failure.
    Other,
}

impl Failure {
    /// All kinds.
    pub const ALL: [Self; 10] = [
        Self::Connect,
        Self::Timeout,
        Self::Auth,
        Self::Full,
        Self::NoRoute,
        Self::TooLarge,
        Self::Refused,
        Self::Error,
        Self::Ambiguous,
        Self::Other,
    ];

    /// Returns its name in metrics and in the database.
    pub fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Timeout => "timeout",
            Self::Auth => "auth",
            Self::Full => "full",
            Self::NoRoute => "no_route",
            Self::TooLarge => "too_large",
            Self::Refused => "refused",
            Self::Error => "error",
            Self::Ambiguous => "ambiguous",
            Self::Other => "other",
        }
    }
}

/// The reason why a destination did not accept a message. A reason that is converted from text has
/// the kind of its [`Answer`](crate::Answer).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    text: String,
    pub(super) failure: Option<Failure>,
}

impl Reason {
    /// Creates a reason of a known kind.
    pub fn new(failure: Failure, text: impl Into<String>) -> Self {
        let (text, failure) = (text.into(), Some(failure));
        Self { text, failure }
    }

    /// Returns whether the relay's account is the cause.
    pub(crate) fn is_denial(&self) -> bool {
        self.failure == Some(Failure::Auth)
    }
}

#[cfg(any(feature = "amqp", feature = "nats"))]
impl Reason {
    /// Creates a reason for an answer that was not received in time.
    pub(crate) fn timed_out(text: impl Into<String>) -> Self {
        Self::new(Failure::Timeout, text)
    }
}

impl From<String> for Reason {
    fn from(text: String) -> Self {
        let failure = None;
        Self { text, failure }
    }
}

impl From<&str> for Reason {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl From<Reason> for String {
    fn from(reason: Reason) -> Self {
        reason.text
    }
}

impl Deref for Reason {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Reason {}
