//! The known lanes of a queue, and the search for others.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::parts::queue::Queues;
use crate::store;
use crate::store::reconnecting::ReconnectingClient;

/// The number of lanes above which those of a queue are reread: each costs a probe at each poll, so
/// unused ones are to be forgotten.
const MAX_RETAINED_LANES: usize = 32;
const REREAD_INTERVAL: Duration = Duration::from_secs(10);

/// Reads and searches the lanes of all queues.
pub(crate) struct LaneSearch {
    pub(crate) queues: Queues,
    pub(crate) link: Arc<ReconnectingClient>,
    /// Notified when a notified queue turned out to have no jobs in the known lanes.
    pub(crate) missed: Arc<Notify>,
    pub(crate) stopping: CancellationToken,
}

impl LaneSearch {
    /// Reads the lanes that other workers have seen; otherwise the first jobs of each would wait
    /// until it is discovered.
    pub(crate) async fn load(&self) {
        for queue in self.queues.iter() {
            match store::read_lanes(&self.link, &queue.name).await {
                Ok(lanes) => lanes
                    .into_iter()
                    .for_each(|priority| queue.add_priority(priority)),
                Err(error) => {
                    tracing::warn!(
                        queue = &*queue.name, %error,
                        "known lanes could not be read; they will be discovered"
                    )
                }
            }
        }
    }

    /// Searches for unknown priorities on a separate connection, so that a slow search delays no
    /// claim. The rate follows the cost: a search may take long if it must skip rolled-back or
    /// uncommitted rows.
    pub(crate) async fn discover(self) {
        const MIN_SEARCH_PAUSE: Duration = Duration::from_millis(40);
        const SLEEPING_SEARCH_PAUSE: Duration = Duration::from_millis(500);
        let mut recalled = Instant::now();
        while !self.stopping.is_cancelled() {
            let mut started = Instant::now();
            let mut shortest = SLEEPING_SEARCH_PAUSE;
            for queue in self.queues.iter().filter(|queue| queue.is_searched()) {
                shortest = MIN_SEARCH_PAUSE;
                loop {
                    match store::discover_lanes(&self.link, &queue.name, &queue.priorities()).await
                    {
                        Ok(found) if found.is_empty() => break,
                        Ok(found) => {
                            found
                                .into_iter()
                                .for_each(|priority| queue.add_priority(priority));
                            queue.sleeper.woken.notify_one();
                        }
                        Err(error) => {
                            tracing::debug!(
                                queue = &*queue.name, %error,
                                "lanes could not be discovered"
                            );
                            // A failed search does not count, however long it took.
                            started = Instant::now();
                            break;
                        }
                    }
                }
            }
            if recalled.elapsed() > REREAD_INTERVAL {
                recalled = Instant::now();
                self.reread_lanes().await;
            }
            let took = started.elapsed();
            tokio::select! {
                () = tokio::time::sleep(shortest.max(took * 20)) => {}
                () = self.wait_for_missed(took) => {}
                () = self.stopping.cancelled() => {}
            }
        }
    }

    /// Removes lanes that the database has forgotten, for queues with many lanes. One that is still
    /// in use is discovered again.
    async fn reread_lanes(&self) {
        for queue in self.queues.iter() {
            if queue.priorities().len() > MAX_RETAINED_LANES {
                match store::read_lanes(&self.link, &queue.name).await {
                    Ok(lanes) => queue.replace_lanes(lanes),
                    Err(error) => {
                        tracing::debug!(
                            queue = &*queue.name, %error,
                            "known lanes could not be read"
                        );
                    }
                }
            }
        }
    }

    /// Completes when a notified queue had no jobs in the known lanes, at the earliest after the
    /// time that the last search took.
    async fn wait_for_missed(&self, last_took: Duration) {
        tokio::time::sleep(last_took).await;
        self.missed.notified().await;
    }
}
