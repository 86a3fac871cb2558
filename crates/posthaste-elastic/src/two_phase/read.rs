//! Reads of many documents: as many at once as an answer may be long.
//!
//! A transaction may set some megabytes, so that a hundred of them are more than a client takes in.
//! Where an answer is too long, half as many are asked for.

use std::mem;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::failure::Failure;
use super::store::Store;
use crate::{Document, Error, ErrorKind, Page, PointInTime, Reading, Refusal, Source};

/// This many documents are searched for at once.
pub(super) const PAGE: usize = 100;
/// This many are read by their ids at once.
const AT_ONCE: usize = 500;
/// What a walk sees is retained for this long from one page to the next: recovery brings a page of
/// transactions to their ends meanwhile.
const KEPT: Duration = Duration::from_secs(900);

/// All that a query finds in one index at the moment of its first page, page by page.
#[derive(Debug)]
pub(super) struct Scan<'a> {
    index: &'a str,
    query: Map<String, Value>,
    sort: Vec<Value>,
    size: usize,
    moment: Option<PointInTime>,
    is_over: bool,
}

impl<'a> Scan<'a> {
    /// What is asked for of each hit's source is `true`, `false` or the name of a field.
    pub(super) fn over(index: &'a str, query: &Value, source: Value) -> Self {
        let mut asked = Map::new();
        asked.insert("query".into(), query.clone());
        asked.insert("_source".into(), source);
        Self {
            index,
            query: asked,
            sort: Vec::new(),
            size: PAGE,
            moment: None,
            is_over: false,
        }
    }

    /// In the order of this field, after those that were named before. What has no such field comes
    /// last.
    pub(super) fn by(mut self, field: &str, order: &str) -> Self {
        self.sort.push(json!({(field): order}));
        // A server that need not count leaves out what has no value after the first page: it
        // believes that nothing there could come next.
        self.query.insert("track_total_hits".into(), json!(true));
        self
    }

    /// At most this many at once.
    pub(super) fn at_most(self, size: usize) -> Self {
        let size = size.min(self.size);
        Self { size, ..self }
    }
}

impl Store {
    /// Lets searches see every transaction as it was written: an index may be set to show that
    /// late, or never by itself.
    pub(super) async fn searchable(&self) -> Result<(), Failure> {
        let refreshed = self.client.refresh(&self.transactions).await;
        refreshed.map_err(Failure::Unavailable)
    }

    /// The next page; none, if that was all.
    pub(super) async fn next(&self, walk: &mut Scan<'_>) -> Result<Option<Page>, Failure> {
        if walk.is_over {
            return Ok(None);
        }
        let moment = match &mut walk.moment {
            Some(moment) => moment,
            none => {
                let opened = self.client.open_point_in_time(walk.index, KEPT).await;
                let moment = opened.map_err(Failure::Unavailable)?;
                walk.sort.push(moment.last_sort());
                let sort = Value::Array(mem::take(&mut walk.sort));
                walk.query.insert("sort".into(), sort);
                none.insert(moment)
            }
        };
        let page = loop {
            walk.query.insert("size".into(), json!(walk.size));
            match self.client.search_at(moment, walk.query.clone()).await {
                Ok(page) => break page,
                Err(error) if error.kind() == ErrorKind::TooLong && walk.size > 1 => walk.size /= 2,
                Err(error) => {
                    self.leave(walk).await;
                    return Err(Failure::Unavailable(error));
                }
            }
        };
        if let Some(last) = page.hits.last() {
            let after = Value::Array(last.sort.clone());
            walk.query.insert("search_after".into(), after);
        }
        if page.hits.len() < walk.size {
            self.leave(walk).await;
        }
        Ok((!page.hits.is_empty()).then_some(page))
    }

    /// Ends a walk, and lets go of what the server keeps for it. Where that fails, or nobody comes
    /// here, the server lets go by itself.
    pub(super) async fn leave(&self, walk: &mut Scan<'_>) {
        walk.is_over = true;
        if let Some(moment) = walk.moment.take() {
            let _ = self.client.close_point_in_time(moment).await;
        }
    }

    /// Reads these documents, in their order: each as it is, or that it is not there, or why that
    /// could not be determined.
    pub(super) async fn read(
        &self,
        index: &str,
        ids: &[&str],
        source: Source,
    ) -> Result<Vec<Result<Option<Document>, Refusal>>, Error> {
        let mut found = Vec::with_capacity(ids.len());
        let mut size = AT_ONCE;
        while let Some(left) = ids.get(found.len()..).filter(|left| !left.is_empty()) {
            let part = left.get(..size).unwrap_or(left);
            let read = self.client.multi_get(index, part, Reading::Latest, source);
            match read.await {
                Ok(some) => found.extend(some),
                Err(error) if error.kind() == ErrorKind::TooLong && part.len() > 1 => {
                    size = part.len() / 2;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    /// As [`read`](Self::read), where each must be reported.
    ///
    /// What is not there is none; what cannot be read at the moment is an error, and no document
    /// that is passed over.
    pub(super) async fn read_each(
        &self,
        index: &str,
        ids: &[&str],
        source: Source,
    ) -> Result<Vec<Option<Document>>, Failure> {
        let found = self.read(index, ids, source).await;
        let found = found.map_err(Failure::Unavailable)?.into_iter();
        found
            .map(|one| one.map_err(|refusal| Failure::Unavailable(refusal.in_call("get"))))
            .collect()
    }
}
