//! Why a destination did not take a message: a text for people, and a kind that can be counted.

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
    /// It does not know us, or does not allow us this.
    Auth,
    /// It takes no more for now: a queue is full, a rate was exceeded.
    Full,
    /// It has no queue, stream, topic or address for the message.
    NoRoute,
    /// The message is too large for it.
    TooLarge,
    /// It will never take the message.
    Refused,
    /// It answered with an error of its own, and is asked again.
    Error,
    /// Nobody can find out whether it has the message.
    Ambiguous,
    /// Anything else.
    Other,
}

impl Failure {
    /// All of them.
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

    /// As metrics and the database have it.
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

/// Why a destination did not take a message. A text becomes one whose kind is that of its
/// [`Answer`](crate::Answer).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    text: String,
    pub(super) failure: Option<Failure>,
}

impl Reason {
    /// A reason whose kind is known.
    pub fn new(failure: Failure, text: impl Into<String>) -> Self {
        let (text, failure) = (text.into(), Some(failure));
        Self { text, failure }
    }

    /// Whether it lies with the account that the relay has there.
    pub(crate) fn is_denial(&self) -> bool {
        self.failure == Some(Failure::Auth)
    }
}

#[cfg(any(feature = "amqp", feature = "nats"))]
impl Reason {
    /// There was no answer in time.
    pub(crate) fn late(text: impl Into<String>) -> Self {
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
