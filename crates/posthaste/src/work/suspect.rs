//! Jobs whose worker died are run alone once: claims pause, what runs is waited for, and then one suspect runs with nothing else in the process. If it
//! kills again, it alone burns an attempt; whoever was merely near it when it struck is done and cleared.

use std::sync::Arc;
use std::time::{Duration, Instant};

use uuid::Uuid;

use crate::engine::{Engine, QueueState};
use crate::store;

/// How often suspects are looked for.
const LOOK: Duration = Duration::from_millis(500);
/// How long running jobs are waited for before other work goes on first.
const PATIENCE: Duration = Duration::from_secs(10);
/// Suspects have the process for themselves for about this long at a time; then other work has its turn.
const TURN: Duration = Duration::from_secs(1);

pub(crate) async fn run(engine: Arc<Engine>) {
    while !engine.stopping.is_cancelled() {
        let mut pause = LOOK;
        match store::suspect_queues(&engine.duties).await {
            Ok(names) => {
                let ours: Vec<_> = engine
                    .queues
                    .iter()
                    .filter(|queue| names.iter().any(|name| **name == *queue.name))
                    .collect();
                if !ours.is_empty() && !isolate(&engine, &ours).await {
                    pause = PATIENCE;
                }
            }
            Err(error) => tracing::debug!(%error, "suspects could not be looked for"),
        }
        tokio::select! { () = tokio::time::sleep(pause) => {}, () = engine.stopping.cancelled() => {} }
    }
}

/// Gives suspects their turn. False: what runs did not end in time.
async fn isolate(engine: &Arc<Engine>, queues: &[&Arc<QueueState>]) -> bool {
    engine.gate.set_closed(true);
    let alone = tokio::select! {
        alone = engine.drained(PATIENCE) => alone,
        () = engine.stopping.cancelled() => false,
    };
    if alone {
        let until = Instant::now() + TURN;
        for queue in queues {
            while Instant::now() < until
                && !engine.stopping.is_cancelled()
                && one(engine, queue).await
            {}
        }
    }
    engine.gate.set_closed(false);
    alone
}

/// Runs one suspect to its end; false when there is none.
async fn one(engine: &Arc<Engine>, queue: &Arc<QueueState>) -> bool {
    let Ok(worker) = engine.worker().await else {
        return false;
    };
    let token = Uuid::new_v4();
    // Claims pause, so their connection is free.
    match store::claim_suspect(&engine.claims, &queue.name, worker, token).await {
        Ok(Some((fence, job))) => {
            tracing::info!(job = %job.id, name = &*job.name, crashes = job.crashes, "running a job alone whose worker died");
            engine.deliver(queue, vec![(fence, job)]);
            while engine.outstanding() > 0 && !engine.stopping.is_cancelled() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            true
        }
        Ok(None) => false,
        Err(error) => {
            tracing::warn!(%error, "a suspect could not be claimed");
            // No answer: it may be ours although nobody runs it.
            if !error.is_rollback() {
                engine.uncertain(worker, token);
            }
            false
        }
    }
}
