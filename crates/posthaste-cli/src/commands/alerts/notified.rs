//! Which alerts were notified by jobs: the statement that enqueues the job of a beginning notes
//! it, and the statement that enqueues the job of an end removes the note. A statement that
//! changes no note enqueues nothing, so of several processes one tells of each.

use anyhow::ensure;
use posthaste_observe::Kind;
use serde_json::json;
use tokio_postgres::Client;
use tokio_postgres::types::{ToSql, Type};

use super::fields;
use crate::observe::pending::{Event, What};

/// The alerts whose beginning was notified to this queue and not yet their end. An error for a
/// role that may not note more.
pub(super) async fn read(client: &Client, notify: &str) -> anyhow::Result<Vec<(Kind, String)>> {
    let may = client
        .query_typed_one(include_str!("may_tell.sql"), &[])
        .await?;
    ensure!(
        may.try_get::<_, bool>(0)?,
        "--notify notes in posthaste.alert what it tells: it needs the role posthaste_worker."
    );
    let sql = include_str!("notified.sql");
    let rows = client.query_typed(sql, &[(&notify, Type::TEXT)]).await?;
    let mut open = Vec::new();
    for row in rows {
        // A kind that only another version knows is that version's to end.
        if let Some(kind) = Kind::by_id(row.try_get(0)?) {
            open.push((kind, row.try_get(1)?));
        }
    }
    Ok(open)
}

/// Enqueues the job of an event, unless a process has done so.
pub(super) async fn notify(client: &Client, notify: &str, event: &Event) -> anyhow::Result<()> {
    let mut fields = fields(event)?;
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
        What::Begins => (include_str!("begins.sql"), &values[..]),
        What::Ends => (include_str!("ends.sql"), &values[..4]),
    };
    client.query_typed(sql, values).await?;
    Ok(())
}
