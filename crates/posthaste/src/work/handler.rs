//! What a handler is given, and what it may return.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::config;
use crate::consumer::Outcome;
use crate::error::{Error, ErrorKind};
use crate::executor::{Executor, Value};
use crate::job::Job;
use crate::retry::Report;
use crate::store::{COMPLETE, Fence};

/// Any error; its text is kept with the job, so it should not contain secrets. It burns an attempt, and the back-off decides when the next one comes.
pub type HandlerError = Box<dyn std::error::Error + Send + Sync>;

/// What a handler returns.
pub type HandlerResult = Result<Outcome, HandlerError>;

type Handler = Box<
    dyn Fn(Context, Arc<Job>) -> Pin<Box<dyn Future<Output = HandlerResult> + Send>> + Send + Sync,
>;

/// An error of a handler that says itself when the job is tried again.
///
/// ```
/// use std::time::Duration;
/// use posthaste::{HandlerResult, TryAgain};
/// # async fn handler() -> HandlerResult {
/// Err(TryAgain::after(Duration::from_secs(60), "the provider's quota is spent").into())
/// # }
/// ```
#[derive(Debug, PartialEq)]
pub struct TryAgain {
    pub(crate) reason: String,
    pub(crate) after: Option<Duration>,
    pub(crate) burns: bool,
}

impl TryAgain {
    /// Burns an attempt; the next one comes after this time, whatever the queue's back-off says.
    pub fn after(after: Duration, reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            after: Some(after),
            burns: true,
        }
    }

    /// Burns no attempt: the worker was not able to try at all. The job is looked at again after this time.
    pub fn unburnt(after: Duration, reason: impl Into<String>) -> Self {
        Self {
            burns: false,
            ..Self::after(after, reason)
        }
    }

    /// As any other error: the queue's back-off decides.
    pub(crate) fn by_backoff(reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            after: None,
            burns: true,
        }
    }
}

impl fmt::Display for TryAgain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for TryAgain {}

/// What an error says of the run that ended with it.
pub(crate) fn failure(error: HandlerError) -> Report {
    match error.downcast::<TryAgain>().map(|again| *again) {
        Ok(TryAgain {
            reason: error,
            after: Some(after),
            burns,
        }) => Report::FailedUntil {
            error,
            after,
            burns,
        },
        Ok(again) => Report::Failed(again.reason),
        Err(error) => Report::Failed(error.to_string()),
    }
}

/// Handlers by job name, or by a prefix of it.
#[derive(Default)]
pub(crate) struct Handlers {
    exact: HashMap<String, Handler>,
    /// The longest first.
    prefixes: Vec<(String, Handler)>,
}

impl Handlers {
    pub(crate) fn add<F, R>(&mut self, pattern: String, handler: F)
    where
        F: Fn(Context, Arc<Job>) -> R + Send + Sync + 'static,
        R: Future<Output = HandlerResult> + Send + 'static,
    {
        let handler: Handler = Box::new(move |context, job| Box::pin(handler(context, job)));
        match pattern.strip_suffix('*') {
            Some(prefix) => {
                self.prefixes.retain(|(other, _)| other != prefix);
                self.prefixes.push((prefix.to_owned(), handler));
                self.prefixes
                    .sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
            }
            None => {
                self.exact.insert(pattern, handler);
            }
        }
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Handler> {
        self.exact.get(name).or_else(|| {
            let mut prefixes = self.prefixes.iter();
            prefixes
                .find(|(prefix, _)| name.starts_with(prefix))
                .map(|(_, handler)| handler)
        })
    }

    /// What makes no sense, as a sentence.
    pub(crate) fn check(&self) -> Result<(), String> {
        let mut prefixes = self.prefixes.iter();
        prefixes.try_for_each(|(prefix, _)| config::text("a handler's name", prefix, 0))?;
        let mut names = self.exact.keys();
        names.try_for_each(|name| config::text("a handler's name", name, 1))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.prefixes.is_empty()
    }
}

/// What a run of a job can do besides returning.
#[derive(Clone)]
pub struct Context {
    pub(crate) fence: Fence,
    pub(crate) job: Arc<Job>,
    pub(crate) delivery_id: Uuid,
    pub(crate) stopping: CancellationToken,
    pub(crate) cancelled: CancellationToken,
    pub(crate) completed: Arc<AtomicBool>,
}

impl Context {
    /// The job that runs: its id, attempt, tag and all that it was enqueued with.
    pub fn job(&self) -> &Job {
        &self.job
    }

    /// The fence of this run.
    pub fn fence(&self) -> Fence {
        self.fence
    }

    /// The id by which a receiver outside drops duplicates: the same at each attempt, `posthaste.delivery_id(id)` in SQL.
    pub fn delivery_id(&self) -> Uuid {
        self.delivery_id
    }

    /// Completes when the worker was asked to stop: a long handler may end early and return [`Outcome::Snooze`] or an error.
    pub async fn stopping(&self) {
        self.stopping.cancelled().await;
    }

    /// Completes when somebody cancelled the job. The handler may clean up and return; after five seconds its future is dropped where it waits. Whatever it
    /// returns but [`Outcome::Done`], the job is kept as cancelled.
    pub async fn cancelled(&self) {
        self.cancelled.cancelled().await;
    }

    /// Finishes the job in the handler's own transaction: its writes and the completion commit together or not at all.
    ///
    /// Call it once, commit, and return `Ok(Outcome::Done)`. When the job was taken over in the meantime (this worker was taken for dead), it fails
    /// with an error for which [`Error::is_lost`] holds, and the transaction must be rolled back. Should the transaction roll back although
    /// the handler returns `Done`, the job is run again. So it is when a task that the handler left behind calls this after the handler returned something else.
    ///
    /// ```no_run
    /// # use posthaste::*;
    /// # async fn handler(pool: deadpool_postgres::Pool, context: Context) -> HandlerResult {
    /// let mut client = pool.get().await?;
    /// let tx = client.transaction().await?;
    /// tx.execute("UPDATE account SET welcomed = true", &[]).await?;
    /// context.complete_in(&tx).await?;
    /// tx.commit().await?;
    /// Ok(Outcome::Done)
    /// # }
    /// ```
    pub async fn complete_in<E: Executor>(&self, mut transaction: E) -> Result<(), Error> {
        self.completed.store(true, Ordering::SeqCst);
        let values = [
            Value::Integer(Some(self.fence.slot.into())),
            Value::Long(self.fence.batch),
            Value::Uuid(self.fence.token),
            Value::Long(self.job.id.0),
        ];
        let ours = transaction
            .run(COMPLETE, &values)
            .await
            .map_err(Error::driver("cannot complete the job"))?;
        if ours == [1] {
            Ok(())
        } else {
            Err(ErrorKind::Lost.into())
        }
    }
}
