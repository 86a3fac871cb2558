//! The rows of a configured synced table.

use std::collections::{BTreeMap, HashMap, HashSet};

use futures_util::future::BoxFuture;
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use super::Synced;
use crate::bisect::{PartialRead, bisect_read};
use crate::source::{Body, Field, Row, RowVersion, Source, SourceError};
use crate::store::{self, Connections};
use crate::table::{Query, Table};

/// The rows of a table that was installed with `posthaste.sync_table`. Their documents consist of
/// all columns, of the result of a statement, or of some columns.
pub(super) struct ConfiguredRows {
    table: Table,
    query: Option<Query>,
    /// The fields, each with its column; if empty, all columns by their names.
    document: Vec<(String, String)>,
    /// The database of the table, which records the recipe of the installed documents.
    pool: Connections,
    name: String,
    recipe: String,
}

/// Returns a digest of the settings by which documents are made of rows.
pub(super) fn recipe_digest(synced: &Synced) -> String {
    let settings = serde_json::json!([synced.rows, synced.document]).to_string();
    let digest = Sha256::digest(settings);
    digest[..8]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

impl ConfiguredRows {
    pub(super) fn new(pool: Connections, synced: &Synced) -> Self {
        let query = synced.rows.as_ref().map(|rows| {
            let query = Query::with_connections(pool.clone(), rows);
            match &synced.versions {
                Some(versions) => query.versions(versions),
                None => query,
            }
        });
        Self {
            table: Table::with_connections(pool.clone(), &synced.name),
            query,
            document: synced.document.clone(),
            pool,
            name: synced.name.clone(),
            recipe: recipe_digest(synced),
        }
    }

    /// Replaces these versions by those of the statement, which may hide rows that the table shows.
    async fn apply_statement_versions(
        &self,
        page: Vec<RowVersion>,
    ) -> Result<Vec<RowVersion>, SourceError> {
        let Some(query) = &self.query else {
            return Ok(page);
        };
        let ids: Vec<String> = page.iter().map(|row| row.id.clone()).collect();
        let PartialRead {
            read, unreadable, ..
        } = bisect_read(&ids, |part| query.versions(part)).await?;
        let mut current: HashMap<String, RowVersion> =
            read.into_iter().map(|row| (row.id.clone(), row)).collect();
        let unreadable: HashSet<String> = unreadable.into_iter().map(|one| one.id).collect();
        let judged = page.into_iter().map(|row| {
            let hidden = RowVersion {
                // A row that the statement cannot read is as the table shows it; the next check
                // finds it unreadable.
                is_live: row.is_live && unreadable.contains(&row.id),
                ..row
            };
            current.remove(&hidden.id).unwrap_or(hidden)
        });
        Ok(judged.collect())
    }

    /// Returns no rows if a statement fails for a single id that has no row in the table: such an
    /// error does not matter.
    async fn ignore_errors_of_missing_row<T>(
        &self,
        ids: &[String],
        answer: Result<Vec<T>, SourceError>,
    ) -> Result<Vec<T>, SourceError> {
        match answer {
            Err(SourceError::Rows(_) | SourceError::TooLarge(_))
                if ids.len() == 1 && self.table.versions(ids).await?.is_empty() =>
            {
                Ok(Vec::new())
            }
            answer => answer,
        }
    }
}

impl Source for ConfiguredRows {
    fn versions<'a>(
        &'a self,
        ids: &'a [String],
    ) -> BoxFuture<'a, Result<Vec<RowVersion>, SourceError>> {
        Box::pin(async move {
            match &self.query {
                Some(query) => {
                    self.ignore_errors_of_missing_row(ids, query.versions(ids).await)
                        .await
                }
                None => self.table.versions(ids).await,
            }
        })
    }

    fn rows<'a>(&'a self, ids: &'a [String]) -> BoxFuture<'a, Result<Vec<Row>, SourceError>> {
        Box::pin(async move {
            let mut rows = match &self.query {
                Some(query) => {
                    self.ignore_errors_of_missing_row(ids, query.rows(ids).await)
                        .await?
                }
                None => self.table.rows(ids).await?,
            };
            if !self.document.is_empty() {
                rows.iter_mut()
                    .for_each(|row| select_columns(&mut row.body, &self.document));
            }
            Ok(rows)
        })
    }

    fn walk<'a>(
        &'a self,
        after: Option<&'a str>,
        most: usize,
    ) -> BoxFuture<'a, Result<Vec<RowVersion>, SourceError>> {
        Box::pin(async move {
            self.apply_statement_versions(self.table.walk(after, most).await?)
                .await
        })
    }

    fn pending<'a>(
        &'a self,
        ids: &'a [String],
    ) -> BoxFuture<'a, Result<HashSet<String>, SourceError>> {
        self.table.pending(ids)
    }

    /// Returns no fields for a statement, because its fields are unknown before it makes documents.
    fn fields(&self) -> BoxFuture<'_, Result<Vec<Field>, SourceError>> {
        Box::pin(async move {
            if self.query.is_some() {
                return Ok(Vec::new());
            }
            Ok(project_columns(self.table.fields().await?, &self.document))
        })
    }

    fn recipe(&self) -> String {
        self.recipe.clone()
    }

    fn check(&self) -> BoxFuture<'_, Result<(), SourceError>> {
        Box::pin(store::check_recipe(&self.pool, &self.name, &self.recipe))
    }

    fn fill(&self) -> BoxFuture<'_, Result<u64, SourceError>> {
        self.table.fill()
    }
}

/// Returns the fields of a document of these columns; all columns if none was selected.
fn project_columns(columns: Vec<Field>, document: &[(String, String)]) -> Vec<Field> {
    if document.is_empty() {
        return columns;
    }
    let fields = document.iter().filter_map(|(name, column)| {
        let column = columns.iter().find(|one| one.name == *column)?;
        Some(Field {
            name: name.clone(),
            column_type: column.column_type.clone(),
        })
    });
    fields.collect()
}

/// Makes the document of the selected columns.
fn select_columns(body: &mut Body, fields: &[(String, String)]) {
    if let Body::Document(columns) = body {
        *body = match document_of_columns(columns, fields) {
            Ok(document) => Body::Document(document),
            Err(reason) => Body::Unmade(reason),
        };
    }
}

fn document_of_columns(columns: &str, fields: &[(String, String)]) -> Result<String, String> {
    let columns: BTreeMap<String, &RawValue> =
        serde_json::from_str(columns).map_err(|error| error.to_string())?;
    let document: Result<BTreeMap<&str, &RawValue>, String> = fields
        .iter()
        .map(|(field, column)| {
            let value = columns.get(column);
            let value =
                value.ok_or_else(|| format!("document: the table has no column {column}"))?;
            Ok((&**field, *value))
        })
        .collect();
    serde_json::to_string(&document?).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_have_the_selected_fields_and_exact_numbers() {
        let fields = [("title", "name"), ("n", "size")];
        let fields = fields.map(|(field, column)| (field.to_owned(), column.to_owned()));
        let columns = r#"{"id": 1, "name": "x", "size": 123456789012345678901234567890}"#;
        let document = document_of_columns(columns, &fields).unwrap();
        assert_eq!(
            document,
            r#"{"n":123456789012345678901234567890,"title":"x"}"#
        );
        let error = document_of_columns(r#"{"name": null}"#, &fields).unwrap_err();
        assert_eq!(error, "document: the table has no column size");
    }
}
