//! A table, its jobs and an index in memory. The test controls their order: each request to the
//! index or the table is in flight until it is delivered, is answered later or never, and is
//! executed whenever it arrives.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

#[cfg(feature = "elastic")]
use super::fake_server::{Asked, Served};
use futures_util::future::BoxFuture;
use posthaste_sync::{
    Body, Index, IndexError, IndexedVersion, Mark, Proof, Row, RowVersion, Source, SourceError,
    SyncRequest, Write, WriteOutcome,
};
use tokio::sync::oneshot;

/// A defect that the tests must detect.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Twin {
    /// No defect.
    #[default]
    None,
    /// A document that exists counts as equal, whatever its version.
    Presence,
    /// The index accepts the write that arrives last.
    LastWins,
}

#[derive(Clone, Debug, PartialEq)]
pub struct StoredDocument {
    pub mark: Mark,
    pub token: i64,
    pub document: Option<String>,
}

#[derive(Clone, Debug)]
pub struct Line {
    pub version: i64,
    pub text: u64,
}

#[derive(Clone, Debug)]
pub struct Job {
    pub request: SyncRequest,
    pub number: u64,
    pub is_claimed: bool,
}

/// A request in flight.
pub enum Request {
    Versions(Vec<String>, oneshot::Sender<Vec<RowVersion>>),
    Rows(Vec<String>, oneshot::Sender<Vec<Row>>),
    Read(
        Vec<String>,
        oneshot::Sender<Result<Vec<Option<IndexedVersion>>, IndexError>>,
    ),
    Write(
        Vec<Write>,
        Option<oneshot::Sender<Result<Vec<WriteOutcome>, IndexError>>>,
    ),
    #[cfg(feature = "elastic")]
    Asked(Asked),
}

impl Request {
    /// Returns whether a caller still waits for the answer.
    pub fn is_waited_for(&self) -> bool {
        match self {
            Self::Write(_, answer) => answer.as_ref().is_some_and(|one| !one.is_closed()),
            #[cfg(feature = "elastic")]
            Self::Asked(asked) => asked.is_waited_for(),
            _ => true,
        }
    }
}

#[derive(Default)]
pub struct Inner {
    pub sequence: i64,
    /// A part of each document that is not in its row: the name of a user.
    pub beside: u64,
    pub rows: BTreeMap<String, Line>,
    pub jobs: Vec<Job>,
    pub jobs_ever: u64,
    pub index: BTreeMap<String, StoredDocument>,
    /// The earlier entries of the index, by id.
    pub old: Vec<(String, Option<StoredDocument>)>,
    pub in_transit: Vec<Request>,
    pub twin: Twin,
    /// The fake server, if the index is not in memory.
    #[cfg(feature = "elastic")]
    pub served: Option<Served>,
}

#[derive(Clone, Default)]
pub struct World(Arc<Mutex<Inner>>);

/// Returns whether the index refuses documents with this text.
pub fn is_unacceptable(text: u64) -> bool {
    text % 11 == 10
}

/// Returns the document of a row.
pub fn document(text: u64, beside: u64) -> String {
    match is_unacceptable(text) {
        true => format!("{{\"text\": {{\"unfit\": {text}}}, \"beside\": {beside}}}"),
        false => format!("{{\"text\": {text}, \"beside\": {beside}}}"),
    }
}

impl World {
    pub fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap()
    }
}

impl Inner {
    pub fn draw(&mut self) -> i64 {
        self.sequence += 1;
        self.sequence
    }

    pub fn enqueue(&mut self, request: SyncRequest) {
        self.jobs_ever += 1;
        self.jobs.push(Job {
            request,
            number: self.jobs_ever,
            is_claimed: false,
        });
    }

    pub fn document(&self, row: &Line) -> String {
        document(row.text, self.beside)
    }

    fn seen(&self, stored: Option<&StoredDocument>) -> Option<IndexedVersion> {
        stored.map(|stored| IndexedVersion {
            mark: stored.mark,
            token: stored.token,
            is_live: stored.document.is_some(),
            is_altered: false,
            is_foreign: false,
        })
    }

    /// Returns the entry as a presence-only check takes it.
    pub fn believed(&self, id: &str, seen: Option<IndexedVersion>) -> Option<IndexedVersion> {
        let mut seen = seen?;
        if let Some(row) = self.rows.get(id)
            && seen.is_live
        {
            seen.mark = Mark::new(row.version);
        }
        Some(seen)
    }

    /// Executes one write.
    pub fn write(&mut self, write: &Write) -> WriteOutcome {
        if write.document.as_deref().is_some_and(is_unfit) {
            let reason = "does not fit".into();
            return WriteOutcome::Rejected { reason };
        }
        let before = self.index.get(&write.id);
        if self.twin != Twin::LastWins && before.is_some_and(|stored| stored.mark >= write.mark) {
            return WriteOutcome::Older;
        }
        let stored = StoredDocument {
            mark: write.mark,
            token: write.token,
            document: write.document.clone(),
        };
        let before = self.index.insert(write.id.clone(), stored);
        self.old.push((write.id.clone(), before));
        WriteOutcome::Taken
    }

    pub fn versions(&self, ids: &[String]) -> Vec<RowVersion> {
        let rows = ids.iter().filter_map(|id| self.rows.get_key_value(id));
        rows.map(|(id, row)| RowVersion {
            id: id.clone(),
            version: row.version,
            is_live: true,
        })
        .collect()
    }

    pub fn made(&self, ids: &[String]) -> Vec<Row> {
        let rows = ids.iter().filter_map(|id| self.rows.get_key_value(id));
        rows.map(|(id, row)| Row {
            id: id.clone(),
            version: row.version,
            body: Body::Document(self.document(row)),
        })
        .collect()
    }

    pub fn read(&self, ids: &[String]) -> Vec<Option<IndexedVersion>> {
        let seen = |id: &String| self.seen(self.index.get(id));
        ids.iter().map(seen).collect()
    }

    /// Reads entries as a lagging replica returns them.
    pub fn read_stale(&self, ids: &[String], back: usize) -> Vec<Option<IndexedVersion>> {
        let since = self.old.len().saturating_sub(back);
        let seen = |id: &String| {
            let changed = self.old[since..].iter().find(|(changed, _)| changed == id);
            match changed {
                Some((_, before)) => self.seen(before.as_ref()),
                None => self.seen(self.index.get(id)),
            }
        };
        ids.iter().map(seen).collect()
    }

    /// Returns the documents that do not match Postgres. Refused documents count only if they have
    /// no job.
    pub fn untrue(&self) -> Vec<String> {
        let mut found = Vec::new();
        let index = self.stored();
        let looked_after = |id: &str| self.jobs.iter().any(|job| job.request.id == id);
        for (id, row) in &self.rows {
            let stored = index.get(id);
            let wanted = (row.version, Some(self.document(row)));
            let is_true = stored
                .is_some_and(|stored| (stored.mark.version, stored.document.clone()) == wanted);
            let is_waited_for = is_unacceptable(row.text) && looked_after(id);
            if !(is_true || is_waited_for) {
                found.push(format!("{id}: {wanted:?}, and the index {stored:?}"));
            }
        }
        for (id, stored) in &index {
            if stored.document.is_some() && !self.rows.contains_key(id) {
                found.push(format!("{id}: no row, and the index {stored:?}"));
            }
        }
        found
    }

    /// Returns the contents of the index.
    fn stored(&self) -> BTreeMap<String, StoredDocument> {
        #[cfg(feature = "elastic")]
        if let Some(served) = &self.served {
            return served.stored();
        }
        self.index.clone()
    }
}

fn is_unfit(document: &str) -> bool {
    let document: serde_json::Value = serde_json::from_str(document).unwrap();
    document["text"].is_object()
}

impl Source for World {
    fn versions<'a>(
        &'a self,
        ids: &'a [String],
    ) -> BoxFuture<'a, Result<Vec<RowVersion>, SourceError>> {
        let (answer, answered) = oneshot::channel();
        self.inner()
            .in_transit
            .push(Request::Versions(ids.to_vec(), answer));
        Box::pin(async { answered.await.map_err(|_| SourceError::Down("lost".into())) })
    }

    fn rows<'a>(&'a self, ids: &'a [String]) -> BoxFuture<'a, Result<Vec<Row>, SourceError>> {
        let (answer, answered) = oneshot::channel();
        self.inner()
            .in_transit
            .push(Request::Rows(ids.to_vec(), answer));
        Box::pin(async { answered.await.map_err(|_| SourceError::Down("lost".into())) })
    }

    fn walk<'a>(
        &'a self,
        after: Option<&'a str>,
        most: usize,
    ) -> BoxFuture<'a, Result<Vec<RowVersion>, SourceError>> {
        let inner = self.inner();
        let next = inner.rows.keys().filter(|id| Some(&***id) > after);
        let ids: Vec<String> = next.take(most).cloned().collect();
        let page = inner.versions(&ids);
        Box::pin(async { Ok(page) })
    }
}

impl Index for World {
    fn label(&self) -> String {
        "a world".into()
    }

    fn write<'a>(
        &'a self,
        writes: &'a [Write],
    ) -> BoxFuture<'a, Result<Vec<WriteOutcome>, IndexError>> {
        let (answer, answered) = oneshot::channel();
        self.inner()
            .in_transit
            .push(Request::Write(writes.to_vec(), Some(answer)));
        Box::pin(async {
            answered
                .await
                .unwrap_or_else(|_| Err(IndexError("lost".into())))
        })
    }

    fn read<'a>(
        &'a self,
        ids: &'a [String],
        _: Proof,
    ) -> BoxFuture<'a, Result<Vec<Option<IndexedVersion>>, IndexError>> {
        let (answer, answered) = oneshot::channel();
        self.inner()
            .in_transit
            .push(Request::Read(ids.to_vec(), answer));
        Box::pin(async {
            answered
                .await
                .unwrap_or_else(|_| Err(IndexError("lost".into())))
        })
    }

    fn walk<'a>(
        &'a self,
        _: Option<&'a str>,
        _: usize,
    ) -> BoxFuture<'a, Result<Vec<(String, IndexedVersion)>, IndexError>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn prune_deletions(&self, _: Duration) -> BoxFuture<'_, Result<u64, IndexError>> {
        Box::pin(async { Ok(0) })
    }
}
