//! Statements that install and remove captures, and about gaps.

use posthaste::__private::{Parameter, typed};
use tokio_postgres::{Client, Row};
use uuid::Uuid;

use super::Store;
use crate::error::Error;
use crate::lsn::Lsn;
use crate::mark::Mark;
use crate::overview::{Gap, Overview, PauseOutcome};
use crate::position::Position;

const DELETE_CAPTURE: &str = "WITH copies AS (\
     DELETE FROM posthaste.capture_copy WHERE capture = $1::text) \
     DELETE FROM posthaste.capture WHERE name = $1::text";

impl Store {
    /// Records a capture that begins at this place.
    pub(crate) async fn register_capture(
        &self,
        epoch: Uuid,
        (slot, publication): (&str, &str),
        begins: Lsn,
    ) -> Result<(), Error> {
        let what = "cannot install the capture";
        let values: [&dyn Parameter; 4] = [&epoch, &slot, &publication, &self.name];
        self.query(what, include_str!("register.sql"), &values)
            .await?;
        let mark = Mark {
            done: begins,
            ..Mark::default()
        };
        let turn = self.read_turn().await?;
        self.put_mark(turn, epoch, mark).await
    }

    /// Begins the capture again at this place in a new epoch. The log between is a gap.
    pub(crate) async fn begin_again(
        &self,
        was: Uuid,
        epoch: Uuid,
        (slot, publication): (&str, &str),
        begins: Lsn,
        tables: &[String],
    ) -> Result<(), Error> {
        let what = "cannot restart the capture";
        self.transaction(what, async {
            self.query(what, super::LOCK_CAPTURE, &[&self.name]).await?;
            let end = begins.to_string();
            let closed = self
                .query(what, include_str!("begun_again.sql"), &[&was, &end])
                .await?;
            if closed.is_empty() {
                let from = self
                    .lock_and_read_mark(was)
                    .await?
                    .map_or(begins, |mark| mark.done);
                let reason = "the capture was restarted";
                self.put_gap(was, from, Some(begins), reason, tables)
                    .await?;
            }
            self.register_capture(epoch, (slot, publication), begins)
                .await
        })
        .await
    }

    /// Skips the change at this position, and records it.
    pub(crate) async fn record_skip(
        &self,
        epoch: Uuid,
        position: Position,
        tables: &[String],
    ) -> Result<(), Error> {
        let what = "cannot skip the change";
        self.transaction(what, async {
            self.query(what, super::LOCK_CAPTURE, &[&self.name]).await?;
            let mark = self.lock_and_read_mark(epoch).await?.unwrap_or_default();
            if position <= mark.position {
                return Err(Error::stopped(format!(
                    "{position} was already captured or skipped"
                )));
            }
            let reason = format!("the change at {position} was skipped");
            let at = position.commit;
            self.put_gap(epoch, at, Some(at), &reason, tables).await?;
            let turn = self.read_turn().await?;
            let done = mark.done;
            self.put_mark(turn, epoch, Mark { position, done }).await
        })
        .await
    }

    pub(crate) async fn put_gap(
        &self,
        epoch: Uuid,
        begins: Lsn,
        ends: Option<Lsn>,
        reason: &str,
        tables: &[String],
    ) -> Result<(), Error> {
        let (begins, ends) = (begins.to_string(), ends.map(|end| end.to_string()));
        let values: [&dyn Parameter; 6] = [&epoch, &begins, &ends, &self.name, &reason, &tables];
        self.query("cannot record a gap", include_str!("put_gap.sql"), &values)
            .await
            .map(drop)
    }

    pub(crate) async fn delete_capture(&self) -> Result<(), Error> {
        let what = "cannot remove the capture";
        self.query(what, DELETE_CAPTURE, &[&self.name])
            .await
            .map(drop)
    }
}

/// Lists the captures of the database. Does not run the statement if there can be none: a managed
/// server may refuse to show the length of its log.
pub(crate) async fn list_captures(client: &Client) -> Result<Vec<Overview>, posthaste::Error> {
    let captures = "SELECT EXISTS (SELECT FROM posthaste.capture)";
    let is_any: Vec<bool> = query_all(client, captures, &[], |row| row.try_get(0)).await?;
    if is_any != [true] {
        return Ok(Vec::new());
    }
    query_all(client, include_str!("captures.sql"), &[], |row| {
        Ok(Overview {
            name: row.try_get(0)?,
            slot: row.try_get(1)?,
            publication: row.try_get(2)?,
            installed_at: row.try_get(3)?,
            started_at: row.try_get(4)?,
            stopped: row.try_get(5)?,
            is_active: row.try_get(6)?,
            is_missing: row.try_get(7)?,
            wal_status: row.try_get(8)?,
            done: row.try_get(9)?,
            marked_at: row.try_get(10)?,
            unconfirmed_bytes: row.try_get(11)?,
            retained_bytes: row.try_get(12)?,
            gaps: row.try_get(13)?,
            paused_at: row.try_get(14)?,
            events: row.try_get(15)?,
            bytes: row.try_get(16)?,
            lag_seconds: row.try_get(17)?,
            copied_rows: row.try_get(18)?,
            copy_rows: row.try_get(19)?,
            copy_problem: row.try_get(20)?,
            path: row.try_get(21)?,
            indirect_since: row.try_get(22)?,
            path_problem: row.try_get(23)?,
        })
    })
    .await
}

/// Lists gaps of one capture or of all.
pub(crate) async fn list_gaps(
    client: &Client,
    name: Option<&str>,
) -> Result<Vec<Gap>, posthaste::Error> {
    query_all(client, include_str!("gaps.sql"), &[&name], |row| {
        Ok(Gap {
            id: row.try_get(0)?,
            seen_at: row.try_get(1)?,
            accepted_at: row.try_get(2)?,
            begins: row.try_get(3)?,
            ends: row.try_get(4)?,
            capture: row.try_get(5)?,
            reason: row.try_get(6)?,
            tables: row.try_get(7)?,
            accepted_by: row.try_get(8)?,
        })
    })
    .await
}

/// Accepts a gap. Returns whether one with this id was not accepted yet.
pub(crate) async fn accept_gap(client: &Client, id: i64) -> Result<bool, posthaste::Error> {
    let rows = client
        .query_typed(include_str!("accept.sql"), &typed(&[&id]))
        .await;
    let rows = rows.map_err(posthaste::Error::postgres("cannot accept the gap"))?;
    Ok(!rows.is_empty())
}

/// Pauses or resumes a capture.
pub(crate) async fn set_paused(
    client: &Client,
    name: &str,
    is_paused: bool,
) -> Result<PauseOutcome, posthaste::Error> {
    let values: [&dyn Parameter; 2] = [&name, &is_paused];
    let what = "cannot pause or resume the capture";
    let rows = client
        .query_typed(include_str!("pause.sql"), &typed(&values))
        .await;
    let rows = rows.map_err(posthaste::Error::postgres(what))?;
    let changed = rows.first().map(|row| row.try_get(0)).transpose();
    Ok(match changed.map_err(posthaste::Error::postgres(what))? {
        Some(true) => PauseOutcome::Changed,
        Some(false) => PauseOutcome::Unchanged,
        None => PauseOutcome::NoCapture,
    })
}

async fn query_all<T>(
    client: &Client,
    sql: &str,
    values: &[&dyn Parameter],
    read: impl Fn(&Row) -> Result<T, tokio_postgres::Error>,
) -> Result<Vec<T>, posthaste::Error> {
    let rows = client.query_typed(sql, &typed(values)).await;
    let read = rows.and_then(|rows| rows.iter().map(read).collect());
    read.map_err(posthaste::Error::postgres("cannot read captures"))
}
