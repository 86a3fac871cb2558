//! Statements of what operators do (sql/functions/operate.sql).

use super::reconnecting::ReconnectingClient;
use crate::error::Error;
use crate::job::JobId;

/// Jobs that are to be cancelled while they run, whichever worker runs them.
pub(crate) async fn cancelling(link: &ReconnectingClient) -> Result<Vec<JobId>, Error> {
    let what = "cannot find cancelled jobs";
    let rows = link
        .fetch(what, "SELECT id FROM posthaste.cancelling", &[])
        .await?;
    rows.iter()
        .map(|row| row.try_get(0).map(JobId).map_err(Error::postgres(what)))
        .collect()
}
