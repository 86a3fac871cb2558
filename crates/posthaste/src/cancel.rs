//! Cancel: tells consumers of jobs that somebody cancelled while they run. What waits is cancelled by the database alone (migrations/0010_operate.sql).

use std::sync::Arc;
use std::time::Duration;

use crate::engine::Engine;
use crate::store::operate;

/// How often is looked while there are jobs: a table that is nearly always empty.
const INTERVAL: Duration = Duration::from_millis(500);

/// Runs until the engine has stopped: what runs through the grace period may be cancelled still.
pub(crate) async fn run(engine: Arc<Engine>) {
    while !engine.stopped.is_cancelled() {
        tokio::select! { () = engine.until_busy() => {}, () = engine.stopped.cancelled() => return }
        match operate::cancelling(&engine.looks).await {
            Ok(jobs) if !jobs.is_empty() => {
                let queues = engine.queues.iter();
                queues.for_each(|queue| queue.consumer.cancel(&jobs));
            }
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "cancelled jobs could not be looked for"),
        }
        tokio::select! { () = tokio::time::sleep(INTERVAL) => {}, () = engine.stopped.cancelled() => {} }
    }
}
