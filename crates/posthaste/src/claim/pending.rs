//! A claim in flight. The jobs that it may have taken are delivered or given back.

use std::sync::Arc;

use uuid::Uuid;

use super::claimer::Claimer;
use crate::error::Error;
use crate::identity::Identity;
use crate::log_limit::{FEW, LogLimit};
use crate::parts::queue::QueueState;
use crate::store;

static UNREADABLE_LOG: LogLimit = LogLimit::new(FEW);

/// A claim that was sent. Until its jobs are delivered it counts as one without an answer: if it
/// ends early, they are given back.
pub(super) struct PendingClaim<'a> {
    claimer: &'a Claimer,
    pub(super) worker: Arc<Identity>,
    pub(super) token: Uuid,
    /// See [`Unanswered::hold`](super::unanswered::Unanswered::hold).
    held: Arc<Uuid>,
    is_open: bool,
}

impl Drop for PendingClaim<'_> {
    fn drop(&mut self) {
        if self.is_open {
            self.claimer.unanswered.add(self.worker.id, self.token);
        }
    }
}

impl<'a> PendingClaim<'a> {
    /// Prepares a claim before its statement is sent.
    pub(super) async fn new(claimer: &'a Claimer) -> Result<Self, Error> {
        let token = Uuid::new_v4();
        Ok(Self {
            claimer,
            worker: claimer.registration.alive_worker().await?,
            token,
            held: claimer.unanswered.hold(token),
            is_open: true,
        })
    }

    /// Resumes a claim that was sent before and whose result is unknown.
    pub(super) fn resume(claimer: &'a Claimer, worker: &Arc<Identity>, token: &Arc<Uuid>) -> Self {
        Self {
            claimer,
            worker: Arc::clone(worker),
            token: **token,
            held: Arc::clone(token),
            is_open: true,
        }
    }

    /// Releases the claim for a later search, without giving back its jobs.
    pub(super) fn into_unanswered(mut self) -> (Arc<Identity>, Arc<Uuid>) {
        self.is_open = false;
        (Arc::clone(&self.worker), Arc::clone(&self.held))
    }

    /// Ends a failed claim. Without an answer, or with an unreadable one, the claim may have
    /// committed, so its jobs are given back.
    pub(super) fn end_failed(mut self, error: &Error) {
        self.is_open = error.leaves_in_doubt();
        if error
            .sqlstate()
            .is_some_and(|state| state.code() == "55000")
        {
            self.claimer.registration.remove_dead(self.worker.id);
        }
    }

    /// Delivers the jobs of the claim.
    pub(super) fn deliver(mut self, queue: &Arc<QueueState>, claim: store::Claim) {
        self.is_open = false;
        let dispatcher = &self.claimer.dispatcher;
        dispatcher.deliver(queue, &self.worker, &self.held, claim.jobs);
        for (fence, id, error) in claim.unreadable {
            if let Some(left_out) = UNREADABLE_LOG.admit_field(&queue.name) {
                tracing::error!(
                    queue = &*queue.name,
                    job = id.0,
                    error,
                    left_out,
                    "a job that cannot be read is ended"
                );
            }
            let whose = (&self.worker, &self.held);
            dispatcher.dead_letter(queue, whose, fence, id, error);
        }
    }
}
