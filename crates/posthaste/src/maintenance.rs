//! The elected duties. Any worker can be the leader; each duty is a short transaction behind a lock of its own, so that two leaders at once only
//! waste a little work. The scheduled road has a link of its own: what is due waits for no other duty.

mod hearts;
mod periodic;
mod promoter;
mod upkeep;

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use self::periodic::Periodic;
use self::promoter::Promoter;
use crate::engine::{Engine, Uncertain};
use crate::error::Error;
use crate::store;
use crate::store::link::Link;

/// How long a claim without an answer may still commit on the server.
const UNCERTAIN_FOR: Duration = Duration::from_secs(120);

/// Does a duty. One that failed is told, and tried again in the next round.
macro_rules! attempt {
    ($link:expr, $duty:ident($($argument:expr),*)) => {
        $crate::maintenance::told(stringify!($duty), $crate::store::$duty($link $(, $argument)*).await)
    };
}
use attempt;

fn told<T>(duty: &'static str, result: Result<T, Error>) -> Option<T> {
    result
        .inspect_err(
            |error| tracing::warn!(duty, %error, "a maintenance duty failed; it is tried again"),
        )
        .ok()
}

/// Runs until the engine stops; does the duties while it is the leader.
pub(crate) async fn run(engine: Arc<Engine>) {
    let (leads, led) = watch::channel(false);
    tokio::join!(promote(&engine, leads), upkeep::run(&engine, led));
}

/// Keeps the lease, whatever the other duties are at, promotes, lets keyed jobs take their turns, and enqueues periodic jobs.
async fn promote(engine: &Engine, leads: watch::Sender<bool>) {
    let lease = (engine.config.maintenance_interval * 8).max(Duration::from_secs(5));
    let mut led_until: Option<Instant> = None;
    let mut periodic = Periodic::default();
    let mut ticked = Instant::now();
    let mut promoter = Promoter::new();
    while !engine.stopping.is_cancelled() {
        if led_until.is_none_or(|until| Instant::now() + lease / 2 > until) {
            let asked = Instant::now();
            led_until = match lead(engine, lease).await {
                Ok(true) => Some(asked + lease),
                Ok(false) => None,
                Err(error) => {
                    tracing::debug!(%error, "the lease of maintenance could not be asked for");
                    None
                }
            };
            leads.send_replace(led_until.is_some());
        }
        let tick = engine.config.maintenance_interval * 4;
        if led_until.is_some() && ticked.elapsed() >= tick {
            periodic.tick(engine).await;
            ticked = Instant::now();
        }
        let pause = match led_until {
            Some(_) => promoter.turn(engine).await.min(tick),
            None => {
                engine.bell.promoter.forget();
                lease / 4
            }
        };
        let rung = promoter.rung(engine);
        tokio::select! { () = tokio::time::sleep(pause) => {}, () = rung => {}, () = engine.stopping.cancelled() => {} }
    }
}

async fn lead(engine: &Engine, lease: Duration) -> Result<bool, Error> {
    let worker = engine.worker().await?;
    store::lead(&engine.promotion, worker.id, lease).await
}

/// Gives back claims whose answers never came: at once, and again for a while, because a claim may commit after the first try. On a link of its own,
/// which is opened when there is such a claim.
pub(crate) async fn return_uncertain(engine: Arc<Engine>, link: Link) {
    while !engine.stopped.is_cancelled() {
        let open: Vec<(uuid::Uuid, Uncertain)> = engine
            .uncertain
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
            .map(|(token, one)| (*token, *one))
            .collect();
        for (token, one) in open {
            match store::return_claim(&link, one.worker, token).await {
                Ok(0) if one.since.elapsed() > UNCERTAIN_FOR => {
                    engine
                        .uncertain
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .remove(&token);
                }
                Ok(0) => {}
                Ok(jobs) => tracing::info!(jobs, "gave back a claim whose answer was lost"),
                Err(error) => tracing::debug!(%error, "a lost claim could not be given back yet"),
            }
        }
        tokio::select! { () = tokio::time::sleep(Duration::from_secs(1)) => {}, () = engine.stopped.cancelled() => {} }
    }
}
