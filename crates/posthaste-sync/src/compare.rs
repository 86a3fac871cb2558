//! One pass over some documents: it compares the index with Postgres, and writes the documents that
//! differ.

mod run;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use self::run::PassRun;
use super::decide::Reason;
use super::index::{Index, IndexError, Proof};
use super::source::Source;

/// A request to check one document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SyncRequest {
    /// The id of the document.
    pub id: String,
    /// Whether the document is written although the index has its version, because it would be made
    /// differently now.
    pub force: bool,
    /// The version of the deletion, if the row was deleted.
    pub deleted: Option<i64>,
}

/// The outcome of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SyncOutcome {
    /// The index was verified to be consistent: nothing remains to be done.
    Done(Reason),
    /// The index was written. A later pass verifies the write.
    Written(Reason),
    /// The index can never accept this id, or the row is too large.
    Rejected(String),
    /// This document fails by itself: it cannot be made, the index refuses it, or Postgres has lost
    /// it.
    Failed(String),
    /// The request could not be tried.
    Rescheduled(String),
}

impl SyncOutcome {
    /// Combines the outcomes of one request in two indexes: the worse one counts.
    fn worse(self, other: Self) -> Self {
        let badness = |outcome: &Self| match outcome {
            Self::Done(_) => 0,
            // Rejected only if nothing remains to be done in the other index.
            Self::Rejected(_) => 1,
            Self::Written(_) => 2,
            Self::Rescheduled(_) => 3,
            Self::Failed(_) => 4,
        };
        if badness(&other) > badness(&self) {
            other
        } else {
            self
        }
    }
}

/// The options of a pass.
#[derive(Clone, Copy, Debug)]
pub struct Pass<'a> {
    /// The source of the rows.
    pub source: &'a dyn Source,
    /// The index of the documents.
    pub index: &'a dyn Index,
    /// The condition under which a document counts as indexed.
    pub proof: Proof,
    /// The approximate size of one write in bytes of documents.
    pub bytes: usize,
}

/// The reason why the index refuses a document that another client deleted recently.
pub(super) const DELETED_BY_OTHERS: &str = "another client has deleted the document, and the \
     index refuses its version for a while (index.gc_deletes, 60 s)";

/// The most documents that are made at once: the documents in memory beyond one write.
pub(super) const MAKE_BATCH: usize = 250;

impl Pass<'_> {
    /// Compares these documents with their rows, writes those that differ, and returns one outcome
    /// for each request, in the same order. Requests for the same document share one outcome.
    ///
    /// If the index represents [others](Index::targets), each of them must be verified.
    pub async fn run(&self, requests: &[SyncRequest]) -> Vec<SyncOutcome> {
        self.run_within(requests, None).await
    }

    /// As [`run`](Self::run), within this time limit. Outcomes that are known by then count;
    /// requests that were not reached are [rescheduled](SyncOutcome::Rescheduled), and a row that
    /// takes too long has [failed](SyncOutcome::Failed).
    pub async fn run_within(
        &self,
        requests: &[SyncRequest],
        limit: Option<Duration>,
    ) -> Vec<SyncOutcome> {
        let run = self.sync_to_all_targets(requests, limit).await;
        run.unwrap_or_else(|IndexError(reason)| {
            vec![SyncOutcome::Rescheduled(reason); requests.len()]
        })
    }

    async fn sync_to_all_targets(
        &self,
        requests: &[SyncRequest],
        limit: Option<Duration>,
    ) -> Result<Vec<SyncOutcome>, IndexError> {
        let targets = self.index.targets().await?;
        let Some((first, others)) = targets.split_first() else {
            return Ok(self.sync_to_one_target(requests, limit).await);
        };
        let over = |index| Pass { index, ..*self };
        // Each index has its share of the time: a request that one of them did not reach is not
        // done.
        let share = limit.map(|limit| limit / u32::try_from(targets.len()).unwrap_or(u32::MAX));
        let mut outcomes = over(&**first).sync_to_one_target(requests, share).await;
        for other in others {
            let beside = over(&**other).sync_to_one_target(requests, share).await;
            let both = outcomes.into_iter().zip(beside);
            outcomes = both.map(|(one, other)| one.worse(other)).collect();
        }
        // An index that was begun during this pass lacks the documents that were verified in the
        // others only.
        let after = self.index.targets().await?;
        let labels = |all: &[Arc<dyn Index>]| -> Vec<String> {
            all.iter().map(|index| index.label()).collect()
        };
        if labels(&after) != labels(&targets) {
            let done = outcomes
                .iter_mut()
                .filter(|outcome| matches!(outcome, SyncOutcome::Done(_)));
            done.for_each(|outcome| {
                *outcome = SyncOutcome::Rescheduled("another index was started meanwhile".into())
            });
        }
        Ok(outcomes)
    }

    async fn sync_to_one_target(
        &self,
        requests: &[SyncRequest],
        limit: Option<Duration>,
    ) -> Vec<SyncOutcome> {
        let mut run = PassRun::new(*self, requests, limit);
        let went = match limit {
            Some(limit) => timeout(limit, run.execute()).await.unwrap_or(Ok(())),
            None => run.execute().await,
        };
        // Requests without an outcome are rescheduled.
        let left = match (went, limit) {
            (Err(IndexError(reason)), _) => reason,
            (Ok(()), Some(limit)) => timeout_reason(limit),
            (Ok(()), None) => "was not checked".into(),
        };
        let outcomes = requests.iter().map(|request| {
            let rescheduled = || SyncOutcome::Rescheduled(left.clone());
            run.outcome(&request.id).unwrap_or_else(rescheduled)
        });
        outcomes.collect()
    }
}

fn timeout_reason(limit: Duration) -> String {
    format!("not seen within {} s", limit.as_secs_f32())
}
