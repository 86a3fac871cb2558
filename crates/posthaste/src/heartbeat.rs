//! The heartbeat: a dedicated thread, runtime and connection, so that neither handlers nor a busy
//! engine can delay it. It stops while the engine's thread is stalled: other workers are to rescue
//! the jobs that it does not work on.

use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use deadpool_postgres::Pool;
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::identity::{ClockPair, Identity, Registration};
use crate::parts::admission::Admission;
use crate::parts::doubted::DoubtedWorkers;
use crate::parts::failing_endpoints::FailingEndpoints;
use crate::parts::oldest_unanswered::OldestUnanswered;
use crate::parts::pulse::Pulse;
use crate::parts::watched::TaskSupervisor;
use crate::store;
use crate::store::copied_database::Site;
use crate::store::reconnecting::ReconnectingClient;

/// The parts of the heartbeat.
pub(crate) struct HeartbeatParts {
    pub(crate) registration: Arc<Registration>,
    pub(crate) config: Arc<Config>,
    /// The answers to its beats.
    pub(crate) owed: Arc<OldestUnanswered>,
    /// The failing endpoints that it reports.
    pub(crate) failing: Arc<FailingEndpoints>,
    /// Whether the engine's thread makes progress.
    pub(crate) pulse: Arc<Pulse>,
    /// Notified when the server may have lost what it had acknowledged.
    pub(crate) doubted: Arc<DoubtedWorkers>,
    /// Whether this process may work the store.
    pub(crate) admission: Arc<Admission>,
    pub(crate) site: Arc<Site>,
    pub(crate) stopped: CancellationToken,
}

/// Starts the thread, which ends with the worker.
pub(crate) fn start(
    heartbeat: HeartbeatParts,
    watched: TaskSupervisor,
    pool: Pool,
) -> Result<JoinHandle<()>, std::io::Error> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    std::thread::Builder::new()
        .name("posthaste-heartbeat".into())
        .spawn(move || {
            let patience = first_timeout(heartbeat.config.rescue_after);
            let link = ReconnectingClient::new(pool, patience, Arc::clone(&heartbeat.site));
            runtime.block_on(watched.task("heartbeat", run_beats(heartbeat, link)));
        })
}

/// Returns how long the first answer is awaited; after each missing one the timeout doubles. Two
/// missing answers leave time for a third beat before this worker is declared dead. A shorter
/// timeout would never connect if each answer is late.
fn first_timeout(rescue_after: Duration) -> Duration {
    (rescue_after / 6).max(Duration::from_secs(1))
}

/// Returns the time between two beats; shorter after a beat without an answer.
fn pause_after_beat(interval: Duration, is_answered: bool) -> Duration {
    if is_answered { interval } else { interval / 4 }
}

/// Beats for the identity that claims, and for each earlier one whose jobs still run: after a
/// failover the worker continues under a new id, and its earlier jobs must not be rescued while it
/// works on them.
async fn run_beats(heartbeat: HeartbeatParts, link: ReconnectingClient) {
    let interval = heartbeat.config.heartbeat_interval;
    let mut identity = heartbeat.registration.subscribe();
    let mut known: Vec<RegisteredWorker> = Vec::new();
    let mut failures = 0u32;
    let mut stands_still = false;
    loop {
        let waited = heartbeat.pulse.stalled_for();
        if waited > heartbeat.config.rescue_after {
            heartbeat.owed.record_request();
            if !std::mem::replace(&mut stands_still, true) {
                tracing::error!(
                    waited = waited.as_secs_f64(),
                    "the engine thread is stalled; no heartbeat is sent until it continues"
                );
            }
            tokio::select! {
                () = tokio::time::sleep(interval) => continue,
                () = heartbeat.stopped.cancelled() => return,
            }
        }
        stands_still = false;
        if let Some(worker) = &*identity.borrow_and_update() {
            let newest = Arc::downgrade(worker);
            // The newest is first, so that it waits for no answer about earlier ones.
            if !known.iter().any(|one| one.worker.ptr_eq(&newest)) {
                known.insert(0, RegisteredWorker::new(newest));
            }
        }
        let mut lives = Vec::with_capacity(known.len());
        let mut all_answered = true;
        heartbeat.owed.record_request();
        for one in &mut known {
            let id = one.worker.upgrade().map(|worker| worker.id);
            let beaten = match id {
                Some(id) => beat_once(&heartbeat, &link, id, one, &mut failures).await,
                None => BeatResult::Gone,
            };
            all_answered &= beaten != BeatResult::Failed;
            lives.push(beaten != BeatResult::Gone);
        }
        if all_answered && !lives.is_empty() {
            heartbeat.owed.record_answer();
        }
        let mut lives = lives.into_iter();
        known.retain(|_| lives.next().unwrap_or(false));
        tokio::select! {
            () = tokio::time::sleep(pause_after_beat(interval, all_answered)) => {}
            // A new identity beats at once: the leader measures its silence from the first beat
            // that it sees.
            _ = identity.changed() => {}
            () = heartbeat.stopped.cancelled() => return,
        }
    }
}

/// A worker id that this process has, or had.
struct RegisteredWorker {
    worker: Weak<Identity>,
    /// The store that its last heartbeat reached.
    here: Option<String>,
    /// Whether a heartbeat has failed before the first answered one.
    has_failed: bool,
}

impl RegisteredWorker {
    fn new(worker: Weak<Identity>) -> Self {
        Self {
            worker,
            here: None,
            has_failed: false,
        }
    }

    /// Records that a heartbeat reached this store; returns whether it is, or may be, another one
    /// than before.
    fn may_have_changed(&mut self, here: String) -> bool {
        let may_have_changed = match &self.here {
            Some(before) => *before != here,
            None => self.has_failed,
        };
        self.here = Some(here);
        may_have_changed
    }
}

#[derive(PartialEq)]
enum BeatResult {
    Living,
    /// The database no longer counts the worker as living.
    Gone,
    /// Whether the worker counts as living is unknown.
    Failed,
}

async fn beat_once(
    heartbeat: &HeartbeatParts,
    link: &ReconnectingClient,
    worker: i64,
    known: &mut RegisteredWorker,
    failures: &mut u32,
) -> BeatResult {
    let sent = ClockPair::now();
    let beaten =
        store::record_heartbeat(link, worker, heartbeat.failing.summary().as_deref()).await;
    heartbeat.admission.record(&beaten);
    if beaten.is_ok() && std::mem::take(failures) > 0 {
        tracing::info!(worker, "the database answers heartbeats again");
    }
    match beaten {
        Ok(Some(here)) => {
            if let Some(worker) = known.worker.upgrade() {
                worker.tenure.renew(sent);
            }
            if known.may_have_changed(here) {
                heartbeat.doubted.add(worker);
            }
            BeatResult::Living
        }
        // It has deregistered since.
        Ok(None) if heartbeat.stopped.is_cancelled() => BeatResult::Gone,
        Ok(None) => {
            if let Some(worker) = known.worker.upgrade() {
                worker.tenure.end();
            }
            heartbeat.registration.remove_dead(worker);
            BeatResult::Gone
        }
        Err(error) => {
            known.has_failed = true;
            *failures += 1;
            if failures.is_power_of_two() {
                tracing::warn!(worker, failures, %error, "a heartbeat failed");
            }
            BeatResult::Failed
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{RegisteredWorker, first_timeout, pause_after_beat};
    use crate::Config;

    #[test]
    fn a_worker_checks_its_claims_after_a_server_restart() {
        let mut known = RegisteredWorker::new(std::sync::Weak::new());
        assert!(!known.may_have_changed("a/1".into()) && !known.may_have_changed("a/1".into()));
        assert!(known.may_have_changed("a/2".into()) && !known.may_have_changed("a/2".into()));
        let mut late = RegisteredWorker::new(std::sync::Weak::new());
        late.has_failed = true;
        assert!(late.may_have_changed("a/2".into()) && !late.may_have_changed("a/2".into()));
    }

    #[test]
    fn two_unanswered_heartbeats_leave_time_for_a_third() {
        let default = Config::default();
        let quick = (Duration::from_millis(500), Duration::from_secs(4));
        for (interval, rescue_after) in [(default.heartbeat_interval, default.rescue_after), quick]
        {
            let first = first_timeout(rescue_after);
            // After a timeout the next one is twice as long.
            let third = pause_after_beat(interval, true)
                + first
                + first * 2
                + pause_after_beat(interval, false) * 2;
            assert!(third < rescue_after, "{third:?} of {rescue_after:?}");
        }
    }
}
