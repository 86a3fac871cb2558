//! Polls all sleeping queues with one statement, so that a hundred idle queues cost as much as one.
//! Also finds jobs that were enqueued without a notification, in known and unknown lanes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use crate::parts::poll_pause::DISTRUST_TIME;
use crate::parts::queue::{QueueState, Queues};
use crate::store;
use crate::store::reconnecting::ReconnectingClient;

/// The shortest time between two polls while notifications are on.
const MIN_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// The longest delay of a poll because the last one was expensive, if polls take at most a fiftieth
/// of the time. Without a notifier, polls may take a third of the time, because nothing else wakes
/// a queue.
const MAX_POLL_DELAY: Duration = Duration::from_secs(10);
/// A slower poll scans rows that open or aborted transactions left: claims advance the cursors past
/// them.
const SLOW_POLL: Duration = Duration::from_millis(250);

/// Returns the delay after a poll that took this long.
fn delay_after_poll(took: Duration, has_notifier: bool, longest_pause: Duration) -> Duration {
    let wait = if has_notifier {
        (took * 600)
            .clamp(MIN_POLL_INTERVAL, MAX_POLL_DELAY)
            .max(took * 50)
    } else {
        (took * 20).min(MAX_POLL_DELAY.max(took * 2))
    };
    wait.max(longest_pause)
}

/// Watches until the engine stops.
pub(crate) async fn run(
    queues: Queues,
    polls: Arc<ReconnectingClient>,
    longest: Duration,
    stopping: CancellationToken,
) {
    let mut polled_at = Instant::now();
    let mut took = Duration::ZERO;
    let mut missed: Option<Instant> = None;
    let mut found_before: Vec<(Arc<QueueState>, u64)> = Vec::new();
    while !stopping.is_cancelled() {
        tokio::select! {
            () = tokio::time::sleep(longest) => {}
            () = stopping.cancelled() => return,
        }
        // A notification that was in transit when its job was found has arrived by now.
        if found_before
            .drain(..)
            .any(|(queue, before)| queue.sleeper.notifications() == before)
        {
            missed = Some(Instant::now());
        }
        let trusted = missed.is_none_or(|at| at.elapsed() > DISTRUST_TIME);
        let asleep = queues.iter().filter(|queue| queue.is_sleeping());
        let due: Vec<&Arc<QueueState>> = asleep
            .filter(|queue| {
                let has_notifier = trusted && queue.sleeper.is_on();
                polled_at.elapsed() >= delay_after_poll(took, has_notifier, longest)
            })
            .collect();
        if due.is_empty() {
            continue;
        }
        polled_at = Instant::now();
        let Some(found) = wake_queues_with_work(&polls, &due).await else {
            // The duration of a failed poll does not count.
            took = Duration::ZERO;
            continue;
        };
        found_before = found;
        took = polled_at.elapsed();
        if took > SLOW_POLL {
            due.iter()
                .for_each(|queue| queue.sleeper.woken.notify_one());
        }
    }
}

/// Wakes the queues that have work. Returns those that should have been notified, with their
/// earlier count of notifications; `None` if the database did not answer.
async fn wake_queues_with_work(
    polls: &ReconnectingClient,
    queues: &[&Arc<QueueState>],
) -> Option<Vec<(Arc<QueueState>, u64)>> {
    let before: Vec<u64> = queues
        .iter()
        .map(|queue| queue.sleeper.notifications())
        .collect();
    let names: Vec<&str> = queues.iter().map(|queue| &*queue.name).collect();
    let queues_with_work = match store::notify::queues_with_work(polls, &names).await {
        Ok(queues_with_work) => queues_with_work,
        Err(error) => {
            tracing::debug!(%error, "sleeping queues could not be checked");
            return None;
        }
    };
    let mut found = Vec::new();
    for (queue, before) in queues.iter().zip(before) {
        let lanes = queues_with_work
            .iter()
            .filter(|(name, _)| **name == *queue.name);
        for (_, priority) in lanes {
            if queue.is_sleeping() && queue.sleeper.is_on() {
                found.push((Arc::clone(queue), before));
            }
            queue.add_priority(*priority);
            queue.sleeper.woken.notify_one();
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::delay_after_poll;
    use std::time::Duration;

    #[test]
    fn poll_interval_grows_with_poll_cost_up_to_a_bound() {
        let milliseconds = Duration::from_millis;
        let usual = milliseconds(100);
        assert_eq!(
            delay_after_poll(milliseconds(1), true, usual),
            milliseconds(1_000)
        );
        assert_eq!(
            delay_after_poll(milliseconds(10), true, usual),
            milliseconds(6_000)
        );
        assert_eq!(
            delay_after_poll(milliseconds(100), true, usual),
            milliseconds(10_000)
        );
        assert_eq!(
            delay_after_poll(milliseconds(400), true, usual),
            milliseconds(20_000)
        );
        assert_eq!(delay_after_poll(milliseconds(1), false, usual), usual);
        assert_eq!(
            delay_after_poll(milliseconds(20), false, usual),
            milliseconds(400)
        );
        assert_eq!(
            delay_after_poll(milliseconds(900), false, usual),
            milliseconds(10_000)
        );
        assert_eq!(
            delay_after_poll(milliseconds(9_000), false, usual),
            milliseconds(18_000)
        );
    }
}
