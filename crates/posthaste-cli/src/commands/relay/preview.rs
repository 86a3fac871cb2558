//! `posthaste relay preview`: prints what would be sent for the waiting jobs.

use posthaste_relay::preview;
use serde_json::value::RawValue;

use super::RouteSelection;
use super::misrouted::{RouteInput, misrouted_lines};
use crate::database::Database;
use crate::failure;
use crate::terminal::Terminal;

/// Show what would be sent for waiting jobs, one line of JSON each, without sending it
#[derive(clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    which: RouteSelection,

    /// Maximum number of jobs to show per route
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1_000,
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    limit: u32,
}

pub(super) async fn run(
    arguments: &Arguments,
    database: &Database,
    terminal: &Terminal,
) -> anyhow::Result<()> {
    let routes = arguments.which.read()?;
    let client = database.address().connect().await?;
    let mut all: Vec<Box<RawValue>> = Vec::new();
    let mut is_empty = true;
    for route in &routes {
        for line in preview(&client, route, arguments.limit).await? {
            is_empty = false;
            match terminal.is_json() {
                true => all.push(RawValue::from_string(line)?),
                false => terminal.print(&line)?,
            }
        }
    }
    let fed = routes.iter().map(|route| RouteInput {
        route: route.name(),
        queue: route.queue(),
        came: 0,
    });
    let fed: Vec<RouteInput<'_>> = fed.collect();
    let misrouted = match misrouted_lines(&client, &fed).await {
        Ok(lines) => lines,
        Err(error) => vec![failure::error_line(&error)],
    };
    if is_empty && misrouted.is_empty() {
        terminal.print_remark("no job is due");
    }
    for line in misrouted {
        terminal.print_remark(&line);
    }
    match terminal.is_json() {
        true => terminal.print_json(&all),
        false => Ok(()),
    }
}
