//! Jobs whose worker died are run alone once: claims pause, those under way and what runs are waited for, and then one suspect runs with nothing else in the process. If it
//! kills again, it alone burns an attempt; whoever was merely near it when it struck is done and cleared. A consumer that takes jobs by the batch may have those together for
//! which a burnt attempt ends nothing: if one of them kills again, each runs alone.

mod patience;

use std::sync::Arc;
use std::time::{Duration, Instant};

use uuid::Uuid;

use crate::engine::{Engine, QueueState};
use crate::error::Error;
use crate::relay::Relay;
use crate::store::{self, Claimed};
use patience::{LOOK, Patience};

/// Suspects have the process for themselves for about this long at a time; then other work has its turn.
const TURN: Duration = Duration::from_secs(1);

pub(crate) async fn run(engine: Arc<Engine>) {
    // As long as the slowest handler may run; no limit if one has none.
    let limits = engine.queues.iter().map(|queue| queue.consumer.limit());
    let limit = limits
        .collect::<Option<Vec<_>>>()
        .map(|limits| limits.into_iter().max().unwrap_or_default());
    let mut patience = Patience::new(limit);
    while !engine.stopping.is_cancelled() {
        let pause = match store::suspect_queues(&engine.looks).await {
            Ok(names) => {
                let mut ours: Vec<_> = engine
                    .queues
                    .iter()
                    .filter(|queue| names.iter().any(|name| **name == *queue.name))
                    // A drain's suspects are for the relay that drains.
                    .filter(|queue| queue.consumer.as_relay().is_none_or(Relay::may_send))
                    .collect();
                if ours.is_empty() {
                    patience.calm()
                } else {
                    // A turn is short: it is not to go to the same queue each time.
                    fastrand::shuffle(&mut ours);
                    let paused = Instant::now();
                    let had_turn = isolate(&engine, &ours, patience.wait()).await;
                    patience.rest(had_turn, paused.elapsed())
                }
            }
            Err(error) => {
                tracing::debug!(%error, "suspects could not be looked for");
                LOOK
            }
        };
        tokio::select! { () = tokio::time::sleep(pause) => {}, () = engine.stopping.cancelled() => {} }
    }
}

/// Gives suspects their turn. False: what runs did not end in time.
async fn isolate(engine: &Arc<Engine>, queues: &[&Arc<QueueState>], wait: Duration) -> bool {
    let alone = tokio::select! {
        alone = engine.alone(wait) => alone,
        () = engine.stopping.cancelled() => return false,
    };
    // The gate stays closed for as long as this lives.
    let Some(_alone) = alone else {
        tracing::info!(waited = ?wait, jobs = engine.in_hand(), "suspects wait: other jobs ran, or a claim had no answer, for too long");
        return false;
    };
    let until = Instant::now() + TURN;
    for queue in queues {
        while Instant::now() < until && !engine.stopping.is_cancelled() && next(engine, queue).await
        {
        }
    }
    true
}

/// Runs the next suspect to its end, or those that may run together; false when there is none.
async fn next(engine: &Arc<Engine>, queue: &Arc<QueueState>) -> bool {
    let Ok(worker) = engine.worker().await else {
        return false;
    };
    let token = Uuid::new_v4();
    // No other claim is under way, so nothing is delivered beside this one, and their connection is free.
    match claim(engine, queue, worker.id, token).await {
        Ok(jobs) if jobs.is_empty() => false,
        Ok(jobs) => {
            for (_, job) in &jobs {
                tracing::info!(job = %job.id, name = &*job.name, crashes = job.crashes, together = jobs.len(), "running a job alone whose worker died");
            }
            engine.deliver(queue, &worker, jobs);
            while engine.in_hand() > 0 && !engine.stopping.is_cancelled() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            true
        }
        Err(error) => {
            tracing::warn!(%error, "suspects could not be claimed");
            // No answer: they may be ours although nobody runs them.
            if error.leaves_in_doubt() {
                engine.uncertain(worker.id, token);
            }
            false
        }
    }
}

/// Those that may run together, or else one.
async fn claim(
    engine: &Engine,
    queue: &QueueState,
    worker: i64,
    token: Uuid,
) -> Result<Vec<Claimed>, Error> {
    let (link, name, most) = (&engine.claims, &queue.name, queue.consumer.suspects());
    if most > 1 {
        let together = store::claim_suspects(link, name, worker, token, most).await?;
        if !together.is_empty() {
            return Ok(together);
        }
    }
    let alone = store::claim_suspect(link, name, worker, token).await?;
    Ok(alone.into_iter().collect())
}
