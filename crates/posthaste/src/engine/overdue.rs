//! Asks the consumers about what overstays its time, while jobs are out.

use std::sync::Arc;
use std::time::Duration;

use super::Engine;

/// Asks until the engine has stopped.
pub(super) async fn run(engine: Arc<Engine>) {
    while !engine.stopped.is_cancelled() {
        let queues = engine.queues.iter();
        queues.for_each(|queue| queue.consumer.watch());
        tokio::time::sleep(Duration::from_millis(100)).await;
        tokio::select! { () = engine.until_busy() => {}, () = engine.stopped.cancelled() => {} }
    }
}
