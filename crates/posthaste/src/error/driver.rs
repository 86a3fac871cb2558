//! Errors of the drivers that run the caller's transactions.

use tokio_postgres::error::SqlState;

/// An error of a driver, with the properties that posthaste needs.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct DriverError {
    message: String,
    sqlstate: Option<SqlState>,
    is_connection: bool,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl DriverError {
    /// Creates an error that the server reported: its message, and the SQLSTATE if the driver
    /// exposes it.
    pub fn refused(message: impl Into<String>, sqlstate: Option<&str>) -> Self {
        Self {
            message: message.into(),
            sqlstate: sqlstate.map(SqlState::from_code),
            is_connection: false,
            source: None,
        }
    }

    /// Creates an error for a failed connection: it is unknown whether the statement took effect.
    pub fn connection(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            sqlstate: None,
            is_connection: true,
            source: None,
        }
    }

    /// Adds the driver's own error as the source.
    pub fn because(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    pub(crate) fn sqlstate(&self) -> Option<&SqlState> {
        self.sqlstate.as_ref()
    }

    pub(crate) fn is_connection(&self) -> bool {
        self.is_connection
    }
}
