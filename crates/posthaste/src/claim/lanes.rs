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
const FEW: usize = 32;
const RECALL: Duration = Duration::from_secs(10);

/// Reads and searches the lanes of all queues.
pub(crate) struct Lanes {
    pub(crate) queues: Queues,
    pub(crate) link: Arc<ReconnectingClient>,
    /// Notified when a notified queue turned out to have no jobs in the known lanes.
    pub(crate) missed: Arc<Notify>,
    pub(crate) stopping: CancellationToken,
}

impl Lanes {
    /// Reads the lanes that other workers have seen; otherwise the first jobs of each would wait
    /// until it is discovered.
    pub(crate) async fn load(&self) {
        for queue in self.queues.iter() {
            match store::lanes(&self.link, &queue.name).await {
                Ok(lanes) => lanes.into_iter().for_each(|priority| queue.learn(priority)),
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
        const SHORTEST: Duration = Duration::from_millis(40);
        const ASLEEP: Duration = Duration::from_millis(500);
        let mut recalled = Instant::now();
        while !self.stopping.is_cancelled() {
            let mut started = Instant::now();
            let mut shortest = ASLEEP;
            for queue in self.queues.iter().filter(|queue| queue.is_searched()) {
                shortest = SHORTEST;
                loop {
                    match store::discover(&self.link, &queue.name, &queue.priorities()).await {
                        Ok(found) if found.is_empty() => break,
                        Ok(found) => {
                            found.into_iter().for_each(|priority| queue.learn(priority));
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
            if recalled.elapsed() > RECALL {
                recalled = Instant::now();
                self.recall().await;
            }
            let took = started.elapsed();
            tokio::select! {
                () = tokio::time::sleep(shortest.max(took * 20)) => {}
                () = self.missed(took) => {}
                () = self.stopping.cancelled() => {}
            }
        }
    }

    /// Removes lanes that the database has forgotten, for queues with many lanes. One that is still
    /// in use is discovered again.
    async fn recall(&self) {
        for queue in self.queues.iter() {
            if queue.priorities().len() > FEW {
                match store::lanes(&self.link, &queue.name).await {
                    Ok(lanes) => queue.recall(lanes),
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
    async fn missed(&self, last_took: Duration) {
        tokio::time::sleep(last_took).await;
        self.missed.notified().await;
    }
}
