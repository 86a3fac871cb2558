//! Points in the store's SQL at which a session waits until the test releases it: moments of
//! microseconds, extended as long as needed. A gate changes no outcome; the store itself passes
//! each scenario with its gates in place.

use anyhow::Context;
use posthaste_testkit::{connect, eventually};
use tokio::task::JoinHandle;
use tokio_postgres::Client;

use crate::stress::store::SOON;

/// Waits at gate n while it is closed.
pub const SQL: &str = "CREATE SCHEMA IF NOT EXISTS posthaste;
CREATE FUNCTION posthaste.gate(n integer) RETURNS integer LANGUAGE plpgsql VOLATILE AS $f$
BEGIN
  PERFORM pg_advisory_lock_shared(7, n);
  PERFORM pg_advisory_unlock_shared(7, n);
  RETURN n;
END $f$;";

/// A closed gate; it opens when this is dropped.
pub struct Closed {
    client: Client,
    number: i32,
}

/// Closes a gate.
pub async fn close(url: &str, number: i32) -> anyhow::Result<Closed> {
    let client = connect(url).await?;
    client
        .execute("SELECT pg_advisory_lock(7, $1)", &[&number])
        .await?;
    Ok(Closed { client, number })
}

impl Closed {
    /// Waits until a session waits at the gate.
    pub async fn reached(&self) -> anyhow::Result<()> {
        let reached = async || self.is_reached().await;
        eventually(SOON, "somebody stands before the gate", reached).await
    }

    /// As `reached`, or until this task has ended without reaching the gate. Returns whether the
    /// gate was reached.
    pub async fn reached_unless_ended<T>(&self, one: &JoinHandle<T>) -> anyhow::Result<bool> {
        let either = async || Ok(one.is_finished() || self.is_reached().await?);
        eventually(
            SOON,
            "somebody stands before the gate, or has ended",
            either,
        )
        .await?;
        Ok(!one.is_finished())
    }

    async fn is_reached(&self) -> anyhow::Result<bool> {
        let waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted \
                       AND database = (SELECT oid FROM pg_database \
                       WHERE datname = current_database()) AND classid = 7 \
                       AND objid::integer = $1";
        let row = self.client.query_one(waiting, &[&self.number]).await?;
        Ok(row.get::<_, i64>(0) > 0)
    }

    /// Releases all sessions.
    pub async fn open(self) -> anyhow::Result<()> {
        self.client
            .execute("SELECT pg_advisory_unlock(7, $1)", &[&self.number])
            .await
            .map(drop)
            .context("opening a gate")
    }
}
