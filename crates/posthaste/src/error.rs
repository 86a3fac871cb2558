//! One error at the library's door. It says what happened; `retry` decides what to do about it.

use std::any::Any;
use std::fmt;

use crate::executor::DriverError;

/// What went wrong in a call to posthaste.
///
/// Opaque on purpose: ask it with the predicates. Its text is one line, names the way out where there is one, and never contains arguments
/// of jobs or connection secrets.
pub struct Error(Box<ErrorKind>);

#[derive(Debug, thiserror::Error)]
pub(crate) enum ErrorKind {
    #[error("{field}: {reason}")]
    Invalid { field: &'static str, reason: String },
    #[error("the job is no longer this worker's: its fence was lost")]
    Lost,
    #[error("{what}: {}", describe(source))]
    Postgres {
        what: &'static str,
        source: tokio_postgres::Error,
    },
    #[error("{what}: {source}")]
    Driver {
        what: &'static str,
        source: DriverError,
    },
    #[error("{what}: no answer within {seconds} s")]
    TimedOut { what: &'static str, seconds: u64 },
    #[error("cannot connect to Postgres: {0}")]
    Connect(String),
    #[error("{0}")]
    Schema(String),
    #[error("{0}")]
    Config(String),
    #[error("the worker ended unexpectedly: {0}")]
    Ended(String),
}

/// The server's words, with its hint; tokio-postgres itself only says "db error".
pub(crate) fn describe(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(db) => match db.hint() {
            Some(hint) => format!("{} ({}); {hint}", db.message(), db.code().code()),
            None => format!("{} ({})", db.message(), db.code().code()),
        },
        None => match std::error::Error::source(error) {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        },
    }
}

/// Whether it is the connection that failed.
pub(crate) fn is_connection(error: &tokio_postgres::Error) -> bool {
    match error.as_db_error() {
        // Class 57P is the server going down or throwing us out, 08 the connection itself.
        Some(db) => db.code().code().starts_with("57P") || db.code().code().starts_with("08"),
        // What the driver could not read came over a connection that works.
        None => {
            error.is_closed()
                || std::error::Error::source(error)
                    .is_some_and(|cause| cause.is::<std::io::Error>())
        }
    }
}

/// What a panic says.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "with something that is no text".into())
}

impl Error {
    /// An argument was refused before anything was sent; the text names the field.
    pub fn is_invalid(&self) -> bool {
        matches!(*self.0, ErrorKind::Invalid { .. })
            || self.sqlstate().is_some_and(|state| {
                *state == tokio_postgres::error::SqlState::INVALID_PARAMETER_VALUE
            })
    }

    /// The fence was lost: somebody else finished, rescued or took over the job, and this call changed nothing.
    pub fn is_lost(&self) -> bool {
        matches!(*self.0, ErrorKind::Lost)
    }

    /// The connection failed or no answer came: whether the statement took effect is not known.
    pub fn is_connection(&self) -> bool {
        match &*self.0 {
            ErrorKind::Connect(_) | ErrorKind::TimedOut { .. } => true,
            ErrorKind::Postgres { source, .. } => is_connection(source),
            ErrorKind::Driver { source, .. } => source.is_connection(),
            _ => false,
        }
    }

    /// The SQLSTATE, where the server refused.
    pub fn sqlstate(&self) -> Option<&tokio_postgres::error::SqlState> {
        match &*self.0 {
            ErrorKind::Postgres { source, .. } => source.code(),
            ErrorKind::Driver { source, .. } => source.sqlstate(),
            _ => None,
        }
    }

    pub(crate) fn invalid(field: &'static str, reason: impl Into<String>) -> Self {
        ErrorKind::Invalid {
            field,
            reason: reason.into(),
        }
        .into()
    }

    /// The server itself refused: the transaction was rolled back, nothing took effect.
    pub(crate) fn is_rollback(&self) -> bool {
        self.sqlstate().is_some() && !self.is_connection()
    }

    /// Whether it took effect is not known. What was never sent, because there was no connection, certainly did not.
    pub(crate) fn leaves_in_doubt(&self) -> bool {
        !self.is_rollback() && !matches!(*self.0, ErrorKind::Connect(_))
    }

    /// Adapts an error of the driver that came before anything was sent: the server refused, or there was no connection.
    pub(crate) fn unsent(what: &'static str) -> impl FnOnce(tokio_postgres::Error) -> Error {
        move |source| {
            let lost = ErrorKind::Connect(describe(&source));
            let error = Self::postgres(what)(source);
            if error.is_rollback() {
                error
            } else {
                lost.into()
            }
        }
    }

    /// Adapts an error of the caller's driver; `what` says what was being done.
    pub(crate) fn driver(what: &'static str) -> impl FnOnce(DriverError) -> Error {
        move |source| ErrorKind::Driver { what, source }.into()
    }

    /// Adapts an error of our own driver; `what` says what was being done.
    pub(crate) fn postgres(what: &'static str) -> impl FnOnce(tokio_postgres::Error) -> Error {
        move |source| ErrorKind::Postgres { what, source }.into()
    }
}

impl From<ErrorKind> for Error {
    fn from(kind: ErrorKind) -> Self {
        Self(Box::new(kind))
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &*self.0 {
            ErrorKind::Postgres { source, .. } => Some(source),
            ErrorKind::Driver { source, .. } => Some(source),
            _ => None,
        }
    }
}
