//! Errors of reading a store.

use thiserror::Error as Derive;

/// An error of reading a store.
#[derive(Debug, Derive)]
pub enum Error {
    /// PostgreSQL rejected a statement, or the connection failed.
    #[error(transparent)]
    Postgres(#[from] tokio_postgres::Error),
    /// The library could not read a part of the store.
    #[error(transparent)]
    Store(#[from] posthaste::Error),
    /// A statement that always returns a row returned none.
    #[error("the server returned no row")]
    NoRow,
}
