//! The leader's duties except the promoter, as a table: what is done, how often, and which share of
//! the time it may take. Some read whole slots.

use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::sync::watch;

use super::counting::{Counting, IDLE_COUNT_INTERVAL};
use super::dead_jobs::DeadJobs;
use super::holders::BlockedDuties;
use super::liveness::Liveness;
use super::segments::SegmentUpkeep;
use super::unworked::UnworkedQueues;
use super::{MAX_PAUSE_INTERVALS, Maintenance, OVERFLOW_BATCH, attempt};
use crate::config::Config;

/// A slot is compacted when this many of its rows, or a segment's bytes, and half of it, are dead.
const MIN_DEAD_ROWS: i64 = 100_000;
/// Expired jobs recorded in one transaction.
const EXPIRE_BATCH: i32 = 5_000;
/// Overdue confirmations retried in one transaction.
const OVERDUE_BATCH: i32 = 1_000;
/// The longest delay of a sample while there are uncounted jobs, which the sample would count too.
const MAX_SAMPLE_DELAY: Duration = Duration::from_secs(40);
/// The most rows that posthaste.prune_inbox() removes in one call; if it removes this many, there
/// may be more.
const INBOX_BATCH: i64 = 10_000;
/// Duties that read whole slots begin this long after a worker became the leader, so that a backlog
/// that is worked off at once does not wait for them.
const SETTLING_TIME: Duration = Duration::from_secs(1);

/// A recurring task of the leader.
pub struct Duty {
    /// Its name.
    pub name: &'static str,
    /// The shortest pause after it; `Every::Round`: it runs in each round.
    every: Every,
    /// For a duty that reads much: it takes at most one part in this many of the time.
    pub share: Option<u32>,
    /// The longest delay of its first run after a worker became the leader.
    first: Duration,
    /// It is due at its time while jobs come, although the rounds of other duties become rarer.
    is_slowed_by_cost: bool,
    run: for<'a> fn(&'a mut Duties, &'a Maintenance) -> BoxFuture<'a, DutyResult>,
}

enum Every {
    Round,
    Pause(Duration),
    ExpireInterval,
}

/// The result of a duty.
#[derive(Default)]
struct DutyResult {
    did_something: bool,
    /// Overrides the duty's pause.
    pause: Option<Duration>,
}

/// The duties in the order in which a round does them.
pub static DUTIES: [Duty; 15] = [
    Duty::new("note_ids", Every::Round, |_, leader| {
        async move { did_work(attempt!(&leader.duties, note_ids()) == Some(true)) }.boxed()
    })
    .slowed_by_cost(),
    Duty::new("turn_ring", Every::Round, |duties, leader| {
        async move {
            let ring = &mut duties.ring;
            did_work(ring.maintain_segments(leader, &mut duties.holders).await)
        }
        .boxed()
    }),
    Duty::new("rescue", Every::Round, |duties, leader| {
        async move {
            let (link, config) = (&leader.duties, &leader.config);
            duties.liveness.watch(link, config).await;
            DutyResult::default()
        }
        .boxed()
    }),
    Duty::new("retry_overdue", Every::Round, |_, leader| {
        async move { did_work(attempt!(&leader.duties, retry_overdue(OVERDUE_BATCH)) > Some(0)) }
            .boxed()
    }),
    // It reads whole slots when a cancelled job may be found.
    Duty::new("cancel_again", Every::Round, |_, leader| {
        async move { did_work(attempt!(&leader.duties, cancel_again()) > Some(0)) }.boxed()
    })
    .bounded(20),
    Duty::new("tidy_scheduled", Every::Round, |duties, leader| {
        duties.tidy_scheduled(leader).boxed()
    }),
    Duty::new("tidy_overflow", Every::Round, |duties, leader| {
        duties.tidy_overflow(leader).boxed()
    }),
    Duty::new("expire", Every::ExpireInterval, |_, leader| {
        expire(leader).boxed()
    })
    .bounded(20)
    .after(SETTLING_TIME),
    Duty::new("log_deaths", every_seconds(2), |duties, leader| {
        async move {
            duties.deaths.log(&leader.duties).await;
            DutyResult::default()
        }
        .boxed()
    }),
    Duty::new(
        "count_new_jobs",
        Every::Pause(IDLE_COUNT_INTERVAL),
        |duties, leader| {
            async move {
                let (is_more, pause) = duties.counting.count(&leader.duties).await;
                DutyResult {
                    did_something: is_more,
                    pause: Some(pause),
                }
            }
            .boxed()
        },
    )
    .bounded(500)
    .after(SETTLING_TIME)
    .slowed_by_cost(),
    // Corrects times written while the server's clock was ahead.
    Duty::new("correct_future_times", every_seconds(60), |_, leader| {
        async move {
            if let Some(rows @ 1..) = attempt!(&leader.duties, correct_future_times()) {
                tracing::warn!(
                    rows,
                    "the server's clock was ahead: corrected times that it had written"
                );
            }
            DutyResult::default()
        }
        .boxed()
    }),
    Duty::new("take_sample", every_seconds(5), |duties, leader| {
        duties.take_sample(leader).boxed()
    })
    .bounded(50)
    .after(Duration::from_secs(5)),
    Duty::new("prune", every_seconds(600), |duties, leader| {
        duties.prune(leader).boxed()
    }),
    Duty::new("log_unworked", every_seconds(10), |duties, leader| {
        async move {
            duties.unworked.log(&leader.duties).await;
            DutyResult::default()
        }
        .boxed()
    })
    .bounded(500)
    .after(Duration::from_secs(10)),
    Duty::new("prune_inbox", every_seconds(600), |_, leader| {
        async move {
            let is_full = attempt!(&leader.duties, prune_inbox()) >= Some(INBOX_BATCH);
            DutyResult {
                did_something: is_full,
                // One page per round, so that no other duty waits for a backlog.
                pause: is_full.then_some(Duration::ZERO),
            }
        }
        .boxed()
    }),
];

const fn every_seconds(seconds: u64) -> Every {
    Every::Pause(Duration::from_secs(seconds))
}

fn did_work(did_something: bool) -> DutyResult {
    DutyResult {
        did_something,
        pause: None,
    }
}

impl Duty {
    const fn new(
        name: &'static str,
        every: Every,
        run: for<'a> fn(&'a mut Duties, &'a Maintenance) -> BoxFuture<'a, DutyResult>,
    ) -> Self {
        Self {
            name,
            every,
            share: None,
            first: Duration::ZERO,
            is_slowed_by_cost: false,
            run,
        }
    }

    const fn bounded(mut self, share: u32) -> Self {
        self.share = Some(share);
        self
    }

    const fn after(mut self, first: Duration) -> Self {
        self.first = first;
        self
    }

    const fn slowed_by_cost(mut self) -> Self {
        self.is_slowed_by_cost = true;
        self
    }

    /// Returns the shortest pause after it; zero if it runs in each round.
    pub fn every(&self, config: &Config) -> Duration {
        match self.every {
            Every::Round => Duration::ZERO,
            Every::Pause(pause) => pause,
            Every::ExpireInterval => config.expire_interval,
        }
    }

    fn pause(&self, config: &Config, took: Duration) -> Duration {
        let bounded = took * self.share.unwrap_or(0);
        self.every(config).max(bounded)
    }
}

/// Runs until the worker stops; performs the duties while `led` is true.
pub(super) async fn run(leader: &Maintenance, mut led: watch::Receiver<bool>) {
    let mut duties: Option<Duties> = None;
    while !leader.stopping.is_cancelled() {
        let pause = if *led.borrow_and_update() {
            let duties = duties.get_or_insert_with(|| Duties::new(&leader.config));
            duties.run_round(leader).await;
            Some(duties.pause(leader.config.maintenance_interval))
        } else {
            duties = None;
            None
        };
        let rest = async {
            if let Some(pause) = pause {
                tokio::time::sleep(pause).await;
            } else if led.changed().await.is_err() {
                std::future::pending().await
            }
        };
        tokio::select! { () = rest => {}, () = leader.stopping.cancelled() => {} }
    }
}

/// The leader's state between rounds. It is lost with the lease, which costs some repeated work.
struct Duties {
    /// The due time of each duty, in the order of the table.
    due_at: Vec<Instant>,
    /// When a duty last had work.
    did_at: Instant,
    /// When the next whole round is due.
    round_at: Instant,
    /// Ids were drawn, or jobs are uncounted: those duties run again soon.
    is_busy: bool,
    /// Since when the pending sample waits for counting.
    sample_due_at: Option<Instant>,
    liveness: Liveness,
    deaths: DeadJobs,
    ring: SegmentUpkeep,
    counting: Counting,
    unworked: UnworkedQueues,
    holders: BlockedDuties,
}

impl Duties {
    fn new(config: &Config) -> Self {
        let now = Instant::now();
        Self {
            due_at: DUTIES
                .iter()
                .map(|duty| now + duty.every(config).min(duty.first))
                .collect(),
            did_at: now,
            round_at: now,
            is_busy: false,
            sample_due_at: None,
            liveness: Liveness::default(),
            deaths: DeadJobs::default(),
            ring: SegmentUpkeep::default(),
            counting: Counting::default(),
            unworked: UnworkedQueues::default(),
            holders: BlockedDuties::default(),
        }
    }

    /// Returns the pause until the next round.
    fn pause(&self, shortest: Duration) -> Duration {
        let until_round = self.round_at.saturating_duration_since(Instant::now());
        let pause = until_round.max(Duration::from_millis(1));
        match self.is_busy {
            true => pause.min(shortest),
            false => pause,
        }
    }

    /// Returns the pause until the next whole round, which grows while there is no work. Jobs that
    /// are enqueued and worked only need a new segment now and then; a segment that took some time
    /// to fill may take an eighth longer.
    fn pause_until_whole_round(&self, shortest: Duration) -> Duration {
        (self.did_at.elapsed() / 8).clamp(shortest, shortest * MAX_PAUSE_INTERVALS)
    }

    async fn run_round(&mut self, leader: &Maintenance) {
        let is_whole = Instant::now() >= self.round_at;
        self.is_busy = false;
        for (at, duty) in DUTIES.iter().enumerate() {
            let started = Instant::now();
            if started < self.due_at[at] || !(is_whole || duty.is_slowed_by_cost) {
                continue;
            }
            let outcome = (duty.run)(self, leader).await;
            let now = Instant::now();
            if outcome.did_something && duty.is_slowed_by_cost {
                self.is_busy = true;
            } else if outcome.did_something {
                self.did_at = now;
            }
            let own = duty.pause(&leader.config, now - started);
            self.due_at[at] = now + outcome.pause.unwrap_or(own);
        }
        self.is_busy |= !self.counting.is_complete();
        if is_whole {
            self.round_at =
                Instant::now() + self.pause_until_whole_round(leader.config.maintenance_interval);
        }
    }

    async fn tidy_scheduled(&mut self, leader: &Maintenance) -> DutyResult {
        let bytes = leader.config.segment_bytes;
        let step = attempt!(&leader.duties, tidy_scheduled(MIN_DEAD_ROWS, bytes));
        if step.as_ref().is_some_and(|step| step.did == "rotated") {
            // A sleeping promoter does not poll the old segment.
            leader.notifications.promoter.woken.notify_one();
        }
        let did_something = step.as_ref().is_some_and(|step| step.did != "none");
        let holder = step.and_then(|step| step.blocker);
        self.holders.note_lock_holder("tidy_scheduled", holder);
        did_work(did_something)
    }

    async fn tidy_overflow(&mut self, leader: &Maintenance) -> DutyResult {
        let (link, bytes) = (&leader.duties, leader.config.segment_bytes);
        let step = attempt!(link, tidy_overflow(MIN_DEAD_ROWS, OVERFLOW_BATCH, bytes));
        let did_something = step.as_ref().is_some_and(|step| step.did != "none");
        let holder = step.and_then(|step| step.blocker);
        self.holders.note_lock_holder("tidy_overflow", holder);
        did_work(did_something)
    }

    /// Takes the sample of this minute, unless the database has it.
    async fn take_sample(&mut self, leader: &Maintenance) -> DutyResult {
        if self.sample_waits(Instant::now()) {
            return DutyResult {
                did_something: false,
                pause: Some(Duration::ZERO),
            };
        }
        attempt!(&leader.duties, take_sample());
        DutyResult::default()
    }

    /// Whether a due sample waits for counting, which it does for at most `MAX_SAMPLE_DELAY`.
    fn sample_waits(&mut self, now: Instant) -> bool {
        let since = *self.sample_due_at.get_or_insert(now);
        let waits = !self.counting.is_complete() && now < since + MAX_SAMPLE_DELAY;
        if !waits {
            self.sample_due_at = None;
        }
        waits
    }

    /// Removes old confirmations, workers and history.
    async fn prune(&mut self, leader: &Maintenance) -> DutyResult {
        let link = &leader.duties;
        attempt!(link, prune());
        let history = attempt!(link, tidy_history());
        let holder = history.and_then(|step| step.blocker);
        self.holders.note_lock_holder("tidy_history", holder);
        DutyResult::default()
    }
}

/// Expires jobs, reading whole slots.
async fn expire(leader: &Maintenance) -> DutyResult {
    let link = &leader.duties;
    attempt!(link, confirm_in_flight(EXPIRE_BATCH));
    for slot in 0..8 {
        attempt!(link, expire(slot, EXPIRE_BATCH));
    }
    DutyResult::default()
}

#[cfg(test)]
mod tests;
