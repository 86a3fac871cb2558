//! Who works on actions: a task of each console that may act. It goes on with what was begun in
//! it, and with what nobody has gone on with for ten seconds, as after a console was killed.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use deadpool_postgres::Pool;
use tokio::sync::{Notify, watch};
use uuid::Uuid;

use super::batch::BatchRunner;
use super::pace::{self, After};
use crate::action::{Action, Moved, Progress};
use crate::audit;
use crate::collector::Collector;
use crate::redact::Redactor;
use crate::store::{self, StoreError};

/// How often a console polls for actions that others left.
const EVERY: Duration = Duration::from_secs(5);
/// How long one waits for a database that does not answer.
const TROUBLE: Duration = Duration::from_secs(10);

/// A console, as those see it that share its actions.
pub(crate) struct Driver {
    runner: BatchRunner,
    collector: Arc<Collector>,
    may_act: bool,
    has_begun: AtomicBool,
    wake: Arc<Notify>,
    /// The action that ended last.
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

    pub(crate) fn me(&self) -> Uuid {
        self.runner.me
    }

    /// Works from now on, once, if somebody may act here; ends with the console. Outside of a
    /// runtime it begins with the first action.
    pub(crate) fn begin(self: &Arc<Self>) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        if self.may_act && !self.has_begun.swap(true, Ordering::Relaxed) {
            let wake = Arc::clone(&self.wake);
            runtime.spawn(drive(Arc::downgrade(self), wake));
        }
    }

    /// There is something new to do.
    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }

    /// Waits a little for the end of an action, so that a small one is seen as it ended.
    pub(crate) async fn wait_for(&self, id: i32) {
        let mut ended = self.ended.subscribe();
        let end = ended.wait_for(|last| *last == id);
        let _ = tokio::time::timeout(Duration::from_secs(1), end).await;
    }
}

/// What is known from one batch to the next.
#[derive(Default)]
struct BatchSizes {
    /// The action that had a batch last.
    last: i32,
    /// How large batches are.
    sizes: HashMap<i32, usize>,
}

async fn drive(driver: Weak<Driver>, wake: Arc<Notify>) {
    let mut known = BatchSizes::default();
    loop {
        let pause = match driver.upgrade() {
            None => return,
            Some(driver) => driver.round(&mut known).await,
        };
        // Nothing is held meanwhile, neither a connection nor the console.
        match pause {
            Ok(Some(pause)) => tokio::time::sleep(pause).await,
            Ok(None) => drop(tokio::time::timeout(EVERY, wake.notified()).await),
            Err(error) => {
                tracing::debug!(%error, "actions by filter could not be read");
                tokio::time::sleep(TROUBLE).await;
            }
        }
    }
}

impl Driver {
    /// One batch of one action, in turn; how long to wait before the next.
    async fn round(&self, known: &mut BatchSizes) -> Result<Option<Duration>, StoreError> {
        let due = store::due_actions(&self.runner.pool, self.me()).await?;
        known.sizes.retain(|id, _| due.contains(id));
        let Some(id) = in_turn(&due, known.last) else {
            return Ok(None);
        };
        known.last = id;
        let size = known.sizes.get(&id).copied().unwrap_or(pace::BATCH);
        let started = Instant::now();
        match self.runner.batch(id, size).await {
            Ok(None) => {}
            Ok(Some((action, moved, jobs))) => {
                let size = pace::size(size, started.elapsed(), jobs >= size);
                known.sizes.insert(id, size);
                self.ended(&action, &moved, None).await;
            }
            Err(error) => self.failed(id, error).await?,
        }
        Ok(Some(pace::between(started.elapsed())))
    }

    /// Says in its row why it rests, or ends.
    async fn failed(&self, id: i32, error: StoreError) -> Result<(), StoreError> {
        let Some(action) = store::action(&self.runner.pool, id).await? else {
            return Ok(());
        };
        let after = pace::after(&error, action.failures);
        let (rest, is_end) = match after {
            After::Rest(seconds) => (seconds, false),
            After::End => (0.0, true),
        };
        let reason = error.to_string();
        tracing::warn!(%error, action = id, "a batch of an action by filter failed");
        if let Some(moved) =
            store::fail_action(&self.runner.pool, id, &reason, rest, is_end).await?
        {
            self.ended(&action, &moved, Some(&reason)).await;
        }
        Ok(())
    }

    /// An action that came to its end is a line of the log.
    async fn ended(&self, action: &Action, moved: &Moved, error: Option<&str>) {
        if moved.progress == Progress::Running {
            return;
        }
        audit::ended(action, moved, error);
        self.collector.refresh().await;
        self.ended.send_replace(action.id);
    }
}

/// The one after the last, else the first.
fn in_turn(due: &[i32], last: i32) -> Option<i32> {
    let next = due.iter().find(|id| **id > last);
    next.or(due.first()).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bulk_actions_take_turns() {
        assert_eq!(in_turn(&[], 3), None);
        assert_eq!(in_turn(&[3, 7], 0), Some(3));
        assert_eq!(in_turn(&[3, 7], 3), Some(7));
        assert_eq!(in_turn(&[3, 7], 7), Some(3));
    }
}
