//! The error type of this library, and the conversion of errors into text. An error describes what
//! happened; the caller decides what to do about it.

pub(crate) mod driver;

use std::any::Any;
use std::fmt;

use tokio_postgres::error::{DbError, SqlState};

use driver::DriverError;

/// The error of a call to posthaste.
///
/// Opaque on purpose: its predicates classify it. Its text is one line, names the remedy if there
/// is one, and never contains arguments of jobs or connection secrets.
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
    #[error(
        "{what}: {source}{}",
        explain_server_error(source.sqlstate().map(SqlState::code), &source.to_string())
    )]
    Driver {
        what: &'static str,
        source: DriverError,
    },
    #[error("{what}: no answer within {seconds} s")]
    TimedOut { what: &'static str, seconds: u64 },
    #[error("cannot connect to Postgres{0}")]
    Connect(ErrorCause),
    #[error(
        "{0}: nothing runs here until 'posthaste adopt' takes over the store, or [site] sets the \
         name of its owner"
    )]
    OtherSite(String),
    #[error("{0}")]
    Schema(String),
    #[error("{0}")]
    Config(String),
    #[error("the worker ended unexpectedly: {0}")]
    Ended(String),
}

/// The reason for a missing connection: an error of a pool or a driver, or a message of this
/// library.
#[derive(Debug)]
pub(crate) struct ErrorCause {
    text: String,
    /// The server's address, if it is known.
    place: Option<String>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl ErrorCause {
    pub(crate) fn from_error(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self {
            text: chain(&error),
            place: None,
            source: Some(Box::new(error)),
        }
    }
}

impl From<String> for ErrorCause {
    fn from(text: String) -> Self {
        Self {
            text,
            place: None,
            source: None,
        }
    }
}

impl fmt::Display for ErrorCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Some(place) => write!(f, " at {place}: {}", self.text),
            None => write!(f, ": {}", self.text),
        }
    }
}

/// Returns an error with its causes, outermost first. A cause that repeats the text before it is
/// left out. A message of Postgres has its hint and SQLSTATE.
pub fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = String::new();
    let mut next = Some(error);
    while let Some(cause) = next {
        next = cause.source();
        let message = match cause.downcast_ref::<DbError>() {
            Some(refusal) => refusal_text(refusal),
            None => cause.to_string(),
        };
        // For a server error tokio-postgres writes only this; the message is the cause.
        if text.ends_with(DRIVER_PLACEHOLDER) && next.is_none() {
            text.truncate(text.len() - DRIVER_PLACEHOLDER.len());
        }
        if !text.contains(&message) {
            let between = if text.is_empty() || text.ends_with(": ") {
                ""
            } else {
                ": "
            };
            text = text + between + &message;
        }
    }
    text
}

const DRIVER_PLACEHOLDER: &str = "db error";

/// Returns the server's message with its hint; tokio-postgres alone writes only "db error".
pub(crate) fn describe(error: &tokio_postgres::Error) -> String {
    chain(error)
}

fn refusal_text(refusal: &DbError) -> String {
    let (message, code) = (refusal.message(), refusal.code().code());
    let more = match refusal.hint() {
        Some(hint) => format!(". {hint}"),
        None => explain_server_error(Some(code), message),
    };
    format!("{message} ({code}){more}")
}

/// The cause of every error that is due to a missing schema.
pub const NOT_INSTALLED: &str = "posthaste is not installed in this database";
/// The remedy for a missing or older schema.
pub const MIGRATE: &str = "run 'posthaste migrate'";
/// The remedy for a program, after [`MIGRATE`].
pub const OR_CALL: &str = " or call posthaste::migrate()";
/// The cause and the remedy for a rejected write.
pub const READ_ONLY: &str =
    "this server is a replica, or the session may only read: connect to the primary";

/// Explains a server error whose message is not clear. A driver may not report the SQLSTATE.
fn explain_server_error(code: Option<&str>, message: &str) -> String {
    let no_schema =
        format!("; {NOT_INSTALLED}, or its schema is older than this program: {MIGRATE}{OR_CALL}");
    let read_only = format!("; {READ_ONLY}");
    let meaning = match code {
        Some("42P01" | "42883" | "3F000") | None
            if message.contains("\"posthaste") || message.contains(" posthaste.") =>
        {
            no_schema.as_str()
        }
        Some("25006") => read_only.as_str(),
        Some("55000" | "0A000")
            if message.contains("recovery is in progress")
                || message.contains("during recovery") =>
        {
            read_only.as_str()
        }
        _ => "",
    };
    // A driver's message may contain it already.
    if message.contains(meaning) {
        String::new()
    } else {
        meaning.to_owned()
    }
}

/// Whether the connection failed.
pub(crate) fn is_connection(error: &tokio_postgres::Error) -> bool {
    match error.as_db_error() {
        // Class 57P is a server that shuts down or terminates the session; 08 is the connection
        // itself.
        Some(db) => db.code().code().starts_with("57P") || db.code().code().starts_with("08"),
        // An answer that the driver could not parse came over a working connection.
        None => {
            error.is_closed()
                || std::error::Error::source(error)
                    .is_some_and(|cause| cause.is::<std::io::Error>())
        }
    }
}

/// Returns the message of a panic.
pub fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "with a payload that is not a string".into())
}

impl Error {
    /// Whether an argument is invalid and was rejected, usually before anything was sent; the text
    /// names the field.
    pub fn is_invalid(&self) -> bool {
        matches!(*self.0, ErrorKind::Invalid { .. })
            || self.sqlstate().is_some_and(|state| {
                *state == tokio_postgres::error::SqlState::INVALID_PARAMETER_VALUE
            })
    }

    /// Whether the fence was lost: another process finished, rescued or took over the job, and this
    /// call changed nothing.
    pub fn is_lost(&self) -> bool {
        matches!(*self.0, ErrorKind::Lost)
    }

    /// Whether another site works this store, such as production for a copy: nothing is done there.
    pub fn is_other_site(&self) -> bool {
        matches!(*self.0, ErrorKind::OtherSite(_))
    }

    /// Whether the connection failed or no answer came: it is unknown whether the statement took
    /// effect.
    pub fn is_connection(&self) -> bool {
        match &*self.0 {
            ErrorKind::Connect(_) | ErrorKind::TimedOut { .. } => true,
            ErrorKind::Postgres { source, .. } => is_connection(source),
            ErrorKind::Driver { source, .. } => source.is_connection(),
            _ => false,
        }
    }

    /// Returns the SQLSTATE, if the server reported an error.
    pub fn sqlstate(&self) -> Option<&tokio_postgres::error::SqlState> {
        match &*self.0 {
            ErrorKind::Postgres { source, .. } => source.code(),
            ErrorKind::Driver { source, .. } => source.sqlstate(),
            _ => None,
        }
    }

    /// Creates an error for an invalid setting or an unusable resource, for other crates of this
    /// repository.
    pub fn config(text: impl Into<String>) -> Self {
        ErrorKind::Config(text.into()).into()
    }

    /// Creates an error for an argument that is rejected before anything is sent.
    pub fn invalid(field: &'static str, reason: impl Into<String>) -> Self {
        ErrorKind::Invalid {
            field,
            reason: reason.into(),
        }
        .into()
    }

    /// Whether the server reported an error: the transaction was rolled back, and nothing took
    /// effect.
    pub(crate) fn is_rollback(&self) -> bool {
        self.sqlstate().is_some() && !self.is_connection()
    }

    /// Whether it is unknown that the statement took effect. A statement that was never sent,
    /// because there was no connection, certainly did not.
    pub(crate) fn leaves_in_doubt(&self) -> bool {
        !self.is_rollback() && !matches!(*self.0, ErrorKind::Connect(_) | ErrorKind::OtherSite(_))
    }

    /// Adapts an error of the driver that occurred before anything was sent: the server's error, or
    /// a missing connection.
    pub(crate) fn unsent(what: &'static str) -> impl FnOnce(tokio_postgres::Error) -> Error {
        move |source| {
            let refuses = source.code().is_some() && !is_connection(&source);
            if refuses {
                Self::postgres(what)(source)
            } else {
                ErrorKind::Connect(ErrorCause::from_error(source)).into()
            }
        }
    }

    /// Adds the place that could not be connected to, if this was the error.
    pub(crate) fn at(self, place: impl FnOnce() -> Option<String>) -> Self {
        match *self.0 {
            ErrorKind::Connect(chain) => ErrorKind::Connect(ErrorCause {
                place: place(),
                ..chain
            })
            .into(),
            kind => kind.into(),
        }
    }

    /// Adapts an error of the caller's driver; `what` describes the operation.
    pub(crate) fn driver(what: &'static str) -> impl FnOnce(DriverError) -> Error {
        move |source| ErrorKind::Driver { what, source }.into()
    }

    /// Adapts an error of this library's driver; `what` describes the operation that failed.
    pub fn postgres(what: &'static str) -> impl FnOnce(tokio_postgres::Error) -> Error {
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
            ErrorKind::Connect(chain) => chain.source.as_deref().map(|source| source as _),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Cause(&'static str, #[source] Option<Box<Cause>>);

    #[test]
    fn errors_show_each_cause_once() {
        let cause = |text, below: Option<Cause>| Cause(text, below.map(Box::new));
        let full = cause("the disk is full", None);
        let write = cause("cannot write: the disk is full", Some(full));
        let error = cause("the report is not there", Some(write));
        assert_eq!(
            chain(&error),
            "the report is not there: cannot write: the disk is full"
        );
        let refusal = cause("relation \"x\" does not exist", None);
        let pool = cause(
            "cannot create: db error",
            Some(cause("db error", Some(refusal))),
        );
        assert_eq!(chain(&pool), "cannot create: relation \"x\" does not exist");
    }

    #[test]
    fn refusals_explain_themselves_once() {
        let message = "cannot execute CREATE SCHEMA in a read-only transaction";
        let meaning = super::explain_server_error(Some("25006"), message);
        assert!(meaning.contains("replica"), "{meaning}");
        assert_eq!(
            super::explain_server_error(Some("25006"), &format!("{message}{meaning}")),
            ""
        );
    }
}
