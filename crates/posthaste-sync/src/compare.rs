//! One pass over some documents: what the index shows is compared with Postgres, and what differs
//! is written.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::decide::{Reason, Seen, Step, Truth, decide};
use super::halves::{Halves, Patience, halves_within};
use super::index::{Index, IndexError, Proof, Write, Written};
use super::source::{Body, Row, RowVersion, Source};

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
    /// The index takes nothing of this id, now and ever.
    Rejected(String),
    /// This document is in the way of itself: it cannot be made, is refused, or Postgres has lost
    /// it.
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
    /// About this many bytes of documents go in one write.
    pub bytes: usize,
}

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
            Some(limit) => timeout(limit, run.go()).await.unwrap_or(Ok(())),
            None => run.go().await,
        };
        // What has no outcome then comes again.
        let left = match (went, limit) {
            (Err(IndexError(reason)), _) => reason,
            (Ok(()), Some(limit)) => late(limit),
            (Ok(()), None) => "was not looked at".into(),
        };
        let outcomes = requests.iter().map(|request| {
            let outcome = &run.documents[run.places[&request.id]].outcome;
            let rescheduled = || SyncOutcome::Rescheduled(left.clone());
            outcome.clone().unwrap_or_else(rescheduled)
        });
        outcomes.collect()
    }
}

fn late(limit: Duration) -> String {
    format!("not seen within {} s", limit.as_secs_f32())
}

/// One document of a pass.
struct Document {
    request: SyncRequest,
    seen: Option<Seen>,
    is_made: bool,
    /// There was no time to read its row.
    is_left: bool,
    outcome: Option<SyncOutcome>,
}

impl Document {
    /// Nothing more is to be found out about it in this pass.
    fn is_over(&self) -> bool {
        self.outcome.is_some() || self.is_left
    }

    /// What is known of it, given its row.
    fn truth(&self, row: Option<(i64, bool)>) -> Truth {
        match (row, self.request.deleted) {
            (Some((version, true)), _) => Truth::Live { version },
            (Some((version, false)), None) => Truth::Hidden { version },
            (Some((version, false)), Some(deleted)) if deleted <= version => {
                Truth::Hidden { version }
            }
            (_, Some(version)) => Truth::Dead { version },
            (None, None) => Truth::Gone,
        }
    }
}

struct Run<'a> {
    pass: Pass<'a>,
    documents: Vec<Document>,
    places: HashMap<String, usize>,
    /// Tells our writes from those of others.
    token: i64,
    until: Option<Instant>,
}

/// What is to be written next.
#[derive(Default)]
struct Batch {
    writes: Vec<(usize, Reason, Write)>,
    bytes: usize,
}

impl<'a> Run<'a> {
    fn new(pass: Pass<'a>, requests: &[SyncRequest], limit: Option<Duration>) -> Self {
        let mut documents: Vec<Document> = Vec::with_capacity(requests.len());
        let mut places = HashMap::with_capacity(requests.len());
        for request in requests {
            let place = *places.entry(request.id.clone()).or_insert(documents.len());
            let Some(known) = documents.get_mut(place) else {
                documents.push(Document {
                    request: request.clone(),
                    seen: None,
                    is_made: false,
                    is_left: false,
                    outcome: None,
                });
                continue;
            };
            known.request.force |= request.force;
            known.request.deleted = known.request.deleted.max(request.deleted);
        }
        Self {
            pass,
            documents,
            places,
            token: fastrand::i64(1..),
            until: limit.map(|limit| Instant::now() + limit),
        }
    }

    /// How long rows may be read now: this part of the time that is left, so that what is made is
    /// also written and seen.
    fn patience(&self, part: u32) -> Option<Patience> {
        let left = |until: Instant| until.saturating_duration_since(Instant::now());
        self.until.map(|until| Patience::of(left(until) / part))
    }

    async fn go(&mut self) -> Result<(), IndexError> {
        // The index before Postgres: what it has then that Postgres has not was never committed, or
        // is lost.
        let ids: Vec<String> = self
            .documents
            .iter()
            .map(|one| one.request.id.clone())
            .collect();
        let seen = self.pass.index.read(&ids, self.pass.proof).await?;
        for (document, seen) in self.documents.iter_mut().zip(seen) {
            document.seen = seen;
        }
        let mut batch = Batch::default();
        // What the index lacks is made in any case; of the rest the versions are asked first,
        // because most is true already.
        let (lacking, shown): (Vec<String>, Vec<String>) = ids.into_iter().partition(|id| {
            let document = &self.documents[self.places[id]];
            document.seen.is_none()
        });
        let mut to_make = lacking;
        let versions = self.versions(&shown).await?;
        for id in shown {
            let at = self.places[&id];
            let document = &self.documents[at];
            if !document.is_over() {
                let row = versions.get(&id);
                let truth = document.truth(row.map(|row| (row.version, row.is_live)));
                match decide(truth, document.seen, document.request.force) {
                    Step::Write(..) => to_make.push(id),
                    step => self.take(at, step, None, &mut batch).await?,
                }
            }
        }
        let patience = self.patience(2);
        for ids in to_make.chunks(MADE_AT_ONCE) {
            if patience.is_some_and(Patience::is_over) {
                break;
            }
            for row in self.rows(ids, patience).await? {
                self.made(row, &mut batch).await?;
            }
            for id in ids {
                self.unmade(self.places[id], &mut batch).await?;
            }
        }
        self.flush(&mut batch).await?;
        self.see_forced().await
    }

    /// The row may be a newer one than the one that was decided on: it is decided again.
    async fn made(&mut self, row: Row, batch: &mut Batch) -> Result<(), IndexError> {
        let Some(&at) = self.places.get(&row.id) else {
            return Ok(());
        };
        let document = &mut self.documents[at];
        document.is_made = true;
        let text = match row.body {
            Body::Unmade(reason) => {
                document.outcome = Some(SyncOutcome::Failed(reason));
                return Ok(());
            }
            Body::Document(text) => Some(text),
            Body::Hidden => None,
        };
        let truth = document.truth(Some((row.version, text.is_some())));
        let step = decide(truth, document.seen, document.request.force);
        self.take(at, step, text, batch).await
    }

    /// There was no row for it, if it is not made by now.
    async fn unmade(&mut self, at: usize, batch: &mut Batch) -> Result<(), IndexError> {
        let document = &mut self.documents[at];
        if document.is_made || document.is_over() {
            return Ok(());
        }
        if document.seen.is_some() {
            // Deleted between the two looks: its deletion has a job of its own.
            document.outcome = Some(SyncOutcome::Rescheduled("was deleted meanwhile".into()));
            return Ok(());
        }
        let step = decide(document.truth(None), None, document.request.force);
        self.take(at, step, None, batch).await
    }

    async fn take(
        &mut self,
        at: usize,
        step: Step,
        document: Option<String>,
        batch: &mut Batch,
    ) -> Result<(), IndexError> {
        let (mark, reason) = match step {
            Step::Write(mark, reason) | Step::Delete(mark, reason) => (mark, reason),
            Step::Done(reason) => {
                self.documents[at].outcome = Some(SyncOutcome::Done(reason));
                return Ok(());
            }
            Step::Ahead(mark) => {
                let version = mark.version;
                let problem = format!(
                    "the index has version {version}, which Postgres does not know: \
                     if commits were lost, posthaste.sync_raise() goes beyond it"
                );
                self.documents[at].outcome = Some(SyncOutcome::Failed(problem));
                return Ok(());
            }
        };
        let bytes = document.as_ref().map_or(0, String::len);
        if !batch.writes.is_empty() && batch.bytes + bytes > self.pass.bytes {
            self.flush(batch).await?;
        }
        batch.bytes += bytes;
        let write = Write {
            id: self.documents[at].request.id.clone(),
            mark,
            token: self.token,
            document,
        };
        batch.writes.push((at, reason, write));
        Ok(())
    }

    async fn flush(&mut self, batch: &mut Batch) -> Result<(), IndexError> {
        let Batch { writes, .. } = std::mem::take(batch);
        if writes.is_empty() {
            return Ok(());
        }
        let (places, writes): (Vec<_>, Vec<_>) = writes
            .into_iter()
            .map(|(at, reason, write)| ((at, reason), write))
            .unzip();
        let answers = self.pass.index.write(&writes).await?;
        for (((at, reason), write), answer) in places.into_iter().zip(writes).zip(answers) {
            let document = &mut self.documents[at];
            let nothing_is_there = document.seen.is_none() && write.document.is_none();
            document.outcome = Some(match answer {
                Written::Taken | Written::Older => SyncOutcome::Written(reason),
                // What not even takes the mark of a deletion takes no late write either.
                Written::Rejected { .. } | Written::Never { .. } if nothing_is_there => {
                    SyncOutcome::Done(Reason::Neither)
                }
                Written::Never { reason } => SyncOutcome::Rejected(reason),
                Written::Rejected { reason } => SyncOutcome::Failed(reason),
                Written::Retry { reason } => SyncOutcome::Rescheduled(reason),
            });
            document.seen = Some(Seen {
                mark: write.mark,
                token: write.token,
                is_live: write.document.is_some(),
                is_altered: false,
            });
        }
        Ok(())
    }

    /// What was written on purpose is done when it is seen with our token: nothing else tells it
    /// from the same version as it was before.
    async fn see_forced(&mut self) -> Result<(), IndexError> {
        let forced = SyncOutcome::Written(Reason::Forced);
        let of = |one: &&mut Document| one.outcome.as_ref() == Some(&forced);
        let mut written: Vec<&mut Document> = self.documents.iter_mut().filter(of).collect();
        if written.is_empty() {
            return Ok(());
        }
        let ids: Vec<String> = written.iter().map(|one| one.request.id.clone()).collect();
        // Not seen is not failed: the job comes again.
        let Ok(seen) = self.pass.index.read(&ids, self.pass.proof).await else {
            return Ok(());
        };
        for (document, seen) in written.iter_mut().zip(seen) {
            if seen.is_some() && seen == document.seen {
                document.outcome = Some(SyncOutcome::Done(Reason::Forced));
            }
        }
        Ok(())
    }

    /// Versions by id; a row of which none can be read has failed.
    async fn versions(
        &mut self,
        ids: &[String],
    ) -> Result<HashMap<String, RowVersion>, IndexError> {
        let (source, patience) = (self.pass.source, self.patience(3));
        let all = halves_within(patience, ids, |part| source.versions(part)).await?;
        let read = self.read(all).into_iter();
        Ok(read.map(|row| (row.id.clone(), row)).collect())
    }

    async fn rows(
        &mut self,
        ids: &[String],
        patience: Option<Patience>,
    ) -> Result<Vec<Row>, IndexError> {
        let source = self.pass.source;
        let all = halves_within(patience, ids, |part| source.rows(part)).await?;
        Ok(self.read(all))
    }

    /// What was read. What could not be has failed; what there was no time for has no outcome, and
    /// none is looked for.
    fn read<T>(&mut self, all: Halves<T>) -> Vec<T> {
        for (id, reason) in all.unreadable {
            self.documents[self.places[&id]].outcome = Some(SyncOutcome::Failed(reason));
        }
        for id in all.unasked {
            self.documents[self.places[&id]].is_left = true;
        }
        all.read
    }
}
