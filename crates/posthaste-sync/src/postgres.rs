//! Postgres as the index: full-text search in the table `posthaste.search`, in the database of the
//! rows or in another migrated database.

use std::time::Duration;

use futures_util::future::BoxFuture;
use posthaste::Database;
use serde_json::json;

use super::decide::IndexedVersion;
use super::index::{Index, IndexError, Proof, Write, WriteOutcome};
use crate::store::Connections;
use crate::store::search::{SearchTable, WriteFailure};

/// Length of an id in bytes, a third of a page, above which a refusal is final. Postgres may refuse
/// shorter ids too, together with their documents.
const MAX_ID_BYTES: usize = 2_600;

/// The weight of a field in the ranking of results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// The largest weight.
    A,
    /// The second largest weight.
    B,
    /// The second smallest weight.
    C,
    /// The smallest weight.
    D,
}

/// A full-text index in Postgres. Searches find a document as soon as it is committed, so
/// [`Proof::Searchable`] costs nothing.
#[derive(Clone, Debug)]
pub struct Postgres {
    pool: Connections,
    index: String,
    language: String,
    weights: serde_json::Map<String, serde_json::Value>,
}

impl Postgres {
    /// Returns the index of this name, which exists from its first document on. It indexes all
    /// texts of a document, with English stemming. It is in this [`Database`]: a pool of
    /// deadpool-postgres or of sqlx, or a URL, as for a [`Table`](crate::Table).
    pub fn new(database: impl Into<Database>, index: impl Into<String>) -> Self {
        Self {
            pool: Connections::new(database),
            index: index.into(),
            language: "english".into(),
            weights: serde_json::Map::new(),
        }
    }

    /// Sets the text search configuration of Postgres, such as `german` or `simple`.
    pub fn language(mut self, configuration: impl Into<String>) -> Self {
        self.language = configuration.into();
        self
    }

    /// Adds a searched field. Once a field is added, fields that are not added are not indexed.
    pub fn search_field(mut self, field: impl Into<String>, weight: Weight) -> Self {
        self.weights
            .insert(field.into(), json!(format!("{weight:?}")));
        self
    }

    /// Returns the ids of at most this many documents that match, the best first. The query syntax
    /// is that of web searches: words, `"phrases"`, `or`, `-without`.
    pub async fn search(&self, query: &str, most: usize) -> Result<Vec<String>, IndexError> {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        self.to_search("").search(query, most).await
    }

    fn to_search<'a>(&'a self, weights: &'a str) -> SearchTable<'a> {
        SearchTable {
            pool: &self.pool,
            index: &self.index,
            language: &self.language,
            weights,
        }
    }

    /// Writes documents. One document that cannot be indexed makes the statement fail, so the
    /// halves of a failed batch are written separately.
    async fn write_parts(&self, writes: &[Write]) -> Result<Vec<WriteOutcome>, IndexError> {
        let weights = serde_json::Value::Object(self.weights.clone()).to_string();
        let table = self.to_search(&weights);
        let mut answers = Vec::with_capacity(writes.len());
        let mut parts = vec![writes];
        while let Some(part) = parts.pop() {
            match table.write(part).await {
                Ok(taken) => answers.extend(taken.into_iter().map(|taken| match taken {
                    true => WriteOutcome::Taken,
                    false => WriteOutcome::Older,
                })),
                Err(WriteFailure::Rejected(reason)) if part.len() == 1 => {
                    answers.push(match part[0].id.len() > MAX_ID_BYTES {
                        true => WriteOutcome::Never { reason },
                        false => WriteOutcome::Rejected { reason },
                    });
                }
                Err(WriteFailure::TooLarge(reason)) if part.len() == 1 => {
                    answers.push(WriteOutcome::Never { reason });
                }
                Err(WriteFailure::Rejected(_) | WriteFailure::TooLarge(_)) => {
                    let (first, second) = part.split_at(part.len() / 2);
                    parts.extend([second, first]);
                }
                Err(WriteFailure::IndexError(error)) => return Err(error),
            }
        }
        Ok(answers)
    }
}

impl Index for Postgres {
    fn label(&self) -> String {
        format!("postgres: {}", self.index)
    }

    fn write<'a>(
        &'a self,
        writes: &'a [Write],
    ) -> BoxFuture<'a, Result<Vec<WriteOutcome>, IndexError>> {
        Box::pin(async move {
            if writes.is_empty() {
                return Ok(Vec::new());
            }
            self.write_parts(writes).await
        })
    }

    fn read<'a>(
        &'a self,
        ids: &'a [String],
        _: Proof,
    ) -> BoxFuture<'a, Result<Vec<Option<IndexedVersion>>, IndexError>> {
        Box::pin(async move {
            let seen = self.to_search("").read(ids).await?;
            let seen: std::collections::HashMap<String, IndexedVersion> =
                seen.into_iter().collect();
            Ok(ids.iter().map(|id| seen.get(id).copied()).collect())
        })
    }

    fn walk<'a>(
        &'a self,
        after: Option<&'a str>,
        most: usize,
    ) -> BoxFuture<'a, Result<Vec<(String, IndexedVersion)>, IndexError>> {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        Box::pin(async move { self.to_search("").walk(after, most).await })
    }

    fn is_empty(&self) -> BoxFuture<'_, Result<bool, IndexError>> {
        Box::pin(async move { self.to_search("").is_empty().await })
    }

    fn awaits_fill(&self) -> BoxFuture<'_, Result<bool, IndexError>> {
        self.is_empty()
    }

    fn match_documents<'a>(
        &'a self,
        documents: &'a [(String, String)],
    ) -> BoxFuture<'a, Result<Vec<bool>, IndexError>> {
        Box::pin(async move {
            let weights = serde_json::Value::Object(self.weights.clone()).to_string();
            let held = self.to_search(&weights).match_documents(documents).await?;
            let held: std::collections::HashSet<String> = held.into_iter().collect();
            Ok(documents.iter().map(|(id, _)| held.contains(id)).collect())
        })
    }

    fn prune_deletions(&self, older_than: Duration) -> BoxFuture<'_, Result<u64, IndexError>> {
        Box::pin(async move { self.to_search("").prune_deletions(older_than).await })
    }

    fn search<'a>(
        &'a self,
        query: &'a str,
        most: usize,
    ) -> BoxFuture<'a, Result<Vec<String>, IndexError>> {
        Box::pin(Postgres::search(self, query, most))
    }
}
