//! The handler of `file.digest`.

use std::sync::Arc;

use deadpool_postgres::Pool;
use posthaste::{Context, HandlerResult, Job, Outcome, Unnamed};
use tokio_postgres::types::Type;

use super::digest::{self, DigestResult};
use super::run::FileDigest;
use crate::failure;

/// Handles a job. Its error is stored with the job, formatted as on a terminal.
pub(crate) async fn file_digest(pool: Pool, context: Context, job: Arc<Job>) -> HandlerResult {
    let outcome = digest_and_complete(&pool, &context, &job).await;
    outcome.map_err(|error| failure::error_line(&error).into())
}

/// Reads the file without an open transaction. One transaction then writes both the digest and the
/// completion, so that a worker that lost its claim writes nothing.
async fn digest_and_complete(pool: &Pool, context: &Context, job: &Job) -> anyhow::Result<Outcome> {
    let FileDigest { file } = job.kwargs()?;
    let mut client = pool.get().await?;
    let listed = client
        .query_typed_opt(include_str!("file_path.sql"), &[(&file, Type::INT8)])
        .await?;
    let Some(row) = listed else {
        let reason = "its row no longer exists: a newer run replaced it".to_owned();
        return Ok(Outcome::Discard { reason });
    };
    let path = digest::path_from_bytes(row.try_get(0)?);
    drop(client);
    let finding = tokio::task::spawn_blocking(move || digest::digest_path(&path)).await??;
    let (size, sha256, problem) = match &finding {
        DigestResult::Digest { size, sha256 } => (Some(*size), Some(&sha256[..]), None),
        DigestResult::Problem(problem) => (None, None, Some(*problem)),
    };
    client = pool.get().await?;
    let transaction = client.transaction().await?;
    transaction
        .execute_typed(
            include_str!("file_worked.sql"),
            &[
                (&file, Type::INT8),
                (&size, Type::INT8),
                (&sha256, Type::BYTEA),
                (&problem, Type::TEXT),
                (&job.attempt, Type::INT4),
            ],
        )
        .await?;
    context.complete_in(Unnamed(&transaction)).await?;
    transaction.commit().await?;
    Ok(Outcome::Done)
}
