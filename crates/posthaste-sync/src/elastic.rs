//! Elasticsearch or OpenSearch as the index: an alias, and the index that it stands for.
//!
//! The server's own version of a document is its mark as one number, so that it refuses late writes
//! by itself. It forgets within a minute what it deleted; so a deletion is written as a document
//! without the row's fields.

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
pub(super) use document::check as check_definition;
use posthaste::__private::chain;
pub use rebuild::Rebuilt;

/// This many documents are read, or forgotten, at once.
const PAGE: usize = 2_500;

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
    shared: Arc<Shared>,
    /// What is read here: the alias, or one index.
    target: Arc<str>,
    /// The alias by which it is written. A write to an index that is gone would make one of that
    /// name, with whatever mapping it guesses; one by an alias that is gone is refused. One that is
    /// overtaken by a switch goes to the other index, where it does no harm, and is not seen here.
    write_target: Arc<str>,
}

struct Shared {
    client: Client,
    alias: String,
    definition: Value,
    pause: Duration,
    /// Requests with more bytes are cut: the server has refused such.
    largest: AtomicUsize,
    /// Indexes that were seen to have what we need.
    known: Mutex<HashSet<String>>,
    /// Where walks continue after documents that stand under another id than they were written
    /// with: by the index and that id.
    strays: Mutex<HashMap<(String, String), String>>,
}

impl Elastic {
    /// The index of this alias, which is made with the first check of a sync if there is none.
    pub fn new(client: Client, alias: impl Into<String>) -> Self {
        let alias = alias.into();
        Self {
            target: alias.as_str().into(),
            write_target: alias.as_str().into(),
            shared: Arc::new(Shared {
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

    /// The `settings` and `mappings` that an index is made with; without `mappings`, a sync makes
    /// some of the types of the columns. An index that is there keeps its own: see
    /// [`rebuild`](Self::rebuild). One of which no index can be made is refused by
    /// [`open`](Self::open), and by each check of a sync.
    pub fn definition(self, definition: Value) -> Self {
        self.with(|shared| shared.definition = definition)
    }

    /// For how long a server that has too much to do is left alone at first, where it does not say;
    /// then twice as long. 200 ms by default.
    pub fn pause(self, pause: Duration) -> Self {
        self.with(|shared| shared.pause = pause)
    }

    fn with(mut self, change: impl FnOnce(&mut Shared)) -> Self {
        let Shared {
            client,
            alias,
            definition,
            pause,
            ..
        } = &*self.shared;
        let mut shared = Shared {
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

    /// Makes the index if there is none, and checks whether an existing one can be synced.
    pub async fn open(&self) -> Result<(), IndexError> {
        self.current(&[]).await.map(drop)
    }

    /// Why no document can have a field of this name, if none can.
    pub fn unfit_field(name: &str) -> Option<&'static str> {
        mapping::field_problem(name)
    }

    /// The ids of at most this many documents that match, the best first: all words, `"phrases"`,
    /// `|` for or, `-without`, in all fields.
    pub async fn search(&self, query: &str, most: usize) -> Result<Vec<String>, IndexError> {
        let words = json!({"query": query, "default_operator": "and", "lenient": true});
        self.search_by(&json!({"simple_query_string": words}), most)
            .await
    }

    /// As [`search`](Self::search), by a query of the server's own language.
    pub async fn search_by(&self, query: &Value, most: usize) -> Result<Vec<String>, IndexError> {
        let query = json!({"bool": {"must": [query], "must_not": [document::is_deletion()]}});
        let query = json!({"query": query, "size": most, "_source": false});
        let page = self.client().search(&self.target, &query).await?;
        Ok(page.hits.into_iter().map(|hit| hit.id).collect())
    }

    fn client(&self) -> &Client {
        &self.shared.client
    }

    /// The one index of this name, which this alias stands for.
    fn at(&self, index: &str, alias: &str) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            target: index.into(),
            write_target: alias.into(),
        }
    }

    fn is_alias(&self) -> bool {
        *self.target == self.shared.alias
    }

    /// The alias of an index that is being made beside the other.
    fn next_alias(&self) -> String {
        format!("{}-next", self.shared.alias)
    }

    /// The index that the alias stands for, made if there is none.
    async fn current(&self, fields: &[Field]) -> Result<String, IndexError> {
        let alias = &*self.shared.alias;
        document::check(&self.shared.definition).map_err(IndexError)?;
        let definition = mapping::with_mappings(&self.shared.definition, fields);
        let definition = document::definition(&definition, alias, "");
        let mut number = 0;
        loop {
            if let Some(index) = self.alias_target(alias).await? {
                return Ok(index);
            }
            // One of this number may be left from another time.
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

    /// The index that this alias stands for, if it can be synced.
    async fn alias_target(&self, alias: &str) -> Result<Option<String>, IndexError> {
        let mut indexes = self.client().alias(alias).await?;
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
            if !described.is_some_and(|described| document::is_ours(&described)) {
                let lacks =
                    format!("{index} lacks the field {POSTHASTE_FIELD}: it was not made by a sync");
                return Err(IndexError(lacks));
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
        for part in asked.chunks(PAGE) {
            let ids: Vec<&String> = part.iter().map(|(_, id)| *id).collect();
            let source = Source::Field(POSTHASTE_FIELD);
            let shown = self
                .client()
                .multi_get(&self.target, &ids, reading, source)
                .await?;
            for ((at, _), shown) in part.iter().zip(shown) {
                let shown = shown.map_err(|refusal| IndexError(refusal.reason))?;
                seen[*at] = shown.map(|one| document::seen(one.version, one.source.as_deref()));
            }
        }
        Ok(seen)
    }

    /// Takes old deletions away, unless something newer stands in their place by now.
    async fn forget_older(&self, older_than: Duration) -> Result<u64, IndexError> {
        self.client().refresh(&self.target).await?;
        let before = document::now().saturating_sub(document::milliseconds(older_than));
        let mut forgotten = 0;
        loop {
            let old = document::deleted_before(before);
            let query = json!({"query": {"bool": {"filter": [old]}}, "size": PAGE,
                "_source": false, "seq_no_primary_term": true});
            let page = self.client().search(&self.target, &query).await?.hits;
            // By what was seen and not by a version: a deletion with a version makes an index where
            // there is none any more.
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
            // What a search finds that is gone comes again until the next refresh; so does what
            // could not be taken away.
            if page.len() < PAGE || outcomes.iter().any(Result::is_err) {
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
            // What was stored before this is found after it.
            self.client().refresh(&self.target).await?;
            self.read_versions(ids, Reading::Searchable).await
        })
    }

    fn walk<'a>(
        &'a self,
        after: Option<&'a str>,
        most: usize,
    ) -> BoxFuture<'a, Result<Vec<(String, IndexedVersion)>, IndexError>> {
        Box::pin(self.page(after, most))
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
            // What was written a moment ago is not counted before this.
            client.refresh(&self.target).await?;
            Ok(client.count(&self.target, None).await? == 0)
        })
    }

    fn make<'a>(&'a self, fields: &'a [Field]) -> BoxFuture<'a, Result<(), IndexError>> {
        Box::pin(async move {
            match self.is_alias() {
                true => self.current(fields).await.map(drop),
                false => Ok(()),
            }
        })
    }

    fn holds<'a>(
        &'a self,
        documents: &'a [(String, String)],
    ) -> BoxFuture<'a, Result<Vec<bool>, IndexError>> {
        Box::pin(self.compare(documents))
    }

    fn unmanaged(&self, most: usize) -> BoxFuture<'_, Result<(u64, Vec<String>), IndexError>> {
        Box::pin(self.find_unmanaged(most))
    }

    fn remove_unmanaged<'a>(&'a self, ids: &'a [String]) -> BoxFuture<'a, Result<(), IndexError>> {
        Box::pin(self.delete_unmanaged(ids))
    }

    fn forget(&self, older_than: Duration) -> BoxFuture<'_, Result<u64, IndexError>> {
        Box::pin(self.forget_older(older_than))
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
            document::check(&self.shared.definition).map_err(IndexError)?;
            let Some(current) = self.alias_target(alias).await? else {
                return Err(IndexError(format!(
                    "{alias} is not an alias yet: the next poll of a sync creates its index"
                )));
            };
            let next = self.alias_target(next_alias).await?;
            let next = next.filter(|next| *next != current);
            let mut all: Vec<Arc<dyn Index>> = vec![Arc::new(self.at(&current, alias))];
            all.extend(next.map(|next| Arc::new(self.at(&next, next_alias)) as Arc<dyn Index>));
            Ok(all)
        })
    }
}

impl From<Error> for IndexError {
    fn from(error: Error) -> Self {
        Self(chain(&error))
    }
}
