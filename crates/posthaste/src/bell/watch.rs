//! The watch over all queues that sleep: one look for all of them, so that a hundred idle queues cost what one does. It also finds what rang no bell,
//! in lanes that nobody has seen yet too.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::engine::{Engine, QueueState};
use crate::store;

/// Behind a bell a look comes this late at least.
const SELDOM: Duration = Duration::from_secs(1);
/// No look is put off for longer than this because the last one was dear, as long as it takes a fiftieth of the time.
const LATEST: Duration = Duration::from_secs(10);
/// A look that takes longer walks what somebody's transaction left or is about to commit: claims move the cursors past that.
const SLOW: Duration = Duration::from_millis(250);

/// When the next look is due after one that took so long.
fn wait(took: Duration, has_bell: bool, longest_pause: Duration) -> Duration {
    let wait = if has_bell {
        (took * 600).clamp(SELDOM, LATEST).max(took * 50)
    } else {
        took * 20
    };
    wait.max(longest_pause)
}

/// Watches until the engine stops.
pub(crate) async fn run(engine: Arc<Engine>) {
    let longest = engine.config.poll_interval;
    let mut looked = Instant::now();
    let mut took = Duration::ZERO;
    while !engine.stopping.is_cancelled() {
        tokio::select! { () = tokio::time::sleep(longest) => {}, () = engine.stopping.cancelled() => return }
        let asleep = engine.queues.iter().filter(|queue| queue.is_asleep());
        let due: Vec<&Arc<QueueState>> = asleep
            .filter(|queue| looked.elapsed() >= wait(took, queue.sleeper.is_armed(), longest))
            .collect();
        if due.is_empty() {
            continue;
        }
        looked = Instant::now();
        look(&engine, &due).await;
        took = looked.elapsed();
        if took > SLOW {
            due.iter().for_each(|queue| queue.sleeper.rung.notify_one());
        }
    }
}

async fn look(engine: &Engine, queues: &[&Arc<QueueState>]) {
    let names: Vec<&str> = queues.iter().map(|queue| &*queue.name).collect();
    let stirring = match store::bell::stirring(&engine.looks, &names).await {
        Ok(stirring) => stirring,
        Err(error) => return tracing::debug!(%error, "queues that sleep could not be looked at"),
    };
    for queue in queues {
        let lanes = stirring.iter().filter(|(name, _)| **name == *queue.name);
        for (_, priority) in lanes {
            queue.learn(*priority);
            queue.sleeper.rung.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::wait;
    use std::time::Duration;

    #[test]
    fn looks_cost_little_and_are_not_put_off_for_long() {
        let milliseconds = Duration::from_millis;
        let usual = milliseconds(100);
        assert_eq!(wait(milliseconds(1), true, usual), milliseconds(1_000));
        assert_eq!(wait(milliseconds(10), true, usual), milliseconds(6_000));
        assert_eq!(wait(milliseconds(100), true, usual), milliseconds(10_000));
        assert_eq!(wait(milliseconds(400), true, usual), milliseconds(20_000));
        assert_eq!(wait(milliseconds(1), false, usual), usual);
        assert_eq!(wait(milliseconds(20), false, usual), milliseconds(400));
    }
}
