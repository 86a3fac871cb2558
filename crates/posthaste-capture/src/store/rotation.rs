//! Marks go into one of two tables; the other one is emptied, so that they need no VACUUM.

use tokio_postgres::Row;

use super::{COMMIT_LOCALLY, Store, read_error};
use crate::error::Error;

/// Marks of running captures wait for this lock too.
const SHORT_LOCK_TIMEOUT: &str = "SET LOCAL lock_timeout = '500ms'";
const COPY_NEWEST_MARKS: [&str; 2] = [
    include_str!("keep_marks_0.sql"),
    include_str!("keep_marks_1.sql"),
];
const EMPTY_MARKS: [&str; 2] = [
    "TRUNCATE posthaste.capture_mark_0",
    "TRUNCATE posthaste.capture_mark_1",
];
const LOCK_ALL_MARKS: &str = "LOCK TABLE posthaste.capture_mark_0, posthaste.capture_mark_1 \
     IN ACCESS EXCLUSIVE MODE";
const READ_TURN: &str = include_str!("turn.sql");
const SET_TURN: &str = "SELECT setval('posthaste.capture_turn'::regclass, $1::bigint)";

impl Store {
    /// The turn, whose parity selects the table of marks, and whether that table is long.
    async fn read_turn_and_length(&self) -> Result<(i64, bool), Error> {
        let rows = self.query("cannot read marks", READ_TURN, &[]).await?;
        let read = |row: &Row| Ok((row.try_get(0)?, row.try_get(1)?));
        rows.first()
            .map_or(Ok((0, false)), read)
            .map_err(read_error)
    }

    pub(crate) async fn read_turn(&self) -> Result<i64, Error> {
        Ok(self.read_turn_and_length().await?.0)
    }

    /// Empties the other table and continues the marks there, if they are many. Keeps the newest of
    /// each capture.
    pub(crate) async fn rotate_long_marks(&self) -> Result<(), Error> {
        let (turn, is_mark_due) = self.read_turn_and_length().await?;
        if !is_mark_due {
            return Ok(());
        }
        let what = "cannot switch to the other marks";
        let turned = self.transaction(what, async {
            self.run(what, COMMIT_LOCALLY).await?;
            self.run(what, SHORT_LOCK_TIMEOUT).await?;
            self.query(what, LOCK_ALL_MARKS, &[]).await?;
            if self.read_turn().await? != turn {
                return Ok(());
            }
            // The newest marks are in the current table before the other one is emptied.
            let (from, to) = (usize::from(turn % 2 != 0), usize::from(turn % 2 == 0));
            self.query(what, COPY_NEWEST_MARKS[from], &[]).await?;
            self.query(what, EMPTY_MARKS[to], &[]).await?;
            let next = turn + 1;
            self.query(what, SET_TURN, &[&next]).await.map(drop)
        });
        // A long reader of the marks delays this until the next time.
        match turned.await {
            Err(error) if error.code() == Some("55P03") => Ok(()),
            turned => turned,
        }
    }
}
