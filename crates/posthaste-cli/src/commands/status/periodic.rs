//! Periodic jobs that the leader could not enqueue, for `posthaste status` and `posthaste doctor`.

use serde::Serialize;
use tokio_postgres::Client;

use crate::terminal::named;

/// The first of them by their names, and how many there are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Failed {
    pub(crate) first: Vec<Line>,
    pub(crate) all: i64,
}

/// One, with the reason.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) error: String,
}

impl Failed {
    /// One line for each that is named, and one that counts the others.
    pub(super) fn text(&self) -> String {
        let line = |one: &Line| {
            let (name, error) = (named(&one.name), named(&one.error));
            format!("\nperiodic job {name} is not enqueued: {error}")
        };
        let mut text: String = self.first.iter().map(line).collect();
        let others = self.all - i64::try_from(self.first.len()).unwrap_or(0);
        if others > 0 {
            text += &format!("\n{others} more periodic jobs are not enqueued");
        }
        text
    }
}

pub(crate) async fn failed(client: &Client) -> Result<Failed, tokio_postgres::Error> {
    let rows = client
        .query_typed(include_str!("periodic.sql"), &[])
        .await?;
    let mut failed = Failed::default();
    for row in &rows {
        failed.all = row.try_get("failed")?;
        failed.first.push(Line {
            name: row.try_get("name")?,
            error: row.try_get("error")?,
        });
    }
    Ok(failed)
}
