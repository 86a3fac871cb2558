//! Searches for a claim of an ordered consumer whose answer was lost, before its queue claims
//! again, so that its jobs stay before later ones. For other consumers such a claim is given back.

use std::sync::Arc;

use parking_lot::MutexGuard;
use uuid::Uuid;

use super::pending::PendingClaim;
use super::{AnsweredClaim, ClaimResult, Claimer, QueueClaimer};
use crate::error::Error;
use crate::identity::Identity;
use crate::parts::gate::GatePass;
use crate::store;

/// The most searches without an answer before the claim is given back.
const MAX_SEARCHES: u32 = 5;

/// A claim without an answer.
pub(super) struct UnansweredClaim {
    pub(super) worker: Arc<Identity>,
    pub(super) token: Arc<Uuid>,
    /// The lanes from which it claimed.
    priorities: Vec<i32>,
    asked: u32,
}

impl UnansweredClaim {
    fn resume<'a>(&self, claimer: &'a Claimer) -> PendingClaim<'a> {
        PendingClaim::resume(claimer, &self.worker, &self.token)
    }
}

impl QueueClaimer {
    /// Handles a failed claim, which may have committed.
    pub(super) fn claim_failed(&self, sent: PendingClaim<'_>, priorities: Vec<i32>, error: &Error) {
        let is_ordered = self.queue.consumer.is_ordered();
        if !is_ordered || !error.is_connection() || !error.leaves_in_doubt() {
            return sent.end_failed(error);
        }
        self.remember_lost(sent, priorities);
    }

    /// Handles a committed claim whose jobs could not be read.
    pub(super) fn claim_unread(&self, sent: PendingClaim<'_>, priorities: Vec<i32>) {
        if self.queue.consumer.is_ordered() {
            self.remember_lost(sent, priorities);
        }
        // The claim of any other consumer is given back when it is dropped.
    }

    fn remember_lost(&self, sent: PendingClaim<'_>, priorities: Vec<i32>) {
        let (worker, token) = sent.into_unanswered();
        *self.lost_claim() = Some(UnansweredClaim {
            worker,
            token,
            priorities,
            asked: 0,
        });
    }

    /// Returns the next jobs: those of a claim whose answer was lost, else those of a new one.
    pub(super) async fn find_or_claim<'a>(
        &'a self,
        room: usize,
        passed: GatePass<'a>,
    ) -> Result<ClaimResult, Error> {
        match self.find_lost().await? {
            None => self.claim(room, passed).await,
            Some(found) => Ok(found),
        }
    }

    /// Delivers the jobs of the lost claim; `None` if no claim was lost, or it has taken nothing
    /// yet. Without an answer the search is repeated later; after any other error its jobs are
    /// given back.
    async fn find_lost(&self) -> Result<Option<ClaimResult>, Error> {
        let Some(mut lost) = self.lost_claim().take() else {
            return Ok(None);
        };
        let sent = lost.resume(&self.claimer);
        let (link, name, lanes) = (&self.claimer.link, &self.queue.name, &lost.priorities);
        let found = match store::claim_batches(link, name, lanes, lost.worker.id, *lost.token).await
        {
            // Read even if there are none: a leader may have moved its jobs to posthaste.in_flight.
            Ok(unread) => self.claimer.read(&sent, &unread).await,
            Err(error) => Err(error),
        };
        match found {
            // It may still be in flight to the server, so jobs that it takes later are given back.
            Ok(read) if read.len() == 0 => Ok(None),
            Ok(read) => {
                let jobs = read.len();
                tracing::info!(queue = &**name, jobs, "found a claim whose answer was lost");
                let rows = Vec::new();
                let is_short = false;
                let made = AnsweredClaim {
                    sent,
                    rows,
                    read,
                    is_short,
                };
                self.deliver_claim(made).map(Some)
            }
            Err(error) => {
                lost.asked += u32::from(error.leaves_in_doubt());
                if error.is_connection() && lost.asked < MAX_SEARCHES {
                    sent.into_unanswered();
                    *self.lost_claim() = Some(lost);
                }
                Err(error)
            }
        }
    }

    /// Gives back a lost claim, because this process claims no more.
    pub(super) fn give_back_lost(&self) {
        if let Some(lost) = self.lost_claim().take() {
            drop(lost.resume(&self.claimer));
        }
    }

    /// The claim to be searched for before the next one is made.
    fn lost_claim(&self) -> MutexGuard<'_, Option<UnansweredClaim>> {
        self.lost.lock()
    }
}
