//! What was told by jobs: the beginning of an alert is noted in the statement that enqueues its
//! job, and taken away with that of its end, so that who goes on knows of it.

use anyhow::{Context as _, ensure};
use serde_json::json;
use tokio_postgres::Client;
use tokio_postgres::types::{ToSql, Type};

use super::said;
use crate::observe::alerts::Finding;
use crate::observe::untold::{Event, What};

/// What this queue was told of, and not yet the end of. An error for a role that may not note more.
pub(super) async fn told(client: &Client, notify: &str) -> anyhow::Result<Vec<Finding>> {
    let may = client
        .query_typed_one(include_str!("may_tell.sql"), &[])
        .await?;
    ensure!(
        may.try_get::<_, bool>(0)?,
        "--notify notes in posthaste.alert what it tells: it needs the role posthaste_worker."
    );
    let sql = include_str!("told.sql");
    let rows = client.query_typed(sql, &[(&notify, Type::TEXT)]).await?;
    let finding = |row: &tokio_postgres::Row| {
        let alert: String = row.try_get(0)?;
        anyhow::Ok(Finding {
            alert: serde_json::from_value(json!(alert)).context("an alert of another version")?,
            queue: row.try_get(1)?,
            value: row.try_get(2)?,
            limit: row.try_get(3)?,
        })
    };
    // What only another version knows is that version's to end.
    Ok(rows.iter().filter_map(|row| finding(row).ok()).collect())
}

/// Enqueues the job of an event, once under this key.
pub(super) async fn tell(
    client: &Client,
    notify: &str,
    event: &Event,
    key: &str,
) -> anyhow::Result<()> {
    let mut said = said(event)?;
    said["event"] = json!(event.what.name());
    let alert = said["alert"].as_str().unwrap_or_default().to_owned();
    let said = said.to_string();
    let finding = &event.finding;
    let values: [(&(dyn ToSql + Sync), Type); 7] = [
        (&notify, Type::TEXT),
        (&alert, Type::TEXT),
        (&finding.queue, Type::TEXT),
        (&said, Type::TEXT),
        (&key, Type::TEXT),
        (&finding.limit, Type::FLOAT8),
        (&finding.value, Type::FLOAT8),
    ];
    let (sql, values) = match event.what {
        What::Begins => (include_str!("begins.sql"), &values[..]),
        What::Ends => (include_str!("ends.sql"), &values[..6]),
    };
    client.query_typed(sql, values).await?;
    Ok(())
}
