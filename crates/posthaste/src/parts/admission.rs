//! Whether this process may work on its store, or another site does.

use parking_lot::Mutex;

use crate::error::Error;

/// The refusal in the last answer of the database, if any.
#[derive(Debug, Default)]
pub(crate) struct Admission(Mutex<Option<String>>);

impl Admission {
    /// Records an answer or a refusal of the database. Other errors change nothing.
    pub(crate) fn record<T>(&self, answer: &Result<T, Error>) {
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
