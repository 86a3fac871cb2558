//! Errors of captures.

use std::fmt;
use std::io;

use posthaste::__private::chain;

/// An error of a capture.
#[derive(Debug)]
pub struct Error(Problem);

#[derive(Debug)]
enum Problem {
    /// The connection was lost; another may work.
    Lost(String),
    /// The server refused something.
    Refused {
        code: String,
        text: String,
    },
    /// An operator is needed: a retry would fail too.
    Stopped(String),
    /// An operator paused it.
    Paused,
    Store(posthaste::Error),
}

impl Error {
    pub(crate) fn lost(text: impl Into<String>) -> Self {
        Self(Problem::Lost(text.into()))
    }

    pub(crate) fn io(error: io::Error) -> Self {
        Self::lost(error.to_string())
    }

    pub(crate) fn refused(code: String, text: String) -> Self {
        Self(Problem::Refused { code, text })
    }

    pub(crate) fn stopped(text: impl Into<String>) -> Self {
        Self(Problem::Stopped(text.into()))
    }

    /// Whether an operator is needed: a retry would fail too.
    pub fn is_stopped(&self) -> bool {
        matches!(&self.0, Problem::Stopped(_))
    }

    pub(crate) fn paused() -> Self {
        Self(Problem::Paused)
    }

    /// Whether an operator paused the capture.
    pub fn is_paused(&self) -> bool {
        matches!(&self.0, Problem::Paused)
    }

    /// Whether another process has the slot.
    pub(crate) fn is_in_use(&self) -> bool {
        matches!(&self.0, Problem::Refused { code, .. } if code == "55006")
    }

    /// Whether the server shuts down.
    pub(crate) fn is_shutdown(&self) -> bool {
        matches!(self.code(), Some("57P01" | "57P03"))
    }

    /// The SQLSTATE of a server's error.
    pub(crate) fn code(&self) -> Option<&str> {
        match &self.0 {
            Problem::Refused { code, .. } => Some(code),
            Problem::Store(error) => error.sqlstate().map(|state| state.code()),
            Problem::Lost(_) | Problem::Stopped(_) | Problem::Paused => None,
        }
    }
}

impl From<posthaste::Error> for Error {
    fn from(error: posthaste::Error) -> Self {
        Self(Problem::Store(error))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Problem::Lost(text) | Problem::Stopped(text) => f.write_str(text),
            Problem::Paused => f.write_str("it is paused; 'posthaste capture resume' resumes it"),
            Problem::Refused { code, text } => write!(f, "{text} (SQLSTATE {code})"),
            Problem::Store(error) => f.write_str(&chain(error)),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.0 {
            Problem::Store(error) => Some(error),
            _ => None,
        }
    }
}
