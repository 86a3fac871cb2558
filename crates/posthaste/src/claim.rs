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
/// A queue whose rate is used up is looked at again after this at the latest: the rate may be changed meanwhile.
const LONGEST_LATER: Duration = Duration::from_secs(1);
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
    let mut unreadable = Unreadable::default();
    while !engine.stopping.is_cancelled() {
        let Some(passed) = engine.gate.pass(&engine.stopping).await else {
            return;
        };
        let room = queue.consumer.capacity().min(unreadable.limit());
        if room == 0 {
            drop(passed);
            // Told when jobs end; asked again all the same, because a wake-up is only a hint.
            let asked_again = tokio::time::sleep(Duration::from_millis(50));
            tokio::select! { () = queue.room.notified() => {}, () = asked_again => {}, () = engine.stopping.cancelled() => {} }
            continue;
        }
        let claimed = claim(&engine, &queue, room).await;
        // Its jobs were delivered, so suspects wait for them by now.
        drop(passed);
        match claimed {
            Ok(Found::Jobs(0)) => {
                failures = 0;
                unreadable = Unreadable::default();
                let wait = pause(found_at.elapsed(), engine.config.poll_interval);
                tokio::select! { () = tokio::time::sleep(wait) => {}, () = engine.stopping.cancelled() => {} }
            }
            Ok(Found::Later(wait)) => {
                failures = 0;
                let wait = wait.min(LONGEST_LATER);
                tokio::select! { () = tokio::time::sleep(wait) => {}, () = engine.stopping.cancelled() => {} }
            }
            Ok(Found::Jobs(jobs)) => {
                found_at = Instant::now();
                failures = 0;
                unreadable.passed(jobs);
            }
            Err(error) => {
                failures += 1;
                recover(&engine, &queue, &error, room, failures, &mut unreadable).await;
            }
        }
    }
}

/// Closes in on a job that cannot be read: it lies among the next so many, so half of them are asked for.
#[derive(Default)]
struct Unreadable {
    within: Option<usize>,
}

impl Unreadable {
    fn limit(&self) -> usize {
        self.within
            .map_or(LARGEST_CLAIM, |within| (within / 2).max(1))
    }

    fn passed(&mut self, jobs: usize) {
        self.within = self
            .within
            .map(|within| within.saturating_sub(jobs))
            .filter(|within| *within > 0);
    }

    fn failed(&mut self, asked: usize) {
        self.within = Some(self.within.unwrap_or(asked).min(asked));
    }
}

/// What a claim brought.
#[derive(Debug)]
pub(crate) enum Found {
    /// So many jobs; none counts as one when more is to follow at once.
    Jobs(usize),
    /// None, and there will be none before this is over: the queue's rate is used up.
    Later(Duration),
}

/// Claims once and hands the jobs to the queue's consumer.
pub(crate) async fn claim(
    engine: &Arc<Engine>,
    queue: &Arc<QueueState>,
    room: usize,
) -> Result<Found, Error> {
    let worker = engine.worker().await?;
    let token = Uuid::new_v4();
    let priorities = queue.priorities();
    let limit = i32::try_from(room).unwrap_or(i32::MAX);
    let claimed = store::claim(
        &engine.claims,
        &queue.name,
        &priorities,
        worker.id,
        token,
        limit,
        engine.config.claim_bytes,
    )
    .await;
    match claimed {
        Ok(claim) => {
            let found = claim.jobs.len() + claim.unreadable.len();
            engine.deliver(queue, &worker, claim.jobs);
            for (fence, id, error) in claim.unreadable {
                tracing::error!(queue = &*queue.name, job = %id, error, "a job that cannot be read is ended");
                engine.bury(queue, &worker, fence, id, error);
            }
            Ok(match claim.again {
                Some(wait) if found == 0 && !wait.is_zero() => Found::Later(wait),
                // No pause, whatever was handed out.
                Some(_) => Found::Jobs(found.max(1)),
                None => Found::Jobs(found),
            })
        }
        Err(error) => {
            // No answer, or one that could not be read: the claim may stand although nobody will work it.
            if error.leaves_in_doubt() {
                engine.uncertain(worker.id, token);
            }
            if error
                .sqlstate()
                .is_some_and(|state| state.code() == "55000")
            {
                engine.forget_worker(worker.id);
            }
            Err(error)
        }
    }
}

/// Decides what a failed claim means, and waits.
async fn recover(
    engine: &Arc<Engine>,
    queue: &Arc<QueueState>,
    error: &Error,
    asked: usize,
    failures: u32,
    unreadable: &mut Unreadable,
) {
    tracing::warn!(queue = &*queue.name, failures, %error, "a claim failed");
    if is_of_the_data(error) {
        // A job that cannot be read breaks the claim that holds it. Halving finds it; alone, it is ended, and nobody else is harmed.
        unreadable.failed(asked);
        if asked == 1 {
            bury(engine, queue, error).await;
            *unreadable = Unreadable::default();
        }
        return;
    }
    let longest = Duration::from_millis(50).saturating_mul(1 << failures.min(7));
    let wait = longest.mul_f64(0.5 + fastrand::f64() / 2.0);
    tokio::select! { () = tokio::time::sleep(wait) => {}, () = engine.stopping.cancelled() => {} }
}

/// Whether a claim failed because of what it was to hand out: not the connection, a lock, a restart, a missing right or a full disk.
fn is_of_the_data(error: &Error) -> bool {
    match error.sqlstate().map(|state| state.code()) {
        Some("53200") => true, // out of memory: the text of one job may be what did not fit
        Some(code) => {
            !error.is_connection()
                && !["25", "28", "40", "42", "53", "55", "57", "58"].contains(&&code[..2])
        }
        // No SQLSTATE, and yet not the connection: the row came, and we could not read it.
        None => !error.is_connection(),
    }
}

/// Ends the next job, which is a claim too: not beside a suspect.
pub(crate) async fn bury(engine: &Arc<Engine>, queue: &Arc<QueueState>, error: &Error) {
    let Some(_passed) = engine.gate.pass(&engine.stopping).await else {
        return;
    };
    let Ok(worker) = engine.worker().await else {
        return;
    };
    let text = error.to_string();
    match store::bury_next(
        &engine.claims,
        &queue.name,
        &queue.priorities(),
        worker.id,
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

/// Looks for priorities that nobody has seen yet, on a connection of its own, so that a slow look delays no claim. The rate follows the cost: behind
/// rolled-back or uncommitted rows a look may take long.
pub(crate) async fn discover(engine: Arc<Engine>) {
    const SHORTEST: Duration = Duration::from_millis(40);
    while !engine.stopping.is_cancelled() {
        let started = Instant::now();
        for queue in &engine.queues {
            loop {
                match store::discover(&engine.looks, &queue.name, &queue.priorities()).await {
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
