//! One pass over some documents: what the index shows is compared with Postgres, and what differs
//! is written.

mod run;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use self::run::Run;
use super::decide::Reason;
use super::index::{Index, IndexError, Proof};
use super::source::Source;

/// What is asked for one document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SyncRequest {
    /// Its id.
    pub id: String,
    /// It is to be written although the index has its version: because it would be made otherwise
    /// than it was.
    pub force: bool,
    /// The version of its deletion, if that is what happened.
    pub deleted: Option<i64>,
}

/// What became of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SyncOutcome {
    /// The index was seen to be true: nothing more is to be done.
    Done(Reason),
    /// The index was written. Whether that is true is for a later pass to see.
    Written(Reason),
    /// The index takes nothing of this id, or the row is too large, now and ever.
    Rejected(String),
    /// This document fails by itself: it cannot be made, is refused, or Postgres has lost it.
    Failed(String),
    /// It could not be tried.
    Rescheduled(String),
}

impl SyncOutcome {
    /// What became of a request of which this became in one index and that in another: the worse of
    /// both.
    fn and(self, other: Self) -> Self {
        let badness = |outcome: &Self| match outcome {
            Self::Done(_) => 0,
            // Given up only where nothing is left to be done elsewhere.
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

/// How a pass goes about it.
#[derive(Clone, Copy, Debug)]
pub struct Pass<'a> {
    /// Where the rows are.
    pub source: &'a dyn Source,
    /// Where the documents belong.
    pub index: &'a dyn Index,
    /// What counts as being there.
    pub proof: Proof,
    /// About this many bytes of documents execute in one write.
    pub bytes: usize,
}

/// Why a document is not written that another client has deleted a moment ago.
pub(super) const DELETED_BY_OTHERS: &str = "another client has deleted the document, and the \
     index refuses its version for a while (index.gc_deletes, 60 s)";

/// This many documents are made at once: what is in memory beyond one write.
pub(super) const MADE_AT_ONCE: usize = 250;

impl Pass<'_> {
    /// Goes over these; one outcome for each, in their order. Requests for the same document share
    /// one.
    ///
    /// Where the index stands for [others](Index::targets), each of them must be seen to be true.
    pub async fn run(&self, requests: &[SyncRequest]) -> Vec<SyncOutcome> {
        self.run_within(requests, None).await
    }

    /// As [`run`](Self::run), for so long at most. What became of a document by then counts; what
    /// was not reached is [rescheduled](SyncOutcome::Rescheduled), and a row that takes too long
    /// has [failed](SyncOutcome::Failed).
    pub async fn run_within(
        &self,
        requests: &[SyncRequest],
        limit: Option<Duration>,
    ) -> Vec<SyncOutcome> {
        let run = self.run_each(requests, limit).await;
        run.unwrap_or_else(|IndexError(reason)| {
            vec![SyncOutcome::Rescheduled(reason); requests.len()]
        })
    }

    async fn run_each(
        &self,
        requests: &[SyncRequest],
        limit: Option<Duration>,
    ) -> Result<Vec<SyncOutcome>, IndexError> {
        let targets = self.index.targets().await?;
        let Some((first, others)) = targets.split_first() else {
            return Ok(self.run_one(requests, limit).await);
        };
        let over = |index| Pass { index, ..*self };
        // Each has its share: what one of them lacks is not done.
        let share = limit.map(|limit| limit / u32::try_from(targets.len()).unwrap_or(u32::MAX));
        let mut outcomes = over(&**first).run_one(requests, share).await;
        for other in others {
            let beside = over(&**other).run_one(requests, share).await;
            let both = outcomes.into_iter().zip(beside);
            outcomes = both.map(|(one, other)| one.and(other)).collect();
        }
        // What was begun meanwhile lacks what was seen in the others alone.
        let after = self.index.targets().await?;
        let labels = |all: &[Arc<dyn Index>]| -> Vec<String> {
            all.iter().map(|index| index.label()).collect()
        };
        if labels(&after) != labels(&targets) {
            let done = outcomes
                .iter_mut()
                .filter(|outcome| matches!(outcome, SyncOutcome::Done(_)));
            done.for_each(|outcome| {
                *outcome = SyncOutcome::Rescheduled("another index was begun meanwhile".into())
            });
        }
        Ok(outcomes)
    }

    async fn run_one(&self, requests: &[SyncRequest], limit: Option<Duration>) -> Vec<SyncOutcome> {
        let mut run = Run::new(*self, requests, limit);
        let went = match limit {
            Some(limit) => timeout(limit, run.execute()).await.unwrap_or(Ok(())),
            None => run.execute().await,
        };
        // What has no outcome then comes again.
        let left = match (went, limit) {
            (Err(IndexError(reason)), _) => reason,
            (Ok(()), Some(limit)) => late(limit),
            (Ok(()), None) => "was not checked".into(),
        };
        let outcomes = requests.iter().map(|request| {
            let rescheduled = || SyncOutcome::Rescheduled(left.clone());
            run.outcome(&request.id).unwrap_or_else(rescheduled)
        });
        outcomes.collect()
    }
}

fn late(limit: Duration) -> String {
    format!("not seen within {} s", limit.as_secs_f32())
}
