//! Why a store could not be read.

use thiserror::Error as Derive;

/// Why a store could not be read.
#[derive(Debug, Derive)]
pub enum Error {
    /// Postgres refused or failed a statement.
    #[error(transparent)]
    Postgres(#[from] tokio_postgres::Error),
    /// The library could not read a part of the store.
    #[error(transparent)]
    Store(#[from] posthaste::Error),
    /// A statement that always returns a row returned none.
    #[error("the server returned no row")]
    NoRow,
}
