//! Errors of the database.

use thiserror::Error;

/// An error that a page can show.
#[derive(Clone, Debug, Error)]
pub(crate) enum StoreError {
    /// There is no connection.
    #[error("the database does not answer: {0}")]
    Unreachable(String),
    /// A statement took too long, or waited for a lock.
    #[error("the database did not answer within {0}")]
    Late(&'static str),
    /// The database is a read-only replica.
    #[error("this database is a read-only replica")]
    ReadOnly,
    /// The schema is missing, or older or newer than this console.
    #[error("the schema of posthaste does not match this console: {0}")]
    Schema(String),
    /// The role of the connection lacks a right.
    #[error("the database role of the console lacks a right: {0}")]
    Denied(String),
    /// The request is invalid.
    #[error("{0}")]
    Refused(String),
    /// Any other error.
    #[error("the database failed: {0}")]
    Failed(String),
}

impl StoreError {
    fn from_sqlstate(code: Option<&str>, text: String) -> Self {
        match code {
            Some("57014" | "55P03") => Self::Late("its time limit"),
            Some("25006") => Self::ReadOnly,
            Some("42P01" | "42883" | "3F000" | "42703") => Self::Schema(text),
            Some("42501") => Self::Denied(text),
            Some(code) if code.starts_with("22") || code.starts_with("54") => Self::Refused(text),
            Some(code) if code.starts_with("08") || code.starts_with("57P") => {
                Self::Unreachable(text)
            }
            _ => Self::Failed(text),
        }
    }
}

impl StoreError {
    /// Converts an error about a form's selection of documents: errors of its columns and types are
    /// those of the form.
    pub(super) fn from_selection(error: posthaste::Error) -> Self {
        let code = error.sqlstate().map(|code| code.code().to_owned());
        match code.as_deref() {
            Some("42703" | "42883" | "42804" | "42725") => Self::Refused(with_causes(&error)),
            _ => error.into(),
        }
    }
}

impl From<posthaste::Error> for StoreError {
    fn from(error: posthaste::Error) -> Self {
        let text = with_causes(&error);
        if error.is_invalid() {
            return Self::Refused(text);
        }
        if error.is_connection() {
            return Self::Unreachable(text);
        }
        Self::from_sqlstate(error.sqlstate().map(|code| code.code()), text)
    }
}

impl From<posthaste_observe::Error> for StoreError {
    fn from(error: posthaste_observe::Error) -> Self {
        match error {
            posthaste_observe::Error::Postgres(error) => error.into(),
            posthaste_observe::Error::Store(error) => error.into(),
            error => Self::Failed(error.to_string()),
        }
    }
}

impl From<tokio_postgres::Error> for StoreError {
    fn from(error: tokio_postgres::Error) -> Self {
        let text = with_causes(&error);
        if error.is_closed() {
            return Self::Unreachable(text);
        }
        Self::from_sqlstate(error.code().map(|code| code.code()), text)
    }
}

impl From<deadpool_postgres::PoolError> for StoreError {
    fn from(error: deadpool_postgres::PoolError) -> Self {
        Self::Unreachable(match &error {
            deadpool_postgres::PoolError::Backend(cause) => with_causes(cause),
            _ => with_causes(&error),
        })
    }
}

/// Returns an error with its sources, each once.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}
