//! One connection that commits jobs.

use ::posthaste::{NewJob, enqueue, enqueue_many};
use anyhow::Result;
use deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod};
use tokio_postgres::NoTls;

use super::Arguments;
use crate::contestants::{JOB_NAME, QUEUE};
use crate::database::Database;

/// An option of a job besides name and arguments.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Extra {
    Nothing,
    Queue,
    Priority,
}

/// One connection that commits jobs.
#[derive(Debug)]
pub(crate) struct Producer {
    client: deadpool_postgres::Object,
}

impl Producer {
    /// Opens the connection.
    pub(crate) async fn connect(database: &Database) -> Result<Self> {
        let config = database.config().clone();
        let manager = Manager::from_config(
            config,
            NoTls,
            ManagerConfig {
                recycling_method: RecyclingMethod::Fast,
            },
        );
        let client = Pool::builder(manager).max_size(1).build()?.get().await?;
        Ok(Self { client })
    }

    /// Commits one job.
    pub(crate) async fn enqueue(&self, number: u64) -> Result<()> {
        self.enqueue_with(number, Extra::Nothing).await
    }

    /// Commits one job with this option.
    pub(crate) async fn enqueue_with(&self, number: u64, extra: Extra) -> Result<()> {
        let job = NewJob::new(JOB_NAME, &Arguments { n: number })?;
        let job = match extra {
            Extra::Nothing => job,
            Extra::Queue => job.queue(QUEUE),
            Extra::Priority => job.priority(7),
        };
        enqueue(&self.client, &job).await?;
        Ok(())
    }

    /// Commits one job with a priority; lower numbers run first.
    pub(crate) async fn enqueue_at(&self, number: u64, priority: i32) -> Result<()> {
        let job = NewJob::new(JOB_NAME, &Arguments { n: number })?.priority(priority);
        enqueue(&self.client, &job).await?;
        Ok(())
    }

    /// Commits one job per number in one transaction, all with one priority.
    pub(crate) async fn commit(&mut self, numbers: &[u64], priority: i32) -> Result<()> {
        let jobs = numbers
            .iter()
            .map(|number| Ok(NewJob::new(JOB_NAME, &Arguments { n: *number })?.priority(priority)))
            .collect::<Result<Vec<_>>>()?;
        let transaction = self.client.transaction().await?;
        enqueue_many(&transaction, &jobs).await?;
        transaction.commit().await?;
        Ok(())
    }
}
