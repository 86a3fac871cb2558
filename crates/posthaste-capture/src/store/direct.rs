//! Statements of captures that send without jobs.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use posthaste::__private::Parameter;
use tokio_postgres::Row;
use uuid::Uuid;

use super::{COMMIT_LOCALLY, Store, read_error};
use crate::error::Error;
use crate::lsn::Lsn;
use crate::mark::EventCounts;

const READ_UNCONFIRMED_BYTES: &str = "SELECT (pg_catalog.pg_current_wal_lsn() \
     OPERATOR(pg_catalog.-) $1::text::pg_catalog.pg_lsn)::bigint AS bytes";
const READ_STORED_BYTES: &str = "SELECT coalesce(sum(pg_catalog.pg_total_relation_size(\
     i.inhrelid::regclass))::bigint, 0::bigint) AS bytes FROM pg_catalog.pg_inherits i \
     WHERE i.inhparent = 'posthaste.store'::regclass::oid";
const READ_SEGMENT_POSITIONS: &str = "SELECT posthaste.segment_positions() AS place";
const SET_PATH: &str = "UPDATE posthaste.capture SET path = $3::text, indirect_since = \
     CASE WHEN $3::text <> 'direct'::text \
          THEN coalesce(indirect_since, clock_timestamp()) END, \
     path_problem = CASE WHEN $3::text <> 'direct'::text THEN coalesce($4::text, path_problem) END \
     WHERE name = $1::text AND runner = $2::uuid";

impl Store {
    /// Bytes of log after this place.
    pub(crate) async fn unconfirmed_bytes(&self, done: Lsn) -> Result<u64, Error> {
        let (what, done) = (
            "cannot read how much log is not confirmed",
            done.to_string(),
        );
        let rows = self.query(what, READ_UNCONFIRMED_BYTES, &[&done]).await?;
        let read = |row: &Row| row.try_get::<_, i64>(0);
        let bytes = rows.first().map_or(Ok(0), read).map_err(read_error)?;
        Ok(bytes.try_into().unwrap_or(0))
    }

    /// The size of the tables of jobs in bytes.
    pub(crate) async fn stored_bytes(&self) -> Result<u64, Error> {
        let what = "cannot read the size of the job tables";
        let rows = self.query(what, READ_STORED_BYTES, &[]).await?;
        let read = |row: &Row| row.try_get::<_, i64>(0);
        let bytes = rows.first().map_or(Ok(0), read).map_err(read_error)?;
        Ok(bytes.try_into().unwrap_or(0))
    }

    /// How long the oldest job of a queue has waited for its relay; `None` if no job is left that
    /// the relay sends before new events.
    pub(crate) async fn backlog_age(&self, queue: &str) -> Result<Option<Duration>, Error> {
        let what = "cannot read which jobs are left";
        // A read may miss jobs whose segment moves meanwhile.
        loop {
            let place = self.segment_positions().await?;
            let rows = self
                .query(what, include_str!("backlog.sql"), &[&queue])
                .await?;
            let read = |row: &Row| Ok((row.try_get(0)?, row.try_get(1)?));
            let read = rows.first().map_or(Ok((None, false)), read);
            let (seconds, is_left): (Option<f64>, bool) = read.map_err(read_error)?;
            if is_left {
                let seconds = seconds.unwrap_or(0.0).max(0.0);
                return Ok(Some(
                    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX),
                ));
            }
            if place == self.segment_positions().await? {
                return Ok(None);
            }
        }
    }

    async fn segment_positions(&self) -> Result<String, Error> {
        let what = "cannot read which jobs are left";
        let rows = self.query(what, READ_SEGMENT_POSITIONS, &[]).await?;
        let place = rows.first().map(|row| row.try_get(0)).transpose();
        Ok(place.map_err(read_error)?.unwrap_or_default())
    }

    /// Records the path of events, and a new reason why it is not direct. The transaction locks the
    /// row before its commit is sent, so that an abandoned write never replaces a newer one.
    pub(crate) async fn set_path(
        &self,
        runner: Uuid,
        path: &str,
        problem: Option<&str>,
    ) -> Result<(), Error> {
        let what = "cannot record the path of a capture";
        self.transaction(what, async {
            self.run(what, COMMIT_LOCALLY).await?;
            let values: [&dyn Parameter; 4] = [&self.name, &runner, &path, &problem];
            self.query(what, SET_PATH, &values).await.map(drop)
        })
        .await
    }

    /// Counts events in the following marks.
    pub(crate) fn count_events(&self, counted: EventCounts) {
        let add = |sum: &AtomicI64, more: usize| {
            sum.fetch_add(i64::try_from(more).unwrap_or(i64::MAX), Ordering::Relaxed)
        };
        add(&self.captured.events, counted.events);
        add(&self.captured.bytes, counted.bytes);
    }
}
