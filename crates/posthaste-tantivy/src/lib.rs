//! Tantivy as an index of [`posthaste_sync`]: a folder on this machine, without a server.
//!
//! One process owns the writer of a folder, and a lock file excludes other writers. The writer
//! compares marks itself, so only that process indexes directly; other programs leave indexing to
//! the sync. Any number of processes may read.

#![forbid(unsafe_code)]

// A module imports only from the groups above its own.
mod schema;

mod lookup;

mod writer;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tantivy::collector::TopDocs;
use tantivy::query::{AllQuery, BooleanQuery, ExistsQuery, Occur, Query, QueryParser};
use tantivy::schema::Value;
use tantivy::{IndexReader, ReloadPolicy, TantivyDocument};
use tokio::sync::oneshot;

use posthaste::Error;
use posthaste::settings::Fields as Settings;
use posthaste_sync::{
    Access, Index, IndexError, IndexKind, IndexedVersion, OpenIndex, Proof, Write, WriteOutcome,
};
use schema::Fields;
use writer::Order;

/// The kind of Tantivy indexes, for [`Synced::read_with`](posthaste_sync::Synced::read_with). Its
/// settings are the address `tantivy:///folder` or `tantivy:folder`, and `fields`, a table of
/// weights.
pub struct Folders;

impl IndexKind for Folders {
    fn scheme(&self) -> &'static str {
        "tantivy"
    }

    fn name(&self) -> &'static str {
        "Tantivy"
    }

    fn read(&self, rest: &str, settings: &mut Settings) -> Result<OpenIndex, String> {
        let folder = rest.strip_prefix("//").unwrap_or(rest);
        if folder.is_empty() {
            return Err("index: names no folder".into());
        }
        let fields: BTreeMap<String, f32> = settings.take("fields")?.unwrap_or_default();
        let index = fields
            .into_iter()
            .fold(Tantivy::builder(folder), |index, (field, boost)| {
                index.search_field(field, boost)
            });
        Ok(Box::new(move |access| {
            let index = index.clone();
            let index = match access {
                Access::Write => index.open()?,
                Access::Read => index.open_to_read()?,
            };
            Ok(Arc::new(index))
        }))
    }
}

/// Builds an index in a folder.
#[derive(Clone, Debug)]
pub struct TantivyBuilder {
    path: std::path::PathBuf,
    fields: Vec<(String, f32)>,
}

impl TantivyBuilder {
    /// Adds a searched field with its weight; 1.0 is usual. Once a field is added, fields that are
    /// not added are not indexed.
    pub fn search_field(mut self, field: impl Into<String>, boost: f32) -> Self {
        self.fields.push((field.into(), boost));
        self
    }

    /// Opens the index for writing; creates it if it does not exist. Fails while another process
    /// has it open for writing, or if it was created with other fields.
    pub fn open(self) -> Result<Tantivy, Error> {
        std::fs::create_dir_all(&self.path).map_err(|error| self.to_error(&error))?;
        self.open_with(true)
    }

    /// Opens the index for reading, for searches and audits while another process may write it.
    /// Each read returns the latest commit. Writes are refused.
    pub fn open_to_read(self) -> Result<Tantivy, Error> {
        if !self.path.join("meta.json").exists() {
            return Err(self.to_error(&"there is no index in this folder yet"));
        }
        self.open_with(false)
    }

    fn to_error(&self, error: &dyn std::fmt::Display) -> Error {
        Error::config(format!("tantivy: {}: {error}", self.path.display()))
    }

    fn open_with(self, writes: bool) -> Result<Tantivy, Error> {
        let label = format!("tantivy: {}", self.path.display());
        let (index, fields) =
            schema::open_index(&self.path, &self.fields).map_err(|error| self.to_error(&error))?;
        let reader = index.reader_builder().reload_policy(ReloadPolicy::Manual);
        let reader: IndexReader = reader.try_into().map_err(|error| self.to_error(&error))?;
        let orders = match writes {
            true => {
                let orders = writer::start_writer(&index, fields.clone(), reader.clone());
                Some(orders.map_err(|error| self.to_error(&error))?)
            }
            false => None,
        };
        Ok(Tantivy {
            inner: Arc::new(Inner {
                label,
                index,
                fields,
                reader,
                orders,
            }),
        })
    }
}

/// An index in a folder. Searches find a document as soon as it is committed, so
/// [`Proof::Searchable`] costs nothing.
#[derive(Clone)]
pub struct Tantivy {
    inner: Arc<Inner>,
}

struct Inner {
    label: String,
    index: tantivy::Index,
    fields: Fields,
    reader: IndexReader,
    /// The sender of orders to the writer's thread, which ends with the last sender. `None`: the
    /// index was opened for reading.
    orders: Option<Sender<Order>>,
}

impl Tantivy {
    /// Returns a builder for the index in this folder. By default it indexes all texts of a
    /// document, with English stemming.
    pub fn builder(path: impl AsRef<Path>) -> TantivyBuilder {
        TantivyBuilder {
            path: path.as_ref().to_owned(),
            fields: Vec::new(),
        }
    }

    /// Returns the ids of at most this many documents that match, the best first: all words,
    /// `"phrases"`, `OR`, `-without`, `field:word`. Invalid parts of a query are ignored.
    pub async fn search(&self, query: &str, most: usize) -> Result<Vec<String>, IndexError> {
        let query = query.to_owned();
        self.run_blocking(move |inner| inner.search(&query, most))
            .await
    }

    async fn run_blocking<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Inner) -> tantivy::Result<T> + Send + 'static,
    ) -> Result<T, IndexError> {
        let inner = Arc::clone(&self.inner);
        let task = move || {
            if inner.orders.is_none() {
                // The writer of another process does not notify this reader of commits.
                inner.reader.reload()?;
            }
            question(&inner)
        };
        let answer = tokio::task::spawn_blocking(task).await;
        let answer = answer.map_err(|panicked| IndexError(panicked.to_string()))?;
        answer.map_err(|error| IndexError(error.to_string()))
    }

    async fn send_order<T>(
        &self,
        order: impl FnOnce(oneshot::Sender<Result<T, IndexError>>) -> Order,
    ) -> Result<T, IndexError> {
        let (answer, answered) = oneshot::channel();
        let ended = || IndexError("the writer of this index has ended".into());
        let read_only = || IndexError("this index was opened read-only".into());
        let orders = self.inner.orders.as_ref().ok_or_else(read_only)?;
        orders.send(order(answer)).map_err(|_| ended())?;
        answered.await.unwrap_or_else(|_| Err(ended()))
    }
}

impl Inner {
    fn search(&self, query: &str, most: usize) -> tantivy::Result<Vec<String>> {
        let mut parser = QueryParser::for_index(&self.index, self.fields.searched_fields());
        parser.set_conjunction_by_default();
        for (field, boost) in self.fields.boosts() {
            parser.set_field_boost(field, boost);
        }
        let (query, _) = parser.parse_query_lenient(query);
        let deleted = ExistsQuery::new(schema::DELETED_AT_FIELD.into(), false);
        // Excludes the marks of deletions. Matches all other documents, so that a query of
        // exclusions only has results.
        let clauses: Vec<(Occur, Box<dyn Query>)> = vec![
            (Occur::Must, query),
            (Occur::Should, Box::new(AllQuery)),
            (Occur::MustNot, Box::new(deleted)),
        ];
        let searcher = self.reader.searcher();
        let best = TopDocs::with_limit(most.max(1)).order_by_score();
        let found = searcher.search(&BooleanQuery::new(clauses), &best)?;
        let ids = found.into_iter().take(most).map(|(_, address)| {
            let document: TantivyDocument = searcher.doc(address)?;
            let id = document.get_first(self.fields.id);
            let id = id.and_then(|id| id.as_str()).map(str::to_owned);
            id.ok_or_else(|| tantivy::TantivyError::InternalError("a document without id".into()))
        });
        ids.collect()
    }
}

impl Index for Tantivy {
    fn label(&self) -> String {
        self.inner.label.clone()
    }

    fn write<'a>(
        &'a self,
        writes: &'a [Write],
    ) -> BoxFuture<'a, Result<Vec<WriteOutcome>, IndexError>> {
        Box::pin(self.send_order(|answer| Order::Write(writes.to_vec(), answer)))
    }

    fn read<'a>(
        &'a self,
        ids: &'a [String],
        _: Proof,
    ) -> BoxFuture<'a, Result<Vec<Option<IndexedVersion>>, IndexError>> {
        let ids = ids.to_vec();
        Box::pin(self.run_blocking(move |inner| {
            lookup::entries_by_ids(&inner.reader.searcher(), &inner.fields, &ids)
        }))
    }

    fn walk<'a>(
        &'a self,
        after: Option<&'a str>,
        most: usize,
    ) -> BoxFuture<'a, Result<Vec<(String, IndexedVersion)>, IndexError>> {
        let after = after.map(str::to_owned);
        Box::pin(self.run_blocking(move |inner| {
            lookup::entries_after(
                &inner.reader.searcher(),
                &inner.fields,
                after.as_deref(),
                most,
            )
        }))
    }

    fn is_empty(&self) -> BoxFuture<'_, Result<bool, IndexError>> {
        Box::pin(self.run_blocking(|inner| Ok(inner.reader.searcher().num_docs() == 0)))
    }

    fn awaits_fill(&self) -> BoxFuture<'_, Result<bool, IndexError>> {
        self.is_empty()
    }

    fn match_documents<'a>(
        &'a self,
        documents: &'a [(String, String)],
    ) -> BoxFuture<'a, Result<Vec<bool>, IndexError>> {
        let ids: Vec<String> = documents.iter().map(|(id, _)| id.clone()).collect();
        let asked = self.run_blocking(move |inner| {
            lookup::hashes_by_ids(&inner.reader.searcher(), &inner.fields, &ids)
        });
        Box::pin(async move {
            let hashes = asked.await?.into_iter().zip(documents);
            let held = hashes.map(|(held, (_, text))| held == Some(schema::hash_document(text)));
            Ok(held.collect())
        })
    }

    fn prune_deletions(&self, older_than: Duration) -> BoxFuture<'_, Result<u64, IndexError>> {
        Box::pin(self.send_order(move |answer| Order::Forget(older_than, answer)))
    }

    fn search<'a>(
        &'a self,
        query: &'a str,
        most: usize,
    ) -> BoxFuture<'a, Result<Vec<String>, IndexError>> {
        Box::pin(Tantivy::search(self, query, most))
    }
}
