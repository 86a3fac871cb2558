//! The loop that polls for due jobs and checks their documents.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};

use super::compare::{Pass, SyncOutcome, SyncRequest};
use super::fill::fill;
use super::index::IndexError;
use super::{SharedState, job, spans};
use posthaste::__private::panic_text;
use posthaste::RetryLater;
use posthaste::consumer::{Delivery, Outcome};

/// Time to wait for the first jobs of a batch. It exceeds a second because an idle worker polls
/// once a second.
const FIRST_JOB_WAIT: Duration = Duration::from_millis(1500);
/// Time to wait for more jobs after the last ones. Several claims may follow, because each takes
/// one priority.
const NEXT_JOB_WAIT: Duration = Duration::from_millis(500);
/// The most time that received jobs wait for a full batch, if the period is longer: filling a batch
/// with jobs that arrive one by one would take many periods.
const MAX_BATCH_WAIT: Duration = Duration::from_secs(10);
/// Time between two removals of old deletions.
const PRUNE_INTERVAL: Duration = Duration::from_secs(3600);

/// Syncs until the worker stops. After a panic the next poll starts in a period: if the panic ended
/// the sync, its jobs would wait forever unnoticed.
pub(super) async fn run_until_stopped(shared: Arc<SharedState>) {
    while let Err(panic) = AssertUnwindSafe(run_polls(&shared)).catch_unwind().await {
        let problem = format!("a poll panicked: {}", panic_text(&*panic));
        tracing::error!(
            error = problem,
            "a sync poll panicked; the next one starts after the poll interval"
        );
        shared.status().last_error = Some(problem);
        shared.inbox().is_open = false;
        tokio::select! {
            () = tokio::time::sleep(shared.options.period) => {}
            () = shared.stopping.cancelled() => return,
        }
    }
}

async fn run_polls(shared: &SharedState) {
    let mut next_poll = Instant::now();
    let mut forget_at = Instant::now();
    while !shared.stopping.is_cancelled() {
        let is_time = tokio::select! {
            () = tokio::time::sleep_until(next_poll) => true,
            () = shared.arrived.notified() => false,
            () = shared.stopping.cancelled() => return,
        };
        if is_time {
            next_poll = Instant::now() + shared.options.period;
            shared.run_poll().await;
        } else if !shared.inbox().waiting.is_empty() {
            // These jobs were claimed just before the last poll ended, or belong to a worker that
            // died.
            let (batch, comes_alone) = shared.gather_batch().await;
            shared.run_pass(batch).await;
            if comes_alone {
                // Claims paused for this job, and may have ended the last poll early.
                next_poll = next_poll.min(Instant::now() + NEXT_JOB_WAIT);
            }
        }
        if forget_at <= Instant::now() {
            forget_at = Instant::now() + PRUNE_INTERVAL;
            shared.prune_deletions().await;
        }
    }
}

impl SharedState {
    /// Runs batch after batch while each is at least half full and was tried. Two are in flight:
    /// while the index processes one, Postgres is queried for the other, and the next one is
    /// claimed.
    async fn run_poll(&self) {
        let limit = self.options.time_limit;
        tokio::select! {
            // If no row changes, no pass would notice that the index is gone.
            filled = tokio::time::timeout(limit, self.fill_once()) =>
                if let Ok(Err(error)) = filled {
                tracing::debug!(%error, "could not check whether the index is empty");
            },
            () = self.stopping.cancelled() => return,
        }
        let is_over = Mutex::new(false);
        self.inbox().is_open = true;
        tokio::join!(self.run_batches(&is_over), self.run_batches(&is_over));
        self.inbox().is_open = false;
    }

    async fn run_batches(&self, is_over: &Mutex<bool>) {
        loop {
            let batch = {
                let mut is_over = is_over.lock().await;
                if *is_over {
                    return;
                }
                let (batch, comes_alone) = self.gather_batch().await;
                // Slow claims make a batch smaller than possible, and the rest of a backlog would
                // wait for a period. A job that is delivered alone does not indicate how many wait
                // for it.
                *is_over = !comes_alone && batch.len() < self.options.batch.div_ceil(2);
                if *is_over {
                    self.inbox().is_open = false;
                }
                batch
            };
            if batch.is_empty() {
                return;
            }
            if !self.run_pass(batch).await {
                *is_over.lock().await = true;
                self.inbox().is_open = false;
            }
        }
    }

    /// Collects jobs until the batch is full or no more arrive. Also returns whether the batch is a
    /// single job whose worker died.
    async fn gather_batch(&self) -> (Vec<Delivery>, bool) {
        let mut wait = FIRST_JOB_WAIT;
        let mut latest = None;
        loop {
            let (before, comes_alone) = {
                let inbox = self.inbox();
                // Such a job is delivered alone, and many others may wait for it.
                let comes_alone = inbox.waiting.iter().any(|one| one.job.crashes > 0);
                (inbox.waiting.len(), comes_alone)
            };
            if before >= self.options.batch || comes_alone {
                return (std::mem::take(&mut self.inbox().waiting), comes_alone);
            }
            if before > 0 {
                let longest = self.options.period.clamp(NEXT_JOB_WAIT, MAX_BATCH_WAIT);
                let latest = *latest.get_or_insert_with(|| Instant::now() + longest);
                wait = NEXT_JOB_WAIT.min(latest.saturating_duration_since(Instant::now()));
            }
            let more = tokio::select! {
                more = tokio::time::timeout(wait, self.arrived.notified()) => more.is_ok(),
                () = self.stopping.cancelled() => false,
            };
            if !more && self.inbox().waiting.len() == before {
                return (std::mem::take(&mut self.inbox().waiting), false);
            }
        }
    }

    /// Runs one pass. Returns false if the index or Postgres could not be read, or no time was
    /// left.
    async fn run_pass(&self, batch: Vec<Delivery>) -> bool {
        let mut requested = Vec::with_capacity(batch.len());
        for delivery in batch {
            match job::parse_request(&delivery.job) {
                Ok(request) => requested.push((delivery, request)),
                Err(misread) => {
                    let reason = misread.to_string();
                    let outcome = SyncOutcome::Failed(reason.clone());
                    let counted = [(&*delivery.job, &outcome)];
                    self.status().count_batch(counted.into_iter());
                    delivery.ticket.settle(Outcome::Discard { reason });
                }
            }
        }
        let requests: Vec<SyncRequest> = requested
            .iter()
            .map(|(_, request)| request.clone())
            .collect();
        let span = spans::pass_span(&self.index.label(), &requested);
        let outcomes = self.sync_documents(&requests).await;
        spans::record_outcomes(&span, &outcomes);
        drop(span);
        let mut was_tried = false;
        let mut rescheduled = None;
        let jobs = requested.iter().map(|(delivery, _)| &*delivery.job);
        self.status().count_batch(jobs.zip(&outcomes));
        for ((delivery, _), outcome) in requested.into_iter().zip(outcomes) {
            match &outcome {
                SyncOutcome::Rescheduled(reason) => rescheduled = Some(reason.clone()),
                _ => was_tried = true,
            }
            self.settle_job(delivery, outcome);
        }
        if let Some(reason) = rescheduled {
            let index = self.index.label();
            tracing::warn!(
                index,
                error = reason,
                "the index is not available; its jobs wait in Postgres"
            );
        }
        was_tried && !self.stopping.is_cancelled()
    }

    async fn sync_documents(&self, requests: &[SyncRequest]) -> Vec<SyncOutcome> {
        let pass = Pass {
            source: &*self.source,
            index: &*self.index,
            proof: self.options.proof,
            bytes: self.options.bytes,
        };
        let limit = self.options.time_limit;
        let until = Instant::now() + limit;
        let rescheduled = |reason: String| vec![SyncOutcome::Rescheduled(reason); requests.len()];
        let run = async {
            // Fills a new index before the pass writes a few documents to it.
            match timeout_at(until, self.fill_once()).await {
                Ok(Ok(())) => {
                    let left = until.saturating_duration_since(Instant::now());
                    pass.run_within(requests, Some(left)).await
                }
                Ok(Err(IndexError(reason))) => rescheduled(reason),
                Err(_) => rescheduled(format!("not filled within {} s", limit.as_secs_f32())),
            }
        };
        let run = AssertUnwindSafe(run).catch_unwind();
        let result = tokio::select! {
            outcomes = run => Some(outcomes),
            () = self.aborted.cancelled() => None,
        };
        self.status().passes += 1;
        match result {
            Some(Ok(outcomes)) => outcomes,
            // The index or this crate panicked: panics of rows are caught one by one.
            Some(Err(panic)) => {
                let problem = format!("a pass panicked: {}", panic_text(&*panic));
                tracing::error!(
                    error = problem,
                    "a pass failed; its jobs will be checked again"
                );
                rescheduled(problem)
            }
            None => rescheduled("the worker stopped".into()),
        }
    }

    /// Enqueues a check of all rows once each time the index becomes empty: the index stays empty
    /// if it accepts none of the rows.
    async fn fill_once(&self) -> Result<(), IndexError> {
        if !self.index.is_empty().await? {
            self.is_filled.store(false, Ordering::Relaxed);
        } else if !self.is_filled.load(Ordering::Relaxed) {
            fill(&*self.source, &*self.index).await?;
            self.is_filled.store(true, Ordering::Relaxed);
        } else {
            // The index may have been deleted again before it had any document.
            self.index
                .create_if_missing(&self.source.fields().await?)
                .await?;
        }
        Ok(())
    }

    fn settle_job(&self, delivery: Delivery, outcome: SyncOutcome) {
        let ticket = delivery.ticket;
        // Due before the next poll, so that the next poll claims it.
        let next = self.options.period / 2;
        match outcome {
            SyncOutcome::Done(_) => ticket.settle(Outcome::Done),
            SyncOutcome::Rescheduled(_) if self.aborted.is_cancelled() => ticket.give_back(),
            SyncOutcome::Written(reason) => {
                let reason = format!("{}: written, and to be seen", reason.name());
                ticket.fail(RetryLater::without_attempt(next, reason));
            }
            SyncOutcome::Rescheduled(reason) => {
                ticket.fail(RetryLater::without_attempt(next, reason))
            }
            SyncOutcome::Rejected(reason) => ticket.settle(Outcome::Discard { reason }),
            SyncOutcome::Failed(reason) => ticket.fail(reason),
        }
    }

    /// Removes old deletions, within the time limit of a batch. No check runs at the same time.
    async fn prune_deletions(&self) {
        let forget = self.index.prune_deletions(self.options.keep_deletions);
        let forgotten = tokio::select! {
            forgotten = tokio::time::timeout(self.options.time_limit, forget) => forgotten,
            () = self.stopping.cancelled() => return,
        };
        match forgotten {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => {
                tracing::debug!(
                    %error,
                    "old deletions could not be pruned; they remain until the next run"
                )
            }
            Err(_) => {
                tracing::debug!("pruning old deletions timed out; they stay until the next hour")
            }
        }
    }
}
