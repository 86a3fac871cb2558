//! Statements of the sync (sql/functions/sync.sql of posthaste): rows and their versions.

pub(crate) mod behind;
pub(crate) mod install;
pub(crate) mod reindex;
pub(crate) mod search;

use std::collections::HashSet;
use std::ops::Deref;

use deadpool_postgres::{Object, Pool};
use tokio_postgres::{Client, Row, SimpleQueryMessage};

use posthaste::__private::chain;
use posthaste::__private::{JsonText, Parameter, typed};
use posthaste::{Database, Error};

use crate::source::{Body, Field, RowVersion, SourceError};

/// The most connections of a pool: a sync has two batches in flight, and a search may run at the
/// same time.
const MAX_CONNECTIONS: usize = 4;

/// The connections of one source or index: the program's pool of deadpool-postgres, or one that is
/// created by the database's settings. If the settings are invalid, the first use fails.
#[derive(Clone, Debug)]
pub(crate) struct Connections(Result<Pool, String>);

impl Connections {
    pub(crate) fn new(database: impl Into<Database>) -> Self {
        let pool = database.into().pool(MAX_CONNECTIONS);
        Self(pool.map_err(|error| chain(&error)))
    }
}

/// A pooled connection that returns to its pool only without a running statement. It is closed if
/// the caller stops waiting for an answer.
pub(super) struct PooledClient(Option<Object>);

impl PooledClient {
    pub(super) async fn acquire(pool: &Connections) -> Result<Self, String> {
        let pool = pool.0.as_ref().map_err(String::clone)?;
        let object = pool.get().await.map_err(|error| chain(&error))?;
        Ok(Self(Some(object)))
    }

    pub(super) fn give_back(mut self) {
        self.0 = None;
    }

    /// Returns the rows, and the connection to the pool unless it is lost.
    fn finish(
        self,
        rows: Result<Vec<Row>, tokio_postgres::Error>,
    ) -> Result<Vec<Row>, ReadFailure> {
        let error = match rows {
            Ok(rows) => {
                self.give_back();
                return Ok(rows);
            }
            Err(error) => error,
        };
        let text = chain(&error);
        let error = Error::postgres("cannot read rows")(error);
        if !error.is_connection() {
            self.give_back();
        }
        // These classes concern every row: the connection, rights, invalid statements,
        // transactions, resources, an operator. Any other error may concern one row: a value, a
        // limit, an exception of a function, a damaged page, or a statement timeout.
        let of_all = [
            "08", "0A", "25", "28", "3D", "3F", "40", "42", "53", "55", "57", "58", "HV",
        ];
        let code = error.sqlstate().map(|state| state.code());
        let is_of_all = |code: &str| of_all.iter().any(|class| code.starts_with(class));
        Err(match code {
            Some("57014") => ReadFailure::Values(text),
            Some("54000") => ReadFailure::TooLarge(text),
            Some(code) if !is_of_all(code) => ReadFailure::Values(text),
            _ => ReadFailure::Other(text),
        })
    }
}

impl Deref for PooledClient {
    type Target = Client;

    fn deref(&self) -> &Client {
        // The client is present until `give_back` or `finish` consumes this value.
        match &self.0 {
            Some(object) => object,
            None => unreachable!("a connection was used after it was returned"),
        }
    }
}

impl Drop for PooledClient {
    fn drop(&mut self) {
        self.0.take().map(Object::take);
    }
}

/// The reason why a statement returned no rows.
pub(super) enum ReadFailure {
    /// The server refused a value or timed out.
    Values(String),
    /// A value exceeds the limits of the server.
    TooLarge(String),
    /// Any other reason.
    Other(String),
}

const OTHER_DOCUMENTS_ERROR: &str = "its settings (rows, document) differ from those that \
     'posthaste sync install' recorded: if this process uses an old file, restart it with the new \
     one; otherwise run 'posthaste sync install', and then 'posthaste sync rebuild' or \
     'reindex --all'";

const STANDBY_ERROR: &str = "the database is a standby, which may lag: connect to the primary";

/// The beginning of a transaction that decides what is done. A query that row-level security would
/// filter fails, because a hidden row is not deleted. Values have the same text for every role and
/// database.
const BEGIN_DECIDING: &str = "BEGIN; SET LOCAL row_security = off; SET LOCAL timezone = 'UTC'; \
     SET LOCAL datestyle = 'ISO, YMD'; SET LOCAL intervalstyle = 'postgres'; \
     SET LOCAL extra_float_digits = 1; SET LOCAL bytea_output = 'hex'; \
     SET LOCAL lc_monetary = 'C'; SET LOCAL xmlbinary = 'base64'; \
     SET LOCAL quote_all_identifiers = off";

/// Runs a query that decides what is done, on a connection of the pool in a separate transaction.
/// Sends all statements at once. Fails on a standby.
pub(super) async fn query_primary(
    pool: &Connections,
    sql: &str,
    parameters: &[&dyn Parameter],
) -> Result<Vec<Row>, ReadFailure> {
    let (pooled, rows, is_standby) = run_query(pool, BEGIN_DECIDING, sql, parameters).await?;
    // A row that is missing on a standby may exist on the primary. The connection is dropped, and
    // the next one may reach the primary.
    if is_standby {
        return Err(ReadFailure::Other(STANDBY_ERROR.into()));
    }
    pooled.finish(rows)
}

/// Runs a query whose result is only shown: rows that the role may see, on the primary or a
/// standby.
pub(super) async fn query_any_server(
    pool: &Connections,
    sql: &str,
    parameters: &[&dyn Parameter],
) -> Result<Vec<Row>, ReadFailure> {
    let (pooled, rows, _) = run_query(pool, "BEGIN", sql, parameters).await?;
    pooled.finish(rows)
}

/// Returns the connection, its answer, and whether the server is a standby.
async fn run_query(
    pool: &Connections,
    begin: &str,
    sql: &str,
    parameters: &[&dyn Parameter],
) -> Result<(PooledClient, Result<Vec<Row>, tokio_postgres::Error>, bool), ReadFailure> {
    let pooled = PooledClient::acquire(pool)
        .await
        .map_err(ReadFailure::Other)?;
    let parameters = typed(parameters);
    let (begun, bound, rows, ended) = tokio::join!(
        biased;
        pooled.batch_execute(begin),
        pooled.query_typed(include_str!("ends_alone.sql"), &[]),
        pooled.query_typed(sql, &parameters),
        // Rolls back after an error.
        pooled.batch_execute("COMMIT"),
    );
    let is_standby = bound.as_ref().ok().and_then(|bound| bound.first());
    let is_standby = is_standby.is_some_and(|row| row.try_get(0).unwrap_or(false));
    let rows = begun.and(bound).and(rows);
    Ok((
        pooled,
        rows.and_then(|rows| ended.map(|()| rows)),
        is_standby,
    ))
}

impl From<ReadFailure> for SourceError {
    fn from(failed: ReadFailure) -> Self {
        match failed {
            ReadFailure::Values(reason) => Self::Rows(reason),
            ReadFailure::TooLarge(reason) => Self::TooLarge(reason),
            ReadFailure::Other(reason) => Self::Down(reason),
        }
    }
}

pub(crate) async fn read_versions(
    pool: &Connections,
    name: &str,
    ids: &[String],
) -> Result<Vec<RowVersion>, SourceError> {
    let rows = query_primary(pool, include_str!("sync_versions.sql"), &[&name, &ids]).await?;
    parse_rows(&rows, parse_version)
}

pub(crate) async fn read_versions_by(
    pool: &Connections,
    sql: &str,
    ids: &[String],
) -> Result<Vec<RowVersion>, SourceError> {
    let rows = query_primary(pool, sql, &[&ids]).await?;
    parse_rows(&rows, parse_version)
}

/// Returns the statement that reads the versions of the rows that this statement returns.
pub(crate) fn versions_statement(rows: &str) -> String {
    let mut parts = include_str!("sync_versions_of.sql").split("-- rows\n");
    let (before, after) = (parts.next(), parts.last());
    let rows = rows.trim_end().trim_end_matches(';');
    // The statement may end with a comment, which the newline ends.
    [
        before.unwrap_or_default(),
        rows,
        "\n",
        after.unwrap_or_default(),
    ]
    .concat()
}

pub(crate) async fn read_page(
    pool: &Connections,
    name: &str,
    after: Option<&str>,
    most: usize,
) -> Result<Vec<RowVersion>, SourceError> {
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    let parameters: [&dyn Parameter; 3] = [&name, &after, &most];
    parse_rows(
        &query_primary(pool, include_str!("sync_page.sql"), &parameters).await?,
        parse_version,
    )
}

pub(crate) async fn read_page_by(
    pool: &Connections,
    sql: &str,
    after: Option<&str>,
    most: usize,
) -> Result<Vec<RowVersion>, SourceError> {
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    parse_rows(
        &query_primary(pool, sql, &[&after, &most]).await?,
        parse_version,
    )
}

pub(crate) async fn read_rows(
    pool: &Connections,
    name: &str,
    ids: &[String],
) -> Result<Vec<crate::Row>, SourceError> {
    let rows = query_primary(pool, include_str!("sync_rows.sql"), &[&name, &ids]).await?;
    parse_rows(&rows, parse_row)
}

/// Fails if the documents of this sync are made differently by now.
pub(crate) async fn check_recipe(
    pool: &Connections,
    name: &str,
    recipe: &str,
) -> Result<(), SourceError> {
    let parameters: [&dyn Parameter; 2] = [&name, &recipe];
    let rows = query_primary(pool, include_str!("sync_documents.sql"), &parameters).await?;
    let is_same = rows.first().map(|row| row.try_get(0)).transpose();
    match is_same.map_err(|error| SourceError::Down(chain(&error)))? {
        None | Some(true) => Ok(()),
        Some(false) => Err(SourceError::Down(OTHER_DOCUMENTS_ERROR.into())),
    }
}

pub(crate) async fn read_pending(
    pool: &Connections,
    name: &str,
    ids: &[String],
) -> Result<HashSet<String>, SourceError> {
    let parameters: [&dyn Parameter; 2] = [&name, &ids];
    let rows = query_primary(pool, include_str!("sync_pending.sql"), &parameters).await?;
    let ids = parse_rows(&rows, |row| row.try_get(0))?;
    Ok(ids.into_iter().collect())
}

pub(crate) async fn read_fields(pool: &Connections, name: &str) -> Result<Vec<Field>, SourceError> {
    let rows = query_primary(pool, include_str!("sync_fields.sql"), &[&name]).await?;
    parse_rows(&rows, |row| {
        Ok(Field {
            name: row.try_get(0)?,
            column_type: row.try_get(1)?,
        })
    })
}

pub(crate) async fn read_rows_by(
    pool: &Connections,
    sql: &str,
    ids: &[String],
) -> Result<Vec<crate::Row>, SourceError> {
    let rows = query_primary(pool, sql, &[&ids]).await?;
    parse_rows(&rows, parse_row)
}

fn parse_rows<T>(
    rows: &[Row],
    one: impl Fn(&Row) -> Result<T, tokio_postgres::Error>,
) -> Result<Vec<T>, SourceError> {
    let all: Result<Vec<T>, tokio_postgres::Error> = rows.iter().map(one).collect();
    // The statement returns unexpected columns, for every row alike.
    all.map_err(|error| SourceError::Down(chain(&error)))
}

fn parse_version(row: &Row) -> Result<RowVersion, tokio_postgres::Error> {
    Ok(RowVersion {
        id: row.try_get(0)?,
        version: row.try_get(1)?,
        is_live: row.try_get(2)?,
    })
}

fn parse_row(row: &Row) -> Result<crate::Row, tokio_postgres::Error> {
    let document: Option<JsonText<'_>> = row.try_get(2)?;
    Ok(crate::Row {
        id: row.try_get(0)?,
        version: row.try_get(1)?,
        body: document.map_or(Body::Hidden, |text| Body::Document(text.0.to_owned())),
    })
}

/// Enqueues a job for each row without a pending one, and returns how many. If the caller stops
/// waiting, as it may for a large table, the server continues and commits.
pub(crate) async fn enqueue_fill(pool: &Connections, name: &str) -> Result<u64, SourceError> {
    let pooled = PooledClient::acquire(pool)
        .await
        .map_err(ReadFailure::Other)?;
    // No timeout applies, and the server continues after a disconnect. All statements are one
    // message, so that the answer arrives after the commit.
    let name: String = name.bytes().map(|byte| format!("{byte:02x}")).collect();
    let sql = format!(
        "SET LOCAL statement_timeout = 0; SET LOCAL client_connection_check_interval = 0; \
         SELECT posthaste.sync_fill(pg_catalog.convert_from( \
           pg_catalog.decode('{name}', 'hex'), 'UTF8'))"
    );
    let answer = pooled.simple_query(&sql).await;
    let jobs = answer.iter().flatten().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0)?.parse().ok(),
        _ => None,
    });
    pooled.finish(answer.map(|_| Vec::new()))?;
    let jobs: Option<i64> = jobs;
    Ok(jobs.unwrap_or_default().unsigned_abs())
}

#[cfg(test)]
mod tests {
    #[test]
    fn version_statements_wrap_any_row_statement() {
        for rows in ["SELECT 1, 2, NULL -- all", "SELECT 1, 2, NULL;\n "] {
            let versions = super::versions_statement(rows);
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
