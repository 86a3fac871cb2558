//! The web service: saves annotations, each with its index job, and indexes them directly.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use anyhow::Result;
use axum::extract::State;
use axum::{Router, routing::post};
use deadpool_postgres::Pool;
use posthaste_sync::Direct;
use serde_json::json;

use super::index;
use crate::process::{self, Failed};

/// One request in this many changes an existing annotation.
const CHANGES: i64 = 4;
const INSERT: &str = "INSERT INTO annotation (body) VALUES ($1) RETURNING id, posthaste_version";
/// Ids are assigned before their rows are visible, so the next visible row is changed.
const UPDATE: &str = "UPDATE annotation SET body = $1 WHERE id = (SELECT min(id) FROM annotation \
                      WHERE id >= $2) RETURNING id, posthaste_version";

struct Service {
    pool: Pool,
    direct: Direct,
    requests: AtomicI64,
    /// The newest annotation that was committed.
    last: AtomicI64,
}

pub async fn run() -> Result<()> {
    let service = Arc::new(Service {
        pool: process::pool()?,
        direct: Direct::to(index()?),
        requests: AtomicI64::new(0),
        last: AtomicI64::new(0),
    });
    let routes = Router::new()
        .route("/annotation", post(annotate))
        .with_state(Arc::clone(&service));
    process::serve(routes).await?;
    service.pool.close();
    Ok(())
}

/// Saves with the job, commits, and then indexes within the budget. The result of indexing is
/// ignored.
async fn annotate(State(service): State<Arc<Service>>, body: String) -> Result<String, Failed> {
    let mut client = service.pool.get().await?;
    let tx = client.transaction().await?;
    let request = service.requests.fetch_add(1, Ordering::Relaxed);
    // The triggers of the table enqueue the job, in this transaction.
    let last = service.last.load(Ordering::Relaxed);
    let row = if last > 0 && request % CHANGES == 0 {
        let beyond = fastrand::i64(1..=last);
        tx.query_one(UPDATE, &[&body, &beyond]).await?
    } else {
        tx.query_one(INSERT, &[&body]).await?
    };
    tx.commit().await?;
    // While the index does not answer, this request must not hold a connection.
    drop(client);
    let (id, version): (i64, i64) = (row.get(0), row.get(1));
    service.last.fetch_max(id, Ordering::Relaxed);
    let document = json!({"id": id, "body": body});
    let (id, document) = (id.to_string(), document.to_string());
    service.direct.put(id.clone(), version, document).await;
    Ok(id)
}
