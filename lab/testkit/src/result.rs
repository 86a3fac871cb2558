//! The result of a test, whose error names the line that returned it.

use std::fmt::{Debug, Formatter};
use std::panic::Location;

/// Returned by tests. An error that `?` returns is reported with the line of the `?`, as a panic
/// would be.
pub type TestResult<T = ()> = Result<T, TestError>;

/// An error, and the first `?` that returned it from a test or one of its helpers.
pub struct TestError {
    at: &'static Location<'static>,
    error: anyhow::Error,
}

impl<E: Into<anyhow::Error>> From<E> for TestError {
    #[track_caller]
    fn from(error: E) -> Self {
        Self {
            at: Location::caller(),
            error: error.into(),
        }
    }
}

impl Debug for TestError {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {:?}", self.at, self.error)
    }
}
