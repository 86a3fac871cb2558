//! The activity of queues in the last ten minutes.

use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error as PgError};

use crate::error::Error;
use crate::facts::QueueActivity;
use crate::snapshot::Snapshot;

/// Reads the activity: the difference between the totals now and those of the oldest sample.
pub(super) async fn read(
    client: &Client,
    snapshot: &Snapshot,
) -> Result<Vec<QueueActivity>, Error> {
    let sums = snapshot.sums_by_queue();
    let rows = client.query_typed(include_str!("window.sql"), &[]);
    let mut windows = Vec::new();
    for row in rows.await? {
        let queue: String = row.try_get("queue")?;
        let Some(now) = sums.get(queue.as_str()) else {
            continue;
        };
        let since = |now: i64, column: &str| -> Result<i64, PgError> {
            // Totals of a restored store start again.
            Ok((now - row.try_get::<_, i64>(column)?).max(0))
        };
        windows.push(QueueActivity {
            seconds: row.try_get("seconds")?,
            enqueued: since(now.enqueued(), "come")?,
            completed: since(now.done, "done")?,
            failed: since(now.failed, "failed")?,
            error: None,
            queue,
        });
    }
    let failing = windows.iter().filter(|one| one.failed_share() > 0.1);
    let failing: Vec<String> = failing.map(|one| one.queue.clone()).collect();
    if !failing.is_empty() {
        let sql = include_str!("errors.sql");
        for row in client
            .query_typed(sql, &[(&failing, Type::TEXT_ARRAY)])
            .await?
        {
            let queue: &str = row.try_get("queue")?;
            if let Some(window) = windows.iter_mut().find(|one| one.queue == queue) {
                window.error = row.try_get("error")?;
            }
        }
    }
    Ok(windows)
}
