//! One pass over documents: read the rows, make, write and verify the documents.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use super::{DELETED_BY_OTHERS, MAKE_BATCH, Pass, SyncOutcome, SyncRequest};
use crate::bisect::{PartialRead, ReadBudget, bisect_read_within};
use crate::decide::{IndexedVersion, Reason, RowState, SyncStep, decide};
use crate::index::{IndexError, Proof, Write, WriteOutcome};
use crate::source::{Body, Row, RowVersion};

/// One document of a pass.
struct PassDocument {
    request: SyncRequest,
    seen: Option<IndexedVersion>,
    is_made: bool,
    /// Whether no time was left to read its row.
    is_left: bool,
    outcome: Option<SyncOutcome>,
}

impl PassDocument {
    /// Returns whether this pass is finished with the document.
    fn is_finished(&self) -> bool {
        self.outcome.is_some() || self.is_left
    }

    /// Returns the state of the row, given its version and whether searches may find it.
    fn row_state(&self, row: Option<(i64, bool)>) -> RowState {
        match (row, self.request.deleted) {
            (Some((version, true)), _) => RowState::Live { version },
            (Some((version, false)), None) => RowState::Hidden { version },
            (Some((version, false)), Some(deleted)) if deleted <= version => {
                RowState::Hidden { version }
            }
            (_, Some(version)) => RowState::Dead { version },
            (None, None) => RowState::Gone,
        }
    }
}

pub(super) struct PassRun<'a> {
    pass: Pass<'a>,
    documents: Vec<PassDocument>,
    places: HashMap<String, usize>,
    /// Distinguishes the writes of this pass from those of others.
    token: i64,
    until: Option<Instant>,
}

/// The writes of the next request.
#[derive(Default)]
struct WriteBatch {
    writes: Vec<(usize, Reason, Write)>,
    bytes: usize,
}

impl<'a> PassRun<'a> {
    pub(super) fn new(pass: Pass<'a>, requests: &[SyncRequest], limit: Option<Duration>) -> Self {
        let mut documents: Vec<PassDocument> = Vec::with_capacity(requests.len());
        let mut places = HashMap::with_capacity(requests.len());
        for request in requests {
            let place = *places.entry(request.id.clone()).or_insert(documents.len());
            let Some(known) = documents.get_mut(place) else {
                documents.push(PassDocument {
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

    /// Returns the outcome of a document, if it is known.
    pub(super) fn outcome(&self, id: &str) -> Option<SyncOutcome> {
        let place = self.places.get(id)?;
        self.documents[*place].outcome.clone()
    }

    /// Returns the time limits for reading rows: this fraction of the remaining time, so that
    /// documents can also be written and verified.
    fn read_budget(&self, part: u32) -> Option<ReadBudget> {
        let left = |until: Instant| until.saturating_duration_since(Instant::now());
        self.until.map(|until| ReadBudget::new(left(until) / part))
    }

    pub(super) async fn execute(&mut self) -> Result<(), IndexError> {
        // The index is read before Postgres: a version that only the index has was then never
        // committed, or was lost.
        let ids: Vec<String> = self
            .documents
            .iter()
            .map(|one| one.request.id.clone())
            .collect();
        let seen = self.pass.index.read(&ids, self.pass.proof).await?;
        for (document, seen) in self.documents.iter_mut().zip(seen) {
            document.seen = seen;
        }
        let mut batch = WriteBatch::default();
        // Documents that the index lacks are made in any case. For the others the versions are read
        // first, because most are equal already.
        let (lacking, shown): (Vec<String>, Vec<String>) = ids.into_iter().partition(|id| {
            let document = &self.documents[self.places[id]];
            document.seen.is_none()
        });
        let mut to_make = lacking;
        let versions = self.read_versions(&shown).await?;
        for id in shown {
            let at = self.places[&id];
            let document = &self.documents[at];
            if !document.is_finished() {
                let row = versions.get(&id);
                let row_state = document.row_state(row.map(|row| (row.version, row.is_live)));
                match decide(row_state, document.seen, document.request.force) {
                    SyncStep::Write(..) => to_make.push(id),
                    step => self.apply_step(at, step, None, &mut batch).await?,
                }
            }
        }
        let budget = self.read_budget(2);
        for ids in to_make.chunks(MAKE_BATCH) {
            if budget.is_some_and(ReadBudget::is_over) {
                break;
            }
            for row in self.read_rows(ids, budget).await? {
                self.add_made_document(row, &mut batch).await?;
            }
            for id in ids {
                self.handle_missing_row(self.places[id], &mut batch).await?;
            }
        }
        self.send_writes(&mut batch).await?;
        self.confirm_forced_writes().await
    }

    /// Decides again and adds the write: the row may be newer than the version that was decided on.
    async fn add_made_document(
        &mut self,
        row: Row,
        batch: &mut WriteBatch,
    ) -> Result<(), IndexError> {
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
        let row_state = document.row_state(Some((row.version, text.is_some())));
        let step = decide(row_state, document.seen, document.request.force);
        self.apply_step(at, step, text, batch).await
    }

    /// Handles a document whose row was not found.
    async fn handle_missing_row(
        &mut self,
        at: usize,
        batch: &mut WriteBatch,
    ) -> Result<(), IndexError> {
        let document = &mut self.documents[at];
        if document.is_made || document.is_finished() {
            return Ok(());
        }
        if document.seen.is_some() {
            // Deleted between the two reads: its deletion has a job of its own.
            document.outcome = Some(SyncOutcome::Rescheduled("was deleted meanwhile".into()));
            return Ok(());
        }
        let step = decide(document.row_state(None), None, document.request.force);
        self.apply_step(at, step, None, batch).await
    }

    async fn apply_step(
        &mut self,
        at: usize,
        step: SyncStep,
        document: Option<String>,
        batch: &mut WriteBatch,
    ) -> Result<(), IndexError> {
        let (mark, reason) = match step {
            SyncStep::Write(mark, reason) | SyncStep::Delete(mark, reason) => (mark, reason),
            SyncStep::Done(reason) => {
                self.documents[at].outcome = Some(SyncOutcome::Done(reason));
                return Ok(());
            }
            SyncStep::Ahead(mark) => {
                let version = mark.version;
                let problem = format!(
                    "the index has version {version}, which Postgres does not have: if commits \
                     were lost, run posthaste.sync_raise()"
                );
                self.documents[at].outcome = Some(SyncOutcome::Failed(problem));
                return Ok(());
            }
        };
        let bytes = document.as_ref().map_or(0, String::len);
        if !batch.writes.is_empty() && batch.bytes + bytes > self.pass.bytes {
            self.send_writes(batch).await?;
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

    async fn send_writes(&mut self, batch: &mut WriteBatch) -> Result<(), IndexError> {
        let WriteBatch { writes, .. } = std::mem::take(batch);
        if writes.is_empty() {
            return Ok(());
        }
        let (places, writes): (Vec<_>, Vec<_>) = writes
            .into_iter()
            .map(|(at, reason, write)| ((at, reason), write))
            .unzip();
        let answers = self.pass.index.write(&writes).await?;
        let mut refused = Vec::new();
        for (((at, reason), write), answer) in places.into_iter().zip(writes).zip(answers) {
            let document = &mut self.documents[at];
            let nothing_is_there = document.seen.is_none() && write.document.is_none();
            if document.seen.is_none() && write.document.is_some() && answer == WriteOutcome::Older
            {
                refused.push(at);
            }
            document.outcome = Some(match answer {
                WriteOutcome::Taken | WriteOutcome::Older => SyncOutcome::Written(reason),
                // An index that refuses even the mark of a deletion accepts no late write either.
                WriteOutcome::Rejected { .. } | WriteOutcome::Never { .. } if nothing_is_there => {
                    SyncOutcome::Done(Reason::Neither)
                }
                WriteOutcome::Never { reason } => SyncOutcome::Rejected(reason),
                WriteOutcome::Rejected { reason } => SyncOutcome::Failed(reason),
                WriteOutcome::Retry { reason } => SyncOutcome::Rescheduled(reason),
            });
            document.seen = Some(IndexedVersion {
                mark: write.mark,
                token: write.token,
                is_live: write.document.is_some(),
                is_altered: false,
                is_foreign: false,
            });
        }
        self.reschedule_deleted_by_others(&refused).await
    }

    /// Reschedules documents that the index refused although it shows nothing. A server remembers
    /// for a while the version of a document that another client deleted, and refuses it. Any other
    /// newer document would be visible by now.
    async fn reschedule_deleted_by_others(&mut self, refused: &[usize]) -> Result<(), IndexError> {
        if refused.is_empty() {
            return Ok(());
        }
        let id = |at: &usize| self.documents[*at].request.id.clone();
        let ids: Vec<String> = refused.iter().map(id).collect();
        let seen = self.pass.index.read(&ids, Proof::Stored).await?;
        for (at, _) in refused.iter().zip(seen).filter(|(_, seen)| seen.is_none()) {
            let reason = DELETED_BY_OTHERS.to_owned();
            self.documents[*at].outcome = Some(SyncOutcome::Rescheduled(reason));
        }
        Ok(())
    }

    /// Completes forced writes that are read back with this pass's token: nothing else
    /// distinguishes them from an earlier write of the same version.
    async fn confirm_forced_writes(&mut self) -> Result<(), IndexError> {
        let forced = SyncOutcome::Written(Reason::Forced);
        let of = |one: &&mut PassDocument| one.outcome.as_ref() == Some(&forced);
        let mut written: Vec<&mut PassDocument> = self.documents.iter_mut().filter(of).collect();
        if written.is_empty() {
            return Ok(());
        }
        let ids: Vec<String> = written.iter().map(|one| one.request.id.clone()).collect();
        // An unverified write has not failed: the job is checked again.
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

    /// Returns versions by id. A row whose version cannot be read has failed.
    async fn read_versions(
        &mut self,
        ids: &[String],
    ) -> Result<HashMap<String, RowVersion>, IndexError> {
        let (source, budget) = (self.pass.source, self.read_budget(3));
        let all = bisect_read_within(budget, ids, |part| source.versions(part)).await?;
        let read = self.take_readable(all).into_iter();
        Ok(read.map(|row| (row.id.clone(), row)).collect())
    }

    async fn read_rows(
        &mut self,
        ids: &[String],
        budget: Option<ReadBudget>,
    ) -> Result<Vec<Row>, IndexError> {
        let source = self.pass.source;
        source.check().await?;
        let all = bisect_read_within(budget, ids, |part| source.rows(part)).await?;
        Ok(self.take_readable(all))
    }

    /// Returns the rows that were read. Rows that could not be read have failed. Rows for which no
    /// time was left have no outcome, and are not treated as missing.
    fn take_readable<T>(&mut self, all: PartialRead<T>) -> Vec<T> {
        for one in all.unreadable {
            self.documents[self.places[&one.id]].outcome = Some(match one.is_for_good {
                true => SyncOutcome::Rejected(one.reason),
                false => SyncOutcome::Failed(one.reason),
            });
        }
        for id in all.unasked {
            self.documents[self.places[&id]].is_left = true;
        }
        all.read
    }
}
