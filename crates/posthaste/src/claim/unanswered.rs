//! Claims whose answers never came: what they took is given back.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::store;
use crate::store::link::Link;

/// How long a claim without an answer may still commit on the server.
const UNCERTAIN_FOR: Duration = Duration::from_secs(120);

/// Claims that may have been committed although no answer came, by their tokens.
#[derive(Default)]
pub(crate) struct Unanswered(Mutex<HashMap<Uuid, Uncertain>>);

#[derive(Clone, Copy)]
struct Uncertain {
    worker: i64,
    since: Instant,
}

impl Unanswered {
    /// Remembers a claim.
    pub(super) fn add(&self, worker: i64, token: Uuid) {
        let since = Instant::now();
        self.claims().insert(token, Uncertain { worker, since });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.claims().is_empty()
    }

    fn claims(&self) -> MutexGuard<'_, HashMap<Uuid, Uncertain>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Gives them back: at once, and again for a while, because a claim may commit after the first try.
/// On a link of its own, which is opened when there is such a claim.
pub(crate) async fn give_back(unanswered: Arc<Unanswered>, link: Link, stopped: CancellationToken) {
    while !stopped.is_cancelled() {
        let open = unanswered.claims().clone();
        for (token, one) in open {
            match store::return_claim(&link, one.worker, token).await {
                Ok(0) if one.since.elapsed() > UNCERTAIN_FOR => {
                    unanswered.claims().remove(&token);
                }
                Ok(0) => {}
                Ok(jobs) => tracing::info!(jobs, "gave back a claim whose answer was lost"),
                Err(error) => tracing::debug!(%error, "a lost claim could not be given back yet"),
            }
        }
        tokio::select! {
            () = tokio::time::sleep(Duration::from_secs(1)) => {}
            () = stopped.cancelled() => {}
        }
    }
}
