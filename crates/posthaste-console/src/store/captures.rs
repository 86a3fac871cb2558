//! Captures and their gaps.

use deadpool_postgres::Pool;
use posthaste_capture::{Gap, PauseOutcome};

use super::{Session, StoreError};

pub(crate) async fn read_gaps(pool: &Pool) -> Result<Vec<Gap>, StoreError> {
    let session = Session::begin_read(pool).await?;
    let gaps = posthaste_capture::list_gaps(session.client()?, None).await?;
    session.commit().await?;
    Ok(gaps)
}

/// Marks a gap as accepted, and returns how many gaps that changed.
pub(crate) async fn accept_gap(pool: &Pool, id: i64) -> Result<usize, StoreError> {
    let session = Session::begin_action(pool).await?;
    let accepted = posthaste_capture::accept_gap(session.client()?, id).await?;
    session.commit().await?;
    Ok(usize::from(accepted))
}

/// Pauses or resumes a capture, and returns how many captures that changed.
pub(crate) async fn pause_capture(
    pool: &Pool,
    name: &str,
    is_paused: bool,
) -> Result<usize, StoreError> {
    let session = Session::begin_action(pool).await?;
    let client = session.client()?;
    let changed = match is_paused {
        true => posthaste_capture::pause(client, name).await?,
        false => posthaste_capture::resume(client, name).await?,
    };
    session.commit().await?;
    Ok(usize::from(changed == PauseOutcome::Changed))
}
