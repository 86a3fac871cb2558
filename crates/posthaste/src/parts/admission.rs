//! Whether this process may work the store that it connects to, or another site does.

use parking_lot::Mutex;

use crate::error::Error;

/// Why it may not, since the database was last asked.
#[derive(Debug, Default)]
pub(crate) struct Admission(Mutex<Option<String>>);

impl Admission {
    /// The database has answered, or refused. Other errors tell nothing about it.
    pub(crate) fn note<T>(&self, answer: &Result<T, Error>) {
        let refused = match answer {
            Ok(_) => None,
            Err(error) if error.is_other_site() => Some(error.to_string()),
            Err(_) => return,
        };
        *self.0.lock() = refused;
    }

    pub(crate) fn refused(&self) -> Option<String> {
        let refused = self.0.lock();
        refused.clone()
    }
}
