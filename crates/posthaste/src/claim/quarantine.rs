//! Runs each quarantined job, whose worker died, alone: claims pause until claims in flight and
//! running jobs have ended, and then one quarantined job runs with nothing else in the process. If
//! the process dies again, only this job loses an attempt; a job that merely ran at the same time
//! completes and is cleared. A consumer that takes jobs in batches may get those together for which
//! a counted attempt ends nothing: if the process dies again, each of them runs alone.

mod pauses;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::claimer::Claimer;
use super::pending::PendingClaim;
use super::read::ReadJobs;
use crate::error::Error;
use crate::job::JobId;
use crate::log_limit::{FEW, LogLimit};
use crate::parts::queue::{QueueState, Queues};
use crate::store::reconnecting::ReconnectingClient;
use crate::store::{self, UnreadBatches};
use pauses::{MIN_REST, Pauses, TurnResult};

/// Approximate time that quarantined jobs have the process for themselves before other work
/// continues.
const TURN_LENGTH: Duration = Duration::from_secs(1);

static ALONE_LOG: LogLimit = LogLimit::new(FEW);

/// Runs the quarantined jobs of all queues.
pub(crate) struct Quarantine {
    pub(crate) claimer: Arc<Claimer>,
    pub(crate) queues: Queues,
    pub(crate) looks: Arc<ReconnectingClient>,
}

impl Quarantine {
    /// Runs quarantined jobs in turns until the worker stops.
    pub(crate) async fn run(self) {
        // The time limit of the slowest handler; no limit if one has none.
        let limits = self.queues.iter().map(|queue| queue.consumer.limit());
        let limit = limits
            .collect::<Option<Vec<_>>>()
            .map(|limits| limits.into_iter().max().unwrap_or_default());
        let mut patience = Pauses::new(limit);
        while !self.claimer.stopping.is_cancelled() {
            let pause = match store::quarantine_queues(&self.looks).await {
                Ok(names) => {
                    let mut ours: Vec<_> = self
                        .queues
                        .iter()
                        .filter(|queue| names.iter().any(|name| **name == *queue.name))
                        .filter(|queue| queue.consumer.takes_quarantined())
                        .collect();
                    if ours.is_empty() {
                        patience.none_found()
                    } else {
                        // A turn is short, so it must not begin with the same queue each time.
                        fastrand::shuffle(&mut ours);
                        let paused = Instant::now();
                        let turn = self.run_one_turn(&ours, patience.wait()).await;
                        patience.record_turn(turn, paused.elapsed())
                    }
                }
                Err(error) => {
                    tracing::debug!(%error, "quarantined jobs could not be searched for");
                    MIN_REST
                }
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.claimer.stopping.cancelled() => {}
            }
        }
    }

    /// Pauses claims and runs quarantined jobs for one turn.
    async fn run_one_turn(&self, queues: &[&Arc<QueueState>], wait: Duration) -> TurnResult {
        let jobs = &self.claimer.dispatcher.in_hand;
        let alone = tokio::select! {
            alone = self.claimer.gate.close_until_idle(jobs, wait) => alone,
            () = self.claimer.stopping.cancelled() => return TurnResult::None,
        };
        // The gate stays closed while this guard lives.
        let Some(_alone) = alone else {
            tracing::info!(
                waited = wait.as_secs_f64(),
                jobs = jobs.in_hand(),
                "quarantined jobs wait: other jobs ran, or a claim had no answer, for too long"
            );
            return TurnResult::None;
        };
        let until = Instant::now() + TURN_LENGTH;
        let mut had = HashSet::new();
        for queue in queues {
            while Instant::now() < until && !self.claimer.stopping.is_cancelled() {
                let ids = self.run_next(queue).await;
                if ids.is_empty() {
                    break;
                }
                if !ids.into_iter().all(|id| had.insert(id)) {
                    return TurnResult::Repeated;
                }
            }
        }
        TurnResult::Had
    }

    /// Runs the next quarantined job to its end, or the jobs that may run together; returns no ids
    /// if none wait.
    async fn run_next(&self, queue: &Arc<QueueState>) -> Vec<JobId> {
        // No other claim is in flight, so no other job is delivered at the same time, and the
        // connection of the claims is free.
        let jobs = &self.claimer.dispatcher.in_hand;
        match self.claim(queue).await {
            Ok(ids) => {
                while jobs.in_hand() > 0 && !self.claimer.stopping.is_cancelled() {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                ids
            }
            Err(error) => {
                tracing::warn!(%error, "quarantined jobs could not be claimed");
                Vec::new()
            }
        }
    }

    /// Claims and delivers the jobs that may run together, else one job.
    async fn claim(&self, queue: &Arc<QueueState>) -> Result<Vec<JobId>, Error> {
        let most = queue.consumer.quarantine_batch();
        for together in [most, 1] {
            let sent = PendingClaim::new(&self.claimer).await?;
            let taken = match self.send_claim(queue, &sent, together).await {
                Ok(taken) => taken,
                Err(error) => {
                    sent.end_failed(&error);
                    return Err(error);
                }
            };
            let read = match taken {
                0 => ReadJobs::default(),
                // If they cannot be read, they are given back when the claim is dropped.
                _ => self.claimer.read(&sent, &UnreadBatches::default()).await?,
            };
            let mut claim = store::read_claim(&read.rows, &queue.name, sent.token)?;
            claim.unreadable.extend(read.unreadable);
            for (_, job) in &claim.jobs {
                if let Some(left_out) = ALONE_LOG.admit_field(&job.name) {
                    tracing::info!(
                        job = job.id.0,
                        name = &*job.name,
                        crashes = job.crashes,
                        jobs = claim.jobs.len(),
                        left_out,
                        "running a quarantined job alone: its worker died"
                    );
                }
            }
            let ids: Vec<JobId> = claim.ids().collect();
            sent.deliver(queue, claim);
            if !ids.is_empty() || most == 1 {
                return Ok(ids);
            }
        }
        Ok(Vec::new())
    }

    async fn send_claim(
        &self,
        queue: &QueueState,
        sent: &PendingClaim<'_>,
        together: usize,
    ) -> Result<i64, Error> {
        let (link, name) = (&self.claimer.link, &queue.name);
        if together > 1 {
            store::claim_quarantined_batch(link, name, sent.worker.id, sent.token, together).await
        } else {
            store::claim_quarantined(link, name, sent.worker.id, sent.token).await
        }
    }
}
