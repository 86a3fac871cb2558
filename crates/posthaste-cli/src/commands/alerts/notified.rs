//! Records notified alerts. The statement that enqueues the job of a beginning inserts a record,
//! and the statement that enqueues the job of an end deletes it. A statement that changes no record
//! enqueues no job, so one of several processes notifies each event.

use anyhow::ensure;
use posthaste_observe::Kind;
use serde_json::json;
use tokio_postgres::Client;
use tokio_postgres::types::{ToSql, Type};

use super::event_json;
use crate::observe::pending_alerts::{AlertEvent, Change};

/// Reads the alerts of this queue whose beginning was notified and whose end was not. Fails if the
/// role may not write records.
pub(super) async fn read_firing(
    client: &Client,
    notify: &str,
) -> anyhow::Result<Vec<(Kind, String)>> {
    let may = client
        .query_typed_one(include_str!("may_tell.sql"), &[])
        .await?;
    ensure!(
        may.try_get::<_, bool>(0)?,
        "--notify records alerts in posthaste.alert, which requires the role posthaste_worker."
    );
    let sql = include_str!("notified.sql");
    let rows = client.query_typed(sql, &[(&notify, Type::TEXT)]).await?;
    let mut open = Vec::new();
    for row in rows {
        // A kind of another version is left to that version.
        if let Some(kind) = Kind::by_id(row.try_get(0)?) {
            open.push((kind, row.try_get(1)?));
        }
    }
    Ok(open)
}

/// Enqueues the job of an event, unless another process has.
pub(super) async fn enqueue_notification(
    client: &Client,
    notify: &str,
    event: &AlertEvent,
) -> anyhow::Result<()> {
    let mut fields = event_json(event)?;
    fields["event"] = json!(event.what.name());
    let (fields, id) = (fields.to_string(), event.finding.kind.id());
    let jobs = event.finding.jobs as f64;
    let values: [(&(dyn ToSql + Sync), Type); 5] = [
        (&notify, Type::TEXT),
        (&id, Type::TEXT),
        (&event.finding.subject, Type::TEXT),
        (&fields, Type::TEXT),
        (&jobs, Type::FLOAT8),
    ];
    let (sql, values) = match event.what {
        Change::Begins => (include_str!("begins.sql"), &values[..]),
        Change::Ends => (include_str!("ends.sql"), &values[..4]),
    };
    client.query_typed(sql, values).await?;
    Ok(())
}
