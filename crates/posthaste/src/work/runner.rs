//! Runs handlers of one queue: a fixed number of slots, each with one job at a time, and a short
//! line of waiting jobs.

mod line;
mod slot;

use std::collections::{HashMap, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::context::{self, Context};
use super::handlers::{HandlerId, Handlers};
use super::test_probe::TestProbe;
use crate::config::QueueConfig;
use crate::consumer::{Consumer, Delivery, Outcome, Ticket};
use crate::error::panic_text;
use crate::handler;
use crate::job::{Job, JobId};
use crate::log_limit::{FEW, LogLimit};
use crate::parts::failing_endpoints::FailingEndpoints;
use crate::retry::{Backoff, RunResult};
use line::TARGET_LINE_TIME;
use slot::{Run, Slot, exceeded_cancel_grace};

/// The consumer of queues with handlers.
pub(crate) struct Runner {
    config: QueueConfig,
    handlers: Arc<Handlers>,
    runtime: Handle,
    probe: Option<TestProbe>,
    failing: Arc<FailingEndpoints>,
    line: Mutex<VecDeque<Delivery>>,
    arrived: Notify,
    running: Mutex<Vec<Arc<Slot>>>,
    busy: AtomicUsize,
    /// Running jobs of handlers with a concurrency limit; `None` if there is no such handler.
    limited: Option<Mutex<HashMap<HandlerId, usize>>>,
    /// The moving average of the duration of a run, in nanoseconds.
    run_time: AtomicU64,
    closing: AtomicBool,
    stopping: CancellationToken,
    aborted: CancellationToken,
}

impl Runner {
    pub(crate) fn start(
        config: QueueConfig,
        handlers: Arc<Handlers>,
        runtime: Handle,
        stopping: CancellationToken,
        probe: Option<TestProbe>,
        failing: Arc<FailingEndpoints>,
    ) -> Arc<Self> {
        let concurrency = config.concurrency;
        let limited = handlers.are_limited().then(Mutex::default);
        let runner = Arc::new(Self {
            config,
            handlers,
            runtime,
            probe,
            failing,
            line: Mutex::default(),
            arrived: Notify::new(),
            running: Mutex::default(),
            busy: AtomicUsize::new(0),
            limited,
            run_time: AtomicU64::new(
                u64::try_from(TARGET_LINE_TIME.as_nanos()).unwrap_or(u64::MAX),
            ),
            closing: AtomicBool::new(false),
            stopping,
            aborted: CancellationToken::new(),
        });
        (0..concurrency).for_each(|_| runner.open_slot());
        runner
    }

    fn open_slot(self: &Arc<Self>) {
        let slot = Arc::new(Slot::default());
        self.running.lock().push(Arc::clone(&slot));
        self.runtime.spawn(serve_slot(Arc::downgrade(self), slot));
    }

    /// Splits off the jobs beyond the number that a test requested.
    fn split_off_untried(&self, claim: Vec<Delivery>) -> (Vec<Delivery>, Vec<Delivery>) {
        match &self.probe {
            Some(probe) => claim.into_iter().partition(|_| probe.take_one()),
            None => (claim, Vec::new()),
        }
    }

    /// Runs one job to its end and reports it, unless the watch has taken it.
    async fn run(&self, slot: &Slot, delivery: Delivery, which: Option<HandlerId>) {
        let started = Instant::now();
        let Delivery { job, mut ticket } = delivery;
        let settings = which.map(|which| self.handlers.settings(which));
        let settings = settings.unwrap_or_default();
        ticket.backoff = settings.backoff;
        ticket.began = started;
        let timeout = settings.timeout.unwrap_or(self.config.timeout);
        let cancelled = CancellationToken::new();
        let run = Arc::new(context::Run {
            fence: Some(ticket.fence()),
            delivery_id: ticket.delivery_id(),
            job: Arc::clone(&job),
            stopping: self.stopping.clone(),
            cancelled: cancelled.clone(),
            completed: Arc::default(),
            failing: Arc::clone(&self.failing),
        });
        *slot.current() = Some(Run {
            ticket,
            which,
            started,
            timeout,
            cancelled: cancelled.clone(),
            completed: Arc::clone(&run.completed),
        });
        let span = tracing::info_span!(
            "job",
            job = job.id.0,
            name = &*job.name,
            queue = &*job.queue,
            attempt = job.attempt,
            traceparent = job.traceparent()
        );
        let context = Context::new(Arc::clone(&run));
        let attempt = self.attempt(which, context, job, timeout);
        let result = tokio::select! {
            result = attempt.instrument(span.clone()) => result,
            () = self.aborted.cancelled() => RunResult::GivenBack,
            () = exceeded_cancel_grace(&cancelled) => RunResult::Cancelled,
        };
        // If the handler called complete_in, its transaction decides the outcome.
        let result = match result {
            RunResult::Returned(Outcome::Done) if run.completed.load(Ordering::SeqCst) => {
                RunResult::CompletedInTransaction
            }
            result => result.unless_cancelled(cancelled.is_cancelled()),
        };
        self.record_duration(started.elapsed());
        if let Some(run) = slot.take() {
            span.in_scope(|| self.end(run, result));
        }
    }

    /// Ends a run that the caller took out of its slot. The slot is counted as free before the
    /// result is sent, because the result makes the engine read the capacity.
    fn end(&self, mut run: Run, result: RunResult) {
        self.busy.fetch_sub(1, Ordering::SeqCst);
        self.release_handler(run.which);
        if let Some(probe) = &self.probe {
            probe.report_run(&run.ticket.job, &result);
        }
        run.ticket.may_be_completed = run.completed.load(Ordering::SeqCst);
        log_unhandled(&run.ticket.job, &result);
        run.ticket.record(result);
    }

    /// Releases the claim of a job that is not run after all.
    fn skip_next(&self, which: Option<HandlerId>) {
        self.release_handler(which);
        if let Some(probe) = &self.probe {
            probe.give_back(1);
        }
    }

    /// Records the end of a run of this handler, so that another job that waits for it may begin.
    fn release_handler(&self, which: Option<HandlerId>) {
        let Some(limited) = &self.limited else {
            return;
        };
        let mut limited = limited.lock();
        if let Some(running) = which.and_then(|which| limited.get_mut(&which)) {
            *running -= 1;
            drop(limited);
            self.arrived.notify_one();
        }
    }

    async fn attempt(
        &self,
        which: Option<HandlerId>,
        context: Context,
        job: Arc<Job>,
        timeout: Duration,
    ) -> RunResult {
        let Some(which) = which else {
            return RunResult::Unknown;
        };
        // Building the future runs code of the handler too, so it is done inside `catch_unwind`.
        let run = AssertUnwindSafe(self.handlers.run(which, context, job)).catch_unwind();
        match tokio::time::timeout(timeout, run).await {
            Ok(Ok(Ok(outcome))) => RunResult::Returned(outcome),
            Ok(Ok(Err(error))) => handler::failure(error),
            Ok(Err(panic)) => RunResult::Panicked(panic_text(&*panic)),
            Err(_) => RunResult::TimedOut(timeout),
        }
    }
}

static UNKNOWN_LOG: LogLimit = LogLimit::new(1);
static UNTRIED_LOG: LogLimit = LogLimit::new(1);
static BLOCKED_LOG: LogLimit = LogLimit::new(FEW);

/// Logs jobs that no handler could try: a line for each name and minute.
fn log_unhandled(job: &Job, result: &RunResult) {
    match result {
        RunResult::Unknown => {
            if let Some(left_out) = UNKNOWN_LOG.admit(&job.name) {
                tracing::warn!(
                    job = job.id.0,
                    jobs = left_out + 1,
                    name = &*job.name,
                    queue = &*job.queue,
                    "no handler knows this job name; its jobs are rescheduled"
                );
            }
        }
        RunResult::FailedUntil {
            error,
            counts_as_attempt: false,
            ..
        } => {
            if let Some(left_out) = UNTRIED_LOG.admit(&job.name) {
                tracing::warn!(
                    job = job.id.0,
                    jobs = left_out + 1,
                    name = &*job.name,
                    queue = &*job.queue,
                    error = error.as_str(),
                    "jobs could not be started; they are rescheduled and no attempt is counted"
                );
            }
        }
        _ => {}
    }
}

/// Serves a slot: runs jobs one by one until the runner is dropped or the slot is abandoned.
async fn serve_slot(runner: Weak<Runner>, slot: Arc<Slot>) {
    while let Some(runner) = runner.upgrade() {
        let Some((delivery, which)) = runner.next_or_wait().await else {
            return;
        };
        let Some(delivery) = delivery.begin() else {
            runner.skip_next(which);
            continue;
        };
        runner.busy.fetch_add(1, Ordering::SeqCst);
        let run = AssertUnwindSafe(runner.run(&slot, delivery, which)).catch_unwind();
        // A value in an error, a future or a panic may panic when it is printed or dropped.
        if let Err(panic) = run.await {
            if let Some(run) = slot.take() {
                runner.end(run, RunResult::Panicked(panic_text(&*panic)));
            }
            std::mem::forget(panic);
        }
        if slot.abandoned.load(Ordering::SeqCst) {
            return;
        }
    }
}

impl Consumer for Arc<Runner> {
    fn limit(&self) -> Option<Duration> {
        // Jobs that wait for each other may take as long as all of them together.
        if self.limited.is_some() {
            return None;
        }
        let longest = self.handlers.longest_timeout();
        longest.max(Some(self.config.timeout))
    }

    fn backoff(&self) -> Backoff {
        self.config.backoff
    }

    fn capacity(&self) -> usize {
        if self.closing.load(Ordering::SeqCst) {
            return 0;
        }
        let waiting = self.line().len();
        let target = self.config.concurrency + self.line_limit();
        let free = target.saturating_sub(waiting + self.busy.load(Ordering::SeqCst));
        let free = self
            .probe
            .as_ref()
            .map_or(free, |probe| free.min(probe.remaining()));
        // A line that is still long is not refilled job by job, unless its jobs wait for each
        // other.
        if waiting == 0 || free >= target / 2 || self.limited.is_some() {
            free
        } else {
            0
        }
    }

    fn consume(&self, claim: Vec<Delivery>) {
        let (claim, beyond) = self.split_off_untried(claim);
        beyond.into_iter().for_each(|one| one.ticket.give_back());
        let jobs = claim.len();
        self.line().extend(claim);
        if self.closing.load(Ordering::SeqCst) {
            return self.give_back();
        }
        if jobs >= self.config.concurrency {
            self.arrived.notify_waiters();
        } else {
            (0..jobs).for_each(|_| self.arrived.notify_one());
        }
    }

    fn give_back(&self) {
        self.closing.store(true, Ordering::SeqCst);
        let waiting: Vec<Delivery> = self.line().drain(..).collect();
        waiting.into_iter().for_each(|one| one.ticket.give_back());
    }

    fn abort(&self) {
        self.aborted.cancel();
        // A blocking handler cannot be stopped, but its job can be taken from it.
        let slots = self.running.lock().clone();
        slots
            .iter()
            .filter_map(|slot| slot.take())
            .for_each(|run| self.end(run, RunResult::GivenBack));
    }

    fn cancel(&self, jobs: &[JobId]) {
        let mut line = self.line();
        let (cancelled, waiting) = line
            .drain(..)
            .partition::<VecDeque<_>, _>(|delivery| jobs.contains(&delivery.job.id));
        *line = waiting;
        drop(line);
        if let Some(probe) = &self.probe {
            probe.give_back(cancelled.len());
        }
        let tickets = cancelled.into_iter().map(|delivery| delivery.ticket);
        tickets.for_each(Ticket::cancel);
        let slots = self.running.lock();
        let runs = slots.iter().map(|slot| slot.current());
        runs.flat_map(|run| {
            let run = run.as_ref()?;
            jobs.contains(&run.ticket.job.id)
                .then(|| run.cancelled.clone())
        })
        .for_each(|cancelled| cancelled.cancel());
    }

    fn watch(&self) {
        self.shorten_line();
        let mut slots = self.running.lock();
        let before = slots.len();
        slots.retain(|slot| {
            let mut current = slot.current();
            let Some(run) = current.take_if(|run| run.is_overdue()) else {
                return true;
            };
            slot.abandoned.store(true, Ordering::SeqCst);
            let (job, timeout) = (&run.ticket.job, run.timeout);
            if let Some(left_out) = BLOCKED_LOG.admit_field(&job.name) {
                tracing::error!(
                    job = job.id.0,
                    name = &*job.name,
                    left_out,
                    "a handler blocks its thread beyond its timeout; its slot is replaced"
                );
            }
            self.end(run, RunResult::TimedOut(timeout));
            false
        });
        let lost = before - slots.len();
        drop(slots);
        (0..lost).for_each(|_| self.open_slot());
    }
}
