//! One batch of an action: a transaction that acts, and says in the same breath how far it is.

mod cancel;
mod kept;
mod retry;

use std::sync::Arc;

use deadpool_postgres::Pool;
use posthaste::JobId;
use uuid::Uuid;

use crate::action::{Action, Kind, Moved, Step};
use crate::filter::Filter;
use crate::redact::Redactor;
use crate::store::{self, Session, StoreError};

/// What is asked of one batch.
struct Batch<'a> {
    secrets: &'a Redactor,
    session: &'a Session,
    action: &'a Action,
    filter: Filter,
    /// Jobs, at most.
    limit: usize,
}

/// Acts in the name of one console.
pub(super) struct BatchRunner {
    pub(super) me: Uuid,
    pub(super) pool: Pool,
    pub(super) secrets: Arc<Redactor>,
}

impl BatchRunner {
    /// What became of an action by one batch, and how many jobs that did. Nothing: it is another's,
    /// or over.
    pub(super) async fn batch(
        &self,
        id: i32,
        size: usize,
    ) -> Result<Option<(Action, Moved, usize)>, StoreError> {
        let session = Session::act(&self.pool).await?;
        let Some(action) = store::begin_batch(&session, id, self.me).await? else {
            session.end().await?;
            return Ok(None);
        };
        let filter = action.job_filter().map_err(StoreError::Refused)?;
        let left = usize::try_from(action.at_most - action.jobs).unwrap_or(0);
        let batch = Batch {
            secrets: &self.secrets,
            session: &session,
            action: &action,
            filter,
            limit: size.min(left),
        };
        let mut step = batch.step().await?;
        step.is_over |= step.jobs >= left;
        let moved = store::advance(&session, id, self.me, &step).await?;
        session.end().await?;
        Ok(Some((action, moved, step.jobs)))
    }
}

impl Batch<'_> {
    async fn step(&self) -> Result<Step, StoreError> {
        // Somebody asked for its end while the one that was at it died.
        if self.action.stopped_by.is_some() || self.limit == 0 {
            return Ok(self.here());
        }
        match self.action.kind {
            Kind::Retry => self.retry().await,
            Kind::Cancel => self.cancel().await,
            Kind::Redrive | Kind::Delete => self.kept().await,
        }
    }

    /// Nothing done, nothing read.
    fn here(&self) -> Step {
        Step {
            jobs: 0,
            place: self.action.place.clone(),
            passes: self.action.passes,
            pass_jobs: self.action.pass_jobs,
            is_over: false,
        }
    }
}

fn numbers(ids: &[i64]) -> Vec<JobId> {
    ids.iter().map(|id| JobId(*id)).collect()
}
