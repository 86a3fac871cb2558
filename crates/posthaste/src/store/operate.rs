//! Statements for operations (sql/functions/operate.sql).

use super::reconnecting::ReconnectingClient;
use crate::error::Error;
use crate::job::JobId;

/// Returns running jobs that are to be cancelled, whichever worker runs them.
pub(crate) async fn read_jobs_to_cancel(link: &ReconnectingClient) -> Result<Vec<JobId>, Error> {
    let what = "cannot find cancelled jobs";
    let rows = link.call(what, include_str!("cancelling.sql"), &[]).await?;
    rows.iter()
        .map(|row| row.try_get(0).map(JobId).map_err(Error::postgres(what)))
        .collect()
}
