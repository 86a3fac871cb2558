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

/// A sync has two batches in flight, and while it asks for them somebody may search.
const CONNECTIONS: usize = 4;

/// The connections of one source or index: the pool of deadpool-postgres that the program gave, or
/// one that is made by its database's settings. The first use fails where these are wrong.
#[derive(Clone, Debug)]
pub(crate) struct Connections(Result<Pool, String>);

impl Connections {
    pub(crate) fn to(database: impl Into<Database>) -> Self {
        let pool = database.into().pool(CONNECTIONS);
        Self(pool.map_err(|error| chain(&error)))
    }
}

/// A connection without a running statement when it goes back to its pool: one whose answer
/// nobody waits for any more is closed.
pub(super) struct PooledClient(Option<Object>);

impl PooledClient {
    pub(super) async fn from(pool: &Connections) -> Result<Self, String> {
        let pool = pool.0.as_ref().map_err(String::clone)?;
        let object = pool.get().await.map_err(|error| chain(&error))?;
        Ok(Self(Some(object)))
    }

    pub(super) fn give_back(mut self) {
        self.0 = None;
    }

    /// Goes back after this answer, unless it is lost.
    fn answered(
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
        // The connection, rights, statements that cannot be run, transactions, resources, an
        // operator. All else may be about one row: a value, a limit, what a function raises, a
        // damaged page, or a statement that took longer than the server lets it.
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
        // It is there until it is given back, which takes the whole.
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

/// Why a statement brought nothing.
pub(super) enum ReadFailure {
    /// The server refused the values.
    Values(String),
    /// They are larger than the server can ever take.
    TooLarge(String),
    /// Anything else.
    Other(String),
}

const OTHER_DOCUMENTS: &str = "its settings (rows, document) are not those that \
     'posthaste sync install' has recorded: if this process has an old file, start it again with \
     the new one; else run 'posthaste sync install', and then 'posthaste sync rebuild' or \
     'reindex --all'";

const STANDBY: &str = "the database is a standby, which may lag: connect to the primary";

/// How a transaction begins that decides what is to be done: a row that is hidden from us is not
/// gone, and values are written alike for each role and database.
const DECIDES: &str = "BEGIN; SET LOCAL row_security = off; SET LOCAL timezone = 'UTC'; \
     SET LOCAL datestyle = 'ISO, YMD'; SET LOCAL intervalstyle = 'postgres'; \
     SET LOCAL extra_float_digits = 1; SET LOCAL bytea_output = 'hex'; \
     SET LOCAL lc_monetary = 'C'; SET LOCAL xmlbinary = 'base64'; \
     SET LOCAL quote_all_identifiers = off";

/// Asks for what something is decided by, on a connection of the pool, in a transaction of its own.
/// All is sent at once.
pub(super) async fn ask(
    pool: &Connections,
    sql: &str,
    parameters: &[&dyn Parameter],
) -> Result<Vec<Row>, ReadFailure> {
    let (pooled, rows, is_standby) = sent(pool, DECIDES, sql, parameters).await?;
    // What is not there yet is not gone. The next one connects anew, and may reach the primary.
    if is_standby {
        return Err(ReadFailure::Other(STANDBY.into()));
    }
    pooled.answered(rows)
}

/// Asks for what is only shown: whatever the role may see, wherever that is.
pub(super) async fn show(
    pool: &Connections,
    sql: &str,
    parameters: &[&dyn Parameter],
) -> Result<Vec<Row>, ReadFailure> {
    let (pooled, rows, _) = sent(pool, "BEGIN", sql, parameters).await?;
    pooled.answered(rows)
}

/// The connection, its answer, and whether it is one to a standby.
async fn sent(
    pool: &Connections,
    begin: &str,
    sql: &str,
    parameters: &[&dyn Parameter],
) -> Result<(PooledClient, Result<Vec<Row>, tokio_postgres::Error>, bool), ReadFailure> {
    let pooled = PooledClient::from(pool).await.map_err(ReadFailure::Other)?;
    let parameters = typed(parameters);
    let (begun, bound, rows, ended) = tokio::join!(
        biased;
        pooled.batch_execute(begin),
        pooled.query_typed(include_str!("ends_alone.sql"), &[]),
        pooled.query_typed(sql, &parameters),
        // After an error it rolls back.
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

pub(crate) async fn versions(
    pool: &Connections,
    name: &str,
    ids: &[String],
) -> Result<Vec<RowVersion>, SourceError> {
    let rows = ask(pool, include_str!("sync_versions.sql"), &[&name, &ids]).await?;
    read(&rows, version)
}

pub(crate) async fn versions_by(
    pool: &Connections,
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
    pool: &Connections,
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
    pool: &Connections,
    sql: &str,
    after: Option<&str>,
    most: usize,
) -> Result<Vec<RowVersion>, SourceError> {
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    read(&ask(pool, sql, &[&after, &most]).await?, version)
}

pub(crate) async fn rows(
    pool: &Connections,
    name: &str,
    ids: &[String],
) -> Result<Vec<crate::Row>, SourceError> {
    let rows = ask(pool, include_str!("sync_rows.sql"), &[&name, &ids]).await?;
    read(&rows, row)
}

/// Fails where the documents of this sync are made differently by now.
pub(crate) async fn makes_documents(
    pool: &Connections,
    name: &str,
    recipe: &str,
) -> Result<(), SourceError> {
    let parameters: [&dyn Parameter; 2] = [&name, &recipe];
    let rows = ask(pool, include_str!("sync_documents.sql"), &parameters).await?;
    let is_same = rows.first().map(|row| row.try_get(0)).transpose();
    match is_same.map_err(|error| SourceError::Down(chain(&error)))? {
        None | Some(true) => Ok(()),
        Some(false) => Err(SourceError::Down(OTHER_DOCUMENTS.into())),
    }
}

pub(crate) async fn pending(
    pool: &Connections,
    name: &str,
    ids: &[String],
) -> Result<HashSet<String>, SourceError> {
    let parameters: [&dyn Parameter; 2] = [&name, &ids];
    let rows = ask(pool, include_str!("sync_pending.sql"), &parameters).await?;
    let ids = read(&rows, |row| row.try_get(0))?;
    Ok(ids.into_iter().collect())
}

pub(crate) async fn fields(pool: &Connections, name: &str) -> Result<Vec<Field>, SourceError> {
    let rows = ask(pool, include_str!("sync_fields.sql"), &[&name]).await?;
    read(&rows, |row| {
        Ok(Field {
            name: row.try_get(0)?,
            column_type: row.try_get(1)?,
        })
    })
}

pub(crate) async fn rows_by(
    pool: &Connections,
    sql: &str,
    ids: &[String],
) -> Result<Vec<crate::Row>, SourceError> {
    let rows = ask(pool, sql, &[&ids]).await?;
    read(&rows, row)
}

fn read<T>(
    rows: &[Row],
    one: impl Fn(&Row) -> Result<T, tokio_postgres::Error>,
) -> Result<Vec<T>, SourceError> {
    let all: Result<Vec<T>, tokio_postgres::Error> = rows.iter().map(one).collect();
    // The statement returns something else than it should: so it does for every row.
    all.map_err(|error| SourceError::Down(chain(&error)))
}

fn version(row: &Row) -> Result<RowVersion, tokio_postgres::Error> {
    Ok(RowVersion {
        id: row.try_get(0)?,
        version: row.try_get(1)?,
        is_live: row.try_get(2)?,
    })
}

fn row(row: &Row) -> Result<crate::Row, tokio_postgres::Error> {
    let document: Option<JsonText<'_>> = row.try_get(2)?;
    Ok(crate::Row {
        id: row.try_get(0)?,
        version: row.try_get(1)?,
        body: document.map_or(Body::Hidden, |text| Body::Document(text.0.to_owned())),
    })
}

/// Enqueues a job for each row, unless those of before are not done: how many. Of a table that
/// takes longer than anybody waits, the server goes on and commits.
pub(crate) async fn fill(pool: &Connections, name: &str) -> Result<u64, SourceError> {
    let pooled = PooledClient::from(pool).await.map_err(ReadFailure::Other)?;
    // It takes as long as it takes, also where nobody waits any more: all in one message, so that
    // nothing is answered before it is committed.
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
    pooled.answered(answer.map(|_| Vec::new()))?;
    let jobs: Option<i64> = jobs;
    Ok(jobs.unwrap_or_default().unsigned_abs())
}

#[cfg(test)]
mod tests {
    #[test]
    fn version_statements_wrap_any_row_statement() {
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
