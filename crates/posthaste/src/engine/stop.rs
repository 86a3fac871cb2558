//! The orderly end of a worker process.

use std::time::Duration;

use tokio::task::JoinSet;

use super::Process;
use crate::store::reconnecting;

/// Time after the grace period for which acknowledgements are still tried.
const FINAL_ACKNOWLEDGE_TIME: Duration = Duration::from_secs(10);

/// Gives back jobs that were not started, waits for running jobs, then gives those back too;
/// deregisters if none are left.
pub(super) async fn stop(process: &Process, mut claiming: JoinSet<()>, mut attending: JoinSet<()>) {
    let (in_hand, ends) = (&process.claimer.dispatcher.in_hand, &process.ends);
    let consumers = || process.queues.iter().map(|queue| &queue.consumer);
    consumers().for_each(|consumer| consumer.give_back());
    // A claim in flight still delivers jobs, which are given back at once. Without its answer they
    // would have to be rescued.
    let last_claims = async { while claiming.join_next().await.is_some() {} };
    let answered = tokio::time::timeout(FINAL_ACKNOWLEDGE_TIME, last_claims)
        .await
        .is_ok();
    if !answered {
        tracing::warn!("a claim has no answer; its jobs will be rescued");
    }
    let mut clean = in_hand
        .wait_until_drained(process.config.shutdown_grace)
        .await;
    if !clean {
        tracing::warn!(
            jobs = in_hand.outstanding(),
            "the grace period is over; unfinished jobs are returned"
        );
        consumers().for_each(|consumer| consumer.abort());
        clean = in_hand.wait_until_drained(FINAL_ACKNOWLEDGE_TIME).await;
        ends.hopeless.cancel();
    }
    // Running jobs have ended or cannot be ended: the consumers' background tasks end too.
    consumers().for_each(|consumer| consumer.abort());
    process.stats.flush(&process.polls).await;
    ends.ended.cancel();
    let last_tasks = async { while attending.join_next().await.is_some() {} };
    let ended = tokio::time::timeout(reconnecting::MAX_TIMEOUT, last_tasks).await;
    if ended.is_err() {
        tracing::warn!("a consumer's task did not end");
        attending.shutdown().await;
    }
    // Stopped before the worker deregisters: a later heartbeat would find no worker, as after a
    // rescue.
    ends.stopped.cancel();
    if clean {
        let is_sure = answered && process.claimer.unanswered.is_empty();
        process.claimer.registration.deregister(is_sure).await;
    }
}
