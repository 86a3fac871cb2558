//! What a driver of the caller's own transaction says.

use tokio_postgres::error::SqlState;

/// An error of a driver, in the terms in which posthaste judges it.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct DriverError {
    message: String,
    sqlstate: Option<SqlState>,
    is_connection: bool,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl DriverError {
    /// The server refused: its words, and the SQLSTATE where the driver tells it.
    pub fn refused(message: impl Into<String>, sqlstate: Option<&str>) -> Self {
        Self {
            message: message.into(),
            sqlstate: sqlstate.map(SqlState::from_code),
            is_connection: false,
            source: None,
        }
    }

    /// The connection failed: whether the statement took effect is not known.
    pub fn connection(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            sqlstate: None,
            is_connection: true,
            source: None,
        }
    }

    /// With the driver's own error, for the one that asks for the source.
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
