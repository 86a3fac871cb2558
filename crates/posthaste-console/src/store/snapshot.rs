//! Everything that the overview shows, in one transaction.

use std::time::Instant;

use deadpool_postgres::Pool;
use tokio_postgres::{Client, Row};

use super::{Session, StoreError};
use crate::snapshot::{Holder, QueueSettings, Server, Snapshot, Worker};

/// Actions by filter that are shown as they go on.
const ACTIONS: i64 = 20;

pub(crate) async fn read(pool: &Pool) -> Result<Snapshot, StoreError> {
    let started = Instant::now();
    let session = Session::read_shared(pool).await?;
    let client = session.client()?;
    let server = server(client).await?;
    let snapshot = Snapshot {
        counters: session.jobs()?.counters().await?,
        relays: posthaste_relay::relays(client).await?,
        queues: all(client, include_str!("queues.sql"), queue).await?,
        workers: all(client, include_str!("workers.sql"), worker).await?,
        holders: Holder::of(posthaste::holders(client).await?),
        bulk: super::actions(&session, ACTIONS).await?,
        took: started.elapsed(),
        server,
    };
    session.end().await?;
    Ok(snapshot)
}

/// Whether a worker still has this many jobs to count, at least.
pub(crate) async fn is_uncounted(pool: &Pool, many: u32) -> Result<bool, StoreError> {
    let session = Session::read(pool).await?;
    let uncounted = session.jobs()?.uncounted(many).await?;
    session.end().await?;
    Ok(uncounted == many)
}

async fn all<T>(
    client: &Client,
    sql: &str,
    read: impl Fn(&Row) -> Result<T, tokio_postgres::Error>,
) -> Result<Vec<T>, StoreError> {
    let rows = client.query_typed(sql, &[]).await?;
    let read: Result<Vec<T>, _> = rows.iter().map(read).collect();
    Ok(read?)
}

async fn server(client: &Client) -> Result<Server, StoreError> {
    let rows = all(client, include_str!("server.sql"), |row| {
        Ok(Server {
            database: row.try_get("database")?,
            version: row.try_get("version")?,
            is_replica: row.try_get("is_replica")?,
            at: row.try_get("at")?,
            sees_sessions: row.try_get("sees_sessions")?,
            segments_behind: row.try_get("segments_behind")?,
            dead_lately: row.try_get("dead_lately")?,
            expired_lately: row.try_get("expired_lately")?,
            has_leader: row.try_get("has_leader")?,
        })
    });
    let first = rows.await?.into_iter().next();
    first.ok_or_else(|| StoreError::Failed("the database answered nothing".to_owned()))
}

fn queue(row: &Row) -> Result<QueueSettings, tokio_postgres::Error> {
    Ok(QueueSettings {
        name: row.try_get("name")?,
        paused_at: row.try_get("paused_at")?,
        rate: row.try_get("rate")?,
        per: row.try_get("per")?,
        burst: row.try_get("burst")?,
        keep: row.try_get("keep")?,
    })
}

fn worker(row: &Row) -> Result<Worker, tokio_postgres::Error> {
    Ok(Worker {
        id: row.try_get("id")?,
        name: row.try_get("name")?,
        started_at: row.try_get("started_at")?,
        silent: row.try_get("silent")?,
        queues: row.try_get("queues")?,
        leads: row.try_get("leads")?,
    })
}
