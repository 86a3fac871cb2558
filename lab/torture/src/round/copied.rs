//! A copy of the server, with a process of another site.

use std::time::Duration;

use posthaste_testkit::{Child, PgServer, connect, eventually, number};

use super::faults::Struck;
use super::stage::{DATABASE, SOON, Stage};
use crate::history::COPY;

/// A copy that runs until the end of the round.
pub(super) struct Copied {
    server: PgServer,
    process: Child,
}

impl Stage {
    /// Starts a base backup of the server at another port, with a worker or relay without a site.
    pub(super) async fn copy(&mut self) -> anyhow::Result<Struck> {
        let server = tokio::task::block_in_place(|| self.server.start_backup(&[]))?;
        let name = format!("{COPY}.{}", self.copies.len() + 1);
        let url = format!("{}?application_name={name}", server.url(DATABASE));
        let process = Child::spawn(&mut self.process(0, &name, &url))?;
        let copy = Copied { server, process };
        if let Err(error) = copy.is_refused(self.soon()).await {
            self.oddities.push(format!("the process {name}: {error:#}"));
        }
        self.copies.push(copy);
        Ok(Struck::one(name))
    }

    /// Checks that the processes on copies wait until the end, and that the copies show no activity
    /// of theirs.
    pub(super) async fn end_copies(&mut self) -> anyhow::Result<()> {
        for mut copy in std::mem::take(&mut self.copies) {
            if let Err(error) = copy.is_refused(self.soon()).await {
                self.oddities
                    .push(format!("the copy, in the end: {error:#}"));
            }
            copy.process.terminate()?;
            if let Err(error) = copy.process.exit(SOON).await {
                self.oddities
                    .push(format!("the copy's process did not stop: {error:#}"));
            }
            tokio::task::block_in_place(|| drop(copy));
        }
        Ok(())
    }
}

impl Copied {
    /// Waits until the process has recently reported why it waits.
    async fn is_refused(&self, within: Duration) -> anyhow::Result<()> {
        let client = connect(&self.server.url(DATABASE)).await?;
        let notes = "SELECT count(*) FROM posthaste.site
                      WHERE clock_timestamp() - interval '15 s' < ANY (refused_at)";
        eventually(within, "another site works its store", async || {
            Ok(number(&client, notes).await? > 0)
        })
        .await
    }
}
