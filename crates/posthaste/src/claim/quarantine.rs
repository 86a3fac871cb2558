//! Jobs whose worker died are run alone once: claims pause, those under way and what runs are
//! waited for, and then one quarantined job runs with nothing else in the process. If it kills
//! again, it alone uses up an attempt; the one that was merely near it when it struck is done and
//! cleared. A consumer that takes jobs by the batch may have those together for which a counted
//! attempt ends nothing: if one of them kills again, each runs alone.

mod pauses;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::claimer::Claimer;
use super::pending::PendingClaim;
use super::read::Jobs;
use crate::error::Error;
use crate::job::JobId;
use crate::log_limit::{FEW, LogLimit};
use crate::parts::queue::{QueueState, Queues};
use crate::store::reconnecting::ReconnectingClient;
use crate::store::{self, Unread};
use pauses::{LOOK, Pauses, Turn};

/// Quarantined jobs have the process for themselves for about this long at a time; then other work
/// has its turn.
const TURN: Duration = Duration::from_secs(1);

static ALONE: LogLimit = LogLimit::new(FEW);

/// Runs the quarantined jobs of all queues.
pub(crate) struct Quarantine {
    pub(crate) claimer: Arc<Claimer>,
    pub(crate) queues: Queues,
    pub(crate) looks: Arc<ReconnectingClient>,
}

impl Quarantine {
    /// Gives them their turns until the worker stops.
    pub(crate) async fn run(self) {
        // As long as the slowest handler may run; no limit if one has none.
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
                        // A turn is short: it is not to go to the same queue each time.
                        fastrand::shuffle(&mut ours);
                        let paused = Instant::now();
                        let turn = self.isolate(&ours, patience.wait()).await;
                        patience.rest(turn, paused.elapsed())
                    }
                }
                Err(error) => {
                    tracing::debug!(%error, "quarantined jobs could not be looked for");
                    LOOK
                }
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.claimer.stopping.cancelled() => {}
            }
        }
    }

    /// Gives quarantined jobs their turn.
    async fn isolate(&self, queues: &[&Arc<QueueState>], wait: Duration) -> Turn {
        let jobs = &self.claimer.dispatcher.in_hand;
        let alone = tokio::select! {
            alone = self.claimer.gate.alone(jobs, wait) => alone,
            () = self.claimer.stopping.cancelled() => return Turn::None,
        };
        // The gate stays closed for as long as this lives.
        let Some(_alone) = alone else {
            tracing::info!(
                waited = wait.as_secs_f64(),
                jobs = jobs.in_hand(),
                "quarantined jobs wait: other jobs ran, or a claim had no answer, for too long"
            );
            return Turn::None;
        };
        let until = Instant::now() + TURN;
        let mut had = HashSet::new();
        for queue in queues {
            while Instant::now() < until && !self.claimer.stopping.is_cancelled() {
                let ids = self.next(queue).await;
                if ids.is_empty() {
                    break;
                }
                if !ids.into_iter().all(|id| had.insert(id)) {
                    return Turn::Repeated;
                }
            }
        }
        Turn::Had
    }

    /// Runs the next quarantined job to its end, or those that may run together; none when there is
    /// none.
    async fn next(&self, queue: &Arc<QueueState>) -> Vec<JobId> {
        // No other claim is under way, so nothing is delivered beside this one, and their
        // connection is free.
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

    /// Claims and hands out those that may run together, or else one.
    async fn claim(&self, queue: &Arc<QueueState>) -> Result<Vec<JobId>, Error> {
        let most = queue.consumer.quarantine_batch();
        for together in [most, 1] {
            let sent = PendingClaim::new(&self.claimer).await?;
            let taken = match self.ask(queue, &sent, together).await {
                Ok(taken) => taken,
                Err(error) => {
                    sent.failed(&error);
                    return Err(error);
                }
            };
            let read = match taken {
                0 => Jobs::default(),
                // Taken and not read, they are given back as the claim is dropped.
                _ => self.claimer.read(&sent, &Unread::default()).await?,
            };
            let mut claim = store::read_claim(&read.rows, &queue.name, sent.token)?;
            claim.unreadable.extend(read.unreadable);
            for (_, job) in &claim.jobs {
                if let Some(left_out) = ALONE.admit_field(&job.name) {
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
            sent.hand_out(queue, claim);
            if !ids.is_empty() || most == 1 {
                return Ok(ids);
            }
        }
        Ok(Vec::new())
    }

    async fn ask(
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
