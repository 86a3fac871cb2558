//! The engine of a worker process: its identity, its connections, and the loops that claim, acknowledge and maintain. It runs on a thread and
//! runtime of its own, on which no consumer's code ever runs, so that a handler that never yields stops nobody but itself.

mod gate;
mod identity;
mod overdue;
mod queue;
mod watched;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use deadpool_postgres::Pool;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Notify, RwLockWriteGuard, watch};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::acknowledge::{self, Batch, Settled};
use crate::bell::{self, Bell, Listen};
use crate::config::Config;
use crate::consumer::{Delivery, Ticket};
use crate::error::{Error, ErrorKind};
use crate::heartbeat;
use crate::job::JobId;
use crate::maintenance;
use crate::retry::Verdict;
use crate::store::link::Link;
use crate::store::{self, Claimed, Fence};
use crate::tally::{self, Tally};
use crate::{cancel, claim, relay, work};
use gate::Gate;

pub(crate) use gate::Passed;
pub(crate) use identity::Identity;
pub(crate) use queue::QueueState;

/// Shared by the loops of one worker process.
pub(crate) struct Engine {
    pub(crate) config: Config,
    pub(crate) queues: Vec<Arc<QueueState>>,
    pub(crate) claims: Link,
    pub(crate) acknowledgements: Link,
    /// Acknowledgements that could not be given with their batch; opened when there is one.
    pub(crate) repeats: Link,
    /// Searches for lanes and suspects.
    pub(crate) looks: Link,
    /// The scheduled road, and the lease of maintenance.
    pub(crate) promotion: Link,
    /// Every other duty of maintenance; some are slow.
    pub(crate) upkeep: Link,
    /// What the database knows of relays; opened when there is one.
    pub(crate) relays: Link,
    pub(crate) gate: Gate,
    pub(crate) bell: Bell,
    /// Told when a queue was rung for and nothing was found.
    pub(crate) missed: Notify,
    /// What was done and not told yet.
    pub(crate) tally: Tally,
    /// No more claims.
    pub(crate) stopping: CancellationToken,
    /// Nothing more to settle: the loops end.
    pub(crate) stopped: CancellationToken,
    pub(crate) identity: watch::Sender<Option<Arc<Identity>>>,
    pub(crate) uncertain: Mutex<HashMap<Uuid, Uncertain>>,
    registering: tokio::sync::Mutex<()>,
    outstanding: AtomicUsize,
    /// Told when jobs were handed out.
    handed_out: Notify,
    in_hand: AtomicUsize,
    hopeless: AtomicBool,
    /// What ended before its time; the first of them.
    failure: OnceLock<String>,
    /// Outcomes are not taken any more: that task has ended.
    deaf: CancellationToken,
    settle: UnboundedSender<Settled>,
}

/// A claim whose answer never came.
#[derive(Clone, Copy)]
pub(crate) struct Uncertain {
    pub(crate) worker: i64,
    pub(crate) since: std::time::Instant,
}

/// What a process needs to begin.
pub(crate) struct Parts {
    pub(crate) pool: Pool,
    pub(crate) config: Config,
    pub(crate) queues: Vec<Arc<QueueState>>,
    pub(crate) stop: CancellationToken,
}

impl Engine {
    pub(crate) fn new(parts: Parts) -> (Arc<Self>, UnboundedReceiver<Settled>) {
        let (settle, settled) = unbounded_channel();
        let link = || Link::new(parts.pool.clone());
        let engine = Self {
            claims: link(),
            acknowledgements: link(),
            repeats: link(),
            looks: link(),
            promotion: link(),
            upkeep: link(),
            relays: link(),
            config: parts.config,
            queues: parts.queues,
            gate: Gate::default(),
            bell: Bell::default(),
            missed: Notify::new(),
            tally: Tally::default(),
            stopping: parts.stop,
            stopped: CancellationToken::new(),
            identity: watch::Sender::new(None),
            uncertain: Mutex::new(HashMap::new()),
            registering: tokio::sync::Mutex::new(()),
            outstanding: AtomicUsize::new(0),
            handed_out: Notify::new(),
            in_hand: AtomicUsize::new(0),
            hopeless: AtomicBool::new(false),
            failure: OnceLock::new(),
            deaf: CancellationToken::new(),
            settle,
        };
        (Arc::new(engine), settled)
    }

    /// Remembers a claim that may have been committed although no answer came.
    pub(crate) fn uncertain(&self, worker: i64, token: Uuid) {
        let since = std::time::Instant::now();
        self.uncertain
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(token, Uncertain { worker, since });
    }

    /// Whether there is a claim that may have been committed although no answer came.
    fn has_uncertain(&self) -> bool {
        !self
            .uncertain
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_empty()
    }

    /// Hands claimed jobs to the queue's consumer, each with a ticket.
    pub(crate) fn deliver(
        &self,
        queue: &Arc<QueueState>,
        worker: &Arc<Identity>,
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
            .map(|(fence, jobs)| {
                (
                    fence,
                    Arc::new(Batch {
                        fence,
                        jobs,
                        backoff: queue.backoff,
                        worker: Arc::clone(worker),
                    }),
                )
            })
            .collect();
        self.delivered(jobs.len());
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

    /// Ends a claimed job whose row cannot be read.
    pub(crate) fn bury(
        &self,
        queue: &Arc<QueueState>,
        worker: &Arc<Identity>,
        fence: Fence,
        id: JobId,
        error: String,
    ) {
        self.delivered(1);
        let batch = Arc::new(Batch {
            fence,
            jobs: usize::MAX,
            backoff: queue.backoff,
            worker: Arc::clone(worker),
        });
        let verdict = Verdict::Bury {
            attempt: None,
            state: "dead",
            error,
        };
        // The receiver lives as long as the engine.
        let _ = self.settle.send(Settled {
            batch,
            id,
            job: None,
            is_keyed: true,
            is_completed: false,
            verdict,
        });
    }

    /// Jobs that were delivered and are not settled yet.
    pub(crate) fn outstanding(&self) -> usize {
        self.outstanding.load(Ordering::SeqCst)
    }

    /// Those of them that run, or whose outcomes are on their way. Not those that wait by themselves, for somebody's open transaction perhaps: who
    /// wants to be alone would wait for a stranger.
    pub(crate) fn in_hand(&self) -> usize {
        self.in_hand.load(Ordering::SeqCst)
    }

    fn delivered(&self, jobs: usize) {
        self.outstanding.fetch_add(jobs, Ordering::SeqCst);
        self.in_hand.fetch_add(jobs, Ordering::SeqCst);
        self.handed_out.notify_waiters();
    }

    /// Waits until jobs are out: whoever looks after them sleeps meanwhile.
    pub(crate) async fn until_busy(&self) {
        let handed_out = self.handed_out.notified();
        if self.outstanding() == 0 {
            handed_out.await;
        }
    }

    pub(crate) fn settled(&self, jobs: usize) {
        self.set_aside(jobs);
        self.settled_aside(jobs);
    }

    /// These jobs have ended, and their acknowledgements wait by themselves from now on.
    pub(crate) fn set_aside(&self, jobs: usize) {
        self.in_hand.fetch_sub(jobs, Ordering::SeqCst);
    }

    /// Jobs that were set aside are settled.
    pub(crate) fn settled_aside(&self, jobs: usize) {
        self.outstanding.fetch_sub(jobs, Ordering::SeqCst);
    }

    /// Jobs have ended: consumers may have room, although the jobs are not settled yet.
    pub(crate) fn ended(&self) {
        self.queues.iter().for_each(|queue| queue.room.notify_one());
    }

    /// The shutdown deadline has passed: acknowledgements are no longer repeated.
    pub(crate) fn gave_up(&self) -> bool {
        self.hopeless.load(Ordering::SeqCst)
    }

    /// Waits until nothing is outstanding, at most this long; what nobody settles any more is not waited for.
    pub(crate) async fn drained(&self, within: Duration) -> bool {
        tokio::select! {
            drained = tokio::time::timeout(within, until_0(&self.outstanding)) => drained.is_ok(),
            () = self.deaf.cancelled() => false,
        }
    }

    /// Closes the gate and waits until no claim is under way and nothing is in hand; nothing if that takes longer than this. Until the guard is
    /// dropped it stays so.
    pub(crate) async fn alone(&self, within: Duration) -> Option<RwLockWriteGuard<'_, ()>> {
        let alone = async {
            let closed = self.gate.close().await;
            until_0(&self.in_hand).await;
            closed
        };
        tokio::time::timeout(within, alone).await.ok()
    }
}

async fn until_0(jobs: &AtomicUsize) {
    while jobs.load(Ordering::SeqCst) > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// How long after the grace period acknowledgements are still tried.
const LAST_TRIES: Duration = Duration::from_secs(10);

/// Runs the engine on the calling thread until it was stopped and everything is settled, or the deadline has passed.
pub(crate) fn run(
    engine: Arc<Engine>,
    settled: UnboundedReceiver<Settled>,
    pool: Pool,
    listen: Option<Listen>,
) -> Result<(), Error> {
    let failed = |error: std::io::Error| Error::from(ErrorKind::Ended(error.to_string()));
    // However this ends, the heart ends with it: one that went on would keep the jobs from being rescued.
    let _stopped = engine.stopped.clone().drop_guard();
    let returns = Link::new(pool.clone());
    let beats = heartbeat::start(Arc::clone(&engine), pool).map_err(failed)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(failed)?;
    runtime.block_on(async {
        let acknowledging = acknowledge::run(Arc::clone(&engine), settled);
        tokio::spawn(engine.watched_to_the_end("acknowledge", acknowledging));
        claim::load_lanes(&engine).await;
        let mut claiming = tokio::task::JoinSet::new();
        for queue in &engine.queues {
            let name = format!("claim from {}", queue.name);
            let claims = claim::run(Arc::clone(&engine), Arc::clone(queue));
            claiming.spawn(engine.watched(&name, claims));
        }
        claiming.spawn(engine.watched("suspects", work::suspect::run(Arc::clone(&engine))));
        tokio::spawn(engine.watched("discover", claim::discover(Arc::clone(&engine))));
        tokio::spawn(engine.watched("sleep", bell::watch::run(Arc::clone(&engine))));
        if let Some(listen) = listen {
            tokio::spawn(engine.watched("bell", bell::run(Arc::clone(&engine), listen)));
        }
        tokio::spawn(engine.watched("cancel", cancel::run(Arc::clone(&engine))));
        tokio::spawn(engine.watched("tally", tally::run(Arc::clone(&engine))));
        tokio::spawn(engine.watched("watch", overdue::run(Arc::clone(&engine))));
        tokio::spawn(engine.watched("relays", relay::keep::run(Arc::clone(&engine))));
        let returning = maintenance::return_uncertain(Arc::clone(&engine), returns);
        tokio::spawn(engine.watched("return claims", returning));
        if engine.config.maintenance {
            let maintaining = maintenance::run(Arc::clone(&engine));
            tokio::spawn(engine.watched("maintenance", maintaining));
        }
        engine.stopping.cancelled().await;
        stop(&engine, claiming).await;
    });
    runtime.shutdown_background();
    beats
        .join()
        .map_err(|_| ErrorKind::Ended("the heartbeat thread panicked".into()))?;
    match engine.failure.get() {
        Some(what) => Err(ErrorKind::Ended(what.clone()).into()),
        None => Ok(()),
    }
}

/// Gives back what was not started, waits for what runs, then gives that back too; signs off when nothing is left.
async fn stop(engine: &Engine, mut claiming: tokio::task::JoinSet<()>) {
    engine
        .queues
        .iter()
        .for_each(|queue| queue.consumer.give_back());
    // A claim that is under way hands out jobs still: they go straight back. Without its answer they would have to be rescued.
    let last_claims = async { while claiming.join_next().await.is_some() {} };
    let answered = tokio::time::timeout(LAST_TRIES, last_claims).await.is_ok();
    if !answered {
        tracing::warn!("a claim has no answer; its jobs will be rescued");
    }
    let mut clean = engine.drained(engine.config.shutdown_grace).await;
    if !clean {
        tracing::warn!(
            jobs = engine.outstanding(),
            "the grace period is over; unfinished jobs are given back"
        );
        engine
            .queues
            .iter()
            .for_each(|queue| queue.consumer.abort());
        clean = engine.drained(LAST_TRIES).await;
        engine.hopeless.store(true, Ordering::SeqCst);
    }
    // Nothing runs any more, or nothing that could be helped: the consumers' tasks end too.
    engine
        .queues
        .iter()
        .for_each(|queue| queue.consumer.abort());
    tally::tell(engine).await;
    relay::keep::tell(engine).await;
    let worker = engine.identity.borrow().as_ref().map(|worker| worker.id);
    if let (true, Some(worker)) = (clean, worker)
        && let Err(error) =
            store::stop(&engine.claims, worker, answered && !engine.has_uncertain()).await
    {
        tracing::warn!(%error, "the worker could not sign off");
    }
    engine.stopped.cancel();
}

#[cfg(test)]
mod tests;
