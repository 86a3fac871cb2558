//! `posthaste adopt`: takes over a copy of another site's store permanently.

use posthaste_observe::format::pluralize;
use serde::Serialize;

use crate::database::Database;
use crate::site;
use crate::terminal::Terminal;

/// Take over a copy of another site's database, so that the workers of this site run its jobs
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Discard all unfinished jobs of the other site instead of running them here
    #[arg(long)]
    discard: bool,

    /// Adopt even if a worker is running
    #[arg(long)]
    force: bool,
}

#[derive(Serialize)]
struct Adopted {
    from: Option<String>,
    discarded: Option<u64>,
}

pub(crate) async fn run(
    arguments: &Arguments,
    database: &Database,
    terminal: &Terminal,
) -> anyhow::Result<()> {
    let address = database.address();
    // Connects first, so that an unreachable database is explained.
    drop(address.connect().await?);
    let site = site::configured_site(address)?;
    let pool = address.pool(1)?;
    let adopted = posthaste::adopt(&pool, site.as_deref(), arguments.force, arguments.discard);
    let adopted = adopted.await?;
    let mut text = match &adopted.from {
        Some(site) => format!("this site adopted the store, which belonged to {site}"),
        None => "this site adopted the store, which belonged to no site".to_owned(),
    };
    if let Some(jobs) = adopted.discarded {
        let jobs_were = pluralize(jobs, "unfinished job was", "unfinished jobs were");
        text += &format!("; {jobs_were} discarded");
    }
    let result = Adopted {
        from: adopted.from,
        discarded: adopted.discarded,
    };
    terminal.print_result(text, &result)
}
