//! The statement of a re-index. The database builds it, and quotes names and values.

use tokio_postgres::Client;
use tokio_postgres::types::Type;

use crate::{Reindex, ReindexPlan, reindex_queue};
use posthaste::Error;

impl Reindex {
    /// Returns what this re-index would do to this synced table. Fails if the rows cannot be
    /// selected by it.
    pub async fn plan(&self, client: &Client, table: &str) -> Result<ReindexPlan, Error> {
        let mark = format!("{:016x}", fastrand::u64(..));
        let (statement, about) = plan_statement(client, table, self, &mark).await?;
        Ok(ReindexPlan {
            statement,
            about,
            mark,
        })
    }
}

impl ReindexPlan {
    /// Enqueues a job for each document, and returns how many.
    pub async fn begin(&self, client: &Client) -> Result<u64, Error> {
        let jobs = client.execute_typed(&self.statement, &[]).await;
        jobs.map_err(Error::postgres("the re-index did not start"))
    }
}

/// Returns the statement and the estimated number of documents.
async fn plan_statement(
    client: &Client,
    table: &str,
    reindex: &Reindex,
    mark: &str,
) -> Result<(String, f64), Error> {
    let failed = "these documents cannot be selected";
    let queue = reindex_queue(table);
    let made = client
        .query_typed_one(
            include_str!("reindex.sql"),
            &[
                (&table, Type::TEXT),
                (&reindex.condition, Type::TEXT),
                (&reindex.column, Type::TEXT),
                (&reindex.since, Type::TEXT),
                (&reindex.until, Type::TEXT),
                (&reindex.ids, Type::TEXT_ARRAY),
                (&reindex.tag, Type::TEXT),
                (&reindex.priority, Type::INT4),
                (&reindex.force, Type::BOOL),
                (&queue, Type::TEXT),
                (&reindex.equals, Type::TEXT),
                (&mark, Type::TEXT),
            ],
        )
        .await
        .map_err(Error::postgres(failed))?;
    let statement: String = made.try_get(0).map_err(Error::postgres(failed))?;
    let explain: String = made.try_get(1).map_err(Error::postgres(failed))?;
    let explained = client.query_typed_one(&explain, &[]).await;
    let explained = explained.map_err(Error::postgres(failed))?;
    let plan: serde_json::Value = explained.try_get(0).map_err(Error::postgres(failed))?;
    let about = plan[0]["Plan"]["Plan Rows"].as_f64();
    Ok((statement, about.unwrap_or_default()))
}
