//! Elasticsearch or OpenSearch as the index: an alias, and the index that it points to.
//!
//! The server's version of a document is its mark as one number, so the server itself refuses late
//! writes. The server forgets a deleted document within a minute, so a deletion is written as a
//! document without the row's fields.

mod document;
mod mapping;
mod rebuild;
mod unmanaged;
mod walk;
mod write;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use posthaste_elastic::{Client, Condition, Effect, Error, Operation, Reading, Source};
use serde_json::{Value, json};

use super::decide::IndexedVersion;
use super::index::{Index, IndexError, Proof, Write, WriteOutcome};
use super::source::Field;
use document::POSTHASTE_FIELD;
pub(super) use document::check_definition;
use posthaste::__private::chain;
pub use rebuild::Rebuilt;

/// The most documents that one request reads or removes.
const PAGE_SIZE: usize = 2_500;

/// Documents in Elasticsearch or OpenSearch, under an alias.
///
/// ```no_run
/// # async fn example(pool: deadpool_postgres::Pool) -> Result<(), Box<dyn std::error::Error>> {
/// use posthaste_sync::{Elastic, ElasticClient, IndexSync, Table};
/// use serde_json::json;
///
/// let client = ElasticClient::new(reqwest::Client::builder(), "https://search.example")?
///     .api_key("a2V5")?;
/// let index = Elastic::new(client, "pages").definition(json!({
///     "mappings": {"properties": {"title": {"type": "text"}, "body": {"type": "text"}}},
/// }));
/// let sync = IndexSync::builder(Table::new(pool, "page"), index.clone()).start()?;
/// let ids = index.search("post haste", 10).await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Elastic {
    shared: Arc<SharedIndex>,
    /// The alias or the single index that is read.
    target: Arc<str>,
    /// The alias that is written. The server would create an index for a write to a missing one,
    /// with mappings that it guesses, but it refuses a write to a missing alias. A write that a
    /// switch overtakes goes to the other index, where it is harmless, and is not visible in this
    /// one.
    write_target: Arc<str>,
}

struct SharedIndex {
    client: Client,
    alias: String,
    definition: Value,
    pause: Duration,
    /// The most bytes of a request; lowered after the server refuses a larger one.
    largest: AtomicUsize,
    /// Indexes that were verified to have the mappings that a sync needs.
    known: Mutex<HashSet<String>>,
    /// The ids from which walks continue after documents that are stored under another id than they
    /// were written with, by the index and the stored id.
    strays: Mutex<HashMap<(String, String), String>>,
}

impl Elastic {
    /// Returns the index of this alias. The first check of a sync creates it if it does not exist.
    pub fn new(client: Client, alias: impl Into<String>) -> Self {
        let alias = alias.into();
        Self {
            target: alias.as_str().into(),
            write_target: alias.as_str().into(),
            shared: Arc::new(SharedIndex {
                client,
                alias,
                definition: json!({}),
                pause: Duration::from_millis(200),
                largest: AtomicUsize::new(usize::MAX),
                known: Mutex::default(),
                strays: Mutex::default(),
            }),
        }
    }

    /// Sets the `settings` and `mappings` that an index is created with; without `mappings`, a sync
    /// derives them from the types of the columns. An existing index retains its own: see
    /// [`rebuild`](Self::rebuild). [`open`](Self::open) and each check of a sync refuse an invalid
    /// definition.
    pub fn definition(self, definition: Value) -> Self {
        self.with_shared(|shared| shared.definition = definition)
    }

    /// Sets the first pause before an overloaded server is retried, if the server requests no
    /// other; the pause doubles with each retry. 200 ms by default.
    pub fn pause(self, pause: Duration) -> Self {
        self.with_shared(|shared| shared.pause = pause)
    }

    fn with_shared(mut self, change: impl FnOnce(&mut SharedIndex)) -> Self {
        let SharedIndex {
            client,
            alias,
            definition,
            pause,
            ..
        } = &*self.shared;
        let mut shared = SharedIndex {
            client: client.clone(),
            alias: alias.clone(),
            definition: definition.clone(),
            pause: *pause,
            largest: AtomicUsize::new(usize::MAX),
            known: Mutex::default(),
            strays: Mutex::default(),
        };
        change(&mut shared);
        self.shared = Arc::new(shared);
        self
    }

    /// Creates the index if it does not exist, and checks whether an existing one can be synced.
    pub async fn open(&self) -> Result<(), IndexError> {
        self.current_index(&[]).await.map(drop)
    }

    /// Returns the reason why no document can have a field of this name, or `None` if one can.
    pub fn unfit_field(name: &str) -> Option<&'static str> {
        mapping::field_problem(name)
    }

    /// Returns the ids of at most this many documents that match, the best first. Searches all
    /// fields for all words, `"phrases"`, `|` for or, `-without`.
    pub async fn search(&self, query: &str, most: usize) -> Result<Vec<String>, IndexError> {
        let words = json!({"query": query, "default_operator": "and", "lenient": true});
        self.search_by(&json!({"simple_query_string": words}), most)
            .await
    }

    /// As [`search`](Self::search), with a query in the server's query language.
    pub async fn search_by(&self, query: &Value, most: usize) -> Result<Vec<String>, IndexError> {
        let query = json!({"bool": {"must": [query], "must_not": [document::deletion_query()]}});
        let query = json!({"query": query, "size": most, "_source": false});
        let page = self.client().search(&self.target, &query).await?;
        Ok(page.hits.into_iter().map(|hit| hit.id).collect())
    }

    fn client(&self) -> &Client {
        &self.shared.client
    }

    /// Returns a view of the single index of this name, written through this alias.
    fn for_index(&self, index: &str, alias: &str) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            target: index.into(),
            write_target: alias.into(),
        }
    }

    fn is_alias(&self) -> bool {
        *self.target == self.shared.alias
    }

    /// Returns the alias of an index that is being built beside the current one.
    fn next_alias(&self) -> String {
        format!("{}-next", self.shared.alias)
    }

    /// Returns the index that the alias points to; creates it if it does not exist.
    async fn current_index(&self, fields: &[Field]) -> Result<String, IndexError> {
        let alias = &*self.shared.alias;
        document::check_definition(&self.shared.definition).map_err(IndexError)?;
        let definition = mapping::with_mappings(&self.shared.definition, fields);
        let definition = document::index_definition(&definition, alias, "");
        let mut number = 0;
        loop {
            if let Some(index) = self.alias_target(alias).await? {
                return Ok(index);
            }
            // An index of this number may be left from an earlier time.
            number += 1;
            let index = document::numbered_index(alias, number);
            if self.client().create_index(&index, &definition).await? {
                tracing::warn!(
                    index,
                    "the new index is empty: a sync or an audit with repair fills it"
                );
            }
        }
    }

    /// Returns the index that this alias points to, or `None` if there is no such alias. Fails if
    /// the index cannot be synced.
    async fn alias_target(&self, alias: &str) -> Result<Option<String>, IndexError> {
        let mut indexes = self.client().resolve_alias(alias).await?;
        let Some(index) = indexes.pop() else {
            return Ok(None);
        };
        if !indexes.is_empty() {
            return Err(IndexError(format!(
                "{alias} is an alias of several indexes"
            )));
        }
        let known = || self.shared.known.lock();
        if !known().contains(&index) {
            let described = self.client().describe_index(&index).await?;
            if !described.is_some_and(|described| document::has_posthaste_field(&described)) {
                return Err(IndexError(format!(
                    "{index} lacks the field {POSTHASTE_FIELD}: it was not created by a sync"
                )));
            }
            known().insert(index.clone());
        }
        Ok(Some(index))
    }

    async fn read_versions(
        &self,
        ids: &[String],
        reading: Reading,
    ) -> Result<Vec<Option<IndexedVersion>>, IndexError> {
        let mut seen = vec![None; ids.len()];
        // No document has any other id.
        let may_be = |(_, id): &(usize, &String)| document::is_id(id);
        let asked: Vec<(usize, &String)> = ids.iter().enumerate().filter(may_be).collect();
        for part in asked.chunks(PAGE_SIZE) {
            let ids: Vec<&String> = part.iter().map(|(_, id)| *id).collect();
            let source = Source::Field(POSTHASTE_FIELD);
            let shown = self
                .client()
                .multi_get(&self.target, &ids, reading, source)
                .await?;
            for ((at, _), shown) in part.iter().zip(shown) {
                let shown = shown.map_err(|refusal| IndexError(refusal.reason))?;
                seen[*at] =
                    shown.map(|one| document::parse_entry(one.version, one.source.as_deref()));
            }
        }
        Ok(seen)
    }

    /// Removes old deletions, unless they were replaced by something newer.
    async fn delete_old_deletions(&self, older_than: Duration) -> Result<u64, IndexError> {
        self.client().refresh(&self.target).await?;
        let before = document::now_ms().saturating_sub(document::milliseconds(older_than));
        let mut forgotten = 0;
        loop {
            let old = document::deleted_before_query(before);
            let query = json!({"query": {"bool": {"filter": [old]}}, "size": PAGE_SIZE,
                "_source": false, "seq_no_primary_term": true});
            let page = self.client().search(&self.target, &query).await?.hits;
            // Conditional on the state that was read, not on a version: a deletion with a version
            // would create a missing index.
            let deletions = page.iter().filter_map(|hit| {
                let unchanged = Condition::Unchanged(hit.seen?);
                Some(Operation::delete(&self.target, &hit.id).when(unchanged))
            });
            let deletions: Vec<Operation> = deletions.collect();
            let outcomes = self.client().bulk(&deletions).await?;
            let gone = outcomes.iter().flatten();
            forgotten += gone
                .filter(|written| written.effect == Effect::Deleted)
                .count() as u64;
            // Searches find removed entries until the next refresh, and entries that could not be
            // removed.
            if page.len() < PAGE_SIZE || outcomes.iter().any(Result::is_err) {
                return Ok(forgotten);
            }
            self.client().refresh(&self.target).await?;
        }
    }
}

impl Index for Elastic {
    fn label(&self) -> String {
        format!("elastic: {}", self.target)
    }

    fn write<'a>(
        &'a self,
        writes: &'a [Write],
    ) -> BoxFuture<'a, Result<Vec<WriteOutcome>, IndexError>> {
        Box::pin(self.write_parts(writes))
    }

    fn read<'a>(
        &'a self,
        ids: &'a [String],
        proof: Proof,
    ) -> BoxFuture<'a, Result<Vec<Option<IndexedVersion>>, IndexError>> {
        Box::pin(async move {
            if proof == Proof::Stored {
                return self.read_versions(ids, Reading::Latest).await;
            }
            // The search finds everything that was stored before this refresh.
            self.client().refresh(&self.target).await?;
            self.read_versions(ids, Reading::Searchable).await
        })
    }

    fn walk<'a>(
        &'a self,
        after: Option<&'a str>,
        most: usize,
    ) -> BoxFuture<'a, Result<Vec<(String, IndexedVersion)>, IndexError>> {
        Box::pin(self.read_page(after, most))
    }

    fn is_empty(&self) -> BoxFuture<'_, Result<bool, IndexError>> {
        Box::pin(async move {
            if self.is_alias() && self.alias_target(&self.target).await?.is_none() {
                return Ok(true);
            }
            let client = self.client();
            if client.count(&self.target, None).await? > 0 {
                return Ok(false);
            }
            // Recent writes are not counted before a refresh.
            client.refresh(&self.target).await?;
            Ok(client.count(&self.target, None).await? == 0)
        })
    }

    fn create_if_missing<'a>(
        &'a self,
        fields: &'a [Field],
    ) -> BoxFuture<'a, Result<(), IndexError>> {
        Box::pin(async move {
            match self.is_alias() {
                true => self.current_index(fields).await.map(drop),
                false => Ok(()),
            }
        })
    }

    fn match_documents<'a>(
        &'a self,
        documents: &'a [(String, String)],
    ) -> BoxFuture<'a, Result<Vec<bool>, IndexError>> {
        Box::pin(self.compare_documents(documents))
    }

    fn unmanaged(&self, most: usize) -> BoxFuture<'_, Result<(u64, Vec<String>), IndexError>> {
        Box::pin(self.find_unmanaged(most))
    }

    fn remove_unmanaged<'a>(&'a self, ids: &'a [String]) -> BoxFuture<'a, Result<(), IndexError>> {
        Box::pin(self.delete_unmanaged(ids))
    }

    fn prune_deletions(&self, older_than: Duration) -> BoxFuture<'_, Result<u64, IndexError>> {
        Box::pin(self.delete_old_deletions(older_than))
    }

    fn search<'a>(
        &'a self,
        query: &'a str,
        most: usize,
    ) -> BoxFuture<'a, Result<Vec<String>, IndexError>> {
        Box::pin(Self::search(self, query, most))
    }

    fn targets(&self) -> BoxFuture<'_, Result<Vec<Arc<dyn Index>>, IndexError>> {
        Box::pin(async move {
            if !self.is_alias() {
                return Ok(Vec::new());
            }
            let (alias, next_alias) = (&*self.shared.alias, &*self.next_alias());
            document::check_definition(&self.shared.definition).map_err(IndexError)?;
            let Some(current) = self.alias_target(alias).await? else {
                return Err(IndexError(format!(
                    "{alias} is not an alias yet: the next poll of a sync creates its index"
                )));
            };
            let next = self.alias_target(next_alias).await?;
            let mut all: Vec<Arc<dyn Index>> = vec![Arc::new(self.for_index(&current, alias))];
            if let Some(next) = next.filter(|next| *next != current) {
                all.push(Arc::new(self.for_index(&next, next_alias)));
            }
            Ok(all)
        })
    }
}

impl From<Error> for IndexError {
    fn from(error: Error) -> Self {
        Self(chain(&error))
    }
}
