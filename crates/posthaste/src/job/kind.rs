//! Kinds of jobs: a type whose values are the arguments of jobs of one name.

use std::borrow::Cow;

use serde::Serialize;

use super::NewJob;

/// A kind of job: a type with the name of the jobs, whose values are their arguments.
///
/// Give a value of it to [`enqueue`](crate::enqueue()), and a handler that takes it to
/// [`WorkerBuilder::job`](crate::WorkerBuilder::job).
///
/// ```
/// use posthaste::{JobArgs, NewJob};
///
/// #[derive(serde::Serialize, serde::Deserialize)]
/// struct Welcome {
///     to: String,
/// }
///
/// impl JobArgs for Welcome {
///     const NAME: &'static str = "mail.welcome";
///
///     // What holds for each job of this kind; leave it out if that is nothing.
///     fn options(&self, job: NewJob) -> NewJob {
///         job.queue("mail").unique_key(format!("welcome/{}", self.to))
///     }
/// }
/// # async fn example(tx: tokio_postgres::Transaction<'_>) -> Result<(), posthaste::Error> {
/// posthaste::enqueue(&tx, Welcome { to: "Ada".into() }).await?;
///
/// // What holds for this one only:
/// let later = Welcome { to: "Bob".into() }.job().delay(std::time::Duration::from_secs(10));
/// posthaste::enqueue(&tx, later).await?;
/// # Ok(()) }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not implement `JobArgs`",
    note = "derive `Serialize` and `impl JobArgs`, which names its jobs"
)]
pub trait JobArgs: Serialize {
    /// The name of these jobs, by which their handler is found.
    const NAME: &'static str;

    /// Sets the options of every job of this kind: its queue, priority, attempts, keys …
    fn options(&self, job: NewJob) -> NewJob {
        job
    }

    /// Returns the job with these arguments, for further options before it is enqueued. Arguments
    /// that [`NewJob::new`] would reject are rejected when the job is enqueued.
    fn job(&self) -> NewJob {
        self.options(NewJob::unchecked(Self::NAME.to_owned(), self))
    }
}

impl<T: JobArgs> JobArgs for &T {
    const NAME: &'static str = T::NAME;

    fn options(&self, job: NewJob) -> NewJob {
        (**self).options(job)
    }

    fn job(&self) -> NewJob {
        (**self).job()
    }
}

/// A value that can be enqueued: a [kind of job](JobArgs), a [`NewJob`], or a reference to one of
/// them.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be enqueued",
    note = "pass a `NewJob`, or a value of a type with `impl JobArgs`"
)]
pub trait IntoJob<'a> {
    /// Returns the job to enqueue.
    fn into_job(self) -> Cow<'a, NewJob>;
}

impl<T: JobArgs> IntoJob<'static> for T {
    fn into_job(self) -> Cow<'static, NewJob> {
        Cow::Owned(self.job())
    }
}

impl IntoJob<'static> for NewJob {
    fn into_job(self) -> Cow<'static, NewJob> {
        Cow::Owned(self)
    }
}

impl<'a> IntoJob<'a> for &'a NewJob {
    fn into_job(self) -> Cow<'a, NewJob> {
        Cow::Borrowed(self)
    }
}
