//! `posthaste rebase`: takes over the jobs of a restored, copied or upgraded database.

use posthaste_observe::format::pluralize;
use serde::Serialize;

use crate::database::Database;
use crate::terminal::Terminal;

/// Take over the jobs of a database that was restored from a dump, replicated, copied or upgraded
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Rebase even if a worker is running; its jobs run a second time
    #[arg(long)]
    force: bool,
}

#[derive(Serialize)]
struct Rebased {
    jobs: u64,
}

pub(crate) async fn run(
    arguments: &Arguments,
    database: &Database,
    terminal: &Terminal,
) -> anyhow::Result<()> {
    let mut client = database.address().connect().await?;
    let jobs = posthaste::rebase(&mut client, arguments.force).await?;
    let jobs_were = pluralize(jobs, "unfinished job was", "unfinished jobs were");
    let text = format!("{jobs_were} taken over; workers may be started");
    terminal.print_result(text, &Rebased { jobs })
}
