//! Every duty but the scheduled road: rotate, seal, reclaim, move to the overflow, move running
//! jobs, rescue, tidy, expire, prune. Some read whole slots.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::deaths::Deaths;
use super::holders::Holders;
use super::liveness::Liveness;
use super::{LONGEST_PAUSE, Maintenance, attempt};
use crate::store::reconnecting::ReconnectingClient;
use crate::store::{Reclaim, Segments, Step};

/// Jobs moved to the overflow in one transaction.
const MOVE: i32 = 10_000;
/// Running jobs moved to `in_flight` in one transaction.
const MOVE_RUNNING: i32 = 200;
/// Batches verified in one transaction.
const VERIFY: i32 = 10_000;
/// A slot is compacted when this many of its rows, or a segment's bytes, and half of it, are spent.
const SPENT: i64 = 100_000;
/// A segment with this many lanes of one queue is followed by a new one, this often at most.
const LANES: i32 = 128;
const LANES_EVERY: Duration = Duration::from_secs(10);
/// Expired jobs kept in one transaction.
const EXPIRE: i32 = 5_000;
/// Confirmations that never came, tried again in one transaction.
const OVERDUE: i32 = 1_000;
/// Jobs counted in one transaction, and how many lie between two marks (sql/functions/marks.sql).
/// Half of the time goes into marks. So in a backlog each transaction doubles their distance, at
/// most this often.
const COUNT: i32 = 20_000;
const COUNT_STEP: i32 = 125;
const COARSEST: u32 = 3;
const COUNT_EVERY: Duration = Duration::from_secs(1);
/// Deltas of counters beyond this are added up and forgotten.
const STATS_BYTES: i64 = 8 << 20;
/// Confirmations, workers and jobs of the past are forgotten this often.
const PRUNE_EVERY: Duration = Duration::from_secs(600);
/// Times that a clock which was ahead has left behind are looked for this often.
const MEND_EVERY: Duration = Duration::from_secs(60);
/// Whether the sample of this minute is still to be taken is looked for this often.
const SAMPLE_EVERY: Duration = Duration::from_secs(5);
/// While there are jobs to be counted, which a sample would count as well, it waits for so long.
const SAMPLE_WAITS: Duration = Duration::from_secs(40);
/// How long a job waits in a queue that no worker works on before that is logged, how often it is
/// looked for, and logged again.
const UNWORKED: Duration = Duration::from_secs(10);
const LOOK_FOR_UNWORKED: Duration = Duration::from_secs(10);
const WARN_AGAIN: Duration = Duration::from_secs(600);
/// What posthaste.prune_inbox() forgets at once: when it does, there may be more.
const INBOX_PAGE: i64 = 10_000;

/// Runs until the worker stops; does the duties while `led` says so.
pub(super) async fn run(leader: &Maintenance, mut led: watch::Receiver<bool>) {
    let mut duties = Duties::new(leader);
    while !leader.stopping.is_cancelled() {
        let leads = *led.borrow_and_update();
        if leads {
            duties.round(leader).await;
        } else {
            duties = Duties::new(leader);
        }
        let rest = async {
            if leads {
                tokio::time::sleep(duties.pause(leader.config.maintenance_interval)).await;
            } else if led.changed().await.is_err() {
                std::future::pending().await
            }
        };
        tokio::select! { () = rest => {}, () = leader.stopping.cancelled() => {} }
    }
}

/// What a leader remembers between rounds; lost with its lease, at the cost of some work done
/// again.
#[derive(Default)]
struct Duties {
    /// When something was to be done last.
    did_at: Option<Instant>,
    expire_at: Option<Instant>,
    mend_at: Option<Instant>,
    sample_at: Option<Instant>,
    prune_at: Option<Instant>,
    prune_inbox_at: Option<Instant>,
    cancel_at: Option<Instant>,
    account_at: Option<Instant>,
    lanes_at: Option<Instant>,
    /// What had been written when all of it was counted.
    written: String,
    /// How often the distance of marks was doubled in this backlog.
    coarser: u32,
    unworked_at: Option<Instant>,
    /// Queues without a worker, and when that was logged.
    unworked: HashMap<String, Instant>,
    liveness: Liveness,
    deaths: Deaths,
    verified: Verified,
    holders: Holders,
}

/// How far the oldest segment was verified when it was looked at last.
#[derive(Default)]
struct Verified {
    segment: i64,
    batch: i64,
}

impl Duties {
    /// What reads whole slots comes a while after it became the leader: a backlog that is worked
    /// off at once is not to wait for it.
    fn new(leader: &Maintenance) -> Self {
        let now = Instant::now();
        Self {
            expire_at: Some(now + leader.config.expire_interval.min(COUNT_EVERY)),
            account_at: Some(now + COUNT_EVERY),
            sample_at: Some(now + SAMPLE_EVERY),
            unworked_at: Some(now + LOOK_FOR_UNWORKED),
            ..Self::default()
        }
    }

    /// How long to pause: longer and longer while nothing is to be done.
    fn pause(&mut self, shortest: Duration) -> Duration {
        let idle = self.did_at.get_or_insert_with(Instant::now).elapsed();
        (idle / 8).clamp(shortest, shortest * LONGEST_PAUSE)
    }

    fn did(&mut self, something: bool) {
        if something {
            self.did_at = Some(Instant::now());
        }
    }

    async fn round(&mut self, leader: &Maintenance) {
        let link = &leader.duties;
        let noted = attempt!(link, note_ids());
        self.did(noted == Some(true));
        self.turn_ring(leader).await;
        self.liveness.watch(link, &leader.config).await;
        let overdue = attempt!(link, overdue(OVERDUE));
        self.did(overdue > Some(0));
        if self.cancel_at.is_none_or(|at| Instant::now() >= at) {
            let started = Instant::now();
            let ended = attempt!(link, cancel_again());
            self.did(ended > Some(0));
            // It reads whole slots when there is somebody to be met: at most a twentieth of the
            // time.
            self.cancel_at = Some(Instant::now() + started.elapsed() * 20);
        }
        let bytes = leader.config.segment_bytes;
        let scheduled = attempt!(link, tidy_scheduled(SPENT, bytes));
        let turned = scheduled.as_ref().is_some_and(|step| step.did == "rotated");
        self.did(scheduled.as_ref().is_some_and(|step| step.did != "none"));
        if turned {
            // What waits in the old segment is not looked at by who sleeps.
            leader.notifications.promoter.woken.notify_one();
        }
        self.holders
            .of_lock("tidy_scheduled", scheduled.and_then(|step| step.blocker));
        let overflow = attempt!(link, tidy_overflow(SPENT, MOVE, bytes));
        self.did(overflow.as_ref().is_some_and(|step| step.did != "none"));
        self.holders
            .of_lock("tidy_overflow", overflow.and_then(|step| step.blocker));
        if self.expire_at.is_none_or(|at| Instant::now() >= at) {
            self.expire(leader).await;
        }
        self.deaths.log(link).await;
        if self.account_at.is_none_or(|at| Instant::now() >= at) {
            self.account(link).await;
        }
        if self.mend_at.is_none_or(|at| Instant::now() >= at) {
            if let Some(rows @ 1..) = attempt!(link, mend_times()) {
                tracing::warn!(rows, "the server's clock was ahead: set right what it left");
            }
            self.mend_at = Some(Instant::now() + MEND_EVERY);
        }
        if self.sample_at.is_none_or(|at| self.is_sample_due(at)) {
            self.sample(link).await;
        }
        if self.prune_at.is_none_or(|at| Instant::now() >= at) {
            attempt!(link, prune());
            let history = attempt!(link, tidy_history());
            self.holders
                .of_lock("tidy_history", history.and_then(|step| step.blocker));
            self.prune_at = Some(Instant::now() + PRUNE_EVERY);
        }
        if self.unworked_at.is_none_or(|at| Instant::now() >= at) {
            self.warn_of_unworked(link).await;
        }
        if self.prune_inbox_at.is_none_or(|at| Instant::now() >= at) {
            let is_full = attempt!(link, prune_inbox()) >= Some(INBOX_PAGE);
            self.did(is_full);
            // A page a round, so that no other duty waits for a backlog of it.
            self.prune_inbox_at = (!is_full).then(|| Instant::now() + PRUNE_EVERY);
        }
    }

    /// Rotates, seals and reclaims; when the ready log is full, removes what pins it.
    async fn turn_ring(&mut self, leader: &Maintenance) {
        let link = &leader.duties;
        let bytes = leader.config.segment_bytes;
        // A segment of few jobs may have very many lanes, which each look would probe till it
        // has grown.
        let many = self.lanes_at.is_none_or(|at| Instant::now() >= at);
        if many {
            self.lanes_at = Some(Instant::now() + LANES_EVERY);
        }
        let rotated = attempt!(link, rotate(bytes, many.then_some(LANES))).unwrap_or_default();
        let full = rotated == "full";
        self.did(rotated != "small");
        let writer = loop {
            match attempt!(link, seal()) {
                Some(Step { did: true, .. }) => self.did(true),
                step => break step.and_then(|step| step.blocker),
            }
        };
        self.holders.of_segment(writer.filter(|_| full));
        let Some(segments) = attempt!(link, segments()) else {
            return;
        };
        if segments.ready_low < segments.ready_scan {
            self.did(true);
            self.reclaim(link, segments).await;
        } else if full {
            attempt!(
                link,
                move_to_overflow((segments.ready_scan % 4) as i32, MOVE)
            );
        }
    }

    async fn reclaim(&mut self, link: &ReconnectingClient, segments: Segments) {
        if self.verified.segment != segments.ready_low {
            self.verified = Verified {
                segment: segments.ready_low,
                batch: 0,
            };
        }
        match attempt!(link, reclaim(segments.ready_low, VERIFY)) {
            Some(Reclaim::Open(batch)) => {
                let stuck = self.verified.batch == batch;
                self.verified.batch = batch;
                // Older than two rotations: the one that still runs is moved to a table of its own.
                if stuck && segments.ready_current - segments.ready_low >= 2 {
                    attempt!(
                        link,
                        move_running((segments.ready_low % 4) as i32, batch, MOVE_RUNNING)
                    );
                }
            }
            Some(Reclaim::Locked { batch, by }) => {
                self.verified.batch = batch;
                self.holders.of_lock("reclaim", Some(by));
            }
            Some(Reclaim::Truncated) => {
                self.holders.of_lock("reclaim", None);
                attempt!(link, forget_lanes());
            }
            Some(Reclaim::Nothing) | None => {}
        }
    }

    /// Looking for expired jobs reads whole slots: at most a twentieth of the time.
    async fn expire(&mut self, leader: &Maintenance) {
        let link = &leader.duties;
        let started = Instant::now();
        attempt!(link, confirm_in_flight(EXPIRE));
        for slot in 0..8 {
            attempt!(link, expire(slot, EXPIRE));
        }
        let pause = leader.config.expire_interval.max(started.elapsed() * 20);
        self.expire_at = Some(Instant::now() + pause);
    }

    /// Counting goes on for a quarter of the time while there is a backlog to be counted; looking
    /// whether there is takes a five hundredth.
    async fn account(&mut self, link: &ReconnectingClient) {
        let started = Instant::now();
        let known = self.written.as_str();
        let step = COUNT_STEP << self.coarser;
        let counted = attempt!(link, account(COUNT, step, STATS_BYTES, known));
        // None: there is more to be counted.
        let all = counted.as_ref().map(Option::is_some);
        let (is_more, coarser) = continue_counting(all, self.coarser);
        self.coarser = coarser;
        self.did(is_more);
        let pause = if is_more {
            started.elapsed() * 3
        } else {
            (started.elapsed() * 500).clamp(COUNT_EVERY, COUNT_EVERY * 60)
        };
        let written = counted.flatten().filter(|_| !is_more);
        self.written = written.unwrap_or_default();
        self.account_at = Some(Instant::now() + pause);
    }

    fn is_sample_due(&self, at: Instant) -> bool {
        let is_counted = !self.written.is_empty();
        Instant::now() >= if is_counted { at } else { at + SAMPLE_WAITS }
    }

    /// Samples for charts take a fiftieth of the time at most, where counting is slow.
    async fn sample(&mut self, link: &ReconnectingClient) {
        let started = Instant::now();
        attempt!(link, take_sample());
        self.sample_at = Some(Instant::now() + SAMPLE_EVERY.max(started.elapsed() * 50));
    }

    /// A queue's name that was mistyped is met by nobody else. Looking takes a five hundredth of
    /// the time.
    async fn warn_of_unworked(&mut self, link: &ReconnectingClient) {
        let started = Instant::now();
        for one in attempt!(link, unworked(UNWORKED)).unwrap_or_default() {
            let logged = self.unworked.get(&one.queue);
            if logged.is_some_and(|logged| logged.elapsed() < WARN_AGAIN) {
                continue;
            }
            tracing::warn!(
                queue = &*one.queue,
                waited = one.seconds as u64,
                "jobs wait in a queue that no worker works on"
            );
            self.unworked.insert(one.queue, Instant::now());
        }
        self.unworked
            .retain(|_, logged| logged.elapsed() < WARN_AGAIN);
        let pause = LOOK_FOR_UNWORKED.max(started.elapsed() * 500);
        self.unworked_at = Some(Instant::now() + pause);
    }
}

/// Whether counting goes on at once, and how coarsely: `all` says whether all was counted, unless
/// that failed. Between marks that lie far apart there may be more.
fn continue_counting(all: Option<bool>, coarser: u32) -> (bool, u32) {
    match all {
        Some(false) => (true, (coarser + 1).min(COARSEST)),
        Some(true) => (coarser > 0, 0),
        None => (false, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backlog_is_counted_ever_more_coarsely_and_its_rest_finely() {
        assert_eq!(continue_counting(Some(false), 0), (true, 1));
        assert_eq!(continue_counting(Some(false), COARSEST), (true, COARSEST));
        assert_eq!(continue_counting(Some(true), COARSEST), (true, 0));
        assert_eq!(continue_counting(Some(true), 0), (false, 0));
        assert_eq!(continue_counting(None, COARSEST), (false, 0));
    }

    #[test]
    fn samples_wait_for_counting_for_a_bounded_time() {
        let now = Instant::now();
        let mut duties = Duties::default();
        let long_ago = now.checked_sub(SAMPLE_WAITS).unwrap();
        assert!(!duties.is_sample_due(now) && duties.is_sample_due(long_ago));
        duties.written = "counted".to_owned();
        assert!(duties.is_sample_due(now) && !duties.is_sample_due(now + SAMPLE_WAITS));
    }
}
