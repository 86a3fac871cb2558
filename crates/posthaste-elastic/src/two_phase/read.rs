//! Reads of many documents, in parts that fit into one answer.
//!
//! A transaction may set several megabytes, so that a hundred of them are more than a client
//! accepts. If an answer is too long, the next request asks for half as many.

use std::mem;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::failure::Failure;
use super::store::Store;
use crate::{Document, Error, ErrorKind, Page, PointInTime, Reading, Refusal, Source};

/// The most documents of one search.
pub(super) const PAGE_SIZE: usize = 100;
/// The most documents that one request reads by their ids.
const READ_BATCH: usize = 500;
/// The time for which the server keeps a point in time between two pages: recovery runs the
/// transactions of one page in between.
const KEEP_POINT_IN_TIME: Duration = Duration::from_secs(900);

/// All results of a query in one index as of its first page, page by page.
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
    /// Creates a scan. `source` is `true`, `false` or the name of the field to read.
    pub(super) fn new(index: &'a str, query: &Value, source: Value) -> Self {
        let mut asked = Map::new();
        asked.insert("query".into(), query.clone());
        asked.insert("_source".into(), source);
        Self {
            index,
            query: asked,
            sort: Vec::new(),
            size: PAGE_SIZE,
            moment: None,
            is_over: false,
        }
    }

    /// Sorts by this field, after previously given ones. Documents without the field come last.
    pub(super) fn sort_by(mut self, field: &str, order: &str) -> Self {
        self.sort.push(json!({(field): order}));
        // A server that does not count hits omits documents without a value after the first page:
        // it assumes that none could follow.
        self.query.insert("track_total_hits".into(), json!(true));
        self
    }

    /// Limits the size of a page.
    pub(super) fn limit_page(self, size: usize) -> Self {
        let size = size.min(self.size);
        Self { size, ..self }
    }
}

impl Store {
    /// Makes every transaction visible to searches: an index may be configured to refresh late or
    /// never.
    pub(super) async fn refresh_transactions(&self) -> Result<(), Failure> {
        let refreshed = self.client.refresh(&self.transactions).await;
        refreshed.map_err(Failure::Unavailable)
    }

    /// Returns the next page, `None` after the last one.
    pub(super) async fn next_page(&self, walk: &mut Scan<'_>) -> Result<Option<Page>, Failure> {
        if walk.is_over {
            return Ok(None);
        }
        let moment = match &mut walk.moment {
            Some(moment) => moment,
            none => {
                let opened = self
                    .client
                    .open_point_in_time(walk.index, KEEP_POINT_IN_TIME)
                    .await;
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
                    self.end_scan(walk).await;
                    return Err(Failure::Unavailable(error));
                }
            }
        };
        if let Some(last) = page.hits.last() {
            let after = Value::Array(last.sort.clone());
            walk.query.insert("search_after".into(), after);
        }
        if page.hits.len() < walk.size {
            self.end_scan(walk).await;
        }
        Ok((!page.hits.is_empty()).then_some(page))
    }

    /// Ends a scan, and closes its point in time. If that fails or is not called, the server closes
    /// it when it expires.
    pub(super) async fn end_scan(&self, walk: &mut Scan<'_>) {
        walk.is_over = true;
        if let Some(moment) = walk.moment.take() {
            let _ = self.client.close_point_in_time(moment).await;
        }
    }

    /// Reads these documents, in their order: each as the document, `None` if it does not exist, or
    /// the reason why it could not be read.
    pub(super) async fn read_raw(
        &self,
        index: &str,
        ids: &[&str],
        source: Source,
    ) -> Result<Vec<Result<Option<Document>, Refusal>>, Error> {
        let mut found = Vec::with_capacity(ids.len());
        let mut size = READ_BATCH;
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

    /// Like [`read_raw`](Self::read_raw), but every document must be readable.
    ///
    /// A missing document is `None`; a document that cannot be read now makes the call fail, and is
    /// never skipped.
    pub(super) async fn read_each(
        &self,
        index: &str,
        ids: &[&str],
        source: Source,
    ) -> Result<Vec<Option<Document>>, Failure> {
        let found = self.read_raw(index, ids, source).await;
        let found = found.map_err(Failure::Unavailable)?.into_iter();
        found
            .map(|one| one.map_err(|refusal| Failure::Unavailable(refusal.into_error("get"))))
            .collect()
    }
}
