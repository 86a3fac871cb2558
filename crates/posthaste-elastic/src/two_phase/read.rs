//! Reads of many documents: as many at once as an answer may be long.
//!
//! A transaction may set some megabytes, so that a hundred of them are more than a client takes in. Where an answer is too long, half as many are asked for.

use serde_json::{Value, json};

use super::failure::Failure;
use super::store::Store;
use crate::{Document, Error, ErrorKind, Page, Reading, Refusal, Source};

/// So many documents are searched for at once.
pub(super) const PAGE: usize = 100;
/// So many are read by their ids at once.
const AT_ONCE: usize = 500;

/// All that a query finds in one index, page by page.
#[derive(Debug)]
pub(super) struct Walk<'a> {
    index: &'a str,
    query: Value,
    size: usize,
}

impl<'a> Walk<'a> {
    /// The query says in which order, which must tell any two documents apart.
    pub(super) fn new(index: &'a str, query: Value) -> Self {
        Self {
            index,
            query,
            size: PAGE,
        }
    }

    /// Everything in an index by its id, with what it holds if that is asked. Nothing is deleted there, so that nothing is missed.
    pub(super) fn over(index: &'a str, query: &Value, whole: bool) -> Self {
        let sort = json!([{"_id": "asc"}]);
        Self::new(
            index,
            json!({"query": query, "sort": sort, "_source": whole}),
        )
    }

    /// At most so many at once.
    pub(super) fn at_most(self, size: usize) -> Self {
        let size = size.min(self.size);
        Self { size, ..self }
    }
}

impl Store {
    /// The next page; none, if that was all.
    pub(super) async fn next(&self, walk: &mut Walk<'_>) -> Result<Option<Page>, Failure> {
        loop {
            walk.query["size"] = json!(walk.size);
            match self.client.search(walk.index, &walk.query).await {
                Ok(page) => {
                    let Some(last) = page.hits.last() else {
                        return Ok(None);
                    };
                    walk.query["search_after"] = Value::Array(last.sort.clone());
                    return Ok(Some(page));
                }
                Err(error) if error.kind() == ErrorKind::TooLong && walk.size > 1 => walk.size /= 2,
                Err(error) => return Err(Failure::Unavailable(error)),
            }
        }
    }

    /// Reads these documents, in their order: each as it is, or that it is not there, or why that could not be said.
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

    /// As [`read`](Self::read), where each must be told of.
    ///
    /// What is not there is none; what cannot be read at the moment is an error, and no document that is passed over.
    pub(super) async fn read_each(
        &self,
        index: &str,
        ids: &[&str],
        source: Source,
    ) -> Result<Vec<Option<Document>>, Failure> {
        let found = self.read(index, ids, source).await;
        let found = found.map_err(Failure::Unavailable)?.into_iter();
        found
            .map(|one| one.map_err(|refusal| Failure::Unavailable(refusal.of_call("get"))))
            .collect()
    }
}
