//! Claims that this process no longer tracks but that may still be open in the database, because an
//! answer never came or the server lost one. Their jobs are returned to the queue.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::parts::doubted::DoubtedWorkers;
use crate::store;
use crate::store::reconnecting::ReconnectingClient;

/// Time for which a claim without an answer may still commit on the server.
const MAX_COMMIT_DELAY: Duration = Duration::from_secs(120);

/// Claims, by token, that may be open without a worker that runs their jobs.
#[derive(Default)]
pub(crate) struct Unanswered {
    claims: Mutex<HashMap<Uuid, UncertainClaim>>,
    held: Mutex<HeldClaims>,
    pub(crate) doubted: Arc<DoubtedWorkers>,
}

#[derive(Clone, Copy, Debug)]
struct UncertainClaim {
    worker: i64,
    since: Instant,
    /// Whether it was found in the database, so that it will not commit later.
    is_found: bool,
}

impl UncertainClaim {
    fn may_no_longer_commit(&self) -> bool {
        self.is_found || self.since.elapsed() > MAX_COMMIT_DELAY
    }
}

/// Claims with references in this process.
#[derive(Default)]
struct HeldClaims {
    tokens: Vec<Weak<Uuid>>,
    /// The number of tokens at which dropped ones are removed.
    remove_at: usize,
}

impl Unanswered {
    /// Records a claim to be given back.
    pub(super) fn add(&self, worker: i64, token: Uuid) {
        let uncertain = UncertainClaim {
            worker,
            since: Instant::now(),
            is_found: false,
        };
        self.claims().insert(token, uncertain);
    }

    /// Returns a token. While it lives, the claim is not given back here: it is in flight, its jobs
    /// are in this process, or their acknowledgement has no answer yet.
    pub(super) fn hold(&self, token: Uuid) -> Arc<Uuid> {
        let token = Arc::new(token);
        let mut held = self.held.lock();
        if held.tokens.len() >= held.remove_at {
            held.tokens.retain(|one| one.strong_count() > 0);
            held.remove_at = (held.tokens.len() * 2).max(64);
        }
        held.tokens.push(Arc::downgrade(&token));
        token
    }

    fn is_held(&self, token: Uuid) -> bool {
        let held = self.held.lock();
        let is_it = |one: &Weak<Uuid>| one.upgrade().is_some_and(|held| *held == token);
        held.tokens.iter().any(is_it)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.claims().is_empty() && self.doubted.is_empty()
    }

    fn claims(&self) -> MutexGuard<'_, HashMap<Uuid, UncertainClaim>> {
        self.claims.lock()
    }

    /// Reads the open claims of workers whose acknowledgements may have been lost. Claims with
    /// references in this process are checked again when these are dropped.
    async fn find_open_claims(&self, link: &ReconnectingClient) {
        for worker in self.doubted.take() {
            match store::open_tokens(link, worker).await {
                Ok(tokens) => {
                    let found = UncertainClaim {
                        worker,
                        since: Instant::now(),
                        is_found: true,
                    };
                    let mut claims = self.claims();
                    for token in tokens {
                        claims.entry(token).or_insert(found);
                    }
                }
                Err(error) => {
                    tracing::debug!(%error, "open claims could not be searched for yet");
                    self.doubted.add(worker);
                }
            }
        }
    }

    async fn give_back(&self, link: &ReconnectingClient) {
        let open = self.claims().clone();
        for (token, one) in open {
            if self.is_held(token) {
                continue;
            }
            match store::return_claim(link, one.worker, token).await {
                Ok(0) if one.may_no_longer_commit() => {
                    self.claims().remove(&token);
                }
                Ok(0) => {}
                Ok(jobs) if one.is_found => {
                    tracing::warn!(
                        jobs,
                        "returned jobs to the queue: the server lost their acknowledgements in a \
                         crash"
                    );
                }
                Ok(jobs) => tracing::info!(jobs, "released a claim whose answer was lost"),
                Err(error) => tracing::debug!(%error, "a lost claim could not be released yet"),
            }
        }
    }
}

/// Gives back such claims at once and again for a while, because a claim may commit after the first
/// attempt. The connection is separate, and opened on demand.
pub(crate) async fn give_back(
    unanswered: Arc<Unanswered>,
    link: ReconnectingClient,
    stopped: CancellationToken,
) {
    while !stopped.is_cancelled() {
        unanswered.find_open_claims(&link).await;
        unanswered.give_back(&link).await;
        tokio::select! {
            () = tokio::time::sleep(Duration::from_secs(1)) => {}
            () = stopped.cancelled() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Unanswered;
    use uuid::Uuid;

    #[test]
    fn a_claim_stays_open_until_its_last_job_is_settled() {
        let unanswered = Unanswered::default();
        let (one, other) = (Uuid::new_v4(), Uuid::new_v4());
        let held = unanswered.hold(one);
        let again = std::sync::Arc::clone(&held);
        for _ in 0..1000 {
            drop(unanswered.hold(other));
        }
        assert!(unanswered.is_held(one) && !unanswered.is_held(other));
        drop(held);
        assert!(unanswered.is_held(one));
        drop(again);
        assert!(!unanswered.is_held(one));
        let held = unanswered.held.lock();
        assert!(held.tokens.len() <= 64);
    }
}
