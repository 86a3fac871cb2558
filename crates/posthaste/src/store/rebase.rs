//! Takes over the jobs of a store whose transaction ids are invalid here
//! (sql/functions/rebase.sql).

use tokio_postgres::types::Type;
use tokio_postgres::{Client, IsolationLevel};

use crate::error::Error;

/// As for transactions of [`ReconnectingClient`](super::reconnecting::ReconnectingClient), but
/// without a lock timeout: a worker that starts has nothing else to do.
pub(super) const BEGIN_WITHOUT_LOCK_TIMEOUT: &str = "BEGIN ISOLATION LEVEL READ COMMITTED; \
    SET LOCAL search_path = pg_catalog, pg_temp; SET LOCAL jit = off; SET LOCAL lock_timeout = 0; \
    SET LOCAL statement_timeout = 0";

/// Takes over the jobs of a store that was restored from a dump, replicated logically, copied or
/// upgraded: every unfinished job once, including those enqueued since, and no finished job.
/// Returns their number. Until then workers refuse to work there and report why.
///
/// Stop all workers first. While a worker is alive the call fails with SQLSTATE 55000, unless
/// `force` is set: then the jobs of that worker run a second time. The caller must own the schema.
/// Enqueues wait while the call runs. An interrupted call has no effect, except that workers stay
/// locked out until a second call has succeeded.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let (mut client, connection) =
///     tokio_postgres::connect("dbname=restored", tokio_postgres::NoTls).await?;
/// tokio::spawn(connection);
/// let jobs = posthaste::rebase(&mut client, false).await?;
/// println!("{jobs} jobs go on here");
/// # Ok(()) }
/// ```
pub async fn rebase(client: &mut Client, force: bool) -> Result<u64, Error> {
    super::migrate::check_schema(client).await?;
    let failed = || Error::postgres("cannot rebase");
    // Committed separately: even if the second step fails, no worker can work until it succeeds.
    let transaction = begin_transaction(client).await?;
    transaction
        .query_typed_one(
            "SELECT posthaste.lock_out_workers($1)",
            &[(&force, Type::BOOL)],
        )
        .await
        .map_err(failed())?;
    transaction.commit().await.map_err(failed())?;
    let transaction = begin_transaction(client).await?;
    let jobs: i64 = transaction
        .query_typed_one("SELECT posthaste.rebase()", &[])
        .await
        .and_then(|row| row.try_get(0))
        .map_err(failed())?;
    transaction.commit().await.map_err(failed())?;
    Ok(jobs.unsigned_abs())
}

async fn begin_transaction(client: &mut Client) -> Result<tokio_postgres::Transaction<'_>, Error> {
    let failed = || Error::postgres("cannot rebase");
    let transaction = client
        .build_transaction()
        .isolation_level(IsolationLevel::ReadCommitted)
        .read_only(false)
        .start()
        .await
        .map_err(failed())?;
    // The duration grows with the number of jobs, and workers are locked out until it is done.
    let patient = "SET LOCAL statement_timeout = 0";
    transaction.batch_execute(patient).await.map_err(failed())?;
    Ok(transaction)
}
