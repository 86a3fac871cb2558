//! The statement of a re-index, which the database makes: names and values are quoted there.

use tokio_postgres::Client;
use tokio_postgres::types::Type;

use crate::{Reindex, ReindexPlan, reindex_queue};
use posthaste::Error;

impl Reindex {
    /// What it would do to this synced table. Fails where the rows cannot be chosen so.
    pub async fn plan(&self, client: &Client, table: &str) -> Result<ReindexPlan, Error> {
        let mark = format!("{:016x}", fastrand::u64(..));
        let (statement, about) = plan(client, table, self, &mark).await?;
        Ok(ReindexPlan {
            statement,
            about,
            mark,
        })
    }
}

impl ReindexPlan {
    /// Enqueues a job for each document; how many.
    pub async fn begin(&self, client: &Client) -> Result<u64, Error> {
        let jobs = client.execute_typed(&self.statement, &[]).await;
        jobs.map_err(Error::postgres("the re-index did not begin"))
    }
}

/// The statement, and about how many documents it takes.
async fn plan(
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
