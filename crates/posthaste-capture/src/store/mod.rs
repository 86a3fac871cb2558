//! The statements of captures. They are unnamed, so that any pooler works.

pub(crate) mod copy;
pub(crate) mod direct;
pub(crate) mod operate;
pub(crate) mod outbox;
pub(crate) mod publish;
mod rotation;

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use deadpool_postgres::{Client, ClientWrapper};
use posthaste::__private::{Parameter, typed};
use posthaste::{Database, NewJob, enqueue_many};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::error::Error;
use crate::handed_rows::HandedRows;
use crate::lsn::Lsn;
use crate::mark::{EventCounts, Mark};
use crate::slot::Slot;
use crate::snapshot::Snapshot;
use copy::CopyProgress;
use outbox::Deletion;

/// The limit for a statement.
const QUERY_TIMEOUT: Duration = Duration::from_secs(30);

/// Begins a transaction with a short lock timeout. The server ends it if this process freezes in
/// it, because the next process waits for its lock.
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = '5s'; \
     SET LOCAL search_path = pg_catalog, pg_temp; SET LOCAL statement_timeout = 0; \
     SET LOCAL idle_in_transaction_session_timeout = '20s'";
/// Makes marks durable before a slot is confirmed, whatever the session's settings are.
const REQUIRE_DURABLE_COMMIT: &str = "SELECT pg_catalog.set_config('synchronous_commit', \
     CASE pg_catalog.current_setting('synchronous_commit') WHEN 'off' THEN 'local' \
     ELSE pg_catalog.current_setting('synchronous_commit') END, true)";
/// For what a standby may lack: the commit does not wait for it.
const COMMIT_LOCALLY: &str = "SET LOCAL synchronous_commit = local";
const LOCK_CAPTURE: &str = "SELECT pg_catalog.pg_advisory_xact_lock(1885893490, \
     pg_catalog.hashtext($1))";
const LOCK_CAPTURE_SHARED: &str = "SELECT pg_catalog.pg_advisory_xact_lock_shared(1885893490, \
     pg_catalog.hashtext($1))";
const LOCK_MARKS: &str = "LOCK TABLE posthaste.capture_mark_0, posthaste.capture_mark_1 \
     IN ACCESS SHARE MODE";
const SET_RUNNER: &str = include_str!("run.sql");
/// A statement for a replication connection, which takes no parameters.
pub(crate) const IS_STANDBY: &str = "SELECT pg_catalog.pg_is_in_recovery()";
const READ_FLUSH_LSN: &str = "SELECT pg_catalog.pg_current_wal_flush_lsn()::text AS place";
const RECORD_STOP: &str = "UPDATE posthaste.capture SET stopped = $2 WHERE name = $1::text";
const PUT_MARK: [&str; 2] = [
    include_str!("put_mark_0.sql"),
    include_str!("put_mark_1.sql"),
];
/// A capture of the database.
#[derive(Clone, Debug)]
pub(crate) struct InstalledCapture {
    pub(crate) slot: String,
    pub(crate) publication: String,
    pub(crate) epoch: Uuid,
    pub(crate) is_here: bool,
    pub(crate) is_published: bool,
    pub(crate) is_paused: bool,
    /// The timeline of this server, or its life if that is unknown.
    pub(crate) timeline: String,
}

/// A process that runs a capture, and the timeline of the log that it reads. After a failover a
/// store may be connected to the new server while the old one still streams: places in the log of
/// one mean nothing in that of the other.
#[derive(Clone, Debug)]
pub(crate) struct RunnerIdentity {
    pub(crate) runner: Uuid,
    pub(crate) epoch: Uuid,
    pub(crate) timeline: String,
}

const OTHER_PROCESS: &str = "another process runs the capture now";
const OTHER_TIMELINE: &str = "the database is on another timeline now, as after a failover";

/// The result of writing a batch.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum WriteOutcome {
    Done {
        turn: i64,
        /// The snapshot of the transaction.
        snapshot: Snapshot,
    },
    /// The rows are not visible to others yet.
    Unseen,
    /// Another process or another server has taken over.
    Superseded(&'static str),
}

pub(crate) struct Store {
    client: ClientWrapper,
    pub(crate) name: String,
    captured: CapturedCounts,
}

/// The counts of the newest mark. Each connection reads them again.
#[derive(Debug, Default)]
struct CapturedCounts {
    events: AtomicI64,
    bytes: AtomicI64,
}

impl Store {
    pub(crate) async fn open(database: &Database, name: &str) -> Result<Self, Error> {
        // Taken out of its pool: a connection dropped within a transaction cannot be reused.
        let client = Client::take(within_query_timeout(database.client()).await?);
        let name = name.to_owned();
        Ok(Self {
            client,
            name,
            captured: CapturedCounts::default(),
        })
    }

    pub(crate) async fn find_installed(&self) -> Result<Option<InstalledCapture>, Error> {
        let rows = self
            .query(
                "cannot read the capture",
                include_str!("capture.sql"),
                &[&self.name],
            )
            .await?;
        let read = |row: &Row| -> Result<_, tokio_postgres::Error> {
            Ok(InstalledCapture {
                slot: row.try_get(0)?,
                publication: row.try_get(1)?,
                epoch: row.try_get(2)?,
                is_here: row.try_get::<_, Option<bool>>(4)?.unwrap_or(false),
                is_published: row.try_get(5)?,
                is_paused: row.try_get(6)?,
                timeline: row.try_get(7)?,
            })
        };
        rows.first().map(read).transpose().map_err(read_error)
    }

    pub(crate) async fn require_installed(&self) -> Result<InstalledCapture, Error> {
        let name = &self.name;
        self.find_installed().await?.ok_or_else(|| {
            Error::stopped(format!(
                "it is not installed. Run 'posthaste capture install {name}'."
            ))
        })
    }

    pub(crate) async fn find_slot(&self, slot: &str) -> Result<Option<Slot>, Error> {
        let rows = self
            .query("cannot read the slot", include_str!("slot.sql"), &[&slot])
            .await?;
        let read = |row: &Row| -> Result<_, tokio_postgres::Error> {
            Ok(Slot {
                is_ours: row.try_get::<_, Option<bool>>(0)?.unwrap_or(false),
                is_active: row.try_get(1)?,
                confirmed: lsn_from_row(row, 2)?,
                wal_status: row.try_get(3)?,
                reason: row.try_get(4)?,
                is_failover: row.try_get(5)?,
            })
        };
        rows.first().map(read).transpose().map_err(read_error)
    }

    /// The end of the log, after everything that this connection committed.
    pub(crate) async fn flush_lsn(&self) -> Result<Lsn, Error> {
        let what = "cannot read where the log ends";
        let rows = self.query(what, READ_FLUSH_LSN, &[]).await?;
        let row = rows.first().ok_or_else(|| Error::lost(what))?;
        lsn_from_row(row, 0).map_err(read_error)
    }

    /// Makes this process the only one whose marks count. Waits for the previous process's last
    /// transaction.
    pub(crate) async fn take_over(
        &self,
        reader: &RunnerIdentity,
        path: Option<&str>,
    ) -> Result<Option<Mark>, Error> {
        let what = "cannot start the capture";
        self.transaction(what, async {
            self.query(what, LOCK_CAPTURE, &[&self.name]).await?;
            let values: [&dyn Parameter; 3] = [&self.name, &reader.runner, &path];
            self.query(what, SET_RUNNER, &values).await?;
            self.lock_and_read_mark(reader.epoch).await
        })
        .await
    }

    /// The newest mark, which another process may replace.
    pub(crate) async fn read_mark(&self, epoch: Uuid) -> Result<Option<Mark>, Error> {
        let what = "cannot read marks";
        self.transaction(what, self.lock_and_read_mark(epoch)).await
    }

    async fn lock_and_read_mark(&self, epoch: Uuid) -> Result<Option<Mark>, Error> {
        let what = "cannot read marks";
        self.query(what, LOCK_MARKS, &[]).await?;
        let rows = self
            .query(what, include_str!("mark.sql"), &[&epoch])
            .await?;
        let read = |row: &Row| -> Result<_, tokio_postgres::Error> {
            let mut mark = Mark {
                done: lsn_from_row(row, 0)?,
                ..Mark::default()
            };
            mark.position.commit = lsn_from_row(row, 1)?;
            mark.position.record = lsn_from_row(row, 2)?;
            mark.position.row = u16::try_from(row.try_get::<_, i32>(3)?).unwrap_or(u16::MAX);
            let captured = (row.try_get(4)?, row.try_get(5)?);
            Ok((mark, captured))
        };
        let newest = rows.first().map(read).transpose().map_err(read_error)?;
        let (mark, (events, bytes)) = match newest {
            Some((mark, captured)) => (Some(mark), captured),
            None => (None, (0, 0)),
        };
        self.captured.events.store(events, Ordering::Relaxed);
        self.captured.bytes.store(bytes, Ordering::Relaxed);
        Ok(mark)
    }

    /// Writes jobs and the mark that counts them, and deletes their rows, in one transaction.
    pub(crate) async fn write_batch(
        &self,
        reader: &RunnerIdentity,
        jobs: &[NewJob],
        xids: &[u32],
        (deletion, rows): (Option<&Deletion>, &HandedRows),
        copied: Option<&CopyProgress>,
        mark: Mark,
    ) -> Result<WriteOutcome, Error> {
        let what = "cannot write the jobs of a capture";
        self.transaction(what, async {
            self.query(what, REQUIRE_DURABLE_COMMIT, &[]).await?;
            self.query(what, LOCK_CAPTURE_SHARED, &[&self.name]).await?;
            let (turn, snapshot) = match self.check_runner(reader).await? {
                Ok(admitted) => admitted,
                Err(reason) => return Ok(WriteOutcome::Superseded(reason)),
            };
            let mut xids = xids.iter().chain(rows.xids());
            if !xids.all(|xid| snapshot.sees(*xid)) {
                return Ok(WriteOutcome::Unseen);
            }
            self.enqueue(jobs).await?;
            self.delete_rows(deletion, rows).await?;
            if let Some(copied) = copied {
                self.advance_copy(copied).await?;
            }
            self.put_mark(turn, reader.epoch, mark).await?;
            Ok(WriteOutcome::Done { turn, snapshot })
        })
        .await
    }

    /// Writes jobs, and counts them in the following marks.
    async fn enqueue(&self, jobs: &[NewJob]) -> Result<(), Error> {
        if jobs.is_empty() {
            return Ok(());
        }
        enqueue_many(&self.client, jobs).await?;
        let bytes = jobs.iter().map(NewJob::bytes).sum();
        let events = jobs.len();
        self.count_events(EventCounts { events, bytes });
        Ok(())
    }

    /// The turn of the tables of marks, and the snapshot; or who has taken over.
    async fn check_runner(
        &self,
        reader: &RunnerIdentity,
    ) -> Result<Result<(i64, Snapshot), &'static str>, Error> {
        let what = "cannot write marks";
        let RunnerIdentity {
            runner,
            epoch,
            timeline,
        } = reader;
        let values: [&dyn Parameter; 4] = [&self.name, runner, epoch, timeline];
        let rows = self.query(what, include_str!("admit.sql"), &values).await?;
        let Some(row) = rows.first() else {
            return Ok(Err(OTHER_PROCESS));
        };
        let read = |row: &Row| -> Result<_, tokio_postgres::Error> {
            let checks: [Option<bool>; 2] = [row.try_get(0)?, row.try_get(1)?];
            Ok((checks, row.try_get(2)?, row.try_get::<_, String>(3)?))
        };
        let (checks, turn, snapshot) = read(row).map_err(read_error)?;
        let snapshot = snapshot.parse().map_err(Error::lost)?;
        Ok(match checks {
            [Some(true), Some(true)] => Ok((turn, snapshot)),
            [_, Some(true)] => Err(OTHER_PROCESS),
            _ => Err(OTHER_TIMELINE),
        })
    }

    pub(crate) async fn put_mark(&self, turn: i64, epoch: Uuid, mark: Mark) -> Result<(), Error> {
        let Mark { done, position } = mark;
        let (done, commit) = (done.to_string(), position.commit.to_string());
        let (record, row) = (position.record.to_string(), i32::from(position.row));
        let statement = PUT_MARK[usize::from(turn % 2 != 0)];
        let events = self.captured.events.load(Ordering::Relaxed);
        let bytes = self.captured.bytes.load(Ordering::Relaxed);
        let values: [&dyn Parameter; 7] = [&done, &commit, &record, &row, &epoch, &events, &bytes];
        self.query("cannot write marks", statement, &values)
            .await
            .map(drop)
    }

    /// Records why the capture is stopped.
    pub(crate) async fn record_stop(&self, reason: &str) -> Result<(), Error> {
        let what = "cannot record that the capture has stopped";
        self.query(what, RECORD_STOP, &[&self.name, &reason])
            .await
            .map(drop)
    }

    pub(crate) async fn transaction<T>(
        &self,
        what: &'static str,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        self.run(what, BEGIN).await?;
        let done = work.await;
        let end = if done.is_ok() { "COMMIT" } else { "ROLLBACK" };
        let ended = self.run(what, end).await;
        let done = done?;
        ended.map(|()| done)
    }

    pub(crate) async fn run(&self, what: &'static str, sql: &str) -> Result<(), Error> {
        within_query_timeout(async {
            let ran = self.client.batch_execute(sql).await;
            ran.map_err(posthaste::Error::postgres(what))
        })
        .await
    }

    /// As [`Self::run`] without a limit, for statements that wait for other transactions.
    pub(crate) async fn run_unbounded(&self, what: &'static str, sql: &str) -> Result<(), Error> {
        let ran = self.client.batch_execute(sql).await;
        Ok(ran.map_err(posthaste::Error::postgres(what))?)
    }

    pub(crate) async fn query(
        &self,
        what: &'static str,
        sql: &str,
        values: &[&dyn Parameter],
    ) -> Result<Vec<Row>, Error> {
        within_query_timeout(async {
            let rows = self.client.query_typed(sql, &typed(values)).await;
            rows.map_err(posthaste::Error::postgres(what))
        })
        .await
    }
}

fn read_error(error: tokio_postgres::Error) -> Error {
    posthaste::Error::postgres("cannot read the capture")(error).into()
}

/// Parses the place in a text column.
fn lsn_from_row(row: &Row, column: usize) -> Result<Lsn, tokio_postgres::Error> {
    let text: String = row.try_get(column)?;
    // The server prints only places.
    Ok(text.parse().unwrap_or_default())
}

/// Fails with the connection if the answer does not come in time.
async fn within_query_timeout<T>(
    work: impl Future<Output = Result<T, posthaste::Error>>,
) -> Result<T, Error> {
    match tokio::time::timeout(QUERY_TIMEOUT, work).await {
        Ok(done) => Ok(done?),
        Err(_) => Err(Error::lost("the database did not answer within 30 s")),
    }
}
