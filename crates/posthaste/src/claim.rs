//! 3. Claim: when to look, what to look for, how much to take. Wake-ups are hints, polling is the truth.

mod pace;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use crate::engine::{Engine, Identity, Passed, QueueState};
use crate::error::Error;
use crate::store;
pub(crate) use pace::Pace;

/// A queue whose rate is used up is looked at again after this at the latest: the rate may be changed meanwhile.
const LONGEST_LATER: Duration = Duration::from_secs(1);
/// A claim never asks for more jobs than this: beyond it a batch gains nothing.
const LARGEST_CLAIM: usize = 5000;
/// How much smaller a claim becomes when it held a job that cannot be read. To fail is dear, because the server may print a gigabyte before it gives
/// up; claims that pass cost next to nothing.
const CLOSING_IN: usize = 64;

/// Claims for one queue until the engine stops.
pub(crate) async fn run(engine: Arc<Engine>, queue: Arc<QueueState>) {
    let mut found_at = Instant::now();
    let mut was_rung = false;
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
        match claim(&engine, &queue, room, passed).await {
            Ok(Found::Jobs(0)) => {
                failures = 0;
                unreadable = Unreadable::default();
                if was_rung {
                    queue.set_missed();
                    engine.missed.notify_one();
                }
                was_rung = rest(&engine, &queue, found_at.elapsed()).await;
            }
            Ok(Found::Later(wait)) => {
                failures = 0;
                let wait = wait.min(LONGEST_LATER);
                was_rung = false;
                tokio::select! { () = tokio::time::sleep(wait) => {}, () = engine.stopping.cancelled() => {} }
            }
            Ok(Found::Jobs(jobs)) => {
                was_rung = false;
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

/// Pauses after an empty look, `idle` after the last find; whether it was woken.
async fn rest(engine: &Engine, queue: &QueueState, idle: Duration) -> bool {
    let longest = engine.config.poll_interval;
    let pause = engine.bell.pause(&queue.sleeper, idle, longest);
    let over = async {
        match pause {
            Some(pause) => tokio::time::sleep(pause).await,
            None => std::future::pending().await,
        }
    };
    queue.set_asleep(pause.is_none());
    let woken = tokio::select! {
        () = queue.sleeper.rung.notified() => true,
        () = over => false,
        () = engine.stopping.cancelled() => false,
    };
    queue.set_asleep(false);
    woken
}

/// Closes in on a job that cannot be read: it lies among the next so many, so a part of them is asked for.
#[derive(Default)]
struct Unreadable {
    within: Option<usize>,
}

impl Unreadable {
    fn limit(&self) -> usize {
        self.within
            .map_or(LARGEST_CLAIM, |within| (within / CLOSING_IN).max(1))
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

impl Found {
    fn jobs(&self) -> usize {
        match self {
            Self::Jobs(jobs) => *jobs,
            Self::Later(_) => 0,
        }
    }
}

/// Rows of a claim that was made, to be handed over.
struct Made {
    worker: Arc<Identity>,
    token: Uuid,
    rows: Vec<tokio_postgres::Row>,
}

/// Claims and hands the jobs to the queue's consumer. While a largest claim comes back whole there is more to be had, so the next one is on its way to the
/// server while the jobs of the last are handed over.
pub(crate) async fn claim<'a>(
    engine: &'a Arc<Engine>,
    queue: &Arc<QueueState>,
    room: usize,
    mut passed: Passed<'a>,
) -> Result<Found, Error> {
    let mut made = make(engine, queue, room).await?;
    let mut jobs = 0;
    while made.rows.len() == LARGEST_CLAIM && !engine.stopping.is_cancelled() {
        // Who holds the gate open for these must not wait at it for the next: a suspect may wait in between.
        let room = queue.consumer.capacity();
        let room = room.saturating_sub(made.rows.len()).min(LARGEST_CLAIM);
        let (LARGEST_CLAIM, Some(again)) = (room, engine.gate.pass_again()) else {
            break;
        };
        let hand_over = async {
            // The claim is sent first.
            tokio::task::yield_now().await;
            hand_over(engine, queue, made)
        };
        let (next, found) = tokio::join!(make(engine, queue, room), hand_over);
        // The jobs of the last one were delivered, so suspects wait for them by now.
        passed = again;
        jobs += found?.jobs();
        made = next?;
    }
    let found = hand_over(engine, queue, made)?;
    drop(passed);
    Ok(match found {
        Found::Jobs(last) => Found::Jobs(jobs + last),
        later => later,
    })
}

async fn make(engine: &Arc<Engine>, queue: &QueueState, room: usize) -> Result<Made, Error> {
    let worker = engine.worker().await?;
    let token = Uuid::new_v4();
    let priorities = queue.priorities();
    let room = room.min(queue.pace().limit(priorities.len()));
    let limit = i32::try_from(room).unwrap_or(i32::MAX);
    let begun = Instant::now();
    let claimed = store::claim(
        &engine.claims,
        &queue.name,
        &priorities,
        worker.id,
        token,
        limit,
        engine.config.claim_bytes,
    );
    match claimed.await {
        Ok(rows) => {
            queue.pace().took(room, rows.len(), begun.elapsed());
            Ok(Made {
                worker,
                token,
                rows,
            })
        }
        Err(error) => {
            failed(engine, worker.id, token, &error);
            Err(error)
        }
    }
}

/// Reads what was claimed and delivers it.
fn hand_over(engine: &Arc<Engine>, queue: &Arc<QueueState>, made: Made) -> Result<Found, Error> {
    let claim = store::read_claim(&made.rows, &queue.name, made.token);
    let claim = claim.inspect_err(|error| failed(engine, made.worker.id, made.token, error))?;
    let found = claim.jobs.len() + claim.unreadable.len();
    engine.deliver(queue, &made.worker, claim.jobs);
    for (fence, id, error) in claim.unreadable {
        tracing::error!(queue = &*queue.name, job = %id, error, "a job that cannot be read is ended");
        engine.bury(queue, &made.worker, fence, id, error);
    }
    Ok(match claim.again {
        Some(wait) if found == 0 && !wait.is_zero() => Found::Later(wait),
        // No pause, whatever was handed out.
        Some(_) => Found::Jobs(found.max(1)),
        None => Found::Jobs(found),
    })
}

fn failed(engine: &Engine, worker: i64, token: Uuid, error: &Error) {
    // No answer, or one that could not be read: the claim may stand although nobody will work it.
    if error.leaves_in_doubt() {
        engine.uncertain(worker, token);
    }
    if error
        .sqlstate()
        .is_some_and(|state| state.code() == "55000")
    {
        engine.forget_worker(worker);
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
        // A job that cannot be read breaks the claim that holds it. Smaller ones find it; alone, it is ended, and nobody else is harmed.
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

/// The lanes that others have seen; without them the first jobs of each would wait for their discovery.
pub(crate) async fn load_lanes(engine: &Engine) {
    for queue in &engine.queues {
        match store::lanes(&engine.looks, &queue.name).await {
            Ok(lanes) => lanes.into_iter().for_each(|priority| queue.learn(priority)),
            Err(error) => {
                tracing::warn!(queue = &*queue.name, %error, "known lanes could not be read; they will be discovered")
            }
        }
    }
}

/// Looks for priorities that nobody has seen yet, on a connection of its own, so that a slow look delays no claim. The rate follows the cost: behind
/// rolled-back or uncommitted rows a look may take long.
pub(crate) async fn discover(engine: Arc<Engine>) {
    const SHORTEST: Duration = Duration::from_millis(40);
    const ASLEEP: Duration = Duration::from_millis(500);
    while !engine.stopping.is_cancelled() {
        let started = Instant::now();
        let mut shortest = ASLEEP;
        for queue in engine.queues.iter().filter(|queue| queue.is_searched()) {
            shortest = SHORTEST;
            loop {
                match store::discover(&engine.looks, &queue.name, &queue.priorities()).await {
                    Ok(Some(priority)) => {
                        queue.learn(priority);
                        queue.sleeper.rung.notify_one();
                    }
                    Ok(None) => break,
                    Err(error) => {
                        tracing::debug!(queue = &*queue.name, %error, "lanes could not be discovered");
                        break;
                    }
                }
            }
        }
        let took = started.elapsed();
        tokio::select! { () = tokio::time::sleep(shortest.max(took * 20)) => {}, () = missed(&engine, took) => {}, () = engine.stopping.cancelled() => {} }
    }
}

/// A queue was rung for and nothing was found there. The rate follows the cost all the same.
async fn missed(engine: &Engine, last_took: Duration) {
    tokio::time::sleep(last_took).await;
    engine.missed.notified().await;
}

#[cfg(test)]
mod tests {
    use super::{LARGEST_CLAIM, Unreadable};

    /// Claims that fail, and that pass, until the job at this place is alone.
    fn closing_in(place: usize) -> (usize, usize) {
        let mut unreadable = Unreadable::default();
        let (mut before, mut failed, mut passed) = (place, 0, 0);
        loop {
            let asked = unreadable.limit();
            if asked <= before {
                before -= asked;
                passed += 1;
                unreadable.passed(asked);
                continue;
            }
            failed += 1;
            unreadable.failed(asked);
            if asked == 1 {
                return (failed, passed);
            }
        }
    }

    #[test]
    fn few_claims_fail_until_an_unreadable_job_is_alone_wherever_it_lies() {
        for place in 0..LARGEST_CLAIM {
            let (failed, passed) = closing_in(place);
            assert!(
                failed <= 3 && passed <= 400,
                "{place}: {failed} fail, {passed} pass"
            );
        }
    }
}
