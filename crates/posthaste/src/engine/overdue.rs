//! Has the consumers check for jobs that exceeded their time, while jobs are outstanding.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::parts::outstanding::Outstanding;
use crate::parts::queue::Queues;

/// Checks until the engine has stopped.
pub(super) async fn check_overdue(
    queues: Queues,
    in_hand: Arc<Outstanding>,
    stopped: CancellationToken,
) {
    while !stopped.is_cancelled() {
        queues.iter().for_each(|queue| queue.consumer.watch());
        tokio::time::sleep(Duration::from_millis(100)).await;
        tokio::select! { () = in_hand.wait_until_busy() => {}, () = stopped.cancelled() => {} }
    }
}
