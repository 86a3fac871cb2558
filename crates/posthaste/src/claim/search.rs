//! A claim of an ordered consumer whose answer was lost: what it took is looked for before its
//! queue claims again, so that its jobs stay in front of those that come behind them. What another
//! queue lost is given back.

use std::sync::Arc;

use parking_lot::MutexGuard;
use uuid::Uuid;

use super::pending::PendingClaim;
use super::{AnsweredClaim, ClaimResult, Claimer, Fetcher};
use crate::error::Error;
use crate::identity::Identity;
use crate::parts::gate::Passed;
use crate::store;

/// So often no answer comes to the question either; then it is given back.
const ASKED: u32 = 5;

/// What is known of it.
pub(super) struct UnansweredClaim {
    pub(super) worker: Arc<Identity>,
    pub(super) token: Arc<Uuid>,
    /// The lanes that it was for.
    priorities: Vec<i32>,
    asked: u32,
}

impl UnansweredClaim {
    fn resume<'a>(&self, claimer: &'a Claimer) -> PendingClaim<'a> {
        PendingClaim::again(claimer, &self.worker, &self.token)
    }
}

impl Fetcher {
    /// A claim failed: whether it took anything may not be known.
    pub(super) fn claim_failed(&self, sent: PendingClaim<'_>, priorities: Vec<i32>, error: &Error) {
        let is_ordered = self.queue.consumer.is_ordered();
        if !is_ordered || !error.is_connection() || !error.leaves_in_doubt() {
            return sent.failed(error);
        }
        self.look_for(sent, priorities);
    }

    /// A claim stands, and its jobs could not be read.
    pub(super) fn claim_unread(&self, sent: PendingClaim<'_>, priorities: Vec<i32>) {
        if self.queue.consumer.is_ordered() {
            self.look_for(sent, priorities);
        }
        // Any other is given back as it is dropped.
    }

    fn look_for(&self, sent: PendingClaim<'_>, priorities: Vec<i32>) {
        let (worker, token) = sent.keep();
        *self.lost() = Some(UnansweredClaim {
            worker,
            token,
            priorities,
            asked: 0,
        });
    }

    /// The next jobs: those of a claim whose answer was lost, else those of a new one.
    pub(super) async fn find_or_claim<'a>(
        &'a self,
        room: usize,
        passed: Passed<'a>,
    ) -> Result<ClaimResult, Error> {
        match self.find().await? {
            None => self.claim(room, passed).await,
            Some(found) => Ok(found),
        }
    }

    /// Hands over what the lost claim took; none where no claim was lost, or it took nothing until
    /// now. Without an answer it is looked for again; whatever else goes wrong, its jobs are given
    /// back.
    async fn find(&self) -> Result<Option<ClaimResult>, Error> {
        let Some(mut lost) = self.lost().take() else {
            return Ok(None);
        };
        let sent = lost.resume(&self.claimer);
        let (link, name, lanes) = (&self.claimer.link, &self.queue.name, &lost.priorities);
        let found = match store::claim_batches(link, name, lanes, lost.worker.id, *lost.token).await
        {
            // Also where there are none: a leader may have moved its jobs to posthaste.in_flight.
            Ok(unread) => self.claimer.read(&sent, &unread).await,
            Err(error) => Err(error),
        };
        match found {
            // It may still be on its way to the server, so what it takes later is given back.
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
                self.hand_over(made).map(Some)
            }
            Err(error) => {
                lost.asked += u32::from(error.leaves_in_doubt());
                if error.is_connection() && lost.asked < ASKED {
                    sent.keep();
                    *self.lost() = Some(lost);
                }
                Err(error)
            }
        }
    }

    /// Nobody works them here any more.
    pub(super) fn give_back_lost(&self) {
        if let Some(lost) = self.lost().take() {
            drop(lost.resume(&self.claimer));
        }
    }

    /// The claim that is to be looked for before the next one is made.
    fn lost(&self) -> MutexGuard<'_, Option<UnansweredClaim>> {
        self.lost.lock()
    }
}
