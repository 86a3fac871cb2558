//! Cancel: notifies consumers of running jobs that were cancelled. The database alone cancels
//! waiting jobs (sql/functions/cancel.sql).

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::parts::outstanding::Outstanding;
use crate::parts::queue::Queues;
use crate::store::operate;
use crate::store::reconnecting::ReconnectingClient;

/// Time between two polls while jobs are outstanding; the polled table is nearly always empty.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Polls until the engine has stopped: jobs that run through the grace period can still be
/// cancelled.
pub(crate) async fn run(
    queues: Queues,
    in_hand: Arc<Outstanding>,
    polls: Arc<ReconnectingClient>,
    stopped: CancellationToken,
) {
    while !stopped.is_cancelled() {
        tokio::select! { () = in_hand.wait_until_busy() => {}, () = stopped.cancelled() => return }
        match operate::read_jobs_to_cancel(&polls).await {
            Ok(jobs) if !jobs.is_empty() => {
                let each = queues.iter();
                each.for_each(|queue| queue.consumer.cancel(&jobs));
            }
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "cancelled jobs could not be queried"),
        }
        tokio::select! {
            () = tokio::time::sleep(POLL_INTERVAL) => {}
            () = stopped.cancelled() => {}
        }
    }
}
