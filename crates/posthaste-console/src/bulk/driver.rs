//! Processes actions in a background task of each console that may act. The task continues actions
//! that began in its console, and actions that no console has continued for ten seconds, such as
//! after a console was killed.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use deadpool_postgres::Pool;
use tokio::sync::{Notify, watch};
use uuid::Uuid;

use super::batch::BatchRunner;
use super::pace::{self, FailedBatch};
use crate::action::{Action, ActionState, Progress};
use crate::audit;
use crate::collector::Collector;
use crate::redact::Redactor;
use crate::store::{self, StoreError};

/// Time between two polls for actions that other consoles left.
const POLL_INTERVAL: Duration = Duration::from_secs(5);
/// Delay before the next attempt after the database could not be read.
const RETRY_DELAY: Duration = Duration::from_secs(10);

/// The identity and the task of a console, as the consoles that share its actions see it.
pub(crate) struct Driver {
    runner: BatchRunner,
    collector: Arc<Collector>,
    may_act: bool,
    has_begun: AtomicBool,
    wake: Arc<Notify>,
    /// The id of the action that ended last.
    ended: watch::Sender<i32>,
}

impl Driver {
    pub(crate) fn new(
        pool: Pool,
        secrets: &Arc<Redactor>,
        collector: &Arc<Collector>,
        may_act: bool,
    ) -> Arc<Self> {
        let runner = BatchRunner {
            me: Uuid::new_v4(),
            pool,
            secrets: Arc::clone(secrets),
        };
        Arc::new(Self {
            runner,
            collector: Arc::clone(collector),
            may_act,
            has_begun: AtomicBool::new(false),
            wake: Arc::default(),
            ended: watch::Sender::new(0),
        })
    }

    pub(crate) fn console_id(&self) -> Uuid {
        self.runner.me
    }

    /// Starts the task if it is not running and users may act here. The task ends with the console.
    /// Without a Tokio runtime it starts with the first action.
    pub(crate) fn start(self: &Arc<Self>) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        if self.may_act && !self.has_begun.swap(true, Ordering::Relaxed) {
            let wake = Arc::clone(&self.wake);
            runtime.spawn(run_batches(Arc::downgrade(self), wake));
        }
    }

    /// Wakes the task because an action was begun.
    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }

    /// Waits up to a second for the end of an action, so that the page of a small one shows its
    /// result.
    pub(crate) async fn wait_for_end(&self, id: i32) {
        let mut ended = self.ended.subscribe();
        let end = ended.wait_for(|last| *last == id);
        let _ = tokio::time::timeout(Duration::from_secs(1), end).await;
    }
}

/// State that is retained between batches.
#[derive(Default)]
struct BatchSizes {
    /// The id of the action that had a batch last.
    last: i32,
    /// The batch size of each action.
    sizes: HashMap<i32, usize>,
}

async fn run_batches(driver: Weak<Driver>, wake: Arc<Notify>) {
    let mut known = BatchSizes::default();
    loop {
        let pause = match driver.upgrade() {
            None => return,
            Some(driver) => driver.run_next_batch(&mut known).await,
        };
        // During the pause the task holds neither a connection nor the console.
        match pause {
            Ok(Some(pause)) => tokio::time::sleep(pause).await,
            Ok(None) => drop(tokio::time::timeout(POLL_INTERVAL, wake.notified()).await),
            Err(error) => {
                tracing::debug!(%error, "actions by filter could not be read");
                tokio::time::sleep(RETRY_DELAY).await;
            }
        }
    }
}

impl Driver {
    /// Runs one batch of the next action in turn, and returns the pause before the next; `None` if
    /// no action is due.
    async fn run_next_batch(&self, known: &mut BatchSizes) -> Result<Option<Duration>, StoreError> {
        let due = store::due_actions(&self.runner.pool, self.console_id()).await?;
        known.sizes.retain(|id, _| due.contains(id));
        let Some(id) = next_in_turn(&due, known.last) else {
            return Ok(None);
        };
        known.last = id;
        let size = known
            .sizes
            .get(&id)
            .copied()
            .unwrap_or(pace::FIRST_BATCH_JOBS);
        let started = Instant::now();
        match self.runner.run_batch(id, size).await {
            Ok(None) => {}
            Ok(Some((action, moved, jobs))) => {
                let size = pace::next_batch_size(size, started.elapsed(), jobs >= size);
                known.sizes.insert(id, size);
                self.report_end(&action, &moved, None).await;
            }
            Err(error) => self.record_failure(id, error).await?,
        }
        Ok(Some(pace::pause_after_batch(started.elapsed())))
    }

    /// Records the failure in the action's row: it is retried after a delay, or fails.
    async fn record_failure(&self, id: i32, error: StoreError) -> Result<(), StoreError> {
        let Some(action) = store::read_action(&self.runner.pool, id).await? else {
            return Ok(());
        };
        let after = pace::judge_failure(&error, action.failures);
        let (rest, is_end) = match after {
            FailedBatch::Rest(seconds) => (seconds, false),
            FailedBatch::End => (0.0, true),
        };
        let reason = error.to_string();
        tracing::warn!(%error, action = id, "a batch of an action by filter failed");
        if let Some(moved) =
            store::fail_action(&self.runner.pool, id, &reason, rest, is_end).await?
        {
            self.report_end(&action, &moved, Some(&reason)).await;
        }
        Ok(())
    }

    /// Logs an action that has ended, refreshes the figures and wakes the requests that wait for
    /// it.
    async fn report_end(&self, action: &Action, moved: &ActionState, error: Option<&str>) {
        if moved.progress == Progress::Running {
            return;
        }
        audit::log_bulk_end(action, moved, error);
        self.collector.invalidate().await;
        self.ended.send_replace(action.id);
    }
}

/// Returns the action after the last one, or else the first.
fn next_in_turn(due: &[i32], last: i32) -> Option<i32> {
    let next = due.iter().find(|id| **id > last);
    next.or(due.first()).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bulk_actions_take_turns() {
        assert_eq!(next_in_turn(&[], 3), None);
        assert_eq!(next_in_turn(&[3, 7], 0), Some(3));
        assert_eq!(next_in_turn(&[3, 7], 3), Some(7));
        assert_eq!(next_in_turn(&[3, 7], 7), Some(3));
    }
}
