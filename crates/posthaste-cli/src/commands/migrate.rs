//! `posthaste migrate`: brings the schema up to date.

use serde::Serialize;

use crate::database::Database;
use crate::terminal::Terminal;

/// Bring the schema up to date; safe to repeat, and to run many times at once
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Print the SQL instead of running it; needs no database
    #[arg(long)]
    pub(crate) print: bool,
}

#[derive(Serialize)]
struct Migrated {
    applied: Vec<String>,
}

pub(crate) fn print(terminal: &Terminal) -> anyhow::Result<()> {
    terminal.print(&posthaste::migrations_sql())
}

pub(crate) async fn run(database: &Database, terminal: &Terminal) -> anyhow::Result<()> {
    let mut client = database.address().connect().await?;
    let report = posthaste::migrate(&mut client).await?;
    let applied = report.applied;
    let text = if applied.is_empty() {
        "the schema is up to date".to_owned()
    } else {
        format!("applied {}", applied.join(", "))
    };
    terminal.result(text, &Migrated { applied })
}
