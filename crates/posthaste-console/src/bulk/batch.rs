//! One batch of an action: one transaction that acts and records the progress.

mod cancel;
mod given_up;
mod retry;

use std::sync::Arc;

use deadpool_postgres::Pool;
use posthaste::JobId;
use uuid::Uuid;

use crate::action::{Action, ActionState, Kind, Step};
use crate::filter::Filter;
use crate::redact::Redactor;
use crate::store::{self, Session, StoreError};

/// One batch of an action.
struct Batch<'a> {
    secrets: &'a Redactor,
    session: &'a Session,
    action: &'a Action,
    filter: Filter,
    /// The most jobs that the batch may act on.
    limit: usize,
}

/// Runs batches on behalf of one console.
pub(super) struct BatchRunner {
    pub(super) me: Uuid,
    pub(super) pool: Pool,
    pub(super) secrets: Arc<Redactor>,
}

impl BatchRunner {
    /// Runs a batch, and returns the action, its new state and how many jobs the batch acted on.
    /// `None` if the action is over or belongs to another console.
    pub(super) async fn run_batch(
        &self,
        id: i32,
        size: usize,
    ) -> Result<Option<(Action, ActionState, usize)>, StoreError> {
        let session = Session::begin_action(&self.pool).await?;
        let Some(action) = store::begin_batch(&session, id, self.me).await? else {
            session.commit().await?;
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
        let mut step = batch.run().await?;
        step.is_over |= step.jobs >= left;
        let moved = store::record_batch(&session, id, self.me, &step).await?;
        session.commit().await?;
        Ok(Some((action, moved, step.jobs)))
    }
}

impl Batch<'_> {
    async fn run(&self) -> Result<Step, StoreError> {
        // A user stopped it during a batch whose console then died.
        if self.action.stopped_by.is_some() || self.limit == 0 {
            return Ok(self.step_without_effect());
        }
        match self.action.kind {
            Kind::Retry => self.retry().await,
            Kind::Cancel => self.cancel().await,
            Kind::Redrive | Kind::Delete => self.redrive_or_delete().await,
        }
    }

    /// Returns a step that neither acts nor moves.
    fn step_without_effect(&self) -> Step {
        Step {
            jobs: 0,
            place: self.action.place.clone(),
            passes: self.action.passes,
            pass_jobs: self.action.pass_jobs,
            is_over: false,
        }
    }
}

fn job_ids(ids: &[i64]) -> Vec<JobId> {
    ids.iter().map(|id| JobId(*id)).collect()
}
