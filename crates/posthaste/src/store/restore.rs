//! Taking over jobs where their transaction ids mean nothing (sql/functions/rebase.sql).

use tokio_postgres::types::Type;
use tokio_postgres::{Client, IsolationLevel};

use crate::error::Error;

/// As the transactions of [`ReconnectingClient`](super::reconnecting::ReconnectingClient), but that
/// locks are waited for: a worker that starts has nothing else to do.
pub(super) const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED; \
    SET LOCAL search_path = pg_catalog, pg_temp; SET LOCAL jit = off; SET LOCAL lock_timeout = 0; \
    SET LOCAL statement_timeout = 0";

/// Takes over the jobs of a store that was restored from a dump, replicated logically, copied or
/// upgraded: every unfinished job once, whatever was enqueued since included; nothing that was
/// done. Returns how many. Until then workers refuse to work there, and say so.
///
/// All workers have to be stopped. While one lives the call is refused with SQLSTATE 55000, unless
/// `force` says otherwise: then its jobs are run a second time. The caller owns the schema.
/// Enqueues wait while it runs; if it is interrupted nothing happened, except that workers stay
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
    super::migrate::require_current(client).await?;
    let failed = || Error::postgres("cannot rebase");
    // Committed by itself: whatever becomes of the second step, nobody works meanwhile.
    let transaction = own_transaction(client).await?;
    transaction
        .query_typed_one("SELECT posthaste.lock_out($1)", &[(&force, Type::BOOL)])
        .await
        .map_err(failed())?;
    transaction.commit().await.map_err(failed())?;
    let transaction = own_transaction(client).await?;
    let jobs: i64 = transaction
        .query_typed_one("SELECT posthaste.rebase()", &[])
        .await
        .and_then(|row| row.try_get(0))
        .map_err(failed())?;
    transaction.commit().await.map_err(failed())?;
    Ok(jobs.unsigned_abs())
}

async fn own_transaction(client: &mut Client) -> Result<tokio_postgres::Transaction<'_>, Error> {
    let failed = || Error::postgres("cannot rebase");
    let transaction = client
        .build_transaction()
        .isolation_level(IsolationLevel::ReadCommitted)
        .read_only(false)
        .start()
        .await
        .map_err(failed())?;
    // It takes as long as there are jobs, and workers are locked out until it is done.
    let patient = "SET LOCAL statement_timeout = 0";
    transaction.batch_execute(patient).await.map_err(failed())?;
    Ok(transaction)
}
