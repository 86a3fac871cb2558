//! What keeps a capture from going on.

use std::fmt;
use std::io;

use posthaste::__private::chain;

/// Why a capture does not go on.
#[derive(Debug)]
pub struct Error(Problem);

#[derive(Debug)]
enum Problem {
    /// The connection; another may do.
    Lost(String),
    /// The server refused something.
    Refused {
        code: String,
        text: String,
    },
    /// It needs an operator: trying again would change nothing.
    Stopped(String),
    /// Somebody has paused it.
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

    /// Whether trying again changes nothing before somebody has acted.
    pub fn is_stopped(&self) -> bool {
        matches!(&self.0, Problem::Stopped(_))
    }

    pub(crate) fn paused() -> Self {
        Self(Problem::Paused)
    }

    /// Whether somebody has paused the capture.
    pub fn is_paused(&self) -> bool {
        matches!(&self.0, Problem::Paused)
    }

    /// Whether another process has the slot.
    pub(crate) fn is_in_use(&self) -> bool {
        matches!(&self.0, Problem::Refused { code, .. } if code == "55006")
    }

    /// Whether the server is going down.
    pub(crate) fn is_shutdown(&self) -> bool {
        matches!(self.code(), Some("57P01" | "57P03"))
    }

    /// The SQLSTATE of what a server refused.
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
            Problem::Paused => {
                f.write_str("it is paused: 'posthaste capture resume' lets it go on")
            }
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
