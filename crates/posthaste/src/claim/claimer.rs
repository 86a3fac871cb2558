//! Shared parts of the claims of all queues and of quarantined jobs.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::mpsc::UnboundedSender;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::unanswered::Unanswered;
use crate::consumer::{Batch, Delivery, Settled, Ticket};
use crate::identity::{Identity, Registration};
use crate::job::JobId;
use crate::metrics::RunTiming;
use crate::parts::gate::Gate;
use crate::parts::outstanding::Outstanding;
use crate::parts::queue::QueueState;
use crate::retry::Disposition;
use crate::store::reconnecting::ReconnectingClient;
use crate::store::{Claimed, Fence};

/// The connection and identity for claims, and the destination of their jobs.
pub(crate) struct Claimer {
    pub(crate) link: Arc<ReconnectingClient>,
    pub(crate) registration: Arc<Registration>,
    pub(crate) gate: Gate,
    pub(crate) unanswered: Arc<Unanswered>,
    pub(crate) dispatcher: Dispatcher,
    /// Cancelled when no more claims are made.
    pub(crate) stopping: CancellationToken,
}

/// Delivers claimed jobs.
pub(crate) struct Dispatcher {
    pub(crate) in_hand: Arc<Outstanding>,
    /// The channel of their outcomes.
    pub(crate) settle: UnboundedSender<Settled>,
}

impl Dispatcher {
    /// Delivers claimed jobs to the queue's consumer, each with a ticket.
    pub(super) fn deliver(
        &self,
        queue: &Arc<QueueState>,
        worker: &Arc<Identity>,
        held: &Arc<Uuid>,
        jobs: Vec<Claimed>,
    ) {
        if jobs.is_empty() {
            return;
        }
        let mut sizes: HashMap<Fence, usize> = HashMap::new();
        for (fence, _) in &jobs {
            *sizes.entry(*fence).or_default() += 1;
        }
        let batches: HashMap<Fence, Arc<Batch>> = sizes
            .into_iter()
            .map(|(fence, jobs)| (fence, batch(queue, (worker, held), fence, jobs)))
            .collect();
        self.in_hand.record_delivered(jobs.len());
        let claim = jobs
            .into_iter()
            .map(|(fence, job)| Delivery {
                ticket: Ticket::new(
                    Arc::clone(&job),
                    Arc::clone(&batches[&fence]),
                    self.settle.clone(),
                ),
                job,
            })
            .collect();
        queue.consumer.consume(claim);
    }

    /// Dead-letters a claimed job whose row cannot be read.
    pub(super) fn dead_letter(
        &self,
        queue: &QueueState,
        whose: (&Arc<Identity>, &Arc<Uuid>),
        fence: Fence,
        id: JobId,
        error: String,
    ) {
        self.in_hand.record_delivered(1);
        let disposition = Disposition::DeadLetter {
            attempt: None,
            state: "dead",
            error,
        };
        let now = Instant::now();
        // The receiver lives as long as the loops that claim.
        let _ = self.settle.send(Settled {
            batch: batch(queue, whose, fence, usize::MAX),
            id,
            job: None,
            is_keyed: true,
            may_be_completed: false,
            is_said_completed: false,
            disposition,
            took: RunTiming {
                began: now,
                ended: now,
            },
        });
    }
}

fn batch(
    queue: &QueueState,
    (worker, held): (&Arc<Identity>, &Arc<Uuid>),
    fence: Fence,
    jobs: usize,
) -> Arc<Batch> {
    Arc::new(Batch {
        fence,
        jobs,
        is_ordered: queue.consumer.is_ordered(),
        backoff: queue.backoff,
        worker: Arc::clone(worker),
        _held: Arc::clone(held),
    })
}
