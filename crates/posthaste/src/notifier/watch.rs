//! The watch over all queues that sleep: one poll for all of them, so that a hundred idle queues
//! cost what one does. It also finds what notified nobody, in lanes that nobody has seen yet too.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use crate::parts::queue::{QueueState, Queues};
use crate::parts::sleep::DOUBT;
use crate::store;
use crate::store::reconnecting::ReconnectingClient;

/// While notifications are on, a poll comes this late at least.
const SELDOM: Duration = Duration::from_secs(1);
/// No poll is put off for longer than this because the last one was expensive, as long as it takes
/// a fiftieth of the time; with no notifier, a third of it, because nothing else wakes a queue.
const LATEST: Duration = Duration::from_secs(10);
/// A poll that takes longer walks what somebody's transaction left or is about to commit: claims
/// move the cursors past that.
const SLOW: Duration = Duration::from_millis(250);

/// When the next poll is due after one that took this long.
fn wait(took: Duration, has_notifier: bool, longest_pause: Duration) -> Duration {
    let wait = if has_notifier {
        (took * 600).clamp(SELDOM, LATEST).max(took * 50)
    } else {
        (took * 20).min(LATEST.max(took * 2))
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
        // A notification that was about to arrive when its job was found has come by now.
        if found_before
            .drain(..)
            .any(|(queue, before)| queue.sleeper.notifications() == before)
        {
            missed = Some(Instant::now());
        }
        let trusted = missed.is_none_or(|at| at.elapsed() > DOUBT);
        let asleep = queues.iter().filter(|queue| queue.is_sleeping());
        let due: Vec<&Arc<QueueState>> = asleep
            .filter(|queue| {
                let has_notifier = trusted && queue.sleeper.is_on();
                polled_at.elapsed() >= wait(took, has_notifier, longest)
            })
            .collect();
        if due.is_empty() {
            continue;
        }
        polled_at = Instant::now();
        let Some(found) = poll(&polls, &due).await else {
            // That was not a poll, however long it took.
            took = Duration::ZERO;
            continue;
        };
        found_before = found;
        took = polled_at.elapsed();
        if took > SLOW {
            due.iter()
                .for_each(|queue| queue.sleeper.woken.notify_one());
        }
    }
}

/// Wakes the queues that have something to do; those of which there should be a notification, and
/// how many there were before. None: the database did not answer.
async fn poll(
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
            queue.learn(*priority);
            queue.sleeper.woken.notify_one();
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::wait;
    use std::time::Duration;

    #[test]
    fn poll_interval_grows_with_poll_cost_up_to_a_bound() {
        let milliseconds = Duration::from_millis;
        let usual = milliseconds(100);
        assert_eq!(wait(milliseconds(1), true, usual), milliseconds(1_000));
        assert_eq!(wait(milliseconds(10), true, usual), milliseconds(6_000));
        assert_eq!(wait(milliseconds(100), true, usual), milliseconds(10_000));
        assert_eq!(wait(milliseconds(400), true, usual), milliseconds(20_000));
        assert_eq!(wait(milliseconds(1), false, usual), usual);
        assert_eq!(wait(milliseconds(20), false, usual), milliseconds(400));
        assert_eq!(wait(milliseconds(900), false, usual), milliseconds(10_000));
        assert_eq!(
            wait(milliseconds(9_000), false, usual),
            milliseconds(18_000)
        );
    }
}
