//! Statements about copies of tables.

use posthaste::__private::{Parameter, enqueue_copy_by_client, typed};
use posthaste::{NewJob, enqueue_many};
use tokio_postgres::{Client, Row, SimpleQueryMessage};

use super::outbox::Deletion;
use super::{LOCK_CAPTURE_SHARED, REQUIRE_DURABLE_COMMIT, RunnerIdentity, Store, read_error};
use crate::chunk_jobs::ChunkJobs;
use crate::copying::{CopiedTable, Key, MARK_PREFIX, Page, RequestedCopy, value_from_text};
use crate::error::Error;
use crate::event::Event;
use crate::overview::CopyOverview;
use crate::pgoutput::{Column, Relation, ReplicaIdentity, Value};
use crate::source::TableName;

/// From this number of rows on, COPY costs less than an INSERT in spite of its statements.
const MIN_ROWS_FOR_COPY: usize = 1_000;

/// Begins the transaction of a chunk. Values are printed as in the stream.
const BEGIN_CHUNK: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; \
     SET LOCAL lock_timeout = '500ms'; SET LOCAL statement_timeout = '1s'; \
     SET LOCAL idle_in_transaction_session_timeout = '5s'; \
     SET LOCAL search_path = pg_catalog, pg_temp; SET LOCAL datestyle = 'ISO'; \
     SET LOCAL intervalstyle = 'postgres'; SET LOCAL timezone = 'UTC'; \
     SET LOCAL extra_float_digits = 1; SET LOCAL bytea_output = 'hex'; \
     SET LOCAL jit = off";
const READ_SNAPSHOT: &str = "SELECT pg_current_snapshot()::text";
/// Marks of a copy do not wait for standbys.
const BEGIN_MARK: &str = "BEGIN ISOLATION LEVEL READ COMMITTED; \
     SET LOCAL synchronous_commit = local; SET LOCAL search_path = pg_catalog, pg_temp";
const EMIT_MARK: &str = "SELECT pg_logical_emit_message(true, $1, $2::text)::text";
const RECORD_COPY_PROBLEM: &str =
    "UPDATE posthaste.capture_copy SET problem = $2 WHERE id = $1::bigint";

/// The progress of a copy after a chunk, and the rows of the chunk.
#[derive(Clone, Debug)]
pub(crate) struct CopyProgress {
    pub(crate) copy: RequestedCopy,
    pub(crate) rows: usize,
    pub(crate) is_last: bool,
}

impl Store {
    /// Whether the capture is paused, and the requested copy.
    pub(crate) async fn read_requests(&self) -> Result<(bool, Option<RequestedCopy>), Error> {
        let what = "cannot read the copies of the capture";
        let next = include_str!("copy_next.sql");
        let rows = self.query(what, next, &[&self.name]).await?;
        let read = |row: &Row| -> Result<_, tokio_postgres::Error> {
            let is_paused = row.try_get(0)?;
            let Some(id) = row.try_get(1)? else {
                return Ok((is_paused, None));
            };
            let copy = RequestedCopy {
                id,
                table: TableName {
                    schema: row.try_get(2)?,
                    name: row.try_get(3)?,
                },
                filter: row.try_get(4)?,
                after: row.try_get(5)?,
            };
            Ok((is_paused, Some(copy)))
        };
        let requests = rows.first().map(read).transpose().map_err(read_error)?;
        Ok(requests.unwrap_or((false, None)))
    }

    /// The table as the stream describes it, with its key; an error says why it cannot be copied.
    pub(crate) async fn describe_table(
        &self,
        table: &TableName,
        columns: &[String],
        publication: &str,
    ) -> Result<Result<CopiedTable, String>, Error> {
        let what = "cannot read the table";
        let values: [&dyn Parameter; 4] = [&table.schema, &table.name, &columns, &publication];
        let sql = include_str!("copy_table.sql");
        let rows = self.query(what, sql, &values).await?;
        let Some(first) = rows.first() else {
            return Ok(Err(format!("there is no table {table}")));
        };
        if !first.try_get::<_, bool>(6).map_err(read_error)? {
            return Ok(Err(format!("{table} is not captured")));
        }
        let described = copied_table_from_rows(&rows, table).map_err(read_error)?;
        Ok(match described.keys.is_empty() {
            true => Err(format!(
                "{table} has no key for a copy: it needs a primary key that its replica identity \
                 and the captured columns include"
            )),
            false => Ok(described),
        })
    }

    /// Reads the next rows in one snapshot, within a second. `None` if the snapshot does not see
    /// all of these transactions.
    pub(crate) async fn read_page(
        &self,
        table: &CopiedTable,
        filter: Option<&str>,
        after: Option<&Key>,
        limit: i64,
        handed: &[u32],
    ) -> Result<Option<Page>, Error> {
        let what = "cannot read the rows of a copy";
        let name = &table.relation;
        let columns = name.columns.iter().map(|column| column.name.clone());
        let columns: Vec<String> = columns.collect();
        let after = after.map(Vec::as_slice);
        let values: [&dyn Parameter; 7] = [
            &name.schema,
            &name.name,
            &columns,
            &table.keys,
            &filter,
            &after,
            &limit,
        ];
        let statements = include_str!("copy_statements.sql");
        let rows = self.query(what, statements, &values).await?;
        let row = rows.first().ok_or_else(|| Error::lost(what))?;
        let lock: String = row.try_get(0).map_err(read_error)?;
        let select: String = row.try_get(1).map_err(read_error)?;
        self.run(what, BEGIN_CHUNK).await?;
        let read = async {
            // Locked before the snapshot, in which a rewritten table would be empty.
            self.run(what, &lock).await?;
            let rows = self.query(what, READ_SNAPSHOT, &[]).await?;
            let row = rows.first().ok_or_else(|| Error::lost(what))?;
            let snapshot: String = row.try_get(0).map_err(read_error)?;
            let snapshot: crate::snapshot::Snapshot = snapshot.parse().map_err(Error::lost)?;
            if !handed.iter().all(|xid| snapshot.sees(*xid)) {
                return Ok(None);
            }
            let rows = self.read_texts(what, &select).await?;
            Ok::<_, Error>(Some((snapshot, rows)))
        };
        let read = read.await;
        let ended = self
            .run(what, if read.is_ok() { "COMMIT" } else { "ROLLBACK" })
            .await;
        let Some((snapshot, rows)) = read? else {
            return ended.map(|()| None);
        };
        ended?;
        Ok(Some(Page::new(table, snapshot, rows)))
    }

    /// Reads rows as texts, as in the stream.
    async fn read_texts(&self, what: &'static str, sql: &str) -> Result<Vec<Vec<Value>>, Error> {
        let read = tokio::time::timeout(super::QUERY_TIMEOUT, self.client.simple_query(sql));
        let read = read.await.map_err(|_| Error::lost(what))?;
        let messages = read.map_err(posthaste::Error::postgres(what))?;
        let rows = messages.iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        let rows =
            rows.map(|row| (0..row.len()).map(move |column| value_from_text(row.get(column))));
        Ok(rows.map(Iterator::collect).collect())
    }

    /// Writes a mark into the log. Later commits come after it.
    pub(crate) async fn emit_mark(&self, mark: &str) -> Result<(), Error> {
        let what = "cannot write the mark of a copy";
        self.run(what, BEGIN_MARK).await?;
        let emitted = self.query(what, EMIT_MARK, &[&MARK_PREFIX, &mark]).await;
        let end = if emitted.is_ok() {
            "COMMIT"
        } else {
            "ROLLBACK"
        };
        let ended = self.run(what, end).await;
        emitted?;
        ended
    }

    /// Writes the jobs of a chunk and the progress of the copy in one transaction. Returns `false`
    /// if the copy was cancelled, or who has taken over. If a row cannot become a job, fails and
    /// writes nothing.
    pub(crate) async fn write_chunk(
        &self,
        reader: &RunnerIdentity,
        copied: &CopyProgress,
        jobs: &mut ChunkJobs<'_, impl Iterator<Item = Result<Event, String>>>,
        deletion: Option<&Deletion>,
    ) -> Result<Result<bool, &'static str>, Error> {
        let what = "cannot write the jobs of a copy";
        self.transaction(what, async {
            self.query(what, REQUIRE_DURABLE_COMMIT, &[]).await?;
            self.query(what, LOCK_CAPTURE_SHARED, &[&self.name]).await?;
            if let Err(reason) = self.check_runner(reader).await? {
                return Ok(Err(reason));
            }
            if !self.advance_copy(copied).await? {
                return Ok(Ok(false));
            }
            match copied.rows < MIN_ROWS_FOR_COPY {
                true => {
                    let jobs: Vec<NewJob> = jobs.by_ref().collect();
                    enqueue_many(&self.client, &jobs).await.map(drop)?;
                }
                false => {
                    let copied = enqueue_copy_by_client(&self.client, jobs.by_ref());
                    copied.await.map(drop)?;
                }
            }
            if jobs.problem.is_some() {
                return Err(Error::lost(what));
            }
            self.count_events(jobs.counts);
            self.delete_rows(deletion, &jobs.handed).await?;
            Ok(Ok(true))
        })
        .await
    }

    /// Records the progress of a copy. Returns whether the copy continues.
    pub(super) async fn advance_copy(&self, copied: &CopyProgress) -> Result<bool, Error> {
        let what = "cannot record the progress of a copy";
        let rows = i64::try_from(copied.rows).unwrap_or(i64::MAX);
        let (copy, after) = (&copied.copy, copied.copy.after.as_deref());
        let values: [&dyn Parameter; 4] = [&copy.id, &rows, &after, &copied.is_last];
        let done = self.query(what, include_str!("copy_done.sql"), &values);
        Ok(!done.await?.is_empty())
    }

    /// Records why a copy is stopped.
    pub(crate) async fn fail_copy(&self, id: i64, problem: &str) -> Result<(), Error> {
        let what = "cannot record why a copy failed";
        self.transaction(what, async {
            self.query(what, RECORD_COPY_PROBLEM, &[&id, &problem])
                .await
                .map(drop)
        })
        .await
    }

    /// Requests a copy. Returns `false` if one of the table is running.
    pub(crate) async fn begin_copy(
        &self,
        table: &TableName,
        filter: Option<&str>,
    ) -> Result<bool, Error> {
        let what = "cannot start the copy";
        let values: [&dyn Parameter; 4] = [&self.name, &table.schema, &table.name, &filter];
        let rows = self
            .query(what, include_str!("copy_begin.sql"), &values)
            .await?;
        Ok(!rows.is_empty())
    }
}

fn copied_table_from_rows(
    rows: &[Row],
    table: &TableName,
) -> Result<CopiedTable, tokio_postgres::Error> {
    let (mut columns, mut keys, mut places) = (Vec::new(), Vec::new(), 0);
    let (mut oid, mut identity) = (0, ReplicaIdentity::Nothing);
    for row in rows {
        let number = |column: usize| row.try_get::<_, i64>(column);
        oid = u32::try_from(number(0)?).unwrap_or(0);
        identity = match row.try_get::<_, &str>(1)? {
            "f" => ReplicaIdentity::Full,
            "n" => ReplicaIdentity::Nothing,
            _ => ReplicaIdentity::Key,
        };
        let name: String = row.try_get(2)?;
        if let Some(place) = row.try_get::<_, Option<i64>>(4)? {
            keys.push((place, name.clone()));
            places = places.max(place);
        }
        columns.push(Column {
            name,
            kind: u32::try_from(number(3)?).unwrap_or(0),
            is_key: row.try_get(5)?,
        });
    }
    keys.sort_unstable();
    // Rows cannot be found in the stream if the publication lacks a column of their key.
    let is_whole = i64::try_from(keys.len()) == Ok(places);
    let keys = keys.into_iter().map(|(_, name)| name);
    Ok(CopiedTable {
        relation: Relation {
            oid,
            schema: table.schema.clone(),
            name: table.name.clone(),
            identity,
            columns,
        },
        keys: keys.filter(|_| is_whole).collect(),
    })
}

/// Lists copies of one capture or of all.
pub(crate) async fn list_copies(
    client: &Client,
    name: Option<&str>,
) -> Result<Vec<CopyOverview>, posthaste::Error> {
    let what = "cannot read the copies";
    let rows = client
        .query_typed(include_str!("copies.sql"), &typed(&[&name]))
        .await;
    let read = |row: &Row| {
        Ok(CopyOverview {
            id: row.try_get(0)?,
            begun_at: row.try_get(1)?,
            ended_at: row.try_get(2)?,
            rows: row.try_get(3)?,
            expected: row.try_get(4)?,
            is_cancelled: row.try_get(5)?,
            capture: row.try_get(6)?,
            table: row.try_get(7)?,
            filter: row.try_get(8)?,
            problem: row.try_get(9)?,
        })
    };
    let read = rows.and_then(|rows| rows.iter().map(read).collect());
    read.map_err(posthaste::Error::postgres(what))
}

/// Cancels the copy of a table. Returns whether one was running.
pub(crate) async fn cancel_copy(
    client: &Client,
    name: &str,
    table: &TableName,
) -> Result<bool, posthaste::Error> {
    let values: [&dyn Parameter; 3] = [&name, &table.schema, &table.name];
    let rows = client
        .query_typed(include_str!("copy_cancel.sql"), &typed(&values))
        .await;
    let rows = rows.map_err(posthaste::Error::postgres("cannot cancel the copy"))?;
    Ok(!rows.is_empty())
}
