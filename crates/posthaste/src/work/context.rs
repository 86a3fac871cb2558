//! The context of a run: what a handler receives beside its job.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::error::{Error, ErrorKind};
use crate::executor::{Executor, Value};
use crate::job::Job;
use crate::parts::failing_endpoints::FailingEndpoints;
use crate::store::{COMPLETE, Fence};

/// The context of a run: its job, its signals, and completion within a transaction.
///
/// `S` is the type that was passed to [`WorkerBuilder::state`](crate::WorkerBuilder::state). Clones
/// are cheap and refer to the same run.
pub struct Context<S = ()> {
    run: Arc<Run>,
    state: Arc<S>,
}

/// One run of a job.
pub(crate) struct Run {
    /// `None` in a test without a database.
    pub(crate) fence: Option<Fence>,
    pub(crate) job: Arc<Job>,
    pub(crate) delivery_id: Uuid,
    pub(crate) stopping: CancellationToken,
    pub(crate) cancelled: CancellationToken,
    pub(crate) completed: Arc<AtomicBool>,
    /// The failing endpoints of the worker.
    #[cfg_attr(
        not(feature = "http"),
        expect(dead_code, reason = "only HTTP endpoints are reported")
    )]
    pub(crate) failing: Arc<FailingEndpoints>,
}

impl<S> Clone for Context<S> {
    fn clone(&self) -> Self {
        Self {
            run: Arc::clone(&self.run),
            state: Arc::clone(&self.state),
        }
    }
}

impl<S> fmt::Debug for Context<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("job", &self.run.job)
            .finish_non_exhaustive()
    }
}

impl Context {
    pub(crate) fn new(run: Arc<Run>) -> Self {
        Self {
            run,
            state: Arc::new(()),
        }
    }
}

impl<S> Context<S> {
    /// Returns the context of the same run, for a handler with this state.
    pub(crate) fn with_state<T>(&self, state: &Arc<T>) -> Context<T> {
        Context {
            run: Arc::clone(&self.run),
            state: Arc::clone(state),
        }
    }

    /// Returns the value that was passed to [`WorkerBuilder::state`](crate::WorkerBuilder::state),
    /// the same for all runs.
    pub fn state(&self) -> &S {
        &self.state
    }

    /// Returns the job of this run: its id, attempt, tag and everything it was enqueued with.
    pub fn job(&self) -> &Job {
        &self.run.job
    }

    /// Returns the fence of this run's claim. Jobs that were claimed together share it; other runs
    /// of this job have another. `None` in a test that runs a handler alone.
    pub fn fence(&self) -> Option<Fence> {
        self.run.fence
    }

    /// Returns the id by which an external receiver drops duplicates: the same at each attempt,
    /// `posthaste.delivery_id(id)` in SQL.
    pub fn delivery_id(&self) -> Uuid {
        self.run.delivery_id
    }

    /// Returns the worker's endpoints that accept no jobs.
    #[cfg(feature = "http")]
    pub(crate) fn failing_endpoints(&self) -> &FailingEndpoints {
        &self.run.failing
    }

    /// Completes when the worker was asked to stop: a long handler may end early and return
    /// [`Outcome::Snooze`](crate::Outcome::Snooze) or an error.
    pub async fn stopping(&self) {
        self.run.stopping.cancelled().await;
    }

    /// Completes when the job was cancelled. The handler may clean up and return; after five
    /// seconds its future is dropped. Unless it returns [`Outcome::Done`](crate::Outcome::Done),
    /// the job ends as cancelled.
    pub async fn cancelled(&self) {
        self.run.cancelled.cancelled().await;
    }

    /// Completes the job in the handler's own transaction: its writes and the completion commit
    /// together or not at all.
    ///
    /// Call it once, commit, and return `Ok(Outcome::Done)`. If another worker has taken over the
    /// job because this worker was declared dead, it fails with an error for which
    /// [`Error::is_lost`] holds, and the transaction must be rolled back. If the transaction rolls
    /// back although the handler returns `Done`, the attempt counts as failed. The same applies if
    /// a task that the handler spawned calls this after the handler returned something else.
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
        let was_called = self.run.completed.swap(true, Ordering::SeqCst);
        let Some(fence) = self.run.fence else {
            return Ok(());
        };
        let values = [
            Value::Integer(Some(fence.slot.into())),
            Value::Long(fence.batch),
            Value::Uuid(fence.token),
            Value::Long(self.run.job.id.0),
        ];
        let ours = transaction
            .run(COMPLETE, &values)
            .await
            .map_err(Error::driver("cannot complete the job"))?;
        if ours == [1] {
            Ok(())
        } else {
            // No transaction of this run can complete the job any more.
            self.run.completed.store(was_called, Ordering::SeqCst);
            Err(ErrorKind::Lost.into())
        }
    }
}
