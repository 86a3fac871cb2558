//! The results of handlers.

use std::any::Any;
use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use crate::error::chain;
use crate::job::{Misread, Outcome};
use crate::retry::RunResult;

/// Any error. Its text is stored with the job and logged, together with those of its
/// [sources](std::error::Error::source), so it should not contain secrets. It counts as an attempt,
/// and the back-off sets the delay before the next one.
pub type HandlerError = Box<dyn std::error::Error + Send + Sync>;

/// The result of a run of a handler.
pub type HandlerResult = Result<Outcome, HandlerError>;

/// A return type for the handler of a [kind of job](crate::JobArgs): `()` or an [`Outcome`], or a
/// `Result` of one of them with any error that converts into a [`HandlerError`], including
/// `anyhow::Error`. `()` is [`Outcome::Done`].
#[diagnostic::on_unimplemented(
    message = "a handler cannot return `{Self}`",
    note = "return `()`, an `Outcome`, or a `Result` of one of them with any error"
)]
pub trait IntoHandlerResult {
    /// Converts it into a [`HandlerResult`].
    fn into_handler_result(self) -> HandlerResult;
}

impl IntoHandlerResult for () {
    fn into_handler_result(self) -> HandlerResult {
        Ok(Outcome::Done)
    }
}

impl IntoHandlerResult for Outcome {
    fn into_handler_result(self) -> HandlerResult {
        Ok(self)
    }
}

impl<E: Into<HandlerError> + 'static> IntoHandlerResult for Result<(), E> {
    fn into_handler_result(self) -> HandlerResult {
        self.map(|()| Outcome::Done).map_err(into_handler_error)
    }
}

impl<E: Into<HandlerError> + 'static> IntoHandlerResult for Result<Outcome, E> {
    fn into_handler_result(self) -> HandlerResult {
        self.map_err(into_handler_error)
    }
}

/// Converts an error, and also finds a [`RetryLater`] or a [`Misread`] inside an `anyhow::Error`,
/// which would hide them.
pub(crate) fn into_handler_error<E: Into<HandlerError> + 'static>(error: E) -> HandlerError {
    if let Some(error) = (&error as &dyn Any).downcast_ref::<anyhow::Error>() {
        let mut causes = error.chain();
        let again = error.downcast_ref::<RetryLater>();
        if let Some(again) = again.or_else(|| causes.find_map(<dyn StdError>::downcast_ref)) {
            let whole: &(dyn StdError + 'static) = error.as_ref();
            return Box::new(again.clone().because(chain(whole)));
        }
        let first = error.chain().next();
        if let Some(Misread { argument, why }) = first.and_then(<dyn StdError>::downcast_ref) {
            let (argument, why) = (argument.clone(), why.clone());
            return Box::new(Misread { argument, why });
        }
    }
    error.into()
}

/// An error of a handler that sets when the job is retried; it may also be the cause of another
/// error.
///
/// ```
/// use std::time::Duration;
/// use posthaste::{HandlerResult, RetryLater};
/// # async fn handler() -> HandlerResult {
/// Err(RetryLater::after(Duration::from_secs(60), "the provider's quota is spent").into())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct RetryLater {
    pub(crate) reason: String,
    pub(crate) after: Option<Duration>,
    pub(crate) counts_as_attempt: bool,
}

impl RetryLater {
    /// Fails the attempt, which counts; the job is retried after this delay instead of the queue's
    /// back-off.
    pub fn after(after: Duration, reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            after: Some(after),
            counts_as_attempt: true,
        }
    }

    /// Fails without counting an attempt, because the worker was not able to try at all. The job is
    /// retried after this delay.
    pub fn without_attempt(after: Duration, reason: impl Into<String>) -> Self {
        Self {
            counts_as_attempt: false,
            ..Self::after(after, reason)
        }
    }

    /// Returns its delay; `None`: the back-off decides.
    pub fn wait(&self) -> Option<Duration> {
        self.after
    }

    fn because(self, reason: String) -> Self {
        Self { reason, ..self }
    }

    fn result(self) -> RunResult {
        let (error, counts_as_attempt) = (self.reason, self.counts_as_attempt);
        match self.after {
            Some(after) => RunResult::FailedUntil {
                error,
                after,
                counts_as_attempt,
            },
            None => RunResult::Failed(error),
        }
    }

    /// Fails like any other error: the attempt counts, and the queue's back-off decides.
    pub fn by_backoff(reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            after: None,
            counts_as_attempt: true,
        }
    }
}

impl fmt::Display for RetryLater {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for RetryLater {}

/// Converts the error of a run into its result.
pub(crate) fn failure(error: HandlerError) -> RunResult {
    let whole = chain(&*error);
    let mut cause: Option<&(dyn StdError + 'static)> = Some(&*error);
    while let Some(error) = cause {
        if let Some(again) = error.downcast_ref::<RetryLater>() {
            return again.clone().because(whole).result();
        }
        if error.is::<Misread>() {
            return RunResult::Misread { error: whole };
        }
        cause = error.source();
    }
    RunResult::Failed(whole)
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    #[test]
    fn argument_errors_survive_anyhow() {
        let misread = || Misread {
            argument: "kwargs.to".into(),
            why: "ada@example.org is not a number".into(),
        };
        let bare = anyhow::Error::from(misread());
        let wrapped = Err::<(), _>(misread()).context("the mail").unwrap_err();
        for error in [bare, wrapped] {
            let result = failure(into_handler_error(error));
            assert!(matches!(result, RunResult::Misread { .. }), "{result:?}");
        }
    }
}
