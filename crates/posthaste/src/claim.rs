//! 3. Claim: when to look, what to look for, how much to take. Wake-ups are hints, polling is the truth.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use crate::engine::{Engine, QueueState};
use crate::error::Error;
use crate::store;

/// The first pause after work was found. An idle queue's pause is an eighth of its idleness, so that a steady trickle is met at its own pace.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
/// A claim never asks for more jobs than this: beyond it a batch gains nothing.
const LARGEST_CLAIM: usize = 5000;

/// How long to pause after an empty look, `idle` after the last find.
fn pause(idle: Duration, longest: Duration) -> Duration {
    (idle / 8).clamp(SHORTEST_PAUSE, longest.max(SHORTEST_PAUSE))
}

/// Claims for one queue until the engine stops.
pub(crate) async fn run(engine: Arc<Engine>, queue: Arc<QueueState>) {
    let mut found_at = Instant::now();
    let mut failures = 0u32;
    let mut limit = LARGEST_CLAIM;
    while !engine.stopping.is_cancelled() {
        engine.gate.opened(&engine.stopping).await;
        let room = queue.consumer.capacity().min(limit);
        if room == 0 {
            tokio::select! { () = queue.room.notified() => {}, () = engine.stopping.cancelled() => {} }
            continue;
        }
        match claim(&engine, &queue, room).await {
            Ok(0) => {
                failures = 0;
                limit = LARGEST_CLAIM;
                let wait = pause(found_at.elapsed(), engine.config.poll_interval);
                tokio::select! { () = tokio::time::sleep(wait) => {}, () = engine.stopping.cancelled() => {} }
            }
            Ok(_) => {
                found_at = Instant::now();
                failures = 0;
                limit = (limit * 2).min(LARGEST_CLAIM);
            }
            Err(error) => {
                failures += 1;
                limit = recover(&engine, &queue, &error, room, failures).await;
            }
        }
    }
}

/// Claims once and hands the jobs to the queue's consumer; how many there were.
async fn claim(engine: &Arc<Engine>, queue: &Arc<QueueState>, room: usize) -> Result<usize, Error> {
    let worker = engine.worker().await?;
    let token = Uuid::new_v4();
    let priorities = queue.priorities();
    let limit = i32::try_from(room).unwrap_or(i32::MAX);
    let claimed = store::claim(
        &engine.claims,
        &queue.name,
        &priorities,
        worker,
        token,
        limit,
        engine.config.claim_bytes,
    )
    .await;
    match claimed {
        Ok(jobs) => {
            let found = jobs.len();
            engine.deliver(queue, jobs);
            Ok(found)
        }
        Err(error) => {
            if error.is_connection() {
                engine.uncertain(worker, token);
            }
            Err(error)
        }
    }
}

/// Decides what a failed claim means, waits, and returns how many jobs to ask for next.
async fn recover(
    engine: &Arc<Engine>,
    queue: &Arc<QueueState>,
    error: &Error,
    asked: usize,
    failures: u32,
) -> usize {
    let code = error
        .sqlstate()
        .map(|state| state.code().to_owned())
        .unwrap_or_default();
    tracing::warn!(queue = &*queue.name, failures, %error, "a claim failed");
    if code == "55000" {
        engine.forget_worker().await;
    } else if !error.is_connection()
        && !matches!(code.get(..2), Some("40" | "55" | "57" | "53" | "42"))
        || code == "53200"
    {
        // A job that cannot be read breaks the claim that holds it. Halving finds it; alone, it is ended, and nobody else is harmed.
        if asked > 1 {
            return asked / 2;
        }
        if let Ok(worker) = engine.worker().await {
            let text = error.to_string();
            match store::bury_next(
                &engine.claims,
                &queue.name,
                &queue.priorities(),
                worker,
                Uuid::new_v4(),
                &text,
            )
            .await
            {
                Ok(buried) => tracing::error!(
                    queue = &*queue.name,
                    buried,
                    error = text,
                    "a job that cannot be read was ended"
                ),
                Err(error) => {
                    tracing::error!(queue = &*queue.name, %error, "a job that cannot be read could not be ended")
                }
            }
        }
    }
    let longest = Duration::from_millis(50).saturating_mul(1 << failures.min(7));
    let wait = longest.mul_f64(0.5 + fastrand::f64() / 2.0);
    tokio::select! { () = tokio::time::sleep(wait) => {}, () = engine.stopping.cancelled() => {} }
    if error.is_connection() {
        LARGEST_CLAIM
    } else {
        asked.max(1)
    }
}

/// Looks for priorities that nobody has seen yet, on a connection of its own, so that a slow look delays no claim. The rate follows the cost: behind
/// rolled-back or uncommitted rows a look may take long.
pub(crate) async fn discover(engine: Arc<Engine>) {
    const SHORTEST: Duration = Duration::from_millis(40);
    while !engine.stopping.is_cancelled() {
        let started = Instant::now();
        for queue in &engine.queues {
            loop {
                match store::discover(&engine.duties, &queue.name, &queue.priorities()).await {
                    Ok(Some(priority)) => queue.learn(priority),
                    Ok(None) => break,
                    Err(error) => {
                        tracing::debug!(queue = &*queue.name, %error, "lanes could not be discovered");
                        break;
                    }
                }
            }
        }
        let wait = SHORTEST.max(started.elapsed() * 20);
        tokio::select! { () = tokio::time::sleep(wait) => {}, () = engine.stopping.cancelled() => {} }
    }
}

#[cfg(test)]
mod tests {
    use super::pause;
    use std::time::Duration;

    #[test]
    fn the_pause_follows_idleness_between_its_bounds() {
        let longest = Duration::from_millis(100);
        assert_eq!(pause(Duration::ZERO, longest), Duration::from_millis(1));
        assert_eq!(
            pause(Duration::from_millis(40), longest),
            Duration::from_millis(5)
        );
        assert_eq!(pause(Duration::from_secs(60), longest), longest);
    }
}
