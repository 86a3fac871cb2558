//! The handler of `file.digest`.

use deadpool_postgres::Pool;
use posthaste::{Context, HandlerError, Job, Outcome};

use super::digest::{self, Finding};
use super::run::FileDigest;

/// Reads the file with no transaction open; then one transaction holds both the digest and the
/// completion, so that a worker that lost its claim meanwhile writes nothing.
pub(crate) async fn file_digest(
    pool: Pool,
    context: Context,
    job: Job,
) -> Result<Outcome, HandlerError> {
    let FileDigest { file } = job.kwargs()?;
    let mut client = pool.get().await?;
    let row = client
        .query_opt(include_str!("file_path.sql"), &[&file])
        .await?;
    let Some(row) = row else {
        return Ok(Outcome::Discard {
            reason: "its row is gone: a newer run took its place".to_owned(),
        });
    };
    let path = digest::path(row.try_get(0)?);
    drop(client);
    let finding = tokio::task::spawn_blocking(move || digest::examine(&path)).await??;
    let (size, sha256, problem) = match &finding {
        Finding::Digest { size, sha256 } => (Some(*size), Some(&sha256[..]), None),
        Finding::Problem(problem) => (None, None, Some(*problem)),
    };
    let attempts = job.attempt() + 1;
    client = pool.get().await?;
    let transaction = client.transaction().await?;
    let worked = transaction
        .prepare_typed_cached(include_str!("file_worked.sql"), &[])
        .await?;
    transaction
        .execute(&worked, &[&file, &size, &sha256, &problem, &attempts])
        .await?;
    context.complete_in(&transaction).await?;
    transaction.commit().await?;
    Ok(Outcome::Completed)
}
