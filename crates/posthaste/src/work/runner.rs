//! Runs handlers of one queue: a fixed number of slots, each with one job at a time, and a short line of jobs in front of them.

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::handler::{self, Context, Handlers};
use crate::config::QueueConfig;
use crate::consumer::{Consumer, Delivery, Outcome, Ticket};
use crate::error::panic_text;
use crate::job::{Job, JobId};
use crate::retry::{Backoff, Report};

/// Jobs stand in line for about this long, as far as the last runs tell: a slow sibling holds up no more than that.
const LINE: Duration = Duration::from_millis(20);
/// The longest line: two of the largest claims, so that one is fetched while the other runs.
const LONGEST_LINE: usize = 10_000;
/// A handler that ignores its timeout for this long blocks its thread: its job is taken from it and another slot takes over.
const OVERSTAY: Duration = Duration::from_millis(500);

/// What a handler whose job was cancelled gets to clean up.
const CANCEL_GRACE: Duration = Duration::from_secs(5);

/// The consumer kind *work*: async handlers.
pub(crate) struct Runner {
    config: QueueConfig,
    handlers: Arc<Handlers>,
    runtime: Handle,
    line: Mutex<VecDeque<Delivery>>,
    arrived: Notify,
    running: Mutex<Vec<Arc<Slot>>>,
    busy: AtomicUsize,
    /// Moving average of a run, in nanoseconds.
    run_time: AtomicU64,
    closing: AtomicBool,
    stopping: CancellationToken,
    aborted: CancellationToken,
}

/// A run under way.
struct Run {
    ticket: Ticket,
    started: Instant,
    cancelled: CancellationToken,
}

/// One place where a job runs. Whoever takes the run out speaks for the job; the other finds nothing.
#[derive(Default)]
struct Slot {
    current: Mutex<Option<Run>>,
    /// Its handler blocks the thread; another slot has taken its place.
    abandoned: AtomicBool,
}

impl Slot {
    fn current(&self) -> MutexGuard<'_, Option<Run>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Option<Run> {
        self.current().take()
    }
}

impl Runner {
    pub(crate) fn start(
        config: QueueConfig,
        handlers: Arc<Handlers>,
        runtime: Handle,
        stopping: CancellationToken,
    ) -> Arc<Self> {
        let concurrency = config.concurrency;
        let runner = Arc::new(Self {
            config,
            handlers,
            runtime,
            line: Mutex::default(),
            arrived: Notify::new(),
            running: Mutex::default(),
            busy: AtomicUsize::new(0),
            run_time: AtomicU64::new(u64::try_from(LINE.as_nanos()).unwrap_or(u64::MAX)),
            closing: AtomicBool::new(false),
            stopping,
            aborted: CancellationToken::new(),
        });
        (0..concurrency).for_each(|_| runner.open_slot());
        runner
    }

    fn open_slot(self: &Arc<Self>) {
        let slot = Arc::new(Slot::default());
        self.running
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(Arc::clone(&slot));
        self.runtime.spawn(serve(Arc::downgrade(self), slot));
    }

    fn line(&self) -> MutexGuard<'_, VecDeque<Delivery>> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long a line the last runs justify; none where it would be no longer than one job per slot.
    fn ahead(&self) -> usize {
        let run = u128::from(self.run_time.load(Ordering::Relaxed).max(1));
        let ahead = (LINE.as_nanos() * self.config.concurrency as u128 / run)
            .min(LONGEST_LINE as u128) as usize;
        if ahead > self.config.concurrency {
            ahead
        } else {
            0
        }
    }

    /// Runs one job to its end and reports it, unless the watch was faster.
    async fn run(&self, slot: &Slot, delivery: Delivery) {
        let started = Instant::now();
        let Delivery { job, ticket } = delivery;
        let completed = Arc::new(AtomicBool::new(false));
        let cancelled = CancellationToken::new();
        let context = Context {
            fence: ticket.fence(),
            delivery_id: ticket.delivery_id(),
            job: Arc::clone(&job),
            stopping: self.stopping.clone(),
            cancelled: cancelled.clone(),
            completed: Arc::clone(&completed),
        };
        *slot.current() = Some(Run {
            ticket,
            started,
            cancelled: cancelled.clone(),
        });
        let report = tokio::select! {
            report = self.attempt(context, job) => report,
            () = self.aborted.cancelled() => Report::GivenBack,
            () = overstayed(&cancelled) => Report::Cancelled,
        };
        // Whatever the handler came to after it had called complete_in, its transaction decides.
        let report = match report {
            Report::Returned(_) if completed.load(Ordering::SeqCst) => {
                Report::CompletedInTransaction
            }
            Report::Returned(Outcome::Done) => report,
            _ if cancelled.is_cancelled() => Report::Cancelled,
            _ => report,
        };
        self.learn(started.elapsed());
        if let Some(run) = slot.take() {
            self.end(run.ticket, report);
        }
    }

    /// Whoever took a ticket out of its slot ends the run. The place is free before the report goes out: the report is what makes the engine ask for room.
    fn end(&self, ticket: Ticket, report: Report) {
        self.busy.fetch_sub(1, Ordering::SeqCst);
        ticket.report(report);
    }

    async fn attempt(&self, context: Context, job: Arc<Job>) -> Report {
        let Some(handler) = self.handlers.get(&job.name) else {
            tracing::warn!(
                name = &*job.name,
                queue = &*job.queue,
                "no handler knows this job name; the job is put off"
            );
            return Report::Unknown;
        };
        // Building the future runs the handler's own code too: it belongs inside what catches panics.
        let run = AssertUnwindSafe(async { handler(context, job).await }).catch_unwind();
        match tokio::time::timeout(self.config.timeout, run).await {
            Ok(Ok(Ok(outcome))) => Report::Returned(outcome),
            Ok(Ok(Err(error))) => handler::failure(error),
            Ok(Err(panic)) => Report::Panicked(panic_text(&*panic)),
            Err(_) => Report::TimedOut(self.config.timeout),
        }
    }

    fn learn(&self, run: Duration) {
        let run = u64::try_from(run.as_nanos()).unwrap_or(u64::MAX);
        let average = self.run_time.load(Ordering::Relaxed);
        self.run_time
            .store(average - average / 16 + run / 16, Ordering::Relaxed);
    }
}

/// A run was cancelled and has had its time to clean up.
async fn overstayed(cancelled: &CancellationToken) {
    cancelled.cancelled().await;
    tokio::time::sleep(CANCEL_GRACE).await;
}

/// A slot's life: jobs one after the other, until the runner is gone or the slot was given up.
async fn serve(runner: Weak<Runner>, slot: Arc<Slot>) {
    while let Some(runner) = runner.upgrade() {
        let next = runner.line().pop_front();
        match next {
            Some(delivery) => {
                runner.busy.fetch_add(1, Ordering::SeqCst);
                runner.run(&slot, delivery).await;
                if slot.abandoned.load(Ordering::SeqCst) {
                    return;
                }
            }
            None => {
                let arrived = runner.arrived.notified();
                tokio::pin!(arrived);
                arrived.as_mut().enable();
                if runner.line().is_empty() {
                    tokio::select! { () = arrived => {}, () = runner.aborted.cancelled() => return }
                }
            }
        }
    }
}

impl Consumer for Arc<Runner> {
    fn limit(&self) -> Option<Duration> {
        Some(self.config.timeout)
    }

    fn backoff(&self) -> Backoff {
        self.config.backoff
    }

    fn capacity(&self) -> usize {
        if self.closing.load(Ordering::SeqCst) {
            return 0;
        }
        let waiting = self.line().len();
        let target = self.config.concurrency + self.ahead();
        let free = target.saturating_sub(waiting + self.busy.load(Ordering::SeqCst));
        // A line that is still long is not topped up job by job.
        if waiting == 0 || free >= target / 2 {
            free
        } else {
            0
        }
    }

    fn consume(&self, claim: Vec<Delivery>) {
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
        waiting
            .into_iter()
            .for_each(|delivery| delivery.ticket.give_back());
    }

    fn abort(&self) {
        self.aborted.cancel();
        // A handler that blocks its thread cannot be ended, but its job can be taken from it.
        let slots = self
            .running
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        slots
            .iter()
            .filter_map(|slot| slot.take())
            .for_each(|run| self.end(run.ticket, Report::GivenBack));
    }

    fn cancel(&self, jobs: &[JobId]) {
        let mut line = self.line();
        let (cancelled, kept) = line
            .drain(..)
            .partition::<VecDeque<_>, _>(|delivery| jobs.contains(&delivery.job.id));
        *line = kept;
        drop(line);
        let tickets = cancelled.into_iter().map(|delivery| delivery.ticket);
        tickets.for_each(Ticket::cancelled);
        let slots = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let runs = slots.iter().map(|slot| slot.current());
        runs.flat_map(|run| {
            let run = run.as_ref()?;
            jobs.contains(&run.ticket.job.id)
                .then(|| run.cancelled.clone())
        })
        .for_each(|cancelled| cancelled.cancel());
    }

    fn watch(&self) {
        let overdue = self.config.timeout.saturating_add(OVERSTAY);
        let mut slots = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let before = slots.len();
        slots.retain(|slot| {
            let mut current = slot.current();
            if current.as_ref().is_none_or(|run| run.started.elapsed() <= overdue) {
                return true;
            }
            slot.abandoned.store(true, Ordering::SeqCst);
            if let Some(Run { ticket, .. }) = current.take() {
                tracing::error!(job = %ticket.job.id, name = &*ticket.job.name, "a handler blocks its thread beyond its timeout; its slot is replaced");
                self.end(ticket, Report::TimedOut(self.config.timeout));
            }
            false
        });
        let lost = before - slots.len();
        drop(slots);
        (0..lost).for_each(|_| self.open_slot());
    }
}
