//! Statements of the index sync (migrations/0022_sync.sql): rows and their versions, and the index that is a table.

use std::ops::Deref;
use std::time::Duration;

use deadpool_postgres::{Object, Pool};
use tokio_postgres::{Client, Row};

use super::json_text::JsonText;
use super::milliseconds;
use super::parameter::{Parameter, typed};
use crate::error::{Error, describe, is_connection};
use crate::sync::{Body, Installed, Mark, RowVersion, Seen, SourceError, Trouble, Write};

/// Old deletions that are taken out of a search table by one statement.
const FORGOTTEN_AT_ONCE: i64 = 10_000;

/// A connection on which nothing is under way when it goes back to its pool: one whose answer nobody waits for any more is closed.
struct Lent(Option<Object>);

impl Lent {
    async fn from(pool: &Pool) -> Result<Self, String> {
        let object = pool.get().await.map_err(|error| error.to_string())?;
        Ok(Self(Some(object)))
    }

    fn give_back(mut self) {
        self.0 = None;
    }
}

impl Deref for Lent {
    type Target = Client;

    fn deref(&self) -> &Client {
        // It is there until it is given back, which takes the whole.
        match &self.0 {
            Some(object) => object,
            None => unreachable!("a connection was used after it was given back"),
        }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.0.take().map(Object::take);
    }
}

/// Why a statement brought nothing.
enum Failed {
    /// The server refused the values.
    Values(String),
    /// Anything else.
    Other(String),
}

/// Asks on a connection of the pool.
async fn ask(pool: &Pool, sql: &str, parameters: &[&dyn Parameter]) -> Result<Vec<Row>, Failed> {
    let lent = Lent::from(pool).await.map_err(Failed::Other)?;
    match lent.query_typed(sql, &typed(parameters)).await {
        Ok(rows) => {
            lent.give_back();
            Ok(rows)
        }
        Err(error) => {
            if !is_connection(&error) {
                lent.give_back();
            }
            let text = describe(&error);
            // Values out of range, programs' limits, errors that functions raise. All else is not about one row.
            let of_values = |code: &str| {
                ["22", "54", "P0"]
                    .iter()
                    .any(|class| code.starts_with(class))
            };
            let code = error.code().map(|state| state.code());
            Err(if code.is_some_and(of_values) {
                Failed::Values(text)
            } else {
                Failed::Other(text)
            })
        }
    }
}

impl From<Failed> for SourceError {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::Values(reason) => Self::Rows(reason),
            Failed::Other(reason) => Self::Down(reason),
        }
    }
}

pub(crate) async fn versions(
    pool: &Pool,
    name: &str,
    ids: &[String],
) -> Result<Vec<RowVersion>, SourceError> {
    let rows = ask(pool, include_str!("sync_versions.sql"), &[&name, &ids]).await?;
    read(&rows, version)
}

pub(crate) async fn versions_by(
    pool: &Pool,
    sql: &str,
    ids: &[String],
) -> Result<Vec<RowVersion>, SourceError> {
    let rows = ask(pool, sql, &[&ids]).await?;
    read(&rows, version)
}

/// The statement for the versions of the rows that this one returns with their documents.
pub(crate) fn versions_of(rows: &str) -> String {
    let mut parts = include_str!("sync_versions_of.sql").split("-- rows\n");
    let (before, after) = (parts.next(), parts.last());
    let rows = rows.trim_end().trim_end_matches(';');
    // It may end with a comment, which ends with its line.
    [
        before.unwrap_or_default(),
        rows,
        "\n",
        after.unwrap_or_default(),
    ]
    .concat()
}

pub(crate) async fn page(
    pool: &Pool,
    name: &str,
    after: Option<&str>,
    most: usize,
) -> Result<Vec<RowVersion>, SourceError> {
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    let parameters: [&dyn Parameter; 3] = [&name, &after, &most];
    read(
        &ask(pool, include_str!("sync_page.sql"), &parameters).await?,
        version,
    )
}

pub(crate) async fn page_by(
    pool: &Pool,
    sql: &str,
    after: Option<&str>,
    most: usize,
) -> Result<Vec<RowVersion>, SourceError> {
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    read(&ask(pool, sql, &[&after, &most]).await?, version)
}

pub(crate) async fn rows(
    pool: &Pool,
    name: &str,
    ids: &[String],
) -> Result<Vec<crate::sync::Row>, SourceError> {
    let rows = ask(pool, include_str!("sync_rows.sql"), &[&name, &ids]).await?;
    read(&rows, row)
}

pub(crate) async fn rows_by(
    pool: &Pool,
    sql: &str,
    ids: &[String],
) -> Result<Vec<crate::sync::Row>, SourceError> {
    let rows = ask(pool, sql, &[&ids]).await?;
    read(&rows, row)
}

fn read<T>(
    rows: &[Row],
    one: impl Fn(&Row) -> Result<T, tokio_postgres::Error>,
) -> Result<Vec<T>, SourceError> {
    let all: Result<Vec<T>, tokio_postgres::Error> = rows.iter().map(one).collect();
    // The statement returns something else than it should: so it does for every row.
    all.map_err(|error| SourceError::Down(describe(&error)))
}

fn version(row: &Row) -> Result<RowVersion, tokio_postgres::Error> {
    Ok(RowVersion {
        id: row.try_get(0)?,
        version: row.try_get(1)?,
        is_live: row.try_get(2)?,
    })
}

fn row(row: &Row) -> Result<crate::sync::Row, tokio_postgres::Error> {
    let document: Option<JsonText<'_>> = row.try_get(2)?;
    Ok(crate::sync::Row {
        id: row.try_get(0)?,
        version: row.try_get(1)?,
        body: document.map_or(Body::Hidden, |text| Body::Document(text.0.to_owned())),
    })
}

pub(crate) async fn install_statement(
    client: &Client,
    name: &str,
    told: &Installed,
) -> Result<String, Error> {
    let delay = milliseconds(told.delay);
    let (table, id, version) = (&*told.table, &*told.id, &*told.version);
    let deleted = told.deleted.as_deref();
    let parameters: [&dyn Parameter; 8] = [
        &table,
        &id,
        &version,
        &name,
        &deleted,
        &delay,
        &told.draw,
        &told.enqueue,
    ];
    let asked = client
        .query_typed_one(include_str!("sync_install.sql"), &typed(&parameters))
        .await;
    let statement = asked.and_then(|row| row.try_get(0));
    statement.map_err(Error::postgres("synced table"))
}

/// A part of `posthaste.search`, and how it makes words of documents.
pub(crate) struct Search<'a> {
    pub(crate) pool: &'a Pool,
    pub(crate) index: &'a str,
    pub(crate) language: &'a str,
    pub(crate) weights: &'a str,
}

/// Why documents were not written.
pub(crate) enum Unwritten {
    /// One of them cannot be.
    Refused(String),
    /// The database is not to be asked now.
    Trouble(Trouble),
}

impl Search<'_> {
    /// For each of them whether it was taken.
    pub(crate) async fn write(&self, writes: &[Write]) -> Result<Vec<bool>, Unwritten> {
        let ids: Vec<&str> = writes.iter().map(|one| &*one.id).collect();
        let versions: Vec<i64> = writes.iter().map(|one| one.mark.version).collect();
        let passes: Vec<i32> = writes.iter().map(|one| one.mark.pass.into()).collect();
        let tokens: Vec<i64> = writes.iter().map(|one| one.token).collect();
        let documents = writes
            .iter()
            .map(|one| one.document.as_deref().map(JsonText));
        let documents: Vec<Option<JsonText<'_>>> = documents.collect();
        let weights = JsonText(self.weights);
        let parameters: [&dyn Parameter; 8] = [
            &self.index,
            &self.language,
            &weights,
            &ids,
            &versions,
            &passes,
            &tokens,
            &documents,
        ];
        let rows = ask(self.pool, include_str!("search_write.sql"), &parameters).await;
        let rows = rows.map_err(|failed| match failed {
            Failed::Values(reason) => Unwritten::Refused(reason),
            Failed::Other(reason) => Unwritten::Trouble(Trouble(reason)),
        })?;
        let taken = rows
            .iter()
            .map(|row| Ok((row.try_get(0)?, row.try_get(1)?)));
        let taken: Result<std::collections::HashMap<&str, bool>, tokio_postgres::Error> =
            taken.collect();
        let taken = taken.map_err(|error| Unwritten::Trouble(Trouble(describe(&error))))?;
        let answer = |id: &&str| taken.get(id).copied().unwrap_or(false);
        Ok(ids.iter().map(answer).collect())
    }

    pub(crate) async fn read(&self, ids: &[String]) -> Result<Vec<(String, Seen)>, Trouble> {
        self.seen(include_str!("search_read.sql"), &[&self.index, &ids])
            .await
    }

    pub(crate) async fn walk(
        &self,
        after: Option<&str>,
        most: i64,
    ) -> Result<Vec<(String, Seen)>, Trouble> {
        let parameters: [&dyn Parameter; 3] = [&self.index, &after, &most];
        self.seen(include_str!("search_walk.sql"), &parameters)
            .await
    }

    async fn seen(
        &self,
        sql: &str,
        parameters: &[&dyn Parameter],
    ) -> Result<Vec<(String, Seen)>, Trouble> {
        let rows = ask(self.pool, sql, parameters).await?;
        let seen = |row: &Row| {
            let pass: i32 = row.try_get(2)?;
            let mark = Mark {
                version: row.try_get(1)?,
                pass: u16::try_from(pass).unwrap_or(Mark::LAST),
            };
            let seen = Seen {
                mark,
                token: row.try_get(3)?,
                is_live: row.try_get(4)?,
            };
            Ok((row.try_get(0)?, seen))
        };
        let all: Result<_, tokio_postgres::Error> = rows.iter().map(seen).collect();
        all.map_err(|error| Trouble(describe(&error)))
    }

    /// Page by page, each in a transaction of its own: none holds many rows.
    pub(crate) async fn forget(&self, older_than: Duration) -> Result<u64, Trouble> {
        let lent = Lent::from(self.pool).await.map_err(Trouble)?;
        let age = milliseconds(older_than);
        let parameters: [&dyn Parameter; 3] = [&self.index, &age, &FORGOTTEN_AT_ONCE];
        let mut all = 0;
        loop {
            let forgotten = lent
                .execute_typed(include_str!("search_forget.sql"), &typed(&parameters))
                .await;
            let forgotten = forgotten.map_err(|error| Trouble(describe(&error)))?;
            all += forgotten;
            if forgotten < FORGOTTEN_AT_ONCE.unsigned_abs() {
                lent.give_back();
                return Ok(all);
            }
        }
    }

    pub(crate) async fn search(&self, query: &str, most: i64) -> Result<Vec<String>, Trouble> {
        let parameters: [&dyn Parameter; 4] = [&self.index, &self.language, &query, &most];
        let rows = ask(self.pool, include_str!("search.sql"), &parameters).await?;
        let ids: Result<_, tokio_postgres::Error> = rows.iter().map(|row| row.try_get(0)).collect();
        ids.map_err(|error| Trouble(describe(&error)))
    }
}

impl From<Failed> for Trouble {
    fn from(failed: Failed) -> Self {
        let (Failed::Values(reason) | Failed::Other(reason)) = failed;
        Self(reason)
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn versions_are_those_of_the_statement_for_rows_whatever_it_ends_with() {
        for rows in ["SELECT 1, 2, NULL -- all", "SELECT 1, 2, NULL;\n "] {
            let versions = super::versions_of(rows);
            let lines: Vec<&str> = versions
                .lines()
                .filter(|line| !line.starts_with("--"))
                .collect();
            let rows = rows.trim_end().trim_end_matches(';');
            let expected = [
                "SELECT r.id, r.version, r.document IS NOT NULL",
                "  FROM (",
                rows,
                ") r (id, version, document)",
            ];
            assert_eq!(lines, expected);
        }
    }
}
